"""Test functions of the answer, and where a weighted sum of them meets the answer itself.

A map g of the answer is what a regression makes of its test functions once θ, the forecast and the features are given.
What is served is a fixed point of clip(g), and there is one because g is continuous: clip(g(0)) >= 0, clip(g(1)) <= 1.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from state.arrays import Floats
from state.scoring.smooth import smooth_error

#: Most coordinates a growing family makes of a regression: 128 of them are 134 kB of state and 70 µs an event.
MOST = 128
#: Cells of [0, 1] among which the crossing of a smooth g is bisected before it is solved as if linear. A chord of that
#: length is off by at most |g''| 2**-55.
CELLS = 1 << 26


class Functions(Protocol):
    """A family φ of test functions of the answer ŷ, beside those of every calibrated regression (1, ŷ, p, x).

    Attributes
    ----------
    count
        How many there are now.
    norm
        The largest ‖w‖² of the weights w with which `error` tests.
    """

    @property
    def count(self) -> int: ...  # noqa: D102 - see the class

    @property
    def norm(self) -> float: ...  # noqa: D102

    def names(self, features: Sequence[str]) -> list[str]:
        """Return a name for each, given those of x."""

    def fill(self, tail: Floats, answer: float, x: Sequence[float]) -> None:
        """Write φ(ŷ), shape (count,)."""

    def fixed_point(self, s: float, slope: float, weights: Sequence[float], p: float, x: Sequence[float]) -> float:
        """Return a ŷ in [0, 1] with ŷ = clip(s + slope ŷ + Σ weights_j φ_j(ŷ)), preferably near ``p``."""

    def error(self, bias: Floats, tail: Floats) -> float:
        """Return the largest Σ w(ŷ)(ŷ - y) over the tests w, from the biases of (1, ŷ) and of φ."""


class Linear:
    """No test function of the answer but the answer."""

    count = 0
    norm = 1.0

    def names(self, features: Sequence[str]) -> list[str]:
        """Return nothing."""
        return []

    def fill(self, tail: Floats, answer: float, x: Sequence[float]) -> None:
        """Write nothing."""

    def fixed_point(self, s: float, slope: float, weights: Sequence[float], p: float, x: Sequence[float]) -> float:
        """Return the fixed point of a line; see `line_meets_answer`."""
        return line_meets_answer(s, slope, p)

    def error(self, bias: Floats, tail: Floats) -> float:
        """Return |Σ (ŷ - y)|."""
        return abs(float(bias[0]))


class Polynomial(Linear):
    """ŷ², .., ŷ^m: no polynomial of the answers of that degree would, in hindsight, have improved them.

    Parameters
    ----------
    degree
        m, at least 2.
    """

    def __init__(self, degree: int) -> None:
        self.count = degree - 1
        self._powers = np.arange(2, degree + 1)

    def names(self, features: Sequence[str]) -> list[str]:
        """Return ``answer^2`` and so on."""
        return [f"answer^{power}" for power in self._powers]

    def fill(self, tail: Floats, answer: float, x: Sequence[float]) -> None:
        """Write ŷ², .., ŷ^m."""
        np.power(answer, self._powers, out=tail)

    def fixed_point(self, s: float, slope: float, weights: Sequence[float], p: float, x: Sequence[float]) -> float:
        """Bisect, from the forecast's side; then solve."""
        falling = weights[::-1]

        def g(i: int) -> float:
            y, value = i / CELLS, 0.0
            for weight in falling:
                value = (value + weight) * y
            return (value + slope) * y + s

        return crossing(g, CELLS, p)


class Hats:
    """The hat functions on the knots k/K: each is 1 at its knot and 0 at all others, and linear between.

    The bias of a hat is that of the answers near its knot; all together are a reliability diagram without edges.

    Parameters
    ----------
    knots
        K, at least 1.
    """

    def __init__(self, knots: int) -> None:
        self.count = knots + 1
        self.norm = float(knots + 1)
        self._cells = knots

    def names(self, features: Sequence[str]) -> list[str]:
        """Return ``hat 0`` to ``hat 1``."""
        return [f"hat {k / self._cells:.3g}" for k in range(self.count)]

    def fill(self, tail: Floats, answer: float, x: Sequence[float]) -> None:
        """Write the two hats that are not 0."""
        tail.fill(0.0)
        k = min(int(answer * self._cells), self._cells - 1)
        tail[k + 1] = over = answer * self._cells - k
        tail[k] = 1.0 - over

    def fixed_point(self, s: float, slope: float, weights: Sequence[float], p: float, x: Sequence[float]) -> float:
        """Bisect on the knots, from the forecast's side; then solve."""
        step = slope / self._cells
        return crossing(lambda k: s + step * k + weights[k], self._cells, p)

    def error(self, bias: Floats, tail: Floats) -> float:
        """Return the smooth error on the mesh."""
        return smooth_error(tail)


class Growing:
    """Hat functions on dyadic meshes, the finer the longer the sequence: calibrated for every Lipschitz test at last.

    Parameters
    ----------
    finest
        Level of the finest mesh, whose knots are 2**-finest apart.
    features
        d, the number of features each of which gets the family too, times itself; 0: the whole sequence only.
    taken
        Coordinates the regression has without them.

    Notes
    -----
    Level l >= 1 are the 2**(l-1) hats of width 2**(1-l), 1 at the odd multiples of 2**-l; with 1 and ŷ, the levels up
    to L span what is linear between the multiples of 2**-L (Faber and Schauder's basis), so a level only ever *adds*. A
    source is the whole sequence (x_0 = 1), or a feature x_i, which brings x_i φ(ŷ), and x_i ŷ as level 0. It gets level
    l when the Σ x_i² of the rounds so far has reached 8**l, which balances T 2**-L, missed between knots, against
    sqrt(T 2**L ln T), the bound for 2**L functions. A feature gets it only if there is room below `MOST`, with the
    finest mesh of the whole sequence counted in, which thus always fits.

    For w from [0, 1] to [-1, 1], 1-Lipschitz, the weights are w(0), w(1) - w(0) and, at level l, at most 2**-l: ‖w‖²
    is at most 1 + 1 + Σ 2**(l-1) 4**-l <= 5/2 on every mesh.
    """

    norm = 2.5

    def __init__(self, finest: int, features: int, taken: int) -> None:
        self.blocks: list[tuple[int, int]] = []
        self.count = 0
        self.levels = [0] + [-1] * features
        self._finest = finest
        self._taken = taken

    def regrown(self, blocks: bytes) -> "Growing":
        """Return the family with these sources and levels, in this order; ValueError if none grows so."""
        family = Growing(self._finest, len(self.levels) - 1, self._taken)
        for source, level in zip(blocks[::2], blocks[1::2], strict=True):
            family.add(source, level)
        return family

    def grow(self, lengths: Sequence[float]) -> int:
        """Add the levels that are due, given Σ x_i² of each source; return how many functions they are."""
        before = self.count
        for source, length in enumerate(lengths):
            while (level := self.levels[source] + 1) <= self._finest and length >= 8**level:
                reserved = (1 << self._finest) - (1 << self.levels[0])
                if source and self._taken + self.count + reserved + _size(level) > MOST:
                    break
                self.add(source, level)
        return self.count - before

    def add(self, source: int, level: int) -> None:
        """Add a level of a source.

        Raises
        ------
        ValueError
            If it is not the source's next.
        """
        if not (source < len(self.levels) and level == self.levels[source] + 1 <= self._finest):
            raise ValueError(f"state of other options: level {level} of source {source}")
        self.blocks.append((source, level))
        self.levels[source] = level
        self.count += _size(level)

    def names(self, features: Sequence[str]) -> list[str]:
        """Return ``hat 0.5``, ``vip · answer``, ``vip · hat 0.5`` and so on, in the order they were added."""
        return [
            ("" if source == 0 else f"{features[source - 1]} · ")
            + ("answer" if level == 0 else f"hat {(2 * j + 1) / 2**level:.3g}")
            for source, level in self.blocks
            for j in range(_size(level))
        ]

    def fill(self, tail: Floats, answer: float, x: Sequence[float]) -> None:
        """Write at most one value a level and source."""
        tail.fill(0.0)
        at = 0
        for source, level in self.blocks:
            scale = x[source - 1] if source else 1.0
            if level == 0:
                tail[at] = scale * answer
            elif answer < 1.0:
                j, over = divmod(answer * _size(level), 1.0)
                tail[at + int(j)] = scale * (1.0 - abs(2.0 * over - 1.0))
            at += _size(level)

    def fixed_point(self, s: float, slope: float, weights: Sequence[float], p: float, x: Sequence[float]) -> float:
        """Bisect on the finest mesh, from the forecast's side; then solve."""
        if len(self.levels) > 1:
            slope, weights = self._collapse(slope, weights, x)
        cells = 1 << max(self.levels)
        if cells == 1:
            return line_meets_answer(s, slope, p)

        def g(i: int) -> float:
            value, width, first, at = s + slope * i / cells, cells, 1, i
            while width > 1:  # a level at a time; a knot of a coarser mesh is a zero of all finer hats
                j, over = divmod(at, width)
                if over == 0:
                    break
                value += weights[first - 1 + j] * (1.0 - abs(2 * over - width) / width)
                first *= 2
                width //= 2
            return value

        return crossing(g, cells, p)

    def _collapse(self, slope: float, weights: Sequence[float], x: Sequence[float]) -> tuple[float, list[float]]:
        """Return the weight of ŷ and those of the hats, level after level, the sources' added up."""
        total, at = [0.0] * ((1 << max(self.levels)) - 1), 0
        for source, level in self.blocks:
            size = _size(level)
            scale = x[source - 1] if source else 1.0
            if scale and not level:
                slope += scale * weights[at]
            elif scale:
                for j, weight in enumerate(weights[at : at + size], size - 1):
                    total[j] += scale * weight
            at += size
        return slope, total

    def error(self, bias: Floats, tail: Floats) -> float:
        """Return the smooth error of the whole sequence, each round taken on the mesh that was in force then."""
        knots = np.array([bias[0] - bias[1], bias[1]])
        at = 0
        for source, level in self.blocks:
            size = _size(level)
            if source == 0:  # a hat's weight is w at its knot less the mean of w at the two beside it
                hats = tail[at : at + size]
                finer = np.empty(2 * size + 1)
                finer[::2], finer[1::2] = knots, hats
                finer[:-1:2] -= hats / 2.0
                finer[2::2] -= hats / 2.0
                knots = finer
            at += size
        return smooth_error(knots)


def _size(level: int) -> int:
    """Return the number of functions of a level; level 0 is one, the answer."""
    return 1 << max(level - 1, 0)


def line_meets_answer(s: float, slope: float, p: float) -> float:
    """Return a ŷ in [0, 1] with ŷ = clip(slope ŷ + s); where there are several, the one nearest ``p``.

    With slack = 1 - slope positive it is unique. Otherwise, for s between slack and 0, all of 0, s / slack and 1 are
    fixed points (and for slack = s = 0 every point); ``clip(s / slack)`` alone is wrong there and beyond, and a slope
    above 1 does occur.
    """
    slack = 1.0 - slope
    if slack > 0.0:
        return 0.0 if s <= 0.0 else 1.0 if s >= slack else s / slack
    if s > 0.0:
        return 1.0
    if s < slack:
        return 0.0
    if slack == 0.0:
        return p
    return min((0.0, s / slack, 1.0), key=lambda fixed: abs(fixed - p))


def crossing(g: Callable[[int], float], cells: int, p: float) -> float:
    """Return a fixed point of clip(g) in [0, 1], for a continuous g that is linear between the knots.

    Parameters
    ----------
    g
        Of k, the value at the knot k/cells.
    cells
        Of equal width.
    p
        Where to begin: its own cell first, and else in the direction in which g points. O(log cells).
    """
    low = min(int(p * cells), cells - 1)
    high = low + 1
    above, below = g(low) - low / cells, g(high) - high / cells
    if above < 0.0 and below < 0.0:
        low, high, below = 0, low, above
        above = g(0)
        if above <= 0.0:
            return 0.0
    elif above > 0.0 and below > 0.0:
        low, high, above = high, cells, below
        below = g(cells) - 1.0
        if below >= 0.0:
            return 1.0
    elif above == below:
        return p  # every point of the cell is fixed
    while high - low > 1:
        middle = (low + high) // 2
        over = g(middle) - middle / cells
        if over >= 0.0:
            low, above = middle, over
        else:
            high, below = middle, over
    return (low + above / (above - below)) / cells
