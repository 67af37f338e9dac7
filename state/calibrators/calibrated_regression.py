"""Calibrated regression: ridge on features that include the answer itself."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from state.calibrators.base import MAX_FEATURES, Prediction, require_length, require_probability
from state.calibrators.options import Integer, Option

_HEAD = Struct("<QId")

#: Updates between rebuilds of the inverse: Sherman-Morrison on features in [-1, 1] loses far less than 1e-6 in as many.
REBUILD = 100_000


class CalibratedRegression:
    """Serve a fixed point of a ridge regression on its own answer: unbiased along every feature, on any sequence.

    Parameters
    ----------
    features
        d, length of ``x``; a missing ``x`` counts as zeros.
    name, seed
        Unused: nothing is drawn.

    Notes
    -----
    Test functions f(ŷ) = (ŷ, 1, p, x_1..x_d), p the raw forecast, all within [-1, 1]: outside, the bounds fail, so such
    ``x`` is refused. State A = I + Σ f f', b = Σ y f, both with the *issued* ŷ, and θ = A^-1 b. Served is a ŷ with
    ŷ = clip(θ·f(ŷ)), see `fixed_point`. After T outcomes, for every feature and every sequence,

        |Σ f_i (ŷ - y)| <= sqrt((1 + Σ f_i²) (1 + ln det A)),

    and cumulative Brier regret to the raw forecast is at most 1 + ln det A (the paper's constants are twice as large).
    The answer is deterministic, so it is *smoothly* calibrated; its binned ECE can be anything, and `error` and `bound`
    are those of the constant feature, |Σ (ŷ - y)| / T, not an ℓ1 calibration error. `bias` and `bias_bound` give all.

    Updates commute up to rounding, not bit for bit. Ticket: ŷ, p, x (f64 each). Bytes, little-endian: outcomes learnt
    (u64), d (u32), ln det A (f64), then A, its working inverse (n x n) and b (n), n = d + 3, rows first (f64).

    References
    ----------
    Foster & Kakade, *Calibration via Regression*, Algorithm 2, Theorem 3.3 and section IV. Corollary 3.2 there uses
    features outside the hypothesis of Theorem 2.1 (harmless).

    Examples
    --------
    >>> calibrator = CalibratedRegression(features=1)
    >>> for t in range(2000):
    ...     x = (1.0,) if t % 4 == 0 else (0.0,)
    ...     calibrator.update(calibrator.predict(0.5, x).ticket, t % 4 == 0)
    >>> round(calibrator.predict(0.5, (1.0,)).p, 1), round(calibrator.predict(0.5, (0.0,)).p, 1)
    (1.0, 0.0)
    """

    name: ClassVar[str] = "calibrated_regression"
    order_free: ClassVar[bool] = False
    options: ClassVar[dict[str, Option]] = {
        "features": Integer(0, 0, MAX_FEATURES, "d, length of x; its components lie in [-1, 1]"),
    }

    def __init__(self, *, features: int = 0, name: str = "", seed: int = 0) -> None:  # noqa: ARG002 - draws nothing
        n = features + 3
        self.learnt = 0
        self._d = features
        self._zeros = (0.0,) * features
        self._ticket = Struct(f"<{features + 2}d")
        self._a = np.eye(n)
        self._inverse = np.eye(n)
        self._b = np.zeros(n)
        self._log_det = 0.0
        self._theta: list[float] = [0.0] * n
        self._f = np.ones(n)
        self._f_column = self._f[:, None]
        self._g = np.empty(n)
        self._g_column = self._g[:, None]
        self._outer = np.empty((n, n))

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"") -> Prediction:  # noqa: ARG002 - draws nothing
        """Serve a fixed point; ValueError if ``x`` has neither 0 nor d components or leaves [-1, 1]."""
        require_probability(p)
        x = x or self._zeros
        if len(x) != self._d:
            raise ValueError(f"x must have {self._d} components, got {len(x)}")
        theta = self._theta
        s = theta[1] + theta[2] * p
        for weight, value in zip(theta[3:], x, strict=True):
            if not -1.0 <= value <= 1.0:
                raise ValueError(f"features must be in [-1, 1], got {value!r}: outside, no bound holds")
            s += weight * value
        served = fixed_point(theta[0], s, p)
        return Prediction(served, served, self._ticket.pack(served, p, *x))

    def update(self, ticket: bytes, y: float) -> None:
        """Add the outcome's features, with the answer that was issued; y in [0, 1]."""
        require_probability(y)
        issued = np.frombuffer(ticket, "<f8")
        f, g = self._f, self._g
        f[0] = issued[0]
        f[2:] = issued[1:]
        np.dot(self._inverse, f, out=g)
        q = float(g.dot(f))
        if not q >= 0.0 or self.learnt % REBUILD == REBUILD - 1:
            self._rebuild()
            np.dot(self._inverse, f, out=g)
            q = float(g.dot(f))
        self._log_det += math.log1p(q)
        np.multiply(self._f_column, f, out=self._outer)
        self._a += self._outer
        g *= 1.0 / math.sqrt(1.0 + q)  # before the product, which then is symmetric to the last bit
        np.multiply(self._g_column, g, out=self._outer)
        self._inverse -= self._outer
        if y:
            self._b += f if y == 1.0 else y * f
        self._theta = self._inverse.dot(self._b).tolist()
        self.learnt += 1

    def _rebuild(self) -> None:
        """Compute the inverse and ln det A from A by Cholesky; A >= I, so it exists."""
        lower = np.linalg.cholesky(self._a)
        half = np.linalg.solve(lower, np.eye(len(self._b)))
        np.dot(half.T, half, out=self._inverse)
        self._log_det = 2.0 * float(np.log(np.diag(lower)).sum())

    def encode(self) -> bytes:
        """Return the state, the working inverse included; layout in the class's notes."""
        parts = (self._a, self._inverse, self._b)
        head = _HEAD.pack(self.learnt, self._d, self._log_det)
        return head + b"".join(part.astype("<f8").tobytes() for part in parts)

    def decode(self, payload: bytes) -> None:
        """Take over a state written by `encode`; ValueError if it is of another d."""
        n = self._d + 3
        require_length(payload, _HEAD.size + 8 * (2 * n * n + n))
        learnt, d, log_det = _HEAD.unpack_from(payload)
        if d != self._d:
            raise ValueError(f"state of features={d} does not fit {self._d}")
        values = np.frombuffer(payload, "<f8", offset=_HEAD.size).astype(float)
        self.learnt, self._log_det = learnt, log_det
        self._a = values[: n * n].reshape(n, n).copy()
        self._inverse = values[n * n : 2 * n * n].reshape(n, n).copy()
        self._b = values[2 * n * n :].copy()
        self._theta = self._inverse.dot(self._b).tolist()

    def bias(self) -> NDArray[np.float64]:
        """Return Σ f_i (ŷ - y) for each feature, shape (d + 3,): read off A and b, because ŷ is a feature."""
        bias: NDArray[np.float64] = self._a[:, 0] - self._b
        bias[0] -= 1.0
        return bias

    def bias_bound(self) -> NDArray[np.float64]:
        """Return the bound on each |`bias`|, shape (d + 3,)."""
        bound: NDArray[np.float64] = np.sqrt(np.diag(self._a) * (1.0 + self._log_det))
        return bound

    def error(self) -> float | None:
        """Return |Σ (ŷ - y)| / T, the bias along the constant feature; None before the first outcome."""
        return abs(float(self.bias()[1])) / self.learnt if self.learnt else None

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the bound on `error`, times sqrt(1 + 2 outstanding), at most 1; None before the first outcome.

        The factor is the bucketed calibrators' and an allowance here, not a theorem: without delay the bound is one.
        """
        if not self.learnt:
            return None
        return min(1.0, float(self.bias_bound()[1]) * math.sqrt(1 + 2 * outstanding) / self.learnt)


def fixed_point(theta_0: float, s: float, p: float) -> float:
    """Return a ŷ in [0, 1] with ŷ = clip(theta_0 ŷ + s); where there are several, the one nearest ``p``.

    With slack = 1 - theta_0 positive it is unique. Otherwise, for s between slack and 0, all of 0, s / slack and 1 are
    fixed points (and for slack = s = 0 every point); ``clip(s / slack)`` alone is wrong there and beyond, and
    theta_0 > 1 does occur.
    """
    slack = 1.0 - theta_0
    if slack > 0.0:
        return 0.0 if s <= 0.0 else 1.0 if s >= slack else s / slack
    if s > 0.0:
        return 1.0
    if s < slack:
        return 0.0
    if slack == 0.0:
        return p
    return min((0.0, s / slack, 1.0), key=lambda fixed: abs(fixed - p))
