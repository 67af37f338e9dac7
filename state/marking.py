"""The marks of answers: bands, points and intervals, of one stream on a partition."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, Final

from state import banding, chances, evidence, kinds
from state.banding import Marks, Thresholds, place
from state.bands import Bands, Points
from state.evidence import Evidence, band_of
from state.kind import Live, Open
from state.ledger import LedgerRow
from state.policy import Policy
from state.scoring.ages import DAY_MS
from state.scoring.band_counts import UNIT, BandCounts

#: What an answer says: band, points, low and high end of the interval, its reason.
Said = tuple[str, int | None, float | None, float | None, str]
#: The marks as bytes for the row, then the same values.
Marked = tuple[bytes, str, int | None, float | None, float | None, str]
#: The marks of a stream without bands, points and intervals.
UNMARKED: Final[Marked] = (b"", "", None, None, None, "")
_pack_ends: Final = banding.ENDS.pack
#: The segments of a forecast that has none. This list never changes.
_NO_SEGMENTS: Final[list[Evidence]] = []
#: The reason while a stream is answered as if nothing had been learnt.
WITHHELD: Final = "most forecasts get no label, so nothing that was learnt is served"


class Marker:
    """Marks a stream's forecasts, and counts them and their labels.

    It holds live copies of rows, and must be dropped together with them.

    ``stream, policy``: without a policy, only labels of forecasts that already have bands are counted.
    ``live``: opens rows.

    ``touched`` of each method: a mapping by key to which the method adds the values that it changes.
    """

    def __init__(self, stream: str, policy: Policy | None, live: Open) -> None:
        self._stream: str = stream
        self._live: Open = live
        self._bands: Bands | None = None if policy is None else policy.bands
        self._points: Points | None = None if policy is None else policy.points
        self._thresholds: Live[Thresholds] | None = None
        #: Counts of the whole stream, by hash of the bands; and of segments, by hash of the bands, layout and slot.
        self._counts: dict[bytes, Live[BandCounts]] = {}
        self._by_segment: dict[tuple[bytes, bytes, int], Live[BandCounts]] = {}
        bands = self._bands
        level = 0.0 if policy is None else policy.interval
        #: Half the width of intervals, in standard deviations; 0 without intervals.
        self.wide: float = NormalDist().inv_cdf(0.5 + level / 2.0) if level else 0.0
        self._reasons: bool = policy is not None and policy.reasons
        self._config: str = "" if policy is None else policy.config
        #: Configurations of the challengers: one of them may have served before.
        self._beside: list[str] = [each.config for each in policy.challengers] if policy is not None and level else []
        self._segments: tuple[str, ...] = () if policy is None else policy.segments
        self._pairs: list[tuple[int, int]] = [] if policy is None else policy.paired
        #: Evidence of the whole stream, and of segments by layout and slot.
        self._whole: Live[Evidence] | None = None
        self._evidence: dict[tuple[bytes, int], Live[Evidence]] = {}
        #: Whether labels have known chances.
        self._by_chance: bool = policy is not None and bool(policy.label_rate)
        self._layout: bytes = bytes(4) if bands is None else bands.layout
        self._width: int = 0 if bands is None else len(bands.names)
        #: Marks by served and raw band, cached if the stream has no points: the bytes before an interval, the bytes
        #: after it, the band's name, points. Without intervals the first part has all bytes.
        self._said: list[tuple[bytes, bytes, str, int | None] | None] = [None] * max(self._width * self._width, 1)
        if bands is not None and bands.moving:
            self._thresholds = live(stream, kinds.THRESHOLDS, lambda: Thresholds.of(bands), self._layout)

    def issue(
        self,
        raw: Any,  # noqa: ANN401 - a probability
        p: Any,  # noqa: ANN401 - a probability
        layout: bytes,
        groups: tuple[int, ...],
        values: Sequence[str],
        now_ms: int,
        touched: dict[bytes, Any],
        *,
        withheld: bool,
    ) -> Marked:
        """Mark a forecast that is answered now, and count it.

        ``raw, p``: the forecast and what is served, in [0, 1].
        ``layout, groups``: layout and slots of its segments; empty where the stream has none.
        ``values``: values of its segments, for the reason.
        ``now_ms``: stream time.
        ``withheld``: whether the stream is answered as if nothing had been learnt.
        """
        before, now, bands, thresholds = 0, 0, self._bands, self._thresholds
        if bands is not None:
            if thresholds is not None:
                touched[thresholds.key] = thresholds.value
            before, now = place(bands, None if thresholds is None else thresholds.value, raw, p)
            self._counting(touched, self._layout, self._width).issue(before, now, now_ms // DAY_MS)
            for slot in groups:
                self._counting_in(touched, self._layout, layout, slot, self._width).issue(before, now, 0)
        said = self._said[now * self._width + before]
        if said is None:
            points = None if self._points is None else self._points.of(p)
            name = "" if bands is None else bands.names[now]
            end = 0.0 if self.wide else None
            made = Marks(self._layout, self._width, before, now, name, points, end, end).encode()
            said = (made[: banding.HEAD], name.encode(), name, points) if self.wide else (made, b"", name, points)
            if points is None:
                self._said[now * self._width + before] = said
        head, tail, name, points = said
        if not self.wide:
            return head, name, points, None, None, ""
        low, high, why = self._left(raw, p, layout, groups, values, touched, withheld=withheld)
        if why:
            marks = Marks(self._layout, self._width, before, now, name, points, low, high, why)
            return marks.encode(), name, points, low, high, why
        return b"%b%b%b" % (head, _pack_ends(low, high), tail), name, points, low, high, ""

    def _left(
        self,
        raw: float,
        p: float,
        layout: bytes,
        groups: tuple[int, ...],
        values: Sequence[str],
        touched: dict[bytes, Any],
        *,
        withheld: bool,
    ) -> tuple[float, float, str]:
        """Return the interval of a forecast, and its reason if reasons are configured."""
        if withheld:
            return 0.0, 1.0, WITHHELD if self._reasons else ""
        whole, segments = self._evidence_of(touched, layout, groups)
        number = band_of(raw)
        evidence.issue(number, p, whole, segments)
        low, high = evidence.interval(number, p, self.wide, whole, segments)
        if not self._reasons:
            return low, high, ""
        shown = [value or f"no {name}" for name, value in zip(self._segments, values, strict=True)]
        shown += [f"{shown[one]} and {shown[other]}" for one, other in self._pairs]
        return low, high, evidence.reason(number, p, raw, whole, list(zip(shown, segments, strict=True)))

    def learn(self, row: LedgerRow, touched: dict[bytes, Any]) -> None:
        """Count the first label of a forecast as evidence."""
        whole, segments = self._evidence_of(touched, row.layout, row.groups)
        evidence.learn(band_of(row.raw), row.y, whole, segments)

    def revise(self, row: LedgerRow, change: float, touched: dict[bytes, Any]) -> None:
        """Count the change of a label as evidence."""
        whole, segments = self._evidence_of(touched, row.layout, row.groups)
        evidence.revise(band_of(row.raw), int(change), whole, segments)

    def _evidence_of(
        self, touched: dict[bytes, Any], layout: bytes, groups: tuple[int, ...]
    ) -> tuple[Evidence, list[Evidence]]:
        """Return the evidence of stream and segments, to be changed by the caller."""
        found = self._whole
        if found is None:
            found = self._whole = self._said_of(*kinds.WHOLE)
        touched[found.key] = found.value
        if not groups:
            return found.value, _NO_SEGMENTS
        segments: list[Evidence] = []
        for slot in groups:
            live = self._evidence.get((layout, slot))
            if live is None:
                live = self._evidence[layout, slot] = self._said_of(layout, slot)
            touched[live.key] = live.value
            segments.append(live.value)
        return found.value, segments

    def _said_of(self, layout: bytes, slot: int) -> Live[Evidence]:
        """Open the evidence of one layout and slot."""
        found = self._live(self._stream, kinds.EVIDENCE, Evidence, self._config, layout, slot)
        self._go_on(found.value, layout, slot)
        return found

    def _go_on(self, said: Evidence, layout: bytes, slot: int) -> None:
        """Take over the evidence of an earlier champion, if that has more outcomes."""
        for config in self._beside:
            other: Evidence = self._live(self._stream, kinds.EVIDENCE, Evidence, config, layout, slot).value
            if other.known > said.known:
                said.take_over(other)

    def resolve(self, row: LedgerRow, known: int, ones: int, now_ms: int, touched: dict[bytes, Any]) -> None:
        """Count the label of a forecast that has marks.

        ``known`` and ``ones``: 1 and the label; for a revision 0 and the change of the label.
        """
        marks = row.marks
        width = marks[banding.WIDTH]
        if not width:
            return
        bands, before, now = marks[banding.LAYOUT : banding.WIDTH], marks[banding.BEFORE], marks[banding.NOW]
        if bands == self._layout:
            bands = self._layout  # whose hash is known
        stands = round(UNIT * chances.weight(row.chance)) if self._by_chance else UNIT
        self._counting(touched, bands, width).resolve(before, now, known, ones, now_ms // DAY_MS, stands)
        for slot in row.groups:
            counts = self._counting_in(touched, bands, row.layout, slot, width)
            counts.resolve(before, now, known, ones, 0, stands)

    def _counting(self, touched: dict[bytes, Any], bands: bytes, width: int) -> BandCounts:
        """Return the counts of these bands, to be changed by the caller."""
        found = self._counts.get(bands)
        if found is None:
            found = self._counts[bands] = self._opened(bands, *kinds.WHOLE, width)
        touched[found.key] = found.value
        return found.value

    def _counting_in(self, touched: dict[bytes, Any], bands: bytes, layout: bytes, slot: int, width: int) -> BandCounts:
        """Return the counts of these bands in a segment, to be changed by the caller."""
        where = bands, layout, slot
        found = self._by_segment.get(where)
        if found is None:
            found = self._by_segment[where] = self._opened(*where, width)
        touched[found.key] = found.value
        return found.value

    def _opened(self, bands: bytes, layout: bytes, slot: int, width: int) -> Live[BandCounts]:
        return self._live(self._stream, kinds.BAND_COUNTS, lambda: BandCounts(width), bands, layout, slot)
