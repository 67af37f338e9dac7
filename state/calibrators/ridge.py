"""Online ridge regression on the forecast and the features: accurate in the mean, not calibrated."""

from collections.abc import Sequence
from struct import Struct
from typing import ClassVar

import numpy as np

from state.calibrators.answer import Answer, Prediction, new
from state.calibrators.base import MAX_FEATURES, Calibrator, require_probability
from state.calibrators.least_squares import LeastSquares
from state.calibrators.options import Integer, Option

_F8 = np.dtype("<f8")


class Ridge(Calibrator):
    """Serve clip(θ·f), θ the ridge regression of the outcomes so far: no linear map of the features does much better.

    Parameters
    ----------
    features
        d, length of ``x``; a missing ``x`` counts as zeros.
    name, seed
        Unused: nothing is drawn.

    Notes
    -----
    f = (1, p, x_1..x_d), p the raw forecast, all within [-1, 1]: outside, the regret need not be sublinear, so such
    ``x`` is refused. With A = I + Σ ff' and b = Σ yf,

        θ = argmin Σ (θ·f - y)² + ‖θ‖² = A^-1 b,   ŷ = clip(θ·f),

    and after T outcomes, for all θ and any sequence, Σ (ŷ - y)² <= Σ (θ·f - y)² + ‖θ‖² + ln det A, where
    ln det A <= (d + 2) ln(1 + T). So the cumulative Brier regret to the raw forecast is at most 1 + ln det A
    (`regret_bound`).

    No bias is bounded: T/2 zeros and then T/2 ones are served with a bias of T (ln 2)/2 (footnote 1 of the paper).
    `CalibratedRegression` is the same regression with its own answer among the features, which mends that.

    Updates commute up to rounding, not bit for bit. Ticket: p, x (f64 each). Bytes: those of `LeastSquares`, n = d + 2.

    References
    ----------
    Foster & Kakade, *Calibration via Regression*, Algorithm 1 and Theorem 2.1, whose 2 n ln(T + 1) is twice as large;
    Azoury & Warmuth 2001, *Relative loss bounds for on-line density estimation with the exponential family of
    distributions*, Theorem 4.6.

    Examples
    --------
    >>> calibrator = Ridge(features=1)
    >>> for t in range(2000):
    ...     x = (1.0,) if t % 4 == 0 else (0.0,)
    ...     calibrator.update(calibrator.predict(0.5, x).ticket, t % 4 == 0)
    >>> round(calibrator.predict(0.5, (1.0,)).p, 1), round(calibrator.predict(0.5, (0.0,)).p, 1)
    (1.0, 0.0)
    """

    name: ClassVar[str] = "ridge"
    options: ClassVar[dict[str, Option]] = {
        "features": Integer(0, 0, MAX_FEATURES, "d, length of x; its components lie in [-1, 1]"),
    }

    def __init__(self, *, features: int = 0, name: str = "", seed: int = 0) -> None:
        self._zeros = (0.0,) * features
        self._ticket = Struct(f"<{features + 1}d")
        self._sums = LeastSquares(features + 2)

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        """Serve the regression's value; ValueError if ``x`` has neither 0 nor d components or leaves [-1, 1]."""
        require_probability(p)
        x = x or self._zeros
        theta = self._sums.theta
        s = theta[1] + theta[2] * p + weighted(theta, 3, x, len(self._zeros))
        served = min(max(s, 0.0), 1.0)
        return new(Answer, (served, served, self._ticket.pack(p, *x)))

    def update(self, ticket: bytes, y: float) -> None:
        """Add the outcome's features; y in [0, 1]."""
        require_probability(y)
        self._sums.z[2:] = np.frombuffer(ticket, _F8)
        self._sums.learn(y)
        self.learnt = self._sums.learnt

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Replace the outcome of the features of a ticket, but for rounding as if it had been y; y in [0, 1]."""
        require_probability(y)
        self._sums.z[2:] = np.frombuffer(ticket, _F8)
        self._sums.relearn(was, y)

    def encode(self) -> bytes:
        """Return the state; layout in the class's notes."""
        return self._sums.encode()

    def decode(self, payload: bytes) -> None:
        """Take over a state written by `encode`; ValueError if it is of another d."""
        self._sums.decode(payload)
        self.learnt = self._sums.learnt

    def regret_bound(self) -> float:
        """Return the bound on the cumulative Brier score less that of the raw forecast, 1 + ln det A."""
        return 1.0 + self._sums.log_det


def weighted(theta: Sequence[float], start: int, x: Sequence[float], d: int) -> float:
    """Return Σ θ_{start+i} x_i; ValueError unless ``x`` has d components, all in [-1, 1]."""
    if len(x) != d:
        raise ValueError(f"x must have {d} components, got {len(x)}")
    s = 0.0
    for weight, value in zip(theta[start : start + d], x, strict=True):
        if not -1.0 <= value <= 1.0:
            raise ValueError(f"features must be in [-1, 1], got {value!r}: outside, no bound holds")
        s += weight * value
    return s
