"""The warm-up of a stream, as JSON and in words. In it, raw scores are served, and their outcomes are counted apart."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final

from state import kinds
from state.policy import Policy
from state.scoring.alarm import ALPHA
from state.scoring.scores import Scores
from state.scoring.warm_up import WarmUp
from state.served import Served
from streams.metrics.rows import StateRows, covered
from streams.metrics.rows import serving as serving_now


def of_rows(found: StateRows, stream: str, policy: Policy | None) -> dict[str, Any] | None:
    """Describe a stream's warm-up; None if no calibrator serves the stream.

    Returns a dict. ``partitions``: how many of ``of`` partitions are still in the warm-up; ``learnt``: outcomes that
    all of them have learnt. ``until_ms``: event time at which the last of the others left it, None if none has;
    ``since``: outcomes of later forecasts. ``resolved``: forecasts of the warm-up with an outcome; ``raw``: their mean
    raw probability; ``observed``: what happened (for classes and numbers see `state.scoring.warm_up.WarmUp`).
    ``alarm_log10``: the evidence that these raw forecasts are off. ``why``: why it lasts: ``unknown`` (no outcome is
    known), ``unlabelled`` (most forecasts have no label), ``few`` (too few labels to say whether most get one),
    ``unsupported`` (outcomes have not supported another answer yet), None once no partition is in it.
    """
    present = serving_now(found, stream, policy)
    held = [each for each in found.of(kinds.CALIBRATOR, stream).items() if present is None or each[0][1] in present]
    # The calibrator that left its warm-up first comes last and so is kept: later versions begin with its map.
    held.sort(key=lambda each: each[1].warmed_ms or math.inf, reverse=True)
    serving: dict[int, Served] = {n: each for (n, _), each in held}
    of_vectors = found.of(kinds.VECTORS, stream).items()
    scored: dict[int, Any] = {n: each for (n, config), each in of_vectors if present is None or config in present}
    scored = scored or found.of(kinds.SCORES, stream)
    coverages = covered(found, stream, policy)
    if not serving:
        return None
    warming = [each for each in serving.values() if not each.warmed_ms]
    total = reduce(WarmUp.__add__, [each.warm_up for each in scored.values()], WarmUp())
    evidence = max((each.warm_up.log_alarm for each in scored.values()), default=0.0) - math.log(max(len(scored), 1))
    why = None
    if warming:
        seen = [coverages[n] for n, each in serving.items() if not each.warmed_ms and n in coverages]
        if not any(each.calibrator.learnt for each in warming):
            labelled = any(each.label_ms for each in found.of(kinds.COURSE, stream).values())
            why = "immature" if labelled else "unknown"
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


#: What is served in a warm-up, by why it lasts, and what to do about it.
WHY: Final = {
    "unknown": (
        "Raw scores are served. No label is known yet.",
        "Nothing, while labels are not due yet. If they are: send outcomes with the ids of the forecasts.",
    ),
    "immature": (
        "Raw scores are served. Labels have come, and are learnt when their forecasts have matured.",
        "Nothing: labels are learnt when their forecasts are as old as `matures` says.",
    ),
    "unlabelled": (
        "Raw scores are served: most forecasts have no label.",
        "Say in the streams file what a missing label means: the note on labels says what fits.",
    ),
    "few": (
        "Raw scores are served: too few labels have come to say whether most forecasts get one.",
        "Nothing: a few more labels are needed.",
    ),
    "unsupported": (
        "Raw scores were served so far: others are served when the labels support them.",
        "Nothing: the next forecasts are answered by what the labels support.",
    ),
}


def words(warm_up: Mapping[str, Any] | None, since: Scores) -> str:
    """Return in plain words what was served when; empty if there was no warm-up worth mentioning.

    ``warm_up``: as `of_rows` returns it.
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
        return f"Warm-up{where}. {WHY[warm_up['why']][0]}{means}"
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
