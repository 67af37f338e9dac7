"""Calibrated regression: a map in log-odds, and behind it ridge on features that include the answer itself."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from state.calibrators.answer import Answer, Prediction, new
from state.calibrators.base import MAX_FEATURES, MOST_SLOTS, Bias, Calibrator, require_head, require_probability
from state.calibrators.functions import MOST, Functions, Growing, Hats, Linear, Polynomial
from state.calibrators.least_squares import LeastSquares
from state.calibrators.log_odds_map import LogOddsMap
from state.calibrators.options import Choice, Integer, Option
from state.calibrators.ridge import weighted

_F8 = np.dtype("<f8")
_HEAD = Struct("<IBH")

#: Of the state. Version 1 had no map in log-odds; its states are refused.
VERSION = 2
#: The regression's answers are served within [FLOOR, 1 - FLOOR].
FLOOR = 1e-9

FUNCTIONS = ("linear", "polynomial", "hats", "growing", "growing_by_feature")


class CalibratedRegression(Calibrator):
    """Serve a map of forecast and features in log-odds, unbiased along every feature on any sequence.

    Parameters
    ----------
    features
        d, length of ``x``; a missing ``x`` counts as zeros.
    functions
        The test functions φ of the answer. ``linear``: none but itself. ``polynomial``: its powers to ``degree``.
        ``hats``: hat functions on ``knots`` equal cells. ``growing``: hat functions on a mesh that is halved as
        outcomes come in, to ``knots`` cells (rounded down to a power of two). ``growing_by_feature``: those, and for
        each feature the like times the feature, for calibration on every subsequence.
    degree
        Of the polynomial.
    knots
        Cells of the finest mesh.
    name, seed
        Unused: nothing is drawn.

    Notes
    -----
    Two answers are at hand. The map's (`LogOddsMap`) starts at the raw forecast and is served while it is unbiased. A
    regression checks it and takes over where it is not. For f(ŷ) = (1, ŷ, p, x_1..x_d, φ(ŷ)), p the raw forecast, all
    within [-1, 1] (outside, the bounds hold and say nothing, so such ``x`` is refused), with the *served* ŷ, A = I +
    Σ ff', B = Σ f (ŷ - y) and Φ = B'A^-1 B, every w has, by Cauchy and Schwarz,

        (Σ w·f (ŷ - y))² <= (‖w‖² + Σ (w·f)²) Φ.

    Rule: while Φ <= 1 + ln det A the map's answer is served. Above, Foster and Kakade's: a ŷ with ŷ = clip(θ·f(ŷ)), θ
    the ridge regression of y on f that is drawn to the answer itself, weight 1 on ŷ and 0 on all else. Where there
    are several, it is one near the map's. Then for prompt outcomes and every sequence

        Φ <= 2 + ln det A.

    Φ is also Σ (ŷ - y)² less the regression's loss, that of θ and its distance to the prior together.

    Proof: an outcome with r = ŷ - y, h = f·A^-1 B and q = f·A^-1 f moves Φ by r² - (r - h)² / (1 + q) <= r² <= 1
    (Sherman & Morrison), so by at most 1 while Φ <= 1 + ln det A. As A^-1 B = e_ŷ - θ, the rule's ŷ has h = 0, or ŷ =
    0 and h >= 0, or ŷ = 1 and h <= 0. So r h <= 0, and Φ moves by r² q / (1 + q) <= ln(1 + q) at most, which is what
    ln det A moves by. The floor adds to it 2 `FLOOR` Λ at most, Λ the Lipschitz constant of h.

    With one feature's weight 1, |Σ f_i (ŷ - y)| <= sqrt((1 + Σ f_i²)(2 + ln det A)). So a feature that is 0 or 1
    marks a subsequence on which the answers are unbiased; `biases` lists them. With w = e_ŷ - e_p, cumulative Brier
    regret to the raw forecast is at most Φ + 2 <= 4 + ln det A, `regret_bound` (the paper's constants are twice as
    large).

    The answer is deterministic, so it is *smoothly* calibrated and its binned ECE can be anything. With hat functions,
    `error` is the smooth calibration error on the knots, sup Σ w(ŷ)(ŷ - y) / T over 1-Lipschitz |w| <= 1, and `bound`
    bounds it. Off the knots add half the mean width of the mesh that was in force. ``growing`` makes both vanish, as
    T^-1/3 sqrt(ln T), until ``knots`` is reached. Otherwise both are those of the constant, |Σ (ŷ - y)| / T.

    A function that is added is a coordinate that was 0 so far. It is added when outcomes learnt are a power of two, and
    outcomes of tickets from before meet it at the answer in the ticket.

    Updates of the regression commute up to rounding; the map's steps depend on their order. Ticket: ŷ, p, x (f64 each).
    Bytes, little-endian: d (u32), the position of ``functions`` (u8), number of blocks grown (u16), of each its source
    and level (u8, u8; see `Growing`), then those of `LeastSquares`, n = d + 3 + functions, and those of `LogOddsMap`.

    References
    ----------
    Foster & Kakade, *Calibration via Regression*, Algorithm 2, Theorem 3.3, sections III.C, IV and IV.A. Corollary 3.2
    there uses features outside the hypothesis of Theorem 2.1 (harmless).

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
        "features": Integer(0, 0, MAX_FEATURES, "d, length of x; its components lie in [-1, 1]"),
        "functions": Choice("linear", FUNCTIONS, "test functions of the answer"),
        "degree": Integer(3, 2, 8, "of polynomial"),
        "knots": Integer(16, 1, 32, "cells of the mesh of hats, of the finest mesh of growing"),
    }

    def __init__(
        self,
        *,
        features: int = 0,
        functions: str = "linear",
        degree: int = 3,
        knots: int = 16,
        name: str = "",
        seed: int = 0,
    ) -> None:
        self._zeros = (0.0,) * features
        self._ticket = Struct(f"<{features + 2}d")
        self._kind = FUNCTIONS.index(functions)
        self._end = features + 4  # in z = (-y, 1, ŷ, p, x, φ)
        self._growing: Growing | None = None
        self._functions: Functions
        if functions == "linear":
            self._functions = Linear()
        elif functions == "polynomial":
            self._functions = Polynomial(degree)
        elif functions == "hats":
            self._functions = Hats(knots)
        else:
            by = features if functions == "growing_by_feature" else 0
            self._functions = self._growing = Growing(knots.bit_length() - 1, by, features + 3)
        self._sums = LeastSquares(features + 3 + self._functions.count, prior=1)
        self._map = LogOddsMap(features)
        self._unbiased = True

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        """Serve the map's answer or a fixed point; ValueError if ``x`` has neither 0 nor d components in [-1, 1]."""
        require_probability(p)
        x = x or self._zeros
        served = self._map.answer(p, x)
        if not self._unbiased:
            theta = self._sums.theta
            s = theta[1] + theta[3] * p + weighted(theta, 4, x, len(self._zeros))
            fixed = self._functions.fixed_point(s, theta[2], theta[self._end :], served, x)
            served = min(max(fixed, FLOOR), 1.0 - FLOOR)
        return new(Answer, (served, served, self._ticket.pack(served, p, *x)))

    def update(self, ticket: bytes, y: float) -> None:
        """Add the outcome's features, with the answer that was issued; y in [0, 1]."""
        require_probability(y)
        sums = self._sums
        p, x = self._fill(ticket)
        sums.learn(y)
        self.learnt = sums.learnt
        self._map.learn(p, x, y)
        if self._growing is not None and sums.learnt & (sums.learnt - 1) == 0:
            lengths = np.diag(sums.a)[[0, *range(3, self._end - 1)]] - 1.0
            sums.grow(self._growing.grow(lengths[: len(self._growing.levels)].tolist()))
        self._check()

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Replace an outcome, in the regression as if it had been y all along but for rounding; y in [0, 1].

        Of growing families exact only for outcomes learnt since they grew last: before, new functions were 0 there.
        The map takes the difference of two steps from today's weights.
        """
        require_probability(y)
        p, x = self._fill(ticket)
        self._sums.relearn(was, y)
        self._map.relearn(p, x, was, y)
        self._check()

    def _check(self) -> None:
        """Find out whether the map's answers may be served."""
        self._unbiased = self.potential() <= 1.0 + self._sums.log_det

    def potential(self) -> float:
        """Return Φ = B'A^-1 B: no weights w have a (Σ w·f (ŷ - y))² above Φ (‖w‖² + Σ (w·f)²)."""
        return self._sums.loss_of(1) - self._sums.theta[0]

    def _fill(self, ticket: bytes) -> tuple[float, list[float]]:
        """Write a ticket's features, with the answer that was issued, where the sums take them; return p and x."""
        issued = np.frombuffer(ticket, _F8)
        z = self._sums.z
        z[2 : self._end] = issued
        answer, p, *x = issued.tolist()
        if self._functions.count:
            self._functions.fill(z[self._end :], answer, x)
        return p, x

    def features_in(self, ticket: bytes) -> Sequence[float]:
        """Return the features x that a ticket holds; shape (d,)."""
        return self._ticket.unpack(ticket)[2:]

    def encode(self) -> bytes:
        """Return the state; layout in the class's notes."""
        blocks = self._growing.blocks if self._growing is not None else []
        head = _HEAD.pack(len(self._zeros), self._kind, len(blocks))
        return head + bytes(byte for block in blocks for byte in block) + self._sums.encode() + self._map.encode()

    def largest(self, slots: int = MOST_SLOTS) -> int:
        """Return the most bytes that `encode` ever returns."""
        if self._growing is None:
            return len(self.encode())
        n = len(self._zeros) + 4 + MOST
        sums: int = len(LeastSquares(1).encode()) + 8 * n * (n + 1)
        return _HEAD.size + 2 * MOST + sums + len(self._map.encode())

    def decode(self, payload: bytes) -> None:
        """Take over a state written by `encode`; ValueError if it is of other options or of another version."""
        require_head(payload, _HEAD.size)
        d, kind, n_blocks = _HEAD.unpack_from(payload)
        end = _HEAD.size + 2 * n_blocks
        if (d, kind) != (len(self._zeros), self._kind) or (n_blocks and self._growing is None) or len(payload) < end:
            raise ValueError(f"state of features={d}, functions number {kind}: other options wrote it")
        functions = self._functions
        if self._growing is not None:
            functions = self._growing.regrown(payload[_HEAD.size : end])
        sums, odds = LeastSquares(d + 3 + functions.count, prior=1), LogOddsMap(d)
        middle = end + len(sums.encode())
        if len(payload) == middle:
            raise ValueError(f"state of calibrated_regression has format version 1, this build reads version {VERSION}")
        sums.decode(payload[end:middle])
        odds.decode(payload[middle:])
        self._functions, self._sums, self._map, self.learnt = functions, sums, odds, sums.learnt
        self._check()
        if isinstance(functions, Growing):
            self._growing = functions

    def biases(self, features: Sequence[str] = ()) -> list[Bias]:
        """Return the bias along every test function, and its bound; none before the first outcome.

        Parameters
        ----------
        features
            Names of the features, d of them; ``x1`` and so on if not given.
        """
        if not self.learnt:
            return []
        features = features or [f"x{i + 1}" for i in range(len(self._zeros))]
        names = ["constant", "answer", "forecast", *features, *self._functions.names(features)]
        lengths = np.diag(self._sums.a) - 1.0
        bounds = np.sqrt((1.0 + lengths) * self.potential_bound())
        columns = names, lengths.tolist(), self._bias().tolist(), bounds.tolist()
        return [Bias(*row) for row in zip(*columns, strict=True)]

    def _bias(self) -> NDArray[np.float64]:
        """Return B = Σ f (ŷ - y), shape (n,): read off A and b, because ŷ is a feature."""
        bias: NDArray[np.float64] = self._sums.a[:, 1] - self._sums.b
        return bias

    def potential_bound(self) -> float:
        """Return the bound on `potential`, 2 + ln det A."""
        return 2.0 + self._sums.log_det

    def regret_bound(self) -> float:
        """Return the bound on the cumulative Brier score less that of the raw forecast, 4 + ln det A."""
        return 4.0 + self._sums.log_det

    def error(self) -> float | None:
        """Return the smooth calibration error, or |Σ (ŷ - y)| / T without hats; None before the first outcome."""
        if not self.learnt:
            return None
        bias = self._bias()
        return self._functions.error(bias, bias[self._end - 1 :]) / self.learnt

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the bound on `error`, times sqrt(1 + 2 outstanding), at most 1; None before the first outcome.

        The factor is the bucketed calibrators' and an allowance here, not a theorem: without delay the bound is one.
        """
        if not self.learnt:
            return None
        tested = math.sqrt((self.learnt + self._functions.norm) * self.potential_bound())
        return min(1.0, tested * math.sqrt(1 + 2 * outstanding) / self.learnt)
