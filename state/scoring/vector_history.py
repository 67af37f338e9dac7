"""Scores of a stream of classes or numbers on one partition: of all events and of windows, with the alarms."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, Self, cast

from state.forecasts import PROBS, QUANTILES, Classwise, Law, Quantiles
from state.scoring import ranking
from state.scoring.alarm import log_mean_bet, log_share, log_sum
from state.scoring.cells import EDGES, FINE
from state.scoring.class_scores import ClassScores
from state.scoring.history import KINDS, Alarmed
from state.scoring.quantile_scores import QuantileScores
from state.scoring.ranking import NONE, Counts, Estimate
from state.scoring.tallies import LevelTally, Tally, TopTally
from state.scoring.warm_up import WarmUp

#: Resolved events of a window. Late outcomes make levels swing within hundreds of events: a longer window hides it.
WINDOW = 500
#: Events of a window between looks at the alarm: what is over by the end of the window is found, too.
LOOK: Final = 100
#: Closed windows that the recent alarm covers: 4,000 events.
RECENT: Final = 8
#: Windows of probabilities are ten times as long. The recent alarm needs ten times the evidence, so that of as many
#: events as few raise it by chance.
_OFTEN: Final = math.log(10.0)

#: Scores of forecasts that are more than one probability.
VectorScores = ClassScores | QuantileScores

#: See `state.scoring.scores.grain`.
_GRAIN: Final = 1.5 * 2.0**22
_HEAD: Final = Struct("<BII4dI")
_WORST: Final = Struct("<I")
_ORDER: Final = Struct("<3d")


class Window(NamedTuple):
    """A complete window: its number on its partition, from 0, and its tally."""

    number: int
    tally: Tally


class VectorHistory:
    """Scores of a stream of classes or numbers under one configuration, with windows and alarms.

    Parameters
    ----------
    total
        Scores of all events, empty.

    Notes
    -----
    Events are added to the scores of all events and to the tally of the present window. After `WINDOW` events the
    window is closed: its tally is kept as one of the last `RECENT`, and as the worst of a kind if its error is the
    largest so far. The error is that of coverage, or the calibration error of the likeliest class (`tallies`).

    **Alarm.** Of numbers the hypothesis is that an outcome lies below the quantile of level τ with chance τ, of classes
    that class k has the chance p_k. The gambler divides the wealth as in `state.scoring.history`: one half bets on all
    events together, and of the other half the share 1/((w + 1)(w + 2)) bets on window w alone. On numbers bets are on
    each level, on classes on the likeliest class by bins; on all events together half of it bets on single classes,
    each as one cell. It starts at 1, and P(it ever reaches 1/α) <= α, whatever the delays are: the hypothesis is about
    the order of resolution, see `state.scoring.history`. Every `LOOK` events the largest wealth so far is kept, so an
    alarm stays.

    **Recent alarm.** A gambler begins with every window and stops after `RECENT` more. The alarm is half the mean of
    the wealths of those that still play, divided by ten. It reaches 1/α only if one of them reaches 20/α, which each
    does by chance with probability at most α/20. So a calibrated stream has at most one false alarm in 10/α windows.

    **Warm-up.** What was answered in a warm-up counts in none of this, see `state.scoring.warm_up`.

    **Order.** Of classes, how the highest probability tells right answers from wrong ones is measured within windows.

    **Revisions.** `revise` corrects the scores of all events, and the tally of the event's window where it is kept. The
    wealth from bets on earlier windows, the choice of the worst window, and the order of closed windows are not
    corrected.

    Bytes, little-endian: the kind (u8), windows closed, the window that the alarms count from (u32 each; not 0 only
    after `resumed`), the log of the summed wealth of closed windows and of the largest wealth at a look (f64, raw and
    calibrated each), length (u32) of the scores of all events, the scores, the `WarmUp`. Then tallies: of the present
    window, of the closed windows that the alarms count, of each of the last `RECENT` windows, the oldest first; if a
    window was closed, of raw and of calibrated the number of the worst (u32) and its tally. Of K classes then, for raw
    and for calibrated: Σ([y = k] - p_k) and Σp_k(1 - p_k) of each class (f64); for raw and for calibrated the pairs of
    a right and a wrong answer in closed windows, those ordered correctly, Σ pairs² times the variance of the window's
    AUC (f64); and the counts of the present window by fine cell (`ranking.encode`). With seven levels 1.7 kB, with 256
    42 kB; of K classes at most 14 kB and 512 K bytes, usually 5 kB and 512 K.

    Examples
    --------
    Quantiles that are too low in one half of the windows and too high in the other cover what they should in all:

    >>> from state.forecasts import Normal
    >>> history, law = VectorHistory(QuantileScores((0.25, 0.75))), Quantiles((0.25, 0.75), (-1.0, 1.0))
    >>> for t in range(2000):
    ...     y = (-2.0, 0.0, 0.0, 2.0)[t % 4] + (-4.0 if t // 500 % 2 else 4.0)
    ...     history.observe(Normal(0.0, 1.0), law, y, b"")
    >>> history.total.error("calibrated"), history.worst("calibrated").tally.error("calibrated")
    (0.25, 0.75)
    >>> history.log_alarm("calibrated") > 100
    True
    """

    __slots__ = (
        "_closed",
        "_counts",
        "_most",
        "_order",
        "_past",
        "_single",
        "_start",
        "_windows",
        "_won",
        "_worst",
        "present",
        "total",
        "warm_up",
    )

    def __init__(self, total: VectorScores) -> None:
        self.total = total
        self.warm_up = WarmUp()
        self.present: Tally = LevelTally(total.levels) if isinstance(total, QuantileScores) else TopTally()
        self._windows = 0
        self._closed = self.present.zero()
        self._past: list[Tally] = []
        self._worst = dict.fromkeys(KINDS, Window(0, self._closed))
        self._won: dict[Alarmed, float] = dict.fromkeys(KINDS, -math.inf)
        self._most: dict[Alarmed, float] = dict.fromkeys(KINDS, 0.0)
        self._start = 0
        #: Of each kind and class Σ([y = k] - p) and Σp(1 - p), since the alarms count.
        self._single = [0.0] * (0 if isinstance(total, QuantileScores) else 4 * total.classes)
        self._order = [0.0] * (_ORDER.size // 8 * len(KINDS))
        self._counts: list[Counts] = [ranking.nothing() for _ in KINDS] if self._single else []

    @classmethod
    def of(cls, served: Classwise | Quantiles) -> Self:
        """Return the history of no events, for forecasts that are answered like this one."""
        return cls(QuantileScores(served.levels) if isinstance(served, Quantiles) else ClassScores(len(served)))

    @property
    def n(self) -> int:
        """Events observed, but for those of a warm-up."""
        return self.total.n

    @property
    def windows(self) -> int:
        """The number of closed windows, which is also the number of the present one."""
        return self._windows

    @property
    def last(self) -> Window | None:
        """The last complete window; None before the first."""
        return Window(self._windows - 1, self._past[-1]) if self._past and self._past[-1].n else None

    def worst(self, kind: Alarmed) -> Window | None:
        """Return the complete window with the largest error, of equal ones the earliest; None before the first."""
        return self._worst[kind] if self._worst[kind].tally.n else None

    @classmethod
    def resumed(cls, before: Sequence[Self], rest: VectorScores, partitions: int) -> Self:
        """Return the history that goes on for several others, as `state.scoring.history.History.resumed` does.

        Parameters
        ----------
        before
            The others, at least one.
        rest
            Scores of the events of theirs that it is not to observe itself.
        partitions
            How many histories the stream has from now on.
        """
        made = cls(rest)
        made._windows = made._start = len(KINDS)
        none = made.present.zero()
        made._past = [none, last(before) or none]
        found = [worst(before, kind) for kind in KINDS]
        made._worst = {
            kind: Window(n, none if each is None else each.tally)
            for n, (kind, each) in enumerate(zip(KINDS, found, strict=True))
        }
        level = math.log(partitions)
        made._most = {kind: max(0.0, log_alarm(before, kind) + level) for kind in KINDS}
        return made

    def rank(self, order: Sequence[float]) -> None:
        """Add to how answers are ordered within windows: sums as `ordered` has them."""
        self._order = [one + other for one, other in zip(self._order, order, strict=True)]

    def observe(self, raw: Classwise | Law, served: Classwise | Quantiles, y: float, key: bytes) -> None:
        """Add one event.

        Parameters
        ----------
        raw, served
            The model's forecast and what was served, both of this stream's kind.
        y
            The outcome: the index of a class, or a number.
        key
            The event id, see `QuantileScores.observe`.

        Raises
        ------
        ValueError
            If it has other classes or levels.
        """
        self._add(raw, served, y, key, 1, [self.present], present=True, counted=self._windows >= self._start)
        events = self.present.n
        if events == WINDOW:
            self._close()
        if events % LOOK == 0:
            for kind in KINDS:
                self._most[kind] = max(self._most[kind], self.log_wealth(kind))

    def revise(
        self, raw: Classwise | Law, served: Classwise | Quantiles, was: float, y: float, key: bytes, window: int
    ) -> None:
        """Give an event another label; ``window`` is `windows` when it was observed.

        Raises
        ------
        ValueError
            If the window does not exist yet.
        """
        windows = self._windows
        if not 0 <= window <= windows:
            raise ValueError(f"an event of window {window} in a history of {windows} windows")
        found: list[Tally]
        if window == windows:
            found = [self.present]
        else:
            found = [each.tally for each in self._worst.values() if each.number == window]
            if window >= windows - len(self._past):
                found.append(self._past[window - windows])
            if window >= self._start:
                found.append(self._closed)
            found = list({id(each): each for each in found}.values())  # the worst window may be among the last
        for label, sign in ((was, -1), (y, 1)):
            self._add(raw, served, label, key, sign, found, present=window == windows, counted=window >= self._start)

    def _add(
        self,
        raw: Classwise | Law,
        served: Classwise | Quantiles,
        y: float,
        key: bytes,
        sign: int,
        tallies: Sequence[Tally],
        *,
        present: bool,
        counted: bool,
    ) -> None:
        """Add an event to all scores and to some tallies, or take it out."""
        if isinstance(self.total, QuantileScores):
            law = cast("Quantiles", served)
            values = tuple(map(cast("Law", raw).ppf, self.total.levels))
            self.total.observe(cast("Law", raw), law, y, key, sign, values)
            for tally in tallies:
                cast("LevelTally", tally).observe(values, law.values, y, sign)
            return
        k, forecasts = int(y), (cast("Classwise", raw), cast("Classwise", served))
        self.total.observe(*forecasts, k, sign)
        for tally in tallies:
            cast("TopTally", tally).observe(*forecasts, k, sign)
        if present:
            for counts, forecast in zip(self._counts, forecasts, strict=True):
                counts[bisect_right(EDGES, max(forecast)) + FINE * (forecast.argmax() == k)] += sign
        if counted:
            self._apart(forecasts, k, sign)

    def _apart(self, forecasts: Sequence[Classwise], y: int, sign: int) -> None:
        single, i = self._single, 0
        for forecast in forecasts:
            for k, one in enumerate(forecast):
                p = one + _GRAIN - _GRAIN  # `grain` is written out: calls would double the time
                single[i] += sign * ((k == y) - p)
                single[i + 1] += sign * (p - (p * p + _GRAIN - _GRAIN))
                i += 2

    def _close(self) -> None:
        window = Window(self._windows, self.present)
        for kind in KINDS:
            worst = self._worst[kind].tally
            if not worst.n or window.tally.error(kind) > worst.error(kind):
                self._worst[kind] = window
        if window.number >= self._start:
            for kind in KINDS:
                here = log_share(window.number - self._start) + window.tally.log_wealth(kind)
                self._won[kind] = log_sum((self._won[kind], here))
            self._closed = _added(self._closed, window.tally)
        self._past = [*self._past, window.tally][-RECENT:]
        self._order = self.ordered()
        self._counts = [ranking.nothing() for _ in self._counts]
        self._windows += 1
        self.present = window.tally.zero()

    def ordered(self) -> list[float]:
        """Return of each kind the sums of `auc`, with the present window: pairs, ordered ones, spread."""
        order = self._order[:]
        for i, counts in enumerate(self._counts):
            found = ranking.ranking([counts])
            pairs, area = float(found.n * found.m), found.auc()
            if pairs:
                spread = 0.0 if math.isnan(area.error) else area.error * area.error
                order[3 * i] += pairs
                order[3 * i + 1] += pairs * area.value
                order[3 * i + 2] += pairs * pairs * spread
        return order

    def log_wealth(self, kind: Alarmed) -> float:
        """Return the log of the present wealth of the bets against calibration, in nats; it may fall."""
        windows = self._windows - self._start
        if windows < 0:
            return 0.0
        whole = _added(self._closed, self.present).log_wealth(kind)
        if self._single:
            whole = log_sum((whole, self._log_apart(kind))) - math.log(2.0)
        now = log_share(windows) + self.present.log_wealth(kind)
        waiting = -math.log(windows + 2)
        return log_sum((whole, self._won[kind], now, waiting)) - math.log(2.0)

    def _log_apart(self, kind: Alarmed) -> float:
        """Return the log of the mean wealth of the bets on single classes."""
        half = len(self._single) // 2
        sums = self._single[half * KINDS.index(kind) :][:half]
        bets = [log_mean_bet(sums[i], max(sums[i + 1], 0.0)) for i in range(0, half, 2)]
        return log_sum(bets) - math.log(len(bets))

    def log_alarm(self, kind: Alarmed) -> float:
        """Return the log of the largest wealth, now or at a look; from log(1/α) on it is an alarm."""
        return max(self._most[kind], self.log_wealth(kind))

    def log_recent(self, kind: Alarmed) -> float:
        """Return the log of the recent alarm, in nats; from log(1/α) on it fires. It falls after the error ends."""
        windows = min(self._windows - self._start, RECENT)
        if windows < 0:
            return 0.0
        stretch = self.present
        wealths = [stretch.log_wealth(kind)]
        for past in reversed(self._past[len(self._past) - windows :]):
            stretch = _added(stretch, past)
            wealths.append(stretch.log_wealth(kind))
        return log_sum(wealths) - math.log(2 * len(wealths)) - _OFTEN

    def encode(self) -> bytes:
        """Return the row; layout in the class's notes."""
        total = self.total.encode()
        wealth = (book[kind] for kind in KINDS for book in (self._won, self._most))
        kind_of = QUANTILES if isinstance(self.total, QuantileScores) else PROBS
        parts = [
            _HEAD.pack(kind_of, self._windows, self._start, *wealth, len(total)),
            total,
            self.warm_up.encode(),
            *(each.encode() for each in (self.present, self._closed, *self._past)),
        ]
        if self._windows:
            parts += [_WORST.pack(each.number) + each.tally.encode() for each in self._worst.values()]
        if self._single:
            numbers = (*self._single, *self._order)
            parts.append(Struct(f"<{len(numbers)}d").pack(*numbers))
            parts += [ranking.encode(counts, WINDOW) for counts in self._counts]
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote.

        Raises
        ------
        ValueError
            If the payload is cut or too long, or its parts do not belong together.
        """
        kind, windows, start, *wealth, length = _HEAD.unpack_from(payload)
        at = _HEAD.size + length
        scores: Any = {QUANTILES: QuantileScores, PROBS: ClassScores}.get(kind)
        if scores is None:
            raise ValueError(f"no scores are of kind {kind}")
        history = cls(scores.decode(payload[_HEAD.size : at]))
        history._windows, history._start = windows, start
        history.warm_up, at = WarmUp.decode(payload, at)
        history._won = dict(zip(KINDS, wealth[::2], strict=True))
        history._most = dict(zip(KINDS, wealth[1::2], strict=True))
        empty = history.present
        history.present, at = empty.decode(payload, at)
        history._closed, at = empty.decode(payload, at)
        for _ in range(min(windows, RECENT)):
            tally, at = empty.decode(payload, at)
            history._past.append(tally)
        for each in KINDS if windows else ():
            (number,) = _WORST.unpack_from(payload, at)
            tally, at = empty.decode(payload, at + _WORST.size)
            history._worst[each] = Window(number, tally)
        if history._single:
            n = len(history._single)
            layout = Struct(f"<{n + len(history._order)}d")
            numbers = layout.unpack_from(payload, at)
            history._single, history._order = list(numbers[:n]), list(numbers[n:])
            at += layout.size
            for i in range(len(KINDS)):
                history._counts[i], at = ranking.decode(payload, at)
        if at != len(payload) or not 0 <= history.present.n < WINDOW:
            raise ValueError(f"scores of {len(payload)} bytes end after {at}, with a window of {history.present.n}")
        return history


def alike(found: Iterable[VectorHistory]) -> list[VectorHistory]:
    """Return of the histories of partitions, at least one, those that can be added: of the shape with most events.

    They differ while a new configuration serves some partitions and not yet all.
    """
    shapes: dict[object, list[VectorHistory]] = {}
    for each in found:
        scores = each.total
        shape = scores.levels if isinstance(scores, QuantileScores) else scores.classes
        shapes.setdefault(shape, []).append(each)
    return max(shapes.values(), key=lambda several: sum(each.n for each in several))


def overall(histories: Sequence[VectorHistory]) -> VectorScores:
    """Return the scores of all events of alike histories, at least one."""
    first, *others = (each.total for each in histories)
    scores: Any = first
    for each in others:
        scores += each
    total: VectorScores = scores
    return total


def worst(histories: Iterable[VectorHistory], kind: Alarmed) -> Window | None:
    """Return the worst window of any partition; None if none has a complete one."""
    found = [window for each in histories if (window := each.worst(kind))]
    return max(found, key=lambda window: window.tally.error(kind), default=None)


def last(histories: Iterable[VectorHistory]) -> Tally | None:
    """Return the tally of the last windows of all partitions; None if none has a complete one."""
    found = [window.tally for each in histories if (window := each.last)]
    if not found:
        return None
    tally = found[0].zero()
    for each in found:
        tally = _added(tally, each)
    return tally


def auc(histories: Iterable[VectorHistory], kind: Alarmed) -> Estimate:
    """Return the chance that a right answer had a higher probability than a wrong one of its window; NaN of numbers.

    An answer is the class of the highest probability, and right if it occurred. The error is that of independent
    windows.
    """
    start = 3 * KINDS.index(kind)
    pairs, right, spread = map(sum, zip(*(each.ordered()[start : start + 3] for each in histories), strict=True))
    return Estimate(right / pairs, math.sqrt(spread) / pairs) if pairs else NONE


def log_alarm(histories: Sequence[VectorHistory], kind: Alarmed) -> float:
    """Return the log of the alarm over several partitions, at least one; see `state.scoring.history.log_alarm`."""
    return max(each.log_alarm(kind) for each in histories) - math.log(len(histories))


def log_recent(histories: Sequence[VectorHistory], kind: Alarmed) -> float:
    """Return the log of the recent alarm over several partitions, at least one; as `log_alarm` does."""
    return max(each.log_recent(kind) for each in histories) - math.log(len(histories))


def _added(one: Tally, other: Tally) -> Tally:
    """Return the sum of two tallies of one kind."""
    both: Any = one
    total: Tally = both + other
    return total
