"""Calibration by internal regret: regret matching between adjacent grid points."""

from typing import ClassVar

from state.calibrators.bucketed import Counting


class RegretMatching(Counting):
    """Serve grid points that could not be moved to a neighbour with profit.

    The field is the part of the error that a grid this coarse could avoid: ``sign(V_i) max(|V_i| - n_i h_i / 2, 0)``
    with h_i the wider gap beside point i (1/N). It is 0 on most points of a benign stream, so the forecast is served
    rounded to the grid. Options and state: `Bucketed`.

    Notes
    -----
    Internal regret needs no N x N matrix: moving from i to j changes the Brier score by ``2 δ V_i - δ² n_i``,
    δ = g_j - g_i. In the crossing rule the expected gain |φ_i| |φ_{i+1}| h / (|φ_i| + |φ_{i+1}|) does not exceed the
    margin's share, so E Σ φ² grows by less than 2 a round, or (1 + h/2)² on a grid with a gap h above .82. With ĥ the
    mean over the outcomes of the gap h_i at the point they were served (1/N on an even grid), E ℓ1 <= ĥ / 2 +
    sqrt(2 (N + 1) / T): unlike `Minimax`, what remains for large T is only the resolution of the grid.

    References
    ----------
    Kuleshov & Ermon 2017, Table 1 (internal regret); Mannor & Stoltz 2010; Cesa-Bianchi & Lugosi 2006, section 4.4.
    """

    name: ClassVar[str] = "regret_matching"

    def field(self, i: int, n: int, s: int) -> int:
        """Return φ_i in units of 1/(2 denominator)."""
        grid = self._grid
        off = 2 * (s * grid.denominator - n * grid.numerators[i])
        margin = n * grid.gaps[i]
        if off > margin:
            return off - margin
        if off < -margin:
            return off + margin
        return 0

    def bound(self, outstanding: int = 0) -> float | None:
        """Return ĥ/2 + Σ_j sqrt(2 (N + 1) T_j (1 + 2 outstanding)) / T over the buckets j, at most 1.

        With several buckets it holds for any sequence of forecasts that does not react to the draws. None before the
        first outcome.
        """
        if not self.learnt:
            return None
        grid = self._grid
        growth = max(2.0, (1.0 + max(grid.gaps) / (2 * grid.denominator)) ** 2)
        return min(1.0, self._resolution() + self._roots(growth * (grid.last + 1) * (1 + 2 * outstanding)))
