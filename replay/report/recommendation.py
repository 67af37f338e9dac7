"""Which configuration to choose and why, in sentences: it applies a stated rule to the paired intervals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Final

from agents.status.number_format import count, score, share
from replay.bootstrap import FEWEST
from replay.figures import Phase
from replay.report import sentences
from replay.report.rule import PROPER, RANKS, Verdicts, judged_alone, least, overall
from replay.result import RAW, Contender, Result
from state import chances
from state.scoring.windows import KINDS

#: With fewer outcomes of the rarer answer there is no choice: with 10 the intervals of AUC cover .83, with 40 .95.
RARER: Final = 20
#: If a smaller share of forecasts has an outcome, there is no choice: what is best for those may not be best for all.
SEEN: Final = 0.5
#: Outcomes that taught nothing contradict a choice whose log loss there is so much larger than raw's, as a share.
CONTRADICTS: Final = 0.01
#: A log loss of at most this, in nats, is perfect: certain forecasts have 1e-6.
PERFECT: Final = 1e-5


@dataclass(frozen=True)
class Recommendation:
    """What to choose."""

    #: A contender, or ``raw``; None if the data do not decide.
    name: str | None
    #: The choice in one sentence.
    headline: str
    #: The reasons, in sentences.
    reasons: tuple[str, ...]


def base(result: Result) -> list[Contender]:
    """Return the contenders from which to choose."""
    return [each for each in result.contenders if each.overall]


def verdicts(result: Result) -> list[Recommendation]:
    """Return the choice for probabilities, and that for each stream of classes or numbers, the largest first."""
    resolved = {stream: each.resolved for one in result.contenders for stream, each in one.vectors.items()}
    some = any(each.overall for each in result.contenders) or not resolved
    made = [choose(result)] if some else []
    return made + [_of_vectors(result, stream) for stream in sorted(resolved, key=lambda each: -resolved[each])]


def choose(result: Result) -> Recommendation:  # noqa: PLR0911 - the cases without a choice, in their order
    """Apply the rule."""
    contenders = base(result)
    if not contenders:
        return _none("no forecast of a probability was resolved")
    matters = least(contenders)
    verdicts = Verdicts(result.differences, matters)
    every = [RAW, *(each.name for each in contenders)]
    if (plain := _plain(contenders)) is not None:
        return plain
    if not any(verdicts.of(name, RAW) for name in every):
        n = max(each.settled.resolved for each in overall(contenders))
        if not n and _n(contenders) >= FEWEST:
            return _none(
                "nothing was learnt before the last forecast",
                "So raw scores were served to the end. Replay a longer history, or one whose labels come sooner.",
            )
        few = f"After the warm-up {count(n)} do. Intervals need 200, and a choice without them would rest on chance."
        return _none("too few forecasts have an outcome", few)
    rarer = max(_rarer(each.settled) for each in overall(contenders))
    if rarer < RARER:
        return _none(
            f"the rarer answer came {count(rarer)} times",
            f"Intervals of fewer than {RARER} hold the truth less often than they say.",
        )
    refused = refusals(contenders, verdicts, Verdicts(result.warming, matters))
    best = _best(every, verdicts, refused)
    if not best:
        return _none(
            "the comparisons contradict one another",
            "Each forecaster is beaten by another one. The intervals are below.",
        )
    if RAW in best:
        made = _keep(every[1:], _n(contenders), verdicts, best, refused)
    else:
        made = _take(contenders, verdicts, best, refused)
    made = replace(made, reasons=(*_constant(contenders), *made.reasons))
    if (otherwise := _contradicted(made.name, contenders)) is not None:
        return otherwise
    first = overall(contenders)[0]
    issued = max(first.issued, 1)
    seen = first.raw.n / issued
    if seen >= SEEN:
        return made
    if sampled(contenders):
        of_chance = (
            f"{share(seen)} of the forecasts have an outcome that teaches, by a known chance (`label_rate`): in each "
            "band of scores they are a random sample, and a band of which more are labelled counts for more. The "
            "figures by weight count each label for all that it stands for."
        )
        return replace(made, reasons=(*made.reasons, of_chance))
    told = seen + (0.0 if _chances(contenders) else first.untaught / issued)
    if told >= SEEN:
        of_entities = (
            f"The figures count {share(seen)} of the forecasts: of each entity those whose outcomes taught. Another "
            f"{share(told - seen)} have an outcome that their entity had told."
        )
        return replace(made, reasons=(*made.reasons, of_entities))
    few = f"No choice can be made for all forecasts: {share(told)} of them have an outcome."
    return Recommendation(None, few, tuple(f"Among those: {each}" for each in made.reasons))


def _contradicted(name: str | None, contenders: Sequence[Contender]) -> Recommendation | None:
    """Return that there is no choice, if the choice is worse than raw where an entity had told the outcome."""
    told = next((each.overall.told for each in contenders if each.name == name and each.overall), None)
    if told is None or told.n < FEWEST or _chances(contenders):
        return None
    raw, served = (told.log_loss[kind] for kind in KINDS)
    if served < (1.0 + CONTRADICTS) * raw:
        return None
    return _none(
        f"{name} is better only where outcomes teach",
        f"Of {count(told.n)} forecasts an entity had told the outcome, so that they count in no score. "
        f"{share(told.base_rate)} of them came true; the model said {share(told.mean['raw'])}, and {name} "
        f"{share(told.mean['calibrated'])}: log loss {score(served)} (raw {score(raw)}).",
        "Of each entity the outcomes that are known first teach. Where those of one label are known sooner, set "
        "`matures`. Set `ttl` no longer than forecasts of an entity can share an outcome.",
    )


def _none(why: str, *reasons: str) -> Recommendation:
    return Recommendation(None, f"No choice can be made from this replay: {why}.", reasons)


def sampled(contenders: Sequence[Contender]) -> bool:
    """Return whether the chance of each label is known in every stream."""
    streams = contenders[0].streams.values() if contenders else ()
    return bool(streams) and all(
        each.weighted and each.weighted["label_rate"] and _as_many(each.weighted, each.issued) for each in streams
    )


def _chances(contenders: Sequence[Contender]) -> bool:
    """Whether some stream says what chance of a label its forecasts had."""
    return any(each.weighted and each.weighted["label_rate"] for one in contenders for each in one.streams.values())


def _as_many(weighted: Mapping[str, Any], issued: int) -> bool:
    """Whether there are about as many labels as their chances say. Unknown if events have weights."""
    stand, most = weighted["weight"], chances.MOST * weighted["events"]
    return bool(weighted["by"] or stand >= SEEN * issued or stand > 0.9 * most)


def _plain(contenders: Sequence[Contender]) -> Recommendation | None:
    """Return the choice if it needs no comparison: one of the labels never came, or raw forecasts are perfect."""
    cards = [each.raw for each in overall(contenders) if each.raw.n >= FEWEST]
    if cards and {each.base_rate for each in cards} <= {0.0, 1.0}:
        only = "yes" if cards[0].base_rate == 1.0 else "no"
        return _none(
            f"every outcome that is known is {only}",
            "What a forecaster makes of the other answer is not seen. Where nobody reports it, set `silence`.",
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
    """Return a sentence for each contender that does harm, and say where it does."""
    refused = {}
    for each in contenders:
        name = each.name
        spared = verdicts.helps(name) and sentences.kept(each)
        harm = verdicts.worse(name, PROPER if spared else (*PROPER, *RANKS))
        early = warming.worse(name, PROPER)
        said = []
        if harm:
            said.append(f"worse than raw in {sentences.numbers(harm)}")
        if early:
            said.append(f"worse than raw during its warm-up in {sentences.numbers(early)}")
        if said:
            refused[name] = f"{name} is refused: it is {sentences.listed(said)}."
    return refused


def _best(every: Sequence[str], verdicts: Verdicts, refused: Mapping[str, str]) -> list[str]:
    """Return the contenders to which no other is preferred; empty if each is beaten by another."""
    names = [each for each in every if each not in refused]
    best = [each for each in names if not any(verdicts.preferred(other, each) for other in names)]
    # If raw is beaten, some of the others may just not differ clearly from anything.
    return best if RAW in best else [each for each in best if verdicts.preferred(each, RAW)]


def _constant(contenders: Sequence[Contender]) -> Iterator[str]:
    """If all raw forecasts are equal, say so."""
    cards = [each.raw for each in overall(contenders)]
    if all(each.distinct == 1 for each in cards):
        yield (
            f"All raw forecasts are {score(cards[0].mean_forecast)}: they tell no event from another, so only their "
            f"level is judged. {score(cards[0].base_rate)} happened."
        )


def _of_vectors(result: Result, stream: str) -> Recommendation:
    """Apply the rule to a stream of classes or numbers."""
    found = {each.name: each.vectors[stream] for each in result.contenders if stream in each.vectors}
    mine = {name: each for name, each in found.items() if each.resolved}
    n = max((each.resolved for each in mine.values()), default=0)
    losses = sorted({each.metric for each in result.vector_differences.get(stream, ()) if each.name in mine})
    if not losses:
        few = f"After the warm-up {count(n)} do. Intervals need 200."
        return Recommendation(None, f"No choice can be made for {stream}: too few forecasts have an outcome.", (few,))
    verdicts = judged_alone(result, stream)
    refused = {
        name: f"{name} is refused: it is worse than raw in {sentences.numbers(harm)}."
        for name in mine
        if (harm := verdicts.worse(name, PROPER))
    }
    best = _best([RAW, *mine], verdicts, refused)
    told = [sentences.levels(name, each.figures, losses) for name, each in mine.items()]
    if RAW in best or not best:
        made = _keep(list(mine), n, verdicts, best or [RAW], refused, f" of {stream}")
        return replace(made, reasons=(*made.reasons, *told))
    name = min(best, key=lambda each: mine[each].figures["calibrated"][losses[-1]])
    reasons = [f"{name} {sentences.compared(verdicts, name, RAW, 'the raw forecasts')}", *refused.values()]
    reasons += [f"{name} {sentences.compared(verdicts, name, each)}" for each in mine if verdicts.of(name, each)]
    return Recommendation(name, sentences.use(name, None, f" of {stream}"), (*reasons, *told))


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
        headline = f"{keep} {sentences.listed(tied)} and raw are alike, and nothing is lost by either."
    else:
        headline = f"{keep} no configuration is shown to be better."
    reasons = [*refused.values()]
    reasons += [f"{name} {sentences.compared(verdicts, name, RAW)}" for name in others if verdicts.of(name, RAW)]
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
    tied = [each for each in best if each != name]
    headline = served = sentences.use(name, by_name[name])
    if tied:
        simpler = all(_parts(by_name[each]) > _parts(by_name[name]) for each in tied)
        why = "it is simpler" if simpler else "its Brier score is the smallest"
        headline = f"{served} No clear difference from {sentences.listed(tied)} is shown; {why}."
        apart = [each for each in tied if not verdicts.of(name, each)]
        if apart:
            others = sentences.listed(apart)
            headline = f"{served} It resolved other forecasts than {others}: between them nothing can be said."
    reasons = [f"{name} {sentences.compared(verdicts, name, RAW, 'the raw forecasts')}", *refused.values()]
    for rival in [each for each in order if each != name]:
        found = verdicts.of(name, rival)
        if found:
            reasons.append(f"{name} {sentences.compared(verdicts, name, rival)}")
        else:
            reasons.append(f"{name} and {rival} were not compared: they did not resolve the same forecasts.")
    (taken,) = overall([by_name[name]])
    reasons.append(sentences.order_kept(by_name[name], verdicts))
    reasons += sentences.warmed(by_name[name])
    reasons += sentences.harm_of_draw(verdicts, name)
    reasons += sentences.remains(by_name[name], taken)
    for each, other in zip(tied, overall([by_name[each] for each in tied]), strict=True):
        if taken.bound is None and other.bound is not None and other.bound < sentences.VACUOUS:
            reasons.append(
                f"{each} has what {name} has not: a bound on its error on any sequence, {score(other.bound)} here. "
                "Where an adversary may choose the outcomes, that can matter more than simplicity."
            )
    return Recommendation(name, headline, tuple(reasons))


def _parts(contender: Contender) -> int:
    return max((name.count("+") for name in contender.calibrators.values()), default=0)


def _brier(contender: Contender) -> float:
    return contender.overall.calibrated.brier if contender.overall else float("inf")


def _n(contenders: Sequence[Contender]) -> int:
    return max((each.raw.n for each in overall(contenders)), default=0)
