"""Scores of one stream, as sums: before and after recalibration, over the same resolved events."""

import math
from struct import Struct
from typing import Literal, NamedTuple, Self

Kind = Literal["raw", "calibrated"]

#: Equal-width bins of the forecast.
BINS = 10
#: Log loss is taken at forecasts within [1e-6, 1 - 1e-6], so that a wrong certainty costs 13.8 nats and not infinity.
LOG_CLIP = 1e-6

_FIELDS = 5
_KIND = BINS * _FIELDS
_OFFSET: dict[Kind, int] = {"raw": 0, "calibrated": _KIND}
_Y2, _RAW_LOG, _LOG, _N = range(2 * _KIND, 2 * _KIND + 4)
_LENGTH = _N + 1
_STATE = Struct(f"<{_LENGTH}d")
_LAST = (BINS - 1) * _FIELDS


class Bin(NamedTuple):
    """Sums over the events whose forecast fell into one bin: count, Σp, Σy, Σp², Σpy."""

    n: float
    p: float
    y: float
    pp: float
    py: float


class Scores:
    """Additive scores over resolved events.

    Notes
    -----
    Counts, and the sums of outcomes that are 0 or 1, are whole numbers in floats: exact up to 2**53, in any order of
    adding. The other sums are float sums: ``a + b`` equals observing both to rounding (about 1e-16 a term), and the
    same events in the same order give the same bytes. A window is a difference, ``later - earlier``.

    Bytes: 104 f64, little-endian: for raw, then calibrated, ten bins of (n, Σp, Σy, Σp², Σpy), then Σy², log loss raw,
    log loss calibrated, n. Views are NaN while nothing was observed.

    Examples
    --------
    >>> scores = Scores()
    >>> scores.observe(raw=0.9, p=0.5, y=1)
    >>> scores.observe(raw=0.9, p=0.5, y=0)
    >>> round(scores.ece("raw"), 3), scores.ece("calibrated")
    (0.4, 0.0)
    """

    __slots__ = ("_sums",)

    def __init__(self) -> None:
        self._sums = [0.0] * _LENGTH

    @classmethod
    def zero(cls) -> Self:
        """Return the scores of no events."""
        return cls()

    def observe(self, raw: float, p: float, y: float) -> None:
        """Add one event.

        Parameters
        ----------
        raw, p
            The model's forecast and the served one, in [0, 1].
        y
            The outcome, in [0, 1].
        """
        sums = self._sums
        i = int(raw * BINS) * _FIELDS if raw < 1.0 else _LAST
        sums[i] += 1.0
        sums[i + 1] += raw
        sums[i + 2] += y
        sums[i + 3] += raw * raw
        sums[i + 4] += raw * y
        i = _KIND + (int(p * BINS) * _FIELDS if p < 1.0 else _LAST)
        sums[i] += 1.0
        sums[i + 1] += p
        sums[i + 2] += y
        sums[i + 3] += p * p
        sums[i + 4] += p * y
        sums[_Y2] += y * y
        sums[_RAW_LOG] += _log_loss(raw, y)
        sums[_LOG] += _log_loss(p, y)
        sums[_N] += 1.0

    def __add__(self, other: Self) -> Self:
        """Return the scores of both sets of events."""
        total = type(self)()
        total._sums = [a + b for a, b in zip(self._sums, other._sums, strict=True)]
        return total

    def __sub__(self, other: Self) -> Self:
        """Return the scores of the events of ``self`` that are not in ``other``, which must be among them."""
        window = type(self)()
        window._sums = [a - b for a, b in zip(self._sums, other._sums, strict=True)]
        return window

    def __eq__(self, other: object) -> bool:
        """Whether all sums are equal."""
        return isinstance(other, Scores) and self._sums == other._sums

    __hash__ = None  # type: ignore[assignment]  # sums change

    def encode(self) -> bytes:
        """Return the sums, 832 bytes."""
        return _STATE.pack(*self._sums)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read sums written by `encode`.

        Raises
        ------
        ValueError
            If the payload has another length.
        """
        if len(payload) != _STATE.size:
            raise ValueError(f"scores have {_STATE.size} bytes, got {len(payload)}")
        scores = cls()
        scores._sums = list(_STATE.unpack(payload))
        return scores

    @property
    def n(self) -> int:
        """Events observed."""
        return int(self._sums[_N])

    def bins(self, kind: Kind) -> list[Bin]:
        """Return the ten bins, from [0, .1) to [.9, 1]."""
        start = _OFFSET[kind]
        return [Bin(*self._sums[i : i + _FIELDS]) for i in range(start, start + _KIND, _FIELDS)]

    def ece(self, kind: Kind) -> float:
        """Return the expected calibration error, Σ |Σp - Σy| / n over the bins, in [0, 1]."""
        return self._mean(sum(abs(each.p - each.y) for each in self.bins(kind)))

    def brier(self, kind: Kind) -> float:
        """Return the mean Brier score, in [0, 1]."""
        return self._mean(self._squared(kind))

    def log_loss(self, kind: Kind) -> float:
        """Return the mean log loss in nats, forecasts clipped by `LOG_CLIP`."""
        return self._mean(self._sums[_RAW_LOG if kind == "raw" else _LOG])

    def regret_brier(self) -> float:
        """Return the cumulative Brier score, calibrated minus raw; negative is better than raw."""
        return self._squared("calibrated") - self._squared("raw")

    def regret_log(self) -> float:
        """Return the cumulative clipped log loss, calibrated minus raw, in nats."""
        return self._sums[_LOG] - self._sums[_RAW_LOG]

    def _squared(self, kind: Kind) -> float:
        """Return Σ (p - y)²."""
        return sum(each.pp - 2.0 * each.py for each in self.bins(kind)) + self._sums[_Y2]

    def _mean(self, total: float) -> float:
        return total / self._sums[_N] if self._sums[_N] else math.nan


def _log_loss(p: float, y: float) -> float:
    """Return -y log p - (1 - y) log(1 - p), p clipped by `LOG_CLIP`."""
    if p < LOG_CLIP:
        p = LOG_CLIP
    elif p > 1.0 - LOG_CLIP:
        p = 1.0 - LOG_CLIP
    if y == 1.0:
        return -math.log(p)
    if y == 0.0:
        return -math.log1p(-p)
    return -y * math.log(p) - (1.0 - y) * math.log1p(-p)
