"""The shift and scale of a law before its levels are recalibrated, learnt from the last outcomes."""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from statistics import NormalDist
from struct import Struct
from typing import ClassVar, NamedTuple

from state.calibrators.base import require_length
from state.forecasts import Law, Normal, Quantiles
from state.quick import floats

#: How many of the last outcomes teach shift and scale; the fewest that do, which is also the
#: weight of the start. With 500, windows after a change are a third worse; losses are within .3 %
#: of each other (`docs/explanation/calibrators.md`).
WINDOW, FEWEST = 250, 20
#: Weight of the newest outcome in the fast place.
FAST = 0.3
#: Weights of the raw, the slow and the fast place before there is evidence.
PRIOR = (0.9, 0.05, 0.05)
#: Largest η, used at small losses; and the most evidence kept against a place that is far behind, in nats.
STEEP, KEPT = 4.0, 12.0
#: Scores, losses and scales are cut to these.
FAR, MOST_LOSS, LEAST_SCALE, MOST_SCALE = 1e6, 10.0, 1e-3, 1e3
#: A law is not moved if one value spans this many levels. Smaller atoms come from rounded measurements.
ATOM = 0.2
#: Levels whose pinball losses count as evidence.
EVIDENCE = (0.1, 0.5, 0.9)


class Place(NamedTuple):
    """Moves a law X to ``shift + scale X``, in units of the law (median 0, spread 1)."""

    shift: float
    scale: float


RAW_PLACE = Place(0.0, 1.0)


class Units(NamedTuple):
    """Median and spread of a law. The spread adds the widths of the central 50 and 80 % intervals; 0: never moved."""

    median: float
    spread: float


class LocationScale:
    """Three places of a law (raw, slow, fast) and their mixture, weighted by evidence.

    Notes
    -----
    An outcome's score is ``z = (y - median) / spread``, with median and spread of the *raw* law. No score depends on
    what was served. So late outcomes make the places older, but never make them swing. The slow place is the median and
    the spread of the last `WINDOW` scores, shrunk to 0 and 1 as by `FEWEST` further scores. The fast one is the running
    mean of scores, and the spread of the last `WINDOW` differences to the fast place *as it was issued*.

    The quantile functions are mixed. All three are of the same law, moved, so the mixture is, too. L_k is the pinball
    loss of place k as issued, at the levels `EVIDENCE`, in units of the spread, minus the smallest of the three. V is
    the sum over events of the variance of the three losses, under the weights at that time. Weights are proportional to

        ρ_k exp(-η L_k) / s_k,  η = min(`STEEP`, 2 / sqrt(V N)),  s_k = sqrt(N), and 1 for the raw place,

    N the noise: the factor by which late or similar outcomes carry less evidence than prompt and independent ones, see
    `Quantile`. Pinball loss is convex in the quantile. So with prompt outcomes, cuts aside, the loss of the mixture
    exceeds that of raw laws by at most about half of sqrt(V), half a standard error of the sum (exponential weights;
    Cesa-Bianchi & Lugosi 2006, section 2.3). η L_k is cut to `KEPT`, so that a place that was worse for long can come
    back.

    A law with an atom of a fifth or more, or without spread, is not moved. So a forecast of no rain stays one.

    Bytes, little-endian: n (u64), V, L (3), the weights, the running mean, the mixture, the slow and the fast place
    (f64 each), then the last scores and the last differences, oldest first (f64 each): ``120 + 16 min(n, 250)`` bytes.
    Ticket: the mixture, then the slow and the fast place (f64 each).
    """

    ticket: ClassVar[Struct] = Struct("<6d")
    _head: ClassVar[Struct] = Struct("<Q14d")

    def __init__(self) -> None:
        self.learnt = 0
        self._mixture = Mixture(PRIOR)
        self._mean = 0.0
        self._slow = self._fast = RAW_PLACE
        self._scores, self._left = LastNumbers(), LastNumbers()
        self._mixed = RAW_PLACE

    @property
    def mixed(self) -> Place:
        """The place that is served."""
        return self._mixed

    def issue(self) -> bytes:
        """Return the ticket of a forecast that is answered now."""
        return self.ticket.pack(*self._mixed, *self._slow, *self._fast)

    def update(self, ticket: Sequence[float], law: Law, of: Units, y: float, noise: float) -> None:
        """Learn from an outcome: ``ticket`` as unpacked, the raw law and its units, and N."""
        median, spread = of
        if not spread:
            return
        z = min(max((y - median) / spread, -FAR), FAR)
        _, _, *issued = ticket
        places = (RAW_PLACE, Place(issued[0], issued[1]), Place(issued[2], issued[3]))
        if places[1] != RAW_PLACE:
            self._mixture.weigh(places, [(law.ppf(p) - median) / spread for p in EVIDENCE], z)
        self.learnt += 1
        self._mean += max(FAST, 1.0 / self.learnt) * (z - self._mean)
        self._scores.add(z)
        self._left.add(z - places[2].shift)
        if self.learnt >= FEWEST:
            share = self.learnt / (self.learnt + FEWEST)
            self._slow = Place(share * self._scores.quantile(0.5), self._scores.spread() ** share)
            self._fast = Place(self._mean, self._left.spread() ** share)
            self._mix(noise)

    def _mix(self, noise: float) -> None:
        variance = noise * self._mixture.variance
        eta = min(STEEP, 2.0 / math.sqrt(variance)) if variance else STEEP
        raw, slow, fast = self._mixture.mix(eta, math.sqrt(noise))
        self._mixed = Place(
            slow * self._slow.shift + fast * self._fast.shift,
            raw + slow * self._slow.scale + fast * self._fast.scale,
        )

    def encode(self) -> bytes:
        head = self._head.pack(
            self.learnt,
            *self._mixture.numbers(),
            self._mean,
            *self._mixed,
            *self._slow,
            *self._fast,
        )
        return head + self._scores.encode() + self._left.encode()

    @classmethod
    def largest(cls) -> int:
        return cls._head.size + 16 * WINDOW

    def decode(self, payload: bytes) -> None:
        if len(payload) < self._head.size:
            raise ValueError(f"expected a state of {self._head.size} bytes or more, got {len(payload)}")
        self.learnt, *numbers = self._head.unpack_from(payload)
        held = min(self.learnt, WINDOW)
        require_length(payload, self._head.size + 16 * held)
        self._mean, *rest = self._mixture.take(numbers)
        self._mixed, self._slow, self._fast = Place(*rest[:2]), Place(*rest[2:4]), Place(*rest[4:])
        scores = floats(2 * held).unpack_from(payload, self._head.size)
        self._scores, self._left = LastNumbers(scores[:held]), LastNumbers(scores[held:])


class Mixture:
    """Weights of several places of a law, from the loss of each.

    ``prior``: ρ, the weights before there is evidence; the baseline's comes first.
    """

    def __init__(self, prior: Sequence[float]) -> None:
        self._prior = prior
        #: The present weights, and V of the notes of `LocationScale`.
        self.weights, self.variance, self._losses = list(prior), 0.0, [0.0] * len(prior)

    def weigh(self, places: Sequence[Place], quantiles: Sequence[float], score: float) -> None:
        """Add the losses of the issued places, in units of the first place's spread."""
        losses = [
            sum(pinball(p, score - a - b * q) for p, q in zip(EVIDENCE, quantiles, strict=True)) for a, b in places
        ]
        least = min(losses)
        losses = [min((loss - least) / places[0].scale, MOST_LOSS) for loss in losses]
        mean = sum(w * loss for w, loss in zip(self.weights, losses, strict=True))
        self.variance += sum(w * (loss - mean) ** 2 for w, loss in zip(self.weights, losses, strict=True))
        self._losses = [before + loss for before, loss in zip(self._losses, losses, strict=True)]

    def mix(self, eta: float, doubt: float = 1.0) -> list[float]:
        """Return the weights proportional to ρ exp(-η L). All except the first are divided by a doubt, at least 1."""
        least = min(self._losses)
        self._losses = [min(loss - least, KEPT / eta) for loss in self._losses]
        weights = [rho * math.exp(-eta * loss) for rho, loss in zip(self._prior, self._losses, strict=True)]
        weights[1:] = [weight / doubt for weight in weights[1:]]
        total = sum(weights)
        self.weights = [weight / total for weight in weights]
        return self.weights

    def numbers(self) -> list[float]:
        """Return V, the losses and the weights."""
        return [self.variance, *self._losses, *self.weights]

    def take(self, numbers: Sequence[float]) -> Sequence[float]:
        """Load the first of these numbers, as `numbers` returned them; return the rest."""
        k = len(self._prior)
        self.variance, *rest = numbers
        self._losses, self.weights = rest[:k], rest[k : 2 * k]
        return rest[2 * k :]


class LastNumbers:
    """The last `WINDOW` numbers and their quantiles."""

    def __init__(self, numbers: Sequence[float] = ()) -> None:
        self._numbers = deque(numbers)
        self._sorted = sorted(numbers)

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, number: float) -> None:
        """Add a number; drop the oldest if there are more than `WINDOW`."""
        self._numbers.append(number)
        insort(self._sorted, number)
        if len(self._sorted) > WINDOW:
            del self._sorted[bisect_left(self._sorted, self._numbers.popleft())]

    def quantile(self, level: float) -> float:
        """Return an empirical quantile, linear between neighbours. There must be at least one number."""
        position = level * (len(self._sorted) - 1)
        i = int(position)
        low = self._sorted[i]
        return low if position == i else low + (position - i) * (self._sorted[i + 1] - low)

    def spread(self) -> float:
        """Return the sum of the widths of the central 50 and 80 % intervals, within `LEAST_SCALE` and `MOST_SCALE`."""
        quantile = self.quantile
        width = quantile(0.75) - quantile(0.25) + quantile(0.9) - quantile(0.1)
        return min(max(width, LEAST_SCALE), MOST_SCALE)

    def encode(self) -> bytes:
        """Return the numbers, oldest first."""
        return floats(len(self._numbers)).pack(*self._numbers)


def units(law: Law) -> Units:
    """Return median and spread of a law; spread 0 if it has a large atom, or if its spread cannot be divided by."""
    if isinstance(law, Quantiles) and len(set(law.values)) < len(law.values) and _largest_atom(law) >= ATOM:
        return Units(0.0, 0.0)
    if isinstance(law, Normal):
        median, spread = law.mean, law.std * _NORMAL
    else:
        ppf = law.ppf
        median, spread = ppf(0.5), ppf(0.75) - ppf(0.25) + ppf(0.9) - ppf(0.1)
    return Units(median, spread if _LEAST < spread < 1.0 / _LEAST else 0.0)


def offset(place: Sequence[float], of: Units) -> tuple[float, float]:
    """Return c and d such that c + d X is the law X at this place; 0 and 1 if the law is not moved."""
    shift, scale = place[0], place[1]
    median, spread = of
    return (median * (1.0 - scale) + shift * spread, scale) if spread else (0.0, 1.0)


#: Spread of a standard normal law.
_NORMAL = 2.0 * (NormalDist().inv_cdf(0.75) + NormalDist().inv_cdf(0.9))
#: Least and largest spread that may be divided by.
_LEAST = 1e-50


def _largest_atom(law: Quantiles) -> float:
    most, start = 0.0, 0
    for i in range(1, len(law.values)):
        if law.values[i] != law.values[i - 1]:
            start = i
        else:
            most = max(most, law.levels[i] - law.levels[start])
    return most


def pinball(level: float, off: float) -> float:
    """Return the pinball loss of an outcome that lies ``off`` above the quantile."""
    return level * off if off > 0.0 else (level - 1.0) * off
