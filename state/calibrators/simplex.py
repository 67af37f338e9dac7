"""Forecasts of three classes, calibrated as vectors on a grid over the simplex."""

import math
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import ClassVar

from state.calibrators.base import Answer, new, require_length
from state.calibrators.minimax import length
from state.calibrators.options import Integer, Option
from state.draw import BITS, Draw
from state.forecasts import Probs

#: Buckets a side and points a side. A grid of N has (N + 1)(N + 2) / 2 points, and the bound their square root.
BUCKETS, GRID = 3, 10

Vector = tuple[int, int, int]
Weights = tuple[int, ...]

#: It has no option for the number of classes.
CLASSES = 3
_TICKET = Struct("<HH")
_HEAD = Struct("<III")
_CELL = Struct("<I3Q")
_ZERO = (0, 0, 0)


class Simplex:
    """Serve points of a triangular grid whose counted errors cancel: three classes, calibrated as a vector.

    Stronger than one class against the rest, and a distribution by itself; but points are many, learning is slow, and
    beyond three classes a grid is out of reach (finding the point to play is PPAD-hard in K).

    Parameters
    ----------
    buckets
        B: the raw forecast's bucket is (int(p_0 B), int(p_1 B)).
    grid
        N: the points (a, b, c) / N, a + b + c = N, can be served.
    name, seed
        Key the draws.

    Notes
    -----
    The field at point g_i is ``V_i = s_i - n_i g_i``: s_i counts the outcomes of each class after g_i was served, in
    the bucket of the forecast. Between points, V is linear on each small triangle. Then there is a point x with
    ``<V(x), z - x> <= 0`` for all z of the simplex (Hartman & Stampacchia): inside, V(x) = 0; on an edge, V points
    outwards. It is sought among the grid points, edges of the border and small triangles in order of distance from the
    forecast, with integers throughout, and its corners are drawn with the weights that make x. Measured: 20 to 180 µs
    an answer; on a stream where one class against the rest ends at classwise ECE .008 after 10,000 events, .039.

    With L = Σ |V_i|² and D outstanding, the expected increase of L is at most ``2 (1 + 2 D) + 2 sqrt(2 L / 3) / N``:
    the corners of x lie sqrt(2/3) / N from it on the root mean square. As for `Minimax`, of which this is the case of
    three classes.

    Ticket: bucket, point (u16 each). Bytes, little-endian: B, N, cells (u32 each), then for each touched cell in
    ascending order bucket (N + 1)(N + 2) / 2 + point (u32), and s (u64 for each class).

    References
    ----------
    Kuleshov & Ermon 2017, *Multiclass prediction*; Hazan & Kakade 2012; Hartman & Stampacchia 1966.

    Examples
    --------
    >>> calibrator = Simplex(buckets=1)
    >>> for t in range(2000):
    ...     expected, _, ticket = calibrator.predict(Probs((0.8, 0.1, 0.1)), key=str(t).encode())
    ...     calibrator.update(ticket, t % 3)
    >>> all(abs(p - 1 / 3) < 0.1 for p in calibrator.predict(Probs((0.8, 0.1, 0.1))).p)
    True
    """

    name: ClassVar[str] = "simplex"
    kind: ClassVar[str] = "probs"
    order_free: ClassVar[bool] = True
    options: ClassVar[dict[str, Option]] = {
        "buckets": Integer(BUCKETS, 1, 10, "buckets of the raw forecast along each of two classes"),
        "grid": Integer(GRID, 1, 30, "N of the points (a, b, c) / N that are served"),
    }

    def __init__(self, *, buckets: int = BUCKETS, grid: int = GRID, name: str = "", seed: int = 0) -> None:
        self.learnt = 0
        self._buckets = buckets
        self._grid = grid
        self._points, self._index = _points(grid)
        self._draw = Draw(name, seed)
        self._cells: dict[int, Vector] = {}
        self._field: dict[int, Vector] = {}  # N V_i of touched cells; derived from _cells

    def predict(self, p: Probs, x: Sequence[float] = (), key: bytes = b"") -> Answer[Probs]:  # noqa: ARG002 - no features
        """Serve a grid point drawn by the rule above; ValueError unless there are three classes."""
        if len(p) != 3:
            raise ValueError(f"probs must be of 3 classes, got {len(p)}")
        last = self._buckets - 1
        j = min(int(p[0] * self._buckets), last) * self._buckets + min(int(p[1] * self._buckets), last)
        corners, weights = self._mixture(j, self._index[_nearest(p, self._grid)])
        total = sum(weights)
        u, i = self._draw(key) * total, corners[0]
        for corner, weight in zip(corners, weights, strict=True):
            if weight:
                i = corner
                u -= weight << BITS
                if u < 0:
                    break
        scale = total * self._grid
        expected = Probs(
            [sum(w * self._points[c][k] for w, c in zip(weights, corners, strict=True)) / scale for k in range(3)]
        )
        return new(Answer, (expected, Probs([a / self._grid for a in self._points[i]]), _TICKET.pack(j, i)))

    def _mixture(self, j: int, start: int) -> tuple[tuple[int, ...], Weights]:
        """Return the grid points to draw from in bucket j, and their weights: those nearest to a grid point."""
        first = j * len(self._points)
        field = self._field.get
        for corners in _by_distance(self._grid, start):
            weights = _weights([self._points[i] for i in corners], [field(first + i, _ZERO) for i in corners])
            if weights:
                return corners, weights
        raise ArithmeticError("a continuous field on a simplex has a point to play; this one is not what it says")

    def update(self, ticket: bytes, y: float) -> None:
        """Count the class that came, 0, 1 or 2, in the cell that was played."""
        if y not in {0, 1, 2}:
            raise ValueError(f"a class must be one of 0 to 2, got {y!r}")
        j, i = _TICKET.unpack(ticket)
        cell = j * len(self._points) + i
        a, b, c = self._cells.get(cell, _ZERO)
        self._set(cell, (a + (y == 0), b + (y == 1), c + (y == 2)))
        self.learnt += 1

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Count the outcome of the cell that was played as another class, 0, 1 or 2."""
        if y not in {0, 1, 2}:
            raise ValueError(f"a class must be one of 0 to 2, got {y!r}")
        j, i = _TICKET.unpack(ticket)
        cell = j * len(self._points) + i
        a, b, c = self._cells[cell]
        self._set(cell, (a + (y == 0) - (was == 0), b + (y == 1) - (was == 1), c + (y == 2) - (was == 2)))

    def _set(self, cell: int, s: Vector) -> None:
        n, g, grid = sum(s), self._points[cell % len(self._points)], self._grid
        self._cells[cell] = s
        self._field[cell] = (grid * s[0] - n * g[0], grid * s[1] - n * g[1], grid * s[2] - n * g[2])

    def encode(self) -> bytes:
        """Return the counts; layout in the class's notes."""
        head = _HEAD.pack(self._buckets, self._grid, len(self._cells))
        return head + b"".join(_CELL.pack(cell, *s) for cell, s in sorted(self._cells.items()))

    def largest(self) -> int:
        """Return the most bytes that `encode` ever returns."""
        return _HEAD.size + self._buckets**2 * len(self._points) * _CELL.size

    def decode(self, payload: bytes) -> None:
        """Take over counts written by `encode`; ValueError if they are of other options or cut."""
        if len(payload) < _HEAD.size:
            raise ValueError(f"a state of {len(payload)} bytes is shorter than its own header")
        buckets, grid, cells = _HEAD.unpack_from(payload)
        if (buckets, grid) != (self._buckets, self._grid):
            raise ValueError(f"state of buckets={buckets}, grid={grid} does not fit {self._buckets}, {self._grid}")
        require_length(payload, _HEAD.size + cells * _CELL.size)
        self._cells, self._field = {}, {}
        for cell, *s in _CELL.iter_unpack(payload[_HEAD.size :]):
            self._set(cell, (s[0], s[1], s[2]))
        self.learnt = sum(map(sum, self._cells.values()))

    def error(self) -> float | None:
        """Return Σ_i |V_i|_1 / (2 T), buckets pooled; None before the first outcome.

        The mean distance in total variation between what was served and how often the classes came when it was.
        """
        if not self.learnt:
            return None
        off: dict[int, list[int]] = {}
        for cell, v in self._field.items():
            sums = off.setdefault(cell % len(self._points), [0, 0, 0])
            for k in range(3):
                sums[k] += v[k]
        return sum(abs(v) for sums in off.values() for v in sums) / (2 * self._grid * self.learnt)

    def bound(self, outstanding: int = 0) -> float | None:
        """Return Σ_j sqrt(2/3 (N + 1)(N + 2) / 2 a_{T_j}) / T over the buckets; None before the first outcome.

        a is the bound on E L above. Of a vector whose components sum to 0, |V|_1 <= sqrt(8/3) |V|. With several buckets
        it holds for any sequence of forecasts that does not react to the draws.
        """
        if not self.learnt:
            return None
        points = len(self._points)
        learnt: dict[int, int] = {}
        for cell, s in self._cells.items():
            learnt[cell // points] = learnt.get(cell // points, 0) + sum(s)
        # a' = c + 2 κ sqrt(a) with κ = sqrt(2/3) / N; `Minimax` has c = 1, for a / c, and κ = h / (2 sqrt(2)).
        root = math.sqrt(2 * (1 + 2 * outstanding))
        h = 4.0 / (math.sqrt(3.0) * self._grid * root)
        total = root * sum(length(t, 1, h, 0) for t in learnt.values())
        return min(1.0, math.sqrt(2.0 / 3.0 * points) * total / self.learnt)


def _weights(points: Sequence[Vector], field: Sequence[Vector]) -> Weights:
    """Return weights of the corners that make a point to play, none if it does not lie among them; exact.

    Parameters
    ----------
    points
        A grid point, the ends of an edge on the border, or the corners of a small triangle.
    field
        V there, in any unit.
    """
    if len(points) == 1:
        # Among the classes that are served, none may gain on another, and none that is not served may gain at all.
        most = max(field[0])
        return (1,) if all(v == most for v, a in zip(field[0], points[0], strict=True) if a) else ()
    if len(points) == 2:
        k = next(k for k in range(3) if points[0][k] == points[1][k] == 0)
        a, b = (k + 1) % 3, (k + 2) % 3
        left, right = field[0][a] - field[0][b], field[1][a] - field[1][b]
        if (left > 0) == (right > 0) or not left or not right:
            return ()
        w, v = abs(right), abs(left)
        return (w, v) if w * field[0][k] + v * field[1][k] <= w * field[0][a] + v * field[1][a] else ()
    one, two, three = field
    # V_1 (V_2 x V_3) + V_2 (V_3 x V_1) + V_3 (V_1 x V_2) = 0 in the plane.
    weights = (_cross(two, three), _cross(three, one), _cross(one, two))
    if min(weights) >= 0 < max(weights) or max(weights) <= 0 > min(weights):
        return tuple(map(abs, weights))
    if not any(weights):  # on one line: two that point against each other cancel
        for i, j in ((0, 1), (0, 2), (1, 2)):
            if sum(a * b for a, b in zip(field[i], field[j], strict=True)) < 0:
                sizes = [sum(map(abs, v)) for v in field]
                return tuple(sizes[j] if k == i else sizes[i] if k == j else 0 for k in range(3))
    return ()


def _cross(v: Vector, w: Vector) -> int:
    return v[0] * w[1] - v[1] * w[0]


def _nearest(p: Probs, n: int) -> Vector:
    """Return the grid point nearest to ``p`` times n: rounded down, what is missing given to the largest remainders."""
    down = [min(int(one * n), n) for one in p]
    for k in sorted(range(3), key=lambda k: down[k] - p[k] * n)[: n - sum(down)]:
        down[k] += 1
    return down[0], down[1], n - down[0] - down[1]


@lru_cache(maxsize=8)
def _points(n: int) -> tuple[tuple[Vector, ...], dict[Vector, int]]:
    """Return the grid points times n, and the index of each."""
    points = tuple((a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a))
    return points, {point: i for i, point in enumerate(points)}


@lru_cache(maxsize=4096)
def _by_distance(n: int, start: int) -> tuple[tuple[int, ...], ...]:
    """Return where the point to play may lie, nearest to a grid point first: points, edges of the border, triangles."""
    points, index = _points(n)
    pieces = [(i,) for i in range(len(points))] + _pieces(n, index)
    origin = points[start]

    def far(piece: tuple[int, ...]) -> float:
        centre = [sum(points[i][k] for i in piece) / len(piece) for k in range(3)]
        return sum((a - b) ** 2 for a, b in zip(centre, origin, strict=True))

    return tuple(sorted(pieces, key=far))


def _pieces(n: int, index: dict[Vector, int]) -> list[tuple[int, ...]]:
    pieces: list[tuple[int, ...]] = []
    for a in range(n):
        b = n - 1 - a
        pieces += [
            (index[0, a + 1, b], index[0, a, b + 1]),
            (index[a + 1, 0, b], index[a, 0, b + 1]),
            (index[a + 1, b, 0], index[a, b + 1, 0]),
        ]
    for a, b, c in _points(n - 1)[0]:
        pieces.append((index[a + 1, b, c], index[a, b + 1, c], index[a, b, c + 1]))
    for a, b, c in _points(n - 2)[0] if n > 1 else ():
        pieces.append((index[a, b + 1, c + 1], index[a + 1, b, c + 1], index[a + 1, b + 1, c]))
    return pieces
