"""Scores of one stream, as sums: before and after recalibration, over the same resolved events."""

import math
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache, reduce
from itertools import chain
from struct import Struct
from typing import Final, Literal, NamedTuple, Self

from state import losses
from state.losses import LOG_CLIP

__all__ = ["BANDS", "BINS", "LOG_CLIP", "Bin", "Kind", "Murphy", "Scores"]

Kind = Literal["raw", "calibrated"]

#: Equal-width bins of the forecast.
BINS: Final = 10
#: Inner edges of the low bands, which divide the first bin: 1e-4, then nine equal steps of log-odds, .78 each, to
#: 1/BINS. A step multiplies a small forecast by 2.2.
BANDS: Final[tuple[float, ...]] = tuple(
    1.0 / (1.0 + math.exp(-((9 - step) * math.log(1e-4 / (1 - 1e-4)) + step * math.log(1 / (BINS - 1))) / 9))
    for step in range(9)
)

_LOW: Final = len(BANDS)  # the first bin's last band
_CELLS: Final = _LOW + BINS
_LAST: Final = _CELLS - 1
_TOP: Final = 1.0 / BINS
_RAW: Final = 5  # sums a cell
_CALIBRATED: Final = 7
_Y2: Final = 0
_RAW_LOG: Final = 1
_LOG: Final = 2
_TAIL: Final = 3
_MASK: Final = Struct("<Q")


class Bin(NamedTuple):
    """Sums over the events whose forecast fell into one bin.

    Attributes
    ----------
    n
        Events.
    p, y, pp, py
        Σp, Σy, Σp², Σpy of the forecast p and the outcome y.
    e, ee
        Σe and Σe² of the mean that p was drawn from; Σp and Σp² where nothing is drawn.
    """

    n: float
    p: float
    y: float
    pp: float
    py: float
    e: float
    ee: float


class Murphy(NamedTuple):
    """The parts of a mean Brier score: ``reliability - resolution + uncertainty + variance - 2 covariance``.

    Attributes
    ----------
    reliability
        Squared distance of the bins' mean forecasts from their mean outcomes; 0 is calibrated.
    resolution
        Variance of the bins' mean outcomes; what the forecasts tell apart.
    uncertainty
        Variance of the outcomes; not the forecaster's doing.
    variance, covariance
        Of forecasts, and of forecasts and outcomes, within bins. Without them the sum misses the Brier score.

    References
    ----------
    Stephenson, Coelho & Jolliffe 2008, *Two Extra Components in the Brier Score Decomposition*, eq. 6; Murphy 1973.
    """

    reliability: float
    resolution: float
    uncertainty: float
    variance: float
    covariance: float


class Scores:
    """Additive scores over resolved events.

    Notes
    -----
    A forecast falls into one of 19 cells: the ten low bands that divide [0, .1), see `BANDS`, or one of the
    nine bins of width .1 above. Every view is computed from the sums of cells, so an event costs one cell of each kind,
    and ``a + b`` is the score of both. Counts, and sums of outcomes that are 0 or 1, are whole numbers in floats: exact
    up to 2**53, in any order of adding. The other sums are float sums: ``a + b`` equals observing both to rounding
    (about 1e-16 a term), and the same events in the same order give the same bytes. A window is a difference, ``later -
    earlier``.

    Bytes, little-endian: a mask (u64) whose bit c is set if raw cell c has events, bit 19 + c if calibrated cell c has;
    then for each set bit, upwards, its sums (n, Σp, Σy, Σp², Σpy; a calibrated cell also Σe, Σe²), then Σy², log loss
    raw, log loss calibrated (f64). At most 1,856 bytes. Views are NaN while nothing was observed.

    Examples
    --------
    >>> scores = Scores()
    >>> scores.observe(raw=0.9, p=0.5, y=1)
    >>> scores.observe(raw=0.9, p=0.5, y=0)
    >>> round(scores.ece("raw"), 3), scores.ece("calibrated")
    (0.4, 0.0)
    """

    __slots__ = ("_calibrated", "_raw", "_tail")

    def __init__(self) -> None:
        self._raw = [[0.0] * _RAW for _ in range(_CELLS)]
        self._calibrated = [[0.0] * _CALIBRATED for _ in range(_CELLS)]
        self._tail = [0.0] * _TAIL

    @classmethod
    def zero(cls) -> Self:
        """Return the scores of no events."""
        return cls()

    def observe(self, raw: float, p: float, y: float, expected: float | None = None) -> None:
        """Add one event.

        Parameters
        ----------
        raw, p
            The model's forecast and the served one, in [0, 1].
        y
            The outcome, in [0, 1].
        expected
            Mean of what ``p`` was drawn from, in [0, 1]; ``p`` if it is None.
        """
        if expected is None:
            expected = p
        cell = self._raw[_LAST if raw >= 1.0 else _LOW + int(raw * BINS) if raw >= _TOP else bisect_right(BANDS, raw)]
        cell[0] += 1.0
        cell[1] += raw
        cell[2] += y
        cell[3] += raw * raw
        cell[4] += raw * y
        cell = self._calibrated[_LAST if p >= 1.0 else _LOW + int(p * BINS) if p >= _TOP else bisect_right(BANDS, p)]
        cell[0] += 1.0
        cell[1] += p
        cell[2] += y
        cell[3] += p * p
        cell[4] += p * y
        cell[5] += expected
        cell[6] += expected * expected
        tail = self._tail
        tail[_Y2] += y * y
        tail[_RAW_LOG] += losses.log(raw, y)
        tail[_LOG] += losses.log(p, y)

    def __add__(self, other: Self) -> Self:
        """Return the scores of both sets of events."""
        total = type(self)()
        total._raw = [_sum(a, b) for a, b in zip(self._raw, other._raw, strict=True)]
        total._calibrated = [_sum(a, b) for a, b in zip(self._calibrated, other._calibrated, strict=True)]
        total._tail = [a + b for a, b in zip(self._tail, other._tail, strict=True)]
        return total

    def __sub__(self, other: Self) -> Self:
        """Return the scores of the events of ``self`` that are not in ``other``, which must be among them."""
        window = type(self)()
        window._raw = [_difference(a, b) for a, b in zip(self._raw, other._raw, strict=True)]
        window._calibrated = [_difference(a, b) for a, b in zip(self._calibrated, other._calibrated, strict=True)]
        window._tail = [a - b for a, b in zip(self._tail, other._tail, strict=True)]
        return window

    def __eq__(self, other: object) -> bool:
        """Whether all sums are equal."""
        return isinstance(other, Scores) and (self._raw, self._calibrated, self._tail) == (
            other._raw,
            other._calibrated,
            other._tail,
        )

    __hash__ = None  # type: ignore[assignment]  # sums change

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        mask, values = 0, []
        for i, cell in enumerate(chain(self._raw, self._calibrated)):
            if cell[0]:
                mask |= 1 << i
                values += cell
        values += self._tail
        return _layout(len(values)).pack(mask, *values)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read sums written by `encode`.

        Raises
        ------
        ValueError
            If the payload has another length than its mask says, or names cells there are not.
        """
        if len(payload) < _MASK.size:
            raise ValueError(f"scores of {len(payload)} bytes are shorter than their own header")
        (mask,) = _MASK.unpack_from(payload)
        low, high = (mask & ((1 << _CELLS) - 1)).bit_count(), (mask >> _CELLS).bit_count()
        n = _RAW * low + _CALIBRATED * high + _TAIL
        if mask >> 2 * _CELLS or len(payload) != _MASK.size + 8 * n:
            raise ValueError(f"scores of mask {mask:#x} have {_MASK.size + 8 * n} bytes, got {len(payload)}")
        _, *values = _layout(n).unpack(payload)
        scores = cls()
        at = 0
        for cells, size, bits in ((scores._raw, _RAW, mask), (scores._calibrated, _CALIBRATED, mask >> _CELLS)):
            for i in range(_CELLS):
                if bits >> i & 1:
                    cells[i] = values[at : at + size]
                    at += size
        scores._tail = values[at:]
        return scores

    @property
    def n(self) -> int:
        """Events observed."""
        return int(sum(cell[0] for cell in self._raw))

    def cells(self, kind: Kind) -> list[Bin]:
        """Return all 19 cells: the ten low bands, then the bins from [.1, .2) to [.9, 1]."""
        if kind == "raw":
            return [Bin(n, p, y, pp, py, p, pp) for n, p, y, pp, py in self._raw]
        return [Bin(*cell) for cell in self._calibrated]

    def bins(self, kind: Kind) -> list[Bin]:
        """Return the ten bins, from [0, .1) to [.9, 1]."""
        cells = self.cells(kind)
        return [Bin(*map(sum, zip(*cells[: _LOW + 1], strict=True))), *cells[_LOW + 1 :]]

    def bands(self, kind: Kind) -> list[Bin]:
        """Return the ten low bands of [0, .1), from [0, 1e-4) upwards, their edges `BANDS`."""
        return self.cells(kind)[: _LOW + 1]

    def ece(self, kind: Kind) -> float:
        """Return the expected calibration error, Σ |Σp - Σy| / n over the bins, in [0, 1]."""
        return self._mean(sum(abs(each.p - each.y) for each in self.bins(kind)))

    def noise(self, kind: Kind) -> float:
        """Return the `ece` to expect by chance if every forecast were the chance of its outcome.

        Σ sqrt(2 Σp(1 - p) / π) / n over the bins: the mean of a normal error of that variance without its sign.
        """
        return self._mean(sum(math.sqrt(2.0 / math.pi * max(each.p - each.pp, 0.0)) for each in self.bins(kind)))

    def smooth_ece(self, kind: Kind) -> float:
        """Return the calibration error under hat weights, Σ_k |Σ w_k(p)(p - y)| / n, in [0, 1].

        The hat w_k is 1 at k/10 and falls to 0 at the neighbours, so it moves by at most 21/n as one forecast moves by
        1, where `ece` can jump: this is the error that a deterministic calibrator can be held to. On a bin a hat is a
        line, so Σ w_k(p)(p - y) follows from the bin's Σp, Σy, Σp² and Σpy.

        References
        ----------
        Foster & Kakade, *Calibration via Regression*, section II; Foster & Hart 2018, *Smooth Calibration*.
        """
        knots = [0.0] * (BINS + 1)
        for k, each in enumerate(self.bins(kind)):
            off = each.p - each.y
            right = BINS * (each.pp - each.py) - k * off
            knots[k] += off - right
            knots[k + 1] += right
        return self._mean(sum(map(abs, knots)))

    def relative_error(self, kind: Kind) -> float:
        """Return Σ |Σp - Σy| / ΣΣy over the low bands: events made up or missed for each that happened.

        For rare events, where an `ece` of .002 may be all there is. NaN before the first outcome of a low forecast.
        """
        bands = self.bands(kind)
        happened = sum(each.y for each in bands)
        return sum(abs(each.p - each.y) for each in bands) / happened if happened else math.nan

    def murphy(self, kind: Kind) -> Murphy:
        """Return the parts that the Brier score is made of, exactly, in the ten bins."""
        n = self.n
        if not n:
            return Murphy(*[math.nan] * len(Murphy._fields))
        bins = [each for each in self.bins(kind) if each.n]
        rate = sum(each.y for each in bins) / n
        return Murphy(
            reliability=sum((each.p - each.y) ** 2 / each.n for each in bins) / n,
            resolution=sum(each.n * (each.y / each.n - rate) ** 2 for each in bins) / n,
            uncertainty=self._tail[_Y2] / n - rate * rate,
            variance=sum(each.pp - each.p * each.p / each.n for each in bins) / n,
            covariance=sum(each.py - each.p * each.y / each.n for each in bins) / n,
        )

    def brier(self, kind: Kind) -> float:
        """Return the mean Brier score, in [0, 1]."""
        return self.loss("brier", kind)

    def log_loss(self, kind: Kind) -> float:
        """Return the mean log loss in nats, forecasts clipped by `LOG_CLIP`."""
        return self.loss("log", kind)

    def loss(self, name: str, kind: Kind) -> float:
        """Return the mean of a loss; ValueError if it is none of `losses.NAMES`, see `losses.named`."""
        return self._mean(self._total(name, kind))

    def regret(self, name: str) -> float:
        """Return a cumulative loss, calibrated minus raw; negative is better than raw. Raises as `loss` does."""
        return self._total(name, "calibrated") - self._total(name, "raw")

    def _total(self, name: str, kind: Kind) -> float:
        """Return the sum of a loss over the events."""
        losses.named(name)
        if name == "log":
            return self._tail[_RAW_LOG if kind == "raw" else _LOG]
        bins = self.bins(kind)
        if name == "brier":
            return sum(each.pp - 2.0 * each.py for each in bins) + self._tail[_Y2]
        # One half is an edge of the bins: below it the label is 0, from it on 1.
        return sum((each.y for each in bins[: BINS // 2]), 0.0) + sum(
            (each.n - each.y for each in bins[BINS // 2 :]), 0.0
        )

    def _mean(self, total: float) -> float:
        n = self.n
        return total / n if n else math.nan


def total(parts: Iterable[Scores]) -> Scores:
    """Return the scores of all the events."""
    return reduce(Scores.__add__, parts, Scores())


@cache
def _layout(n: int) -> Struct:
    """Return the layout of a mask and n sums; of 228 there can be, the `struct` module itself would remember 100."""
    return Struct(f"<Q{n}d")


def _sum(a: list[float], b: list[float]) -> list[float]:
    if not b[0]:
        return a.copy()
    return [x + y for x, y in zip(a, b, strict=True)] if a[0] else b.copy()


def _difference(a: list[float], b: list[float]) -> list[float]:
    if not b[0]:
        return a.copy()
    n = a[0] - b[0]
    return [x - y for x, y in zip(a, b, strict=True)] if n else [0.0] * len(a)
