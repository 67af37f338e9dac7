"""Online beta scaling: a logistic map of ln p and ln(1 - p), learnt by online Newton steps."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import ClassVar, Final

from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import Calibrator, require_probability
from state.calibrators.logistic import (
    CURVATURE,
    GAMMA,
    HALFLIFE,
    OPTION,
    P_CLIP,
    RADIUS,
    kept,
    more_curved,
    project,
    sigmoid,
)
from state.calibrators.options import Option
from state.quick import new

_TICKET: Final = Struct("<d")


class Beta(Calibrator):
    """Serve sigmoid(a ln p - b ln(1 - p) + c): bends either end of the scale by itself, no theorem.

    ``halflife``: as in `Platt`.

    Notes
    -----
    `Platt` is the case a = b. The three parameters hold the map of every pair of beta distributed forecasts, one for
    each outcome, the identity (1, 1, 0) among them, where it starts. For an outcome y of a forecast p, with
    g = (sigmoid(...) - y) (ln p, -ln(1 - p), 1) taken at today's parameters, the step is that of `Platt` in three
    dimensions; g is never taken at the issued answer, for the reason given there.

    The map increases in p only where a and b are positive, which nothing enforces.

    Ticket: p, clipped to [1e-6, 1 - 1e-6] (f64). Bytes: outcomes learnt (u64), a, b, c, then the curvature A_aa, A_ab,
    A_ac, A_bb, A_bc, A_cc (f64), little-endian.

    References
    ----------
    Kull, Silva Filho & Flach 2017, *Beta calibration*, section 3; Gupta & Ramdas 2023, *Online Platt Scaling with
    Calibeating* (online beta scaling).

    Examples
    --------
    Low forecasts are right, high ones too high by .3:

    >>> calibrator = Beta()
    >>> for t in range(9000):
    ...     p = (0.1, 0.5, 0.9)[t % 3]
    ...     calibrator.update(calibrator.predict(p).ticket, t // 3 % 10 < (1, 5, 6)[t % 3])
    >>> [round(calibrator.predict(p).p, 1) for p in (0.1, 0.5, 0.9)]
    [0.1, 0.5, 0.6]
    """

    name: ClassVar[str] = "beta"
    options: ClassVar[dict[str, Option]] = {"halflife": OPTION}
    remembered: ClassVar[tuple[str, ...]] = (
        "learnt", "_a", "_b", "_c", "_aa", "_ab", "_ac", "_bb", "_bc", "_cc",
    )  # fmt: skip
    layout: ClassVar[Struct] = Struct("<Q9d")

    def __init__(self, *, halflife: int = HALFLIFE) -> None:
        self.learnt = 0
        self._kept = kept(halflife)
        self._renewed = CURVATURE * (1.0 - self._kept)
        self._a, self._b, self._c = 1.0, 1.0, 0.0
        self._aa, self._ab, self._ac = CURVATURE, 0.0, 0.0
        self._bb, self._bc, self._cc = CURVATURE, 0.0, CURVATURE

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        """Serve the map's value at ``p``; see `Calibrator.predict`."""
        require_probability(p)
        p = min(max(p, P_CLIP), 1.0 - P_CLIP)
        served = sigmoid(self._a * math.log(p) - self._b * math.log1p(-p) + self._c)
        return new(Answer, (served, served, _TICKET.pack(p)))

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """Take one online Newton step; y in [0, 1]."""
        require_probability(y)
        (p,) = _TICKET.unpack(ticket)
        u, v = math.log(p), -math.log1p(-p)
        gc = sigmoid(self._a * u + self._b * v + self._c) - y
        ga, gb = gc * u, gc * v
        keep, renewed = self._kept, self._renewed
        self._aa = keep * self._aa + renewed + ga * ga
        self._ab = keep * self._ab + ga * gb
        self._ac = keep * self._ac + ga * gc
        self._bb = keep * self._bb + renewed + gb * gb
        self._bc = keep * self._bc + gb * gc
        self._cc = keep * self._cc + renewed + gc * gc
        self._step(ga, gb, gc)
        self.learnt += 1

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Take one Newton step by what the gradients of the two labels differ, see `Platt.revise`; y in [0, 1]."""
        require_probability(y)
        (p,) = _TICKET.unpack(ticket)
        u, v = math.log(p), -math.log1p(-p)
        more = more_curved(sigmoid(self._a * u + self._b * v + self._c), was, y)
        self._aa += more * u * u
        self._ab += more * u * v
        self._ac += more * u
        self._bb += more * v * v
        self._bc += more * v
        self._cc += more
        off = GAMMA * (was - y)
        self._step(off * u, off * v, off)

    def _step(self, ga: float, gb: float, gc: float) -> None:
        """Move (a, b, c) by -A^-1 g / GAMMA, and back into the ball."""
        aa, ab, ac, bb, bc, cc = self._aa, self._ab, self._ac, self._bb, self._bc, self._cc
        # A = L D L' and A step = g / GAMMA; no pivot is below CURVATURE, for no eigenvalue of A is.
        ba, ca = ab / aa, ac / aa
        second = bb - ba * ab
        cb = (bc - ba * ac) / second
        gb -= ba * ga
        gc -= ca * ga + cb * gb
        sc = gc / (cc - ca * ac - cb * cb * second)
        sb = gb / second - cb * sc
        self._a -= (ga / aa - ba * sb - ca * sc) / GAMMA
        self._b -= sb / GAMMA
        self._c -= sc / GAMMA
        if (self._a - 1.0) ** 2 + (self._b - 1.0) ** 2 + self._c**2 > RADIUS**2:
            curvature = ((aa, ab, ac), (ab, bb, bc), (ac, bc, cc))
            da, db, self._c = project(curvature, (self._a - 1.0, self._b - 1.0, self._c))
            self._a, self._b = 1.0 + da, 1.0 + db
