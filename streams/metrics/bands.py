"""Bands of a stream as JSON, samples and a table: the forecasts in each band, and what the bands are worth."""

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any, Final

from state import kinds
from state.banding import Thresholds
from state.bands import Bands
from state.odds import probability
from state.policy import Policy
from state.scoring.band_counts import ISSUED, KNOWN, ONES, BandCounts, worth
from state.scoring.windows import KINDS, Alarmed
from state.segments import Segment
from streams.metrics.rows import StateRows, summed

#: The most segments that are described: those with most forecasts above the lowest band.
SEGMENTS: Final = 20
#: Name of the range below all bands.
BELOW: Final = "(below)"
CAPTION: Final = (
    "Precision and false alarms (zeros for each one) are of the band, recall and cost of the band and those above. "
    "Recall: share of the ones. Only forecasts with a label count there, each for as many as its label stands for."
)


#: Costs of a miss and of an alert; None if unknown.
Costs = tuple[float, float] | None


def of_rows(found: StateRows, stream: str, policy: Policy | None, *, whole: bool = True) -> dict[str, Any]:
    """Return the counts of a stream's present bands. With ``whole``, also by segment and by day.

    Empty without forecasts.
    """
    if policy is None or policy.bands is None:
        return {}
    layout, costs = policy.bands.layout, policy.costs
    counted = found.of(kinds.BAND_COUNTS, stream).items()
    slots = ((n, (segments_of, slot), each) for (n, of, segments_of, slot), each in counted if of == layout)
    every, named = summed(found, stream, policy, slots)
    if not every:
        return {}
    thresholds = [each for (_, of), each in found.of(kinds.THRESHOLDS, stream).items() if of == layout]
    counts = reduce(add, every)
    described = describe(counts, policy.bands, costs, reduce(add, thresholds) if thresholds else None)
    if whole:
        described["days"] = by_day(counts.days(), policy.bands, costs)
        described["segments"] = by_segment(named, policy.bands, costs)
    return described


def describe(counts: BandCounts, bands: Bands, costs: Costs, thresholds: Thresholds | None = None) -> dict[str, Any]:
    """Return counts of bands as in the JSON; ``thresholds`` are those in force, if they move."""
    found = []
    for n, name in enumerate(bands.names):
        at = None if thresholds is None or not n else probability(thresholds.at[n - 1])
        configured = bands.lows[n] if bands.lows else None if n else 0.0
        described: dict[str, Any] = {
            "band": name,
            "low": configured,
            "wanted": bands.shares[n - 1] if bands.shares and n else None,
            "threshold": configured if at is None else at,
            "moved": counts.moved(1, n),
        }
        found.append(described | {kind: _figures(counts, kind, n, costs) for kind in KINDS})
    return {
        "bands": found,
        "hold": bands.hold,
        "forecasts": sum(counts.of(1, ISSUED)),
        "known": sum(counts.of(1, KNOWN)),
    }


def _figures(counts: BandCounts, kind: Alarmed, band: int, costs: Costs) -> dict[str, Any]:
    """Return how many forecasts a band has by one kind of score, and the band's worth."""
    issued, known, ones = (counts.of(KINDS.index(kind), what) for what in (ISSUED, KNOWN, ONES))
    return {
        "forecasts": issued[band],
        "share": issued[band] / sum(issued) if sum(issued) else None,
        "known": known[band],
        "ones": ones[band],
        "caught": sum(ones[band:]),
        **worth(known, ones, band, costs)._asdict(),
    }


def by_day(days: Mapping[int, BandCounts], bands: Bands, costs: Costs) -> list[dict[str, Any]]:
    """Describe days since 1970, the earliest first: the figures of each band by the raw and by the served score."""
    return [
        {
            "day": day,
            "forecasts": sum(counts.of(1, ISSUED)),
            "bands": [
                {"band": name, **{kind: _figures(counts, kind, n, costs) for kind in KINDS}}
                for n, name in enumerate(bands.names)
            ],
        }
        for day, counts in sorted(days.items())
    ]


def by_segment(counts: Mapping[Segment, BandCounts], bands: Bands, costs: Costs) -> list[dict[str, Any]]:
    """Describe the `SEGMENTS` segments with most forecasts above the lowest band, these first, as `describe` does."""
    most = sorted(counts.items(), key=lambda each: (-sum(each[1].of(1, ISSUED)[1:]), each[0]))
    return [
        {"segment": name, "value": value, **describe(each, bands, costs)} for (name, value), each in most[:SEGMENTS]
    ]


def keeping(described: Mapping[str, Any]) -> str:
    """Return in words the thresholds of a replay that keep the raw scores' volume; empty if there are none."""
    kept = [(each["band"], each["low"], each["keeps"]) for each in described["bands"] if each["keeps"] is not None]
    listed = ", ".join([f"{name} = {keeps:.4g} (now {low:.4g})" for name, low, keeps in kept])
    return f" Thresholds that keep the volume that raw scores had in the last week: {listed}." if kept else ""


def share(value: float | None) -> str:
    """Return a share in percent."""
    return "–" if value is None else f"{value:.2%}"


def words(described: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each band whose share moved without evidence."""
    return [
        f"Band {each['band'] or BELOW}: on the last whole day its share was {each['moved']:.2g} times that of the days "
        "before, and the share of ones among labels was not off to the same side."
        for each in described["bands"]
        if each["moved"] != 1.0
    ]
