"""The rule for choosing a configuration: which differences are clear and matter, and what follows from them."""

from collections.abc import Mapping, Sequence
from math import log, log1p
from typing import Final

from replay.result import RAW, Contender, MetricDifference, Result, Scored

#: The rule, as the page prints it.
RULE: Final = (
    "What was served after the warm-up is judged. A configuration is refused if it is clearly worse than raw in Brier "
    "score or log loss, also during its warm-up, or in AUC or recall at the stated volume. Clearly means that the 95% "
    "interval of the paired difference leaves out 0, and that the difference matters: at least 0.1% of raw's Brier "
    "score or log loss, 1% of how often the rarer answer happens in calibration error, 0.002 in AUC, 0.01 and two of "
    "the ones in recall. Where the whole interval is above minus these, a configuration ranks as well as raw. AUC and "
    "recall compare forecasts with some 200 neighbours in time that one calibrator answered. They refuse nothing "
    "where Brier score and log loss are both clearly better and the order is kept: of neighbours that one map "
    "answered at most 5% were turned or made nearly equal. Of the others proper scores decide first: one forecaster "
    "is preferred to another if its Brier score or its log loss is clearly smaller and neither is clearly larger. "
    "Where neither proper score differs, and none is larger by as much as matters, calibration error decides, if ECE "
    "and smooth ECE are both clearly smaller. Of several that nothing is preferred to, raw forecasts stay if they are "
    "among them; else the calibrator of the fewest parts is taken, and of equally simple ones that of the smallest "
    "Brier score. With fewer than 200 outcomes, or fewer than 20 of the rarer answer, there is no choice, and where "
    "fewer than half of the forecasts have one it is no choice for all. None is chosen whose log loss is 1% more than "
    "raw's for outcomes that taught nothing because their entity had told them. Each stream of classes is judged alike "
    "by its Brier score and log loss, and each stream of numbers by its pinball loss."
)
PROPER: Final = ("brier", "log_loss", "pinball")
CALIBRATION: Final = ("ece", "ece_smooth")
#: How much of each of these may be lost without harm, see `MATTERS`.
RANKS: Final = {"auc": 0.002, "recall": 0.01}
#: Smaller differences do not count, because nobody would act on them. For a Brier score, a log loss or a pinball loss
#: it is a share of raw's, for a calibration error a share of the rate of the rarer answer.
MATTERS: Final = 0.001
OFF_RATE: Final = 0.01
#: Recalls that differ by fewer ones count as equal: intervals of so few ones contain the truth too rarely.
ONES: Final = 2.0
#: Raw's losses count as at least this share of the losses that a constant forecast of the rate would have.
FLAWLESS: Final = 0.1


def overall(contenders: Sequence[Contender]) -> list[Scored]:
    """Return the figures over all streams of probabilities together, for each contender that has any."""
    return [each.overall for each in contenders if each.overall]


def least(contenders: Sequence[Contender]) -> dict[str, float]:
    """Return the smallest difference that matters, by metric. For other metrics there is none."""
    raw = [each.settled.raw for each in overall(contenders) if each.settled.raw.n]
    if not raw:
        return {}
    base = min(min(each.base_rate, 1 - each.base_rate) for each in raw)
    if not base > 0.0:
        return {}
    spread = base * (1 - base), -base * log(base) - (1 - base) * log1p(-base)
    return {
        "brier": MATTERS * max(min(each.brier for each in raw), FLAWLESS * spread[0]),
        "log_loss": MATTERS * max(min(each.log_loss for each in raw), FLAWLESS * spread[1]),
        **dict.fromkeys(CALIBRATION, OFF_RATE * base),
        "auc": RANKS["auc"],
        "recall": max(RANKS["recall"], ONES / max(min(each.n * each.base_rate for each in raw), 1.0)),
    }


def judged(result: Result) -> "Verdicts":
    """Return the differences of probabilities."""
    return Verdicts(result.differences, least(result.contenders))


def judged_alone(result: Result, stream: str) -> "Verdicts":
    """Return the differences for a stream of classes or numbers, between contenders that left the warm-up."""
    # A contender that never left it has served raw forecasts, and all are compared with raw.
    mine = {one.name: each for one in result.contenders if (each := one.vectors.get(stream)) and each.resolved}
    found = [each for each in result.vector_differences.get(stream, ()) if each.name in mine]
    metrics = {each.metric for each in found}
    return Verdicts(found, {of: MATTERS * min(each.figures["raw"][of] for each in mine.values()) for of in metrics})


class Verdicts:
    """The paired differences, which may be asked for in either direction.

    ``least``: by metric, the smallest difference that matters, see `least`.
    """

    def __init__(self, differences: Sequence[MetricDifference], least: Mapping[str, float]) -> None:
        self._least = least
        self._found: dict[tuple[str, str], dict[str, MetricDifference]] = {}
        for each in differences:
            self._found.setdefault((each.name, each.against), {})[each.metric] = each
            turned = MetricDifference(each.against, each.name, each.metric, -each.value, -each.high, -each.low)
            self._found.setdefault((each.against, each.name), {})[each.metric] = turned

    def of(self, name: str, against: str) -> Mapping[str, MetricDifference]:
        """Return the differences by metric; empty if the two were not compared."""
        return self._found.get((name, against), {})

    def sign(self, each: MetricDifference) -> int:
        """Return -1 if ``name`` is better by an amount that matters, 1 if it is worse by one, otherwise 0."""
        return each.sign if abs(each.value) >= self.margin(each) else 0

    def helps(self, name: str) -> bool:
        """Return whether ``name`` is better than raw in every proper score, by an amount that matters."""
        found = [each for metric, each in self.of(name, RAW).items() if metric in PROPER]
        return bool(found) and all(self.sign(each) < 0 for each in found)

    def margin(self, each: MetricDifference) -> float:
        """Return the smallest difference of a metric that matters."""
        return self._least.get(each.metric, 0.0)

    def as_well(self, each: MetricDifference) -> bool:
        """Return whether ``name`` ranks no worse by an amount that matters, at both ends of the interval."""
        return each.metric in RANKS and each.low > -self.margin(each)

    def worse(self, name: str, metrics: Sequence[str]) -> list[MetricDifference]:
        """Return the metrics in which ``name`` is worse than raw by an amount that matters."""
        found = self.of(name, RAW)
        return [found[metric] for metric in metrics if metric in found and self.sign(found[metric]) > 0]

    def alike(self, name: str, against: str) -> bool:
        """Return whether the intervals rule out a difference that matters in every proper score."""
        found = self.of(name, against)
        return bool(found) and all(
            max(-each.low, each.high) < self.margin(each) for metric, each in found.items() if metric in PROPER
        )

    def preferred(self, name: str, against: str) -> bool:
        """Return whether `RULE` prefers ``name``."""
        found = self.of(name, against)
        told = {metric: self.sign(found[metric]) for metric in (*PROPER, *CALIBRATION) if metric in found}
        proper = [sign for metric, sign in told.items() if metric in PROPER]
        if any(proper):
            return min(proper) < 0 and max(proper) <= 0
        costs = any(found[each].value >= self.margin(found[each]) > 0.0 for each in told if each in PROPER)
        errors = [sign for metric, sign in told.items() if metric in CALIBRATION]
        return bool(errors) and max(errors) < 0 and not costs
