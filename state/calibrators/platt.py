"""Online Platt scaling: a logistic map of the forecast's log-odds, learnt by online Newton steps."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import ClassVar

from state.calibrators.base import Prediction, new, require_length, require_probability
from state.calibrators.options import Option

_TICKET = Struct("<dd")
_STATE = Struct("<Qddddd")

#: Forecasts are read, and answers served, within [1e-6, 1 - 1e-6]. Log-odds of exactly 0 or 1 are infinite; clipped
#: here they stay below 13.82, so that one wrong certainty cannot fix the slope alone.
P_CLIP = 1e-6
#: Parameters stay within this distance of (slope 1, intercept 0). A slope of 11 turns .6 into .99 and an intercept
#: of 10 turns 1e-5 into .2; beyond lies separable data, on which the map would otherwise run away.
RADIUS = 10.0
#: A step is 1/GAMMA Newton steps (Gupta & Ramdas use .1): the map forgets as it learns, and follows drift.
GAMMA = 0.1
#: Curvature before the first outcome. With .0025, as the theory of the step would have it in a ball of 100, the
#: first steps overshoot and the slope is still 56 after 40,000 events (ECE .27; with 10, .0036).
CURVATURE = 10.0

_Z_CLIP = math.log(P_CLIP) - math.log1p(-P_CLIP)  # negative


class Platt:
    """Serve sigmoid(a z + b), z the log-odds of the raw forecast: accurate on benign streams, no theorem.

    Notes
    -----
    For an outcome y of a forecast with log-odds z, with g = (sigmoid(a z + b) - y) (z, 1):

        A <- A + g g',   (a, b) <- project((a, b) - A^-1 g / GAMMA)

    onto the ball of `RADIUS` around (1, 0), in the norm of A as the online Newton step requires.

    g is taken at *today's* a and b for the ticket's z, not at the issued p. Under label delay the issued errors of a
    whole delay all ask for the same correction, and each gets it in full. Measured on 40,000 events, 2,000 of them
    outstanding, forecasts overconfident twofold: ECE .174, Brier .307 at the issued p; .0092, .1778 at today's
    parameters (.0036, .1767 without delay). The learning is then that of the undelayed stream in order of arrival.

    Ticket: z and the issued p (f64 each). Bytes: outcomes learnt (u64), a, b, A_zz, A_z1, A_11 (f64), little-endian.

    References
    ----------
    Gupta & Ramdas 2023, *Online Platt Scaling with Calibeating*, section 2; Hazan, Agarwal & Kale 2007, *Logarithmic
    regret algorithms for online convex optimization*, figure 2.

    Examples
    --------
    >>> calibrator = Platt()
    >>> for t in range(4000):
    ...     calibrator.update(calibrator.predict(0.9).ticket, t % 5 < 3)
    >>> round(calibrator.predict(0.9).p, 1)
    0.6
    """

    name: ClassVar[str] = "platt"
    order_free: ClassVar[bool] = False
    options: ClassVar[dict[str, Option]] = {}

    def __init__(self, *, name: str = "", seed: int = 0) -> None:  # noqa: ARG002 - draws nothing
        self.learnt = 0
        self._a, self._b = 1.0, 0.0
        self._zz, self._z1, self._11 = CURVATURE, 0.0, CURVATURE

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"") -> Prediction:  # noqa: ARG002 - draws nothing
        """Serve the map's value at ``p``; see `Calibrator.predict`."""
        require_probability(p)
        p = min(max(p, P_CLIP), 1.0 - P_CLIP)
        z = math.log(p) - math.log1p(-p)
        served = _sigmoid(self._a * z + self._b)
        return new(Prediction, (served, served, _TICKET.pack(z, served)))

    def update(self, ticket: bytes, y: float) -> None:
        """Take one online Newton step; y in [0, 1]."""
        require_probability(y)
        z, _ = _TICKET.unpack(ticket)
        g1 = _sigmoid(self._a * z + self._b) - y
        gz = g1 * z
        zz = self._zz = self._zz + gz * gz
        z1 = self._z1 = self._z1 + gz * g1
        oo = self._11 = self._11 + g1 * g1
        # The determinant is at least CURVATURE * (zz + oo) / 2, far above the rounding of its terms for 1e9 updates.
        scale = 1.0 / ((zz * oo - z1 * z1) * GAMMA)
        self._a -= (oo * gz - z1 * g1) * scale
        self._b -= (zz * g1 - z1 * gz) * scale
        if (self._a - 1.0) ** 2 + self._b**2 > RADIUS**2:
            self._project()
        self.learnt += 1

    def _project(self) -> None:
        """Move (a, b) to the nearest point of the ball in the norm of A.

        It is centre + (A + m)^-1 A d for the d = (a - 1, b) outside, with the multiplier m at which its length is the
        radius; Newton's iteration on 1/length climbs to m from below.
        """
        zz, z1, oo = self._zz, self._z1, self._11
        da, db = self._a - 1.0, self._b
        ta, tb = zz * da + z1 * db, z1 * da + oo * db
        m = 0.0
        for _ in range(50):
            mzz, moo = zz + m, oo + m
            det = mzz * moo - z1 * z1
            ua, ub = (moo * ta - z1 * tb) / det, (mzz * tb - z1 * ta) / det
            length = math.hypot(ua, ub)
            if length <= RADIUS * (1.0 + 1e-9):
                break
            slope = (moo * ua * ua - 2.0 * z1 * ua * ub + mzz * ub * ub) / det
            m += length * length / slope * (length / RADIUS - 1.0)
        shrink = RADIUS / max(length, RADIUS)
        self._a, self._b = 1.0 + ua * shrink, ub * shrink

    def encode(self) -> bytes:
        """Return the state; layout in the class's notes."""
        return _STATE.pack(self.learnt, self._a, self._b, self._zz, self._z1, self._11)

    def decode(self, payload: bytes) -> None:
        """Take over a state written by `encode`."""
        require_length(payload, _STATE.size)
        self.learnt, self._a, self._b, self._zz, self._z1, self._11 = _STATE.unpack(payload)

    def error(self) -> float | None:
        """Return None: what is served is not confined to a grid, so its ℓ1 calibration error is not defined."""
        return None

    def bound(self, outstanding: int = 0) -> float | None:  # noqa: ARG002 - no theorem
        """Return None: an opponent can make any deterministic calibrator wrong by .5."""
        return None


def _sigmoid(v: float) -> float:
    """Return 1 / (1 + exp(-v)), v clipped to the log-odds of `P_CLIP`, so that exp never overflows."""
    return 1.0 / (1.0 + math.exp(-min(max(v, _Z_CLIP), -_Z_CLIP)))
