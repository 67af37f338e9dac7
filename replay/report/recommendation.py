"""Which configuration to choose, and why, in sentences: a rule that is stated, applied to the paired intervals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, isnan, log, log1p
from typing import Final

from agents.status.number_format import count, day, difference, period, score, share, signed
from replay.bootstrap import FEWEST
from replay.configuration import PRESENT
from replay.result import RAW, Contender, Difference, Kind, Phase, Result, Scorecard, Scored, drawn

#: What the choice follows, as the page says it.
RULE: Final = (
    "Judged is what was served after the warm-up. A configuration is refused if it is clearly worse than raw in Brier "
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
    "fewer than half of the forecasts have one it is no choice for all. Each stream of classes is judged alike by its "
    "Brier score and log loss, and each stream of numbers by its pinball loss."
)
#: Outcomes of the rarer answer from which there is a choice: of 10 the intervals of AUC cover .83, of 40 .95.
RARER: Final = 20
_PROPER: Final = ("brier", "log_loss", "pinball")
_CALIBRATION: Final = ("ece", "ece_smooth")
#: What is lost of each of these without harm, see `MATTERS`.
_RANKS: Final = {"auc": 0.002, "recall": 0.01}
_CALLED: Final = {
    "brier": "Brier score",
    "log_loss": "log loss",
    "ece": "ECE",
    "ece_smooth": "smooth ECE",
    "auc": "AUC",
    "recall": "recall",
    "pinball": "pinball loss",
}
#: A bound of at least this says nothing: no error of probabilities can be larger.
VACUOUS: Final = 1.0
#: Where a smaller share of the forecasts has an outcome, what is best among those is no choice for all.
SEEN: Final = 0.5
#: An ECE that is so many times what chance gives, and this share of the rarer answer's rate, is no calibration.
MANY: Final = 5.0
COARSE: Final = 0.1
#: What differs by less is alike, because nobody would act on it: a Brier score, a log loss or a pinball loss by this
#: share of raw's, a calibration error by this share of the rate of the rarer answer.
MATTERS: Final = 0.001
OFF_RATE: Final = 0.01
#: A log loss of at most this, in nats, is perfect: that of certain forecasts is 1e-6.
PERFECT: Final = 1e-5
#: A recall that moves by fewer of the ones than this is alike: intervals of so few hold the truth too seldom.
ONES: Final = 2.0
#: A difference of at most this is told without its number.
NOTHING: Final = 1e-6
#: Raw's losses count as at least this share of those of a forecaster who always says the rate.
FLAWLESS: Final = 0.1
#: A larger share of neighbours whose order was changed is not rounding, nor an outcome that moved the map between them.
#: Histograms have from 10 % on; maps that keep the order at most 2 % of 1,500 forecasts, usually none.
TURNED: Final = 0.05
#: A mean that is off by this share of what happened is worth a sentence.
OFF: Final = 0.1
#: A warm-up of a smaller share of the forecasts is not worth a sentence, nor one in which the ECE of what was served is
#: at most so many times what chance gives; streams whose warm-up is told.
BRIEF: Final = 0.01
HARMLESS: Final = 2.0
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
    base = min(min(each.base_rate, 1 - each.base_rate) for each in raw)
    if not base > 0.0:
        return {}
    spread = base * (1 - base), -base * log(base) - (1 - base) * log1p(-base)
    return {
        "brier": MATTERS * max(min(each.brier for each in raw), FLAWLESS * spread[0]),
        "log_loss": MATTERS * max(min(each.log_loss for each in raw), FLAWLESS * spread[1]),
        **dict.fromkeys(_CALIBRATION, OFF_RATE * base),
        "auc": _RANKS["auc"],
        "recall": max(_RANKS["recall"], ONES / max(min(each.n * each.base_rate for each in raw), 1.0)),
    }


def verdicts(result: Result) -> list[Recommendation]:
    """Return the choice for probabilities, and for each stream of classes or numbers, the largest first."""
    contenders = [each for each in result.contenders if each.delay == result.contenders[0].delay]
    resolved = {stream: each.resolved for one in contenders for stream, each in one.vectors.items()}
    some = any(each.overall for each in result.contenders) or not resolved
    made = [choose(result)] if some else []
    return made + [
        _of_vectors(result, contenders, stream) for stream in sorted(resolved, key=lambda each: -resolved[each])
    ]


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
            turned = Difference(each.against, each.name, each.metric, -each.value, -each.high, -each.low)
            self._found.setdefault((each.against, each.name), {})[each.metric] = turned

    def of(self, name: str, against: str) -> Mapping[str, Difference]:
        """Return the differences by metric; none where the two were not compared."""
        return self._found.get((name, against), {})

    def sign(self, each: Difference) -> int:
        """Return -1 where ``name`` is better and it matters, 1 where it is worse and it matters, else 0."""
        return each.sign if abs(each.value) >= self.margin(each) else 0

    def helps(self, name: str) -> bool:
        """Say whether ``name`` is better than raw forecasts in every proper score, and it matters."""
        found = [each for metric, each in self.of(name, RAW).items() if metric in _PROPER]
        return bool(found) and all(self.sign(each) < 0 for each in found)

    def margin(self, each: Difference) -> float:
        """Return the smallest difference of a metric that matters."""
        return self._least.get(each.metric, 0.0)

    def as_well(self, each: Difference) -> bool:
        """Say whether ``name`` ranks no worse by as much as matters, whatever of the interval is true."""
        return each.metric in _RANKS and each.low > -self.margin(each)

    def worse(self, name: str, metrics: Sequence[str]) -> list[Difference]:
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
        told = {metric: self.sign(found[metric]) for metric in (*_PROPER, *_CALIBRATION) if metric in found}
        proper = [sign for metric, sign in told.items() if metric in _PROPER]
        if any(proper):
            return min(proper) < 0 and max(proper) <= 0
        costs = any(found[each].value >= self._least.get(each, 0.0) > 0.0 for each in told if each in _PROPER)
        errors = [sign for metric, sign in told.items() if metric in _CALIBRATION]
        return bool(errors) and max(errors) < 0 and not costs


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


def _chosen(  # noqa: PLR0911 - the ways in which there is no choice, in their order
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
    if (plain := _plain(contenders)) is not None:
        return plain
    if not any(verdicts.of(name, RAW) for name in every):
        n = max(each.overall.settled.resolved for each in contenders if each.overall)
        few = f"After the warm-up {count(n)} do. Intervals need 200, and a choice without them would rest on chance."
        return Recommendation(
            None, "No choice can be made from this replay: too few forecasts have an outcome.", (few,)
        )
    rarer = max(_rarer(each.overall.settled) for each in contenders if each.overall)
    if rarer < RARER:
        return Recommendation(
            None,
            f"No choice can be made from this replay: the rarer answer came {count(rarer)} times.",
            (f"Intervals of fewer than {RARER} hold the truth less often than they say.",),
        )
    refused = refusals(contenders, verdicts, Verdicts(warming, matters))
    best = _best(every, verdicts, refused)
    if not best:
        return Recommendation(
            None,
            "No choice can be made from this replay: the comparisons contradict one another.",
            ("Each forecaster is beaten by another one. The intervals are below.",),
        )
    if RAW in best:
        made = _keep(every[1:], _n(contenders), verdicts, best, refused)
    else:
        made = _take(contenders, verdicts, best, refused)
    made = replace(made, reasons=(*_constant(contenders), *made.reasons))
    overall = contenders[0].overall
    seen = overall.raw.n / overall.issued if overall and overall.issued else 0.0
    if seen >= SEEN:
        return made
    few = f"No choice can be made for all forecasts: {share(seen)} of them have an outcome."
    return Recommendation(None, few, tuple(f"Among those: {each}" for each in made.reasons))


def _plain(contenders: Sequence[Contender]) -> Recommendation | None:
    """Return what needs no comparison: one answer never came, or the raw forecasts are perfect; else None."""
    cards = [each.overall.raw for each in contenders if each.overall and each.overall.raw.n >= FEWEST]
    if cards and {each.base_rate for each in cards} <= {0.0, 1.0}:
        only = "yes" if cards[0].base_rate == 1.0 else "no"
        return Recommendation(
            None,
            f"No choice can be made from this replay: every outcome that is known is {only}.",
            ("What a forecaster makes of the other answer is not seen. Where nobody reports it, set `silence`.",),
        )
    if cards and all(each.log_loss <= PERFECT for each in cards):
        return Recommendation(
            RAW,
            "Keep the raw forecasts: they are perfect.",
            (
                "Every outcome was forecast with certainty, and came. Nothing is left to calibrate.",
                "If that is too good to be true, look whether the score was made from the outcome.",
            ),
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
        spared = verdicts.helps(name) and kept(each)
        harm = verdicts.worse(name, _PROPER if spared else (*_PROPER, *_RANKS))
        early = warming.worse(name, _PROPER)
        said = []
        if harm:
            said.append(f"worse than raw in {_numbers(harm)}")
        if early:
            said.append(f"worse than raw during its warm-up in {_numbers(early)}")
        if said:
            refused[name] = f"{name} is refused: it is {_listed(said)}."
    return refused


def kept(contender: Contender) -> bool:
    """Say whether a contender serves two forecasts of one moment in the order of the raw ones, and apart."""
    return isnan(contender.turned) or contender.turned <= TURNED


def _order(contender: Contender, verdicts: Verdicts) -> str:
    """Say whether the order of one moment is kept, and what a change of AUC or recall then is."""
    if not kept(contender):
        return f"Of neighbours that one map answered it turns {share(contender.turned)}, or makes them nearly equal."
    moved = verdicts.worse(contender.name, tuple(_RANKS))
    said = "It keeps the order of forecasts of one moment"
    return (
        f"{said}; what it loses in {_numbers(moved)} is between forecasts that maps of different moments answered."
        if moved
        else f"{said}."
    )


def _best(every: Sequence[str], verdicts: Verdicts, refused: Mapping[str, str]) -> list[str]:
    """Return those that nothing is preferred to; none where each is beaten by another one."""
    names = [each for each in every if each not in refused]
    best = [each for each in names if not any(verdicts.preferred(other, each) for other in names)]
    # Where raw is beaten, some of the rest may only be not clearly different from everything.
    return best if RAW in best else [each for each in best if verdicts.preferred(each, RAW)]


def _constant(contenders: Sequence[Contender]) -> Iterator[str]:
    """Say that all raw forecasts are equal, if they are."""
    cards = [each.overall.raw for each in contenders if each.overall]
    if all(each.distinct == 1 for each in cards):
        yield (
            f"All raw forecasts are {score(cards[0].mean_forecast)}: they tell no event from another, so only their "
            f"level is judged. {score(cards[0].base_rate)} happened."
        )


def _of_vectors(result: Result, contenders: Sequence[Contender], stream: str) -> Recommendation:
    """Apply the rule to a stream of classes or numbers."""
    # Who never left the warm-up served raw forecasts, which every other is compared with.
    found = {each.name: each.vectors[stream] for each in contenders if stream in each.vectors}
    mine = {name: each for name, each in found.items() if each.resolved}
    differences = [each for each in result.vector_differences.get(stream, ()) if each.name in mine]
    n = max((each.resolved for each in mine.values()), default=0)
    if not differences:
        few = f"After the warm-up {count(n)} do. Intervals need 200."
        return Recommendation(None, f"No choice can be made for {stream}: too few forecasts have an outcome.", (few,))
    losses = sorted({each.metric for each in differences})
    before = {loss: min(each.figures["raw"][loss] for each in mine.values()) for loss in losses}
    verdicts = Verdicts(differences, {loss: MATTERS * value for loss, value in before.items()})
    refused = {
        name: f"{name} is refused: it is worse than raw in {_numbers(harm)}."
        for name in mine
        if (harm := verdicts.worse(name, _PROPER))
    }
    best = _best([RAW, *mine], verdicts, refused)
    told = [_levels(name, each.figures, losses) for name, each in mine.items()]
    if RAW in best or not best:
        made = _keep(list(mine), n, verdicts, best or [RAW], refused, f" of {stream}")
        return replace(made, reasons=(*made.reasons, *told))
    name = min(best, key=lambda each: mine[each].figures["calibrated"][losses[-1]])
    reasons = [f"{name} {_compared(verdicts, name, RAW, 'the raw forecasts')}", *refused.values()]
    reasons += [f"{name} {_compared(verdicts, name, each)}" for each in mine if verdicts.of(name, each)]
    return Recommendation(name, _use(name, None, f" of {stream}"), (*reasons, *told))


def _levels(name: str, figures: Mapping[Kind, Mapping[str, float]], losses: Sequence[str]) -> str:
    """Say how large the losses and the calibration error of a stream of classes or numbers are."""
    raw, served = figures["raw"], figures["calibrated"]
    said = []
    for loss in losses:
        more = served[loss] / raw[loss] - 1 if raw[loss] else 0.0
        said.append(f"{_CALLED[loss]} {score(served[loss])} (raw {score(raw[loss])}, {signed(100 * more, 1)}%)")
    error = "coverage_error" if "coverage_error" in raw else "top_label_ece"
    called = "error of coverage" if error == "coverage_error" else "ECE of the likeliest class"
    said.append(f"{called} {score(served[error])} (raw {score(raw[error])})")
    return f"{name} has {_listed(said)}."


def _keep(
    others: Sequence[str],
    n: int,
    verdicts: Verdicts,
    best: Sequence[str],
    refused: Mapping[str, str],
    of: str = "",
) -> Recommendation:
    alone = len(best) == 1
    tied = [each for each in best if each != RAW]
    alike = all(verdicts.alike(each, RAW) for each in tied)
    beaten = all(verdicts.preferred(RAW, each) for each in others)
    keep = f"Keep the raw forecasts{of}:"
    if len(refused) == len(others) and not beaten:
        harmed = "the configuration" if len(others) == 1 else "every configuration"
        headline = f"{keep} {harmed} that was tried does harm."
    elif alone:
        headline = f"{keep} they are better than every configuration that was tried."
    elif alike:
        headline = f"{keep} {_listed(tied)} and raw are alike, and nothing is lost by either."
    else:
        headline = f"{keep} no configuration is shown to be better."
    reasons = [*refused.values()]
    reasons += [f"{name} {_compared(verdicts, name, RAW)}" for name in others if verdicts.of(name, RAW)]
    if not alike:
        reasons.append(
            "An interval that includes 0 does not show that two forecasters are equal, only that "
            f"{count(n)} outcomes do not tell them apart."
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
        reasons.append(_order(by_name[name], verdicts))
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


def _use(name: str, contender: Contender | None, of: str = "") -> str:
    """Return the recommendation, and whether the level can be relied on."""
    use = f"Serve the calibrated scores{of}, by {'the configuration in force' if name == PRESENT else name}"
    if contender is None or contender.overall is None:
        return f"{use}."
    card = contender.overall.settled.calibrated
    many, rarer = times(card), min(card.base_rate, 1.0 - card.base_rate)
    if many < MANY or card.ece < COARSE * rarer:
        return f"{use}."
    return (
        f"{use}, but do not rely on their level: they are better than the raw forecasts and not calibrated, their ECE "
        f"is {many:.0f} times what chance gives."
    )


def learning(contender: Contender) -> list[Scored]:
    """Return the streams that left their warm-up, those with most forecasts first.

    Where only raw scores are served, or no outcome ever comes, it does not end: it is not a time of learning.
    """
    left = (each for each in contender.streams.values() if each.warmup.issued < each.issued)
    return sorted(left, key=lambda each: (-each.issued, each.stream))


def _warmed(contender: Contender) -> Iterator[str]:
    """Say of each stream how much was warm-up, and what was served in it."""
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


def _drawn(verdicts: Verdicts, name: str) -> list[str]:
    """Say what is lost by serving the draw."""
    harm = verdicts.worse(drawn(name), (*_PROPER, *_RANKS))
    return [f"Its draw is worse than raw in {_numbers(harm)}: serve p."] if harm else []


def _compared(verdicts: Verdicts, name: str, other: str, called: str = "") -> str:
    """Say how one differs from another, with the numbers; smooth ECE only where it says something else than ECE."""
    found, against = verdicts.of(name, other), called or other
    said = [
        each
        for metric in (*_PROPER, *_RANKS, *_CALIBRATION)
        if (each := found.get(metric))
        and (metric != "ece_smooth" or "ece" not in found or each.sign != found["ece"].sign)
    ]
    better, none, worse = ([each for each in said if verdicts.sign(each) == sign] for sign in (-1, 0, 1))
    as_well = [each for each in none if verdicts.as_well(each)]
    small = [each for each in none if each.clear and each not in as_well]
    same = [each for each in none if not each.clear and each not in as_well]
    parts = []
    if better:
        parts.append(f"is better than {against}: {_numbers(better)}")
    if worse:
        parts.append(f"is worse{'' if better else f' than {against}'}: {_numbers(worse)}")
    if as_well:
        ranked = [f"{_numbers([each])[:-1]}, above −{verdicts.margin(each):.2g})" for each in as_well]
        parts.append(f"ranks as well{'' if parts else f' as {against}'}: {_listed(ranked)}")
    if small:
        numbers = _numbers(small) if any(abs(each.value) > NOTHING for each in small) else _names(small)
        parts.append(f"differs {'' if parts else f'from {against} '}by too little to matter in {numbers}")
    if same and parts:
        parts.append(f"shows no clear difference in {_numbers(same)}")
    if not said:
        return f"was not compared with {against}."
    if all(each.low == each.high for each in said):
        return f"served what {against} {'are' if called else 'is'}: nothing differs."
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
        said.append(f"{_CALLED[each.metric]} {value} ({low} to {high})")
    return _listed(said)


def _names(found: Sequence[Difference]) -> str:
    return _listed([_CALLED[each.metric] for each in found])


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _parts(contender: Contender) -> int:
    return max((name.count("+") for name in contender.calibrators.values()), default=0)


def _brier(contender: Contender) -> float:
    return contender.overall.calibrated.brier if contender.overall else float("inf")


def _n(contenders: Sequence[Contender]) -> int:
    return max((each.overall.raw.n for each in contenders if each.overall), default=0)
