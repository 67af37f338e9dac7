"""Calibrated regression: a map in log-odds, checked by a ridge regression whose features include the answer itself."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import MAX_FEATURES, BiasAlong, Calibrator, require_length, require_probability
from state.calibrators.least_squares import LeastSquares
from state.calibrators.log_odds_map import LogOddsMap, weighted
from state.calibrators.options import Option, integer
from state.quick import new

_F8 = np.dtype("<f8")
_HEAD = Struct("<I3x")

#: Answers of the regression stay within [FLOOR, 1 - FLOOR].
FLOOR = 1e-9


class CalibratedRegression(Calibrator):
    """Serve a map of forecast and features in log-odds that is unbiased along every feature, on any sequence.

    ``features``: d, length of ``x``; a missing ``x`` counts as zeros.

    Notes
    -----
    There are two answers. A map (`LogOddsMap`) starts at the raw forecast, and is served while it is unbiased. A
    regression checks this, and its answer replaces the map's when that is biased. For f(ŷ) = (1, ŷ, p, x_1..x_d), p the
    raw forecast, all within [-1, 1] (other ``x`` are refused, because the bounds would be empty), with the *served* ŷ,
    A = I + Σ ff', B = Σ f (ŷ - y) and Φ = B'A^-1 B, every w has, by Cauchy and Schwarz,

        (Σ w·f (ŷ - y))² <= (‖w‖² + Σ (w·f)²) Φ.

    Rule: while Φ <= 1 + ln det A the map's answer is served. Above that, the answer of Foster and Kakade is served: a ŷ
    with ŷ = clip(θ·f(ŷ)), the one nearest the map's if there are several. θ is the ridge regression of y on f, shrunk
    to weight 1 on ŷ and 0 elsewhere. Then for prompt outcomes and every sequence

        Φ <= 2 + ln det A.

    Φ also equals Σ (ŷ - y)² minus the ridge loss of θ, the squared distance to the prior included.

    Proof: an outcome with r = ŷ - y, h = f·A^-1 B and q = f·A^-1 f moves Φ by r² - (r - h)² / (1 + q) <= r² <= 1
    (Sherman & Morrison), so by at most 1 while Φ <= 1 + ln det A. As A^-1 B = e_ŷ - θ, the rule's ŷ has h = 0, or ŷ = 0
    and h >= 0, or ŷ = 1 and h <= 0. So r h <= 0, and Φ moves by at most r² q / (1 + q) <= ln(1 + q), by which ln det A
    grows. The floor adds at most 2 `FLOOR` Λ, Λ the Lipschitz constant of h.

    With one feature's weight 1, |Σ f_i (ŷ - y)| <= sqrt((1 + Σ f_i²)(2 + ln det A)). So answers are unbiased on the
    events where a feature of 0 or 1 is 1; `biases` lists the biases. With w = e_ŷ - e_p, cumulative Brier regret to the
    raw forecast is at most Φ + 2 <= 4 + ln det A (the paper's constants are twice as large).

    The answer is deterministic, so its binned ECE has no bound. `error` is the bias of the constant, |Σ (ŷ - y)| / T.

    Updates of the regression commute up to rounding; the map's steps depend on their order. Ticket: ŷ, p, x (f64 each).
    Bytes, little-endian: d (u32), three bytes 0, then those of `LeastSquares`, n = d + 3, and those of `LogOddsMap`.

    References
    ----------
    Foster & Kakade, *Calibration via Regression*, Algorithm 2, Theorem 3.3, section IV, and of III.C only linear test
    functions. Corollary 3.2 there uses features outside the hypothesis of Theorem 2.1 (harmless).

    Examples
    --------
    >>> calibrator = CalibratedRegression(features=1)
    >>> for t in range(2000):
    ...     x = (1.0,) if t % 4 == 0 else (0.0,)
    ...     calibrator.update(calibrator.predict(0.5, x).ticket, t % 4 == 0)
    >>> round(calibrator.predict(0.5, (1.0,)).p, 1), round(calibrator.predict(0.5, (0.0,)).p, 1)
    (1.0, 0.0)
    >>> name, length, bias, bound = calibrator.biases(["night"])[3]
    >>> name, length, abs(bias) < bound < 0.3 * length
    ('night', 500.0, True)
    """

    name: ClassVar[str] = "calibrated_regression"
    keeps_features: bool = True
    options: ClassVar[dict[str, Option]] = {
        "features": integer(0, 0, MAX_FEATURES, "d, length of x; its components lie in [-1, 1]"),
    }

    def __init__(self, *, features: int = 0) -> None:
        self._zeros = (0.0,) * features
        self._ticket = Struct(f"<{features + 2}d")
        self._sums = LeastSquares(features + 3, prior=1)
        self._map = LogOddsMap(features)
        self._unbiased = True

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        """Serve the map's answer or a fixed point. Raises ValueError unless ``x`` has 0 or d components in [-1, 1]."""
        require_probability(p)
        x = x or self._zeros
        served = self._map.answer(p, x)
        if not self._unbiased:
            theta = self._sums.theta
            s = theta[1] + theta[3] * p + weighted(theta, 4, x, len(self._zeros))
            served = min(max(line_meets_answer(s, theta[2], served), FLOOR), 1.0 - FLOOR)
        return new(Answer, (served, served, self._ticket.pack(served, p, *x)))

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """Add the outcome's features and the answer that was issued; y in [0, 1]."""
        require_probability(y)
        sums = self._sums
        p, x = self._fill(ticket)
        sums.learn(y)
        self.learnt = sums.learnt
        self._map.learn(p, x, y)
        self._check()

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Replace an outcome; y in [0, 1].

        The regression ends as if y had been learnt at first, up to rounding. The map takes the difference of both steps
        at its present weights.
        """
        require_probability(y)
        p, x = self._fill(ticket)
        self._sums.relearn(was, y)
        self._map.relearn(p, x, was, y)
        self._check()

    def _check(self) -> None:
        """Decide whether the map's answers may be served."""
        self._unbiased = self.potential() <= 1.0 + self._sums.log_det

    def potential(self) -> float:
        """Return Φ = B'A^-1 B: (Σ w·f (ŷ - y))² <= Φ (‖w‖² + Σ (w·f)²) for all weights w."""
        return self._sums.loss_of(1) - self._sums.theta[0]

    def _fill(self, ticket: bytes) -> tuple[float, list[float]]:
        """Write a ticket's features, with the issued answer, into the regression's input; return p and x."""
        issued = np.frombuffer(ticket, _F8)
        self._sums.z[2:] = issued
        _, p, *x = issued.tolist()
        return p, x

    def features_in(self, ticket: bytes) -> Sequence[float]:
        return self._ticket.unpack(ticket)[2:]

    def encode(self) -> bytes:
        return _HEAD.pack(len(self._zeros)) + self._sums.encode() + self._map.encode()

    def decode(self, payload: bytes) -> None:
        require_length(payload, len(self.encode()))
        middle = _HEAD.size + len(self._sums.encode())
        self._sums.decode(payload[_HEAD.size : middle])
        self._map.decode(payload[middle:])
        self.learnt = self._sums.learnt
        self._check()

    def biases(self, features: Sequence[str] = ()) -> list[BiasAlong]:
        """Return the bias along every test function, with its bound; none before the first outcome.

        ``features``: names of the d features; ``x1`` and so on if not given.
        """
        if not self.learnt:
            return []
        features = features or [f"x{i + 1}" for i in range(len(self._zeros))]
        names = ["constant", "answer", "forecast", *features]
        lengths = np.diag(self._sums.a) - 1.0
        bounds = np.sqrt((1.0 + lengths) * self.potential_bound())
        columns = names, lengths.tolist(), self._bias().tolist(), bounds.tolist()
        return [BiasAlong(*row) for row in zip(*columns, strict=True)]

    def _bias(self) -> NDArray[np.float64]:
        """Return B = Σ f (ŷ - y), shape (n,). It follows from A and b, because ŷ is a feature."""
        bias: NDArray[np.float64] = self._sums.a[:, 1] - self._sums.b
        return bias

    def potential_bound(self) -> float:
        """Return the bound on `potential`, 2 + ln det A."""
        return 2.0 + self._sums.log_det

    def error(self) -> float | None:
        return abs(float(self._bias()[0])) / self.learnt if self.learnt else None

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the bound on `error`, at most 1; None before the first outcome.

        With delays it is multiplied by sqrt(1 + 2 outstanding), as for the bucketed calibrators. Here that factor is an
        allowance, not a theorem.
        """
        if not self.learnt:
            return None
        tested = math.sqrt((self.learnt + 1.0) * self.potential_bound())
        return min(1.0, tested * math.sqrt(1 + 2 * outstanding) / self.learnt)


def line_meets_answer(s: float, slope: float, p: float) -> float:
    """Return a ŷ in [0, 1] with ŷ = clip(slope ŷ + s); where there are several, the one nearest ``p``.

    If slack = 1 - slope is positive, it is unique. Otherwise, for s between slack and 0, all of 0, s / slack and 1 are
    fixed points (every point if slack = s = 0). ``clip(s / slack)`` alone is wrong there, and slopes above 1 do occur.
    """
    slack = 1.0 - slope
    if slack > 0.0:
        return 0.0 if s <= 0.0 else 1.0 if s >= slack else s / slack
    if s > 0.0:
        return 1.0
    if s < slack:
        return 0.0
    if slack == 0.0:
        return p
    return min((0.0, s / slack, 1.0), key=lambda fixed: abs(fixed - p))
