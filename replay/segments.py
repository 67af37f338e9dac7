"""Scores of segments from the columns of a replay: as the workers' engine counts them, and month by month."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay.measure import chance
from replay.partition_result import PartitionResult
from state.arrays import Floats, Integers
from state.scoring import warm_up
from state.scoring.cells import Bin
from state.scoring.history import WINDOW
from state.scoring.pair_scores import PairScores
from state.scoring.segment_scores import BANDS, EDGES, SegmentScores
from state.scoring.sums import added
from state.scoring.windows import KINDS
from state.segments import LIMIT, Dictionary, Segment
from streams.metrics.segments import SegmentRows, describe

#: By segment and month (UTC) of the forecasts that count in its scores: n, Σp, Σy, Σp(1 − p) of what was served.
Months = dict[Segment, dict[str, NDArray[np.float64]]]

#: Sums are multiples of its inverse, as `state.scoring.cells.grain` rounds.
_GRAIN = 2.0**30
#: What `PartitionResult.labelled` has for a segment without labels.
_UNLABELLED = (0, 0, 0)


def described(parts: Sequence[PartitionResult], contender: int, stream: str) -> dict[str, Any] | None:
    """Return the segments of a stream as `streams.metrics.segments.describe` does; None if it has none.

    Each has ``months``, by the time of forecasts: n, served minus true mean, and half the 95 % interval of this
    difference by chance. For classes and numbers, the last two are as in the segment's ``off``.
    """
    months: Months = {}
    found = [rows for part in parts if (rows := rows_of(part, contender, stream, months)) is not None]
    if not found:
        return None
    told, pairs = describe(found), _pairs(parts, contender, stream)
    for each in told["worst"]:
        segment = Segment(each["segment"], each["value"])
        if sums := months.get(segment):
            each["months"] = [_month(name, *map(float, sums[name])) for name in sorted(sums)]
        elif scores := pairs.get(segment):
            each["months"] = [_month_of_pairs(name, scores[name]) for name in sorted(scores) if scores[name].n > 1]
    return told


def _pairs(parts: Sequence[PartitionResult], contender: int, stream: str) -> dict[Segment, dict[str, PairScores]]:
    """Return the scores of each segment of classes or numbers by month."""
    sums = added(
        ((part.dictionaries[stream].segment(slot), month), scores)
        for part in parts
        for (slot, month), scores in part.months.get((stream, contender), {}).items()
    )
    found: dict[Segment, dict[str, PairScores]] = defaultdict(dict)
    for (segment, month), scores in sums.items():
        found[segment][month] = scores
    return found


def _month_of_pairs(name: str, scores: PairScores) -> dict[str, Any]:
    off = scores.off("calibrated").by
    return {"month": name, "events": scores.n, "off": off.value, "chance": (off.high - off.low) / 2.0}


def _month(name: str, n: float, served: float, happened: float, spread: float) -> dict[str, Any]:
    by_chance = chance(n, happened / n, spread)
    return {"month": name, "events": int(n), "off": (served - happened) / n, "chance": by_chance}


def rows_of(part: PartitionResult, contender: int, stream: str, months: Months | None = None) -> SegmentRows | None:
    """Return the counts of one partition, and add to ``months``; None if it lacks the stream or its segments."""
    dictionary = part.dictionaries.get(stream)
    if dictionary is None:
        return None
    labels = part.labelled.get(stream, {})
    if (stream, contender) in part.segments:  # classes and numbers, which are not in columns
        vectors = part.segments[stream, contender]
        for slot, each in vectors.items():
            each.known, each.age_ms, each.expired = labels.get(slot, _UNLABELLED)
        return dictionary, vectors
    mine = part.column("stream") == part.streams.index(stream)
    index = part.column("index")
    resolved = mine[index]
    at = index[resolved]
    before = part.column("before")[resolved]
    settled = part.column(f"warm{contender}")[at] == 0
    y = part.labels[resolved]
    forecasts = [part.column(name)[at] for name in ("raw", f"p{contender}")]
    windows = (np.cumsum(settled) - 1) // WINDOW
    scores: dict[int, SegmentScores] = {}
    for family in range(dictionary.families):
        slots = part.column(f"slot{family}")
        within, of = slots[mine] - family * LIMIT, slots[at] - family * LIMIT
        issued = np.bincount(within, minlength=LIMIT).tolist()
        counted = np.zeros(len(at), dtype=np.bool_)
        for slot in np.flatnonzero(issued).tolist():
            one = scores[family * LIMIT + slot] = SegmentScores()
            one.issued = issued[slot]
            one.known, one.age_ms, one.expired = labels.get(family * LIMIT + slot, _UNLABELLED)
            own = np.flatnonzero(settled & (of == slot))
            one.warm_up.outcomes = min(len(own), warm_up.OF_SEGMENT)
            if len(own) >= warm_up.OF_SEGMENT:
                one.warm_up.since = int(before[own[warm_up.OF_SEGMENT - 1]])
                counted[own] = at[own] >= one.warm_up.since
        if months is not None:
            slots = family * LIMIT + of[counted]
            _monthly(
                months, dictionary, slots, part.column("issued_ms")[at[counted]], forecasts[1][counted], y[counted]
            )
        for kind, p in zip(KINDS, forecasts, strict=True):
            sums = _sums(of[counted], p[counted], y[counted])
            for slot, band in np.argwhere(sums[0]).tolist():
                scores[family * LIMIT + slot].count(kind, band, Bin(*(float(each[slot, band]) for each in sums)))
        for slot, window, *totals in _windows(of[counted], forecasts[1][counted], y[counted], windows[counted]):
            scores[family * LIMIT + slot].recent.add(totals, window)
    return dictionary, scores


def placed(parts: Sequence[PartitionResult], stream: str) -> tuple[list[Segment], list[Integers]]:
    """Return the segments of a stream; and by family and partition the number of each forecast's segment, [n].

    Forecasts of other streams have -1. Without segments there are no families.
    """
    numbers: dict[Segment, int] = {}
    families = max((each.families for part in parts if (each := part.dictionaries.get(stream))), default=0)
    made: list[list[Integers]] = [[] for _ in range(families)]
    for part in parts:
        dictionary = part.dictionaries.get(stream)
        mine = np.flatnonzero(part.column("stream") == part.streams.index(stream)) if dictionary else None
        for family, found in enumerate(made):
            found.append(np.full(len(part.column("stream")), -1, dtype=np.int64))
            if dictionary is None:
                continue
            slots, of = np.unique(part.column(f"slot{family}")[mine], return_inverse=True)
            own = [numbers.setdefault(dictionary.segment(slot), len(numbers)) for slot in slots.tolist()]
            found[-1][mine] = np.array(own, dtype=np.int64)[of]
    return list(numbers), [np.concatenate(each) for each in made]


def _monthly(
    months: Months, dictionary: Dictionary, slots: NDArray[Any], issued_ms: NDArray[Any], p: Floats, y: Floats
) -> None:
    """Add events by segment and by the month of their forecast."""
    when = issued_ms.astype("datetime64[ms]").astype("datetime64[M]").astype(np.int64)
    cells, of = np.unique(np.column_stack([slots, when]), axis=0, return_inverse=True)
    weights = None, p, y, p * (1.0 - p)
    sums = np.column_stack([np.bincount(of.ravel(), each, len(cells)) for each in weights])
    for (slot, month), each in zip(cells.tolist(), sums, strict=True):
        mine = months.setdefault(dictionary.segment(slot), {})
        name = str(np.datetime64(month, "M"))
        mine[name] = mine.get(name, 0.0) + each


def _windows(
    slots: NDArray[Any], p: Floats, y: Floats, windows: NDArray[Any]
) -> Iterator[tuple[int, int, float, float, float, float]]:
    """Yield slot, window of the stream, n, Σy, Σp and Σp² for windows that have events, by slot and then by window."""
    if not len(slots):
        return
    many = int(windows[-1]) + 1
    cells = slots.astype(np.int64) * many + windows
    near = np.rint(p * _GRAIN) / _GRAIN
    weights = None, y, near, np.rint(near * near * _GRAIN) / _GRAIN
    sums = [np.bincount(cells, each, LIMIT * many).astype(np.float64) for each in weights]
    for cell in np.flatnonzero(sums[0]).tolist():
        n, happened, served, squares = (float(each[cell]) for each in sums)
        yield cell // many, cell % many, n, happened, served, squares


def _sums(slots: NDArray[Any], p: Floats, y: Floats) -> list[Floats]:
    """Return n, Σp, Σy, Σp² and Σpy by slot and band, [64, 14] each."""
    cells = slots.astype(np.int64) * BANDS + np.searchsorted(EDGES, p, side="right")
    near = np.rint(p * _GRAIN) / _GRAIN
    weights = None, near, y, np.rint(near * near * _GRAIN) / _GRAIN, near * y
    return [np.bincount(cells, each, LIMIT * BANDS).astype(np.float64).reshape(LIMIT, BANDS) for each in weights]
