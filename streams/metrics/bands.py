"""Bands of a stream as JSON, as samples and as a table: how many forecasts are in each, and what they are worth."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from state.banding import Thresholds
from state.bands import Bands, probability
from state.scoring.band_counts import ISSUED, KNOWN, ONES, BandCounts, worth
from state.scoring.windows import KINDS
from state.segments import Segment
from streams.metrics.metric import Sample

#: Most segments that are described: those with most forecasts above the lowest band.
SEGMENTS: Final = 20
#: Name of what lies below all bands.
BELOW: Final = "(below)"
CAPTION: Final = (
    "Precision and false alarms (zeros for each one) are of the band, recall and cost of the band and those above. "
    "Recall: share of the ones. Only forecasts with a label count there."
)


def describe(
    counts: BandCounts, bands: Bands, costs: tuple[float, float] | None, thresholds: Thresholds | None = None
) -> dict[str, Any]:
    """Return counts of bands as JSON has them.

    ``costs``: costs of a miss and of an alert; None if not known.
    ``thresholds``: thresholds in force, if they move.
    """
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
        for k, kind in enumerate(KINDS):
            issued, known, ones = (counts.of(k, what) for what in (ISSUED, KNOWN, ONES))
            described[kind] = {
                "forecasts": issued[n],
                "share": issued[n] / sum(issued) if sum(issued) else None,
                "known": known[n],
                "ones": ones[n],
                **worth(known, ones, n, costs)._asdict(),
            }
        found.append(described)
    return {
        "bands": found,
        "hold": bands.hold,
        "forecasts": sum(counts.of(1, ISSUED)),
        "known": sum(counts.of(1, KNOWN)),
    }


def by_segment(
    counts: Mapping[Segment, BandCounts], bands: Bands, costs: tuple[float, float] | None
) -> list[dict[str, Any]]:
    """Describe the segments with most forecasts above the lowest band, these first, as `describe` does."""
    most = sorted(counts.items(), key=lambda each: (-sum(each[1].of(1, ISSUED)[1:]), each[0]))
    return [
        {"segment": name, "value": value, **describe(each, bands, costs)} for (name, value), each in most[:SEGMENTS]
    ]


def samples(stream: str, described: Mapping[str, Any]) -> Iterator[Sample]:
    """Yield the samples of what `describe` described."""
    for each in described["bands"]:
        place, served = (stream, each["band"]), each["calibrated"]
        for kind in KINDS:
            yield "band_forecasts", (stream, kind, each["band"]), each[kind]["forecasts"]
        yield "band_labels", place, served["known"]
        yield "band_ones", place, served["ones"]
        yield "band_moved", place, each["moved"]
        if served["cost"] is not None:
            yield "band_cost", place, served["cost"]


def keeping(described: Mapping[str, Any]) -> str:
    """Return in words the thresholds of a replay that keep the raw scores' volume; empty if there are none."""
    kept = [(each["band"], each["low"], each["keeps"]) for each in described["bands"] if each["keeps"] is not None]
    listed = ", ".join([f"{name} = {keeps:.4g} (now {low:.4g})" for name, low, keeps in kept])
    return f" Thresholds that keep the volume that raw scores had in the last week: {listed}." if kept else ""


def share(value: float | None) -> str:
    """Return a share in percent."""
    return "–" if value is None else f"{value:.2%}"


def words(described: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each band that moved without evidence."""
    return [
        f"Band {each['band'] or BELOW}: on the last whole day its share was {each['moved']:.2g} times that of the days "
        "before, and the share of ones among labels was not off to the same side."
        for each in described["bands"]
        if each["moved"] != 1.0
    ]
