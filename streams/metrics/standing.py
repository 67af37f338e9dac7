"""The standing of a stream: outcomes against served scores by day and window, and one state with its reason."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from state.coverage import UNLABELLED
from state.policy import Policy
from state.scoring.ages import DAY_MS, HOUR_MS
from state.scoring.course import DAYS, ISSUED, KNOWN, ONES, RAW, SERVED, VARIANCE, Course
from streams.metrics.segments import mark
from streams.metrics.warm_up import WHY

#: The states, most urgent first.
STATES: Final = ("no input", "withheld", "off", "no labels", "warming up", "right")
#: Two-sided 95 % of the normal distribution.
WIDE: Final = 1.96
#: Forecasts have stopped after this long: if nearly every hour had one, and otherwise.
STEADY_MS, UNSTEADY_MS = 2 * HOUR_MS, 25 * HOUR_MS
STEADY: Final = 20
#: Labels have stopped after this many days, if that is also this many times the longest gap between days with labels.
#: Where silence is a label, so few days with another label show no gap.
UNLABELLED_DAYS: Final = 3
GAPS: Final = 2
FEW: Final = 3
#: A day that is off by this many standard errors was not right. The last days together are off if they are off by one
#: more standard error and by this share of the outcomes. The alarm may come later: it counts windows of outcomes.
FAR: Final = 4.0
WEEK: Final = 7
NOTICED: Final = 0.2


def figures(sums: Sequence[float]) -> dict[str, Any]:
    """Return the means of a period. ``chance`` is half the 95 % interval of the observed rate."""
    n = sums[KNOWN]
    told: dict[str, Any] = {"forecasts": int(sums[ISSUED]), "known": int(n)}
    if not n:
        return told | dict.fromkeys(("happened", "raw", "served", "chance"))
    rate = min(max(sums[ONES] / n, 0.0), 1.0)
    spread = max(sums[VARIANCE], n * rate * (1.0 - rate))
    means = {"happened": sums[ONES] / n, "raw": sums[RAW] / n, "served": sums[SERVED] / n}
    return told | means | {"chance": WIDE * math.sqrt(spread) / n}


def describe(course: Course, now_ms: int, from_ms: int | None = None) -> dict[str, Any]:
    """Return the course of a stream of probabilities as in the JSON.

    Windows hold whole hours or days, the present one included: ``hour`` this hour and the one before, ``day`` this hour
    and the 24 before, ``week`` and ``month`` today and the 7 or 30 days before. ``since`` holds the whole days since
    ``from_ms``, as far back as days are kept; None: since the beginning.
    """
    hour, day = now_ms // HOUR_MS, now_ms // DAY_MS
    spans = [("hour", course.hours, hour - 1), ("day", course.hours, hour - 24)]
    spans += [("week", course.days, day - 7), ("month", course.days, day - 30)]
    first = -(-(from_ms or 0) // DAY_MS)
    kept = [at for at in course.days if at >= first] or sorted(course.days)[-1:]
    return {
        "since": figures(_sum(course.days[at] for at in kept)) | {"from_ms": min(kept, default=0) * DAY_MS},
        "forecast_ms": course.forecast_ms,
        "label_ms": course.label_ms,
        "days": [{"day": at} | figures(sums) for at, sums in sorted(course.days.items())],
        "windows": {name: figures(_sum(of[at] for at in of if at >= first)) for name, of, first in spans},
    }


def state(
    described: Mapping[str, Any], course: Course, now_ms: int, idle_ms: int = 0, policy: Policy | None = None
) -> dict[str, Any]:
    """Return one of `STATES` with ``since_ms``; ``words``, which say how bad it is; and ``todo``, the remedy.

    ``described``: the stream, from `streams.metrics.description.describe`; warm-up, ``withheld``, alarms and segments.
    ``course``: of all partitions.
    ``now_ms``: stream time of the partitions.
    ``idle_ms``: time since the worker's last batch.
    ``policy``: the stream's present configuration.
    """
    warm_up = described.get("warm_up") or {"partitions": 0, "of": 0, "until_ms": None, "why": None}
    silent = max(now_ms - course.forecast_ms, idle_ms)
    steady = sum(sums[ISSUED] > 0 for sums in course.hours.values()) >= STEADY
    if course.forecast_ms and silent > (STEADY_MS if steady else UNSTEADY_MS):
        return _told("no input", course.forecast_ms, "No forecast has come since then.", _TODO["no input"])
    withheld = described.get("withheld") or {"partitions": {}}
    raw = withheld["partitions"].get(UNLABELLED)
    if raw and warm_up["partitions"] < warm_up["of"]:
        where = "" if len(raw) == withheld["of"] else f" in {len(raw)} of {withheld['of']} partitions"
        words = f"Raw scores are served{where}: most forecasts get no label."
        return _told("withheld", withheld["since_ms"], words, WHY[UNLABELLED][1])
    scored = _scored(described)
    days = _after(course, warm_up["until_ms"])
    if off := _off(described, scored, course, days):
        return _told("off", *off, _TODO["off"])
    begun = min((at for at, sums in course.days.items() if sums[ISSUED]), default=now_ms // DAY_MS) * DAY_MS
    waited = now_ms - (course.label_ms or begun)
    if course.forecast_ms and waited > _patience(course, warm_up["until_ms"] or 0, policy) * DAY_MS:
        words = "No label has ever come: raw scores are served."
        if course.label_ms:
            words = "No label has come since then. What was learnt is still served."
        return _told("no labels", course.label_ms or begun, words, _TODO["no labels"])
    warms = warm_up["partitions"] and warm_up["partitions"] == warm_up["of"]
    if warms or (warm_up["until_ms"] and not scored):
        told = WHY[warm_up["why"]] if warms else _SERVED
        return _told("warming up", begun if warms else warm_up["until_ms"], *told)
    return _told("right", right_since(course, warm_up["until_ms"]), "", "")


def _told(name: str, since_ms: int | None, words: str, todo: str) -> dict[str, Any]:
    return {"state": name, "since_ms": since_ms, "words": words, "todo": todo}


_TODO: Final = {
    "no input": "Ask whoever sends the forecasts. Records that cannot be used are dead letters: trueup letters --last "
    "1d.",
    "off": "Ask whether labels, the model or the population changed; open the stream to see which scores and segments "
    "are off. Runbook: TrueupServedNotCalibrated.",
    "no labels": "Ask whoever sends the outcomes, and whether their ids are those of the forecasts: trueup letters "
    "--last 1d.",
}
#: Words and remedy while a warm-up has ended but no later forecast has an outcome yet.
_SERVED: Final = (
    "Calibrated scores are served. None of them has an outcome yet.",
    "Nothing: their outcomes will show whether they are right.",
)


def _scored(described: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = [described, *described.get("vectors", {}).values()]
    return [each for each in found if "alarm" in each.get("calibrated", {})]


def _after(course: Course, until_ms: int | None) -> list[int]:
    """Return the days after the warm-up. The day on which it ended counts only if there is no other."""
    return [at for at in sorted(course.days) if at * DAY_MS >= (until_ms or 0)] or sorted(course.days)[-1:]


def _week_off(course: Course, days: Sequence[int]) -> bool:
    """Whether served scores are off, from some day of the last week on, by more than chance and by enough to matter."""
    tails = [_sum(course.days[at] for at in days if at >= first) for first in days if first > days[-1] - WEEK]
    return any(
        abs(_deviations(sums)) > FAR + 1.0 and abs(sums[SERVED] - sums[ONES]) > NOTICED * max(sums[ONES], 1.0)
        for sums in tails
    )


def _off(
    described: Mapping[str, Any], scored: Sequence[Mapping[str, Any]], course: Course, days: Sequence[int]
) -> tuple[int | None, str] | None:
    """Return since when the stream or a segment is off, and by how much; None if none is."""
    sounds = [each for each in scored if each["calibrated"]["alarm"]["recent_sounds"]]
    if found := sounds or scored[: _week_off(course, days)]:
        return _by(found[0], course, days)
    segments = described.get("segments") or {}
    if not segments.get("recently_off"):
        return None
    worst = next(each for each in segments["recent"] if each["sounds"])
    return None, (
        f"Right on the whole, off in {segments['recently_off']:,} of {segments['scored']:,} segments. Worst is "
        f"{worst['segment']} = {worst['value']}{mark(worst, segments['of'])}: {worst['served']:.3g} served, "
        f"{worst['observed']:.3g} came true in {worst['events']:,} events."
    )


def _by(scored: Mapping[str, Any], course: Course, days: Sequence[int]) -> tuple[int | None, str]:
    """Return since when served scores are off, and by how much."""
    tails = [_sum(course.days[at] for at in days[n:]) for n in range(len(days))]
    strengths = [abs(_deviations(sums)) for sums in tails]
    if not any(strengths) or "relative_bias" not in scored["calibrated"]:
        return None, "What is served is not what comes true, by the last windows of outcomes."
    at = strengths.index(max(strengths))
    told = figures(tails[at])
    if strengths[at] < WIDE:
        return (
            None,
            "Right on average, and off at some scores: what is served there is not what comes true.",
        )
    word = "too high" if told["served"] > told["happened"] else "too low"
    times = max(told["served"], told["happened"]) / max(min(told["served"], told["happened"]), 1e-9)
    by = f"{times:.1f} times " if times >= 1.2 else f"{abs(told['served'] / max(told['happened'], 1e-9) - 1):.0%} "
    return days[at] * DAY_MS, f"Served scores were {by}{word} over {told['known']:,} outcomes since then."


def right_since(course: Course, until_ms: int | None) -> int | None:
    """Return since when the mean served score equals the observed rate, apart from chance, after the warm-up.

    No day since then is `FAR` off, and all these days together are within the 95 % interval.
    """
    wrong = [at for at, sums in course.days.items() if abs(_deviations(sums)) > FAR]
    days = [at for at in _after(course, until_ms) if at > max(wrong, default=-1)]
    for n, at in enumerate(days):
        if abs(_deviations(_sum(course.days[each] for each in days[n:]))) <= WIDE:
            return max(at * DAY_MS, until_ms or 0)
    return days[-1] * DAY_MS if days else until_ms


def _deviations(sums: Sequence[float]) -> float:
    """Return how many standard errors served scores lie above outcomes."""
    told = figures(sums)
    return WIDE * (told["served"] - told["happened"]) / told["chance"] if told["chance"] else 0.0


def _patience(course: Course, until_ms: int, policy: Policy | None) -> float:
    """Return the number of days without a label after which labels have stopped.

    After a warm-up nothing counts until labels of later forecasts come. That time is not a gap. The first label may
    take as long as forecasts take to mature. Labels that silence implies prove nothing: frauds may be rarer than
    one a week.
    """
    silence = None if policy is None else policy.silence
    least = UNLABELLED_DAYS if policy is None or course.label_ms else max(UNLABELLED_DAYS, policy.matures_ms / DAY_MS)
    days = sorted(
        at
        for at, sums in course.days.items()
        if (sums[KNOWN] if silence is None else sums[ONES] != silence * sums[KNOWN])
    )
    if silence is not None and len(days) < FEW:
        return max(least, DAYS)
    gaps = [b - a for a, b in pairwise(days) if (a * DAY_MS < until_ms) == (b * DAY_MS < until_ms)]
    return max(least, GAPS * max(gaps, default=0))


def _sum(parts: Iterable[Sequence[float]]) -> list[float]:
    return [sum(column) for column in zip([0.0] * 6, *parts, strict=True)]
