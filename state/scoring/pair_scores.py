"""Scores of two forecasts of classes, or of a number, on the same events."""

import math
from collections.abc import Sequence
from operator import add, sub
from struct import Struct
from typing import Final, NamedTuple, Self, cast

from state.forecasts import MAX_LEVELS, PROBABILITY, PROBS, QUANTILES, Classwise, Law, Probs, Quantiles
from state.scoring.comparison import Comparison, Difference, paired
from state.scoring.losses import LOG_CLIP
from state.scoring.scores import grain
from state.scoring.tallies import LevelTally, Tally, TopTally
from state.scoring.wilson import Interval
from state.scoring.windows import KINDS, Alarmed

#: Names of the losses, by the kind of the forecasts.
LOSSES: Final = {PROBABILITY: (), PROBS: ("brier", "log"), QUANTILES: ("pinball",)}

#: The kind of forecasts, by its number in the bytes.
KIND_OF: Final = Struct("<B")
_LEVELS: Final = Struct("<H")
_SUMS: Final = 3  # sums of a loss: of the first forecast, of the second, the squared differences


class Off(NamedTuple):
    """The largest difference between a promise and the outcomes."""

    #: The mean difference and its 95 % interval, as if events were independent.
    by: Interval
    #: For numbers, the level with this difference; None for classes.
    level: float | None


class PairScores:
    """Additive scores of two forecasts of one kind: raw and served, or a champion's and a challenger's.

    Notes
    -----
    In `state.scoring.tallies` the first forecast is "raw", the second "calibrated". Each loss has three sums: of the
    first forecast, of the second, and of the squared differences. For classes, the losses are Brier score and log loss,
    as in `state.scoring.class_scores`, rounded by `grain`. For numbers, the loss is the mean pinball loss over the
    levels of the second forecast, a sum with rounding errors.

    Bytes, little-endian: the kind (u8), 0 without events, and then nothing else. For numbers, the levels (a u16, then
    f64 each). Three sums of each loss (f64 each), the tally. At most 693 bytes for classes, 150 for numbers with seven
    levels and 4.1 kB with 256; from 65,536 events on 216 bytes and 6.2 kB, from 2^32 on 348 bytes and 10.3 kB.
    """

    __slots__ = ("sums", "tally")

    def __init__(self) -> None:
        #: Where outcomes lie among quantiles, or how often the likeliest class occurred; None before the first event.
        self.tally: Tally | None = None
        #: Three sums for each loss, see the notes.
        self.sums: list[float] = []

    def observe(self, first: Classwise | Law, second: Classwise | Quantiles, y: float, sign: int = 1) -> None:
        """Add an event, or with ``sign = -1`` take one out; raises ValueError as `observe` does."""
        observe([self], first, second, y, sign)

    def count(
        self,
        first: Classwise | Sequence[float],
        second: Classwise | Quantiles,
        y: float,
        sign: int,
        sums: Sequence[float],
    ) -> None:
        """Add an event whose sums are known, see `observe`. For numbers ``first`` are quantiles at the second's levels.

        Raises ValueError if the events before were of another kind, or of other levels.
        """
        tally = self.tally
        if tally is None:
            tally = self.tally = TopTally() if isinstance(second, Classwise) else LevelTally(second.levels)
            self.sums = [0.0] * len(sums)
        if isinstance(tally, TopTally):
            if not isinstance(second, Classwise):
                raise ValueError("scores of classes cannot take a forecast of a number")  # noqa: TRY004 - as other shapes
            tally.observe(cast("Classwise", first), second, int(y), sign)
        elif isinstance(second, Quantiles) and second.levels == tally.shape:
            tally.observe(first, second.values, y, sign)
        else:
            raise ValueError(f"scores of levels {tally.levels} cannot take another forecast")
        self.sums = list(map(add, self.sums, sums))
        if sign < 0 and not tally.n:
            self.tally, self.sums = None, []

    def __add__(self, other: Self) -> Self:
        """Return the scores of both sets of events; ValueError if kinds or levels differ."""
        return self._joined(other, 1)

    def __sub__(self, other: Self) -> Self:
        """Return the scores of the events of ``self`` without those of ``other``, which must be a subset."""
        return self._joined(other, -1)

    def _joined(self, other: Self, sign: int) -> Self:
        total = type(self)()
        one, two = self.tally, other.tally
        if one is None or two is None:
            there = other if one is None else self
            total.tally, total.sums = there.tally, there.sums[:]
            return total
        numbers = add if sign > 0 else sub
        joined: Tally = numbers(one, two)
        if joined.n:
            total.tally, total.sums = joined, list(map(numbers, self.sums, other.sums))
        return total

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.encode() == other.encode()

    __hash__ = None  # type: ignore[assignment]  # sums change

    @property
    def kind(self) -> int:
        """Kind of the forecasts, `state.forecasts.PROBS` or `QUANTILES`; without events `PROBABILITY`, which is 0."""
        if self.tally is None:
            return PROBABILITY
        return PROBS if isinstance(self.tally, TopTally) else QUANTILES

    @property
    def n(self) -> int:
        """Events."""
        return 0 if self.tally is None else self.tally.n

    @property
    def losses(self) -> tuple[str, ...]:
        """Names of the losses; none without events."""
        return LOSSES[self.kind]

    def loss(self, name: str, kind: Alarmed) -> float:
        """Return the mean of a loss; NaN without events."""
        n = self.n
        return self.sums[_SUMS * self.losses.index(name) + KINDS.index(kind)] / n if n else math.nan

    def difference(self, name: str) -> Difference:
        """Return the mean of a loss of the second forecast minus that of the first, with its standard error.

        Below 0, the second is better. The error assumes independent events.
        """
        first, second, squares = self.sums[_SUMS * self.losses.index(name) :][:_SUMS]
        return paired(float(self.n), second - first, squares)

    def error(self, kind: Alarmed) -> float:
        """Return the ECE of the likeliest class, or the coverage error of the worst level; NaN without events."""
        return math.nan if self.tally is None else self.tally.error(kind)

    def noise(self, kind: Alarmed) -> float:
        """Return the `error` that chance alone causes, see `state.scoring.tallies`; NaN without events."""
        return math.nan if self.tally is None else self.tally.noise(kind)

    def excess(self, kind: Alarmed) -> float:
        """Return the excess of `error` over twice its `noise`, at least 0: an error that chance does not explain."""
        return max(self.error(kind) - 2.0 * self.noise(kind), 0.0) if self.n else 0.0

    def accuracy(self, kind: Alarmed) -> float:
        """Return how often the likeliest class occurred; NaN for numbers, and without events."""
        tally = self.tally
        return sum(each.y for each in tally.bins(kind)) / tally.n if isinstance(tally, TopTally) else math.nan

    def log_alarm(self, kind: Alarmed) -> float:
        """Return the log of the evidence that forecasts are not calibrated: the wealth of bets on all events.

        It is an e-value, like `state.scoring.segment_scores.SegmentScores.log_alarm`.
        """
        return 0.0 if self.tally is None else self.tally.log_wealth(kind)

    def off(self, kind: Alarmed) -> Off:
        """Return the promised share minus the observed one; NaN with fewer than two events.

        For classes: the mean probability of the likeliest class, minus how often it occurred. For numbers: the worst
        level, minus its coverage. At an atom, coverage is a range and its nearer end counts. The interval ignores that
        the level was chosen.
        """
        tally, level = self.tally, None
        if tally is None or tally.n < 2:
            return Off(Interval(math.nan, math.nan, math.nan), None)
        n = float(tally.n)
        if isinstance(tally, TopTally):
            bins = [each for each in tally.bins(kind) if each.n]
            mean = sum(each.p - each.y for each in bins) / n
            variance = sum(each.y * (1.0 - each.y / each.n) for each in bins) / n
        else:
            found = [
                (p, below / n, upto / n) for p, (below, upto) in zip(tally.levels, tally.coverage(kind), strict=True)
            ]
            level, low, high = max(found, key=lambda each: max(each[1] - each[0], each[0] - each[2]))
            covered = min(max(level, low), high)
            mean, variance = level - covered, covered * (1.0 - covered)
        width = 1.96 * math.sqrt(variance / (n - 1.0))
        return Off(Interval(mean, mean - width, mean + width), level)

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        tally = self.tally
        if tally is None:
            return KIND_OF.pack(PROBABILITY)
        levels = b""
        if isinstance(tally, LevelTally):
            levels = _LEVELS.pack(len(tally.levels)) + _floats(len(tally.levels)).pack(*tally.levels)
        return KIND_OF.pack(self.kind) + levels + _floats(len(self.sums)).pack(*self.sums) + tally.encode()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote; ValueError or struct.error if it is not that."""
        scores, at = cls.read(payload)
        if at != len(payload):
            raise ValueError(f"scores of {len(payload)} bytes end after {at}")
        return scores

    @classmethod
    def read(cls, payload: bytes) -> tuple[Self, int]:
        """Read what `encode` wrote; return it and the offset after it."""
        scores, at = cls(), KIND_OF.size
        (kind,) = KIND_OF.unpack_from(payload)
        if kind not in LOSSES:
            raise ValueError(f"no scores are of kind {kind}")
        if kind != PROBABILITY:
            empty: Tally = TopTally()
            if kind == QUANTILES:
                (m,) = _LEVELS.unpack_from(payload, at)
                if not 1 <= m <= MAX_LEVELS:
                    raise ValueError(f"no scores have {m} levels")
                levels = _floats(m)
                empty = LevelTally(levels.unpack_from(payload, at + _LEVELS.size))
                at += _LEVELS.size + levels.size
            sums = _floats(_SUMS * len(LOSSES[kind]))
            scores.sums = list(sums.unpack_from(payload, at))
            scores.tally, at = empty.decode(payload, at + sums.size)
            if not scores.n:
                raise ValueError("scores of no events have a kind")
        return scores, at


#: The comparison of a challenger, for every kind of forecast.
AnyComparison = Comparison | PairScores


def of_challenger(kind: int) -> AnyComparison:
    """Return an empty comparison for a kind of forecast."""
    return Comparison() if kind == PROBABILITY else PairScores()


def observe(
    found: Sequence[PairScores], first: Classwise | Law, second: Classwise | Quantiles, y: float, sign: int = 1
) -> None:
    """Add an event to several scores, or take it out of them.

    Raises ValueError if ``second`` has another kind or other levels than the events before.

    ``first, second``: forecasts of one kind; if of classes, of the same number of classes.
    ``y``: the outcome: the number of a class, or a number.
    """
    values: Classwise | Sequence[float] = (
        cast("Classwise", first) if isinstance(second, Classwise) else at_levels(cast("Law", first), second)
    )
    sums = losses(values, second, y)
    signed = sums if sign > 0 else [-each for each in sums]
    for each in found:
        each.count(values, second, y, sign, signed)


def losses(first: Classwise | Sequence[float], second: Classwise | Quantiles, y: float) -> list[float]:
    """Return for each of `LOSSES` both forecasts' losses and their squared difference; ``first`` as in `count`."""
    if isinstance(second, Classwise):
        return _of_classes(cast("Classwise", first), second, int(y))
    before, after = (_pinball(second.levels, each, y) for each in (first, second.values))
    return [before, after, (after - before) ** 2]


def at_levels(law: Law, served: Quantiles) -> Sequence[float]:
    """Return the quantiles of a law at the served levels."""
    if isinstance(law, Quantiles) and law.levels == served.levels:
        return law.values
    return tuple(map(law.ppf, served.levels))


def compare(
    comparison: AnyComparison,
    champion: object,
    challenger: object,
    y: float,
    draw: object = None,
    sign: int = 1,
) -> None:
    """Add an event to a comparison, or take it out. Forecasts have its kind; a probability has a draw."""
    if isinstance(comparison, PairScores):
        comparison.observe(cast("Classwise", champion), cast("Classwise", challenger), y, sign)
    else:
        comparison.observe(cast("float", champion), cast("float", challenger), y, cast("float | None", draw), sign)


def _of_classes(first: Classwise, second: Classwise, y: int) -> list[float]:
    """Return the sums of an event: Brier score of both and the squared difference, then log loss."""
    sums = []
    for loss in (_brier, _log):
        before, after = grain(loss(first, y)), grain(loss(second, y))
        sums += [before, after, grain((after - before) ** 2)]
    return sums


def _brier(p: Classwise, y: int) -> float:
    return sum([(one - (k == y)) ** 2 for k, one in enumerate(p)])


def _log(p: Classwise, y: int) -> float:
    of_y = p[y] if isinstance(p, Probs) else p.normalised()[y]
    return -math.log(max(of_y, LOG_CLIP))


def _pinball(levels: Sequence[float], values: Sequence[float], y: float) -> float:
    """Return the mean pinball loss over the levels."""
    total = 0.0
    for p, q in zip(levels, values, strict=True):
        total += (1.0 - p) * (q - y) if y < q else p * (y - q)
    return total / len(levels)


def _floats(n: int) -> Struct:
    return Struct(f"<{n}d")
