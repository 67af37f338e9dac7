"""Bands and points of one partition: what a forecast gets beside its probability, counted in rows."""

from collections.abc import Callable
from typing import Any, Final

from state import kinds, ledger
from state.banding import Marks, Thresholds, marks, place
from state.kind import Kind
from state.policy import Policy
from state.scoring.band_counts import DAY_MS, BandCounts

#: Returns what a row of a stream holds and is about to change; its arguments are stream, kind, key, what is new.
Live = Callable[[str, Kind[Any], bytes, Callable[[], Any]], Any]
_WHOLE: Final = kinds.WHOLE


class Marking:
    """Marks forecasts, and counts them.

    Parameters
    ----------
    live
        Returns the one live copy of what a row holds.
    """

    def __init__(self, live: Live) -> None:
        self._live = live

    def issue(
        self, stream: str, policy: Policy, raw: float, p: float, layout: bytes, groups: tuple[int, ...], now_ms: int
    ) -> Marks:
        """Return the marks of a forecast that is answered now, and count it.

        Parameters
        ----------
        policy
            Of the stream; with bands, points or both.
        raw, p
            The forecast and what is served, in [0, 1].
        layout, groups
            Layout and slots of its segments; empty where the stream has none.
        now_ms
            Stream time.
        """
        bands, thresholds = policy.bands, None
        if bands is not None and bands.moving:
            key = kinds.THRESHOLDS.key(stream, bands.layout)
            thresholds = self._live(stream, kinds.THRESHOLDS, key, lambda: Thresholds.of(bands))
        made = place(bands, thresholds, policy.points, raw, p)
        if bands is not None:
            self._counts(stream, made, *_WHOLE).issue(made.before, made.now, now_ms // DAY_MS)
            for slot in groups:
                self._counts(stream, made, layout, slot).issue(made.before, made.now, 0)
        return made

    def resolve(self, stream: str, row: bytes, known: int, ones: int, now_ms: int) -> None:
        """Count the label of the forecast of a ledger payload that is `state.ledger.BANDED`.

        Parameters
        ----------
        known, ones
            1 and the label; of a revised label 0 and by how much it changed.
        """
        made = marks(ledger.marks(row))
        if not made.width:
            return
        self._counts(stream, made, *_WHOLE).resolve(made.before, made.now, known, ones, now_ms // DAY_MS)
        layout, groups = ledger.groups(row)
        for slot in groups:
            self._counts(stream, made, layout, slot).resolve(made.before, made.now, known, ones, 0)

    def _counts(self, stream: str, made: Marks, layout: bytes, slot: int) -> BandCounts:
        key = kinds.BAND_COUNTS.key(stream, made.layout, layout, slot)
        found: BandCounts = self._live(stream, kinds.BAND_COUNTS, key, lambda: BandCounts(made.width))
        return found
