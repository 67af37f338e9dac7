"""Smooth calibration error: a small change of the forecasts changes it only a little."""

import numpy as np
from numpy.typing import NDArray


def smooth_error(sums: NDArray[np.float64]) -> float:
    """Return sup Σ w(p)(p - y) over the 1-Lipschitz w from [0, 1] to [-1, 1] that are linear between the knots.

    Parameters
    ----------
    sums
        Σ h_k(p)(p - y) for the hat functions h_k on the knots k/K, k = 0..K, K >= 1; shape (K + 1,).

    Notes
    -----
    Divided by the number of events it is the smooth calibration error, in [0, 1], to within half the mesh: a
    1-Lipschitz w is nowhere further than 1/(2K) from its interpolation. The ECE of bins is not stable in this way: if a
    forecast moves by 1e-9 across an edge, the ECE may change by .5.

    The w are those of |w_k| <= 1, |w_k - w_{k+1}| <= 1/K at the knots. Such a linear program has an optimum where every
    w_k is a multiple of 1/K, so dynamic programming over those 2K + 1 values is exact.

    References
    ----------
    Kakade & Foster 2004, *Deterministic calibration and Nash equilibrium*; Błasiok, Gopalan, Hu & Nakkiran 2023,
    *A unifying theory of distance from calibration*.

    Examples
    --------
    >>> smooth_error(np.array([-1.0, 0.0, 1.0]))  # opposite errors at 0 and 1: w = y - 1/2
    1.0
    >>> smooth_error(np.array([0.0, 3.0, 0.0]))  # one sign: w = 1
    3.0
    """
    last = len(sums) - 1
    w = np.arange(-last, last + 1) / last
    best = sums[0] * w
    for value in sums[1:]:
        reached = best.copy()
        np.maximum(reached[1:], best[:-1], out=reached[1:])
        np.maximum(reached[:-1], best[1:], out=reached[:-1])
        best = reached + value * w
    return float(best.max())
