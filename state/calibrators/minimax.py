"""The minimax forecaster of Roth's Lecture 20, in its closed form."""

import math
from typing import ClassVar

from state.calibrators.bucketed import CountingBuckets


class Minimax(CountingBuckets):
    """Draw one of two neighbouring grid points so that their errors cancel: calibrated on any sequence of outcomes.

    The field is the error itself, ``V_i = s_i - n_i g_i``. Options and state: `Bucketed`.

    Notes
    -----
    In one bucket, with L = Σ V_i², h the widest gap between neighbours that were played (1/N on an even grid) and L*
    the expected increase of L:

        L* <= 1 + 2 h |V_i| |V_{i+1}| / (|V_i| + |V_{i+1}|) <= 1 + h sqrt(L / 2),

    so E L_T <= a_T, a_t = a_{t-1} + 1 + sqrt(a_{t-1}) h / sqrt(2), and Σ|V_i| <= sqrt(K L) with K points touched. Late
    outcomes: since its play, the field has moved by at most 1 for each other outcome. That adds twice their number, so
    a_0 = 2 Σ delays is enough. The rule of adjacent points attains the bound on L*. It is not the optimum of the
    lecture's linear program, which mixes far points and is worse in practice. For T to infinity the bound on the error
    tends to sqrt(K) h / (2 sqrt(2)), not to 0.

    References
    ----------
    Roth 2021, *Lecture 20: Calibrated Prediction*, Theorem 4 and Algorithm 1. Definition 1 there lacks 1/T, and m and T
    are conflated.

    Examples
    --------
    An adversary whose outcome is always the other side of the expected forecast makes any deterministic method wrong by
    .5:

    >>> calibrator = Minimax(buckets=1, grid=20, spacing="uniform")
    >>> for t in range(5000):
    ...     expected, _, ticket = calibrator.predict(0.5, key=str(t).encode())
    ...     calibrator.update(ticket, expected <= 0.5)
    >>> calibrator.error() < calibrator.bound() < 0.15
    True
    """

    name: ClassVar[str] = "minimax"

    def field(self, i: int, n: int, s: int) -> int:
        """Return V_i in units of 1/denominator."""
        return s * self._grid.denominator - n * self._grid.numerators[i]

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the bound of the class's notes, at most 1; None before the first outcome.

        The ratio of error to bound is at most 1 in expectation.
        """
        return min(1.0, self._within(length, outstanding)) if self.learnt else None


def length(t: int, cells: int, h: float, late: int) -> float:  # noqa: ARG001 - of any number of cells
    """Return sqrt(a_t) for a_t = a_{t-1} + 1 + 2 κ sqrt(a_{t-1}), a_0 = 2 late, κ = h / (2 sqrt(2)), from above.

    a' = 1 + 2 κ sqrt(a) is convex, so its solution lies on or above the recursion. With x = 2 κ sqrt(a) and F(x) = x -
    log(1 + x) it reads F(x_t) = F(x_0) + 2 κ² t. F is convex, and x_0 + r + sqrt(2 r) with r = 2 κ² t is above the
    solution, so Newton's iteration solves it from above in a few steps.
    """
    if h == 0.0:
        return math.sqrt(t + 2 * late)
    kappa = h / (2.0 * math.sqrt(2.0))
    first = 2.0 * kappa * math.sqrt(2.0 * late)
    r = 2.0 * kappa * kappa * t
    goal = first - math.log1p(first) + r
    x = first + r + math.sqrt(2.0 * r)
    for _ in range(50):
        step = (x - math.log1p(x) - goal) * (1.0 + x) / x
        x -= step
        if abs(step) <= 1e-12 * x:
            break
    return x / (2.0 * kappa)
