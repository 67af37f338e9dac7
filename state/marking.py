"""Bands and points of one stream of a partition: what a forecast gets beside its probability, counted in rows."""

from collections.abc import Callable
from typing import Any

from state import kinds
from state.banding import Marks, Thresholds, place
from state.bands import Bands, Points
from state.kind import Kind
from state.ledger import Row
from state.policy import Policy
from state.scoring.ages import DAY_MS
from state.scoring.band_counts import BandCounts

#: Returns the one live copy of what a row of a stream holds: by stream, kind, key, and what is new without a row.
Value = Callable[[str, Kind[Any], bytes, Callable[[], Any]], Any]
#: Notes that what a row holds is about to change.
Touch = Callable[[bytes, Any], None]
#: What a row and an answer have of a forecast: the row's marks, the band, the points.
Marked = tuple[bytes, str, int | None]


class Marker:
    """Marks the forecasts of a stream, and counts them and their labels.

    It holds live copies of rows, so it goes when they do.

    Parameters
    ----------
    stream, policy
        The stream, and what it is configured to do; None: only labels are counted, of forecasts that have bands.
    value, touch
        Give the rows.
    """

    def __init__(self, stream: str, policy: Policy | None, value: Value, touch: Touch) -> None:
        self._stream: str = stream
        self._value: Value = value
        self._touch: Touch = touch
        self._bands: Bands | None = None if policy is None else policy.bands
        self._points: Points | None = None if policy is None else policy.points
        self._thresholds: Thresholds | None = None
        self._thresholds_key: bytes = b""
        #: Counts and the keys of their rows, by the hash of bands, the layout and the slot of a segment.
        self._counts: dict[tuple[bytes, bytes, int], tuple[bytes, BandCounts]] = {}
        #: What is said of each band, by its number and that of the raw forecast, where there are no points.
        self._said: dict[int, Marked] = {}
        #: The counts of all of the stream, and their key, once they are asked for.
        self._whole: BandCounts | None = None
        self._whole_key: bytes = b""
        bands = self._bands
        self._layout: bytes = bytes(4) if bands is None else bands.layout
        self._width: int = 0 if bands is None else len(bands.names)
        if bands is not None and bands.moving:
            self._thresholds_key = kinds.THRESHOLDS.key(stream, self._layout)
            self._thresholds = value(stream, kinds.THRESHOLDS, self._thresholds_key, lambda: Thresholds.of(bands))

    def issue(self, raw: Any, p: Any, layout: bytes, groups: tuple[int, ...], now_ms: int) -> Marked:  # noqa: ANN401 - probabilities
        """Mark a forecast that is answered now, and count it.

        Parameters
        ----------
        raw, p
            The forecast and what is served, in [0, 1].
        layout, groups
            Layout and slots of its segments; empty where the stream has none.
        now_ms
            Stream time.
        """
        before, now, bands, thresholds = 0, 0, self._bands, self._thresholds
        if bands is not None:
            before, now = place(bands, thresholds, raw, p)
            if thresholds is not None:
                self._touch(self._thresholds_key, thresholds)
            self._all().issue(before, now, now_ms // DAY_MS)
            for slot in groups:
                self._counting(self._layout, layout, slot, self._width).issue(before, now, 0)
        said = self._said.get(now << 8 | before)
        if said is None:
            points = None if self._points is None else self._points.of(p)
            name = "" if bands is None else bands.names[now]
            marks = Marks(self._layout, self._width, before, now, name, points)
            said = marks.encode(), name, points
            if points is None:
                self._said[now << 8 | before] = said
        return said

    def resolve(self, row: Row, known: int, ones: int, now_ms: int) -> None:
        """Count the label of a forecast that has marks.

        Parameters
        ----------
        known, ones
            1 and the label; of a revised label 0 and by how much it changed.
        """
        marks = row.marks
        bands, width, before, now = marks[:4], marks[4], marks[5], marks[6]
        if not width:
            return
        counts = self._all() if bands == self._layout else self._counting(bands, *kinds.WHOLE, width)
        counts.resolve(before, now, known, ones, now_ms // DAY_MS)
        for slot in row.groups:
            self._counting(bands, row.layout, slot, width).resolve(before, now, known, ones, 0)

    def _all(self) -> BandCounts:
        """Return the counts of the stream's present bands, which are about to change."""
        counts = self._whole
        if counts is None:
            self._whole_key = kinds.BAND_COUNTS.key(self._stream, self._layout, *kinds.WHOLE)
            counts = self._whole = self._counting(self._layout, *kinds.WHOLE, self._width)
        else:
            self._touch(self._whole_key, counts)
        return counts

    def _counting(self, bands: bytes, layout: bytes, slot: int, width: int) -> BandCounts:
        """Return counts that are about to change."""
        where = bands, layout, slot
        found = self._counts.get(where)
        if found is None:
            key = kinds.BAND_COUNTS.key(self._stream, bands, layout, slot)
            made = self._value(self._stream, kinds.BAND_COUNTS, key, lambda: BandCounts(width))
            found = self._counts[where] = key, made
        self._touch(*found)
        return found[1]
