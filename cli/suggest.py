"""``trueup streams suggest``: when a stream's labels come, and which ``matures``, ``silence`` and ``ttl`` fit."""

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from cli import replay
from cli.options import DONE, NO
from replay.sources.record import Source, loaded
from state.arrays import Floats
from state.events import Forecast, Outcome
from state.fence import FORECASTS, OUTCOMES
from state.forecasts import QUANTILES
from state.policy import ALIKE
from state.scoring.ages import DAY_MS, words
from streams.config import stream_config
from streams.config.settings import Settings, SettingsError
from streams.records.decoding import Decoder

#: A proposal needs at least so many forecasts that had time for their outcome, and outcomes of a label.
FEWEST, FEWEST_EACH = 200, 20
#: If this share of forecasts has an outcome, every outcome is reported. If less than `RARELY` has, silence is a label.
NEARLY, RARELY = 0.95, 0.5
#: So few outcomes of 0 beside those of 1 count as mistakes, not as labels that are reported.
SLIP: Final = 0.05
#: Where scores are low, zeros may be reported of nothing. Such scores are at least half of all forecasts, in fiftieths.
LOW, PARTS = 25, 50
#: The score chooses what is labelled if this share of the higher forecasts has an outcome, and `SLIP` of the others.
CHOSEN: Final = 0.8
#: Labels are learnt when they are corrected, if so many first ones are wrong for each final one of the rarer class.
OFTEN: Final = 0.5
#: Two labels differ in age if their medians differ by this share of the longer one.
APART: Final = 0.25
#: Outcomes come sorted by label if this share of the changes from one label to the next is left that the same outcomes
#: have in the order of their forecasts, of which there are at least `FEWEST_EACH`.
SORTED: Final = 0.5
#: At maturity, at least this share of the outcomes of every label must be known.
KNOWN: Final = 0.99
#: A row is kept so many times longer than the latest outcome took, because a later one may come.
SPARE: Final = 1.1


@dataclass(frozen=True)
class Label:
    """First outcomes of one label: their number and their ages in ms."""

    label: float
    n: int
    median_ms: float
    p99_ms: float
    largest_ms: float


@dataclass(frozen=True)
class Seen:
    """Observations of a stream.

    Attributes
    ----------
    stream
        Its name.
    span_ms
        From the first forecast to the last record.
    forecasts
        Forecasts.
    old, known
        Those of the first half of the span, which had at least the other half for their outcome, and those of them that
        have one. All below is of these.
    labels
        First outcomes by label, the smallest first.
    revised, last_revised_ms
        Events whose label changed, and the age at the latest change; NaN without one.
    orphans
        Outcomes of the whole history without a forecast, of any stream.
    corrected_ms
        Age by which 99 in 100 of the changed labels had changed; NaN without one.
    ones
        Events whose label is 1 in the end.
    turns, turns_issued
        How often a first outcome of 0 follows one of 1 or the other way round, as they come in their partitions and in
        the order of their forecasts; outcomes of other labels are left out.
    low, low_ones
        The largest score up to which outcomes of 1 are reported and hardly any of 0, though higher scores have both,
        and these ones. Such scores are at least half of the forecasts, and low on average. NaN and 0 without.
    chosen
        The score from which on most forecasts have an outcome, of either label, and hardly any below; NaN without.
    """

    stream: str
    span_ms: float
    forecasts: int
    old: int
    known: int
    labels: Sequence[Label]
    revised: int
    last_revised_ms: float
    orphans: int
    corrected_ms: float = math.nan
    ones: int = 0
    low: float = math.nan
    low_ones: int = 0
    chosen: float = math.nan
    turns: int = 0
    turns_issued: int = 0


@dataclass(frozen=True)
class Proposal:
    """Proposed settings, in ms, and the label of silence; None means: do not set. With reasons, in sentences."""

    matures_ms: float | None = None
    silence: int | None = None
    ttl_ms: float | None = None
    revisable_ms: float | None = None
    unlabelled: str | None = None
    reasons: Sequence[str] = ()

    def toml(self, stream: str) -> str:
        """Return the lines of the streams file."""
        lines = [f"[streams.{_quoted(stream)}]"]
        if self.matures_ms is not None:
            lines.append(f'matures = "{words(self.matures_ms)}"')
        if self.silence is not None:
            lines.append(f"silence = {self.silence}")
        if self.ttl_ms is not None:
            lines.append(f'ttl = "{words(self.ttl_ms)}"')
        if self.revisable_ms is not None:
            lines.append(f'revisable = "{words(self.revisable_ms)}"')
        if self.unlabelled is not None:
            lines.append(f'unlabelled = "{self.unlabelled}"')
        return "\n".join(lines)


@dataclass
class _History:
    """Forecasts of the stream by event id, and every outcome, in the order of the topics."""

    issued: dict[str, int] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    told: dict[str, list[tuple[int, int, float]]] = field(default_factory=dict)
    #: Partition of each event's first outcome, in the order of the topic.
    came: dict[str, int] = field(default_factory=dict)
    end: int = 0
    plain: bool = True


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Print a proposal for a stream, and return 0; 1 where its history is too small for one, or has nothing of it.

    Raises
    ------
    SettingsError, TopicsError, TableError
        If the history cannot be read.
    """
    policy = settings.policies.of(options.stream)
    if options.table and options.label_time is None:
        raise SettingsError("streams suggest needs --label-time: without it nothing says how late labels come")
    direct = None if options.table else settings.direct
    decoder = Decoder(settings.policies, settings.limits, direct, settings.carry_headers)
    source = replay.source(options, settings)
    try:
        seen = read(source, decoder, options.stream)
    except LookupError as exc:
        print(exc.args[0], file=sys.stderr)
        return NO
    for note in source.notes if options.table else ():
        print(note, file=sys.stderr)
    numbers = policy is not None and is_numbers(policy.kind)
    proposal = propose(seen, numbers=numbers, silent=source.silent[options.stream] if options.table else 0)
    print(json.dumps(plain(seen, proposal)) if options.json else told(seen, proposal))
    return DONE if proposal.ttl_ms is not None else NO


def read(source: Source, decoder: Decoder, stream: str) -> Seen:
    """Read all partitions of a history and observe one stream.

    Parameters
    ----------
    source
        Where the records are.
    decoder
        Of the present streams file; rejected records are ignored.
    stream
        The stream's name.

    Raises
    ------
    LookupError
        If the stream has no forecast in the history; the message names the streams that have most.
    """
    history, seen = _History(), Counter[str]()
    for partition in range(source.partitions):
        for chunk in source.read(FORECASTS, partition):
            for record in loaded(decoder, chunk.records):
                history.end = max(history.end, record.timestamp)
                event = decoder.forecast(
                    record.offset, record.key, record.value, max(record.timestamp, 0), record.headers
                )
                if record.reason or not isinstance(event, Forecast):
                    continue
                seen[event.stream] += 1
                if event.stream != stream:
                    history.others.add(event.event_id)
                else:
                    history.issued.setdefault(event.event_id, event.ts)
                    if isinstance(event.raw, float):
                        history.scores.setdefault(event.event_id, event.raw)
        for chunk in source.read(OUTCOMES, partition):
            for record in loaded(decoder, chunk.records):
                history.end = max(history.end, record.timestamp)
                outcome = decoder.outcome(
                    record.offset, record.key, record.value, max(record.timestamp, 0), record.headers
                )
                if not record.reason and isinstance(outcome, Outcome):
                    said = outcome.revision, outcome.ts, outcome.y
                    history.came.setdefault(outcome.event_id, partition)
                    history.told.setdefault(outcome.event_id, []).append(said)
    if not history.issued:
        listed = ", ".join(f"{name} ({n:,})" for name, n in seen.most_common(5)) or "none"
        raise LookupError(f"no forecast of stream {stream!r} in this history; streams there: {listed}")
    return _seen(history, stream)


def _seen(history: _History, stream: str) -> Seen:
    start = min(history.issued.values())
    span = history.end - start
    old = {event_id: ts for event_id, ts in history.issued.items() if ts <= start + span / 2}
    ages: dict[float, list[float]] = {}
    changed: list[float] = []
    first: dict[str, float] = {}
    ones = 0
    for event_id, ts in old.items():
        told = history.told.get(event_id)
        if told is None:
            continue
        # As the engine takes them: by revision number, then by time.
        label, *later = sorted(told, key=lambda each: each[:2])
        ages.setdefault(label[2], []).append(max(0, label[1] - ts))
        now = first[event_id] = label[2]
        for _, at, y in later:
            if y != now:
                now = y
                changed.append(max(0, at - ts))
        ones += now == 1.0
    low, low_ones = _low(history.scores, old, first)
    came = [(at, old[event_id], event_id) for event_id, at in history.came.items() if first.get(event_id) in (0.0, 1.0)]
    return Seen(
        stream=stream,
        span_ms=span,
        forecasts=len(history.issued),
        old=len(old),
        known=sum(map(len, ages.values())),
        labels=[_label(label, np.array(found)) for label, found in sorted(ages.items())][:_LABELS],
        revised=len(changed),
        last_revised_ms=max(changed, default=math.nan),
        orphans=sum(event_id not in history.issued and event_id not in history.others for event_id in history.told),
        corrected_ms=float(np.quantile(changed, KNOWN)) if changed else math.nan,
        ones=ones,
        low=low,
        low_ones=low_ones,
        chosen=_chosen(history.scores, old, first),
        turns=_turns([first[event_id] for _, _, event_id in came]),
        turns_issued=_turns([first[event_id] for _, _, event_id in sorted(came, key=lambda each: each[:2])]),
    )


def _turns(labels: Sequence[float]) -> int:
    """Return how often a label is followed by another one."""
    return sum(one != other for one, other in pairwise(labels))


def _low(scores: Mapping[str, float], old: Mapping[str, int], first: Mapping[str, float]) -> tuple[float, int]:
    """Return `Seen.low` and `Seen.low_ones`."""
    score, label = _by_score(scores, old, first)
    for part in range(PARTS - 1, LOW - 1, -1):
        most = score[len(score) * part // PARTS - 1] if len(score) >= FEWEST else math.nan
        mine = score <= most
        ones, zeros = int((label[mine] == 1.0).sum()), int((label[mine] == 0.0).sum())
        if ones >= FEWEST_EACH and zeros <= SLIP * ones and score[mine].mean() < 0.5 and not mine.all():
            return float(most), ones
    return math.nan, 0


def _chosen(scores: Mapping[str, float], old: Mapping[str, int], first: Mapping[str, float]) -> float:
    """Return `Seen.chosen`: where one cut tells best which forecasts have an outcome."""
    score, label = (each[::-1] for each in _by_score(scores, old, first))
    known = ~np.isnan(label)
    if np.count_nonzero(label == 1.0) < FEWEST_EACH or np.count_nonzero(label == 0.0) < FEWEST_EACH:
        return math.nan
    cut = int(np.argmax(np.cumsum(np.where(known, 1, -1)))) + 1
    above, below = label[:cut], label[cut:]
    few = known[cut:].sum() <= SLIP * len(below)
    # If ones of all scores are reported, the labels below are ones more often than those above.
    rarer = (below == 1.0).sum() * known[:cut].sum() <= (above == 1.0).sum() * known[cut:].sum()
    return float(score[cut - 1]) if few and rarer and known[:cut].mean() >= CHOSEN and cut < len(label) else math.nan


def _by_score(scores: Mapping[str, float], old: Mapping[str, int], first: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Return the scores of old forecasts, ascending, and their first labels, NaN without one."""
    found = sorted((scores[event_id], first.get(event_id, math.nan)) for event_id in old if event_id in scores)
    score, label = np.array(found, dtype=np.float64).reshape(-1, 2).T
    return score, label


#: More different labels than this are numbers, not classes.
_LABELS: Final = 64


def _label(label: float, ages: Floats) -> Label:
    median, p99, largest = (float(q) for q in np.quantile(ages, (0.5, KNOWN, 1.0)))
    return Label(label, len(ages), median, p99, largest)


def propose(seen: Seen, *, numbers: bool = False, silent: int = 0) -> Proposal:
    """Propose settings from what was seen.

    Parameters
    ----------
    seen
        The history.
    numbers
        Whether outcomes are numbers. Silence cannot stand for a number, and ages are not compared by number.
    silent
        Zeros that were never reported, of a table that knows them.
    """
    half = words(seen.span_ms / 2)
    if seen.old < FEWEST or not seen.labels:
        few = f"{seen.old:,} forecasts had {half} for their outcome, and {seen.known:,} have one: too few to propose."
        return Proposal(reasons=(few,))
    enough = [each for each in seen.labels if each.n >= FEWEST_EACH] or list(seen.labels)
    known = max(each.p99_ms for each in enough)
    latest = max(each.largest_ms for each in enough)
    reasons = [
        f"{seen.known / seen.old:.1%} of {seen.old:,} forecasts that had at least {half} for it have an outcome."
    ]
    silence = None if numbers else _silence(seen, silent, reasons)
    # If nearly all ages are equal, the few others are outliers.
    matures = latest if latest <= SPARE * known else known
    apart = not numbers and _apart(enough, reasons)
    kept: float | None = None
    rarer = seen.ones if silence is not None else min(seen.ones, seen.known - seen.ones)
    often = not numbers and {each.label for each in seen.labels} <= {0.0, 1.0} and seen.revised > OFTEN * rarer
    if often:
        matures = max(matures, seen.corrected_ms)
        reasons.append(
            f"First labels are often wrong: {seen.revised:,} changed, and {rarer:,} events have the rarer label in the "
            f"end. 99 in 100 of the changes had come after {words(seen.corrected_ms)}: labels are learnt no sooner."
        )
    by_label = not numbers and not apart and _sorted(seen, reasons)
    if silence is None and not apart and not often and not by_label:
        reasons.append("Labels come at one age, so they are learnt when they come: no matures.")
    else:
        kept = matures
        reasons.append(
            f"99 in 100 outcomes of every label have come after {words(known)}, the last after {words(latest)}: a "
            f'forecast matures after "{words(matures)}".'
        )
    # Both are rounded in the units of the file, so that one stays above the other.
    ttl = float(
        stream_config.duration(words(round(SPARE * max(latest, stream_config.duration(words(kept)) if kept else 0.0))))
    )
    reasons.append(f'No first outcome took longer than {words(latest)}: with a tenth to spare, ttl is "{words(ttl)}".')
    revisable = None
    if seen.revised:
        said = f"{seen.revised:,} labels changed, the last {words(seen.last_revised_ms)} after its forecast"
        if seen.last_revised_ms > ttl:
            revisable = SPARE * seen.last_revised_ms
            reasons.append(f'{said}: labels may be revised for "{words(revisable)}".')
        else:
            reasons.append(f"{said}, which ttl allows for.")
    if latest > 0.9 * seen.span_ms / 2:
        reasons.append(
            f"Outcomes come until the end of what this history can show ({half}): they may come later still. Give it a "
            "longer history before you rely on this."
        )
    if seen.orphans:
        reasons.append(f"{seen.orphans:,} outcomes belong to no forecast of this history.")
    rows = seen.forecasts / max(seen.span_ms / DAY_MS, 1e-9) * (revisable or ttl) / DAY_MS
    reasons.append(f"About {rows:,.0f} rows will be kept at a time.")
    by_score = silence is None and not numbers and seen.known < RARELY * seen.old and not math.isnan(seen.chosen)
    return Proposal(kept, silence, ttl, revisable, ALIKE if by_score else None, tuple(reasons))


def _silence(seen: Seen, silent: int, reasons: list[str]) -> int | None:
    """Return the label that silence means, or None if silence means nothing."""
    if silent:
        reasons.append(f"{silent:,} zeros of the table have no date, so nobody reported them: silence means 0.")
        return 0
    share = seen.known / seen.old
    zeros, ones = (sum(each.n for each in seen.labels if each.label == label) for label in (0.0, 1.0))
    if zeros + ones < seen.known:
        if share < NEARLY:
            reasons.append("Which class silence stands for cannot be told from history: no silence.")
        return None
    # Never 1: where ones are rare and most outcomes are 0, a missing outcome may be either.
    if share < RARELY and zeros <= SLIP * ones:
        reasons.append(
            f"Nearly all outcomes are 1, {ones:,} of {seen.known:,}, and most forecasts have none: silence means 0. "
            "Set it only if whoever reports would have reported every 1."
        )
        return 0
    if share < RARELY and seen.low_ones:
        reasons.append(
            f"Up to a score of {seen.low:.3g}, which most forecasts have, {seen.low_ones:,} outcomes are 1 and hardly "
            "any is 0. Zeros are told only of higher scores, as where analysts look at these: silence means 0. Set it "
            "only if whoever reports would have reported every 1."
        )
        return 0
    if share < NEARLY:
        reasons.append(
            f"Outcomes of 0 and of 1 are reported ({zeros:,} and {ones:,}), and {seen.old - seen.known:,} forecasts "
            "have none: silence stands for neither. Find out why those are missing."
        )
    if share < RARELY and not math.isnan(seen.chosen):
        reasons.append(
            f"The score chooses what gets a label: most forecasts from {seen.chosen:.3g} on, hardly any below. Of one "
            'score, those with a label are like those without: unlabelled = "alike". What lower scores mean is then '
            "drawn from the higher ones: label a random few of them, too. Never set silence = 0 here: what nobody "
            "looked at would count as good, and served scores that choose labels would sink."
        )
    elif share < RARELY:
        reasons.append(
            "While most forecasts get no label, nothing that is learnt is served, by default the raw forecast is. Set "
            'unlabelled = "alike" if those with a label are like the others, as in a random sample.'
        )
    return None


def _apart(labels: Sequence[Label], reasons: list[str]) -> bool:
    """Return a sentence if outcomes of one label come sooner than those of another."""
    if len(labels) < 2:
        return False
    by_age = sorted(labels, key=lambda each: each.median_ms)
    first, last = by_age[0], by_age[-1]
    if last.median_ms - first.median_ms <= APART * last.median_ms:
        return False
    reasons.append(
        f"Half of the outcomes of {first.label:g} come within {words(first.median_ms)}, of {last.label:g} within "
        f"{words(last.median_ms)}: learnt as they come, the sooner ones would count for more than they are."
    )
    return True


def _sorted(seen: Seen, reasons: list[str]) -> bool:
    """Return a sentence if outcomes come sorted by label, as in a file that lists zeros before ones."""
    if seen.turns_issued < FEWEST_EACH or seen.turns > SORTED * seen.turns_issued:
        return False
    reasons.append(
        f"Outcomes come sorted by label: the label changes {seen.turns:,} times from one to the next, and "
        f"{seen.turns_issued:,} times in the order of their forecasts. Learnt as they come, the last of a batch would "
        "count for more than they are."
    )
    return True


def is_numbers(kind: int) -> bool:
    """Return whether the outcomes of a kind of forecast are numbers."""
    return kind == QUANTILES


def told(seen: Seen, proposal: Proposal) -> str:
    """Return figures, reasons and TOML as they are printed."""
    rows = [("label", "outcomes", "median", "99 in 100", "last")]
    rows += [
        (f"{each.label:g}", f"{each.n:,}", words(each.median_ms), words(each.p99_ms), words(each.largest_ms))
        for each in seen.labels
    ]
    table = "\n".join("".join(cell.rjust(11) for cell in row) for row in rows)
    what = f"{seen.stream}: {seen.forecasts:,} forecasts in {words(seen.span_ms)}"
    lines = [what, "", table, "", *proposal.reasons]
    if proposal.ttl_ms is not None:
        lines += ["", proposal.toml(seen.stream)]
    return "\n".join(lines)


def plain(seen: Seen, proposal: Proposal) -> Mapping[str, Any]:
    """Return the same as values for JSON; a missing value is null."""
    figures = asdict(seen)
    for name in ("last_revised_ms", "corrected_ms", "low", "chosen"):
        if math.isnan(figures[name]):
            figures[name] = None
    lines = None if proposal.ttl_ms is None else proposal.toml(seen.stream)
    return {"seen": figures, "proposal": asdict(proposal), "toml": lines}


def _quoted(name: str) -> str:
    """Return a name as a basic string of TOML; TOML escapes as JSON does."""
    return json.dumps(name, ensure_ascii=False)
