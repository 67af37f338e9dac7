"""The summary of a replay in plain words: the model's scores, the outcomes, and trueup's scores."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

from agents.status import pictures
from agents.status.markup import Markup
from agents.status.number_format import count, day, percent, points
from replay.measure import chance
from replay.report.rule import overall
from replay.result import RAW, Contender, Result, Scored
from state.scoring.windows import KINDS

#: A segment is mentioned if the model is off by this share of what happened.
_WRONG: Final = 0.25
#: The most streams of classes and numbers that are mentioned.
_TOLD: Final = 5


@dataclass(frozen=True)
class Message:
    """Sentences and two pictures. A picture is None if there is nothing to draw."""

    sentences: Sequence[str]
    course: Markup | None
    map: Markup | None


def chosen(contenders: Sequence[Contender], name: str | None) -> Contender:
    """Return the chosen contender; the first one if none was chosen."""
    return next((each for each in contenders if each.name == name), contenders[0])


def of(result: Result, name: str | None) -> Message:
    """Return the message of a replay. ``name``: the chosen contender."""
    contenders = [each for each in result.contenders if each.overall]
    of_vectors = list(_vectors(result, name))
    if not contenders:
        return Message(of_vectors, None, None)
    contender = chosen(contenders, name)
    (scored,) = overall([contender])
    if not scored.raw.n:
        return Message(("No forecast has an outcome: nothing can be said.",), None, None)
    windows = [
        pictures.Period(
            w.start_ms,
            w.end_ms,
            w.n,
            w.base_rate,
            w.mean_raw,
            w.mean_calibrated,
            chance(w.n, w.base_rate, w.n * w.mean_calibrated * (1.0 - w.mean_calibrated)),
        )
        for w in scored.windows
    ]
    label = "What came true, was served, and the model said, over the history"
    course = pictures.course(windows, label, 560, 230) if len(windows) > 1 else None
    lookup = scored.review.lookup
    drawn = pictures.mapping([("served", "c0", lookup)], "What is served for what the model says", side=210)
    sentences = [*_sentences(contender, scored, result), *of_vectors]
    return Message(sentences, course, drawn if len(lookup) > 1 else None)


def _vectors(result: Result, name: str | None) -> Iterator[str]:
    """Say for the largest streams of classes and numbers how far the model and the served forecasts are off."""
    if not (contenders := [each for each in result.contenders if each.vectors]):
        return
    found = sorted(chosen(contenders, name).vectors.values(), key=lambda each: -each.resolved)
    for each in [one for one in found if one.resolved][:_TOLD]:
        raw, served = (each.figures[kind] for kind in KINDS)
        metric, what = (
            ("coverage_error", "the level of your model's quantiles that is most off is off by")
            if "coverage_error" in raw
            else ("top_label_ece", "your model's probability of its likeliest class is off by")
        )
        model, ours = points(raw[metric]), points(served[metric])
        said = f"{each.stream}: {what} {model} percentage points, trueup's by {ours}"
        yield f"{said}, over {count(each.resolved)} outcomes."


def _sentences(contender: Contender, scored: Scored, result: Result) -> Iterator[str]:
    phase = scored.settled if scored.settled.resolved else scored.warmup
    raw, served, n = phase.raw, phase.calibrated, phase.resolved
    rate = raw.base_rate
    by_chance = chance(n, rate, n * served.mean_forecast * (1.0 - served.mean_forecast))
    off = served.mean_forecast - rate
    judged = (
        f"right to ±{points(by_chance)} percentage points"
        if abs(off) <= by_chance
        else f"{points(abs(off))} percentage points too {'high' if off > 0 else 'low'}"
    )
    when = "" if phase.start_ms is None else f" since {day(phase.start_ms)}"
    warm = ", after its warm-up," if scored.warmup.issued and phase is scored.settled else ""
    model = f"Your model said {percent(raw.mean_forecast)} on average"
    yield (
        f"{model}; {percent(rate)} of {count(n)} came true{when}. trueup{warm} "
        f"would have said {percent(served.mean_forecast)}, {judged}."
    )
    if served.recall == served.recall:
        caught = [percent(card.recall) for card in (served, raw)]
        recall = [
            each.clear
            for each in result.differences
            if (each.name, each.against, each.metric) == (contender.name, RAW, "recall")
        ]
        alike = caught[0] == caught[1] or recall == [False]
        as_well = "as your model's do" if alike else f"your model's {caught[1]}"
        top = f"{100 * result.volume:g}\N{NO-BREAK SPACE}%"
        yield f"The highest {top} of its scores catch {caught[0]} of what came true, {as_well}."
    yield from changed(contender)


def changed(contender: Contender) -> Iterator[str]:
    """Say for which segment the model was most wrong, if it was wrong for one."""
    worst = max(
        (
            each
            for stream in contender.streams.values()
            for each in (stream.segments or {}).get("worst", ())
            if each["value"] != "(missing)"
        ),
        key=lambda each: abs(each["raw"]["mean"] - each["observed"]) * sqrt(each["events"]),
        default=None,
    )
    if worst and abs(worst["raw"]["mean"] - worst["observed"]) > _WRONG * max(worst["observed"], 1e-9):
        yield (
            f"It changes most for {worst['segment']} = {worst['value']}: your model said "
            f"{percent(worst['raw']['mean'])}, {percent(worst['observed'])} came true, trueup said "
            f"{percent(worst['calibrated']['mean'])}."
        )
