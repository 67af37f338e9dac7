"""Scores of a stream on one partition: of all events and of windows, with the alarms."""

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from struct import Struct
from typing import Final, Literal, NamedTuple, Self

from state.scoring.alarm import distance, log_mean_bet, log_share, log_sum, log_wealth
from state.scoring.bias import Bias
from state.scoring.order import Order
from state.scoring.scores import SCORED, Kind, Scores, grain, total
from state.scoring.warm_up import WarmUp

#: Resolved events of a window. The ECE of 5,000 calibrated forecasts is below .018 on average (`Scores.noise` at its
#: largest), so a window with .03 shows an error. At one event a second a window takes an hour and a half.
WINDOW = 5000

#: The kinds that are probabilities, so that an alarm is possible: see `state.scoring.alarm`.
Alarmed = Literal["raw", "calibrated"]
KINDS: Final[tuple[Alarmed, ...]] = ("raw", "calibrated")
#: Closed windows that the recent alarm covers: 40,000 events.
RECENT: Final = 8

_HEAD: Final = Struct("<II")
_CLOSED: Final = Struct("<II4d")
_PAST: Final = Struct("<4d")
_PAST_SUMS: Final = 4
_LENGTH: Final = Struct("<H")
_WORST: Final = Struct("<I")
#: In place of a length and scores: the scores are the same as before, or there are none.
_SAME: Final = _LENGTH.pack(0)


class Window(NamedTuple):
    """A complete window: its number on its partition, from 0, and its scores.

    Window ``number`` holds the resolved events from ``number * WINDOW`` up to ``(number + 1) * WINDOW - 1``.
    """

    number: int
    scores: Scores


class History:
    """Scores of a stream, in all and by window, with an alarm for each kind of forecast.

    Notes
    -----
    Events are added to the present window only. After `WINDOW` events the window is closed. Its scores are added to the
    sums of closed windows, kept as the last window, and kept as the worst window of a kind if its ECE is the largest so
    far. Windows are counted in events, so they do not depend on batches. The scores of all events are those of closed
    windows plus those of the present one.

    **Alarm.** The gambler of `alarm` divides the wealth. One half bets on all events together and finds a small lasting
    bias. Of the other half, the share 1/((w + 1)(w + 2)) bets on window w alone and finds later errors. Shares of later
    windows wait. With E the wealth on a stretch of events and w the present window, the wealth is

        (E(all) + Σ_{v <= w} E(window v) / ((v + 1)(v + 2)) + 1/(w + 2)) / 2.

    It starts at 1, and P(it ever reaches 1/α) <= α. The wealth of closed windows is kept, so an alarm stays.

    **Recent alarm.** This alarm ends some time after an error has ended. Two gamblers begin with every window. The
    first also bets on cells and stops after two windows. The second bets only on all cells together and stops after
    `RECENT` windows. The alarm is half the mean of these wealths: of the first gamblers who began with the present
    window or with the last one, and of the second gamblers who began earlier. It reaches 1/α only if one of them
    reaches 2/α. Each does so by chance with probability at most α/2. So a calibrated stream has at most one false alarm
    in 1/α windows.

    **Warm-up.** What was answered in a warm-up counts in none of this, see `state.scoring.warm_up`.

    **Order.** The hypothesis is about the order of *resolution*: given all outcomes that were known before, the
    probability of this one was the forecast. For late outcomes this needs more than calibration when the forecast was
    issued. Outcomes that resolved in between must not tell anything about this one, and the time of an outcome must not
    depend on its value. If ones come first (a chargeback comes, its absence expires), the alarm fires on calibrated
    forecasts.

    **Revisions.** `revise` corrects the sums of the event's window, the sums of all closed windows, and the last and
    the worst windows if the event is in them. Sums are exact (`scores`), so the rows equal those of the corrected
    labels. The wealth from bets on earlier windows is not corrected, and the choice of the worst window neither.

    Bytes, little-endian, in two rows, because the second changes only when a window closes. `encode`: windows closed,
    events in the present one (u32 each), the `WarmUp`, length (u16) and scores of the present window, the features'
    `Bias`. `encode_closed`: windows closed, the window that the alarms count from (u32 each; not 0 only after
    `resumed`), the log of the summed wealth of closed windows and of the largest wealth when one closed (f64, raw and
    calibrated each); of each of the last `RECENT` windows, the oldest first, S and V of raw, S and V of calibrated
    (f64, see `alarm`); length (u16) and scores of all closed windows, of the last one, and of those before the alarms
    count, length 0 if there are none; then for each kind the number of the worst window (u32) with length (u16) and
    scores. The length is 0 if it is the worst window of the kind before. Usually 2.2 and 12 kB, 1.5 and 7 kB without
    draws; at most 9 and 49 kB.
    """

    __slots__ = (
        "_before",
        "_closed",
        "_last",
        "_left",
        "_most",
        "_past",
        "_start",
        "_windows",
        "_won",
        "_worst",
        "bias",
        "present",
        "warm_up",
    )

    def __init__(self) -> None:
        self.present = Scores()
        self.bias = Bias()
        self.warm_up = WarmUp()
        self._left = WINDOW
        self._windows = 0
        self._closed = Scores()
        self._last = Scores()
        self._worst = dict.fromkeys(SCORED, Window(0, self._last))
        self._won: dict[Alarmed, float] = dict.fromkeys(KINDS, -math.inf)
        self._most: dict[Alarmed, float] = dict.fromkeys(KINDS, 0.0)
        self._past: list[list[float]] = []
        #: The window from which the alarms count, and the scores before it.
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
            The old label, and the new one.
        window
            `windows` when it was observed.

        Returns
        -------
        bool
            Whether a closed window changed, so that its row must be written.

        Raises
        ------
        ValueError
            If the window does not exist yet.
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
            changed = list({id(each): each for each in found}.values())  # the last window may be the worst
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
                here = log_share(window.number - self._start) + self._log_present(alarmed)
                self._won[alarmed] = log_sum((self._won[alarmed], here))
        self._past = [*self._past, [each for kind in KINDS for each in distance(window.scores.cells(kind))]][-RECENT:]
        self._closed += window.scores
        self._last = window.scores
        self._windows += 1
        self._left = WINDOW
        self.present = Scores()
        for alarmed in KINDS:
            self._most[alarmed] = max(self._most[alarmed], self.log_wealth(alarmed))

    @property
    def windows(self) -> int:
        """The number of closed windows, which is also the number of the present one."""
        return self._windows

    @property
    def total(self) -> Scores:
        """Scores of all events, but for those of a warm-up."""
        return self._closed + self.present

    @property
    def lately(self) -> Order:
        """How events are ranked within the present window and the one before."""
        return Order.of(self.present) + Order.of(self._last)

    @property
    def n(self) -> int:
        """Events observed, but for those of a warm-up."""
        return self.total.n

    @property
    def last(self) -> Window | None:
        """The last complete window; None before the first."""
        return Window(self._windows - 1, self._last) if self._last.n else None

    def worst(self, kind: Kind) -> Window | None:
        """Return the complete window with the largest ECE, of equal ones the earliest; None before the first."""
        return self._worst[kind] if self._worst[kind].scores.n else None

    @classmethod
    def resumed(cls, before: Sequence[Self], rest: Scores, partitions: int) -> Self:
        """Return the history that goes on for several others, of partitions that are no more.

        Its first windows hold all events of the others that it is not to observe itself, one for each kind's worst
        window. The alarms have reached what all others together had reached, and count from the next window on.

        Parameters
        ----------
        before
            The others, at least one.
        rest
            Scores of these events.
        partitions
            How many histories the stream has from now on.
        """
        made = cls()
        made._windows = made._start = len(SCORED)
        made._closed = rest
        made._before = rest + Scores()
        made._last = total(window.scores for each in before if (window := each.last))
        found = [worst(before, kind) for kind in SCORED]
        made._worst = {
            kind: Window(n, made._last if each is None else each.scores)
            for n, (kind, each) in enumerate(zip(SCORED, found, strict=True))
        }
        made._past = [[0.0] * _PAST_SUMS for _ in SCORED]
        level = math.log(partitions)
        made._most = {kind: max(0.0, log_alarm(before, kind) + level) for kind in KINDS}
        return made

    def log_wealth(self, kind: Alarmed) -> float:
        """Return the log of the present wealth of the bets against calibration, in nats; it may fall."""
        windows = self._windows - self._start
        if windows < 0:
            return 0.0
        counted = self.total if self._before is None else self.total - self._before
        whole = log_wealth(counted.cells(kind))
        now = log_share(windows) + self._log_present(kind)
        waiting = -math.log(windows + 2)
        return log_sum((whole, self._won[kind], now, waiting)) - math.log(2.0)

    def log_alarm(self, kind: Alarmed) -> float:
        """Return the log of the largest wealth, now or when a window closed; from log(1/α) on it is an alarm."""
        return max(self._most[kind], self.log_wealth(kind))

    def log_recent(self, kind: Alarmed) -> float:
        """Return the log of the recent alarm, in nats; from log(1/α) on it fires. It falls after the error ends."""
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
        """Return the row that every event changes; layout in the class's notes."""
        head = _HEAD.pack(self._windows, WINDOW - self._left) + self.warm_up.encode()
        return head + _sized(self.present) + self.bias.encode()

    def encode_closed(self) -> bytes:
        """Return the row that changes when a window closes; layout in the class's notes."""
        parts: list[bytes] = [
            _CLOSED.pack(
                self._windows,
                self._start,
                *(book[kind] for kind in KINDS for book in (self._won, self._most)),
            ),
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
        """Read what `encode` and `encode_closed` wrote; ``closed`` is None if no window was closed.

        Raises
        ------
        ValueError
            If either is cut, or they do not belong together.
        """
        if len(present) < _HEAD.size:
            raise ValueError(f"a history of {len(present)} bytes is shorter than its own header")
        history = cls()
        history._windows, events = _HEAD.unpack_from(present)
        history.warm_up, at = WarmUp.decode(present, _HEAD.size)
        history.present, at = _taken(present, at)
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
        _, self._start, *books = _CLOSED.unpack_from(closed)
        self._won = dict(zip(KINDS, books[::2], strict=True))
        self._most = dict(zip(KINDS, books[1::2], strict=True))
        start = _CLOSED.size
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


def warmed(histories: Iterable[History]) -> WarmUp:
    """Return the warm-up of all partitions."""
    return reduce(WarmUp.__add__, [history.warm_up for history in histories], WarmUp())


def worst(histories: Iterable[History], kind: Kind) -> Window | None:
    """Return the worst window of any partition; None if none has a complete one."""
    found = [window for history in histories if (window := history.worst(kind))]
    return max(found, key=lambda window: window.scores.ece(kind), default=None)


def log_alarm(histories: Sequence[History], kind: Alarmed) -> float:
    """Return the log of the alarm over several partitions, at least one.

    Each alarm ever reaches K/α with probability at most α/K, also if the partitions are dependent. So by the union
    bound, the largest of K alarms, divided by K, has the threshold 1/α, and an alarm stays. (The mean of the wealths is
    valid, too, but may fall. Their product needs independent partitions.)
    """
    return max(history.log_alarm(kind) for history in histories) - math.log(len(histories))


def log_recent(histories: Sequence[History], kind: Alarmed) -> float:
    """Return the log of the recent alarm over several partitions, at least one; as `log_alarm` does."""
    return max(history.log_recent(kind) for history in histories) - math.log(len(histories))


def _sized(scores: Scores) -> bytes:
    payload = scores.encode()
    return _LENGTH.pack(len(payload)) + payload


def _taken(payload: bytes, at: int) -> tuple[Scores, int]:
    """Return the scores at an offset, and the offset after them."""
    start = at + _LENGTH.size
    if len(payload) < start:
        raise ValueError(f"a history of {len(payload)} bytes is shorter than its own header")
    end = start + _LENGTH.unpack_from(payload, at)[0]
    return Scores.decode(payload[start:end]), end
