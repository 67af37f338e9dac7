"""Regret matching for many groups at once: no group's forecasts could be moved to a neighbour with profit."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from state.calibrators.base import Prediction, new, require_probability
from state.calibrators.bucketed import _HEAD
from state.calibrators.regret_matching import RegretMatching

#: Slots that can have cells, see `BySegment`.
MOST: Final = 1024

_COUNT: Final = Struct("<I")
_ROW: Final = Struct("<HHII")
_SLOT: Final = Struct("<H")
#: Bytes of bucket and point in a ticket, before the slots.
_PLAYED: Final = 4


class GroupError(NamedTuple):
    """How far the draws were off within one segment.

    Attributes
    ----------
    slot
        The segment.
    n
        Its outcomes.
    error
        ℓ1 of its draws, Σ_i |V_i| / n.
    bound
        What the theorem says of it, at most 1.
    """

    slot: int
    n: int
    error: float
    bound: float


class GroupRegret(RegretMatching):
    """Regret matching whose field adds up over the groups of an event: its bucket and its segments.

    Notes
    -----
    With ψ_gi the field of `RegretMatching` of group g at point i and n_g the group's outcomes so far,

        φ_i = Σ_g ω_g ψ_gi,  ω_g = 1 / sqrt(n_g + 1),

    summed over the bucket and the segments of the event. The rule is that of `Bucketed`, from the point nearest the
    forecast. An outcome is counted in every group of its event, at the point that was played. Without segments φ and
    bytes are those of `RegretMatching`.

    *Theorem.* Let Φ = Σ ω_g ψ_gi². An outcome at point i moves ψ² of each of its groups by at most 2 ψ (y - g_i) - |ψ|
    h_i + ρ² (`RegretMatching`), so Φ by at most 2 φ_i (y - g_i) - h_i |φ_i| + Σ ω_g ρ²: the crossing rule leaves of the
    first two nothing in expectation, as there. Weights only fall, which lowers Φ. With Σ_t ω_g <= 2 sqrt(n_g), a = 1 +
    h / 2 and C points, for prompt outcomes and *every sequence that does not see the draw*

        E Φ <= Q = Σ_g 2 a² sqrt(n_g) + a noise C (3 + ln n_g) / 2 + (noise²/4) (5/3) C,

    and so of every group at once, K_g its points that were touched and m_i their margins,

        Σ_i |V_gi| <= Σ_i m_gi + sqrt(K_g sqrt(n_g + 1) Q):

    the ratio of what the error has above the margins to the last term is at most 1 in expectation. With fixed weights
    of 1 the last term is sqrt(K_g k a² T), k groups an event: weights that fall make what a small group is promised
    depend on the sum of roots, not on the size of the largest. Where outcomes come late, nothing is promised here:
    `bound` is 1.

    Ticket: that of `RegretMatching`, then the slots (u16 each). Bytes: those of `RegretMatching`; if there are
    segments, the number of their cells (u32), then of each in ascending order slot, point (u16 each), n, s (u32 each).

    References
    ----------
    Gupta, Jung, Noarov, Pai & Roth, *Online multivalid learning*, arXiv 2101.01739; Foster & Kakade, *Calibration via
    Regression*, section III.C; `RegretMatching`.
    """

    name: ClassVar[str] = "group_regret"
    grouped: ClassVar[bool] = True

    def _start(self) -> None:
        self._segment_cells: dict[int, tuple[int, int]] = {}
        self._segment_field: dict[int, int] = {}
        self._segment_sizes: dict[int, int] = {}
        self._bucket_sizes: dict[int, int] = {}

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        """Serve a grid point drawn by the rule above; ``groups`` are the event's slots, below `MOST`."""
        if not groups:
            return super().predict(p, x, key)
        require_probability(p)
        grid = self._grid
        last = grid.last
        j = self._buckets.below(p)
        first = [slot * (last + 1) for slot in groups]
        weights = [1.0 / math.sqrt(self._segment_sizes.get(slot, 0) + 1) for slot in groups]
        bucket, weight = j * (last + 1), 1.0 / math.sqrt(self._bucket_sizes.get(j, 0) + 1)
        i = grid.nearest(p)
        here = self._at(i, bucket, weight, first, weights)
        step = 1 if here > 0.0 else -1
        while here != 0.0 and 0 <= i + step <= last:
            there = self._at(i + step, bucket, weight, first, weights)
            if here * there < 0.0:
                left, a, b = (i, here, -there) if step > 0 else (i - 1, there, -here)
                p, draw, ticket = self._between(j, left, a, b, key)
                return new(Prediction, (p, draw, ticket + slots_of(groups)))
            i += step
            here = there
        point = grid.points[i]
        return new(Prediction, (point, point, self._ticket(j, i) + slots_of(groups)))

    def _at(self, i: int, bucket: int, weight: float, first: list[int], weights: list[float]) -> float:
        """Return φ_i, in units of 1/(2 denominator)."""
        own: int = self._field.get(bucket + i, 0)
        total = weight * own
        for k, cell in enumerate(first):
            field = self._segment_field.get(cell + i, 0)
            if field:
                total += weights[k] * field
        return total

    def update(self, ticket: bytes, y: float) -> None:
        """Count an outcome, 0 or 1, in all groups of its event."""
        super().update(ticket[:_PLAYED], y)
        j, i = _SLOT.unpack_from(ticket)[0], _SLOT.unpack_from(ticket, 2)[0]
        self._bucket_sizes[j] = self._bucket_sizes.get(j, 0) + 1
        for at in range(_PLAYED, len(ticket), 2):
            slot: int = _SLOT.unpack_from(ticket, at)[0]
            self._add(slot, i, 1, int(y))
            self._segment_sizes[slot] = self._segment_sizes.get(slot, 0) + 1

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Count the outcome as the other, 0 or 1, in all groups of its event."""
        super().revise(ticket[:_PLAYED], was, y)
        i: int = _SLOT.unpack_from(ticket, 2)[0]
        for at in range(_PLAYED, len(ticket), 2):
            self._add(_SLOT.unpack_from(ticket, at)[0], i, 0, int(y) - int(was))

    def _add(self, slot: int, i: int, n: int, s: int) -> None:
        cell = slot * (self._grid.last + 1) + i
        before_n, before_s = self._segment_cells.get(cell, (0, 0))
        n, s = before_n + n, before_s + s
        self._segment_cells[cell] = n, s
        self._segment_field[cell] = self.field(i, n, s)

    def encode(self) -> bytes:
        """Return the counts; layout in the class's notes."""
        payload = super().encode()
        if not self._segment_cells:
            return payload
        width = self._grid.last + 1
        rows = [_ROW.pack(*divmod(cell, width), *counts) for cell, counts in sorted(self._segment_cells.items())]
        return payload + _COUNT.pack(len(rows)) + b"".join(rows)

    def largest(self, slots: int = MOST) -> int:
        """Return the most bytes that `encode` ever returns, if events have so many slots in all."""
        return super().largest() + _COUNT.size + slots * (self._grid.last + 1) * _ROW.size

    def decode(self, payload: bytes) -> None:
        """Take over counts written by `encode`; ValueError if they are of other options or cut."""
        end = len(payload)
        if len(payload) >= _HEAD.size:
            end = min(end, _HEAD.size + _HEAD.unpack_from(payload)[3] * self._row.size)
        super().decode(payload[:end])
        rows = payload[end + _COUNT.size :]
        if end < len(payload) and (
            len(payload) < end + _COUNT.size or len(rows) != _COUNT.unpack_from(payload, end)[0] * _ROW.size
        ):
            raise ValueError(f"a state of {len(payload)} bytes does not hold the cells of its segments")
        width = self._grid.last + 1
        self._segment_cells, self._segment_field = {}, {}
        self._segment_sizes, self._bucket_sizes = {}, {}
        for cell, (n, _) in self._cells.items():
            self._bucket_sizes[cell // width] = self._bucket_sizes.get(cell // width, 0) + n
        for slot, i, n, s in _ROW.iter_unpack(rows):
            self._segment_cells[slot * width + i] = n, s
            self._segment_field[slot * width + i] = self.field(i, n, s)
            self._segment_sizes[slot] = self._segment_sizes.get(slot, 0) + n

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the bound on the whole's error, of all buckets together; None before the first outcome."""
        if not self._segment_cells:
            return super().bound(outstanding)
        if outstanding or not self.learnt:
            return 1.0 if self.learnt else None
        width, potential = self._grid.last + 1, self._potential()
        margins, weighed = 0, 0.0
        for cell, (n, _) in self._cells.items():
            margins += self._margin(cell % width, n)
            weighed += math.sqrt(self._bucket_sizes[cell // width] + 1)
        avoidable = math.sqrt(weighed * potential)
        return min(1.0, (margins / (2 * self._grid.denominator) + avoidable) / self.learnt)

    def groups(self, outstanding: int = 0) -> list[GroupError]:
        """Return error and bound of every segment that was touched, in ascending order of slots."""
        grid = self._grid
        width, potential = grid.last + 1, self._potential()
        off: dict[int, int] = dict.fromkeys(sorted(self._segment_sizes), 0)
        margins, touched = off.copy(), off.copy()
        for cell, (n, s) in self._segment_cells.items():
            slot, i = divmod(cell, width)
            off[slot] += abs(s * grid.denominator - n * grid.numerators[i])
            margins[slot] += self._margin(i, n)
            touched[slot] += 1
        found = []
        for slot, n in sorted(self._segment_sizes.items()):
            avoidable = math.sqrt(touched[slot] * math.sqrt(n + 1) * potential)
            bound = (margins[slot] / (2 * grid.denominator) + avoidable) / n if not outstanding else 1.0
            found.append(GroupError(slot, n, off[slot] / (grid.denominator * n), min(1.0, bound)))
        return found

    def _potential(self) -> float:
        """Return Q of the class's notes."""
        step = 1.0 + (max(self._grid.gaps) + 1) / (2 * self._grid.denominator)
        width, noise = self._grid.last + 1, self._noise
        total = 0.0
        for n in (*self._bucket_sizes.values(), *self._segment_sizes.values()):
            cells = min(width, n)
            total += 2.0 * step * step * math.sqrt(n) + step * noise * cells * (3.0 + math.log(n)) / 2.0
            total += noise * noise / 4.0 * cells * 5.0 / 3.0
        return total


def slots_of(groups: tuple[int, ...]) -> bytes:
    """Return the slots as a ticket ends with them."""
    return b"".join([_SLOT.pack(slot) for slot in groups])
