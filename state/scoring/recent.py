"""The last events of a segment, in windows: where it went wrong lately, and with what evidence."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, Self

from state.scoring.alarm import log_mean_bet

#: Fewest events of a window that is closed. Against an error of .2 at a rate of .2 some 150 events are enough, so a
#: segment with few events is judged by windows that last longer, and not by windows that are too small.
LEAST: Final = 250
#: Closed windows that are kept beside the present one.
RECENT: Final = 8

_HEAD: Final = Struct("<BI")
_WINDOW: Final = Struct("<IIIdd")


class Stretch(NamedTuple):
    """The last windows of a segment, as one.

    Attributes
    ----------
    windows
        How many, with the present one; at least 1.
    n, y
        Events, and those that happened.
    p
        Σ of the forecasts served.
    variance
        Σ p(1 - p).
    """

    windows: int
    n: int
    y: int
    p: float
    variance: float


class Recent:
    """Sums over the last windows of a segment of what was served, and the recent alarm that follows from them.

    Attributes
    ----------
    joined
        Partitions whose windows were added up, see the notes; 1 as observed. It is not stored.
    last
        The last window of the stream that had an event of the segment.

    Notes
    -----
    **Windows.** Windows of a segment begin where windows of its stream begin, which have 5,000 events
    (`state.scoring.history`). A window of the segment is closed by the first event of a later window of the stream, if
    it has `LEAST` events by then. So a large segment has one window in each window of the stream, and a small one has
    windows that last longer. The present window and the last `RECENT` closed ones are kept. Where windows end depends
    on how many events came, and not on labels.

    **Recent alarm.** A gambler (`state.scoring.alarm`) begins with every window, bets that all forecasts are too high
    or too low, and stops after `RECENT` more windows. The alarm is the largest wealth of those who still play. If
    forecasts are calibrated, each gambler ever reaches 1/α with a probability of at most α. So a calibrated segment has
    at most one false alarm in 1/α of its windows. Each of K segments has at most one window in each window of the
    stream. So with the threshold K/α they all together have at most one false alarm in 1/α windows of the stream,
    however many segments there are, and whether or not they share events. The bets are on one cell, all of the segment:
    forecasts that are too extreme, and right on average, are found by the lifetime's evidence only.

    **Partitions.** Windows of several partitions are added by their age, the present ones first. Whenever one of them
    closes a window, each of the `RECENT` + 1 stretches is a new gambler's. So that many times the evidence is needed:
    `log_alarm` takes their log away. This holds if how fast partitions are does not depend on outcomes.

    **Revisions.** A row of the ledger has the window of the stream in which its event counted. The event is in the last
    window of the segment that does not begin later. So after `revise` sums are those of the corrected labels, exactly.

    Bytes, little-endian: how many windows follow (u8), the last window of the stream that had an event (u32); then of
    each window, the oldest first, the window of the stream in which it begins, n and Σy (u32 each), Σp and Σp² (f64
    each). 5 bytes without events, and 257 at most.

    Examples
    --------
    >>> recent = Recent()
    >>> for window in range(12):
    ...     for t in range(300):
    ...         recent.observe(0.25, 0.0625, float(t % 4 == 0 or window == 11 and t % 2), window)
    >>> evidence, stretch = recent.log_alarm()
    >>> stretch.windows, stretch.n, evidence > 30.0, len(recent.stretches())
    (1, 300, True, 9)
    """

    __slots__ = ("_past", "_start", "_sums", "joined", "last")

    def __init__(self) -> None:
        self.joined = 1
        self.last = 0
        self._start = 0
        #: n, Σy, Σp and Σp² of the present window.
        self._sums = [0.0, 0.0, 0.0, 0.0]
        #: The same of closed windows, and where they begin.
        self._past: list[tuple[int, list[float]]] = []

    def observe(self, p: float, pp: float, y: float, window: int) -> None:
        """Add an event.

        Parameters
        ----------
        p, pp
            What was served, and its square, rounded by `state.scoring.scores.grain`.
        y
            0 or 1.
        window
            The window of the stream, see `state.scoring.history.History.windows`. It never falls.
        """
        if window > self.last or not self._sums[0]:
            self._enter(window)
        sums = self._sums
        sums[0] += 1.0
        sums[1] += y
        sums[2] += p
        sums[3] += pp

    def add(self, sums: Sequence[float], window: int) -> None:
        """Add all events of a window of the stream, as `observe` does: n, at least 1, Σy, Σp and Σp²."""
        self._enter(window)
        self._sums = [a + b for a, b in zip(self._sums, sums, strict=True)]

    def _enter(self, window: int) -> None:
        """Begin a window of the stream that has an event of the segment."""
        if self._sums[0] >= LEAST:
            self._past = [*self._past, (self._start, self._sums)][-RECENT:]
            self._sums = [0.0, 0.0, 0.0, 0.0]
        if not self._sums[0]:
            self._start = window
        self.last = window

    def revise(self, was: float, y: float, window: int) -> None:
        """Give an event that was observed in a window of the stream another label; nothing if it is too long ago."""
        if window >= self._start:
            self._sums[1] += y - was
            return
        for start, sums in reversed(self._past):
            if window >= start:
                sums[1] += y - was
                return

    def __add__(self, other: Self) -> Self:
        """Return the windows of both partitions, added by their age."""
        one, two = self._windows(), other._windows()
        total = type(self)()
        total.joined = self.joined + other.joined if one and two else (self if one else other).joined
        total.last = max(self.last, other.last)
        longer, shorter = (one, two) if len(one) >= len(two) else (two, one)
        if not longer:
            return total
        made = [(start, sums[:]) for start, sums in longer]
        for i in range(1, len(shorter) + 1):
            start, sums = shorter[-i]
            at = max(start, made[-i][0])
            made[-i] = at, [a + b for a, b in zip(made[-i][1], sums, strict=True)]
        total._start, total._sums = made.pop()
        total._past = made
        return total

    def _windows(self) -> list[tuple[int, list[float]]]:
        return [*self._past, (self._start, self._sums)] if self._sums[0] else []

    def stretches(self) -> list[Stretch]:
        """Return the present window, then it with the one before, and so on; none without events."""
        made = []
        n, y, p, pp = 0.0, 0.0, 0.0, 0.0
        for i, (_, sums) in enumerate(reversed(self._windows())):
            n, y, p, pp = n + sums[0], y + sums[1], p + sums[2], pp + sums[3]
            made.append(Stretch(i + 1, int(n), int(y), p, max(p - pp, 0.0)))
        return made

    def log_alarm(self) -> tuple[float, Stretch | None]:
        """Return the log of the recent alarm, in nats, and the stretch that has it; (0, None) without events.

        From log(K/α) on it fires, K the number of segments. It falls when windows that were wrong are no longer kept.
        """
        best, where = -math.inf, None
        for stretch in self.stretches():
            wealth = log_mean_bet(stretch.y - stretch.p, stretch.variance)
            if wealth > best:
                best, where = wealth, stretch
        if where is None:
            return 0.0, None
        return best - (math.log(RECENT + 1) if self.joined > 1 else 0.0), where

    def encode(self) -> bytes:
        """Return the windows; layout in the class's notes."""
        windows = self._windows()
        parts = [_WINDOW.pack(start, int(s[0]), int(s[1]), s[2], s[3]) for start, s in windows]
        return _HEAD.pack(len(windows), self.last) + b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes, at: int) -> tuple[Self, int]:
        """Read what `encode` wrote; return it and the offset after it.

        Raises
        ------
        ValueError, struct.error
            If the payload is cut, or has more windows than are kept.
        """
        recent = cls()
        n, recent.last = _HEAD.unpack_from(payload, at)
        at += _HEAD.size
        if n > RECENT + 1:
            raise ValueError(f"scores of a segment keep {RECENT + 1} windows, got {n}")
        for _ in range(n):
            start, events, *sums = _WINDOW.unpack_from(payload, at)
            recent._past.append((start, [float(events), *map(float, sums)]))
            at += _WINDOW.size
        if n:
            recent._start, recent._sums = recent._past.pop()
        return recent, at
