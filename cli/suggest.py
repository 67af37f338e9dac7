"""``trueup streams suggest``: when a stream's labels come, and which ``matures``, ``silence`` and ``ttl`` fit."""

import argparse
import glob
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from cli import history
from cli.label_history import FEWEST, FEWEST_EACH, SLIP, Seen, read
from cli.options import DONE, NO, print_json, settings
from cli.prices import Price, priced
from replay.figures import OutcomeAges
from replay.silence import SPARE, lasting
from replay.sources.record import ReplaySource
from state.forecasts import QUANTILES
from state.policy import Policy
from state.policy_checks import ALIKE
from state.scoring.ages import DAY_MS, words
from streams.config import stream_config
from streams.config.settings import Settings, SettingsError
from streams.records.decoding import Decoder

#: If at least this share of forecasts has an outcome, every outcome is reported. If less than `RARELY` has, silence is
#: a label.
NEARLY, RARELY = 0.95, 0.5
#: If there are this many wrong first labels for each event of the rarer class, labels are learnt only after their
#: correction.
OFTEN: Final = 0.5
#: Two labels differ in age if their medians differ by this share of the longer one.
APART: Final = 0.25
#: Outcomes come sorted by label if labels change at most this share as often as in the order of the forecasts, in which
#: they change at least `FEWEST_EACH` times.
SORTED: Final = 0.5
#: By setting: the fields of a policy that are proposed and priced together.
_SETTINGS: Final = {
    "matures": ("matures_ms", "silence"),  # without an age of maturity, silence means nothing
    "ttl": ("ttl_ms",),
    "revisable": ("revisable_ms",),
    "unlabelled": ("unlabelled",),
}


@dataclass(frozen=True)
class Proposal:
    """Proposed settings: times in ms, and the label that silence means. None: do not set it. Reasons are sentences."""

    matures_ms: float | None = None
    silence: int | None = None
    ttl_ms: float | None = None
    revisable_ms: float | None = None
    unlabelled: str | None = None
    reasons: Sequence[str] = ()
    #: What each setting costs or gains, also those that are not proposed because they cost something.
    prices: Sequence[Price] = ()

    @property
    def values(self) -> dict[str, str]:
        """The proposed settings for the streams file: names and lines."""
        lines = {name: [line for field in fields if (line := self._line(field))] for name, fields in _SETTINGS.items()}
        return {name: "\n".join(found) for name, found in lines.items() if found}

    def _line(self, field: str) -> str:
        if (value := getattr(self, field)) is None:
            return ""
        if field.endswith("_ms"):
            return f'{field.removesuffix("_ms")} = "{words(value)}"'
        return f"{field} = {json.dumps(value)}"

    def without(self, name: str) -> "Proposal":
        """Return the proposal without a setting."""
        nothing: dict[str, Any] = dict.fromkeys(_SETTINGS[name])
        return replace(self, **nothing)

    def toml(self, stream: str, reads: Sequence[str] = ()) -> str:
        """Return the lines for the streams file.

        ``reads``: keys whose values are in the records under the key's own name.
        """
        used = [f'{name} = "{name}"' for name in reads]
        return "\n".join([f"[streams.{quoted(glob.escape(stream))}]", *self.values.values(), *used])


def run(options: argparse.Namespace) -> int:
    """Print a proposal for a stream and return 0; return 1 if its history is too small or does not have the stream.

    Raises SettingsError, TopicsError or TableError if the history cannot be read.
    """
    of, reads = settings(), history.reads(options)
    try:
        source, (seen,) = observed(options, of, options.stream)
    except LookupError as exc:
        print(exc.args[0], file=sys.stderr)
        return NO
    proposal = proposed(seen, options, source, of)
    if proposal.values and not options.unpriced and not _of_numbers(of, seen):
        proposal = _worth(proposal, source, of, options.stream, reads)
    if options.json:
        toml = proposal.toml(seen.stream, reads) if proposal.values else None
        print_json({"seen": seen, "proposal": proposal, "toml": toml})
    else:
        print(told(seen, proposal, reads))
    return DONE if proposal.values or proposal.prices else NO


def observed(options: argparse.Namespace, of: Settings, stream: str | None = None) -> tuple[Any, list[Seen]]:
    """Return the history that the options name, and what was observed of one stream or of each.

    Raises LookupError if the stream has no forecast there.
    Raises SettingsError, TopicsError or TableError if the history cannot be read.
    """
    if options.table and options.label_time is None:
        raise SettingsError("this needs --label-time: without it nothing says how late labels come")
    direct = None if options.table else of.direct
    source = history.source(options, of)
    found = read(source, Decoder(of.policies, of.limits, direct, of.carry_headers), stream)
    for note in source.notes if options.table else ():
        print(note, file=sys.stderr)
    return source, found


def proposed(seen: Seen, options: argparse.Namespace, source: Any, of: Settings) -> Proposal:  # noqa: ANN401 - a Source
    """Return the proposal for a stream, given its options, its streams file and its table."""
    policy, reads = of.policies.of(seen.stream) or Policy(), history.reads(options)
    return propose(
        seen,
        numbers=_of_numbers(of, seen),
        silent=source.silent.get(seen.stream, 0) if options.table else 0,
        sampled="label_rate" in reads or bool(policy.label_rate),
        named="entity" in reads or bool(policy.entity),
    )


def _of_numbers(of: Settings, seen: Seen) -> bool:
    """Return whether the outcomes of a stream are numbers."""
    policy = of.policies.of(seen.stream)
    return policy is not None and policy.kind == QUANTILES


def _worth(proposal: Proposal, source: ReplaySource, settings: Settings, stream: str, reads: Sequence[str]) -> Proposal:
    """Return a proposal with its prices, without the settings that cost something beyond chance."""
    policy = settings.policies.of(stream) or Policy()

    def made(names: Sequence[str]) -> Policy:
        lines = [proposal.values[name] for name in names]
        text = "\n".join(["[streams.priced]", *lines])
        ((_, set_to),) = stream_config.parse(text, policy.calibrator).patterns
        fields = {name: getattr(set_to, name) for name in chain(*_SETTINGS.values())} | {name: name for name in reads}
        return replace(policy, **fields, learn="")

    found: dict[str, Price] = {}
    while (names := list(proposal.values)) and (now := priced(source, settings, stream, made, names)):
        found |= now
        dear = [name for name, price in now.items() if price.costs]
        if not dear:
            break
        proposal = proposal.without(max(dear, key=lambda name: max(each.low for each in now[name].changes.values())))
    reasons = [*proposal.reasons, *(price.said() for price in found.values())]
    return replace(proposal, reasons=tuple(reasons), prices=tuple(found.values()))


def propose(
    seen: Seen, *, numbers: bool = False, silent: int = 0, sampled: bool = False, named: bool = False
) -> Proposal:
    """Propose settings from what was seen.

    ``numbers``: whether outcomes are numbers. Silence cannot stand for a number, and ages are not compared between
    numbers.
    ``silent``: number of zeros that were never reported, if a table says so.
    ``sampled``: whether the chance of each label is known (`label_rate`). A missing label then means nothing.
    ``named``: whether `entity` says which forecasts share an outcome.
    """
    half = words(seen.span_ms / 2)
    if seen.old < FEWEST or not seen.labels:
        few = f"{seen.old:,} forecasts had {half} for their outcome, and {seen.known:,} have one: too few to propose."
        return Proposal(reasons=(few,))
    enough = [each for each in seen.labels if each.n >= FEWEST_EACH] or list(seen.labels)
    known = max(each.p99_ms for each in enough)
    latest = max(each.largest_ms for each in enough)
    reasons = [
        f"{seen.known / seen.old:.1%} of {seen.old:,} forecasts that had at least {half} for it have an outcome."
    ]
    silence = None
    if sampled:
        _of_chance(silent, reasons)
    elif not numbers:
        silence = _silence(seen, silent, reasons)
    only = {each.label for each in seen.labels}
    if not numbers and silence is None and len(only) == 1:
        reasons.append(
            f"Every outcome is {only.pop():g}: this history does not show what the model says of the others. Give it "
            "one that has both."
        )
    # If nearly all ages are equal, the few others are outliers.
    matures = latest if latest <= SPARE * known else known
    apart = not numbers and _apart(enough, reasons)
    kept: float | None = None
    rarer = seen.ones if silence is not None else min(seen.ones, seen.known - seen.ones)
    often = not numbers and {each.label for each in seen.labels} <= {0.0, 1.0} and seen.revised > OFTEN * rarer
    if often:
        matures = max(matures, seen.corrected_ms)
        reasons.append(
            f"First labels are often wrong: {seen.revised:,} changed, and {rarer:,} events have the rarer label in the "
            f"end. 99 in 100 of the changes had come after {words(seen.corrected_ms)}: labels are learnt no sooner."
        )
    shared = not numbers and not named and _shared(seen, reasons)
    by_label = not numbers and not apart and not shared and _sorted(seen, reasons)
    if silence is None and not apart and not often and not by_label:
        reasons.append("No label comes sooner than the others: each is learnt when it comes, and needs no matures.")
    else:
        kept = matures
        reasons.append(
            f"99 in 100 outcomes of every label have come after {words(known)}, the last after {words(latest)}: a "
            f'forecast matures after "{words(matures)}".'
        )
    ttl = float(stream_config.duration(lasting(max(latest, kept or 0.0))))
    reasons.append(f'No first outcome took longer than {words(latest)}: with a tenth to spare, ttl is "{words(ttl)}".')
    revisable = None
    if seen.revised:
        said = f"{seen.revised:,} labels changed, the last {words(seen.last_revised_ms)} after its forecast"
        if seen.last_revised_ms > ttl:
            revisable = SPARE * seen.last_revised_ms
            reasons.append(f'{said}: labels may be revised for "{words(revisable)}".')
        else:
            reasons.append(f"{said}, which ttl allows for.")
    if latest > 0.9 * seen.span_ms / 2:
        reasons.append(
            f"Outcomes come until the end of what this history can show ({half}): they may come later still. Give it a "
            "longer history before you rely on this."
        )
    if seen.orphans:
        reasons.append(f"{seen.orphans:,} outcomes belong to no forecast of this history.")
    rows = seen.forecasts / max(seen.span_ms / DAY_MS, 1e-9) * (revisable or ttl) / DAY_MS
    reasons.append(f"About {rows:,.0f} rows will be kept at a time.")
    by_score = (
        silence is None
        and not numbers
        and not sampled
        and seen.known < RARELY * seen.old
        and not math.isnan(seen.chosen)
    )
    return Proposal(kept, silence, ttl, revisable, ALIKE if by_score else None, tuple(reasons))


def _of_chance(silent: int, reasons: list[str]) -> None:
    """Explain labels of a known chance: it is enough that each label is reported."""
    reasons.append(
        "The chance of each label is known (label_rate): labels stand for those without, and silence for none."
    )
    if silent:
        reasons.append(
            f"{silent:,} zeros of the table have no date. As silence they would have the chance 1: give each row that "
            "was looked at a date, and leave the label of the others empty."
        )


def _silence(seen: Seen, silent: int, reasons: list[str]) -> int | None:
    """Return the label that silence means, or None if silence means nothing."""
    if silent:
        reasons.append(f"{silent:,} zeros of the table have no date, so nobody reported them: silence means 0.")
        return 0
    share = seen.known / seen.old
    zeros, ones = (sum(each.n for each in seen.labels if each.label == label) for label in (0.0, 1.0))
    if zeros + ones < seen.known:
        if share < NEARLY:
            reasons.append("Which class silence stands for cannot be told from history: no silence.")
        return None
    # Silence never means 1: if ones are rare and most outcomes are 0, a missing outcome may be either.
    if share < RARELY and zeros <= SLIP * ones:
        reasons.append(
            f"Nearly all outcomes are 1, {ones:,} of {seen.known:,}, and most forecasts have none: silence means 0. "
            "Set it only if whoever reports would have reported every 1."
        )
        return 0
    if share < RARELY and seen.low_ones:
        reasons.append(
            f"Up to a score of {seen.low:.3g}, which most forecasts have, {seen.low_ones:,} outcomes are 1 and hardly "
            "any is 0. Zeros are reported only for higher scores, as where analysts look at these: silence means 0. "
            "Set it only if whoever reports would have reported every 1."
        )
        return 0
    if share < NEARLY:
        told = (
            f"of 0 and of 1 are reported ({zeros:,} and {ones:,})"
            if zeros and ones
            else f"are reported ({seen.known:,})"
        )
        reasons.append(
            f"Outcomes {told}, and {seen.old - seen.known:,} forecasts have none: silence stands for neither. Find out "
            "why those are missing."
        )
    if share < RARELY and not math.isnan(seen.chosen):
        reasons.append(
            f"The score chooses what gets a label: most forecasts from {seen.chosen:.3g} on, hardly any below. Of one "
            'score, those with a label are like those without: unlabelled = "alike". What lower scores mean is then '
            "drawn from the higher ones: label a random few of them, too. Never set silence = 0 here: what nobody "
            "looked at would count as good, and served scores that choose labels would sink."
        )
    elif share < RARELY:
        reasons.append(
            "While most forecasts get no label, nothing that is learnt is served, by default the raw forecast is. Set "
            'unlabelled = "alike" if those with a label are like the others, as in a random sample.'
        )
    return None


def _apart(labels: Sequence[OutcomeAges], reasons: list[str]) -> bool:
    """Return a sentence if outcomes of one label come sooner than those of the other."""
    if len(labels) < 2:
        return False
    by_age = sorted(labels, key=lambda each: each.median_ms)
    first, last = by_age[0], by_age[-1]
    if last.median_ms - first.median_ms <= APART * last.median_ms:
        return False
    reasons.append(
        f"Half of the outcomes of {first.label:g} come within {words(first.median_ms)}, of {last.label:g} within "
        f"{words(last.median_ms)}: learnt as they come, the sooner ones would count for more than they are."
    )
    return True


def _shared(seen: Seen, reasons: list[str]) -> bool:
    """Return whether outcomes of one time mostly have one label, as if forecasts shared an outcome; add the reason."""
    if seen.mixed_by_chance < FEWEST_EACH or seen.mixed > SORTED * seen.mixed_by_chance:
        return False
    reasons.append(
        f"Outcomes of one record time have one label: {seen.mixed:,} such times have both, and "
        f"{seen.mixed_by_chance:,.0f} would by chance. So forecasts may share an outcome, as those of an account that "
        "is scored daily: set entity to the path of what shares it, or they count for more than they are. If labels of "
        "each kind come in files of their own, set matures."
    )
    return True


def _sorted(seen: Seen, reasons: list[str]) -> bool:
    """Return whether outcomes come sorted by label, as in a file that has zeros before ones; add the reason."""
    if seen.turns_issued < FEWEST_EACH or seen.turns > SORTED * seen.turns_issued:
        return False
    reasons.append(
        f"Outcomes come sorted by label: the label changes {seen.turns:,} times from one to the next, and "
        f"{seen.turns_issued:,} times in the order of their forecasts. Learnt as they come, the last of a batch would "
        "count for more than they are."
    )
    return True


def told(seen: Seen, proposal: Proposal, reads: Sequence[str] = ()) -> str:
    """Return figures, reasons and TOML as they are printed."""
    rows = [("label", "outcomes", "median", "99 in 100", "last")]
    rows += [
        (f"{each.label:g}", f"{each.n:,}", words(each.median_ms), words(each.p99_ms), words(each.largest_ms))
        for each in seen.labels
    ]
    table = "\n".join("".join(cell.rjust(11) for cell in row) for row in rows)
    what = f"{seen.stream}: {seen.forecasts:,} forecasts in {words(seen.span_ms)}"
    lines = [what, "", table, "", *proposal.reasons]
    if proposal.values:
        lines += ["", proposal.toml(seen.stream, reads)]
    return "\n".join(lines)


def quoted(name: str) -> str:
    """Return a name as a basic string of TOML, which has the same escapes as JSON."""
    return json.dumps(name, ensure_ascii=False)
