"""What is known of a stream's forecasts on one partition: scores of all events and of windows, and the alarms."""

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from struct import Struct
from typing import Final, Literal, NamedTuple, Self

from state.scoring import order
from state.scoring.alarm import distance, log_mean_bet, log_sum, log_wealth
from state.scoring.bias import Bias
from state.scoring.order import Order
from state.scoring.scores import SCORED, Kind, Scores, grain, total

#: Resolved events of a window. Of 5,000 calibrated forecasts the ECE is below .018 on average (`Scores.noise` at its
#: largest), so a window that stands out at .03 is news, and at one event a second it is so within an hour and a half.
WINDOW = 5000

#: The kinds that state a chance, and so can be found wrong: see `state.scoring.alarm`.
Alarmed = Literal["raw", "calibrated"]
KINDS: Final[tuple[Alarmed, ...]] = ("raw", "calibrated")
#: Closed windows that the recent alarm looks back on: 40,000 events.
RECENT: Final = 8

_HEAD: Final = Struct("<II")
_CLOSED: Final = Struct("<IIQ4d")
_PAST: Final = Struct("<4d")
_LENGTH: Final = Struct("<H")
_WORST: Final = Struct("<I")
#: In the place of a length and scores: they are those before, or there are none.
_SAME: Final = _LENGTH.pack(0)


class Window(NamedTuple):
    """A complete window: its number, from 0, counted on its partition, and its scores.

    Window ``number`` holds the resolved events from ``number * WINDOW`` up to ``(number + 1) * WINDOW - 1``.
    """

    number: int
    scores: Scores


class History:
    """Scores of a stream, whole and by window, with an alarm for each kind of forecast.

    Notes
    -----
    Events go into the present window only. At every `WINDOW` events it is closed: added to the sums of
    those closed before, kept as the last one, and as the worst one of a kind if its ECE is the largest yet. Windows are
    counted in events, so how events were cut into batches leaves no trace. The scores of all events are closed +
    present.

    **Alarm.** The gambler of `alarm` splits what he has: one half bets on all events together, for a lasting
    small bias; of the other half, the share 1/((w + 1)(w + 2)) bets on window w alone, for what breaks later, and the
    shares of windows to come wait. So the wealth is, with E the wealth on a stretch of events and w the present window,

        (E(all) + Σ_{v <= w} E(window v) / ((v + 1)(v + 2)) + 1/(w + 2)) / 2,

    from 1, and P(it ever reaches 1/α) <= α. What a closed window won is kept: an alarm it gave stays, until `restart`.

    **Recent alarm.** What went wrong a year ago and was mended is no news. Two gamblers begin with every window: one
    bets on cells too and stops after two windows, the other on the whole alone and stops after `RECENT`. The alarm is
    half the mean of what those have who began with the present window, with the last one (the first kind), and with
    those before (the second kind). It reaches 1/α only if one of them has 2/α, and each does so in error with a chance
    of at most α/2: a calibrated stream gives at most one false alarm in 1/α windows.

    **Begin anew.** `restart` takes both alarms back to 1; they count from the next window on.

    The hypothesis is stated in the order of *resolution*: whatever outcomes were known when this one became known, its
    chance was the forecast. For late outcomes that needs more than calibration when the forecast was issued: outcomes
    that resolved in between must tell nothing of this one, and when an outcome comes must not depend on what it is.
    Where ones come first (a chargeback comes, its absence expires) the alarm sounds on honest forecasts.

    **Revisions.** `revise` corrects the sums of the window that the event is in, those of all closed windows, and the
    last and the worst windows if it is one of them; sums are exact (`scores`), so the rows equal those of the
    corrected labels. What bets on earlier windows won is kept as it was won, and so is which window was the worst.

    Bytes, little-endian, in two rows, because the second changes only when a window closes. `encode`: windows closed,
    events in the present one (u32 each), length (u16) and scores of the present window, the features' `Bias`.
    `encode_closed`: windows closed, the window that the alarms count from (u32 each), the time given to `restart`
    (u64), log Σ of what closed windows won and the most wealth seen when one closed (f64, raw and calibrated each);
    `state.scoring.order.Order` of the closed windows; of
    each of the last `RECENT` windows, the oldest first, S and V of raw, S and V of calibrated (f64, see `alarm`);
    length (u16) and scores of all closed windows, of the last one, and of those before the alarms began anew, 0 if
    there are none; then for each kind the number of the worst window (u32) with length (u16) and scores; the length is
    0 where it is the worst window of the kind before. Usually 2.2 and 12 kB, 1.5 and 7 where nothing is drawn; at most
    9 and 49 kB.
    """

    __slots__ = (
        "_before",
        "_closed",
        "_last",
        "_left",
        "_most",
        "_order",
        "_past",
        "_since",
        "_start",
        "_windows",
        "_won",
        "_worst",
        "bias",
        "present",
    )

    def __init__(self) -> None:
        self.present = Scores()
        self.bias = Bias()
        self._left = WINDOW
        self._windows = 0
        self._closed = Scores()
        self._last = Scores()
        self._order = Order()
        self._worst = dict.fromkeys(SCORED, Window(0, self._last))
        self._won: dict[Alarmed, float] = dict.fromkeys(KINDS, -math.inf)
        self._most: dict[Alarmed, float] = dict.fromkeys(KINDS, 0.0)
        self._past: list[list[float]] = []
        #: When the alarms were last told to begin anew, the window they count from, and the scores before it.
        self._since = 0
        self._start = 0
        self._before: Scores | None = None

    def observe(self, raw: float, p: float, y: float, draw: float | None = None) -> bool:
        """Add one event, see `Scores.observe`; return whether it closed a window."""
        self.present.observe(raw, p, y, draw)
        self._left -= 1
        if self._left:
            return False
        self._close()
        return True

    def revise(self, raw: float, p: float, draw: float | None, was: float, y: float, window: int) -> bool:
        """Give an event another label.

        Parameters
        ----------
        raw, p, draw
            As they were observed.
        was, y
            The label it had, and the one it gets.
        window
            `windows` when it was observed.

        Returns
        -------
        bool
            Whether a closed window changed, so that its row must be written.

        Raises
        ------
        ValueError
            If there is no such window yet.
        """
        if not 0 <= window <= self._windows:
            raise ValueError(f"an event of window {window} in a history of {self._windows} windows")
        if window == self._windows:
            changed = [self.present]
        else:
            found = [self._closed, *(each.scores for each in self._worst.values() if each.number == window)]
            if window == self._windows - 1:
                found.append(self._last)
            if self._before is not None and window < self._start:
                found.append(self._before)
            if window >= self._windows - len(self._past):
                past = self._past[window - self._windows]
                past[0] += grain(y) - grain(was)
                past[2] += grain(y) - grain(was)
            changed = list({id(each): each for each in found}.values())  # the last may be the worst
        for scores in changed:
            scores.observe(raw, p, was, draw, -1)
            scores.observe(raw, p, y, draw)
        return window < self._windows

    def _close(self) -> None:
        window = Window(self._windows, self.present)
        for kind in SCORED:
            worst = self._worst[kind].scores
            if not worst.n or window.scores.ece(kind) > worst.ece(kind):
                self._worst[kind] = window
        if window.number >= self._start:
            for alarmed in KINDS:
                here = _log_share(window.number - self._start) + self._log_present(alarmed)
                self._won[alarmed] = log_sum((self._won[alarmed], here))
        self._past = [*self._past, [each for kind in KINDS for each in distance(window.scores.cells(kind))]][-RECENT:]
        self._closed += window.scores
        self._order += Order.of(window.scores)
        self._last = window.scores
        self._windows += 1
        if 0 < self._start == self._windows:
            self._before = self._closed + Scores()
        self._left = WINDOW
        self.present = Scores()
        for alarmed in KINDS:
            self._most[alarmed] = max(self._most[alarmed], self.log_wealth(alarmed))

    @property
    def windows(self) -> int:
        """Windows closed, and the number of the present one."""
        return self._windows

    @property
    def total(self) -> Scores:
        """Scores of all events."""
        return self._closed + self.present

    @property
    def order(self) -> Order:
        """How events are ranked within windows, the present one included."""
        return self._order + Order.of(self.present)

    @property
    def last(self) -> Window | None:
        """The last complete window; None before the first."""
        return Window(self._windows - 1, self._last) if self._windows else None

    def worst(self, kind: Kind) -> Window | None:
        """Return the complete window of the largest ECE, the earliest of equals; None before the first."""
        return self._worst[kind] if self._windows else None

    def restart(self, since: int) -> bool:
        """Begin the alarms anew with the next window, or at once if the present one is empty.

        Parameters
        ----------
        since
            When this was asked for, ms; nothing happens if it was asked for then or later before.

        Returns
        -------
        bool
            Whether they began anew, so that both rows must be written.
        """
        if since <= self._since:
            return False
        self._since = since
        self._start = self._windows + (self._left < WINDOW)
        self._before = self._closed + Scores() if self._left == WINDOW else None
        self._won = dict.fromkeys(KINDS, -math.inf)
        self._most = dict.fromkeys(KINDS, 0.0)
        return True

    def log_wealth(self, kind: Alarmed) -> float:
        """Return the log of the wealth that bets against calibration have now, in nats; it may fall."""
        windows = self._windows - self._start
        if windows < 0:
            return 0.0
        counted = self.total if self._before is None else self.total - self._before
        whole = log_wealth(counted.cells(kind))
        now = _log_share(windows) + self._log_present(kind)
        waiting = -math.log(windows + 2)
        return log_sum((whole, self._won[kind], now, waiting)) - math.log(2.0)

    def log_alarm(self, kind: Alarmed) -> float:
        """Return the log of the largest wealth seen, now or when a window closed; from log(1/α) on it is an alarm."""
        return max(self._most[kind], self.log_wealth(kind))

    def log_recent(self, kind: Alarmed) -> float:
        """Return the log of the recent alarm, in nats; from log(1/α) on it is one. It falls when the trouble ends."""
        windows = min(self._windows - self._start, RECENT)
        if windows < 0:
            return 0.0
        wealths = [self._log_present(kind)]
        if windows:
            wealths.append(log_wealth((self._last + self.present).cells(kind)))
            off, variance = distance(self.present.cells(kind))
            first = 2 * KINDS.index(kind)
            for n, past in enumerate(reversed(self._past[-windows:])):
                off, variance = off + past[first], variance + past[first + 1]
                if n:
                    wealths.append(log_mean_bet(off, variance))
        return log_sum(wealths) - math.log(2 * len(wealths))

    def _log_present(self, kind: Alarmed) -> float:
        return log_wealth(self.present.cells(kind))

    def encode(self) -> bytes:
        """Return what every event changes; layout in the class's notes."""
        return _HEAD.pack(self._windows, WINDOW - self._left) + _sized(self.present) + self.bias.encode()

    def encode_closed(self) -> bytes:
        """Return what changes when a window closes."""
        parts: list[bytes] = [
            _CLOSED.pack(
                self._windows,
                self._start,
                self._since,
                *(book[kind] for kind in KINDS for book in (self._won, self._most)),
            ),
            self._order.encode(),
            *(_PAST.pack(*past) for past in self._past),
            _sized(self._closed),
            _sized(self._last),
            _SAME if self._before is None else _sized(self._before),
        ]
        before = None
        for worst in self._worst.values():
            parts.append(_WORST.pack(worst.number) + (_sized(worst.scores) if worst.number != before else _SAME))
            before = worst.number
        return b"".join(parts)

    @classmethod
    def decode(cls, present: bytes, closed: bytes | None) -> Self:
        """Read what `encode` and `encode_closed` wrote; ``closed`` is None while no window was.

        Raises
        ------
        ValueError
            If either is cut, or they do not belong together.
        """
        if len(present) < _HEAD.size:
            raise ValueError(f"a history of {len(present)} bytes is shorter than its own header")
        history = cls()
        history._windows, events = _HEAD.unpack_from(present)
        history.present, at = _taken(present, _HEAD.size)
        history._left = WINDOW - events
        if not 0 <= events < WINDOW or history.present.n != events:
            raise ValueError(f"a window says it has {events} events, its scores have {history.present.n}")
        history.bias = Bias.decode(present[at:])
        windows = 0 if closed is None else _CLOSED.unpack_from(closed)[0]
        if windows != history._windows:
            raise ValueError(f"a history of {history._windows} windows came with the closed ones of {windows}")
        if closed is not None:
            history._read(closed)
        return history

    def _read(self, closed: bytes) -> None:
        _, self._start, self._since, *books = _CLOSED.unpack_from(closed)
        self._won = dict(zip(KINDS, books[::2], strict=True))
        self._most = dict(zip(KINDS, books[1::2], strict=True))
        start = _CLOSED.size + order.SIZE
        self._order = Order.decode(closed[_CLOSED.size : start])
        at = start + _PAST.size * min(self._windows, RECENT)
        self._past = [list(past) for past in _PAST.iter_unpack(closed[start:at])]
        self._closed, at = _taken(closed, at)
        self._last, at = _taken(closed, at)
        if closed[at : at + _LENGTH.size] == _SAME:
            at += _LENGTH.size
        else:
            self._before, at = _taken(closed, at)
        window: Window | None = None
        for kind in SCORED:
            (number,) = _WORST.unpack_from(closed, at)
            at += _WORST.size
            if window is not None and closed[at : at + _LENGTH.size] == _SAME:
                at += _LENGTH.size
            else:
                scores, at = _taken(closed, at)
                window = Window(number, scores)
            self._worst[kind] = window
        if at != len(closed):
            raise ValueError(f"closed windows have {at} bytes, got {len(closed)}")


def overall(histories: Iterable[History]) -> Scores:
    """Return the scores of all events of all partitions."""
    return total(history.total for history in histories)


def ranked(histories: Iterable[History]) -> Order:
    """Return how events are ranked within the windows of all partitions."""
    return reduce(Order.__add__, [history.order for history in histories], Order())


def worst(histories: Iterable[History], kind: Kind) -> Window | None:
    """Return the worst window of any partition; None if none has a complete one."""
    found = [window for history in histories if (window := history.worst(kind))]
    return max(found, key=lambda window: window.scores.ece(kind), default=None)


def log_alarm(histories: Sequence[History], kind: Alarmed) -> float:
    """Return the log of the alarm over several partitions, at least one.

    Whatever the partitions share, each alarm ever reaches K/α with probability at most α/K, so the largest of K alarms,
    divided by K, keeps the threshold 1/α by the union bound, and an alarm given stays. (The mean of the wealths is
    valid too, but may fall. Their product needs independent partitions.)
    """
    return max(history.log_alarm(kind) for history in histories) - math.log(len(histories))


def log_recent(histories: Sequence[History], kind: Alarmed) -> float:
    """Return the log of the recent alarm over several partitions, at least one; as `log_alarm` does."""
    return max(history.log_recent(kind) for history in histories) - math.log(len(histories))


def _log_share(number: int) -> float:
    """Return the log of the share that bets on a window; shares of all windows add up to 1."""
    return -math.log((number + 1) * (number + 2))


def _sized(scores: Scores) -> bytes:
    payload = scores.encode()
    return _LENGTH.pack(len(payload)) + payload


def _taken(payload: bytes, at: int) -> tuple[Scores, int]:
    """Return the scores at a place, and the place behind them."""
    start = at + _LENGTH.size
    if len(payload) < start:
        raise ValueError(f"a history of {len(payload)} bytes is shorter than its own header")
    end = start + _LENGTH.unpack_from(payload, at)[0]
    return Scores.decode(payload[start:end]), end
