"""Calibration by internal regret: regret matching between adjacent grid points."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import ClassVar, Final

from state.calibrators.bucketed import BUCKETS, GRID, SPACING, CountingBuckets
from state.calibrators.grid import Grid
from state.calibrators.options import Option, number

#: Chosen behind `Platt` on bank-full with outcomes 0, 500 and 2,000 calls late: ECE .007, .032, .050 with 0; .004,
#: .022, .043 with 2; .004, .018, .039 with 3. ℓ1 on the adversary of 20,000 is at most .013, .025, .031; the bound
#: there with forecasts of .5 is .018, .026, .030.
NOISE: Final = 2.0


class RegretMatching(CountingBuckets):
    """Serve grid points so that moving them to a neighbour would have gained nothing.

    The field is the part of the error that this grid could avoid: ``sign(V_i) max(|V_i| - m_i, 0)`` with the margin
    ``m_i = n_i h_i / 2``, h_i the wider gap beside point i (1/N). It is 0 on most points of a benign stream, which is
    then served its forecasts rounded to the grid. State and the other options: `Bucketed`.

    ``noise``: standard deviations of chance, sqrt(n g (1 - g)) each, added to the margin, so that chance alone does not
    move the play off a point. 0 is the published rule.

    Notes
    -----
    Internal regret needs no N x N matrix: moving from i to j changes the Brier score by ``2 δ V_i - δ² n_i``, δ = g_j -
    g_i. In the crossing rule the expected gain |φ_i| |φ_{i+1}| h / (|φ_i| + |φ_{i+1}|) does not exceed the margin's
    share. So a round adds at most the square of its step, ρ = |y - g_i| + the growth of the margin. A late outcome was
    played on an older field, which others have moved since by their ρ. That adds 2 ρ Σ ρ_k over the outcomes k that
    came between **at the same point**. With

        ρ <= a + (noise / 2) (sqrt(n) - sqrt(n - 1)),  a = 1 + h / 2,

    at the n-th outcome of a point, sums over C points, T outcomes and all delays L give, v = noise²/4 (5 + ln T)/4,

        E Σ φ² <= Q = a² T + a noise sqrt(C T) + v C + 2 (a sqrt(L) + sqrt(min(v T, L noise²/4)))².

    (Each outcome is in at most n pairs of its point, the earlier one of a pair has the larger ρ, and the rest is Cauchy
    and Schwarz. Margins are rounded: a has one unit of the grid more.) The error is at most Σ m_i / T + Σ|φ| / T. With
    K points touched Σ|φ| is at most sqrt(K Σ φ²). For large T only the resolution of the grid remains, Σ n_i h_i / 2T,
    unlike in `Minimax`.

    Measured behind `Platt` with noise 0, 1, 2: log loss .0492, .0478, .0477 at a base rate of 1 % (Platt alone .0474),
    Brier .1903, .1898, .1894 at 50 % (.1893), and ℓ1 .013, .018, .023 on the adversary of 20,000.

    References
    ----------
    Kuleshov & Ermon 2017, Table 1 (internal regret); Mannor & Stoltz 2010; Cesa-Bianchi & Lugosi 2006, section 4.4.
    """

    name: ClassVar[str] = "regret_matching"
    options: ClassVar[dict[str, Option]] = {
        **CountingBuckets.options,
        "noise": number(NOISE, 0.0, 4.0, "standard deviations of chance by which a point may be off before it is left"),
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
        noise: float = NOISE,
        name: str = "",
        seed: int = 0,
    ) -> None:
        # Options are passed one by one: from `**options`, mypyc would pass the whole dict as each option.
        super().__init__(
            grid=grid,
            spacing=spacing,
            points=points,
            buckets=buckets,
            bucket_spacing=bucket_spacing,
            edges=edges,
            name=name,
            seed=seed,
        )
        self._noise = noise
        self._chance = _chances(noise, self._grid)

    def field(self, i: int, n: int, s: int) -> int:
        """Return φ_i in units of 1/(2 denominator)."""
        grid = self._grid
        off = 2 * (s * grid.denominator - n * grid.numerators[i])
        margin = self._margin(i, n)
        if off > margin:
            return off - margin
        if off < -margin:
            return off + margin
        return 0

    def _margin(self, i: int, n: int) -> int:
        """Return m_i in units of 1/(2 denominator)."""
        return n * self._grid.gaps[i] + isqrt(n * self._chance[i])

    def bound(self, outstanding: int = 0) -> float | None:
        """Return Σ m_i / T plus the bound on Σ|φ| / T, at most 1; None before the first outcome.

        The ratio of the error above the first part to the second part is at most 1 in expectation.
        """
        if not self.learnt:
            return None
        grid = self._grid
        width = grid.last + 1
        margins = sum(self._margin(cell % width, n) for cell, (n, _) in self._cells.items())
        avoidable = self._within(self._length, outstanding)
        return min(1.0, margins / (2 * grid.denominator * self.learnt) + avoidable)

    def _length(self, t: int, cells: int, gap: float, late: int) -> float:
        """Return sqrt(Q) for t outcomes whose delays add up to ``late``."""
        grid = self._grid
        step = 1.0 + (max(grid.gaps) + 1) / (2 * grid.denominator)
        chance = self._noise / 2.0
        squares = chance * chance * (5.0 + math.log(t)) / 4.0
        cells = min(cells, t)
        prompt = step * step * t + 2.0 * step * chance * math.sqrt(cells * t) + cells * squares
        pairs = min(t * squares, late * chance * chance)
        return math.sqrt(prompt + 2.0 * (step * math.sqrt(late) + math.sqrt(pairs)) ** 2)


@lru_cache(maxsize=64)
def _chances(noise: float, grid: Grid) -> list[int]:
    """Return (2 noise)² g (1 - g) of every point, in whole units of 1/denominator², which keep the field exact."""
    denominator = grid.denominator
    return [round(Fraction(2 * noise) ** 2 * k * (denominator - k)) for k in grid.numerators]
