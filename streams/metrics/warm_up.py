"""The warm-up of a stream, as JSON and in words: raw scores are served, and their outcomes count apart."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from state.coverage import Coverage
from state.scoring.alarm import ALPHA
from state.scoring.history import History
from state.scoring.scores import Scores
from state.scoring.vector_history import VectorHistory
from state.scoring.warm_up import WarmUp
from state.served import Served


def describe(
    serving: Mapping[int, Served],
    scored: Mapping[int, History | VectorHistory],
    coverages: Mapping[int, Coverage],
) -> dict[str, Any] | None:
    """Return what is known of a stream's warm-up; None where nothing serves it.

    ``serving``, ``scored`` and ``coverages``: by partition: what serves now, its scores, and which forecasts have a
    label.

    Returns a dict. ``partitions`` of ``of`` are still in it, and all have ``learnt`` so many outcomes. ``until_ms``:
    event time at which the last of the others left it, None if none has; ``since`` outcomes are of later forecasts. Of
    its ``resolved`` forecasts ``raw`` is the mean raw probability, and ``observed`` what happened (of classes and
    numbers see `state.scoring.warm_up.WarmUp`). ``alarm_log10``: the evidence that raw is off there. ``why`` it lasts:
    ``unknown`` (no outcome is known), ``unlabelled`` (most forecasts have no label), ``few`` (too few labels to say
    whether most get one), ``unsupported`` (no forecast was answered otherwise so far), None once no partition is in it.
    """
    if not serving:
        return None
    warming = [each for each in serving.values() if not each.warmed_ms]
    total = reduce(WarmUp.__add__, [each.warm_up for each in scored.values()], WarmUp())
    evidence = max((each.warm_up.log_alarm for each in scored.values()), default=0.0) - math.log(max(len(scored), 1))
    why = None
    if warming:
        seen = [coverages[n] for n, each in serving.items() if not each.warmed_ms and n in coverages]
        if not any(each.calibrator.learnt for each in warming):
            why = "unknown"
        elif any(each.uncovered for each in seen):
            why = "unlabelled"
        else:
            why = "unsupported" if all(each.covered for each in seen) else "few"
    return {
        "partitions": len(warming),
        "of": len(serving),
        "learnt": sum(each.calibrator.learnt for each in serving.values()),
        "until_ms": max(each.warmed_ms for each in serving.values()) or None,
        "since": sum(each.n for each in scored.values()),
        "resolved": total.n,
        "raw": total.mean if total.n else None,
        "observed": total.observed if total.n else None,
        "bias": total.mean - total.observed if total.n else 0.0,
        "alarm_log10": evidence / math.log(10.0),
        "why": why,
    }


_WHY = {
    "unknown": "raw scores are served. No outcome is known yet.",
    "unlabelled": "raw scores are served. Most forecasts have no label yet.",
    "few": "too few labels have come to say whether most forecasts get one.",
    "unsupported": "raw scores were served so far. Others are served once outcomes support them.",
}


def words(warm_up: Mapping[str, Any] | None, since: Scores) -> str:
    """Return in plain words what was served when; empty without a warm-up worth mentioning.

    ``warm_up``: as `describe` returns it.
    ``since``: scores of probabilities after the warm-up.
    """
    if warm_up is None:
        return ""
    n, left = warm_up["resolved"], warm_up["partitions"]
    means = ""
    if n:
        off = "; it is off" if warm_up["alarm_log10"] >= -math.log10(ALPHA) else ""
        means = f" Of {n:,} outcomes raw said {_figure(warm_up['raw'])}, {_figure(warm_up['observed'])} happened{off}."
    if left:
        where = "" if left == warm_up["of"] else f" in {left} of {warm_up['of']} partitions"
        return f"Warm-up{where}: {_WHY[warm_up['why']]}{means}"
    if not n:
        return ""
    at = datetime.fromtimestamp(warm_up["until_ms"] / 1000, UTC)
    said = f"Warm-up until {at.day} {at:%B %Y, %H:%M} UTC."
    if not warm_up["since"]:
        return f"{said} No forecast since then has an outcome yet.{means}"
    if not since.n:
        return said
    served, raw = (sum(each.p for each in since.bins(kind)) / since.n for kind in ("calibrated", "raw"))
    happened = sum(each.y for each in since.bins("raw")) / since.n
    # Other outcomes counted under another configuration, perhaps before this warm-up.
    then = "Since then" if warm_up["learnt"] == n + since.n else "Apart from warm-ups"
    return f"{said} {then}: served {_figure(served)}, happened {_figure(happened)}, raw {_figure(raw)}."


def _figure(value: float) -> str:
    return f"{value:.4f}" if value >= 0.01 else f"{value:.3g}"
