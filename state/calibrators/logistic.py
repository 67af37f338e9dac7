"""Shared by logistic maps: the clip of forecasts, the link function, and the ball in which parameters stay."""

import math
from collections.abc import Sequence
from typing import Final

from state.calibrators.options import integer
from state.odds import log_odds

#: Forecasts and answers are clipped to [1e-6, 1 - 1e-6]. Log-odds of 0 and 1 are infinite. Clipped, they stay below
#: 13.82, so that one certain but wrong forecast cannot fix the slope alone.
P_CLIP: Final = 1e-6
#: Parameters stay within this distance of the identity map. A slope of 11 turns .6 into .99; an intercept of 10 turns
#: 1e-5 into .2. On separable data the parameters would otherwise grow without end.
RADIUS: Final = 10.0
#: A step is 1/GAMMA Newton steps (Gupta & Ramdas use .1), so the map forgets as it learns, and follows drift.
GAMMA: Final = 0.1
#: Curvature before the first outcome. With .0025, as theory suggests for a ball of 100, the first steps overshoot, and
#: after 40,000 events the slope is still 56 (ECE .27; with 10 it is .0036).
CURVATURE: Final = 10.0
#: Outcomes after which the curvature of an outcome has halved.
HALFLIFE: Final = 5000

_LN2: Final = math.log(2.0)
Z_CLIP: Final = log_odds(P_CLIP)  # negative

OPTION: Final = integer(HALFLIFE, 0, 10**9, "outcomes after which one counts half; 0: none is ever forgotten")


def kept(halflife: int) -> float:
    """Return the factor by which each later outcome shrinks an outcome's weight; 1 for a halflife of 0 (never forget).

    Examples
    --------
    >>> round(kept(100) ** 100, 9), kept(0)
    (0.5, 1.0)
    """
    return 0.5 ** (1.0 / halflife) if halflife else 1.0


def sigmoid(v: float) -> float:
    """Return 1 / (1 + exp(-v)), v clipped to the log-odds of `P_CLIP`, so that exp never overflows."""
    return 1.0 / (1.0 + math.exp(-min(max(v, Z_CLIP), -Z_CLIP)))


def lacking(q: float, y: float) -> float:
    """Return the excess of |q - y| / 2 over q (1 - q), at least 0.

    A Newton step uses q (1 - q) as the curvature of an outcome y with forecast q. Both terms have the same mean if q is
    right. Where q is nearly 0 and many ones come, q (1 - q) is far too small, and steps overshoot.
    """
    return max(0.5 * abs(q - y) - q * (1.0 - q), 0.0)


def more_curved(q: float, was: float, y: float) -> float:
    """Return how much (q - y)² grows from the old label to the new one, at least 0."""
    return max((q - y) ** 2 - (q - was) ** 2, 0.0)


def newton(hh: float, hk: float, kk: float, gh: float, gk: float, gamma: float = 1.0) -> tuple[float, float]:
    """Return A^-1 g / γ, a Newton step in two coordinates.

    ``hh, hk, kk``: the curvature A = ((hh, hk), (hk, kk)), positive definite.
    ``gh, gk``: the gradient g.
    """
    scale = 1.0 / ((hh * kk - hk * hk) * gamma)
    return (kk * gh - hk * gk) * scale, (hh * gk - hk * gh) * scale


def proximal(v: float, reach: float, y: float) -> float:
    """Return the w with w = v + reach (y - s(w)): where a step from log-odds v ends if it uses the gradient at its end.

    A step by the gradient at its beginning may go far beyond what an outcome supports: a one at log-odds of -14 may
    move them up to +14. This step does not, whatever ``reach`` is.
    """
    low, high = (v, v + reach) if y > 0.5 else (v - reach, v)
    w = v
    for _ in range(60):
        q = sigmoid(w)
        miss = w - v - reach * (y - q)
        if miss > 0.0:
            high = w
        else:
            low = w
        following = w - miss / (1.0 + reach * q * (1.0 - q))
        if not low <= following <= high:
            following = 0.5 * (low + high)
        moved, w = following - w, following
        if -1e-9 < moved < 1e-9:
            break
    return w


def share_step(
    share: float, held: float, prior: float, v: float, r: float, y: float, halflife: float
) -> tuple[float, float]:
    """Return the updated share k in [0, 1] of a correction r, and its curvature, for a forecast s(v + k r).

    The update is a Newton step on the log loss.

    ``share, held``: k and its curvature before.
    ``prior``: weight of k = 0, as information.
    ``v, r``: log-odds without the correction, and the correction, both as issued.
    ``halflife``: information after which an outcome counts half.
    """
    q = sigmoid(v + share * r)
    information = q * (1.0 - q)
    fade = information * _LN2 / halflife
    curvature = held + fade * (prior - held) + information * r * r
    stepped = share - ((q - y) * r + fade * prior * share) / curvature
    return min(max(stepped, 0.0), 1.0), curvature


def project(curvature: Sequence[Sequence[float]], away: Sequence[float]) -> list[float]:
    """Return the point of the ball of `RADIUS` around 0 that is nearest to ``away`` in the norm of the curvature.

    The point is (A + m)^-1 A away, with the multiplier m that makes its length the radius. Newton's iteration on
    1/length finds m from below.

    ``curvature``: A, symmetric and positive definite, shape (n, n).
    ``away``: a point outside the ball, shape (n,).
    """
    target = [sum(map(float.__mul__, row, away)) for row in curvature]
    m = 0.0
    for _ in range(50):
        found = _solve(curvature, m, target)
        length = math.hypot(*found)
        if length <= RADIUS * (1.0 + 1e-9):
            break
        slope = sum(map(float.__mul__, found, _solve(curvature, m, found)))
        m += length * length / slope * (length / RADIUS - 1.0)
    shrink = RADIUS / max(length, RADIUS)
    return [each * shrink for each in found]


def _solve(matrix: Sequence[Sequence[float]], shift: float, right: Sequence[float]) -> list[float]:
    """Solve (matrix + shift I) u = right by elimination, without pivots because it is positive definite."""
    n = len(right)
    rows = [[*row, each] for row, each in zip(matrix, right, strict=True)]
    for i, pivot in enumerate(rows):
        pivot[i] += shift
    for i, pivot in enumerate(rows):
        for below in rows[i + 1 :]:
            ratio = below[i] / pivot[i]
            for k in range(i, n + 1):
                below[k] -= ratio * pivot[k]
    for i in reversed(range(n)):
        rows[i][n] = (rows[i][n] - sum(rows[i][k] * rows[k][n] for k in range(i + 1, n))) / rows[i][i]
    return [row[n] for row in rows]
