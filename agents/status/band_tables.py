"""The tables of bands: by the model's score and by the served score, by day and by segment."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from agents.status.markup import join, tag
from agents.status.number_format import NONE, count, day, valued
from agents.status.score_tables import ScoreTable
from state.scoring.ages import DAY_MS
from state.scoring.windows import KINDS
from streams.metrics import bands

Described = Mapping[str, Any]
_count, _part = valued(count), valued(bands.share)
_whole, _tenths = valued("{:,.0f}".format), valued("{:,.1f}".format)
_WORDS: Final = {"raw": "model", "calibrated": "served"}


def banded(described: Described, title: str = "") -> Iterator[ScoreTable]:
    """Yield the bands by the raw and by the served score, by day and by segment; ``title`` begins their titles.

    In a replay, forecasts are given for a day, not in total.
    """
    replayed = "day" in described["bands"][0]["raw"]
    costs = any(each["raw"]["cost"] is not None for each in described["bands"])
    rows = [
        [
            each["band"] or bands.BELOW,
            tag("span", _WORDS[kind], class_=kind),
            NONE if (low := _from(each, kind)) is None else f"{low:.4g}",
            *((_whole(one["day"]), _count(one["most"])) if replayed else (_count(one["forecasts"]),)),
            _part(one["share"]),
            *_worth(one, costs=costs),
        ]
        for each in described["bands"]
        for kind, one in ((kind, each[kind]) for kind in KINDS)
    ]
    queues = ("a day", "most") if replayed else ("forecasts",)
    worth = ("labels", "precision", "recall", "false alarms a hit", *(["cost"] if costs else []))
    note = bands.CAPTION + (bands.keeping(described) if replayed else "")
    heading = f"{title}forecasts by band, a day" if replayed else "Bands"
    yield ScoreTable(heading, ("band", "by", "from", *queues, "share", *worth), rows, 2, note, page_only=("labels",))
    apart = described.get("segments", ())
    rows = [
        [
            f"{each['segment']} = {each['value']}",
            _count(each["forecasts"]),
            *(
                join(_part(one["calibrated"]["share"]), " (", _part(one["calibrated"]["precision"]), ")")
                for one in each["bands"]
            ),
        ]
        for each in apart
    ]
    heads = [each["band"] or bands.BELOW for each in apart[0]["bands"]] if apart else []
    note = "Share of each band, as served, and its precision, in the segments with most forecasts above the lowest one."
    yield ScoreTable(f"{title}Bands of segments", ("segment", "forecasts", *heads), rows, note=note, wide=True)
    rows = [
        [
            day(of["day"] * DAY_MS),
            each["band"],
            tag("span", _WORDS[kind], class_=kind),
            _count(one["forecasts"]),
            _part(one["share"]),
            *_worth(one, costs=costs),
        ]
        for of in reversed(described["days"])
        for each in of["bands"][1:]
        for kind, one in ((kind, each[kind]) for kind in KINDS)
    ]
    note = f"A label counts on the day {'of its forecast' if replayed else 'when it was learnt'}; days are UTC."
    head = ("day", "band", "by", "forecasts", "share", *worth)
    yield ScoreTable(f"{title}Bands by day", head, rows, 3, note, fold=True, wide=True)


def _from(band: Described, kind: str) -> float | None:
    """Return where a band begins now; for raw scores where it was configured, if it was."""
    low: float | None = band["low"] if kind == "raw" and band["low"] is not None else band["threshold"]
    return low


def _worth(one: Described, *, costs: bool) -> list[object]:
    made: list[object] = [_whole(one["known"]), _part(one["precision"]), _part(one["recall"])]
    return [*made, _tenths(one["false_alarms"]), *([_whole(one["cost"])] if costs else [])]
