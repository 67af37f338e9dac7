"""When the labels of a stream came, from its history. `trueup streams suggest` uses it."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from replay.figures import OutcomeAges
from replay.measure import ages_of
from replay.silence import KNOWN
from replay.sources.record import Chunk, ReplaySource, loaded
from state.arrays import Floats
from state.events import Forecast, Outcome, erases
from state.fence import FORECASTS, OUTCOMES
from streams.records.decoding import Decoder

#: For a proposal: fewest forecasts that had time for their outcome, and fewest outcomes of a label.
FEWEST, FEWEST_EACH = 200, 20
#: If outcomes of 0 are less than this share of those of 1, they count as mistakes, not as reported labels.
SLIP: Final = 0.05
#: Zeros may be unreported up to some score, which at least half of all forecasts must not exceed. It is searched in
#: fiftieths of the forecasts.
LOW, PARTS = 25, 50
#: The score decides which forecasts get a label if there is a cut-off such that at least this share has a label above
#: it, and at most the share `SLIP` below it.
CHOSEN: Final = 0.8
#: If there are more different labels, outcomes are numbers, not classes.
_LABELS: Final = 64


@dataclass(frozen=True)
class Seen:
    """What was observed of a stream."""

    #: Its name.
    stream: str
    #: Time from the first forecast to the last record.
    span_ms: float
    #: Forecasts.
    forecasts: int
    #: Forecasts of the first half of the time, whose outcomes had at least the second half to come; and how many of
    #: them have one. All fields below are about these forecasts.
    old: int
    known: int
    #: First outcomes by label, the smallest first.
    labels: Sequence[OutcomeAges]
    #: Events whose label changed, and the age at the latest change; NaN without one.
    revised: int
    last_revised_ms: float
    #: Outcomes without a forecast in the whole history, over all streams.
    orphans: int
    #: Age at which 99 % of the changed labels had changed; NaN without one.
    corrected_ms: float = math.nan
    #: Events whose last label is 1.
    ones: int = 0
    #: Up to this score ones are reported but hardly any zeros; higher scores have both. Then the number of these ones.
    #: At least half of the forecasts have such low scores. NaN and 0 if there is no such score.
    low: float = math.nan
    low_ones: int = 0
    #: From this score on, most forecasts have an outcome; below it, hardly any have. NaN if there is no such score.
    chosen: float = math.nan
    #: How often a first outcome of 0 is followed by one of 1, or the reverse: in the order in which outcomes came in
    #: their partitions, and in the order of their forecasts. Other labels are left out.
    turns: int = 0
    turns_issued: int = 0
    #: Record times that several first outcomes share and that have both labels; and how many would have both by chance.
    mixed: int = 0
    mixed_by_chance: float = 0.0


@dataclass
class _History:
    """Forecasts of the streams, and every outcome, in the order of the topics."""

    #: By stream and event: the time of the forecast, and its score (NaN if it is not one number).
    streams: dict[str, dict[str, tuple[int, float]]] = field(default_factory=dict)
    #: Events of all streams, even of streams that are not observed.
    events: set[str] = field(default_factory=set)
    told: dict[str, list[tuple[int, int, float]]] = field(default_factory=dict)
    #: Partition of each event's first outcome, in the topic's order.
    came: dict[str, int] = field(default_factory=dict)
    end: int = 0
    #: Forecasts by stream.
    seen: Counter[str] = field(default_factory=Counter)


def read(source: ReplaySource, decoder: Decoder, stream: str | None = None) -> list[Seen]:
    """Read all partitions of a history. Observe one stream, or each, the largest first.

    Raises LookupError if the stream has no forecast in the history; the message names the streams that have most.

    ``decoder``: that of the present streams file; rejected records are ignored.
    """
    history = _History()
    for partition in range(source.partitions):
        for forecast in _events(history, source.read(FORECASTS, partition), decoder, decoder.forecast):
            if isinstance(forecast, Forecast):
                history.seen[forecast.stream] += 1
                history.events.add(forecast.event_id)
                if stream in (None, forecast.stream):
                    score = forecast.raw if isinstance(forecast.raw, float) else math.nan
                    issued = history.streams.setdefault(forecast.stream, {})
                    issued.setdefault(forecast.event_id, (forecast.ts, score))
        for outcome in _events(history, source.read(OUTCOMES, partition), decoder, decoder.outcome):
            if isinstance(outcome, Outcome) and not erases(outcome.y):
                history.came.setdefault(outcome.event_id, partition)
                history.told.setdefault(outcome.event_id, []).append((outcome.revision, outcome.ts, outcome.y))
    if stream is not None and stream not in history.streams:
        there = ", ".join(f"{name} ({n:,})" for name, n in history.seen.most_common(5)) or "none"
        raise LookupError(f"no forecast of stream {stream!r} in this history; streams there: {there}")
    return [_seen(history, name) for name, _ in history.seen.most_common() if name in history.streams]


def _events(
    history: _History, chunks: Iterable[Chunk], decoder: Decoder, read: Callable[..., object]
) -> Iterator[object]:
    """Yield the events of readable records, and note the time of the last record."""
    for chunk in chunks:
        for record in loaded(decoder, chunk.records):
            history.end = max(history.end, record.timestamp)
            event = read(record.offset, record.key, record.value, max(record.timestamp, 0), record.headers)
            if not record.reason:
                yield event


def _seen(history: _History, stream: str) -> Seen:
    issued = history.streams[stream]
    start = min(ts for ts, _ in issued.values())
    span = history.end - start
    old = {event_id: ts for event_id, (ts, _) in issued.items() if ts <= start + span / 2}
    ages: dict[float, list[float]] = {}
    changed: list[float] = []
    first: dict[str, float] = {}
    together: dict[int, list[float]] = {}
    ones = 0
    for event_id, ts in old.items():
        told = history.told.get(event_id)
        if told is None:
            continue
        # In the engine's order: by revision number, then by time.
        label, *later = sorted(told, key=lambda each: each[:2])
        ages.setdefault(label[2], []).append(max(0, label[1] - ts))
        now = first[event_id] = label[2]
        if now in (0.0, 1.0):
            together.setdefault(label[1], []).append(now)
        for _, at, y in later:
            if y != now:
                now = y
                changed.append(max(0, at - ts))
        ones += now == 1.0
    scored = [(issued[event_id][1], first.get(event_id, math.nan)) for event_id in old]
    score, of_score = np.array(sorted(each for each in scored if not math.isnan(each[0]))).reshape(-1, 2).T
    low, low_ones = _low(score, of_score)
    mixed, by_chance = _mixed([labels for labels in together.values() if len(labels) > 1])
    came = [(at, old[event_id], event_id) for event_id, at in history.came.items() if first.get(event_id) in (0.0, 1.0)]
    return Seen(
        stream=stream,
        span_ms=span,
        forecasts=len(issued),
        old=len(old),
        known=sum(map(len, ages.values())),
        labels=[ages_of(label, np.array(found)) for label, found in sorted(ages.items())][:_LABELS],
        revised=len(changed),
        last_revised_ms=max(changed, default=math.nan),
        orphans=sum(event_id not in history.events for event_id in history.told),
        corrected_ms=float(np.quantile(changed, KNOWN)) if changed else math.nan,
        ones=ones,
        low=low,
        low_ones=low_ones,
        chosen=_chosen(score[::-1], of_score[::-1]),
        turns=_turns([first[event_id] for _, _, event_id in came]),
        turns_issued=_turns([first[event_id] for _, _, event_id in sorted(came, key=lambda each: each[:2])]),
        mixed=mixed,
        mixed_by_chance=by_chance,
    )


def _turns(labels: Sequence[float]) -> int:
    """Return how often a label is followed by a different one."""
    return sum(one != other for one, other in pairwise(labels))


def _mixed(moments: Sequence[Sequence[float]]) -> tuple[int, float]:
    """Return how many moments have both labels, and how many would have if labels were independent."""
    rate = sum(map(sum, moments)) / max(sum(map(len, moments)), 1)
    by_chance = sum(1.0 - rate ** len(each) - (1.0 - rate) ** len(each) for each in moments)
    return sum(min(each) != max(each) for each in moments), by_chance


def _low(score: Floats, label: Floats) -> tuple[float, int]:
    """Return `Seen.low` and `Seen.low_ones` from ascending scores and their first labels (NaN without one)."""
    for part in range(PARTS - 1, LOW - 1, -1):
        most = score[len(score) * part // PARTS - 1] if len(score) >= FEWEST else math.nan
        mine = score <= most
        ones, zeros = int((label[mine] == 1.0).sum()), int((label[mine] == 0.0).sum())
        if ones >= FEWEST_EACH and zeros <= SLIP * ones and score[mine].mean() < 0.5 and not mine.all():
            return float(most), ones
    return math.nan, 0


def _chosen(score: Floats, label: Floats) -> float:
    """Return `Seen.chosen`: the cut-off that best separates forecasts with an outcome from those without.

    ``score, label``: as for `_low`, but with the highest score first.
    """
    known = ~np.isnan(label)
    if np.count_nonzero(label == 1.0) < FEWEST_EACH or np.count_nonzero(label == 0.0) < FEWEST_EACH:
        return math.nan
    cut = int(np.argmax(np.cumsum(np.where(known, 1, -1)))) + 1
    above, below = label[:cut], label[cut:]
    few = known[cut:].sum() <= SLIP * len(below)
    # If ones are reported for all scores, ones are a larger share of the labels below than of those above.
    rarer = (below == 1.0).sum() * known[:cut].sum() <= (above == 1.0).sum() * known[cut:].sum()
    return float(score[cut - 1]) if few and rarer and known[:cut].mean() >= CHOSEN and cut < len(label) else math.nan
