"""Sentences about a choice: how forecasters differ, with numbers, and which problems remain."""

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import Final

from agents.status.number_format import count, day, difference, period, score, share, signed
from replay.configuration import PRESENT
from replay.figures import Kind, Scorecard
from replay.report.rule import CALIBRATION, PROPER, RANKS, Verdicts
from replay.result import Contender, MetricDifference, Scored, drawn
from state.calibrators.registry import kind

_CALLED: Final = {
    "brier": "Brier score",
    "log_loss": "log loss",
    "ece": "ECE",
    "ece_smooth": "smooth ECE",
    "auc": "AUC",
    "recall": "recall",
    "pinball": "pinball loss",
}
#: A bound from here on says nothing, because no error of probabilities can be larger.
VACUOUS: Final = 1.0
#: Scores are not calibrated if their ECE is this many times what chance gives, and this share of the rate
#: of the rarer answer.
MANY: Final = 5.0
COARSE: Final = 0.1
#: A difference of at most this is mentioned without its number.
NOTHING: Final = 1e-6
#: If a larger share of neighbours changed their order, neither rounding nor a map that moved between them explains it.
#: Histograms have 10 % and more; maps that keep the order have at most 2 % of 1,500 forecasts, usually none.
TURNED: Final = 0.05
#: A mean that is off by this share of what happened is worth a sentence.
OFF: Final = 0.1
#: A warm-up is mentioned from this share of the forecasts on, if the ECE of what was served is more than this many
#: times what chance gives; and for at most this many streams.
BRIEF: Final = 0.01
HARMLESS: Final = 2.0
WARMED: Final = 5


def kept(contender: Contender) -> bool:
    """Return whether a contender serves forecasts of one moment in the order of the raw ones, and apart."""
    return isnan(contender.turned) or contender.turned <= TURNED


def order_kept(contender: Contender, verdicts: Verdicts) -> str:
    """Say whether the order within one moment is kept, and if so, where a change of AUC or recall comes from."""
    if not kept(contender):
        return f"Of neighbours that one map answered it makes {share(contender.turned)} nearly equal, or turns them."
    moved = verdicts.worse(contender.name, tuple(RANKS))
    said = "It keeps the order of forecasts of one moment"
    return (
        f"{said}; what it loses in {numbers(moved)} is between forecasts that maps of different moments answered."
        if moved
        else f"{said}."
    )


def levels(name: str, figures: Mapping[Kind, Mapping[str, float]], losses: Sequence[str]) -> str:
    """Say how large the losses and the calibration error of a stream of classes or numbers are."""
    raw, served = figures["raw"], figures["calibrated"]
    said = []
    for loss in losses:
        more = served[loss] / raw[loss] - 1 if raw[loss] else 0.0
        said.append(f"{_CALLED[loss]} {score(served[loss])} (raw {score(raw[loss])}, {signed(100 * more, 1)}%)")
    error = "coverage_error" if "coverage_error" in raw else "top_label_ece"
    called = "error of coverage" if error == "coverage_error" else "ECE of the likeliest class"
    said.append(f"{called} {score(served[error])} (raw {score(raw[error])})")
    return f"{name} has {listed(said)}."


def times(card: Scorecard) -> float:
    """Return the ECE as a multiple of what chance gives; 0 if chance gives 0."""
    return card.ece / card.ece_noise if card.ece_noise > 0 else 0.0


def use(name: str, contender: Contender | None, of: str = "") -> str:
    """Return the recommendation, and whether the level of the scores can be relied on."""
    said = f"Serve the calibrated scores{of}, by {_whose(name)}"
    if contender is None or contender.overall is None:
        return f"{said}."
    card = contender.overall.settled.calibrated
    many, rarer = times(card), min(card.base_rate, 1.0 - card.base_rate)
    if many < MANY or card.ece < COARSE * rarer:
        return f"{said}."
    return (
        f"{said}, but do not rely on their level: they are better than the raw forecasts and not calibrated, their ECE "
        f"is {many:.0f} times what chance gives."
    )


def _whose(name: str) -> str:
    """Name a configuration: the one in force, a calibrator, or the plan in a file."""
    if name == PRESENT:
        return "the configuration in force"
    try:
        kind(name.partition(":")[0])
    except ValueError:
        return f"the settings of the streams file {name}"
    return name


def learning(contender: Contender) -> list[Scored]:
    """Return the streams that left their warm-up. Those with most forecasts come first.

    If only raw scores are served, or if no outcome comes, a warm-up does not end. Then it is not a time of learning.
    """
    left = (each for each in contender.streams.values() if each.warmup.issued < each.issued)
    return sorted(left, key=lambda each: (-each.issued, each.stream))


def warmed(contender: Contender) -> Iterator[str]:
    """Say for each stream how much of it was warm-up, and what was served then."""
    found = [
        each
        for each in learning(contender)
        if each.warmup.issued >= max(BRIEF * each.issued, 1)
        and (not each.warmup.resolved or times(each.warmup.calibrated) > HARMLESS)
    ]
    for each in found[:WARMED]:
        yield _warmup(contender.name, each, f" of {each.stream}" if len(contender.streams) > 1 else "")
    if len(found) > WARMED:
        yield f"{count(len(found) - WARMED)} more streams had a warm-up."
    if found:
        yield (
            "At its end the scores pass from raw to calibrated ones, once: a threshold moves then, and a score from "
            "before it does not compare with one from after it. No figure here compares the two."
        )


def _warmup(name: str, scored: Scored, of: str) -> str:
    warm = scored.warmup
    until = "" if warm.end_ms is None else day(warm.end_ms)
    said = f"Until {until}, {share(warm.issued / scored.issued)} of the forecasts{of}, {name} was warming up"
    if not warm.resolved:
        return f"{said}; none of them has an outcome."
    served, raw = warm.calibrated, warm.raw
    level = (
        f"{score(served.mean_forecast)} on average (raw {score(raw.mean_forecast)}; {score(raw.base_rate)} happened)"
    )
    return f"{said}: it served {level}, Brier score {score(served.brier)} (raw {score(raw.brier)})."


def harm_of_draw(verdicts: Verdicts, name: str) -> list[str]:
    """Say what is lost if the draw is served."""
    harm = verdicts.worse(drawn(name), (*PROPER, *RANKS))
    return [f"Its draw is worse than raw in {numbers(harm)}: serve p."] if harm else []


def compared(verdicts: Verdicts, name: str, other: str, called: str = "") -> str:
    """Describe the difference between two contenders, with numbers. Mention smooth ECE only if it contradicts ECE."""
    found, against = verdicts.of(name, other), called or other
    said = [
        each
        for metric in (*PROPER, *RANKS, *CALIBRATION)
        if (each := found.get(metric))
        and (metric != "ece_smooth" or "ece" not in found or each.sign != found["ece"].sign)
    ]
    better, none, worse = ([each for each in said if verdicts.sign(each) == sign] for sign in (-1, 0, 1))
    as_well = [each for each in none if verdicts.as_well(each)]
    small = [each for each in none if each.clear and each not in as_well]
    same = [each for each in none if not each.clear and each not in as_well]
    parts = []
    if better:
        parts.append(f"is better than {against}: {numbers(better)}")
    if worse:
        parts.append(f"is worse{'' if better else f' than {against}'}: {numbers(worse)}")
    if as_well:
        ranked = [f"{numbers([each])[:-1]}, above −{verdicts.margin(each):.2g})" for each in as_well]
        parts.append(f"ranks as well{'' if parts else f' as {against}'}: {listed(ranked)}")
    if small:
        which = numbers(small) if any(abs(each.value) > NOTHING for each in small) else _names(small)
        parts.append(f"differs {'' if parts else f'from {against} '}by too little to matter in {which}")
    if same and parts:
        parts.append(f"shows no clear difference in {numbers(same)}")
    if not said:
        return f"was not compared with {against}."
    if all(each.low == each.high for each in said):
        return f"served what {against} {'are' if called else 'is'}: nothing differs."
    if not parts:
        return f"shows no clear difference from {against}: {numbers(same)}."
    return "; it ".join(parts) + "."


def remains(contender: Contender, overall: Scored) -> list[str]:
    """Name the problems that the choice does not solve."""
    name = contender.name
    card, raw = overall.settled.calibrated, overall.settled.raw
    told = []
    if not abs(card.relative_error) < OFF:
        told.append(
            f"It serves {score(card.mean_forecast)} on average where {score(card.base_rate)} happened, "
            f"{signed(100 * card.relative_error, 0)}%; raw {score(raw.mean_forecast)}."
        )
    if card.ece_noise > 0:
        many = times(card)
        said = (
            f"The ECE of {name} is {score(card.ece)} (raw {score(raw.ece)}); chance alone would give "
            f"{score(card.ece_noise)}"
        )
        told.append(
            f"{said}, so what remains cannot be told from chance."
            if many < 1.5
            else f"{said}, so some miscalibration remains, {many:.1f} times what chance gives."
        )
    worst, before = overall.worst["calibrated"], overall.worst["raw"]
    if worst and before:
        of = f"of {worst.stream}, " if len(contender.streams) > 1 else ""
        told.append(
            f"Of all full windows of {count(worst.n)} outcomes, its worst ({of}{period(worst.start_ms, worst.end_ms)}) "
            f"has an ECE of {score(worst.ece)}; the worst of the raw forecasts has {score(before.ece)}."
        )
    if overall.l1 is not None and overall.bound is not None:
        under = "is under" if overall.l1 <= overall.bound else "is over"
        empty = (
            "" if overall.bound < VACUOUS else "; a bound of 1 or more promises nothing, it shrinks as outcomes come"
        )
        told.append(f"Its own error, {score(overall.l1)}, {under} its bound, {score(overall.bound)}{empty}.")
    elif overall.bound is None:
        told.append("It has no bound that holds on every sequence: what is seen here rests on this history alone.")
    return told


def numbers(found: Sequence[MetricDifference]) -> str:
    """Return differences with their intervals."""
    said = []
    for each in found:
        value, low, high = difference(each.value, each.low, each.high)
        said.append(f"{_CALLED[each.metric]} {value} ({low} to {high})")
    return listed(said)


def _names(found: Sequence[MetricDifference]) -> str:
    return listed([_CALLED[each.metric] for each in found])


def listed(words: Sequence[str]) -> str:
    """Return words as people list them."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
