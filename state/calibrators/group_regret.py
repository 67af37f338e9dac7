"""Regret matching for many groups at once: in no group would moving forecasts to a neighbouring point have gained."""

import math
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from state import counts
from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import MOST_SLOTS, require_probability
from state.calibrators.bucketed import _HEAD
from state.calibrators.grid import Grid
from state.calibrators.regret_matching import RegretMatching
from state.quick import new

#: Standard deviations of chance in the margin of a segment's point, as in that of a bucket. With an adversary in one of
#: eight overlapping segments, 20,000 rounds, the worst segment is .034 off with 1, .023 with .5, .030 with 0.
PATIENCE: Final = 0.5
#: The most segments that are counted: the first that have an outcome. 64 take 78 kB if all points of a grid of 100 are
#: served.
MOST: Final = 64

_COUNT: Final = Struct("<I")
_PLACE: Final = Struct("<HH")
#: Bytes of n and s together, while both are below 2^32.
_COUNTS: Final = 8
_SLOT: Final = Struct("<H")
#: Bytes of bucket and point, at the start of a ticket.
_PLAYED: Final = 4


class GroupError(NamedTuple):
    """How far the draws were off within one segment."""

    #: Slot of the segment.
    slot: int
    #: Outcomes of the segment.
    n: int
    #: ℓ1 error of its draws, Σ_i |V_i| / n.
    error: float
    #: The theorem's bound on ``error``, at most 1.
    bound: float


class GroupRegret(RegretMatching):
    """Regret matching whose field adds up over the groups of an event: its bucket and its segments.

    Notes
    -----
    With ψ_gi the field of `RegretMatching` of group g at point i and n_g the group's outcomes so far,

        φ_i = Σ_g ω_g ψ_gi,  ω_g = 1 / sqrt(n_g + 1),

    summed over the bucket and the segments of the event, whose margins have `PATIENCE` times the noise. The rule is
    that of `Bucketed`, from the point nearest the forecast. An outcome is counted in every group of its event, at the
    point that was played. Without segments φ and bytes are those of `RegretMatching`.

    *Theorem.* Let Φ = Σ ω_g ψ_gi². An outcome at point i moves ψ² of each of its groups by at most 2 ψ (y - g_i) - |ψ|
    h_i + ρ² (`RegretMatching`), so Φ by at most 2 φ_i (y - g_i) - h_i |φ_i| + Σ ω_g ρ²: the crossing rule leaves of the
    first two nothing in expectation, as there. Weights only fall, which lowers Φ. With Σ_t ω_g <= 2 sqrt(n_g), a = 1 +
    h / 2 and C points, for prompt outcomes and *every sequence that does not see the draw*

        E Φ <= Q = Σ_g 2 a² sqrt(n_g) + a noise C (3 + ln n_g) / 2 + (noise²/4) (5/3) C,

    and so of every group at once, K_g its points that were touched and m_i their margins,

        Σ_i |V_gi| <= Σ_i m_gi + sqrt(K_g sqrt(n_g + 1) Q):

    the ratio of the error above the margins to the last term is at most 1 in expectation. With fixed weights of 1 the
    last term would be sqrt(K_g k a² T), k groups an event. With falling weights the promise to a small group depends on
    the sum of roots, not on the size of the largest group. With late outcomes there is no promise: `bound` is 1.

    The first `MOST` segments that have an outcome are counted. The theorem does not cover others; their events count in
    their bucket and in their counted segments.

    Ticket: that of `RegretMatching`, then the slots (u16 each). Bytes: those of `RegretMatching`; if there are
    segments, the number of their cells (u32), of each in ascending order slot and point (u16 each), then every n and
    every s, as `state.counts.encode` has them.

    References
    ----------
    Gupta, Jung, Noarov, Pai & Roth, *Online multivalid learning*, arXiv 2101.01739; Foster & Kakade, *Calibration via
    Regression*, section III.C; `RegretMatching`.
    """

    name: ClassVar[str] = "group_regret"
    grouped: bool = True

    def _start(self) -> None:
        self._unit = 0.5 / self._grid.denominator
        self._halves, self._spreads = _scales(self._grid)
        self._segments: dict[int, _Group] = {}
        self._sizes: dict[int, int] = {}

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        if not groups:
            return super().predict(p, x, key)
        require_probability(p)
        grid = self._grid
        last = grid.last
        j = self._buckets.below(p)
        rows: list[_Group] = []
        for slot in groups:
            row = self._segments.get(slot)
            if row is not None:
                rows.append(row)
        bucket = j * (last + 1)
        weight = self._unit / math.sqrt(self._sizes.get(j, 0) + 1)
        i = grid.nearest(p)
        here = self._at(i, bucket, weight, rows)
        if here != 0.0:
            step = 1 if here > 0.0 else -1
            while here != 0.0 and 0 <= i + step <= last:
                there = self._at(i + step, bucket, weight, rows)
                if here * there < 0.0:
                    left, a, b = (i, here, -there) if step > 0 else (i - 1, there, -here)
                    p, draw, ticket = self._between(j, left, a, b, key)
                    return new(Answer, (p, draw, ticket + slots_of(groups)))
                i += step
                here = there
        point = grid.points[i]
        return new(Answer, (point, point, self._ticket(j, i) + slots_of(groups)))

    def _at(self, i: int, bucket: int, weight: float, rows: "list[_Group]") -> float:
        own: int = self._field.get(bucket + i, 0)
        total = weight * own
        for row in rows:
            total += row.weight * row.field[i]
        return total

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        super().update(ticket[:_PLAYED], y)
        j: int = _SLOT.unpack_from(ticket)[0]
        self._sizes[j] = self._sizes.get(j, 0) + 1
        if len(ticket) > _PLAYED:
            self._add(ticket, 1, int(y))

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        super().revise(ticket[:_PLAYED], was, y)
        self._add(ticket, 0, int(y) - int(was))

    def _add(self, ticket: bytes, n: int, s: int) -> None:
        """Add n outcomes, s of them 1, to the cells of a ticket's segments."""
        i: int = _SLOT.unpack_from(ticket, 2)[0]
        for at in range(_PLAYED, len(ticket), 2):
            slot: int = _SLOT.unpack_from(ticket, at)[0]
            row = self._segments.get(slot)
            if row is None:
                if len(self._segments) >= MOST:
                    continue
                row = self._segments[slot] = _Group(self._grid.last + 1)
            self._count_in(row, i, n, s)

    def _count_in(self, row: "_Group", i: int, n: int, s: int) -> None:
        count, ones = row.counts[i] + n, row.ones[i] + s
        row.counts[i], row.ones[i] = count, ones
        off = ones - count * self._grid.points[i]
        margin = self._segment_margin(i, count)
        row.field[i] = off - margin if off > margin else off + margin if off < -margin else 0.0
        row.n += n
        row.weight = 1.0 / math.sqrt(row.n + 1)

    def _segment_margin(self, i: int, n: int) -> float:
        return n * self._halves[i] + PATIENCE * self._noise * self._spreads[i] * math.sqrt(n)

    def encode(self) -> bytes:
        payload = super().encode()
        if not self._segments:
            return payload
        cells = [
            (slot, i, n, row.ones[i])
            for slot, row in sorted(self._segments.items())
            for i, n in enumerate(row.counts)
            if n
        ]
        places = [_PLACE.pack(slot, i) for slot, i, *_ in cells]
        numbers = [each[2] for each in cells] + [each[3] for each in cells]
        return payload + _COUNT.pack(len(cells)) + b"".join(places) + counts.encode(numbers)

    def largest(self, slots: int = MOST_SLOTS) -> int:
        return super().largest() + _COUNT.size + min(slots, MOST) * (self._grid.last + 1) * (_PLACE.size + _COUNTS) + 1

    def decode(self, payload: bytes) -> None:
        end = len(payload)
        if len(payload) >= _HEAD.size:
            end = min(end, _HEAD.size + _HEAD.unpack_from(payload)[3] * self._row.size)
        super().decode(payload[:end])
        at = end + _COUNT.size
        cells = _COUNT.unpack_from(payload, end)[0] if len(payload) >= at else 0
        numbers, stop = counts.decode(payload, at + cells * _PLACE.size, 2 * cells, "a state") if cells else ([], end)
        if stop != len(payload):
            raise ValueError(f"a state of {len(payload)} bytes does not hold the cells of its segments")
        places = _PLACE.iter_unpack(payload[at : at + cells * _PLACE.size])
        width = self._grid.last + 1
        self._sizes, self._segments = {}, {}
        for cell, (n, _) in self._cells.items():
            self._sizes[cell // width] = self._sizes.get(cell // width, 0) + n
        for (slot, i), n, s in zip(places, numbers[:cells], numbers[cells:], strict=True):
            row = self._segments.get(slot)
            if row is None:
                row = self._segments[slot] = _Group(width)
            self._count_in(row, i, n, s)

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the bound on the error over all buckets; None before the first outcome."""
        if not self._segments:
            return super().bound(outstanding)
        if outstanding or not self.learnt:
            return 1.0 if self.learnt else None
        width = self._grid.last + 1
        margins, weighed = 0, 0.0
        for cell, (n, _) in self._cells.items():
            margins += self._margin(cell % width, n)
            weighed += math.sqrt(self._sizes[cell // width] + 1)
        return min(1.0, (margins * self._unit + math.sqrt(weighed * self._potential())) / self.learnt)

    def groups(self, outstanding: int = 0) -> list[GroupError]:
        """Return error and bound of every counted segment, in ascending order of slots."""
        points, potential = self._grid.points, self._potential()
        found = []
        for slot, row in sorted(self._segments.items()):
            off = margins = 0.0
            touched = 0
            for i, n in enumerate(row.counts):
                if n:
                    off += abs(row.ones[i] - n * points[i])
                    margins += self._segment_margin(i, n)
                    touched += 1
            bound = (margins + math.sqrt(touched * math.sqrt(row.n + 1) * potential)) / row.n
            found.append(GroupError(slot, row.n, off / row.n, min(1.0, bound) if not outstanding else 1.0))
        return found

    def _potential(self) -> float:
        """Return Q of the class's notes."""
        step = 1.0 + (max(self._grid.gaps) + 1) * self._unit
        total = 0.0
        sizes = [(n, self._noise) for n in self._sizes.values()]
        sizes += [(row.n, PATIENCE * self._noise) for row in self._segments.values()]
        for n, noise in sizes:
            cells = min(self._grid.last + 1, n)
            total += 2.0 * step * step * math.sqrt(n) + step * noise * cells * (3.0 + math.log(n)) / 2.0
            total += noise * noise / 4.0 * cells * 5.0 / 3.0
        return total


class _Group:
    """Counts of a segment: its outcomes, its weight, and for every point its outcomes, its ones, and ψ."""

    def __init__(self, width: int) -> None:
        self.n = 0
        self.weight = 1.0
        self.counts = [0] * width
        self.ones = [0] * width
        self.field = [0.0] * width


def slots_of(groups: tuple[int, ...]) -> bytes:
    """Return the slots as bytes of a ticket."""
    return b"".join([_SLOT.pack(slot) for slot in groups])


@lru_cache(maxsize=64)
def _scales(grid: Grid) -> tuple[list[float], list[float]]:
    """Return half of the wider gap beside each point, and sqrt(g (1 - g)) of each."""
    denominator = grid.denominator
    halves = [gap * (0.5 / denominator) for gap in grid.gaps]
    return halves, [math.sqrt(k * (denominator - k)) / denominator for k in grid.numerators]
