"""Windows of a stream's resolved events, with alarms: the part that every kind of forecast shares."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import add
from struct import Struct
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

from state.scoring.alarm import log_share, log_sum
from state.scoring.warm_up import WarmUp

#: The kinds that are probabilities and so can have an alarm, see `state.scoring.alarm`.
Alarmed = Literal["raw", "calibrated"]
KINDS: Final[tuple[Alarmed, ...]] = ("raw", "calibrated")
#: Closed windows that the recent alarm covers.
RECENT: Final = 8

Wealth = Mapping[Alarmed, float]
#: The wealth of closed windows, and the largest wealth, before any window was closed.
_NOT_WON: Final[Wealth] = dict.fromkeys(KINDS, -math.inf)
_NOTHING_YET: Final[Wealth] = dict.fromkeys(KINDS, 0.0)
#: Logs of the summed wealth of closed windows and of the largest wealth at a look, for raw and for calibrated.
WEALTH: Final = Struct("<4d")


class Tally(Protocol):
    """Sums over a stretch of events. They give its error and its evidence."""

    @property
    def n(self) -> int:
        """Events."""

    def zero(self) -> Self:
        """Return the sums of no events."""

    def error(self, kind: Alarmed) -> float:
        """Return the calibration error or the coverage error, in [0, 1]."""

    def noise(self, kind: Alarmed) -> float:
        """Return the `error` to expect by chance."""

    def log_wealth(self, kind: Alarmed) -> float:
        """Return the log of the wealth of bets against calibration, see `state.scoring.alarm`."""


T = TypeVar("T", bound=Tally)


class Window(NamedTuple):
    """A complete window: its number on its partition (from 0) and its scores."""

    number: int
    scores: Any


class Windows(Generic[T]):
    """Windows of the resolved events of a stream on one partition, with an alarm for each kind of forecast.

    ``empty``: the sums of no events.
    ``ranked``: the kinds whose worst window is kept.
    ``doubt``: what is subtracted from the recent alarm, in nats.
    ``none``: by kind, the worst windows of a history that has none yet; None: make them.

    Notes
    -----
    Events are added to the present window. A window that has all its events is closed. Then it is the last window,
    and also the worst of a kind if its error is the largest so far. Windows are counted in events, so they do not
    depend on batches.

    **Alarm.** The gambler of `alarm` divides the wealth. One half bets on all events together and finds a small lasting
    bias. Of the other half, the share 1/((w + 1)(w + 2)) bets on window w alone and finds later errors. The shares of
    later windows are not staked yet. With E the wealth on a stretch of events and w the present window, the wealth is

        (E(all) + Σ_{v <= w} E(window v) / ((v + 1)(v + 2)) + 1/(w + 2)) / 2.

    It starts at 1, and P(it ever reaches 1/α) <= α. The largest wealth at a look is kept, so an alarm stays.

    **Anew.** `begin_anew` forgets all wealth. The alarm then depends on later events alone. The moment must not be
    chosen by what comes after it.

    **Recent alarm.** This alarm ends some time after an error has ended. A gambler starts with every window and stops
    some windows later. The alarm is half the mean wealth of the active gamblers, less the doubt.

    **Order.** The hypothesis is about the order of *resolution*: given all outcomes that were known before, the
    probability of this one was the forecast. For late outcomes this needs more than calibration when the forecast was
    issued. Outcomes that resolved in between must not tell anything about this one, and the time of an outcome must not
    depend on its value. If ones come first (a chargeback comes, its absence expires), the alarm fires on calibrated
    forecasts.

    **Revisions.** Sums that include the event are corrected. The wealth from bets on earlier windows and the choice of
    the worst window are not.
    """

    __slots__ = ("_doubt", "_events", "_most", "_start", "_won", "_worst", "present", "warm_up", "windows")

    def __init__(
        self, empty: T, ranked: Sequence[Any], doubt: float = 0.0, none: Mapping[Any, Window] | None = None
    ) -> None:
        #: Sums of the present window.
        self.present = empty
        #: Events of a warm-up, see `state.scoring.warm_up`; they count nowhere else.
        self.warm_up = WarmUp()
        #: The number of closed windows, which is also the index of the present one.
        self.windows = 0

        self._doubt = doubt
        #: Number of events in the present window; and the window from which the alarms count, see `begin_anew`.
        self._events = 0
        self._start = 0
        #: By kind: the worst window, the logs of the summed wealth of closed windows and of the largest wealth at a
        #: look. They are replaced, never changed: all new histories share them.
        self._worst: Mapping[Any, Window] = dict.fromkeys(ranked, Window(0, empty.zero())) if none is None else none
        self._won: Wealth = _NOT_WON
        self._most: Wealth = _NOTHING_YET

    @property
    def n(self) -> int:
        """Number of events observed, except those of a warm-up."""
        raise NotImplementedError

    def _last(self) -> T | None:
        """Return the sums of the last closed window; None before the first."""
        raise NotImplementedError

    def _keep(self, window: T) -> None:
        """Keep the sums of a closed window that are needed later."""
        raise NotImplementedError

    def _kept(self, window: int) -> list[T]:
        """Return the sums of closed windows that hold an event of a window."""
        raise NotImplementedError

    def _log_whole(self, kind: Alarmed) -> float:
        """Return the log of the wealth of bets on all events together, from where the alarms count."""
        raise NotImplementedError

    def _log_recent(self, kind: Alarmed, windows: int) -> list[float]:
        """Return the log wealth of gamblers: who began with the present window, and with each of ``windows`` before."""
        raise NotImplementedError

    def begin_anew(self) -> None:
        """Let the alarms count from the next event on, as if none had come before.

        A window that has begun is closed early. It cannot be the worst window.
        """
        if self._events:
            self._close(ranked=False)
        self._start = self.windows
        self._won, self._most = _NOT_WON, _NOTHING_YET
        self._forget()

    def _forget(self) -> None:
        """Let the bets on all events together begin with the next event."""
        raise NotImplementedError

    def _close(self, *, ranked: bool = True) -> None:
        window = Window(self.windows, self.present)
        for kind, worst in self._worst.items() if ranked else ():
            if not worst.scores.n or window.scores.error(kind) > worst.scores.error(kind):
                self._worst = {**self._worst, kind: window}
        if window.number >= self._start:
            for alarmed in KINDS:
                here = log_share(window.number - self._start) + window.scores.log_wealth(alarmed)
                self._won = {**self._won, alarmed: log_sum((self._won[alarmed], here))}
        self._keep(window.scores)
        self.windows += 1
        self._events = 0
        self.present = window.scores.zero()

    def _look(self) -> None:
        """Keep the wealth if it is the largest so far."""
        self._most = {kind: max(self._most[kind], self.log_wealth(kind)) for kind in KINDS}

    def _of(self, window: int) -> list[T]:
        """Return the sums that include an event of a window; ValueError if the window does not exist yet."""
        if not 0 <= window <= self.windows:
            raise ValueError(f"an event of window {window} in a history of {self.windows} windows")
        if window == self.windows:
            return [self.present]
        ranked = [each.scores for each in self._worst.values() if each.number == window and each.scores.n]
        found = [*self._kept(window), *ranked]
        return list({id(each): each for each in found}.values())  # the worst window may also be among the last

    @property
    def last(self) -> Window | None:
        """The last complete window; None before the first."""
        scores = self._last()
        return None if scores is None else Window(self.windows - 1, scores)

    def worst(self, kind: Any) -> Window | None:  # noqa: ANN401 - one of ``ranked``
        """Return the complete window with the largest error (of equal ones, the earliest); None before the first."""
        return self._worst[kind] if self._worst[kind].scores.n else None

    def _go_on(self, before: Sequence[Self], none: T, partitions: int) -> None:
        """Continue several others, of partitions that no longer exist.

        Events of theirs that are not observed here go to the first windows: to each kind's worst window, or to
        ``none``. The alarms start with what the others together had reached, and count from the next window on.
        ``partitions`` is the new number of histories.
        """
        self.windows = self._start = len(self._worst)
        found = {kind: worst(before, kind) for kind in self._worst}
        self._worst = {
            kind: Window(n, none if window is None else window.scores) for n, (kind, window) in enumerate(found.items())
        }
        level = math.log(partitions)
        self._most = {kind: max(0.0, log_alarm(before, kind) + level) for kind in KINDS}

    def log_wealth(self, kind: Alarmed) -> float:
        """Return the log of the present wealth of the bets against calibration, in nats; it may fall."""
        windows = self.windows - self._start
        if windows < 0:
            return 0.0
        now = log_share(windows) + self.present.log_wealth(kind)
        waiting = -math.log(windows + 2)
        return log_sum((self._log_whole(kind), self._won[kind], now, waiting)) - math.log(2.0)

    def log_alarm(self, kind: Alarmed) -> float:
        """Return the log of the largest wealth, now or at a look; from log(1/α) on it is an alarm."""
        return max(self._most[kind], self.log_wealth(kind))

    def log_recent(self, kind: Alarmed) -> float:
        """Return the log of the recent alarm, in nats; from log(1/α) on it fires. It falls after the error ends."""
        windows = min(self.windows - self._start, RECENT)
        if windows < 0:
            return 0.0
        wealths = self._log_recent(kind, windows)
        return log_sum(wealths) - math.log(2 * len(wealths)) - self._doubt

    def _wealth(self) -> list[float]:
        """Return the wealth of the alarms, present and largest, as `WEALTH` packs it."""
        return [book[kind] for kind in KINDS for book in (self._won, self._most)]

    def _take_wealth(self, books: Sequence[float]) -> None:
        self._won = dict(zip(KINDS, books[::2], strict=True))
        self._most = dict(zip(KINDS, books[1::2], strict=True))


def overall(found: Sequence[Any]) -> Any:  # noqa: ANN401 - as the histories have them
    """Return the scores of all events of one or more histories that can be added."""
    return reduce(add, [each.total for each in found])


def worst(found: Iterable[Windows[Any]], kind: Any) -> Window | None:  # noqa: ANN401 - a kind whose worst is kept
    """Return the worst window of any partition; None if none has a complete one."""
    windows = [window for each in found if (window := each.worst(kind)) is not None]
    return max(windows, key=lambda window: window.scores.error(kind), default=None)


def last(found: Iterable[Windows[T]]) -> T | None:
    """Return the sums of the last windows of all partitions; None if none has a complete one."""
    windows: list[Any] = [window.scores for each in found if (window := each.last) is not None]
    return reduce(add, windows, windows[0].zero()) if windows else None


def log_alarm(found: Sequence[Windows[Any]], kind: Alarmed) -> float:
    """Return the log of the alarm over several partitions, at least one.

    Each alarm ever reaches K/α with probability at most α/K, even if partitions are dependent. So by the union bound,
    the largest of K alarms, divided by K, has the threshold 1/α, and an alarm stays. (The mean of the wealths is also
    valid, but may fall. Their product needs independent partitions.)
    """
    return max([each.log_alarm(kind) for each in found]) - math.log(len(found))


def log_recent(found: Sequence[Windows[Any]], kind: Alarmed) -> float:
    """Return the log of the recent alarm over several partitions, at least one; as `log_alarm` does."""
    return max([each.log_recent(kind) for each in found]) - math.log(len(found))
