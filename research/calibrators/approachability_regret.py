"""Approachability with a regret coordinate: calibrated, and not worse than the forecast it was given."""

import math
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import ClassVar
from zlib import crc32

from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import MOST_SLOTS, Calibrator, require_head, require_length, require_probability
from state.calibrators.grid import SPACINGS, Grid
from state.calibrators.options import Option, choice
from state.draw import BITS, Draw
from state.quick import new

_TICKET = Struct("<Qdd")
_HEAD = Struct("<IQQddddII")
#: More epochs than a stream ever has: each is twice as long as the one before.
EPOCHS = 48
_POINT = Struct("<dQQ")

#: Outcomes of the first epoch; each later one is twice as long.
FIRST = 512
#: m over the power of T in the preset. 1 costs .0027 Brier more behind `Platt` at a base rate of 50 % and .016 nats at
#: 5 % (one seed), and lowers the bound after 20,000 outcomes from .26 to .23; the rates in T are the same.
REFINED = 4
#: Finest grid; reached after 2**24 outcomes with presets that refine as T^(1/3).
FINEST = 1024
#: Log loss is taken within [1e-6, 1 - 1e-6], as it is in the scores.
LOG_CLIP = 1e-6
#: Exponents of T, the length of an epoch, in Λ and in m.
PRESETS = {"joint": (1 / 6, 1 / 3), "fine": (0.0, 1 / 3), "coarse": (0.0, 1 / 5)}
_DRAWS = float(1 << BITS)


class ApproachabilityRegret(Calibrator):
    """Serve grid points so that neither the calibration error nor the loss beyond the forecast's own can grow fast.

    ``preset``: what an epoch of T outcomes uses: ``joint`` Λ = T^(1/6), m ~ T^(1/3), total calibration error O(T^(2/3))
      and regret O(T^(1/2)) together; ``fine`` Λ = 1, m ~ T^(1/3); ``coarse`` Λ = 1, m ~ T^(1/5), with fewer points to
      fill. m is 4 times that, rounded to a power of two, so that even grids contain each other.
    ``loss``: S, whose regret is kept small: ``brier``, or ``log`` clipped to 13.8 nats. Others can't be recalibrated.
    ``spacing``: how the m + 1 points are spaced; see `Grid`.
    ``name, seed``: key the draws.

    Notes
    -----
    θ_i in [-1, 1] for each of the points g_0..g_m, λ in [0, Λ]. For a forecast q,

        f(i, y) = θ_i (y - g_i) + λ (S(g_i, y) - S(q, y)),   D_i = f(i, 1) - f(i, 0).

    Played is i alone if f(i, 0) <= 0 and f(i, 1) <= 0; else neighbours f(i, 0) <= 0 < f(i, 1), f(i+1, 0) > 0 >=
    f(i+1, 1), i with probability |D_{i+1}| / (D_i + |D_{i+1}|). Because S is proper no f(i, ·) is positive twice, so
    one of the two exists; the search starts at the point nearest q. An outcome moves

        θ_i <- clip(θ_i + η_c (y - g_i)),  λ <- clip(λ + η_r (S(p, y) - S(q, y))),

    η_c = sqrt((m + 1) / T), η_r = Λ / (Z sqrt(T)), Z the range of S, both over sqrt(1 + 2D) for D the mean number of
    outcomes learnt between a forecast and its own. No horizon: epochs of T = 512, 1024, ... outcomes, each from θ = 0,
    λ = 0. Outcomes of an earlier epoch teach the point that is nearest now. With h_i the wider gap at the point played
    and ρ(h) the loss that rounding to such a gap can cost (h²/4 for Brier),

        C = Σ (h_i / 2 + Λ ρ(h_i)) + sqrt((m + 1) T) + Λ Z sqrt(T),   E Σ|V_i| <= C,   E regret <= C / Λ

    in an epoch, and the sums of both over epochs in all. A delay as long as an epoch leaves nothing to learn from in
    it: on the adversary of 20,000 a delay of 100 gives ℓ1 .15 and one of 1,000 .45, where `Minimax` in one bucket with
    N = 20 has .05 and .18.

    Ticket: outcomes learnt at issue (u64), p, q (f64 each). Bytes, little-endian: checksum of the options (u32),
    outcomes learnt, sum of delays (u64), λ, regret, the first part of Σ C and of Σ C / Λ (f64), m + 1, distinct points
    served (u32), θ (f64), then for each of those points in ascending order p (f64), its outcomes n, s of them 1 (u64).

    References
    ----------
    Okoroafor, Kleinberg & Sun, *Faster Recalibration of an Online Predictor via Approachability*, Algorithm 1; there
    the signs of payoff and oracle differ, and w is computed before q is seen.

    Examples
    --------
    A forecast that is perfect stays so, nearly; one that is useless becomes calibrated:

    >>> calibrator = ApproachabilityRegret()
    >>> for t in range(4000):
    ...     y = t % 2
    ...     calibrator.update(calibrator.predict(0.98 if y else 0.02, key=str(t).encode()).ticket, y)
    >>> calibrator.regret() / 4000 < 0.001, calibrator.error() < calibrator.bound()
    (True, True)
    """

    name: ClassVar[str] = "approachability_regret"
    keyed: ClassVar[bool] = True
    draws: bool = True
    options: ClassVar[dict[str, Option]] = {
        "preset": choice("joint", tuple(PRESETS), "how calibration is traded for regret"),
        "loss": choice("brier", ("brier", "log"), "the loss whose regret is kept small"),
        "spacing": choice("hybrid", SPACINGS, "how the points are spaced"),
    }

    def __init__(
        self, *, preset: str = "joint", loss: str = "brier", spacing: str = "hybrid", name: str = "", seed: int = 0
    ) -> None:
        self._checksum = crc32(f"{preset} {loss} {spacing}".encode())
        self._exponents = PRESETS[preset]
        self._spacing = spacing
        self._loss = _brier if loss == "brier" else _log_loss
        self._range = self._loss(0.0, 1)
        self._draw = Draw(name, seed)
        self.learnt = 0
        self._late = 0
        self._lambda = self._regret = self._slack = self._slack_over_lambda = 0.0
        self._played: dict[float, tuple[int, int]] = {}
        self._open()

    def _open(self) -> None:
        """Prepare the epoch that the next outcome belongs to, with θ = 0."""
        self._epoch = (self.learnt // FIRST + 1).bit_length() - 1
        self._t, self._most, m = self._plan(self._epoch)
        grid = self._grid = Grid.of(m, self._spacing)
        self._losses = [(self._loss(point, 0), self._loss(point, 1)) for point in grid.points]
        self._theta = [0.0] * (grid.last + 1)
        widths = [gap / grid.denominator for gap in grid.gaps]
        most = self._most
        self._slacks = [h / 2 + most * self._rounding(h, g) for h, g in zip(widths, grid.points, strict=True)]

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        """Serve a grid point drawn by the rule above; see `Calibrator.predict`."""
        require_probability(p)
        points, losses, theta, weight = self._grid.points, self._losses, self._theta, self._lambda
        i = self._grid.nearest(p)
        loss_0 = loss_1 = 0.0
        if weight:  # without it losses do not count, and need not be computed
            loss_0, loss_1 = self._loss(p, 0), self._loss(p, 1)
        step = 0
        here = there = 0.0
        while True:
            point = points[i]
            zero, one = losses[i]
            f0 = weight * (zero - loss_0) - theta[i] * point
            f1 = weight * (one - loss_1) + theta[i] * (1.0 - point)
            if f0 <= 0.0 and f1 <= 0.0:
                return new(Answer, (point, point, _TICKET.pack(self.learnt, point, p)))
            there, here = here, f1 - f0
            if step and (here > 0.0) != (step > 0):
                break
            step = 1 if here > 0.0 else -1
            i += step
        # Between i - step, whose D is `there`, and i, whose D is `here`.
        share = abs(here) / (abs(here) + abs(there))
        before = points[i - step]
        served = before if self._draw(key) < share * _DRAWS else point
        return new(Answer, (point + share * (before - point), served, _TICKET.pack(self.learnt, served, p)))

    def breaks(self) -> list[float]:
        """Return forecasts at which ``p`` may jump; it may do so elsewhere, too."""
        return self._grid.breaks

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """Take one step at the point that was played; y is 0 or 1."""
        self._require_label(y)
        issued, p, q = _TICKET.unpack(ticket)
        self._late += max(self.learnt - issued, 0)  # a ticket may be of another partition, which was ahead
        self.learnt += 1
        i = self._grid.nearest(p)
        self._slack += self._slacks[i]
        self._slack_over_lambda += self._slacks[i] / self._most
        worse = self._loss(p, int(y)) - self._loss(q, int(y))
        self._regret += worse
        self._step(i, y - p, worse)
        n, s = self._played.get(p, (0, 0))
        self._played[p] = n + 1, s + int(y)
        if self.learnt == FIRST * ((2 << self._epoch) - 1):
            self._lambda = 0.0
            self._open()

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Correct counts and regret exactly; θ and λ by the difference of the labels, with the step of today."""
        self._require_label(y)
        _, p, q = _TICKET.unpack(ticket)
        loss, before, now = self._loss, int(was), int(y)
        worse = loss(p, now) - loss(q, now) - (loss(p, before) - loss(q, before))
        self._regret += worse
        self._step(self._grid.nearest(p), y - was, worse)
        n, s = self._played[p]
        self._played[p] = n, s + now - before

    def _step(self, i: int, off: float, worse: float) -> None:
        """Move θ_i and λ by what was wrong and by what it cost."""
        step = 1.0 / math.sqrt(self._t * (1.0 + 2.0 * self._late / self.learnt))
        theta = self._theta[i] + math.sqrt(self._grid.last + 1) * step * off
        self._theta[i] = min(max(theta, -1.0), 1.0)
        self._lambda = min(max(self._lambda + self._most / self._range * step * worse, 0.0), self._most)

    def _rounding(self, h: float, point: float) -> float:
        """Return ρ: the most that serving a mix of two points h apart, one of them this, can cost over their mean.

        Brier: w (1 - w) h². Log loss: KL is at most (mean - point)² / 2v, v the least variance between the points; and
        never more than the whole range.
        """
        if self._loss is _brier:
            return h * h / 4.0
        edge = min(max(min(point, 1.0 - point) - h, 0.0) + LOG_CLIP, 0.5)
        return min(h * h / (8.0 * edge * (1.0 - edge)), self._range)

    def encode(self) -> bytes:
        """Return the state; layout in the class's notes."""
        sums = (self._lambda, self._regret, self._slack, self._slack_over_lambda)
        head = _HEAD.pack(self._checksum, self.learnt, self._late, *sums, len(self._theta), len(self._played))
        theta = Struct(f"<{len(self._theta)}d").pack(*self._theta)
        return head + theta + b"".join(_POINT.pack(p, *counts) for p, counts in sorted(self._played.items()))

    def largest(self, slots: int = MOST_SLOTS) -> int:
        """Return the most bytes that `encode` ever returns."""
        finest = {self._plan(epoch)[2] for epoch in range(EPOCHS)}
        points = {point for m in finest for point in Grid.of(m, self._spacing).points}
        return _HEAD.size + (8 + _POINT.size) * len(points)

    def decode(self, payload: bytes) -> None:
        """Take over a state written by `encode`; ValueError if it is of other options or cut."""
        require_head(payload, _HEAD.size)
        checksum, learnt, late, *sums, width, points = _HEAD.unpack_from(payload)
        if checksum != self._checksum:
            raise ValueError(f"state of options with checksum {checksum} does not fit {self._checksum}")
        end = _HEAD.size + 8 * width
        require_length(payload, end + points * _POINT.size)
        self.learnt, self._late = learnt, late
        self._lambda, self._regret, self._slack, self._slack_over_lambda = sums
        self._open()
        self._theta = list(Struct(f"<{width}d").unpack_from(payload, _HEAD.size))
        self._played = {p: (n, s) for p, n, s in _POINT.iter_unpack(payload[end:])}

    def error(self) -> float | None:
        """Return Σ_i |V_i| / T, the ℓ1 error of the points served; None before the first outcome."""
        if not self.learnt:
            return None
        return sum(abs(s - n * p) for p, (n, s) in self._played.items()) / self.learnt

    def bound(self, outstanding: int = 0) -> float | None:
        """Return Σ C / T, its roots times sqrt(1 + 2 outstanding), at most 1; None before the first outcome.

        The factor also covers outcomes of an earlier epoch, whose points lay wider apart.
        """
        if not self.learnt:
            return None
        roots = sum(root for root, _ in self._roots())
        return min(1.0, (self._slack + math.sqrt(1 + 2 * outstanding) * roots) / self.learnt)

    def regret(self) -> float:
        """Return Σ S(p, y) - S(q, y): the loss of what was served, less the forecast's own."""
        return self._regret

    def regret_bound(self, outstanding: int = 0) -> float:
        """Return Σ C / Λ, the bound on the expected `regret`; its roots as in `bound`."""
        roots = sum(root / most for root, most in self._roots())
        return self._slack_over_lambda + math.sqrt(1 + 2 * outstanding) * roots

    def _roots(self) -> Iterator[tuple[float, float]]:
        """Yield sqrt((m + 1) T) + Λ Z sqrt(T) and Λ of every epoch that has outcomes."""
        epochs = self._epoch + (self.learnt > FIRST * ((1 << self._epoch) - 1))
        for t, most, m in map(self._plan, range(epochs)):
            yield math.sqrt((m + 1) * t) + most * self._range * math.sqrt(t), most

    def _plan(self, epoch: int) -> tuple[int, float, int]:
        """Return T, Λ and m of an epoch."""
        t = FIRST << epoch
        for_most, for_m = self._exponents
        return t, t**for_most, min(REFINED * 2 ** round(for_m * math.log2(t)), FINEST)


def _brier(p: float, y: int) -> float:
    """Return (p - y)²."""
    return (p - y) ** 2


def _log_loss(p: float, y: int) -> float:
    """Return -log of the probability given to y, p clipped by `LOG_CLIP`."""
    p = min(max(p, LOG_CLIP), 1.0 - LOG_CLIP)
    return -math.log(p) if y else -math.log1p(-p)
