"""Expected and observed sums by weight, as JSON, as samples, and as rows of tables."""

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any, Final

from state import kinds
from state.policy import Policy
from state.scoring.weighted import Weighted
from state.scoring.windows import KINDS
from state.segments import Segment
from streams.metrics.figures import by_name, or_none
from streams.metrics.rows import StateRows, summed

#: The most segments that are described (the most off), and the most that have series.
SEGMENTS: Final = 20
SERIES: Final = 5
#: Headings of a table's columns, and its figures.
HEAD: Final = ("events", "as good as", "weight", "came true", "model", "served", "off by", "95 %")
CAPTION: Final = (
    "Sums over all events with a label, the warm-up included. As good as: so many events of one weight would say as "
    "much. Off by: served less came true, with the interval as if events were independent: of entities that share "
    "outcomes it is too narrow."
)


def of_rows(found: StateRows, stream: str, policy: Policy | None) -> dict[str, Any]:
    """Return a stream's weighted sums; empty without weights or events."""
    if policy is None or not policy.weighed:
        return {}
    slots = ((n, (layout, slot), each) for (n, layout, slot), each in found.of(kinds.WEIGHTED, stream).items())
    whole, named = summed(found, stream, policy, slots)
    return describe(reduce(add, whole), named, policy) if whole else {}


def describe(whole: Weighted, named: Mapping[Segment, Weighted], policy: Policy) -> dict[str, Any]:
    """Return weighted sums of a stream and of its segments as JSON has them, the segments most off first."""
    most = sorted(named.items(), key=lambda each: (-abs(each[1].off("calibrated")), each[0]))
    return {
        "by": policy.weight or None,
        "label_rate": policy.label_rate or None,
        **_described(whole),
        "segments": [
            {"segment": of.name, "value": of.value, **_described(each)} for of, each in most[:SEGMENTS]
        ],
    }  # fmt: skip


def _described(sums: Weighted) -> dict[str, Any]:
    described: dict[str, Any] = {
        "events": sums.n,
        "effective": sums.effective,
        "weight": sums.weight,
        "happened": sums.happened,
        "observed": or_none(sums.observed),
        "off": sums.expected("calibrated") - sums.happened,
    }
    for kind in KINDS:
        described[kind] = {
            "expected": sums.expected(kind),
            "mean": or_none(sums.mean(kind)),
            "bias": by_name(sums.bias(kind)),
            "ece": or_none(sums.error(kind)),
            "bands": [each._asdict() for each in sums.bands(kind)],
        }
    return described


def title(described: Mapping[str, Any]) -> str:
    """Return a title for the sums."""
    by = f"By {described['by']}" if described["by"] else "All forecasts"
    return by if described["label_rate"] is None else f"{by}, each label by its chance"


def rows(described: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of texts for the whole stream and for each segment, in the columns of `HEAD`."""
    places = [("all", described), *((f"{of['segment']} = {of['value']}", of) for of in described["segments"])]
    return [[place, *_row(of)] for place, of in places]


def _row(of: Mapping[str, Any]) -> list[str]:
    served, weight = of["calibrated"], of["weight"]
    bias = served["bias"]
    ends = [] if bias["low"] is None else [amount(weight * bias[end], "+") for end in ("low", "high")]
    return [
        f"{of['events']:,}",
        f"{of['effective']:,.0f}",
        *(amount(value) for value in (weight, of["happened"], of["raw"]["expected"], served["expected"])),
        amount(of["off"], "+"),
        " to ".join(ends) or "–",
    ]


def by_band(described: Mapping[str, Any]) -> list[list[str]]:
    """Return a row of texts for each band of what was served: events, weight, served, came true, off by."""
    return [
        [
            f"{band['low']:g} to {band['high']:g}",
            f"{band['n']:,}",
            *(amount(band["weight"] * share) for share in (1.0, band["forecast"], band["outcome"])),
            amount(band["weight"] * (band["forecast"] - band["outcome"]), "+"),
        ]
        for band in described["calibrated"]["bands"]
    ]


def amount(value: float, sign: str = "") -> str:
    """Return a sum of weights for people: four digits, and M for millions."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10.0 * unit:
            return f"{value / unit:{sign},.4g}{letter}"
    return f"{value:{sign},.4g}"
