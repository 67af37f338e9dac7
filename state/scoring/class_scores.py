"""Scores of one stream of forecasts of classes, as sums: before and after recalibration, over the same events."""

import math
from struct import Struct
from typing import NamedTuple, Self

from state.forecasts import MAX_CLASSES, Classwise, Probs
from state.scoring.comparison import ComparedLoss, Difference, paired
from state.scoring.scores import BINS, LOG_CLIP, Kind, grain

_FIELDS = 3
_BLOCK = BINS * _FIELDS
_HEAD = Struct("<I")


class Hits(NamedTuple):
    """Sums over the forecasts of one bin: count, Σp, and how often the class occurred."""

    n: float
    p: float
    hits: float


class ClassScores:
    """Additive scores over resolved events of K classes.

    Parameters
    ----------
    classes
        K, from 2 to `MAX_CLASSES`.

    Notes
    -----
    Each class is scored as a forecast of its own, "this class or not". The top label is the class of the highest
    probability; of equal ones the first. Only the log loss needs a distribution, so it uses those of
    `Classwise.normalised`. Everything else uses the probabilities as served.

    Numbers are rounded to multiples of 2**-30 before they are summed (`scores.grain`), so sums below 2**23 are exact,
    in any order and also after events are taken out again. A window is a difference, ``later - earlier``.

    Bytes, little-endian: K (u32), n, then for raw and for calibrated: for each class and last for the top label ten
    bins of (n, Σp, hits), then the sums of the Brier score and of the log loss; then Σd² of these two losses,
    calibrated minus raw. All f64: ``28 + 16 (30 K + 32)`` bytes. Views are NaN while nothing was observed.

    Examples
    --------
    >>> scores = ClassScores(3)
    >>> raw, served = Classwise((0.9, 0.05, 0.05)), Classwise((0.5, 0.25, 0.25))
    >>> for y in (0, 0, 1, 2):
    ...     scores.observe(raw, served, y)
    >>> round(scores.top_label_ece("raw"), 3), scores.top_label_ece("calibrated"), scores.accuracy("calibrated")
    (0.4, 0.0, 0.5)
    """

    __slots__ = ("_sums", "_width", "classes")

    def __init__(self, classes: int) -> None:
        if not 2 <= classes <= MAX_CLASSES:
            raise ValueError(f"there must be 2 to {MAX_CLASSES} classes, got {classes}")
        self.classes = classes
        self._width = (classes + 1) * _BLOCK + 2
        self._sums = [0.0] * (3 + 2 * self._width)

    def observe(self, raw: Classwise, served: Classwise, y: int, sign: int = 1) -> None:
        """Add one event, or take it out again.

        Parameters
        ----------
        raw, served
            The model's probabilities and those served, K each.
        y
            The class that occurred, one of 0..K-1.
        sign
            1 adds the event, -1 takes out one that was added.

        Raises
        ------
        ValueError
            If there are not K probabilities, or ``y`` is not a class.
        """
        classes = self.classes
        if not (len(raw) == len(served) == classes and 0 <= y < classes):
            raise ValueError(f"scores of {classes} classes cannot take {len(raw)}, {len(served)} and class {y!r}")
        self._sums[0] += sign
        brier, log = self._observe(1, raw, y, sign)
        served_brier, served_log = self._observe(1 + self._width, served, y, sign)
        self._sums[-2] += sign * grain((served_brier - brier) ** 2)
        self._sums[-1] += sign * grain((served_log - log) ** 2)

    def _observe(self, start: int, p: Classwise, y: int, sign: int) -> tuple[float, float]:
        """Add an event to the sums of a kind; return its Brier score and its log loss."""
        squared = 0.0
        for k, one in enumerate(p):
            hit = k == y
            self._count(start + k * _BLOCK, one, hit, sign)
            squared += (one - hit) ** 2
        top = max(p)
        self._count(start + self.classes * _BLOCK, top, p.index(top) == y, sign)
        of_y = p[y] if isinstance(p, Probs) else p.normalised()[y]
        i = start + self._width - 2
        log = -math.log(max(of_y, LOG_CLIP))
        self._sums[i] += sign * grain(squared)
        self._sums[i + 1] += sign * grain(log)
        return squared, log

    def _count(self, start: int, p: float, hit: bool, sign: int) -> None:  # noqa: FBT001 - a sum, not a switch
        i = start + (int(p * BINS) if p < 1.0 else BINS - 1) * _FIELDS
        self._sums[i] += sign
        self._sums[i + 1] += sign * grain(p)
        self._sums[i + 2] += sign * hit

    def __add__(self, other: Self) -> Self:
        """Return the scores of both sets of events; ValueError if their numbers of classes differ."""
        total = self._beside(other)
        total._sums = [a + b for a, b in zip(self._sums, other._sums, strict=True)]
        return total

    def __sub__(self, other: Self) -> Self:
        """Return the scores of the events of ``self`` without those of ``other``, which must be a subset."""
        window = self._beside(other)
        window._sums = [a - b for a, b in zip(self._sums, other._sums, strict=True)]
        return window

    def _beside(self, other: Self) -> Self:
        if other.classes != self.classes:
            raise ValueError(f"scores of {self.classes} and of {other.classes} classes have no sum")
        return type(self)(self.classes)

    def __eq__(self, other: object) -> bool:
        """Whether all sums are equal."""
        return isinstance(other, ClassScores) and self._sums == other._sums

    __hash__ = None  # type: ignore[assignment]  # sums change

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        return _HEAD.pack(self.classes) + Struct(f"<{len(self._sums)}d").pack(*self._sums)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read sums written by `encode`.

        Raises
        ------
        ValueError
            If the payload's length does not fit its number of classes.
        """
        scores = cls(_HEAD.unpack_from(payload)[0] if len(payload) >= _HEAD.size else 0)
        length = len(scores._sums)
        if len(payload) != _HEAD.size + 8 * length:
            raise ValueError(f"no scores of {scores.classes} classes have {len(payload)} bytes")
        scores._sums = list(Struct(f"<{length}d").unpack_from(payload, _HEAD.size))
        return scores

    @property
    def n(self) -> int:
        """Events observed."""
        return int(self._sums[0])

    def bins(self, kind: Kind, k: int | None = None) -> list[Hits]:
        """Return the ten bins of class k's probability, or of the top label's, from [0, .1) to [.9, 1]."""
        start = self._start(kind) + (self.classes if k is None else k) * _BLOCK
        return [Hits(*self._sums[i : i + _FIELDS]) for i in range(start, start + _BLOCK, _FIELDS)]

    def ece(self, kind: Kind, k: int) -> float:
        """Return the expected calibration error of class k against the rest, in [0, 1]."""
        return self._mean(_off(self.bins(kind, k)))

    def classwise_ece(self, kind: Kind) -> float:
        """Return the mean over the classes of their expected calibration errors, in [0, 1]."""
        return sum(self.ece(kind, k) for k in range(self.classes)) / self.classes

    def top_label_ece(self, kind: Kind) -> float:
        """Return the expected calibration error of the highest probability, in [0, 1]."""
        return self._mean(_off(self.bins(kind)))

    def accuracy(self, kind: Kind) -> float:
        """Return how often the class of the highest probability occurred, in [0, 1]."""
        return self._mean(sum(each.hits for each in self.bins(kind)))

    def brier(self, kind: Kind) -> float:
        """Return the mean of Σ_k (p_k - [y = k])², in [0, K]."""
        return self._mean(self._sums[self._start(kind) + self._width - 2])

    def log_loss(self, kind: Kind) -> float:
        """Return the mean of -log p_y in nats, p normalised and at least `LOG_CLIP`."""
        return self._mean(self._sums[self._start(kind) + self._width - 1])

    def regret_brier(self) -> float:
        """Return the cumulative Brier score, calibrated minus raw; negative is better than raw."""
        return self._regret(2)

    def difference(self, loss: ComparedLoss) -> Difference:
        """Return the mean of a loss, calibrated minus raw, with its standard error; below 0 what was served was better.

        The error is as if events were independent.
        """
        last = 2 if loss == "brier" else 1
        return paired(self._sums[0], self._regret(last), self._sums[-last])

    def _regret(self, last: int) -> float:
        return self._sums[1 + 2 * self._width - last] - self._sums[1 + self._width - last]

    def _start(self, kind: Kind) -> int:
        return 1 if kind == "raw" else 1 + self._width

    def _mean(self, total: float) -> float:
        return total / self._sums[0] if self._sums[0] else math.nan


def _off(bins: list[Hits]) -> float:
    return sum(abs(each.p - each.hits) for each in bins)
