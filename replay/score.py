"""Combines the results of all partitions."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay import bands, intervals, segments
from replay.columns import Flags, ResolvedColumns, losses
from replay.comparison import Scoreboard
from replay.configuration import Configuration
from replay.figures import FeatureBias, FunctionBias, Late, Phase, ScoredWindow, WorstWindow
from replay.measure import BinSums, ages, coverage, delays, late, scorecard
from replay.partition_result import WHOLE, Look, PartitionResult
from replay.result import Contender, Scored, Vectors
from replay.review import review
from replay.sources.record import TOPICS
from state.arrays import Floats
from state.fence import FATES, Fence
from state.policy import Policy
from state.scoring.bias import Bias
from state.scoring.history import WINDOW
from state.scoring.sums import added
from state.scoring.vector_history import VectorHistory
from state.scoring.windows import KINDS
from state.versions import Versions
from streams.metrics import functions, vectors, versions, weights

#: The most windows of a series; and the fewest resolved forecasts in a window.
WINDOWS, SHORTEST = 60, 20
#: The most streams that are scored separately: those with most forecasts. All streams count in the total.
STREAMS = 200
#: Name for all streams of probabilities together.
ALL = "*"


def board(
    parts: Sequence[PartitionResult],
    group: Sequence[Configuration],
    volume: float,
) -> Scoreboard:
    """Score a group of configurations that were played together.

    ``volume``: that of `Scorecard.recall`.
    """
    columns = ResolvedColumns.of(parts, len(group))
    fates = np.sum([part.fates for part in parts], axis=0).tolist()
    fence = Fence(fates=fates)
    contenders = []
    for i, configuration in enumerate(group):
        policies = {stream: _policy(configuration, stream) for stream in columns.streams}
        scored = {
            stream: _scored(columns, parts, i, stream, [policies[stream]], volume) for stream in _largest(columns)
        }
        named = {stream: found for stream in scored if (found := _versions(parts, stream))}
        answered = {
            stream: [policies[stream].of_version(each["version"]) for each in found] for stream, found in named.items()
        }
        # The stream's own policy answered forecasts that name no version.
        for stream, policy in policies.items():
            if sum(each["forecasts"] for each in named.get(stream, ())) < (
                scored[stream].issued if stream in named else 1
            ):
                answered.setdefault(stream, []).append(policy)
        overall = _scored(columns, parts, i, None, list(policies.values()), volume) if scored else None
        contenders.append(
            Contender(
                name=configuration.name,
                calibrators={stream: policy.calibrator for stream, policy in policies.items()},
                configs={stream: policy.config for stream, policy in policies.items()},
                recipes={policy.config: policy.recipe for found in answered.values() for policy in found},
                fates=dict(zip(FATES, fates, strict=True)),
                pending=fence.pending,
                early=fence.early,
                immature=sum(part.immature for part in parts),
                untaught=sum(part.untaught for part in parts),
                overall=overall,
                turned=columns.issued_turned[i],
                streams=scored,
                vectors=_vectors(parts, i),
                versions={
                    stream: {each.version: each.config for each in answered[stream] if each.version} for stream in named
                },
            )
        )
    return Scoreboard(contenders, columns, losses(parts, len(group)))


def dead(parts: Iterable[PartitionResult]) -> dict[str, dict[str, int]]:
    """Return dead letters by topic and reason."""
    counts: Counter[tuple[int, str]] = Counter()
    for part in parts:
        counts.update(part.dead)
    return {
        label: {reason: n for (topic, reason), n in sorted(counts.items()) if topic == number}
        for number, label in enumerate(TOPICS)
    }


def _policy(configuration: Configuration, stream: str) -> Policy:
    policy = configuration.policies.of(stream)
    if policy is None:
        raise LookupError(f"stream {stream!r} was played and has no policy")
    return policy


def _largest(columns: ResolvedColumns) -> list[str]:
    """Return the names of the streams of probabilities that are shown separately."""
    counts = np.bincount(columns.issued_stream, minlength=len(columns.streams))
    order = np.argsort(-counts, kind="stable")[:STREAMS]
    return sorted(columns.streams[i] for i in order.tolist() if counts[i])


def _scored(
    columns: ResolvedColumns,
    parts: Sequence[PartitionResult],
    i: int,
    stream: str | None,
    policies: Sequence[Policy],
    volume: float,
) -> Scored:
    """Score one contender on one stream, or on all. ``policies``: those of the stream, or of all."""
    chosen: Any = slice(None)
    issued: Any = slice(None)
    if stream is not None and len(columns.streams) > 1:
        number = columns.streams.index(stream)
        chosen, issued = columns.stream == number, columns.issued_stream == number
    raw, p, y = columns.raw[chosen], columns.p[i][chosen], columns.y[chosen]
    draw = columns.draw[i]
    draw = None if draw is None else draw[chosen]
    issued_raw = columns.issued_raw[issued]
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
        untaught=int(np.count_nonzero(~columns.issued_counting[issued])),
        told=columns.told(i, issued),
        raw=cards[0],
        calibrated=cards[1],
        draw=None if draw is None else scorecard(draw, y, None, volume, moments),
        warmup=phase(columns.warm[i], columns.issued_warm[i]),
        settled=phase(columns.settled, columns.issued_settled),
        regret_brier=_regret(cards[0].brier, cards[1].brier, len(y)),
        regret_log=_regret(cards[0].log_loss, cards[1].log_loss, len(y)),
        l1=last[0],
        bound=last[1],
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
        versions=_versions(parts, stream) if stream and not i else (),
        late=_late(columns, parts, stream, columns.delay_ms[chosen][said], policies[0].ttl_ms) if stream else None,
        review=review(judging["raw"], judging["calibrated"], columns.y[after], made[after], _since(columns, i, issued)),
        segments=segments.described(parts, i, stream) if stream else None,
        bands=_banded(columns, parts, i, stream, policies[0]) if stream else None,
        intervals=_intervals(columns, parts, stream, policies[0]) if stream and not i else None,
        weighted=_weighted(parts, i, stream, policies[0]) if stream else None,
    )


def _since(columns: ResolvedColumns, i: int, issued: Any) -> tuple[Floats, Floats]:  # noqa: ANN401 - an index
    """Return the raw and the served score of all forecasts after the warm-up, in the order of time."""
    left = ~columns.issued_warm[i][issued]
    order = np.argsort(columns.issued_ms[issued][left], kind="stable")
    return columns.issued_raw[issued][left][order], columns.issued_p[i][issued][left][order]


def _banded(
    columns: ResolvedColumns, parts: Sequence[PartitionResult], i: int, stream: str, policy: Policy
) -> dict[str, Any] | None:
    """Return the bands of a stream, see `replay.bands.described`; None if it has none."""
    if policy.bands is None:
        return None
    number = columns.streams.index(stream)
    names, places = segments.placed(parts, stream)
    issued, chosen = columns.issued_stream == number, columns.stream == number
    every = bands.BandQueue(columns.bands[i], columns.issued_ms, places)
    at, y, stands = columns.at[chosen], columns.y[chosen], None
    if policy.label_rate and columns.issued_stands is not None:  # every label counts, weighted by its chance
        untaught = np.flatnonzero(issued & ~columns.issued_counting)
        at, y = np.append(at, untaught), np.append(y, columns.issued_untaught[untaught])
        stands = columns.issued_stands[at]
    p = columns.issued_p[i][issued]
    moving = [part.thresholds[stream, i] for part in parts if (stream, i) in part.thresholds]
    now = reduce(add, moving) if moving else None
    return bands.described(policy.bands, policy.costs, every.at(issued), p, every.at(at), y, names, stands, now)


def _intervals(
    columns: ResolvedColumns, parts: Sequence[PartitionResult], stream: str, policy: Policy
) -> dict[str, Any] | None:
    """Return how a stream's intervals did after the warm-up, see `replay.intervals.described`; None if it has none."""
    if not policy.interval or not columns.ends:
        return None
    after = np.flatnonzero((columns.stream == columns.streams.index(stream)) & ~columns.warm[0])
    at = columns.at[after]
    names, places = segments.placed(parts, stream)
    low, high = [each[at] for each in columns.ends]
    apart = intervals.Apart(names, [each[at] for each in places])
    return intervals.described(
        policy.interval, low, columns.p[0][after], high, columns.y[after], columns.issued_ms[at], apart
    )


def _weighted(parts: Sequence[PartitionResult], i: int, stream: str, policy: Policy) -> dict[str, Any] | None:
    """Return the weighted figures of a contender for a stream, as live; None without weights or labels."""
    held = [(part, *each) for part in parts for each in part.weighted.get((stream, i), {}).items()]
    whole = [sums for _, slot, sums in held if slot == WHOLE]
    apart = added((part.dictionaries[stream].segment(slot), sums) for part, slot, sums in held if slot != WHOLE)
    return weights.describe(reduce(add, whole), apart, policy) if whole else None


def _late(
    columns: ResolvedColumns, parts: Sequence[PartitionResult], stream: str, took: NDArray[np.int64], ttl_ms: int
) -> Late:
    missed = columns.missed_ms[columns.missed_stream == columns.streams.index(stream)]
    expired = sum(part.expired.get(stream, 0) for part in parts)
    return late(took, missed, expired, ttl_ms)


def _regret(raw: float, calibrated: float, n: int) -> float:
    return (calibrated - raw) * n if n else 0.0


def _worst(columns: ResolvedColumns, p: Floats, y: Floats, chosen: Any) -> WorstWindow | None:  # noqa: ANN401 - an index
    """Return the complete window with the largest ECE. A window is of one partition and stream, as in a worker."""
    place = columns.partition[chosen].astype(np.int64) * len(columns.streams) + columns.stream[chosen]
    order = np.argsort(place, kind="stable")
    worst: tuple[float, NDArray[np.int64]] | None = None
    for mine in np.split(order, np.flatnonzero(np.diff(place[order])) + 1):
        for at in range(0, len(mine) - WINDOW + 1, WINDOW):
            window = mine[at : at + WINDOW]
            ece = BinSums.of(p[window], y[window]).ece
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
        ece_noise=BinSums.of(p[window], y[window]).noise,
        mean_forecast=float(p[window].mean()),
        base_rate=float(y[window].mean()),
    )


#: The looks at one calibrator, in time order.
_Series = list[Look]


def _looks(parts: Sequence[PartitionResult], i: int, stream: str | None) -> list[_Series]:
    """Return the looks at each calibrator of a contender that has an error."""
    found: dict[tuple[int, str], _Series] = {}
    for n, part in enumerate(parts):
        for look in part.looks:
            if look.contender == i and look.error is not None and stream in (None, look.stream):
                found.setdefault((n, look.stream), []).append(look)
    return list(found.values())


def _at(series: Sequence[_Series], time: int | None) -> tuple[float | None, float | None]:
    """Return error and bound at a time (None: at the end), as means over calibrators weighted by outcomes learnt."""
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


def _windows(
    raw: Floats, p: Floats, y: Floats, time: NDArray[np.int64], looks: Sequence[_Series]
) -> list[ScoredWindow]:
    n = len(y)
    if n < 2 * SHORTEST:
        return []
    edges = np.linspace(0, n, min(WINDOWS, n // SHORTEST) + 1).astype(np.int64)
    regret = 0.0
    found = []
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        at = slice(start, end)
        before, after = BinSums.of(raw[at], y[at]), BinSums.of(p[at], y[at])
        losses = [float(np.square(kind[at] - y[at]).sum()) for kind in (raw, p)]
        regret += losses[1] - losses[0]
        size = end - start
        found.append(
            ScoredWindow(
                int(time[start]),
                int(time[end - 1]),
                size,
                float(y[at].sum()) / size,
                float(raw[at].sum()) / size,
                float(p[at].sum()) / size,
                before.ece,
                after.ece,
                after.noise,
                regret,
                *_at(looks, int(time[end - 1])),
            )
        )
    return found


def _features(parts: Sequence[PartitionResult], i: int, stream: str, policy: Policy) -> list[FeatureBias]:
    total = Bias()
    for part in parts:
        total += part.biases.get((stream, i), Bias())
    both = zip(total.along("raw"), total.along("calibrated"), strict=True)
    names = policy.features if isinstance(policy.features, tuple) else [f"x{n}" for n in range(policy.n_features)]
    return [FeatureBias(name, *each) for name, each in zip(names, both, strict=False)]


def _functions(parts: Sequence[PartitionResult], i: int, stream: str) -> list[FunctionBias]:
    found = [part.functions.get((stream, i)) for part in parts]
    return [FunctionBias(*each.values()) for each in functions.describe(filter(None, found))]


def _versions(parts: Sequence[PartitionResult], stream: str) -> list[dict[str, Any]]:
    found = [part.versions[stream] for part in parts if stream in part.versions]
    return versions.describe([(Versions.decode(payload), of) for payload, of in found])


def _vectors(parts: Sequence[PartitionResult], i: int) -> dict[str, Vectors]:
    found: dict[str, dict[int, VectorHistory]] = {}
    for n, part in enumerate(parts):
        for (stream, contender), history in part.vectors.items():
            if contender == i:
                found.setdefault(stream, {})[n] = history
    described: dict[str, Vectors] = {}
    for name, each in sorted(found.items()):
        scores = vectors.describe(each)
        figures = {kind: _figures(scores[kind]) if scores["resolved"] else {} for kind in KINDS}
        described[name] = Vectors(name, scores["resolved"], figures, segments.described(parts, i, name))
    return described


def _figures(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return, from the scores of one kind of forecast, those that are one number."""
    found = {name: value for name, value in scores.items() if isinstance(value, float)}
    found.pop("auc_error", None)
    if "pinball_loss" in scores:
        found["pinball"] = float(np.mean(scores["pinball_loss"]))
    if "worst_window" in scores:
        found["worst_window"] = scores["worst_window"]["error"]
        found["worst_window_noise"] = scores["worst_window"]["noise"]
    return found | {"alarm_log10": scores["alarm"]["log10"]}
