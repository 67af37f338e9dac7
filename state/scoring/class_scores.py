"""Scores of one stream of forecasts of classes, as sums: raw and recalibrated, over the same events."""

import math
from struct import Struct
from typing import NamedTuple, Self

from state.forecasts import MAX_CLASSES, Classwise, Probs
from state.scoring.cells import BINS
from state.scoring.comparison import ComparedLoss, Difference, paired
from state.scoring.losses import LOG_CLIP
from state.scoring.scores import Kind, grain
from state.scoring.sums import Paired

_FIELDS = 3
_BLOCK = BINS * _FIELDS
_HEAD = Struct("<I")


class Hits(NamedTuple):
    """Sums over the forecasts of one bin: count, Σp, and how often the class occurred."""

    n: float
    p: float
    hits: float


class ClassScores(Paired):
    """Additive scores over resolved events of K classes.

    ``classes``: K, from 2 to `MAX_CLASSES`.

    Notes
    -----
    Each class is scored as a forecast of its own, "this class or not". The top label is the class of the highest
    probability; of equal ones the first. Only the log loss needs a distribution, so it uses those of
    `Classwise.normalised`. All else uses the probabilities as served.

    Numbers are rounded to multiples of 2**-30 before they are summed (`scores.grain`), so sums below 2**23 are exact in
    any order, even after events are taken out again.

    Bytes, little-endian: K (u32), n, then for raw and for calibrated: for each class and last for the top label ten
    bins of (n, Σp, hits), then the sums of the Brier score and of the log loss; then Σd² of these two losses,
    calibrated minus raw. All f64: ``28 + 16 (30 K + 32)`` bytes. Views are NaN while nothing was observed.
    """

    __slots__ = ()

    def __init__(self, classes: int) -> None:
        if not 2 <= classes <= MAX_CLASSES:
            raise ValueError(f"there must be 2 to {MAX_CLASSES} classes, got {classes}")
        super().__init__(classes, 3 + 2 * ((classes + 1) * _BLOCK + 2))

    def observe(self, raw: Classwise, served: Classwise, y: int, sign: int = 1) -> None:
        """Add one event, or take it out again.

        Raises ValueError if there are not K probabilities, or ``y`` is not a class.

        ``raw, served``: the model's probabilities and those served, K each.
        ``y``: the class that occurred, one of 0..K-1.
        ``sign``: 1 adds the event, -1 takes out one that was added.
        """
        classes = self.shape
        if not (len(raw) == len(served) == classes and 0 <= y < classes):
            raise ValueError(f"scores of {classes} classes cannot take {len(raw)}, {len(served)} and class {y!r}")
        self.sums[0] += sign
        brier, log = self._observe(1, raw, y, sign)
        served_brier, served_log = self._observe(len(self.sums) // 2, served, y, sign)
        self.sums[-2] += sign * grain((served_brier - brier) ** 2)
        self.sums[-1] += sign * grain((served_log - log) ** 2)

    def _observe(self, start: int, p: Classwise, y: int, sign: int) -> tuple[float, float]:
        """Add an event to the sums of a kind; return its Brier score and its log loss."""
        squared = 0.0
        for k, one in enumerate(p):
            hit = k == y
            self._count(start + k * _BLOCK, one, hit, sign)
            squared += (one - hit) ** 2
        top = max(p)
        self._count(start + self.shape * _BLOCK, top, p.index(top) == y, sign)
        of_y = p[y] if isinstance(p, Probs) else p.normalised()[y]
        i = start + (self.shape + 1) * _BLOCK
        log = -math.log(max(of_y, LOG_CLIP))
        self.sums[i] += sign * grain(squared)
        self.sums[i + 1] += sign * grain(log)
        return squared, log

    def _count(self, start: int, p: float, hit: bool, sign: int) -> None:  # noqa: FBT001 - a sum, not a switch
        i = start + (int(p * BINS) if p < 1.0 else BINS - 1) * _FIELDS
        self.sums[i] += sign
        self.sums[i + 1] += sign * grain(p)
        self.sums[i + 2] += sign * hit

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        return _HEAD.pack(self.shape) + Struct(f"<{len(self.sums)}d").pack(*self.sums)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read sums written by `encode`; ValueError if the payload's length does not fit its number of classes."""
        scores = cls(_HEAD.unpack_from(payload)[0] if len(payload) >= _HEAD.size else 0)
        length = len(scores.sums)
        if len(payload) != _HEAD.size + 8 * length:
            raise ValueError(f"no scores of {scores.shape} classes have {len(payload)} bytes")
        scores.sums = list(Struct(f"<{length}d").unpack_from(payload, _HEAD.size))
        return scores

    def bins(self, kind: Kind, k: int | None = None) -> list[Hits]:
        """Return the ten bins of class k's probability, or of the top label's, from [0, .1) to [.9, 1]."""
        start = self._start(kind) + (self.shape if k is None else k) * _BLOCK
        return [Hits(*self.sums[i : i + _FIELDS]) for i in range(start, start + _BLOCK, _FIELDS)]

    def ece(self, kind: Kind, k: int) -> float:
        """Return the expected calibration error of class k against the rest, in [0, 1]."""
        return self._mean(_off(self.bins(kind, k)))

    def classwise_ece(self, kind: Kind) -> float:
        """Return the mean over the classes of their expected calibration errors, in [0, 1]."""
        classes: int = self.shape
        return sum(self.ece(kind, k) for k in range(classes)) / classes

    def error(self, kind: Kind) -> float:
        """Return the expected calibration error of the highest probability, in [0, 1]."""
        return self._mean(_off(self.bins(kind)))

    def accuracy(self, kind: Kind) -> float:
        """Return how often the class with the highest probability occurred, in [0, 1]."""
        return self._mean(sum(each.hits for each in self.bins(kind)))

    def brier(self, kind: Kind) -> float:
        """Return the mean of Σ_k (p_k - [y = k])², in [0, K]."""
        return self._mean(self.sums[self._losses(kind)])

    def log_loss(self, kind: Kind) -> float:
        """Return the mean of -log p_y in nats, p normalised and at least `LOG_CLIP`."""
        return self._mean(self.sums[self._losses(kind) + 1])

    def regret(self) -> float:
        """Return the cumulative Brier score, calibrated minus raw; negative is better than raw."""
        return self._regret(0)

    def difference(self, loss: ComparedLoss) -> Difference:
        """Return the mean of a loss, calibrated minus raw, with its standard error; below 0, calibrated is better.

        The error assumes independent events.
        """
        place = int(loss == "log")
        return paired(self.sums[0], self._regret(place), self.sums[place - 2])

    def _regret(self, place: int) -> float:
        return self.sums[self._losses("calibrated") + place] - self.sums[self._losses("raw") + place]

    def _losses(self, kind: Kind) -> int:
        """Return the places of the sums of the Brier score and of the log loss."""
        return self._start(kind) + int(self.shape + 1) * _BLOCK


def _off(bins: list[Hits]) -> float:
    return sum(abs(each.p - each.hits) for each in bins)
