"""Values of forecasts that are more than one probability: of classes, and of a number (by quantiles or a normal law).

Every value is immutable and is checked once, when it is made.
"""

import math
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from struct import Struct
from typing import Final, Self

from state.odds import cut_log_odds
from state.quick import floats

#: Most classes a forecast may have, and most quantiles.
MAX_CLASSES, MAX_LEVELS = 1000, 256
#: Largest distance of a sum of probabilities from 1. The sum of 1000 probabilities in single precision is off by less.
SUM_SLACK = 1e-6
#: Largest value, mean and deviation. Differences, squares and sums of 1e9 such numbers stay finite.
LARGEST: Final = 1e100

#: For normalising: the log-odds that stand for 0 and 1, the tolerance, and the most steps.
_FARTHEST, _NEAR, _HALVINGS = 40.0, 1e-12, 80

_STANDARD = NormalDist()
_ROOT_HALF = math.sqrt(0.5)
_PROBABILITY, _PROBS, _CLASSWISE, _QUANTILES, _NORMAL = range(1, 6)
_HEAD = Struct("<BH")
_SCALAR = Struct("<Bd")
_PAIR = Struct("<Bdd")


class Classwise(tuple[float, ...]):
    """K probabilities, each of one class against the rest. They need not sum to 1.

    Raises ValueError if K is not 2 to `MAX_CLASSES` or a probability is outside [0, 1].

    Examples
    --------
    >>> served = Classwise((0.5, 0.5, 0.2))
    >>> [round(p, 2) for p in served.normalised()], served.argmax()
    ([0.42, 0.42, 0.15], 0)
    """

    __slots__ = ()

    def __new__(cls, values: Iterable[float]) -> Self:
        """Check and make."""
        made = super().__new__(cls, values)
        if not 2 <= len(made) <= MAX_CLASSES:
            raise ValueError(f"probs must have 2 to {MAX_CLASSES} classes, got {len(made)}")
        for p in made:
            if not 0.0 <= p <= 1.0:
                raise ValueError(f"a probability must be in [0, 1], got {p!r}")
        return made

    def normalised(self) -> "Probs":
        """Return the distribution whose log-odds all differ from these by the same constant; the order stays.

        The classes lose their guarantees, because these are not the probabilities that were calibrated. Division by the
        sum would cost up to .006 more log loss on most sets of classes, and up to .0005 less on others.
        """
        if isinstance(self, Probs):
            return self
        odds = [cut_log_odds(p, _FARTHEST) for p in self]
        low, high, shift = -2.0 * _FARTHEST, 2.0 * _FARTHEST, 0.0
        for _ in range(_HALVINGS):
            found = [1.0 / (1.0 + math.exp(-each - shift)) for each in odds]
            off = math.fsum(found) - 1.0
            if abs(off) <= _NEAR:
                break
            if off > 0.0:
                high = shift
            else:
                low = shift
            slope = math.fsum(p * (1.0 - p) for p in found)
            step = shift - off / slope if slope > _NEAR else math.inf
            shift = step if low < step < high else 0.5 * (low + high)
        total = math.fsum(found)
        return Probs([p / total for p in found])

    def argmax(self) -> int:
        """Return the class of the highest probability; of equal ones, the first."""
        return self.index(max(self))


class Probs(Classwise):
    """A probability for each of K classes, which sum to 1 within `SUM_SLACK`; raises as `Classwise` does."""

    __slots__ = ()

    def __new__(cls, values: Iterable[float]) -> Self:
        """Check and make."""
        made = super().__new__(cls, values)
        total = math.fsum(made)
        if not abs(total - 1.0) <= SUM_SLACK:
            raise ValueError(f"probs must sum to 1 within {SUM_SLACK:g}, got {total!r}")
        return made


@dataclass(frozen=True, slots=True)
class Normal:
    """A normal distribution.

    Examples
    --------
    >>> law = Normal(mean=10.0, std=2.0)
    >>> law.cdf(10.0), round(law.ppf(0.975), 2)
    ((0.5, 0.5), 13.92)
    """

    #: Within `LARGEST` of 0.
    mean: float
    #: Positive, from 1 / `LARGEST` to `LARGEST`.
    std: float

    def __post_init__(self) -> None:
        if not abs(self.mean) <= LARGEST:
            raise ValueError(f"mean must be finite and within {LARGEST:g} of 0, got {self.mean!r}")
        if not 1.0 / LARGEST <= self.std <= LARGEST:
            raise ValueError(f"std must be positive, from {1.0 / LARGEST:g} to {LARGEST:g}, got {self.std!r}")

    def cdf(self, y: float) -> tuple[float, float]:
        """Return P(Y < y) and P(Y <= y), which are equal."""
        below = 0.5 * math.erfc((self.mean - y) / self.std * _ROOT_HALF)
        return below, below

    def ppf(self, level: float) -> float:
        """Return the quantile of a level in [0, 1]; infinite at 0 and 1."""
        if 0.0 < level < 1.0:
            return self.mean + self.std * _STANDARD.inv_cdf(level)
        _require_level(level)
        return math.inf if level else -math.inf


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A distribution given by some of its quantiles.

    Notes
    -----
    - Between two given quantiles the distribution function is linear.
    - Beyond the outer quantiles it is exponential, with the density of the outermost piece: below value v_1 of level
      l_1, ``F(y) = l_1 exp((y - v_1) / s)``, ``s = l_1 (v_2 - v_1) / (l_2 - l_1)``; above, mirrored. So a level just
      outside the given ones has a quantile just outside, not an infinite one.
    - An atom at v holds the mass between the lowest and the highest level whose value is v: P(Y < v) is the lowest, P(Y
      <= v) the highest. An outermost value that repeats (no rain: 0, 0, 0, 1.5) ends the support, s = 0: its atom holds
      the mass of that tail too.

    Examples
    --------
    >>> rain = Quantiles(levels=(0.25, 0.5, 0.75), values=(0.0, 0.0, 4.0))
    >>> rain.cdf(0.0), rain.cdf(-1.0), rain.cdf(2.0), rain.ppf(0.625)
    ((0.0, 0.5), (0.0, 0.0), (0.625, 0.625), 2.0)
    """

    #: 2 to `MAX_LEVELS`, strictly increasing, in (0, 1).
    levels: tuple[float, ...]
    #: One for each level, never decreasing, within `LARGEST` of 0. A value that repeats is an atom.
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        levels, values = self.levels, self.values
        if not 2 <= len(levels) <= MAX_LEVELS:
            raise ValueError(f"quantiles must have 2 to {MAX_LEVELS} levels, got {len(levels)}")
        if len(levels) != len(values):
            raise ValueError(f"quantiles must have one value a level, got {len(values)} for {len(levels)}")
        if not (levels[0] > 0.0 and levels[-1] < 1.0 and all(a < b for a, b in pairwise(levels))):
            raise ValueError(f"levels must increase strictly in (0, 1), got {levels!r}")
        if not (values[0] >= -LARGEST and values[-1] <= LARGEST and all(a <= b for a, b in pairwise(values))):
            raise ValueError(f"values must never decrease and be within {LARGEST:g} of 0, got {values!r}")

    def cdf(self, y: float) -> tuple[float, float]:
        """Return P(Y < y) and P(Y <= y), which differ at an atom."""
        levels, values = self.levels, self.values
        i, j = bisect_left(values, y), bisect_right(values, y)
        if i < j:
            low = 0.0 if i == 0 and not self._lower() else levels[i]
            high = 1.0 if j == len(values) and not self._upper() else levels[j - 1]
            return low, high
        if i == 0:
            scale = self._lower()
            at = levels[0] * math.exp((y - values[0]) / scale) if scale else 0.0
        elif i == len(values):
            scale = self._upper()
            at = 1.0 - (1.0 - levels[-1]) * math.exp((values[-1] - y) / scale) if scale else 1.0
        else:
            low, high = levels[i - 1], levels[i]
            at = min(low + (high - low) * ((y - values[i - 1]) / (values[i] - values[i - 1])), high)
        return at, at

    def ppf(self, level: float) -> float:
        """Return the quantile of a level in [0, 1]; at 0 and 1 infinite, or the end of the support where an atom is."""
        levels, values = self.levels, self.values
        i = bisect_left(levels, level)
        if i < len(levels) and level == levels[i]:
            return values[i]
        if 0 < i < len(levels):
            low, high = values[i - 1], values[i]
            return min(low + (high - low) * ((level - levels[i - 1]) / (levels[i] - levels[i - 1])), high)
        _require_level(level)
        if i == 0:
            scale = self._lower()
            if not scale:
                return values[0]
            return values[0] + scale * math.log(level / levels[0]) if level else -math.inf
        scale = self._upper()
        if not scale:
            return values[-1]
        return values[-1] - scale * math.log((1.0 - level) / (1.0 - levels[-1])) if level < 1.0 else math.inf

    def _lower(self) -> float:
        """Return the scale of the lower tail; 0 where an atom ends the support."""
        levels, values = self.levels, self.values
        return levels[0] * (values[1] - values[0]) / (levels[1] - levels[0])

    def _upper(self) -> float:
        """Return the scale of the upper tail; 0 where an atom ends the support."""
        levels, values = self.levels, self.values
        return (1.0 - levels[-1]) * (values[-1] - values[-2]) / (levels[-1] - levels[-2])


#: A forecast of a number.
Law = Quantiles | Normal
#: Any forecast, raw or served: a probability, probabilities of classes, or a law.
ForecastValue = float | Classwise | Law
#: Kinds of forecast, as numbers in rows; and the fields of records with the served forecast, by kind.
PROBABILITY: Final = 0
PROBS: Final = 1
QUANTILES: Final = 2
KINDS = ("p", "probs", "quantiles")


def admits(raw: ForecastValue, y: float) -> bool:
    """Whether a forecast can have this outcome: 0 or 1, the number of a class, or a finite number within `LARGEST`."""
    if isinstance(raw, float):
        return y in {0.0, 1.0}
    if isinstance(raw, Classwise):
        return 0.0 <= y < len(raw) and y == int(y)
    return abs(y) <= LARGEST


def encode(forecast: ForecastValue) -> bytes:
    """Return a forecast as bytes: a kind (u8), then f64s, little-endian.

    Notes
    -----
    1, probability: p. 2, `Probs`, and 3, `Classwise`: K (u16), the probabilities. 4, `Quantiles`: m (u16), the levels,
    the values. 5, `Normal`: mean, std.

    Examples
    --------
    >>> decode(encode(Normal(1.0, 2.0)))
    Normal(mean=1.0, std=2.0)
    """
    if isinstance(forecast, Quantiles):
        m = len(forecast.levels)
        return _HEAD.pack(_QUANTILES, m) + floats(2 * m).pack(*forecast.levels, *forecast.values)
    if isinstance(forecast, Normal):
        return _PAIR.pack(_NORMAL, forecast.mean, forecast.std)
    if isinstance(forecast, Classwise):
        kind = _PROBS if isinstance(forecast, Probs) else _CLASSWISE
        return _HEAD.pack(kind, len(forecast)) + floats(len(forecast)).pack(*forecast)
    return _SCALAR.pack(_PROBABILITY, forecast)


def decode(payload: bytes) -> ForecastValue:
    """Read a forecast written by `encode`.

    Raises ValueError if the payload is cut, too long, of an unknown kind, or not a forecast.
    """
    kind = payload[0] if payload else 0
    try:
        if kind == _NORMAL:
            return Normal(*_PAIR.unpack(payload)[1:])
        if kind == _PROBABILITY:
            return _probability(_SCALAR.unpack(payload)[1])
        if kind in {_PROBS, _CLASSWISE, _QUANTILES}:
            n = _HEAD.unpack_from(payload)[1]
            numbers = floats(2 * n if kind == _QUANTILES else n).unpack(payload[_HEAD.size :])
            if kind == _QUANTILES:
                return Quantiles(numbers[:n], numbers[n:])
            return Probs(numbers) if kind == _PROBS else Classwise(numbers)
    except struct.error:
        raise ValueError(f"a forecast of kind {kind} has another length than {len(payload)} bytes") from None
    raise ValueError(f"no forecast has kind {kind}")


def decode_law(payload: bytes) -> Law:
    """Read a forecast of a number; ValueError if it is of another kind or damaged."""
    law = decode(payload)
    if isinstance(law, Quantiles | Normal):
        return law
    raise ValueError(f"expected quantiles or a normal law, got kind {payload[0]}")


def _probability(p: float) -> float:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"a probability must be in [0, 1], got {p!r}")
    return p


def _require_level(level: float) -> None:
    if not 0.0 <= level <= 1.0:
        raise ValueError(f"a level must be in [0, 1], got {level!r}")
