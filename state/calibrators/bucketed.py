"""The base of counting calibrators: each bucket of forecasts has a randomised forecaster on a grid.

Kuleshov & Ermon 2017, Algorithm 1, with the forecaster of a bucket ("F_cal") reduced to a field over the grid points:
positive means "too low here, move right". All share the rule that draws a point from a field, so a subclass adds only
its field and its bound.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, ClassVar, Final
from zlib import crc32

from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import MOST_SLOTS, Calibrator, require_head, require_length, require_probability
from state.calibrators.grid import SPACINGS, Grid
from state.calibrators.options import Option, choice, increasing, integer
from state.draw import BITS, Draw
from state.quick import floats, new

_TICKET: Final = Struct("<HH")
_HEAD: Final = Struct("<IIII")

#: The defaults, measured behind `Platt` on 100,000 events of two seeds: log loss at base rates .2 %, 1 %, 5 %; Brier at
#: 50 %. Platt alone .0101, .0472, .180; .1895. These defaults .0109, .0488, .185; .1905. An even grid of 50 with ten
#: even buckets .0222, .0925, .190; .1905: at .2 % it serves a score of 0 to 79 % of the events that happen. A grid of
#: 100 in log-odds is too wide in the middle. 20 or 30 buckets gain at 50 % what they lose at .2 %. ℓ1 on the adversary
#: of 20,000 is .007.
BUCKETS: Final = 16
GRID: Final = 100
SPACING: Final = "hybrid"
#: Draws are integers below this.
_DRAWS: Final = 1 << BITS
#: Limit of bucket and index, which are u16 in a ticket.
_MOST: Final = 65_535


class Bucketed(Calibrator):
    """A bucketed calibrator. It counts plays and outcomes exactly; a subclass says how the field learns.

    ``grid, spacing, points``: N, the number of gaps between the points that can be served, and their spacing;
      ``points`` between 0 and 1 override both. See `Grid`.
    ``buckets, bucket_spacing, edges``: the same for buckets of the raw forecast, e_j <= p < e_{j+1}, the last with 1.
    ``name, seed``: key the draws.

    Notes
    -----
    State, per *touched* cell (bucket j, point g_i): n outcomes of events that were served g_i, s of them 1. With φ the
    field of the forecast's bucket:

    - φ_0 <= 0 plays 0, φ_N >= 0 plays N, φ_i = 0 plays i;
    - else adjacent φ_i > 0 > φ_{i+1} play i with probability ``|φ_{i+1}| / (|φ_i| + |φ_{i+1}|)``, else i + 1.

    Any such i has the guarantee. The search starts at the point nearest the raw forecast and walks in the direction of
    the field, so a new bucket serves the forecast rounded to the grid.

    Ticket: j, i (u16 each), as drawn. To derive i again from a later state would count the wrong cell. Bytes,
    little-endian: M, N, checksum of edges and points (CRC-32 of the f64s), cells (u32 each), then for each touched cell
    in ascending order ``j (N + 1) + i`` (u32), n, s (u64 each). At most ``16 + 20 M (N + 1)`` bytes.
    """

    _row: ClassVar[Struct] = Struct("<IQQ")
    keyed: ClassVar[bool] = True
    draws: bool = True
    options: ClassVar[dict[str, Option]] = {
        "grid": integer(GRID, 1, 1000, "N, gaps between the points that can be served, 0 and 1 among them"),
        "spacing": choice(SPACING, SPACINGS, "how the points are spaced"),
        "points": increasing(999, "the points between 0 and 1, instead of grid and spacing"),
        "buckets": integer(BUCKETS, 1, 1000, "M, buckets of the raw forecast, each with a forecaster of its own"),
        "bucket_spacing": choice(SPACING, SPACINGS, "how their edges are spaced"),
        "edges": increasing(999, "the edges between 0 and 1, instead of buckets and bucket_spacing"),
    }

    def __init__(
        self,
        *,
        grid: int = GRID,
        spacing: str = SPACING,
        points: Sequence[float] = (),
        buckets: int = BUCKETS,
        bucket_spacing: str = SPACING,
        edges: Sequence[float] = (),
        name: str = "",
        seed: int = 0,
    ) -> None:
        self._grid = Grid.of(grid, spacing, tuple(points))
        self._buckets = Grid.of(buckets, bucket_spacing, tuple(edges))
        if max(self._grid.last, self._buckets.last) >= _MOST:
            raise ValueError(f"at most {_MOST - 1} gaps and buckets fit a ticket")
        self._shape = _shape(self._buckets, self._grid)
        self._draw = Draw(name, seed)
        self.learnt = 0
        self._cells: dict[int, tuple[int, int]] = {}
        #: Rows of cells as `encode` packed them. If a cell changes, its row is removed, and packed again later.
        self._packed: dict[int, bytes] = {}
        self._field: dict[int, Any] = {}  # φ of touched cells, in any unit; integers keep it exact
        self._start()

    def _start(self) -> None:
        """Set up the state that a subclass adds."""

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        require_probability(p)
        grid = self._grid
        last = grid.last
        j = self._buckets.below(p)
        first = j * (last + 1)
        phi = self._field.get
        i = grid.nearest(p)
        here = phi(first + i, 0)
        # Walk in the direction of the field, to a point where it is 0, or to a crossing between two.
        step = 1 if here > 0 else -1
        while here and 0 <= i + step <= last:
            there = phi(first + i + step, 0)
            if step * there < 0:
                left, a, b = (i, here, -there) if step > 0 else (i - 1, there, -here)
                return self._between(j, left, a, b, key)
            i += step
            here = there
        point = grid.points[i]
        return new(Answer, (point, point, self._ticket(j, i)))

    def breaks(self) -> list[float]:
        return [*self._buckets.points[1:-1], *self._grid.breaks]

    def _between(self, j: int, i: int, a: Any, b: Any, key: bytes) -> Prediction:  # noqa: ANN401 - as the field's
        """Draw i with probability b / (a + b), otherwise i + 1. Integers a and b are compared exactly."""
        grid = self._grid
        k = grid.numerators
        both = a + b
        expected = (b * k[i] + a * k[i + 1]) / (both * grid.denominator)
        if self._draw(key) * both >= b * _DRAWS:
            i += 1
        return new(Answer, (expected, grid.points[i], self._ticket(j, i)))

    def _ticket(self, j: int, i: int) -> bytes:
        return _TICKET.pack(j, i)

    def _count(self, j: int, i: int, y: float) -> int:
        """Count an outcome in the cell that was played; return the number of the cell."""
        self._require_label(y)
        cell = j * (self._grid.last + 1) + i
        n, s = self._cells.get(cell, (0, 0))
        self._cells[cell] = n + 1, s + int(y)
        self._packed.pop(cell, None)
        self.learnt += 1
        return cell

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Move the outcome in its cell from 0 to 1 or back, and update the field."""
        self._require_label(y)
        j, i = _TICKET.unpack_from(ticket)
        cell = j * (self._grid.last + 1) + i
        n, s = self._cells[cell]
        self._cells[cell] = n, s + int(y) - int(was)
        self._packed.pop(cell, None)
        self._refield(cell, y - was)

    @abstractmethod
    def _refield(self, cell: int, change: float) -> None:
        """Update the field after a cell's sum of outcomes has changed."""

    def encode(self) -> bytes:
        packed, pack = self._packed, self._row.pack
        for cell in self._cells:
            if cell not in packed:
                packed[cell] = pack(*self._stored(cell))
        return _HEAD.pack(*self._shape, len(packed)) + b"".join([packed[cell] for cell in sorted(packed)])

    def largest(self, slots: int = MOST_SLOTS) -> int:
        return _HEAD.size + self._buckets.last * (self._grid.last + 1) * self._row.size

    def decode(self, payload: bytes) -> None:
        require_head(payload, _HEAD.size)
        *shape, cells = _HEAD.unpack_from(payload)
        if tuple(shape) != self._shape:
            raise ValueError(f"state of (buckets, grid, checksum) = {tuple(shape)} does not fit {self._shape}")
        require_length(payload, _HEAD.size + cells * self._row.size)
        self._take(list(self._row.iter_unpack(payload[_HEAD.size :])))

    def _stored(self, cell: int) -> tuple[Any, ...]:
        """Return the stored numbers of a touched cell: its number, n, s. They change only when the cell's counts do."""
        return (cell, *self._cells[cell])

    def _take(self, rows: list[tuple[Any, ...]]) -> None:
        self._cells = {cell: (n, s) for cell, n, s, *_ in rows}
        self._packed = {}
        self.learnt = sum(n for n, _ in self._cells.values())

    def error(self) -> float | None:
        """Return Σ_i |V_i| / T, the ℓ1 error of the served points over all buckets; None before the first outcome."""
        if not self.learnt:
            return None
        grid = self._grid
        width = grid.last + 1
        off = [0] * width  # V_i in units of 1/denominator
        for cell, (n, s) in self._cells.items():
            i = cell % width
            off[i] += s * grid.denominator - n * grid.numerators[i]
        return sum(map(abs, off)) / (grid.denominator * self.learnt)

    def error_by_chance(self) -> float | None:
        """Return the `error` to expect if outcomes came with the chance that each point says.

        Σ sqrt(2 n g (1 - g) / π) / T: the mean absolute value of a normal error with that variance.
        """
        if not self.learnt:
            return None
        points = self._grid.points
        plays = [0] * len(points)
        for cell, (n, _) in self._cells.items():
            plays[cell % len(points)] += n
        total = sum([math.sqrt(2.0 * n * p * (1.0 - p) / math.pi) for p, n in zip(points, plays, strict=True)])
        return total / self.learnt

    def _per_bucket(self) -> list[tuple[int, int, float]]:
        """Return for each touched bucket: its outcomes, its touched cells, and its widest gap between neighbours."""
        width = self._grid.last + 1
        k, denominator = self._grid.numerators, self._grid.denominator
        played: dict[int, tuple[int, int, float]] = {}
        before = -2
        for cell in sorted(self._cells):
            j, i = divmod(cell, width)
            t, touched, h = played.get(j, (0, 0, 0.0))
            if i and cell == before + 1:
                h = max(h, (k[i] - k[i - 1]) / denominator)
            played[j] = t + self._cells[cell][0], touched + 1, h
            before = cell
        return list(played.values())

    def _within(self, length: Callable[[int, int, float, int], float], outstanding: int) -> float:
        """Return a bound b on Σ|φ| / T: the ratio of Σ|φ| / T to b is at most 1 in expectation.

        ``length``: returns R with E Σ φ² <= R², from the numbers of outcomes and cells, the widest gap between played
          neighbours, and the sum of delays.
        ``outstanding``: as in `bound`.

        Notes
        -----
        In bucket j, K_j cells are touched, and Σ|φ| <= sqrt(K_j Φ_j) with Φ_j = Σ φ². Without delays, by Cauchy and
        Schwarz with weights 1 / R_j, Σ|φ| of all buckets is at most sqrt(Σ K_j R_j) sqrt(Σ Φ_j / R_j). The last root is
        at most sqrt(Σ R_j) in expectation, so this is never more than Σ sqrt(N + 1) R_j. This holds for any sequence of
        forecasts that does not react to the draws. With delays, only their sum over all buckets is known. All buckets
        then count as one field: sqrt(Σ K_j) R, on any sequence.
        """
        found, width = self._per_bucket(), self._grid.last + 1
        touched = sum(each for _, each, _ in found)
        if outstanding:
            gap = max(h for *_, h in found)
            total = math.sqrt(touched) * length(self.learnt, width * self._buckets.last, gap, outstanding * self.learnt)
        else:
            summed, weighed = 0.0, 0.0
            for t, each, h in found:
                r = length(t, width, h, 0)
                summed, weighed = summed + r, weighed + each * r
            total = math.sqrt(summed * weighed)
        return total / self.learnt


class CountingBuckets(Bucketed):
    """A bucketed calibrator whose field is a function of a cell's counts: updates commute, bit for bit."""

    order_free: bool = True

    @abstractmethod
    def field(self, i: int, n: int, s: int) -> int:
        """Return φ at point i after n outcomes, s of them 1, in any fixed unit; its sign is that of s - n g_i, or 0."""

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        j, i = _TICKET.unpack(ticket)
        self._refield(self._count(j, i, y), y)

    def _refield(self, cell: int, change: float) -> None:
        n, s = self._cells[cell]
        self._field[cell] = self.field(cell % (self._grid.last + 1), n, s)

    def _take(self, rows: list[tuple[Any, ...]]) -> None:
        super()._take(rows)
        width = self._grid.last + 1
        self._field = {cell: self.field(cell % width, n, s) for cell, (n, s) in self._cells.items()}


@lru_cache(maxsize=64)
def _shape(buckets: Grid, grid: Grid) -> tuple[int, int, int]:
    """Return the numbers of buckets and gaps, and a checksum of edges and points."""
    cuts = (*buckets.points, *grid.points)
    return buckets.last, grid.last, crc32(floats(len(cuts)).pack(*cuts))
