"""Online Platt scaling: a logistic map of the forecast's log-odds, learnt by online Newton steps."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import ClassVar, Final

from state.calibrators import logistic
from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import Calibrator, require_probability
from state.calibrators.options import Option
from state.quick import new

_TICKET: Final = Struct("<dd")


class Platt(Calibrator):
    """Serve sigmoid(a z + b), z the log-odds of the raw forecast. It is accurate on benign streams and has no theorem.

    ``halflife``: outcomes after which the curvature of one has halved. 0: it never shrinks, so steps become ever
    smaller.

    Notes
    -----
    For an outcome y of a forecast with log-odds z, with g = (sigmoid(a z + b) - y) (z, 1) and λ = 2^(-1 / halflife):

        A <- λ A + (1 - λ) CURVATURE I + g g',   (a, b) <- project((a, b) - A^-1 g / GAMMA)

    onto the ball of `RADIUS` around (1, 0), in the norm of A as the online Newton step requires. λ = 1 is the step of
    the papers, whose rate falls as 1/t. With λ < 1 the rate stays above about 10 / halflife of a Newton step, so the
    map follows drift even after years. On steady forecasts that costs .0001 Brier (20,000 events, halflife 5000); on
    seasons, switches and ramps it gains up to .0076.

    g is taken at *today's* a and b for the ticket's z, not at the issued p. With late labels, all errors within one
    delay ask for the same correction, and each would get it in full. At today's parameters the map learns as from an
    undelayed stream in order of arrival. Brier score of 20,000 steady forecasts, twice too confident, with 2,000
    outstanding: .1760 with today's parameters; .3480 with g at the issued p; .1889 with this g divided by 1 plus the
    outcomes learnt since the issue.

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
    options: ClassVar[dict[str, Option]] = {"halflife": logistic.OPTION}
    remembered: ClassVar[tuple[str, ...]] = ("learnt", "_a", "_b", "_zz", "_z1", "_11")
    layout: ClassVar[Struct] = Struct("<Qddddd")

    def __init__(self, *, halflife: int = logistic.HALFLIFE) -> None:
        self.learnt = 0
        self._kept = logistic.kept(halflife)
        self._renewed = logistic.CURVATURE * (1.0 - self._kept)
        self._a, self._b = 1.0, 0.0
        self._zz, self._z1, self._11 = logistic.CURVATURE, 0.0, logistic.CURVATURE

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        require_probability(p)
        p = min(max(p, logistic.P_CLIP), 1.0 - logistic.P_CLIP)
        z = math.log(p) - math.log1p(-p)
        served = logistic.sigmoid(self._a * z + self._b)
        return new(Answer, (served, served, _TICKET.pack(z, served)))

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        require_probability(y)
        z, _ = _TICKET.unpack(ticket)
        g1 = logistic.sigmoid(self._a * z + self._b) - y
        gz = g1 * z
        keep, renewed = self._kept, self._renewed
        zz = self._zz = keep * self._zz + renewed + gz * gz
        z1 = self._z1 = keep * self._z1 + gz * g1
        oo = self._11 = keep * self._11 + renewed + g1 * g1
        # The determinant is at least CURVATURE * (zz + oo) / 2, far above the rounding errors of 1e9 updates.
        da, db = logistic.newton(zz, z1, oo, gz, g1, logistic.GAMMA)
        self._a -= da
        self._b -= db
        if (self._a - 1.0) ** 2 + self._b**2 > logistic.RADIUS**2:
            self._project()
        self.learnt += 1

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Take one Newton step by the difference of the gradients at both labels; y in [0, 1].

        The curvature grows by the growth of the squared gradient, at today's parameters. It takes one step, not the 1 /
        GAMMA steps of `update`. Most of those are forgotten when a revision comes, and many zeros revised to ones would
        end at p = 1.
        """
        require_probability(y)
        z, _ = _TICKET.unpack(ticket)
        g1 = was - y
        gz = g1 * z
        more = logistic.more_curved(logistic.sigmoid(self._a * z + self._b), was, y)
        zz = self._zz = self._zz + more * z * z
        z1 = self._z1 = self._z1 + more * z
        oo = self._11 = self._11 + more
        da, db = logistic.newton(zz, z1, oo, gz, g1)
        self._a -= da
        self._b -= db
        if (self._a - 1.0) ** 2 + self._b**2 > logistic.RADIUS**2:
            self._project()

    def _project(self) -> None:
        curvature = ((self._zz, self._z1), (self._z1, self._11))
        da, self._b = logistic.project(curvature, (self._a - 1.0, self._b))
        self._a = 1.0 + da
