"""The state of a stream as JSON: for ``trueup streams show``, the status page and the gauges."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import add
from statistics import fmean
from typing import Any, Final

import orjson

from state import kinds
from state.calibrators.certified import Certified
from state.coverage import UNLABELLED, Coverage
from state.kind import KINDS as KINDS_OF_ROWS
from state.policy import Policy
from state.policy_checks import ALIKE
from state.scoring import vector_history
from state.scoring import windows as windows_of
from state.scoring.cells import BANDS, BINS
from state.scoring.class_scores import ClassScores
from state.scoring.distribution import SHIFTED
from state.scoring.findings import findings, late
from state.scoring.history import History
from state.scoring.losses import NAMES
from state.scoring.order import Order, Within
from state.scoring.pair_scores import AnyComparison
from state.scoring.ranking import VOLUMES
from state.scoring.scores import Kind as Scored
from state.scoring.scores import Scores, total
from state.scoring.sums import added
from state.scoring.two_bin import gain, two_bin
from state.scoring.vector_history import VectorHistory
from state.scoring.windows import KINDS, Alarmed
from state.served import Served
from streams.metrics import (
    bands,
    challengers,
    functions,
    segments,
    served_map,
    standing,
    vectors,
    versions,
    warm_up,
    weights,
    windows,
)
from streams.metrics.figures import curve, figures, or_none
from streams.metrics.rows import StateRows, covered, segmented, serving

#: Bins of a reliability curve with equally many events each.
QUANTILES: Final = 12
#: The shares of highest forecasts whose recall has a gauge.
GAUGED: Final = (0.01,)
#: Names of the cells of a forecast: ten bands below .1, then the bins of tenths.
CELLS: Final = (*(f"0.{band}" for band in range(len(BANDS) + 1)), *map(str, range(1, BINS)))


def brief(found: StateRows, stream: str) -> dict[str, Any]:
    """Return a few figures of a stream, for a list of thousands. All figures would take ten times as long.

    The error is the ECE. For classes, it is the ECE of the highest probability; for numbers, the coverage error.
    """
    histories, vectors = list(found.of(kinds.SCORES, stream).values()), list(found.of(kinds.VECTORS, stream).values())
    scores = total([each.total for each in histories])
    said: dict[str, Any] = {
        "resolved": scores.n + sum(each.n for each in vectors),
        "warm_up": {"resolved": sum(each.warm_up.n for each in histories) + sum(each.warm_up.n for each in vectors)},
    }
    if scores.n:
        for kind in KINDS:
            bias = or_none(scores.relative_bias(kind))
            said[kind] = {"ece": scores.error(kind), "relative_bias": bias, "brier": scores.brier(kind)}
    elif any(each.n for each in vectors):
        overall = windows_of.overall(vector_history.alike(vectors))
        error = "top_label_ece" if isinstance(overall, ClassScores) else "coverage_error"
        said |= {kind: {error: overall.error(kind)} for kind in KINDS}
    return said


def describe(
    found: StateRows,
    stream: str,
    policy: Policy | None = None,
    now_ms: int = 0,
    idle_ms: int = 0,
    *,
    whole: bool = True,
) -> dict[str, Any]:
    """Return the state of a stream as JSON.

    ``policy``: its present configuration. ``now_ms``: stream time; 0: that of its last record. ``idle_ms``: time since
    its worker's last batch. ``whole``: False leaves out figures without a gauge, and takes half of the time.
    """
    histories = found.of(kinds.SCORES, stream)
    scores = total(each.total for each in histories.values())
    described: dict[str, Any] = {"resolved": scores.n, "partitions": len(histories)}
    since_ms = min((each.ms for each in found.of(kinds.ALARMS, stream).values()), default=None)
    if scores.n:
        described |= _described(histories, scores, since_ms, whole=whole)
    of_segments = segmented(found, stream, policy)
    parts: dict[str, Any] = {
        "warm_up": warm_up.of_rows(found, stream, policy),
        "ages": aged(found, stream, policy),
        "withheld": withheld(found, stream, policy),
        "weighted": weights.of_rows(found, stream, policy),
        "segments": segments.describe(of_segments.values()) if of_segments else None,
        "biases": biased(found, stream, policy),
        "shadows": compared(found, stream, policy),
        "versions": versions.describe(versions.parts(found, stream, policy)),
        "frozen": policy is not None and policy.frozen,
        "gauges": _gauged(found, stream),
        "vectors": _vectors(found, stream, since_ms),
        "bands": bands.of_rows(found, stream, policy, whole=whole),
        "forecasts": distributed(found, stream) if whole else None,
        "served": served_map.describe(found, stream, policy, served_map.LOOKED if whole else served_map.RAW),
    }
    described |= {name: part for name, part in parts.items() if part}
    if "warm_up" in described:
        described["warm_up"]["words"] = warm_up.words(described["warm_up"], scores)
    described["calibrators"] = [
        {
            "partition": partition,
            "config": config,
            **orjson.loads(served.recipe),
            **learnt(served),
            **({"biases": functions.describe([functions.part(served)]) or None} if whole else {}),
        }
        for (partition, config), served in sorted(found.of(kinds.CALIBRATOR, stream).items())
    ]
    return described | _standing(found, stream, described, now_ms, idle_ms, policy) if whole else described


def _gauged(found: StateRows, stream: str) -> dict[str, float | None]:
    """Return the gauges that kinds of rows declare."""
    return {
        name: None if (value := figure.of(values)) is None else or_none(value)
        for kind in list(KINDS_OF_ROWS.values())
        if kind.figures and (values := list(found.of(kind, stream).values()))
        for name, figure in kind.figures.items()
    }


def _vectors(found: StateRows, stream: str, since_ms: int | None) -> dict[str, Any]:
    """Return the scores of classes or numbers by configuration."""
    by_config: dict[str, dict[int, VectorHistory]] = defaultdict(dict)
    for (partition, config), each in found.of(kinds.VECTORS, stream).items():
        if each.n:
            by_config[config][partition] = each
    return {config: vectors.describe(each, since_ms) for config, each in sorted(by_config.items())}


def _standing(
    found: StateRows, stream: str, described: Mapping[str, Any], now_ms: int, idle_ms: int, policy: Policy | None
) -> dict[str, Any]:
    """Return a stream's course and its standing; empty before its first record."""
    courses = found.of(kinds.COURSE, stream)
    if not courses:
        return {}
    course = reduce(add, courses.values())
    now_ms = max(now_ms, course.forecast_ms, course.label_ms)
    state = standing.state(described, course, now_ms, idle_ms, policy)
    from_ms = state["since_ms"]
    if state["state"] not in ("withheld", "off", "right") or from_ms is None:
        from_ms = standing.right_since(course, (described.get("warm_up") or {}).get("until_ms"))
    return {"course": standing.describe(course, now_ms, from_ms), "standing": state}


def _described(histories: dict[int, History], scores: Scores, since_ms: int | None, *, whole: bool) -> dict[str, Any]:
    """Return the scores of probabilities by kind, and the regret.

    Rankings cover the last windows. Over the stream's whole life they would mix the answers of many maps.
    """
    order = lately(histories.values())
    raw = two_bin(scores, "raw")
    described: dict[str, Any] = {}
    for kind in scores.kinds if whole else KINDS:
        ranking, two = order.ranking(kind), raw if kind == "raw" else two_bin(scores, kind)
        described[kind] = {
            **figures(scores, kind, whole=whole),
            **figures(ranking, kind, whole=whole),
            "two_bin_error": two.value,
            "two_bin_noise": two.noise,
            "two_bin_gain": gain(raw, two)._asdict() if kind != "raw" else None,
            "top": [_found(ranking, volume) for volume in (VOLUMES if whole else GAUGED)],
            **(_curves(scores, kind) if whole else {"cells": _cells(scores, kind)}),
            **(_windows(histories, kind) if whole or kind == "calibrated" else {}),
        }
    for alarmed in KINDS:
        described[alarmed] |= {"alarm": windows.alarm(histories, alarmed, since_ms), **_biased(histories, alarmed)}
    return described | {"regret": {loss: scores.regret(loss) for loss in NAMES}}


def compared(found: StateRows, stream: str, policy: Policy | None = None) -> list[dict[str, Any]]:
    """Return each challenger of a stream beside the champion it challenged, over all partitions."""
    pairs: dict[challengers.Pair, AnyComparison] = added(
        ((champion, other), each) for (_, champion, other), each in found.of(kinds.COMPARISON, stream).items()
    )
    named = {} if policy is None else {each.config: each.calibrator for each in policy.challengers}
    for (_, config), served in found.of(kinds.CALIBRATOR, stream).items():
        named[config] = orjson.loads(served.recipe)["calibrator"]
    return [challengers.describe(pair, each, named) for pair, each in sorted(pairs.items())]


def biased(found: StateRows, stream: str, policy: Policy | None) -> list[dict[str, Any]]:
    """Return the biases that the calibrators of the present configuration bound, added over all partitions."""
    rows_of, present = found.of(kinds.CALIBRATOR, stream).items(), serving(found, stream, policy)
    held = [each for (_, config), each in rows_of if present is None or config in present]
    return functions.describe(map(functions.part, held))


def learnt(served: Served) -> dict[str, Any]:
    """Return how many outcomes a calibrator has learnt, with its own error and bound; None if it has none."""
    return {
        "version": served.calibrator.learnt,
        "outstanding": served.outstanding,
        "error": served.calibrator.error(),
        "bound": served.calibrator.bound(served.outstanding),
        "noise": served.calibrator.error_by_chance(),
        "saturated": served.calibrator.saturated(),
    }


def saturated(calibrators: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the number of saturated answers over several partitions; None where levels do not move."""
    counts = [each["saturated"] for each in calibrators if each["saturated"] is not None]
    return sum(counts) if counts else None


def guarantee(calibrators: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return error, bound and noise of several partitions' calibrators, as `learnt` returns them.

    Each is a mean over outcomes, so partitions are weighted by the outcomes learnt. None if any partition has none.
    """
    learning = [each for each in calibrators if each["version"]]
    weights = [each["version"] for each in learning]

    def mean(name: str) -> float | None:
        values = [each[name] for each in learning]
        return None if not values or None in values else fmean(values, weights)

    return {name: mean(name) for name in ("error", "bound", "noise")}


def promises_p(calibrators: Iterable[Mapping[str, Any]]) -> bool:
    """Whether error and bound of a stream's calibrators apply to ``p``, not to draws: see `Certified`."""
    backs = {each["calibrator"].rpartition("+")[2] for each in calibrators if each["version"]}
    return backs == {Certified.name}


def _curves(scores: Scores, kind: Scored) -> dict[str, Any]:
    """Return the scores that are more than one number."""
    bins = scores.bins(kind)
    return {
        "reliability": curve(bins),
        "low_reliability": curve(scores.bands(kind)),
        "quantiles": scores.ranking(kind).bins(QUANTILES),
        "mean": sum(each.p for each in bins) / scores.n,
        "observed": sum(each.y for each in bins) / scores.n,
    }


def _cells(scores: Scores, kind: Scored) -> dict[str, dict[str, float]]:
    """Return the sums of cells that have events, by name."""
    return {
        name: {"events": each.n, "forecasts": each.p, "outcomes": each.y}
        for name, each in zip(CELLS, scores.cells(kind), strict=True)
        if each.n
    }


def lately(histories: Iterable[History]) -> Order:
    """Return the ranking of events in the last windows of all partitions. Older windows had older maps."""
    return reduce(Order.__add__, [each.lately for each in histories], Order())


def _found(ranking: Within, volume: float) -> dict[str, Any]:
    """Return recall and precision among the highest forecasts, as many as the volume says."""
    recall, precision = ranking.at(volume)
    return {
        "volume": volume,
        "recall": or_none(recall.value),
        "recall_error": or_none(recall.error),
        "precision": or_none(precision.value),
        "precision_error": or_none(precision.error),
    }


def withheld(found: StateRows, stream: str, policy: Policy | None) -> dict[str, Any] | None:
    """Return the partitions that answer as if nothing had been learnt, with the reason and figures.

    ``of``: number of all partitions; ``since_ms``: stream time from which the first of them does so, None if none does.
    """
    coverages = covered(found, stream, policy)
    if not coverages:
        return None
    both = sum(coverages.values(), Coverage())
    uncovered = {n: each.since_ms for n, each in sorted(coverages.items()) if each.uncovered}
    return {
        "partitions": {UNLABELLED: list(uncovered)},
        "of": len(coverages),
        "since_ms": min(uncovered.values(), default=None),
        "labelled": both.share if both.labels else None,
    }


def aged(found: StateRows, stream: str, policy: Policy | None) -> dict[str, Any] | None:
    """Return the ages of a stream's outcomes; and in words what to set if the settings do not fit them."""
    held = list(found.of(kinds.AGES, stream).values())
    if not held:
        return None
    ages = reduce(add, held)
    coverages = covered(found, stream, policy).values()
    uncovered = [each for each in coverages if each.uncovered]
    share = sum(uncovered, Coverage()).share if uncovered else None
    told = (
        []
        if policy is None
        else findings(
            ages,
            policy.ttl_ms,
            policy.matures_ms,
            silence=policy.silence is not None,
            labelled=share,
            unlike=any(each.unlike for each in coverages),
            sampled=bool(policy.label_rate) or policy.unlabelled == ALIKE,
        )
    )
    return {
        "outcomes": {
            str(label): {
                "n": ages.n(label),
                "median_s": ages.quantile(label, 0.5) / 1000,
                "most_s": ages.quantile(label, 0.99) / 1000,
            }
            for label in ages.labels
        },
        "expired": ages.expired,
        "late": None if policy is None else or_none(late(ages, policy.ttl_ms)),
        "apart": or_none(ages.apart()),
        "findings": [finding._asdict() for finding in told],
    }


def distributed(found: StateRows, stream: str) -> dict[str, Any] | None:
    """Return the shift of raw forecasts against earlier ones, in the last week and since yesterday; None if too few."""
    held = list(found.of(kinds.DISTRIBUTION, stream).values())
    if not held:
        return None
    both = reduce(add, held)  # one partition needs no sum: adding to an empty one takes longer than all the rest
    shift = both.shift()
    return {
        "recent": sum(both.recent),
        "latest": sum(both.latest),
        "before": round(sum(both.before)),
        "median": or_none(both.median()),
        "median_before": or_none(both.median_before()),
        "shift": or_none(shift),
        "shifted": shift >= SHIFTED,
    }


def _windows(histories: Mapping[int, History], kind: Scored) -> dict[str, Any]:
    """Return the last window of all partitions and the worst of any, with the figures that only probabilities have."""
    described, newest, off = windows.describe(histories, kind, "ece", "ece_noise")
    if newest is not None and off is not None:
        described["last_window"] |= {
            "relative_bias": or_none(newest.relative_bias(kind)),
            "relative_bias_noise": or_none(newest.relative_bias_noise(kind)),
        }
        described["worst_window"]["reliability"] = curve(off.scores.bins(kind))
    return described


def _biased(histories: Mapping[int, History], kind: Alarmed) -> dict[str, Any]:
    """Return the bias along each feature, by partition, if the calibrator takes features."""
    biases = {str(n): each.bias.along(kind) for n, each in histories.items()}
    return {"feature_bias": biases} if any(biases.values()) else {}
