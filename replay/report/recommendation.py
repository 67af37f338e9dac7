"""Which configuration to choose, and why, in sentences: a rule that is stated, applied to the paired intervals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Final

from replay.report.number_format import count, day, difference, period, score, share, signed
from replay.result import HARMS, RAW, Contender, Difference, Phase, Result, Scorecard, Scored, drawn

#: What the choice follows, as the page says it.
RULE: Final = (
    "Judged is what was served after the warm-up. A configuration is refused if it is clearly worse than raw in Brier "
    "score, log loss, AUC or recall at the stated volume, or in Brier score or log loss during its warm-up. Clearly "
    "means that the 95% interval of the paired difference leaves out 0, and that the difference matters: in Brier "
    "score and log loss it is at least 0.1% of raw's, in calibration error at least 1% of how often the rarer answer "
    "happens, and in AUC at least 0.002, because a map that moves with every outcome always reorders a little; pairs "
    "of equal raw forecasts count as half there, as only time tells them apart. With enough outcomes any difference, "
    "however small, leaves out 0. Of the others proper scores decide "
    "first: one forecaster is preferred to another if its Brier score or its log loss is clearly smaller and neither "
    "is clearly larger. Where neither proper score differs, calibration error decides the same way. Of several that "
    "nothing is preferred to, raw forecasts stay if they are among them; else the calibrator of the fewest parts is "
    "taken, and of equally simple ones that of the smallest Brier score. What is chosen is recommended for use only "
    "if its ECE is less than five times what chance gives. With fewer than 200 outcomes, or fewer than 20 of the "
    "rarer answer, there is no choice, and where fewer than half of the forecasts have one it is no choice for all."
)
#: Outcomes of the rarer answer from which there is a choice: of 10 the intervals of AUC cover .83, of 40 .95.
RARER: Final = 20
_PROPER: Final = ("brier", "log_loss")
_CALIBRATION: Final = ("ece", "ece_smooth")
_RANKS: Final = ("auc", "recall")
#: Raw forecasts that are equal to another, on average, from which a refusal says so.
_EQUALS: Final = 10
_CALLED: Final = {
    "brier": "Brier score",
    "log_loss": "log loss",
    "ece": "ECE",
    "ece_smooth": "smooth ECE",
    "auc": "AUC",
    "recall": "recall",
}
#: A bound of at least this says nothing: no error of probabilities can be larger.
VACUOUS: Final = 1.0
#: Where a smaller share of the forecasts has an outcome, what is best among those is no choice for all.
SEEN: Final = 0.5
#: An ECE that is so many times what chance gives is no calibration: nobody is told to use it.
MANY: Final = 5.0
#: A Brier score or a log loss that differs by a smaller share of raw's, a calibration error that differs by a smaller
#: share of the rate of the rarer answer, and an AUC that differs by less, are alike: nobody would act on it.
MATTERS: Final = 0.001
OFF_RATE: Final = 0.01
REORDERED: Final = 0.002
#: A mean that is off by this share of what happened is worth a sentence.
OFF: Final = 0.1
#: A warm-up of a smaller share of the forecasts is not worth a sentence; streams whose warm-up is told.
BRIEF: Final = 0.01
WARMED: Final = 5


@dataclass(frozen=True)
class Recommendation:
    """What to choose.

    Attributes
    ----------
    name
        A contender, or ``raw``; None where the data do not say.
    headline
        One sentence.
    reasons
        Sentences.
    """

    name: str | None
    headline: str
    reasons: tuple[str, ...]


def base(result: Result) -> list[Contender]:
    """Return the contenders that a choice is among: those of the delay that was, or of the first one asked for."""
    scored = [each for each in result.contenders if each.overall]
    delays = [each.delay for each in scored]
    delay = "as-is" if "as-is" in delays else next(iter(delays), None)
    return [each for each in scored if each.delay == delay]


def least(contenders: Sequence[Contender]) -> dict[str, float]:
    """Return by metric the smallest difference that matters; a metric that is not there has none."""
    raw = [each.overall.settled.raw for each in contenders if each.overall and each.overall.settled.raw.n]
    if not raw:
        return {}
    rate = OFF_RATE * min(min(each.base_rate, 1 - each.base_rate) for each in raw)
    found = {
        "brier": MATTERS * min(each.brier for each in raw),
        "log_loss": MATTERS * min(each.log_loss for each in raw),
    }
    found |= dict.fromkeys(_CALIBRATION, rate)
    return {metric: value for metric, value in found.items() if isfinite(value)} | {"auc": REORDERED}


class Verdicts:
    """The paired differences, asked for in either direction.

    Parameters
    ----------
    differences
        All of them.
    least
        By metric the smallest that matters, see `least`.
    """

    def __init__(self, differences: Sequence[Difference], least: Mapping[str, float]) -> None:
        self._least = least
        self._found: dict[tuple[str, str], dict[str, Difference]] = {}
        for each in differences:
            self._found.setdefault((each.name, each.against), {})[each.metric] = each
            turned = Difference(
                each.against, each.name, each.metric, -each.value, -each.high, -each.low, -each.of_equals
            )
            self._found.setdefault((each.against, each.name), {})[each.metric] = turned

    def of(self, name: str, against: str) -> Mapping[str, Difference]:
        """Return the differences by metric; none where the two were not compared."""
        return self._found.get((name, against), {})

    def sign(self, each: Difference) -> int:
        """Return -1 where ``name`` is better and it matters, 1 where it is worse and it matters, else 0."""
        rest = (each.value - each.of_equals) * (1.0 if each.value > 0.0 else -1.0)
        return each.sign if min(abs(each.value), rest) >= self._least.get(each.metric, 0.0) else 0

    def worse(self, name: str, metrics: Sequence[str] = HARMS) -> list[Difference]:
        """Return in which of some metrics ``name`` is worse than raw forecasts, and it matters."""
        found = self.of(name, RAW)
        return [found[metric] for metric in metrics if metric in found and self.sign(found[metric]) > 0]

    def alike(self, name: str, against: str) -> bool:
        """Say whether no proper score can differ by as much as matters: the intervals leave no room for it."""
        found = self.of(name, against)
        return bool(found) and all(
            max(-found[metric].low, found[metric].high) < self._least.get(metric, 0.0)
            for metric in _PROPER
            if metric in found
        )

    def preferred(self, name: str, against: str) -> bool:
        """Say whether `RULE` prefers ``name``."""
        found = self.of(name, against)
        for metrics in (_PROPER, _CALIBRATION):
            told = [self.sign(found[metric]) for metric in metrics if metric in found]
            if any(told):
                return min(told) < 0 and max(told) <= 0
        return False


def choose(result: Result) -> Recommendation:
    """Apply the rule."""
    contenders = base(result)
    full = {each.name.removesuffix(f" delay {each.delay}"): each.name for each in contenders}
    if len({each.delay for each in result.contenders}) == 1:
        return _chosen(contenders, result.differences, result.warming)
    # In a sweep of delays all that are chosen among have one: sentences need not repeat it.
    short = {name: called for called, name in full.items()}
    short |= {drawn(name): drawn(called) for name, called in short.items()}
    both = [
        [
            replace(each, name=short[each.name], against=short.get(each.against, each.against))
            for each in differences
            if each.name in short
        ]
        for differences in (result.differences, result.warming)
    ]
    made = _chosen([replace(each, name=short[each.name]) for each in contenders], *both)
    return replace(made, name=full.get(made.name or "", made.name))


def _chosen(
    contenders: Sequence[Contender], differences: Sequence[Difference], warming: Sequence[Difference]
) -> Recommendation:
    """Apply the rule to contenders of one delay."""
    if not contenders:
        return Recommendation(
            None, "No choice can be made from this replay: no forecast of a probability was resolved.", ()
        )
    matters = least(contenders)
    verdicts = Verdicts(differences, matters)
    every = [RAW, *(each.name for each in contenders)]
    if not any(verdicts.of(name, RAW) for name in every):
        n = max(each.overall.settled.resolved for each in contenders if each.overall)
        few = f"After the warm-up {count(n)} do. Intervals need 200, and a choice without them would rest on chance."
        return Recommendation(
            None, "No choice can be made from this replay: too few forecasts have an outcome.", (few,)
        )
    if (one_sided := _one_sided(contenders)) is not None:
        return one_sided
    refused = refusals(contenders, verdicts, Verdicts(warming, matters))
    names = [each for each in every if each not in refused]
    best = [each for each in names if not any(verdicts.preferred(other, each) for other in names)]
    if RAW not in best:
        # Of the rest some may only be not clearly different from everything: what is shown to help goes first.
        best = [each for each in best if verdicts.preferred(each, RAW)]
    if not best:
        return Recommendation(
            None,
            "No choice can be made from this replay: the comparisons contradict one another.",
            ("Each forecaster is beaten by another one. The intervals are below.",),
        )
    made = _keep(contenders, verdicts, best, refused) if RAW in best else _take(contenders, verdicts, best, refused)
    overall = contenders[0].overall
    seen = overall.raw.n / overall.issued if overall and overall.issued else 0.0
    if seen >= SEEN:
        return made
    few = f"No choice can be made for all forecasts: {share(seen)} of them have an outcome."
    return Recommendation(None, few, tuple(f"Among those: {each}" for each in made.reasons))


def _one_sided(contenders: Sequence[Contender]) -> Recommendation | None:
    """Return that there is no choice where one answer never came, or hardly ever; else None."""
    rates = {each.overall.settled.raw.base_rate for each in contenders if each.overall}
    if rates <= {0.0, 1.0}:
        only = "yes" if rates == {1.0} else "no"
        return Recommendation(
            None,
            f"No choice can be made from this replay: every outcome that is known is {only}.",
            ("What a forecaster makes of the other answer is not seen. Where nobody reports it, set `silence`.",),
        )
    rarer = max(_rarer(each.overall.settled) for each in contenders if each.overall)
    if rarer < RARER:
        return Recommendation(
            None,
            f"No choice can be made from this replay: the rarer answer came {count(rarer)} times.",
            (f"Intervals of fewer than {RARER} hold the truth less often than they say.",),
        )
    return None


def _rarer(phase: Phase) -> int:
    """Return how often the rarer answer came."""
    rate = phase.raw.base_rate
    return round(phase.resolved * min(rate, 1.0 - rate)) if isfinite(rate) else 0


def refusals(contenders: Sequence[Contender], verdicts: Verdicts, warming: Verdicts) -> dict[str, str]:
    """Return of each contender that harms a sentence that says where."""
    refused = {}
    for each in contenders:
        name = each.name
        harm, early = verdicts.worse(name), warming.worse(name, _PROPER)
        said = []
        if harm:
            said.append(f"worse than raw in {_numbers(harm)}")
        if early:
            said.append(f"worse than raw during its warm-up in {_numbers(early)}")
        if said:
            in_ranks = not early and {found.metric for found in harm} in ({"recall"}, set(_RANKS))
            refused[name] = f"{name} is refused: it is {_listed(said)}.{_of_equals(each) if in_ranks else ''}"
    return refused


def _of_equals(contender: Contender) -> str:
    """Say that many raw forecasts are equal, if they are: then that may be all that lowers the recall."""
    raw = contender.overall.raw if contender.overall is not None else None
    if raw is None or raw.distinct * _EQUALS > raw.n:
        return ""
    return (
        f" Of {count(raw.n)} raw forecasts {count(raw.distinct)} are different. Those that are equal were served "
        "differently at different times, and rank against each other by that. At one moment the order is raw's: where "
        "only forecasts of one moment are compared, this is no harm."
    )


def _keep(
    contenders: Sequence[Contender], verdicts: Verdicts, best: Sequence[str], refused: Mapping[str, str]
) -> Recommendation:
    others = [each.name for each in contenders]
    alone = len(best) == 1
    tied = [each for each in best if each != RAW]
    alike = all(verdicts.alike(each, RAW) for each in tied)
    beaten = all(verdicts.preferred(RAW, each) for each in others)
    if len(refused) == len(others) and not beaten:
        harmed = "the configuration" if len(others) == 1 else "every configuration"
        headline = f"Keep the raw forecasts: {harmed} that was tried does harm."
    elif alone:
        headline = "Keep the raw forecasts: they are better than every configuration that was tried."
    elif alike:
        headline = f"Keep the raw forecasts: {_listed(tied)} and raw are alike, and nothing is lost by either."
    else:
        headline = "Keep the raw forecasts: no configuration is shown to be better."
    reasons = [*refused.values()]
    reasons += [f"{name} {_compared(verdicts, name, RAW)}" for name in others if verdicts.of(name, RAW)]
    if not alike:
        reasons.append(
            "An interval that includes 0 does not show that two forecasters are equal, only that "
            f"{count(_n(contenders))} outcomes do not tell them apart."
        )
    return Recommendation(RAW, headline, tuple(reasons))


def _take(
    contenders: Sequence[Contender], verdicts: Verdicts, best: Sequence[str], refused: Mapping[str, str]
) -> Recommendation:
    by_name = {each.name: each for each in contenders}
    order = [each.name for each in contenders]
    name = min(best, key=lambda each: (_parts(by_name[each]), _brier(by_name[each]), order.index(each)))
    rivals = [each for each in order if each != name]
    tied = [each for each in best if each != name]
    use = _use(name, by_name[name])
    headline = use
    if tied:
        simpler = all(_parts(by_name[each]) > _parts(by_name[name]) for each in tied)
        why = "it is simpler" if simpler else "its Brier score is the smallest"
        headline = f"{use} No clear difference from {_listed(tied)} is shown; {why}."
        apart = [each for each in tied if not verdicts.of(name, each)]
        if apart:
            headline = f"{use} It resolved other forecasts than {_listed(apart)}: between them nothing can be said."
    reasons = [f"{name} {_compared(verdicts, name, RAW, 'the raw forecasts')}", *refused.values()]
    for rival in rivals:
        found = verdicts.of(name, rival)
        if found:
            reasons.append(f"{name} {_compared(verdicts, name, rival)}")
        else:
            reasons.append(f"{name} and {rival} were not compared: they did not resolve the same forecasts.")
    overall = by_name[name].overall
    if overall:
        reasons += _warmed(by_name[name])
        reasons += _drawn(verdicts, name)
        reasons += _remains(by_name[name], overall)
    for each in tied:
        other = by_name[each].overall
        if overall and other and overall.bound is None and other.bound is not None and other.bound < VACUOUS:
            reasons.append(
                f"{each} has what {name} has not: a bound on its error on any sequence, {score(other.bound)} here. "
                "Where an adversary may choose the outcomes, that can matter more than simplicity."
            )
    return Recommendation(name, headline, tuple(reasons))


def times(card: Scorecard) -> float:
    """Return how many times what chance gives the ECE is; 0 where chance gives none."""
    return card.ece / card.ece_noise if card.ece_noise > 0 else 0.0


def _use(name: str, contender: Contender) -> str:
    """Return the recommendation: to use it, or that it is better than raw and no more."""
    if contender.overall is None or (many := times(contender.overall.settled.calibrated)) < MANY:
        return f"Use {name}."
    return (
        f"{name} is better than the raw forecasts, but it is not calibrated: its ECE is {many:.0f} times what chance "
        "gives."
    )


def learning(contender: Contender) -> list[Scored]:
    """Return the streams that left their warm-up, those with most forecasts first.

    Where only raw scores are served, or no outcome ever comes, it does not end: it is not a time of learning.
    """
    left = (each for each in contender.streams.values() if each.warmup.issued < each.issued)
    return sorted(left, key=lambda each: (-each.issued, each.stream))


def _warmed(contender: Contender) -> Iterator[str]:
    """Say of each stream how much was warm-up, and what was served in it."""
    found = [each for each in learning(contender) if each.warmup.issued >= max(BRIEF * each.issued, 1)]
    for each in found[:WARMED]:
        yield _warmup(contender.name, each, f" of {each.stream}" if len(contender.streams) > 1 else "")
    if len(found) > WARMED:
        yield f"{count(len(found) - WARMED)} more streams had a warm-up."


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


def _drawn(verdicts: Verdicts, name: str) -> list[str]:
    """Say what is lost by serving the draw."""
    harm = verdicts.worse(drawn(name))
    return [f"Its draw is worse than raw in {_numbers(harm)}: serve p."] if harm else []


def _compared(verdicts: Verdicts, name: str, other: str, called: str = "") -> str:
    """Say how one differs from another, with the numbers; smooth ECE only where it says something else than ECE."""
    found, against = verdicts.of(name, other), called or other
    said = [
        each
        for metric in (*_PROPER, *_RANKS, *_CALIBRATION)
        if (each := found.get(metric)) and (metric != "ece_smooth" or each.sign != found["ece"].sign)
    ]
    better, none, worse = ([each for each in said if verdicts.sign(each) == sign] for sign in (-1, 0, 1))
    small, same = [each for each in none if each.clear], [each for each in none if not each.clear]
    parts = []
    if better:
        parts.append(f"is better than {against}: {_numbers(better)}")
    if worse:
        parts.append(f"is worse{'' if better else f' than {against}'}: {_numbers(worse)}")
    if small:
        parts.append(f"differs {'' if parts else f'from {against} '}by too little to matter in {_numbers(small)}")
    if same and parts:
        parts.append(f"shows no clear difference in {_numbers(same)}")
    if not parts:
        return f"shows no clear difference from {against}: {_numbers(same)}."
    return "; it ".join(parts) + "."


def _remains(contender: Contender, overall: Scored) -> list[str]:
    """Say what the choice does not cure."""
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


def _numbers(found: Sequence[Difference]) -> str:
    """Return differences with their intervals."""
    said = []
    for each in found:
        value, low, high = difference(each.value, each.low, each.high)
        by = f", {signed(each.of_equals, 4)} of it by equal raw scores" if abs(each.of_equals) >= REORDERED / 2 else ""
        said.append(f"{_CALLED[each.metric]} {value} ({low} to {high}{by})")
    return _listed(said)


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _parts(contender: Contender) -> int:
    return max((name.count("+") for name in contender.calibrators.values()), default=0)


def _brier(contender: Contender) -> float:
    return contender.overall.calibrated.brier if contender.overall else float("inf")


def _n(contenders: Sequence[Contender]) -> int:
    return max((each.overall.raw.n for each in contenders if each.overall), default=0)
