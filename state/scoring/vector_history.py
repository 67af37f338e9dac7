"""Scores of a stream of classes or numbers on one partition: of all events and by window, with alarms."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import add
from struct import Struct
from typing import Any, Final, Self, cast

from state.counts import Counts, raised
from state.forecasts import PROBS, QUANTILES, Classwise, Law, Quantiles
from state.quick import floats
from state.scoring import ranking
from state.scoring.alarm import log_mean_bet, log_sum
from state.scoring.cells import EDGES, FINE, GRAIN
from state.scoring.class_scores import ClassScores
from state.scoring.order import within
from state.scoring.quantile_scores import QuantileScores
from state.scoring.ranking import NONE, Estimate
from state.scoring.tallies import LevelTally, Tally, TopTally
from state.scoring.warm_up import WarmUp
from state.scoring.windows import KINDS, RECENT, WEALTH, Alarmed, Window, Windows, last

#: Events in a window. Late outcomes make levels swing within hundreds of events; a longer window would hide this.
WINDOW = 500
#: Events between looks at the alarm, so that errors that end within a window are also found.
LOOK: Final = 100
#: Log of 10, because windows of probabilities are ten times as long. The recent alarm needs ten times the evidence to
#: have as few false alarms per event.
_OFTEN: Final = math.log(10.0)

#: Scores of forecasts that are more than one probability.
VectorScores = ClassScores | QuantileScores

_HEAD: Final = Struct("<BII")
_LENGTH: Final = Struct("<I")
_WORST: Final = Struct("<I")
_ORDER: Final = Struct("<3d")


class VectorHistory(Windows[Any]):
    """Scores of a stream of classes or numbers under one configuration, with windows and alarms.

    ``total``: scores of all events, empty.

    Notes
    -----
    Events are added to the scores of all events and to the tally of the present window. A window has `WINDOW` events.
    The tallies of the last `RECENT` windows are kept. The error of a window is that of coverage, or the calibration
    error of the likeliest class (`tallies`).

    **Alarm.** For numbers, the hypothesis is that an outcome lies below the quantile of level τ with chance τ; bets are
    on each level. For classes, it is that class k has the chance p_k; bets are on the likeliest class by bins, and half
    of the bets on all events are on single classes, each as one cell. There is a look every `LOOK` events.

    **Recent alarm.** A gambler stops after `RECENT` more windows, 4,000 events. The alarm is half the mean of the
    wealths, divided by ten. It reaches 1/α only if one of them reaches 20/α, which each does by chance with probability
    at most α/20. So a calibrated stream has at most one false alarm in 10/α windows.

    **Order.** For classes, the ranking of right and wrong answers by the highest probability is measured within
    windows.

    **Revisions.** `revise` corrects the scores of all events, and the tally of the event's window where it is kept. The
    order of closed windows is not corrected.

    Bytes, little-endian: the kind (u8), windows closed, the window that the alarms count from (u32 each; not 0 only
    after `resumed` or `begin_anew`), the log of the summed wealth of closed windows and of the largest wealth at a look
    (f64, raw and calibrated each), length (u32) of the scores of all events, the scores, the `WarmUp`. Then tallies: of
    the present window, of the closed windows that the alarms count, of each of the last `RECENT` windows, the oldest
    first; if a window was closed, of raw and of calibrated the number of the worst (u32) and its tally. Of K classes
    then, for raw and for calibrated: Σ([y = k] - p_k) and Σp_k(1 - p_k) of each class (f64); for raw and for calibrated
    the pairs of a right and a wrong answer in closed windows, those ordered correctly, Σ pairs² times the variance of
    the window's AUC (f64); and the counts of the present window by fine cell (`ranking.encode`). With seven levels 1.7
    kB, with 256 42 kB; of K classes at most 14 kB and 512 K bytes, usually 5 kB and 512 K.

    Examples
    --------
    Quantiles that are too low in one half of the windows and too high in the other cover what they should in all:

    >>> from state.forecasts import Normal
    >>> history, law = VectorHistory(QuantileScores((0.25, 0.75))), Quantiles((0.25, 0.75), (-1.0, 1.0))
    >>> for t in range(2000):
    ...     y = (-2.0, 0.0, 0.0, 2.0)[t % 4] + (-4.0 if t // 500 % 2 else 4.0)
    ...     _ = history.observe(Normal(0.0, 1.0), law, y, b"")
    >>> history.total.error("calibrated"), history.worst("calibrated").scores.error("calibrated")
    (0.25, 0.75)
    >>> history.log_alarm("calibrated") > 100
    True
    """

    __slots__ = ("_closed", "_counts", "_order", "_past", "_single", "total")

    def __init__(self, total: VectorScores) -> None:
        empty: Tally = LevelTally(total.levels) if isinstance(total, QuantileScores) else TopTally()
        super().__init__(empty, KINDS, _OFTEN)
        self.total = total
        self._closed: Any = empty.zero()
        self._past: list[Any] = []
        #: For each kind and class: Σ([y = k] - p) and Σp(1 - p), since the first window that counts for the alarms.
        self._single = [0.0] * (0 if isinstance(total, QuantileScores) else 4 * total.shape)
        self._order = [0.0] * (_ORDER.size // 8 * len(KINDS))
        self._counts: list[Counts] = [ranking.nothing() for _ in KINDS] if self._single else []

    @classmethod
    def of(cls, served: Classwise | Quantiles) -> Self:
        """Return an empty history, for forecasts of the same shape as this one."""
        return cls(QuantileScores(served.levels) if isinstance(served, Quantiles) else ClassScores(len(served)))

    @property
    def n(self) -> int:
        """Number of events observed, except those of a warm-up."""
        return self.total.n

    @property
    def recent(self) -> list[Tally]:
        """The last closed windows, at most `RECENT`, the latest first."""
        return [each for each in self._past[::-1] if each.n]

    @classmethod
    def resumed(cls, before: Sequence[Self], rest: VectorScores, partitions: int) -> Self:
        """Return a history that continues several others, as `state.scoring.history.History.resumed` does."""
        made = cls(rest)
        none = made.present.zero()
        made._past = [none, last(before) or none]
        made._go_on(before, none, partitions)
        return made

    def rank(self, order: Sequence[float]) -> None:
        """Add ranking sums, as `ordered` returns them."""
        self._order = [one + other for one, other in zip(self._order, order, strict=True)]

    def observe(self, raw: Classwise | Law, served: Classwise | Quantiles, y: float, key: bytes) -> bool:
        """Add one event; there is no row of closed windows, so return False.

        Raises ValueError if it has other classes or levels.

        ``raw, served``: the model's forecast and what was served, both of this stream's kind.
        ``y``: the outcome: the index of a class, or a number.
        ``key``: the event id, see `QuantileScores.observe`.
        """
        self._add(raw, served, y, key, 1, [self.present], self.windows)
        self._events += 1
        looks = self._events % LOOK == 0
        if self._events == WINDOW:
            self._close()
        if looks:
            self._look()
        return False

    def revise(
        self, raw: Classwise | Law, served: Classwise | Quantiles, key: bytes, was: float, y: float, window: int
    ) -> bool:
        """Change the label of an event, as `state.scoring.history.History.revise` does."""
        found = self._of(window)
        for label, sign in ((was, -1), (y, 1)):
            self._add(raw, served, label, key, sign, found, window)
        return False

    def _add(
        self,
        raw: Classwise | Law,
        served: Classwise | Quantiles,
        y: float,
        key: bytes,
        sign: int,
        tallies: Sequence[Tally],
        window: int,
    ) -> None:
        """Add an event of a window to all scores and to some tallies, or take it out."""
        if isinstance(self.total, QuantileScores):
            law = cast("Quantiles", served)
            values = tuple(map(cast("Law", raw).ppf, self.total.shape))
            self.total.observe(cast("Law", raw), law, y, key, sign, values)
            for tally in tallies:
                cast("LevelTally", tally).observe(values, law.values, y, sign)
            return
        k, forecasts = int(y), (cast("Classwise", raw), cast("Classwise", served))
        self.total.observe(*forecasts, k, sign)
        for tally in tallies:
            cast("TopTally", tally).observe(*forecasts, k, sign)
        if window == self.windows:
            for n, forecast in enumerate(forecasts):
                cell = bisect_right(EDGES, max(forecast)) + FINE * (forecast.argmax() == k)
                self._counts[n] = raised(self._counts[n], cell, sign)
        if window >= self._start:
            self._apart(forecasts, k, sign)

    def _apart(self, forecasts: Sequence[Classwise], y: int, sign: int) -> None:
        single, i = self._single, 0
        for forecast in forecasts:
            for k, one in enumerate(forecast):
                p = one + GRAIN - GRAIN  # `grain` is written out: calls would double the time
                single[i] += sign * ((k == y) - p)
                single[i + 1] += sign * (p - (p * p + GRAIN - GRAIN))
                i += 2

    def _last(self) -> Tally | None:
        return self._past[-1] if self._past and self._past[-1].n else None

    def _keep(self, window: Any) -> None:  # noqa: ANN401 - a tally of this stream
        if self.windows >= self._start:
            self._closed += window
        self._past = [*self._past, window][-RECENT:]
        self._order = self.ordered()
        self._counts = [ranking.nothing() for _ in self._counts]

    def _kept(self, window: int) -> list[Any]:
        found = [self._past[window - self.windows]] if window >= self.windows - len(self._past) else []
        if window >= self._start:
            found.append(self._closed)
        return found

    def ordered(self) -> list[float]:
        """Return for each kind the sums that `auc` needs, with the present window: see `state.scoring.order.within`."""
        now = [each for counts in self._counts for each in within(ranking.ranking([counts]))]
        return list(map(add, self._order, now)) if now else self._order[:]

    def _forget(self) -> None:
        self._closed = self._closed.zero()
        self._single = [0.0] * len(self._single)

    def _log_whole(self, kind: Alarmed) -> float:
        whole: float = (self._closed + self.present).log_wealth(kind)
        return log_sum((whole, self._log_apart(kind))) - math.log(2.0) if self._single else whole

    def _log_apart(self, kind: Alarmed) -> float:
        """Return the log of the mean wealth of the bets on single classes."""
        half = len(self._single) // 2
        sums = self._single[half * KINDS.index(kind) :][:half]
        bets = [log_mean_bet(sums[i], max(sums[i + 1], 0.0)) for i in range(0, half, 2)]
        return log_sum(bets) - math.log(len(bets))

    def _log_recent(self, kind: Alarmed, windows: int) -> list[float]:
        kept = reversed(self._past[len(self._past) - windows :])
        return [stretch.log_wealth(kind) for stretch in accumulate(kept, add, initial=self.present)]

    def encode(self) -> bytes:
        """Return the row; layout in the class's notes."""
        total = self.total.encode()
        kind_of = QUANTILES if isinstance(self.total, QuantileScores) else PROBS
        parts = [
            _HEAD.pack(kind_of, self.windows, self._start),
            WEALTH.pack(*self._wealth()),
            _LENGTH.pack(len(total)),
            total,
            self.warm_up.encode(),
            *(each.encode() for each in (self.present, self._closed, *self._past)),
        ]
        if self.windows:
            parts += [_WORST.pack(each.number) + each.scores.encode() for each in self._worst.values()]
        if self._single:
            numbers = (*self._single, *self._order)
            parts.append(floats(len(numbers)).pack(*numbers))
            parts += [ranking.encode(counts) for counts in self._counts]
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote.

        Raises ValueError if the payload is cut or too long, or its parts do not belong together.
        """
        kind, windows, start = _HEAD.unpack_from(payload)
        scores: Any = {QUANTILES: QuantileScores, PROBS: ClassScores}.get(kind)
        if scores is None:
            raise ValueError(f"no scores are of kind {kind}")
        wealth = WEALTH.unpack_from(payload, _HEAD.size)
        (length,) = _LENGTH.unpack_from(payload, _HEAD.size + WEALTH.size)
        at = _HEAD.size + WEALTH.size + _LENGTH.size
        history = cls(scores.decode(payload[at : at + length]))
        history.windows, history._start = windows, start
        history._take_wealth(wealth)
        history.warm_up, at = WarmUp.decode(payload, at + length)
        empty = history.present
        history.present, at = empty.decode(payload, at)
        history._events = history.present.n
        history._closed, at = empty.decode(payload, at)
        for _ in range(min(windows, RECENT)):
            tally, at = empty.decode(payload, at)
            history._past.append(tally)
        for each in KINDS if windows else ():
            (number,) = _WORST.unpack_from(payload, at)
            tally, at = empty.decode(payload, at + _WORST.size)
            history._worst = {**history._worst, each: Window(number, tally)}
        if history._single:
            n = len(history._single)
            layout = floats(n + len(history._order))
            numbers = layout.unpack_from(payload, at)
            history._single, history._order = list(numbers[:n]), list(numbers[n:])
            at += layout.size
            for i in range(len(KINDS)):
                history._counts[i], at = ranking.decode(payload, at)
        if at != len(payload) or not 0 <= history._events < WINDOW:
            raise ValueError(f"scores of {len(payload)} bytes end after {at}, with a window of {history._events}")
        return history


def alike(found: Iterable[VectorHistory]) -> list[VectorHistory]:
    """Return those histories of partitions that can be added (at least one): those with the shape that has most events.

    Shapes differ while a new configuration serves only some partitions.
    """
    shapes: dict[object, list[VectorHistory]] = {}
    for each in found:
        shapes.setdefault(each.total.shape, []).append(each)
    return max(shapes.values(), key=lambda several: sum(each.n for each in several))


def auc(histories: Iterable[VectorHistory], kind: Alarmed) -> Estimate:
    """Return the chance that a right answer had a higher probability than a wrong one in its window; NaN for numbers.

    An answer is the class with the highest probability, and right if it occurred. The error
    assumes independent windows.
    """
    start = 3 * KINDS.index(kind)
    sums = zip(*(each.ordered()[start : start + 3] for each in histories), strict=True)
    pairs, right, spread = [sum(each, 0.0) for each in sums]
    return Estimate(right / pairs, math.sqrt(spread) / pairs) if pairs else NONE
