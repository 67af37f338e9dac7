"""Errors in a stream's configuration that the ages of its outcomes reveal, and what to set."""

import math
from typing import Final, Literal, NamedTuple

from state.scoring.ages import FEWEST_EACH, Ages, words

#: Fewest outcomes before there are findings.
FEWEST: Final = 100
#: Outcomes share causes if labels change within a record time less often than this share of the expected number.
TURNS: Final = 0.5
#: Shares from which there is a finding: outcomes in the last tenth of the time to live; outcomes after maturity; the
#: difference between the age distributions of two labels; forecasts that expire.
LATE: Final = 0.01
AFTER: Final = 0.05
APART: Final = 0.25
EXPIRED: Final = 0.1
#: Share of expired forecasts from which labelled forecasts are taken to be unlike the others.
MOST: Final = 0.5

#: What is dangerous about silence = 0 if the served score decides which alerts are investigated.
LOOP: Final = "what nobody looked at would count as good, served scores would sink, and what sinks is looked at no more"

Name = Literal["ttl", "silence", "unlabelled", "classes", "matures", "entity"]


class Finding(NamedTuple):
    """An error in a stream's configuration that the ages of its outcomes show."""

    #: ``ttl``: outcomes come after the row is deleted. ``silence``: only outcomes 1 are reported. ``unlabelled``: most
    #: forecasts get no label, so raw forecasts are served. ``classes``: labels come at different ages, and the
    #: calibrator learns them as they come. ``matures``: too many outcomes come after their forecast matured.
    #: ``entity``: labels of one record time come in runs.
    name: Name
    #: The observation and the setting to change, for people.
    words: str


def late(ages: Ages, ttl_ms: int) -> float:
    """Return the share of the outcomes that came in the last tenth of the time to live; NaN without outcomes.

    If the time to live is long enough, there are none. If there are many, more came later and were lost.
    """
    return ages.after(0.9 * ttl_ms, ttl_ms)


def expired(ages: Ages) -> float:
    """Return the share of forecasts without an outcome, among those that have expired or have an outcome."""
    known = ages.total + ages.expired
    return ages.expired / known if known else math.nan


def findings(
    ages: Ages,
    ttl_ms: int,
    matures_ms: int = 0,
    *,
    silence: bool = False,
    labelled: float | None = None,
    unlike: bool = False,
    sampled: bool = False,
) -> list[Finding]:
    """Return the errors in a stream's configuration that the ages show, in words that say what to set.

    ``ages``: ages of all partitions.
    ``ttl_ms, matures_ms``: as configured; ``matures_ms`` is 0 if outcomes are learnt as they come.
    ``silence``: whether a forecast without an outcome gets a label when it matures.
    ``labelled``: share of forecasts that have a label, if most get none (`state.coverage`); else None.
    ``unlike``: whether forecasts with a label have other scores than all, beyond chance (`state.coverage`).
    ``sampled``: whether the configuration says that most forecasts may have no label: the chance of each is known, or
    those with one are like the others.
    """
    n = ages.total
    found: list[Finding] = []
    together, turns, expected = ages.turns()
    if expected >= FEWEST_EACH and turns < TURNS * expected:
        text = (
            f"{together} labels followed another of the same record time, and {turns} of them differ from it, where "
            f"{expected:.0f} are to be expected: many forecasts share one outcome, or a file is sorted by label. Set "
            'entity = "account", the path of what shares an outcome; for a sorted file set matures, the age of its '
            "latest label"
        )
        found.append(Finding("entity", text))
    if labelled is not None and n:
        text = (
            f"of the forecasts before those that were labelled lately only {labelled:.0%} have a label, and the others "
            f"may be unlike them, so nothing that was learnt is served. {_missing(ages, unlike=unlike)}. If labels are "
            "only late, wait"
        )
        found.append(Finding("unlabelled", text))
    if n < FEWEST:
        return found
    last = late(ages, ttl_ms)
    cut = last >= LATE
    if cut:
        text = (
            f"{last:.0%} of the outcomes came in the last tenth of ttl = {words(ttl_ms)!r}, so others came too late "
            f'and were lost. Set ttl = "{words(2 * ttl_ms)}"'
        )
        found.append(Finding("ttl", text))
    lost = expired(ages)
    served = labelled is None  # otherwise nothing learnt is served, and the remedy was given
    # All numbers count as label 0, so a single label means nothing here.
    if lost >= EXPIRED and served and not silence and ages.labels == [1] and not cut:
        text = (
            f"only outcomes 1 are reported, and {lost:.0%} of the forecasts expire without one: what is served rises "
            f"to 1. {_missing(ages, unlike=unlike)}"
        )
        found.append(Finding("silence", text))
    if lost >= MOST and served and not silence and not sampled and ages.labels == [0, 1] and not cut:
        text = (
            f"{lost:.0%} of the forecasts expire without an outcome: what is served is right for those that have one, "
            "and others may differ, as where analysts report zeros of what they look at and customers every 1. "
            f"{_missing(ages, unlike=unlike)}"
        )
        found.append(Finding("silence", text))
    apart = ages.apart()
    if not matures_ms and apart >= APART:
        medians = ", ".join(f"{label} after {words(ages.quantile(label, 0.5))}" for label in ages.labels)
        text = (
            f"outcomes come at different ages (medians: {medians}), so what is learnt first is not what happens. Set "
            f'matures = "{words(suggested(ages))}"'
        )
        found.append(Finding("classes", text))
    after = ages.after(matures_ms) if matures_ms else 0.0
    if after >= AFTER and matures_ms:
        then = "are learnt as revisions" if silence else "are learnt late"
        text = (
            f"{after:.0%} of the outcomes come after matures = {words(matures_ms)!r} and {then}. Set matures = "
            f'"{words(suggested(ages))}"'
        )
        found.append(Finding("matures", text))
    return found


def _missing(ages: Ages, *, unlike: bool) -> str:
    """Return the setting for forecasts without a label, by who gets a label; silence only if it starts no loop."""
    silence = f'set matures = "{words(suggested(ages))}" and silence = 0'
    if ages.labels == [1]:
        return (
            f"If every 1 is reported, whatever its score, {silence}. If only alerts are looked at, report what turned "
            f"out 0, too, and leave silence out: {LOOP}"
        )
    if unlike:
        return (
            "Those with a label have other scores than all. If the score alone decides which get one, as where "
            f'analysts look at the highest, set unlabelled = "alike". Never set silence = 0 there: {LOOP}. If it does '
            "not, trueup streams suggest says what your history shows"
        )
    alike = 'If those with a label are like the others, as in a random sample, set unlabelled = "alike"'
    return f"{alike}. If no report means 0, {silence}" if 1 in ages.labels else alike


def suggested(ages: Ages) -> float:
    """Return the age by which 99 % of the outcomes of every label have come, ms; NaN if no label has enough."""
    enough = [label for label in ages.labels if ages.n(label) >= FEWEST_EACH] or ages.labels
    return max((ages.quantile(label, 0.99) for label in enough), default=math.nan)
