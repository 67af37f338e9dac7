"""Warnings that come before the figures, and the limits of what the figures show."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from typing import Final

from agents.status.number_format import count, duration, share
from replay.figures import BandCoverage, OutcomeAges
from replay.measure import FEWEST, UNSORTED
from replay.report import recommendation
from replay.report.rule import overall
from replay.report.sentences import listed
from replay.result import Contender, Result, Scored
from replay.silence import lasting
from streams.config.stream_config import duration as milliseconds

#: With fewer outcomes (in a band, or in all), shares move by more than .2 by chance.
FEW = 100
#: With fewer outcomes of a label there is no sentence about their ages.
ENOUGH = 20
#: Labels differ in age if their medians differ by this share of the longer one. If ages come this near to the ttl, it
#: has cut them off.
APART, NEAR = 0.25, 0.8
#: Too many outcomes are late if this share takes longer than the ttl.
BEYOND = 0.01
#: The most streams that one warning names.
LISTED = 5
#: Too many labels from silence were replaced if they are this share of the ones.
REVERSED = 0.02
#: If a smaller share of forecasts has an outcome, and a label is never reported, silence means that label.
SILENT = 0.5
#: Outcomes without a forecast, as a share of outcomes with one: a larger share is not chance.
LOST = 0.001
#: An AUC below this means that scores are reversed: no weak model ranks so badly.
BACKWARDS = 0.45
#: If labels are this many times as frequent for some scores as for others, the score selects them.
UNEVEN = 0.2

_REPLAYED: Final = (
    "A replay shows what would have been served, not what would have been done: had other scores been served, other "
    "actions might have followed, and other outcomes."
)
_ONE_HISTORY: Final = (
    "It is one history. The intervals say how far a difference may be chance if time goes on as it went; they say "
    "nothing of changes that this history does not hold."
)
_MISSING: Final = (
    "Scores are of forecasts that have an outcome. Where outcomes are missing for a reason that is tied to the "
    "outcome, no figure here corrects it."
)


@dataclass(frozen=True)
class Caution:
    """A warning: its subject, its meaning for the reader, and lines for the streams file, if there are any."""

    title: str
    sentence: str
    lines: Sequence[str] = ()


def cautions(result: Result) -> list[Caution]:
    """Return the warnings for this replay, the gravest first."""
    found: list[Caution] = []
    contenders = recommendation.base(result)
    for said in result.taken:
        sentence, *lines = said.split("\n")
        found.append(Caution("How the table was read.", sentence, lines))
    found += [*turned(result), *unsegmented(result), *lateness(result)]
    if contenders:
        sampled = recommendation.sampled(contenders)
        found += [*_labels(overall(contenders)[0], sampled=sampled), *unresolved(contenders[0])]
    for topic, reasons in result.dead.items():
        if reasons:
            said = ", ".join(f"{reason} {count(n)}" for reason, n in reasons.items())
            found.append(
                Caution(
                    f"{count(sum(reasons.values()))} records of {topic} could not be used.",
                    f"They are in no figure. Reasons: {said}.",
                )
            )
    return [*found, *unsorted(result)]


def unsorted(result: Result) -> Iterator[Caution]:
    """Warn of many records that come after later ones. A file can be sorted, a topic cannot."""
    for topic, n in result.out_of_order.items():
        if n > UNSORTED * result.records:
            yield Caution(
                f"{count(n)} records of {topic} are out of time order.",
                "They were played in place. If the file was not sorted by time, sort it and replay again."
                if "files" in result.manifest
                else "Their time is before that of an earlier record of their partition: they were written late, or "
                "their producers' clocks differ. They were played in place, as a worker reads them.",
            )


def _streams(result: Result) -> list[Scored]:
    """Return the streams of probabilities, from the first contender."""
    return [stream for each in recommendation.base(result)[:1] for stream in each.streams.values()]


def turned(result: Result) -> Iterator[Caution]:
    """Warn of streams whose higher scores have fewer events than chance explains."""
    for each in _streams(result):
        ones = each.raw.base_rate * each.raw.n
        pairs = ones * (each.raw.n - ones)
        if pairs > 0 and each.raw.auc < min(BACKWARDS, 0.5 - 3 * sqrt((each.raw.n + 1) / (12 * pairs))):
            yield Caution(
                f"The scores of {each.stream} rank backwards: the higher, the fewer events (AUC {each.raw.auc:.2f}).",
                "Either the labels are turned over, or high scores are the safe ones. Put it right before you read any "
                "figure: of a table --labels 0=1,1=0 or --score-unit 1,0, of a source `labels` or `scale = [1, 0]`.",
            )


def unsegmented(result: Result) -> Iterator[Caution]:
    """Warn of streams whose segments no record has. For a table, options must name the segments' columns."""
    for each in _streams(result):
        if (found := (each.segments or {}).get("worst")) and {one["value"] for one in found} == {"(missing)"}:
            names = ", ".join(sorted({one["segment"] for one in found}))
            yield Caution(
                f"No record of {each.stream} has a segment.",
                f"The streams file names {names}: of a table, --segments says which columns they are.",
            )


def lateness(result: Result) -> Iterator[Caution]:
    """Warn of streams whose outcomes come too late for their forecasts, or much later for one label."""
    for check in (too_short, _one_label, _immature, _apart):
        found = [caution for each in _streams(result) if (caution := check(each))]
        yield from found[:LISTED]
        if len(found) > LISTED:
            said = "The JSON has the figures of each stream."
            yield Caution(f"The same holds for {count(len(found) - LISTED)} more streams.", said)


def too_short(scored: Scored) -> Caution | None:
    """Say that the ttl is shorter than a stream's outcomes take, whether forecasts have expired or not."""
    late, ttl = scored.late, duration(scored.ttl_ms)
    if late is None or late.p99_ms is None or late.largest_ms is None:
        return None
    beyond = late.outcomes >= ENOUGH and late.share > BEYOND
    cut = late.outcomes >= ENOUGH and late.p99_ms > NEAR * scored.ttl_ms
    few = max(LOST * late.outcomes, 1)
    longer = lasting(late.largest_ms)
    if not (beyond or (late.expired >= few and (cut or late.missed >= few))) or milliseconds(longer) <= scored.ttl_ms:
        return None
    expired = (
        f"{count(late.expired)} of its forecasts expired without an outcome; for {count(late.missed)} it came later. "
        if late.expired
        else ""
    )
    return Caution(
        f"The ttl of {scored.stream}, {ttl}, is too short for its outcomes.",
        f"99 in 100 of its {count(late.outcomes)} outcomes came within {duration(late.p99_ms)}, and "
        f"{share(late.share)} took longer than the ttl. {expired}What comes after a forecast has expired is not "
        f'learnt: set `ttl = "{longer}"` for the stream; `trueup streams suggest` says more.',
    )


def _one_label(scored: Scored) -> Caution | None:
    seen = _seen(scored)
    if len(seen) != 1 or seen[0].n != scored.raw.n or scored.raw.n >= SILENT * scored.issued:
        return None
    label, other = (("yes", 0), ("no", 1))[seen[0].label == 0]
    return Caution(
        f"Of {scored.stream} only outcomes of {label} are reported, of {share(scored.raw.n / scored.issued)} of the "
        "forecasts.",
        f"Every calibrator learns that {label} always happens. If silence means the other, set `silence = {other}` "
        "and `matures`; `trueup streams suggest` says at which age.",
    )


def _immature(scored: Scored) -> Caution | None:
    if scored.reversed < max(ENOUGH, REVERSED * scored.raw.base_rate * scored.raw.n):
        return None
    return Caution(
        f"Forecasts of {scored.stream} mature after {duration(scored.matures_ms)}, before all of their outcomes have "
        "come.",
        f"{count(scored.reversed)} labels that silence gave were replaced by an outcome later. Until then each was "
        "learnt as what it is not: give the stream a longer `matures`; `trueup streams suggest` says how long.",
    )


def _apart(scored: Scored) -> Caution | None:
    seen = sorted(_seen(scored), key=lambda each: each.median_ms)
    if scored.matures_ms or len(seen) < 2:
        return None
    first, last = seen
    if last.median_ms - first.median_ms <= APART * last.median_ms:
        return None
    called = {1.0: "yes", 0.0: "no"}
    return Caution(
        f"Of {scored.stream} an outcome of {called[first.label]} comes sooner than one of {called[last.label]}.",
        f"Half of them within {duration(first.median_ms)}, of the others within {duration(last.median_ms)}. A "
        "calibrator that learns when outcomes arrive takes the sooner ones for more than they are. Set `matures`, "
        "so that all are learnt at one age; `trueup streams suggest` says at which.",
    )


def _seen(scored: Scored) -> list[OutcomeAges]:
    """Return the ages of labels that came often enough."""
    return [each for each in scored.ages if each.n >= ENOUGH]


def _labels(scored: Scored, *, sampled: bool) -> Iterator[Caution]:
    """Say which labels are too few, or unlike the others. ``sampled``: the chance of each label is known."""
    resolved = scored.raw.n
    blind = [each for each in scored.coverage if not each.identifiable and not sampled]
    if blind:
        yield Caution(
            f"Nothing can be said of raw scores {_bands(blind)}: few of their forecasts have an outcome.",
            f"There {share(sum(each.resolved for each in blind) / sum(each.issued for each in blind))} of "
            f"{count(sum(each.issued for each in blind))} forecasts have one. Calibration error, Brier score and "
            "regret rest on those that happened to get a label, and do not carry over to the rest.",
        )
    judged = [each for each in scored.coverage if each.issued >= FEWEST and not sampled]
    shares = [each.share for each in judged]
    if shares and max(shares) - min(shares) >= UNEVEN:
        low, high = min(judged, key=lambda each: each.share), max(judged, key=lambda each: each.share)
        yield Caution(
            "Outcomes depend on the score.",
            f"They are known of {share(high.share)} of the forecasts with scores {_band(high)}, of {share(low.share)} "
            f"of those with scores {_band(low)}. If they are also missing more often for yes than for no within a "
            "band, every calibrator learns that as if it were the truth.",
        )
    if resolved < FEW:
        yield Caution(
            f"Only {count(resolved)} forecasts have an outcome.",
            "Every figure below moves much by chance.",
        )
    sparse = [each for each in scored.coverage if each not in blind and each.issued > 0 and each.resolved < FEW]
    if sparse and resolved >= FEW:
        yield Caution(
            f"Scores {_bands(sparse)} are rare.",
            f"They have {count(sum(each.resolved for each in sparse))} outcomes: what happens there does not show in "
            "the figures of the whole.",
        )


def unresolved(contender: Contender) -> Iterator[Caution]:
    """Say how many forecasts are in no figure, because they are too young or have no outcome."""
    fates = contender.fates
    issued = fates["forecasts_issued"]
    left = issued - sum(fates[each] for each in ("outcomes_resolved", "early_joined", "matured", "implied"))
    old = left - contender.immature
    if contender.immature:
        yield Caution(
            f"{count(contender.immature)} of {count(issued)} forecasts ({share(contender.immature / issued)}) had not "
            "matured when the history ended.",
            "They are younger than `matures`, so nothing was learnt of them. All scores are of the others.",
        )
    if contender.untaught:
        yield Caution(
            f"The outcomes of {count(contender.untaught)} of {count(issued)} forecasts "
            f"({share(contender.untaught / issued)}) taught nothing: their entity had taught, or their label stands "
            "for few forecasts.",
            "The forecasts were answered, and their outcomes are in no figure but those by weight, and of bands "
            "where labels have a known chance.",
        )
    if old:
        yield Caution(
            f"{count(old)} of {count(issued)} forecasts ({share(old / issued)}) have no outcome.",
            f"{count(fates['expired_forecasts'])} of them expired. All scores are of the others.",
        )


def limits(result: Result) -> list[str]:
    """Return what no figure of this replay can show."""
    said = [_REPLAYED, _ONE_HISTORY]
    resolved = [each.raw.n for each in overall(result.contenders)]
    if result.bootstrap and resolved:
        block = result.bootstrap.block
        said.append(
            f"Dependence over more than a block ({count(block)} forecasts) is not in the intervals. The history holds "
            f"{count(max(resolved) // block)} blocks; with fewer than twenty or so intervals are too narrow."
        )
    if result.differences:
        said.append(
            f"{count(len(result.differences))} intervals were computed and none is widened for it: of differences that "
            "are really 0, one in twenty is expected to look clear."
        )
    return [*said, _MISSING]


def _bands(bands: Sequence[BandCoverage]) -> str:
    found = []
    for _, run in groupby(enumerate(bands), key=lambda each: round(each[1].low * 10) - each[0]):
        each = [band for _, band in run]
        found.append(f"{each[0].low:.1f}–{each[-1].high:.1f}")
    return listed(found)


def _band(band: BandCoverage) -> str:
    return f"{band.low:.1f}–{band.high:.1f}"
