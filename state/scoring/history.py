"""Scores of a stream of probabilities on one partition: of all events and by window, with alarms."""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, Self

from state.scoring.alarm import distance, log_mean_bet, log_wealth
from state.scoring.bias import Bias
from state.scoring.cells import grain
from state.scoring.order import Order
from state.scoring.scores import SCORED, Scores
from state.scoring.warm_up import WarmUp
from state.scoring.windows import KINDS, RECENT, WEALTH, Alarmed, Window, Windows, last

#: Events in a window. The ECE of 5,000 calibrated forecasts is below .018 on average (`Scores.noise` at its largest),
#: so a window with .03 shows an error. At one event a second a window takes an hour and a half.
WINDOW = 5000

_HEAD: Final = Struct("<II")
_PAST: Final = Struct("<4d")
_PAST_SUMS: Final = 4
_LENGTH: Final = Struct("<H")
_WORST: Final = Struct("<I")
#: Marks in a row: these scores equal those before; or there are none.
_SAME: Final = _LENGTH.pack(0)
#: Values of histories before the first event and the first window. They never change.
_NOTHING: Final = Scores()
_NO_PAST: Final[list[list[float]]] = []
_NO_WORST: Final = dict.fromkeys(SCORED, Window(0, _NOTHING))
_NO_BYTES: Final = _LENGTH.pack(len(_NOTHING.encode())) + _NOTHING.encode()


class History(Windows[Scores]):
    """Scores of a stream, over all events and by window, with an alarm for each kind of forecast.

    Notes
    -----
    Windows have `WINDOW` events, and the error of one is its ECE. The scores of all events are those of closed windows
    plus those of the present one.

    **Recent alarm.** Two gamblers begin with every window. The first also bets on cells and stops after two windows.
    The second bets only on all cells together and stops after `RECENT` windows, 40,000 events. The alarm is half the
    mean of these wealths: of the first gamblers who began with the present window or with the last one, and of the
    second gamblers who began earlier. It reaches 1/α only if one of them reaches 2/α. Each does so by chance with
    probability at most α/2. So a calibrated stream has on average at most one false alarm in 1/α windows.

    **Revisions.** `revise` corrects the sums of the event's window, the sums of all closed windows, and the last and
    the worst windows if the event is in them. Sums are exact (`scores`), so the rows equal those of the corrected
    labels.

    Bytes, little-endian, in two rows, because the second changes only when a window closes. `encode`: windows closed,
    events in the present one (u32 each), the `WarmUp`, length (u16) and scores of the present window, the features'
    `Bias`. `encode_closed`: windows closed, the window that the alarms count from (u32 each; not 0 only after `resumed`
    or `begin_anew`), the log of the summed wealth of closed windows and of the largest wealth when one closed (f64, raw
    and calibrated each); of each of the last `RECENT` windows, the oldest first, S and V of raw, S and V of calibrated
    (f64, see `alarm`); length (u16) and scores of all closed windows, of the last one, and of those before the alarms
    count, length 0 if there are none; then for each kind the number of the worst window (u32) with length (u16) and
    scores. The length is 0 if it is the worst window of the kind before. Usually 2.2 and 12 kB, 1.5 and 7 kB without
    draws; at most 9 and 49 kB.
    """

    __slots__ = ("_before", "_closed", "_newest", "_past", "bias")

    def __init__(self) -> None:
        super().__init__(_NOTHING, SCORED, none=_NO_WORST)
        #: Bias of the forecasts along the features, if the calibrator takes any.
        self.bias = Bias()

        self._closed = self._newest = _NOTHING
        self._past = _NO_PAST
        #: Scores before the window from which the alarms count.
        self._before: Scores | None = None

    def observe(self, raw: float, p: float, y: float, draw: float | None = None) -> bool:
        """Add one event, see `Scores.observe`; return whether it closed a window."""
        if self.present is _NOTHING:
            self.present = Scores()
        self.present.observe(raw, p, y, draw)
        self._events += 1
        if self._events < WINDOW:
            return False
        self._close()
        self._look()
        return True

    def revise(self, raw: float, p: float, draw: float | None, was: float, y: float, window: int) -> bool:
        """Give an event another label.

        Raises ValueError if the window does not exist yet.
        Returns whether a closed window changed, so that its row must be written.

        ``raw, p, draw``: as they were observed.
        ``was, y``: the old label, and the new one.
        ``window``: `windows` when it was observed.
        """
        for scores in self._of(window):
            scores.observe(raw, p, was, draw, -1)
            scores.observe(raw, p, y, draw)
        if self.windows - len(self._past) <= window < self.windows:
            past = self._past[window - self.windows]
            past[0] += grain(y) - grain(was)
            past[2] += grain(y) - grain(was)
        return window < self.windows

    def _last(self) -> Scores | None:
        return self._newest if self._newest.n else None

    def _keep(self, window: Scores) -> None:
        self._past = [*self._past, [each for kind in KINDS for each in distance(window.cells(kind))]][-RECENT:]
        self._closed += window
        self._newest = window

    def _kept(self, window: int) -> list[Scores]:
        found = [self._closed]
        if window == self.windows - 1:
            found.append(self._newest)
        if self._before is not None and window < self._start:
            found.append(self._before)
        return found

    def _forget(self) -> None:
        self._before = self._closed + Scores()

    def _log_whole(self, kind: Alarmed) -> float:
        counted = self.total if self._before is None else self.total - self._before
        return counted.log_wealth(kind)

    def _log_recent(self, kind: Alarmed, windows: int) -> list[float]:
        wealths = [self.present.log_wealth(kind)]
        if windows:
            wealths.append(log_wealth((self._newest + self.present).cells(kind)))
            off, variance = distance(self.present.cells(kind))
            first = 2 * KINDS.index(kind)
            for n, past in enumerate(reversed(self._past[-windows:])):
                off, variance = off + past[first], variance + past[first + 1]
                if n:
                    wealths.append(log_mean_bet(off, variance))
        return wealths

    @property
    def total(self) -> Scores:
        """Scores of all events, except those of a warm-up."""
        return self._closed + self.present

    @property
    def lately(self) -> Order:
        """Ranking of the events in the present window and the one before."""
        return Order.of(self.present) + Order.of(self._newest)

    @property
    def n(self) -> int:
        """Number of events observed, except those of a warm-up."""
        return self.total.n

    @classmethod
    def resumed(cls, before: Sequence[Self], rest: Scores, partitions: int) -> Self:
        """Return a history that continues one or more others, of partitions that no longer exist.

        ``rest`` are the scores of events that it will not observe itself; ``partitions`` is the new number of
        histories.
        """
        made = cls()
        made._closed = rest
        made._before = rest + Scores()
        made._newest = last(before) or Scores()
        made._past = [[0.0] * _PAST_SUMS for _ in SCORED]
        made._go_on(before, made._newest, partitions)
        return made

    def encode(self) -> bytes:
        """Return the row that every event changes; layout in the class's notes."""
        head = _HEAD.pack(self.windows, self._events) + self.warm_up.encode()
        return head + _sized(self.present) + self.bias.encode()

    def encode_closed(self) -> bytes:
        """Return the row that changes when a window closes; layout in the class's notes."""
        parts: list[bytes] = [
            _HEAD.pack(self.windows, self._start),
            WEALTH.pack(*self._wealth()),
            *(_PAST.pack(*past) for past in self._past),
            _sized(self._closed),
            _sized(self._newest),
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

        Raises ValueError if either is cut, or they do not belong together.
        """
        if len(present) < _HEAD.size:
            raise ValueError(f"a history of {len(present)} bytes is shorter than its own header")
        history = cls()
        history.windows, history._events = _HEAD.unpack_from(present)
        history.warm_up, at = WarmUp.decode(present, _HEAD.size)
        history.present, at = _taken(present, at)
        if not 0 <= history._events < WINDOW or history.present.n != history._events:
            raise ValueError(f"a window says it has {history._events} events, its scores have {history.present.n}")
        history.bias = Bias.decode(present[at:])
        windows = 0 if closed is None else _HEAD.unpack_from(closed)[0]
        if windows != history.windows:
            raise ValueError(f"a history of {history.windows} windows came with the closed ones of {windows}")
        if closed is not None:
            history._read(closed)
        return history

    def _read(self, closed: bytes) -> None:
        _, self._start = _HEAD.unpack_from(closed)
        self._take_wealth(WEALTH.unpack_from(closed, _HEAD.size))
        start = _HEAD.size + WEALTH.size
        at = start + _PAST.size * min(self.windows, RECENT)
        self._past = [list(past) for past in _PAST.iter_unpack(closed[start:at])]
        self._closed, at = _taken(closed, at)
        self._newest, at = _taken(closed, at)
        if closed[at : at + _LENGTH.size] == _SAME:
            at += _LENGTH.size
        else:
            self._before, at = _taken(closed, at)
        window: Window | None = None
        found: dict[Any, Window] = {}
        for kind in SCORED:
            (number,) = _WORST.unpack_from(closed, at)
            at += _WORST.size
            if window is not None and closed[at : at + _LENGTH.size] == _SAME:
                at += _LENGTH.size
            else:
                scores, at = _taken(closed, at)
                window = Window(number, scores)
            found[kind] = window
        self._worst = found
        if at != len(closed):
            raise ValueError(f"closed windows have {at} bytes, got {len(closed)}")


def _sized(scores: Scores) -> bytes:
    if scores is _NOTHING:
        return _NO_BYTES
    payload = scores.encode()
    return _LENGTH.pack(len(payload)) + payload


def _taken(payload: bytes, at: int) -> tuple[Scores, int]:
    """Return the scores at an offset, and the offset after them."""
    start = at + _LENGTH.size
    if len(payload) < start:
        raise ValueError(f"a history of {len(payload)} bytes is shorter than its own header")
    end = start + _LENGTH.unpack_from(payload, at)[0]
    if payload[at:end] == _NO_BYTES:
        return _NOTHING, end
    return Scores.decode(payload[start:end]), end
