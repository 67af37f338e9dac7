"""What all partitions played, put together into the result."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay import bands, bootstrap, intervals, segments
from replay.bootstrap import Resampled
from replay.column_file import played
from replay.configuration import Configuration
from replay.measure import VOLUME, Sums, ages, alerts, coverage, delays, late, reliability, scorecard
from replay.partition_result import LOSSES, Look, PartitionResult
from replay.ranking import Moments, turned, windows
from replay.result import (
    RAW,
    Bootstrap,
    Contender,
    Difference,
    FeatureBias,
    FunctionBias,
    Interval,
    Late,
    Phase,
    Scored,
    Vectors,
    Window,
    WorstWindow,
    drawn,
)
from replay.review import review
from state.arrays import Floats, Integers
from state.fence import FATES, Fence
from state.policy import Policy
from state.scoring.bias import Bias
from state.scoring.history import WINDOW
from state.scoring.vector_history import VectorHistory
from state.scoring.warm_up import SAME
from state.scoring.windows import KINDS
from streams.metrics import functions, vectors

Flags = NDArray[np.bool_]

#: Most windows of a series, and resolved forecasts of one at least.
WINDOWS, SHORTEST = 60, 20
#: Most streams that are scored apart, those with most forecasts; all count in the whole.
STREAMS = 200
#: Metrics of classes and of numbers, by how many there are.
METRICS = {2: ("brier", "log_loss"), 1: ("pinball",)}
#: All streams of probabilities together.
ALL = "*"


@dataclass(frozen=True)
class Columns:
    """The columns of one group on all partitions, resolved forecasts in the order of their time, then partition.

    Attributes
    ----------
    issued_stream, issued_ms, issued_raw, issued_p, issued_warm
        Of all forecasts, by partition: the stream's number in ``streams``, time, raw, what each contender served, and
        whether it was in its warm-up (`replay.result.Phase`).
    issued_turned
        By contender the share of neighbours whose order it changed after the warm-up, see `replay.ranking.turned`.
    issued_counting
        Of all forecasts, whether an outcome counts: not of those whose entity had taught (`state.entities`).
    moments
        Which of those resolved are ranked with one another.
    stream, raw, p, draw, warm, y, implied, delay_ms, time, partition
        Of those resolved; a ``draw`` is None where nothing was drawn, and ``y`` is the last label, whatever it was
        before. ``implied``: silence gave the first one.
    missed_stream, missed_ms
        Of outcomes whose forecast had expired, by partition: the stream's number, and how long they took.
    ends
        Low and high ends of the intervals of all forecasts, by the first contender; none without.
    bands, at
        By contender the bands of all forecasts, none without; and the place of each that is resolved among them.
    """

    streams: list[str]
    issued_stream: NDArray[Any]
    issued_ms: NDArray[np.int64]
    issued_raw: Floats
    issued_p: list[Floats]
    issued_warm: list[Flags]
    issued_turned: list[float]
    issued_counting: Flags
    moments: Moments
    stream: NDArray[Any]
    raw: Floats
    p: list[Floats]
    draw: list[Floats | None]
    warm: list[Flags]
    y: Floats
    implied: Flags
    delay_ms: NDArray[np.int64]
    time: NDArray[np.int64]
    partition: NDArray[Any]
    missed_stream: NDArray[Any]
    missed_ms: NDArray[np.int64]
    ends: list[Floats]
    bands: list[bands.Placed]
    at: Integers

    @classmethod
    def of(cls, parts: Sequence[PartitionResult], contenders: int) -> "Columns":  # noqa: PLR0915 - a line a column
        """Join the partitions."""
        streams = sorted({name for part in parts for name in part.streams})
        number = {name: i for i, name in enumerate(streams)}
        issued_stream, issued_ms, issued_raw, index = [], [], [], []
        stream, y, implied, delay, time, partition = [], [], [], [], [], []
        slots, featured = [], []
        served: list[list[Floats]] = [[] for _ in range(contenders)]
        tossed: list[list[Floats]] = [[] for _ in range(contenders)]
        learnt, of_part, first = [], [], 0
        warming: list[list[Flags]] = [[] for _ in range(contenders)]
        missed, missed_ms, counting = [], [], []
        for n, part in enumerate(parts):
            renumbered = np.array([number[name] for name in part.streams], dtype=np.int32)
            of = renumbered[played(part.directory, "stream", "i")]
            mine = played(part.directory, "index", "q")
            issued_stream.append(of)
            issued_ms.append(played(part.directory, "issued_ms", "q"))
            issued_raw.append(played(part.directory, "raw", "d"))
            learnt.append(played(part.directory, "version", "q"))
            of_part.append(np.full(len(of), n, dtype=np.int64))
            slots.append(_numbered(*segments.slots(part.directory)) if len(of) else np.zeros(0, dtype=np.int64))
            featured.append(np.isin(played(part.directory, "stream", "i"), [number for number, _ in part.biases]))
            index.append(mine + first)
            counting.append(np.ones(len(of), dtype=np.bool_))
            counting[-1][played(part.directory, "untaught", "q")] = False
            first += len(of)
            stream.append(of[mine])
            missed.append(renumbered[played(part.directory, "missed", "i")])
            missed_ms.append(played(part.directory, "missed_ms", "q"))
            for i in range(contenders):
                served[i].append(played(part.directory, f"p{i}", "d"))
                tossed[i].append(played(part.directory, f"draw{i}", "d"))
                warming[i].append(_warm(part, i))
            labels = played(part.directory, "y", "b").astype(np.float64)
            # Of several revisions of one event the last one stays.
            labels[played(part.directory, "revised", "q")] = played(part.directory, "revised_y", "b")
            y.append(labels)
            implied.append(played(part.directory, "implied", "b") > 0)
            delay.append(played(part.directory, "delay_ms", "q"))
            time.append(played(part.directory, "time", "q"))
            partition.append(np.full(len(mine), n, dtype=np.int32))
        times = np.concatenate(time)
        order = np.argsort(times, kind="stable")
        at = np.concatenate(index)[order]
        every, p = np.concatenate(issued_raw), [np.concatenate(each) for each in served]
        numbers = np.concatenate(issued_stream)
        places = np.concatenate(of_part) * len(streams) + numbers
        outcomes = np.concatenate(learnt)
        # Who leaves it nowhere is compared from the first outcome on.
        warm = [outcomes == 0 if each.all() else each for each in map(np.concatenate, warming)]
        settled = ~np.any(warm, axis=0)
        segment = np.concatenate(slots)
        # One map answers, at a time, what has one calibrator and the same segments.
        kept = every[settled], _numbered(places, segment)[settled], outcomes[settled]
        turns = [turned(kept[0], each[settled], *kept[1:]) for each in p]
        window = windows(places[at], at)
        # Features may tell equal raw forecasts apart.
        own = np.where(np.concatenate(featured)[at], np.arange(len(at)), -1)
        moments = Moments(window, _numbered(window, every[at], segment[at], own))
        draws = [np.concatenate(each) for each in tossed]
        return cls(
            streams,
            numbers,
            np.concatenate(issued_ms),
            every,
            p,
            warm,
            turns,
            np.concatenate(counting),
            moments,
            np.concatenate(stream)[order],
            every[at],
            [each[at] for each in p],
            [None if np.array_equal(draw, each) else draw[at] for draw, each in zip(draws, p, strict=True)],
            [each[at] for each in warm],
            np.concatenate(y)[order],
            np.concatenate(implied)[order],
            np.concatenate(delay)[order],
            times[order],
            np.concatenate(partition)[order],
            np.concatenate(missed),
            np.concatenate(missed_ms),
            _ends(parts),
            _bands(parts, contenders),
            at,
        )

    @property
    def settled(self) -> Flags:
        """Which of the resolved forecasts are in nobody's warm-up, [m]."""
        settled: Flags = ~np.any(self.warm, axis=0)
        return settled

    @property
    def issued_settled(self) -> Flags:
        """The same of all forecasts, [n]."""
        settled: Flags = ~np.any(self.issued_warm, axis=0)
        return settled


def _ends(parts: Sequence[PartitionResult]) -> list[Floats]:
    """Return the ends of all intervals; none where no stream has any."""
    if not all((part.directory / "low.d").exists() for part in parts):
        return []
    return [np.concatenate([played(part.directory, name, "d") for part in parts]) for name in ("low", "high")]


def _bands(parts: Sequence[PartitionResult], contenders: int) -> list[bands.Placed]:
    """Return the bands of all forecasts by contender, raw and served; none where no stream has any."""
    if not all((part.directory / "band0.b").exists() for part in parts):
        return []
    return [
        [np.concatenate([played(part.directory, f"{name}{n}", "b") for part in parts]) for name in ("raw_band", "band")]
        for n in range(contenders)
    ]


def _numbered(*keys: NDArray[Any]) -> Integers:
    """Return the number of each event's group, [n]: of one group are those that are equal in all keys, [n] each."""
    order = np.lexsort(keys)
    new = np.any([np.diff(key[order], prepend=key[order[:1]]) != 0 for key in keys], axis=0)
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.cumsum(new)
    return found


def _warm(part: PartitionResult, contender: int) -> Flags:
    """Return which forecasts of a partition one contender answered in its warm-up, [n].

    Of streams that it serves raw scores in all of the history these are all.
    """
    stream, raw = played(part.directory, "stream", "i"), played(part.directory, "raw", "d")
    moved = np.abs(played(part.directory, f"p{contender}", "d") - raw) > SAME
    until = np.full(len(part.streams), len(stream), dtype=np.int64)
    for n in np.unique(stream[moved]).tolist():
        until[n] = part.warmed.get((n, contender), len(stream))
    warm: Flags = np.arange(len(stream)) < until[stream]
    return warm


@dataclass(frozen=True)
class Scoreboard:
    """The contenders of one group under one delay, scored."""

    contenders: list[Contender]
    columns: Columns
    losses: Mapping[str, "Losses"]


@dataclass(frozen=True)
class Losses:
    """Losses of the resolved events of a stream of classes or numbers in the order of time.

    Attributes
    ----------
    time
        When they were resolved, ms, [m].
    was, served
        By contender what raw loses, at the levels of the contender, and what was served, [m, losses] each.
    warm
        By contender whether it answered in its warm-up, [m].
    """

    time: Integers
    was: list[Floats]
    served: list[Floats]
    warm: list[Flags]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Their names."""
        return METRICS[self.was[0].shape[1]]

    @property
    def settled(self) -> "Losses":
        """Those after the warm-up of all contenders, but for one that never leaves it."""
        left = ~np.any([each & ~each.all() for each in self.warm], axis=0)
        every = [[each[left] for each in columns] for columns in (self.was, self.served, self.warm)]
        return Losses(self.time[left], *every)


def losses(parts: Sequence[PartitionResult], contenders: int) -> dict[str, Losses]:
    """Return the losses of each stream of classes or numbers, of the last label of each event."""
    found: dict[str, list[Losses]] = {}
    for part in parts:
        stream, serial, time = (
            played(part.directory, name, kind)
            for name, kind in (("vector", "i"), ("vector_serial", "q"), ("vector_ms", "q"))
        )
        _, first = np.unique(serial, return_index=True)
        latest = np.zeros(len(first), dtype=np.int64)
        latest[serial] = np.arange(len(serial))
        for number in np.unique(stream).tolist():
            mine = np.flatnonzero(stream[first] == number)
            of: list[list[Floats]] = []
            for name in ("was", "loss"):
                columns = [
                    np.column_stack(
                        [played(part.directory, f"{name}{n}_{k}", "d")[latest[mine]] for k in range(LOSSES)]
                    )
                    for n in range(contenders)
                ]
                of.append([each[:, ~np.isnan(each).all(axis=0)] for each in columns])
            warm = [played(part.directory, f"vector_warm{n}", "b")[latest[mine]] != 0 for n in range(contenders)]
            found.setdefault(part.streams[number], []).append(Losses(time[first[mine]], of[0], of[1], warm))
    return {stream: _joined(several) for stream, several in sorted(found.items())}


def _joined(several: Sequence[Losses]) -> Losses:
    """Return the events of all partitions in the order of time."""
    order = np.argsort(np.concatenate([each.time for each in several]), kind="stable")

    def all_of(columns: Iterable[list[NDArray[Any]]]) -> list[NDArray[Any]]:
        return [np.concatenate(each)[order] for each in zip(*columns, strict=True)]

    time = np.concatenate([each.time for each in several])[order]
    return Losses(time, *(all_of(getattr(each, name) for each in several) for name in ("was", "served", "warm")))


def board(
    parts: Sequence[PartitionResult],
    group: Sequence[Configuration],
    names: Sequence[str],
    delay: str,
    threshold: float | None,
    volume: float = VOLUME,
) -> Scoreboard:
    """Score a group of configurations that were played together.

    Parameters
    ----------
    parts
        What was played, by partition.
    group, names
        Configurations, and what they are called in the result.
    volume
        Of `Scorecard.recall`.
    """
    columns = Columns.of(parts, len(group))
    fates = np.sum([part.fates for part in parts], axis=0).tolist()
    fence = Fence(fates=fates)
    contenders = []
    for i, (configuration, name) in enumerate(zip(group, names, strict=True)):
        policies = {stream: _policy(configuration, stream) for stream in columns.streams}
        scored = {
            stream: _scored(columns, parts, i, stream, [policies[stream]], threshold, volume)
            for stream in _largest(columns)
        }
        overall = _scored(columns, parts, i, None, list(policies.values()), threshold, volume) if scored else None
        contenders.append(
            Contender(
                name=name,
                delay=delay,
                calibrators={stream: policy.calibrator for stream, policy in policies.items()},
                configs={stream: policy.config for stream, policy in policies.items()},
                recipes={policy.config: policy.recipe for policy in policies.values()},
                fates=dict(zip(FATES, fates, strict=True)),
                pending=fence.pending,
                early=fence.early,
                immature=sum(part.immature for part in parts),
                untaught=sum(part.untaught for part in parts),
                overall=overall,
                turned=columns.issued_turned[i],
                streams=scored,
                vectors=_vectors(parts, i),
            )
        )
    return Scoreboard(contenders, columns, losses(parts, len(group)))


@dataclass
class Compared:
    """What contenders are beside raw and beside one another; see `Result` for the lists."""

    differences: list[Difference] = field(default_factory=list)
    warming: list[Difference] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)
    vectors: dict[str, list[Difference]] = field(default_factory=dict)
    how: Bootstrap | None = None


def compared(boards: Sequence[Scoreboard], block: int | None, resamples: int, volume: float = VOLUME) -> Compared:
    """Compare every contender and its draw to raw, and every pair that resolved the same forecasts."""
    found = Compared()
    for each in boards:
        columns, names = each.columns, [contender.name for contender in each.contenders]
        settled = columns.settled if names else np.zeros(0, dtype=np.bool_)
        forecasts = {RAW: columns.raw, **dict(zip(names, columns.p, strict=True))}
        draws = {drawn(name): draw for name, draw in zip(names, columns.draw, strict=True) if draw is not None}
        made = _resampled(columns, settled, {**forecasts, **draws}, block, resamples, volume)
        if made is not None:
            found.how, resampled = found.how or made[0], made[1]
            pairs = [(name, RAW) for name in [*names, *draws]]
            pairs += [(name, other) for i, name in enumerate(names) for other in names[i + 1 :]]
            found.differences += resampled.differences(pairs)
            delay = each.contenders[0].delay
            found.intervals += [
                Interval(name, delay, *interval)
                for name in [RAW, *names, *draws]
                for interval in resampled.intervals(name)
            ]
        for name, p, warm in zip(names, columns.p, columns.warm, strict=True):
            made = _resampled(columns, warm, {RAW: columns.raw, name: p}, block, resamples, volume)
            if made is not None:
                found.warming += made[1].differences([(name, RAW)])
        for stream, each_of in each.losses.items():
            found.vectors.setdefault(stream, []).extend(_compared(each_of.settled, names, block, resamples))
    return found


def _compared(lost: Losses, names: Sequence[str], block: int | None, resamples: int) -> Iterator[Difference]:
    """Yield the differences of every contender to raw, and of every pair that serves the same classes or levels."""
    n = len(lost.time)
    how = bootstrap.plan(n, int(lost.time[-1] - lost.time[0]) if n else 0, block, resamples)
    if how is None:
        return
    pairs = [(i, RAW, served - was) for i, (served, was) in enumerate(zip(lost.served, lost.was, strict=True))]
    pairs += [
        (i, names[j], lost.served[i] - lost.served[j])
        for i in range(len(names))
        for j in range(i)
        if np.array_equal(lost.was[i], lost.was[j])
    ]
    for i, against, differences in pairs:
        for metric, found in zip(lost.metrics, bootstrap.means(how, differences), strict=True):
            yield Difference(names[i], against, metric, *found)


def _resampled(
    columns: Columns, chosen: Flags, forecasts: Mapping[str, Floats], block: int | None, resamples: int, volume: float
) -> tuple[Bootstrap, Resampled] | None:
    """Resample some of the resolved forecasts; None where there are too few."""
    n = int(chosen.sum())
    time = columns.time[chosen]
    how = bootstrap.plan(n, int(time[-1] - time[0]) if n else 0, block, resamples)
    if how is None:
        return None
    mine = {name: p[chosen] for name, p in forecasts.items()}
    return how, Resampled(how, columns.y[chosen], mine, volume, columns.moments.at(chosen))


def dead(parts: Iterable[PartitionResult]) -> dict[str, dict[str, int]]:
    """Return dead letters by topic and reason."""
    counts: Counter[tuple[int, str]] = Counter()
    for part in parts:
        counts.update(part.dead)
    return {
        label: {reason: n for (topic, reason), n in sorted(counts.items()) if topic == number}
        for number, label in enumerate(("forecasts", "outcomes"))
    }


def _policy(configuration: Configuration, stream: str) -> Policy:
    policy = configuration.policies.of(stream)
    if policy is None:
        raise LookupError(f"stream {stream!r} was played and has no policy")
    return policy


def _largest(columns: Columns) -> list[str]:
    """Return the streams of probabilities that are shown apart, by name."""
    counts = np.bincount(columns.issued_stream, minlength=len(columns.streams))
    order = np.argsort(-counts, kind="stable")[:STREAMS]
    return sorted(columns.streams[i] for i in order.tolist() if counts[i])


def _scored(
    columns: Columns,
    parts: Sequence[PartitionResult],
    i: int,
    stream: str | None,
    policies: Sequence[Policy],
    threshold: float | None,
    volume: float,
) -> Scored:
    """Score one contender on one stream, or on all; ``policies`` are its own, or all."""
    chosen: Any = slice(None)
    issued: Any = slice(None)
    if stream is not None and len(columns.streams) > 1:
        number = columns.streams.index(stream)
        chosen, issued = columns.stream == number, columns.issued_stream == number
    raw, p, y = columns.raw[chosen], columns.p[i][chosen], columns.y[chosen]
    draw = columns.draw[i]
    draw = None if draw is None else draw[chosen]
    issued_raw, issued_p = columns.issued_raw[issued], columns.issued_p[i][issued]
    time = columns.time[chosen]
    looks = _looks(parts, i, stream)
    judged = ~columns.warm[i]
    if stream is not None:
        judged &= columns.stream == columns.streams.index(stream)
    after = np.flatnonzero(judged)
    judging = {kind: every[after] for kind, every in zip(KINDS, (columns.raw, columns.p[i]), strict=True)}
    worst = [_worst(columns, forecasts, columns.y[after], after) for forecasts in judging.values()]
    moments = columns.moments.at(chosen)
    cards = [
        scorecard(forecasts, y, each.ece if each else None, volume, moments)
        for forecasts, each in zip((raw, p), worst, strict=True)
    ]

    def phase(which: Flags, of_issued: Flags) -> Phase:
        mine, at = which[chosen], columns.issued_ms[issued][of_issued[issued]]
        near = moments.at(mine)
        each = [None if kind is None else scorecard(kind[mine], y[mine], None, volume, near) for kind in (raw, p, draw)]
        bounds = (int(at.min()), int(at.max())) if len(at) else (None, None)
        return Phase(len(at), int(mine.sum()), *bounds, *each)

    last, made = _at(looks, None), columns.issued_ms[columns.at]
    said = ~columns.implied[chosen]
    silence = next((each.silence for each in policies if each.silence is not None), 0.0)
    return Scored(
        stream=stream or ALL,
        issued=len(issued_raw),
        raw=cards[0],
        calibrated=cards[1],
        draw=None if draw is None else scorecard(draw, y, None, volume, moments),
        warmup=phase(columns.warm[i], columns.issued_warm[i]),
        settled=phase(columns.settled, columns.issued_settled),
        regret_brier=_regret(cards[0].brier, cards[1].brier, len(y)),
        regret_log=_regret(cards[0].log_loss, cards[1].log_loss, len(y)),
        l1=last[0],
        bound=last[1],
        reliability={kind: reliability(forecasts, columns.y[after]) for kind, forecasts in judging.items()},
        windows=_windows(raw, p, y, time, looks),
        worst=dict(zip(KINDS, worst, strict=True)),
        delays=delays(columns.delay_ms[chosen][said]),
        ages=ages(columns.delay_ms[chosen][said], y[said]),
        implied=int(columns.implied[chosen].sum()),
        reversed=int((columns.implied[chosen] & (y != silence)).sum()),
        ttl_ms=min(each.ttl_ms for each in policies),
        matures_ms=max(each.matures_ms for each in policies),
        coverage=coverage(issued_raw[columns.issued_counting[issued]], raw),
        features=_features(parts, i, stream, policies[0]) if stream else (),
        functions=_functions(parts, i, stream) if stream else (),
        late=_late(columns, parts, stream, columns.delay_ms[chosen][said], policies[0].ttl_ms) if stream else None,
        alerts=None if threshold is None else alerts(threshold, (issued_raw, issued_p), (raw, p), y),
        review=review(judging["raw"], judging["calibrated"], columns.y[after], made[after], _since(columns, i, issued)),
        segments=segments.described(parts, i, stream) if stream else None,
        bands=_banded(columns, i, policies[0], chosen, issued) if stream else None,
        intervals=_intervals(columns, policies[0], chosen) if stream and not i else None,
    )


def _since(columns: Columns, i: int, issued: Any) -> tuple[Floats, Floats]:  # noqa: ANN401 - an index
    """Return raw and served of all forecasts after the warm-up, in the order of time."""
    left = ~columns.issued_warm[i][issued]
    order = np.argsort(columns.issued_ms[issued][left], kind="stable")
    return columns.issued_raw[issued][left][order], columns.issued_p[i][issued][left][order]


def _banded(columns: Columns, i: int, policy: Policy, chosen: Any, issued: Any) -> dict[str, Any] | None:  # noqa: ANN401 - indices
    """Return the bands of a stream, see `replay.bands.described`; None without."""
    if policy.bands is None:
        return None
    placed = columns.bands[i]
    every, at = [each[issued] for each in placed], columns.at[chosen]
    known = [each[at] for each in placed]
    when, p = columns.issued_ms[issued], columns.issued_p[i][issued]
    return bands.described(policy.bands, policy.costs, every, when, p, known, columns.y[chosen])


def _intervals(columns: Columns, policy: Policy, chosen: Any) -> dict[str, Any] | None:  # noqa: ANN401 - an index
    """Return what became of a stream's intervals after the warm-up, see `replay.intervals.described`; None without."""
    if not policy.interval or not columns.ends:
        return None
    after = np.arange(len(columns.y))[chosen]
    after = after[~columns.warm[0][after]]
    low, high = [each[columns.at[after]] for each in columns.ends]
    time = columns.issued_ms[columns.at[after]]
    return intervals.described(policy.interval, low, columns.p[0][after], high, columns.y[after], time)


def _late(
    columns: Columns, parts: Sequence[PartitionResult], stream: str, took: NDArray[np.int64], ttl_ms: int
) -> Late:
    missed = columns.missed_ms[columns.missed_stream == columns.streams.index(stream)]
    expired = sum(part.expired.get(part.streams.index(stream), 0) for part in parts if stream in part.streams)
    return late(took, missed, expired, ttl_ms)


def _regret(raw: float, calibrated: float, n: int) -> float:
    return (calibrated - raw) * n if n else 0.0


def _worst(columns: Columns, p: Floats, y: Floats, chosen: Any) -> WorstWindow | None:  # noqa: ANN401 - an index
    """Return the complete window of largest ECE, of one partition and stream as live."""
    place = columns.partition[chosen].astype(np.int64) * len(columns.streams) + columns.stream[chosen]
    order = np.argsort(place, kind="stable")
    worst: tuple[float, NDArray[np.int64]] | None = None
    for mine in np.split(order, np.flatnonzero(np.diff(place[order])) + 1):
        for at in range(0, len(mine) - WINDOW + 1, WINDOW):
            window = mine[at : at + WINDOW]
            ece = Sums.of(p[window], y[window]).ece
            if worst is None or ece > worst[0]:
                worst = ece, window
    if worst is None:
        return None
    ece, window = worst
    time = columns.time[chosen][window]
    return WorstWindow(
        stream=columns.streams[int(place[window[0]]) % len(columns.streams)],
        start_ms=int(time[0]),
        end_ms=int(time[-1]),
        n=WINDOW,
        ece=ece,
        ece_noise=Sums.of(p[window], y[window]).noise,
        mean_forecast=float(p[window].mean()),
        base_rate=float(y[window].mean()),
    )


#: Looks at one calibrator, in time order.
_Series = list[Look]


def _looks(parts: Sequence[PartitionResult], i: int, stream: str | None) -> list[_Series]:
    """Return the looks at each calibrator of a contender that has an error."""
    found: dict[tuple[int, int], _Series] = {}
    for n, part in enumerate(parts):
        for look in part.looks:
            if look.contender == i and look.error is not None and stream in (None, part.streams[look.stream]):
                found.setdefault((n, look.stream), []).append(look)
    return list(found.values())


def _at(series: Sequence[_Series], time: int | None) -> tuple[float | None, float | None]:
    """Return error and bound up to a time, means over the calibrators weighted by outcomes learnt; None: at the end."""
    latest = []
    for looks in series:
        before = looks if time is None else [look for look in looks if look.time <= time]
        latest += before[-1:]
    learnt = sum(look.learnt for look in latest)
    if not learnt:
        return None, None
    error = sum(look.learnt * (look.error or 0.0) for look in latest) / learnt
    if any(look.bound is None for look in latest):
        return error, None
    return error, sum(look.learnt * (look.bound or 0.0) for look in latest) / learnt


def _windows(raw: Floats, p: Floats, y: Floats, time: NDArray[np.int64], looks: Sequence[_Series]) -> list[Window]:
    n = len(y)
    if n < 2 * SHORTEST:
        return []
    edges = np.linspace(0, n, min(WINDOWS, n // SHORTEST) + 1).astype(np.int64)
    regret = 0.0
    found = []
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        at = slice(start, end)
        before, after = Sums.of(raw[at], y[at]), Sums.of(p[at], y[at])
        losses = [float(np.square(kind[at] - y[at]).sum()) for kind in (raw, p)]
        regret += losses[1] - losses[0]
        size = end - start
        found.append(
            Window(
                int(time[start]),
                int(time[end - 1]),
                size,
                float(y[at].sum()) / size,
                float(raw[at].sum()) / size,
                float(p[at].sum()) / size,
                before.ece,
                after.ece,
                after.noise,
                losses[0] / size,
                losses[1] / size,
                regret,
                *_at(looks, int(time[end - 1])),
            )
        )
    return found


def _features(parts: Sequence[PartitionResult], i: int, stream: str, policy: Policy) -> list[FeatureBias]:
    total = Bias()
    for part in parts:
        if stream in part.streams and (bias := part.biases.get((part.streams.index(stream), i))):
            total += bias
    both = zip(total.along("raw"), total.along("calibrated"), strict=True)
    names = policy.features if isinstance(policy.features, tuple) else [f"x{n}" for n in range(policy.n_features)]
    return [FeatureBias(name, *each) for name, each in zip(names, both, strict=False)]


def _functions(parts: Sequence[PartitionResult], i: int, stream: str) -> list[FunctionBias]:
    found = [part.functions.get((part.streams.index(stream), i)) for part in parts if stream in part.streams]
    return [FunctionBias(*each.values()) for each in functions.describe(filter(None, found))]


def _vectors(parts: Sequence[PartitionResult], i: int) -> dict[str, Vectors]:
    found: dict[str, dict[int, VectorHistory]] = {}
    for n, part in enumerate(parts):
        for (stream, contender), history in part.vectors.items():
            if contender == i:
                found.setdefault(part.streams[stream], {})[n] = history
    described: dict[str, Vectors] = {}
    for name, each in sorted(found.items()):
        scores = vectors.describe(each)
        figures = {kind: _figures(scores[kind]) if scores["resolved"] else {} for kind in KINDS}
        described[name] = Vectors(name, scores["resolved"], figures, segments.described(parts, i, name))
    return described


def _figures(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a kind that are one number each."""
    found = {name: value for name, value in scores.items() if isinstance(value, float)}
    found.pop("auc_error", None)
    if "pinball_loss" in scores:
        found["pinball"] = float(np.mean(scores["pinball_loss"]))
    if "worst_window" in scores:
        found["worst_window"] = scores["worst_window"]["error"]
        found["worst_window_noise"] = scores["worst_window"]["noise"]
    return found | {"alarm_log10": scores["alarm"]["log10"]}
