"""The last events of a segment, in windows, with an alarm for recent errors."""

import math
from collections.abc import Sequence
from functools import cache
from struct import Struct
from typing import Final, NamedTuple, Self

from state.scoring.alarm import log_level_bet, log_sum

#: Fewest events of a closed window. Finding an error of .2 at a rate of .2 takes some 150 events, so the windows of
#: small segments last longer.
LEAST: Final = 250
#: Number of closed windows that are kept, in addition to the present one.
RECENT: Final = 8

_HEAD: Final = Struct("<BI")


@cache
def _binary(marks: int) -> Struct:
    """Return the layout of a window with this many binary events."""
    return Struct(f"<II{marks}I{2 * marks}d")


@cache
def _levels(marks: int) -> Struct:
    """Return the layout of a window with this many levels."""
    return Struct(f"<II{2 * marks}I")


class Stretch(NamedTuple):
    """The last windows of a segment, added up, for one binary event or one level."""

    #: Number of windows, the present one included; at least 1.
    windows: int
    #: Number of events; and of those that happened (for a level, of those below its quantile).
    n: int
    y: int
    #: For a level, the events at or below its quantile; for a binary event the same as ``y``.
    upto: int
    #: Sum of the served forecasts; for a level, n times the level.
    p: float
    #: Σ p(1 - p).
    variance: float
    #: Number of the binary event or level, from 0.
    mark: int


class Recent:
    """Sums of served forecasts over a segment's last windows, with the recent alarm.

    ``marks``: number of binary events per event, each with a served probability: one for a probability, several for
    classes (`state.scoring.segment_pairs`).

    Notes
    -----
    **Windows.** A segment's window begins where a window of its stream begins. A window of the stream has 5,000
    events (`state.scoring.history`; for classes and numbers, ten windows of `state.scoring.vector_history`). A window
    of the segment is closed by the first event of a later window of the stream, if it has `LEAST` events by then. So
    a large segment has one window in each window of the stream, and a small one has windows that last longer. The
    present window and the last `RECENT` closed ones are kept. Where windows end depends on how many events came, and
    not on labels.

    **Recent alarm.** A gambler (`state.scoring.alarm`) starts with every window, bets that all forecasts are too high
    or too low, and stops after `RECENT` more windows. The alarm is the largest wealth of the active gamblers. If
    forecasts are calibrated, each gambler ever reaches 1/α with a probability of at most α. So a calibrated segment has
    at most one false alarm in 1/α of its windows. Each of K segments has at most one window in each window of the
    stream. So with the threshold K/α all of them together have at most one false alarm in 1/α windows of the stream,
    for any number of segments, even if they share events. The bets are on the whole segment as one cell. Forecasts that
    are too extreme but right on average are found only by the evidence of all events.

    **Several binary events.** Classes and levels have m binary events. The gambler stakes the share 1/m on each. If
    each has the probability that was served, given all outcomes that were known before, the wealth on each is a
    supermartingale that starts at 1. So is their mean, even if the m events depend on one another. So the bound is the
    same: all segments, with all their classes or levels, have at most one false alarm in 1/α windows of the stream.
    Finding one wrong class or level costs log m, 2.2 nats at most.

    **Partitions.** Windows of several partitions are added by age, the present ones first. When one partition closes a
    window, each of the `RECENT` + 1 stretches belongs to a new gambler. So `log_alarm` subtracts the log of their
    number. This assumes that the speed of partitions does not depend on outcomes.

    **Revisions.** A ledger row has the stream's window in which its event counted. The event is in the segment's last
    window that does not begin later. So after `change`, sums are exactly those of the corrected labels.

    Bytes, little-endian: how many windows follow (u8), the last window of the stream that had an event (u32); then for
    each window, the oldest first, the window of the stream in which it begins and n (u32 each), then Σy of each binary
    event (u32 each), then Σp of each, then Σp² of each (f64). 5 bytes without events; at most 257 with one binary
    event, and 1,697 with nine.
    """

    __slots__ = ("_past", "_start", "_sums", "joined", "last", "marks")

    def __init__(self, marks: int = 1) -> None:
        self.marks = marks
        #: Number of partitions whose windows were added up, see the notes. It is not stored.
        self.joined = 1
        #: The last window of the stream that had an event of the segment.
        self.last = 0

        self._start = 0
        #: Sums of the present window: n, then Σy, Σp and Σp² of each binary event.
        self._sums = [0.0] * (1 + 3 * marks)
        #: Closed windows: the stream's window in which they begin, and their sums.
        self._past: list[tuple[int, list[float]]] = []

    def zero(self) -> Self:
        """Return the windows of no events, of the same shape."""
        return type(self)(self.marks)

    def observe(self, p: float, pp: float, y: float, window: int) -> None:
        """Add an event of one probability.

        ``p, pp``: served probability, and its square, rounded by `state.scoring.cells.grain`.
        ``y``: 0 or 1.
        ``window``: the window of the stream, see `state.scoring.history.History.windows`. It never falls.
        """
        if window > self.last or not self._sums[0]:
            self._enter(window)
        sums = self._sums
        sums[0] += 1.0
        sums[1] += y
        sums[2] += p
        sums[3] += pp

    def add(self, sums: Sequence[float], window: int) -> None:
        """Add one or more events of a window of the stream: n, then Σy, Σp and Σp² of each binary event."""
        if window > self.last or not self._sums[0]:
            self._enter(window)
        self._sums = [a + b for a, b in zip(self._sums, sums, strict=True)]

    def _enter(self, window: int) -> None:
        """Begin a window of the stream in which the segment has an event."""
        if self._sums[0] >= LEAST:
            self._past = [*self._past, (self._start, self._sums)][-RECENT:]
            self._sums = [0.0] * len(self._sums)
        if not self._sums[0]:
            self._start = window
        self.last = window

    def change(self, by: Sequence[float], window: int) -> None:
        """Change the first sums of events added in a window of the stream; do nothing if the window is too old."""
        sums = self._of(window)
        if sums is not None:
            for i, each in enumerate(by):
                sums[i] += each

    def _of(self, window: int) -> list[float] | None:
        """Return the sums of the segment's window that has the events of a stream's window; None if it is too old."""
        if window >= self._start:
            return self._sums
        for start, sums in reversed(self._past):
            if window >= start:
                return sums
        return None

    def __add__(self, other: Self) -> Self:
        """Return the windows of both partitions, added up by age."""
        one, two = self._windows(), other._windows()
        total = self.zero()
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

    @property
    def begun(self) -> int | None:
        """The window of the stream in which the first kept window begins; None without events."""
        windows = self._windows()
        return windows[0][0] if windows else None

    def stretches(self, mark: int = 0) -> list[Stretch]:
        """Return the stretches of a binary event: the present window alone, with the one before, and so on."""
        return [self._stretch(i + 1, sums, mark) for i, sums in enumerate(self._totals())]

    def _totals(self) -> list[list[float]]:
        """Return the sums of the present window alone, with the one before, and so on."""
        made: list[list[float]] = []
        total = [0.0] * len(self._sums)
        for _, sums in reversed(self._windows()):
            total = [a + b for a, b in zip(total, sums, strict=True)]
            made.append(total)
        return made

    def _stretch(self, windows: int, sums: Sequence[float], mark: int) -> Stretch:
        m = self.marks
        y, p, pp = int(sums[1 + mark]), sums[1 + m + mark], sums[1 + 2 * m + mark]
        return Stretch(windows, int(sums[0]), y, y, p, max(p - pp, 0.0), mark)

    def log_alarm(self) -> tuple[float, Stretch | None]:
        """Return the log of the recent alarm, in nats, and the stretch that has it; (0, None) without events.

        The stretch is of the binary event or level with the most evidence. The alarm fires from log(K/α) on, K the
        number of segments. It falls when the wrong windows are dropped.
        """
        best, where = -math.inf, None
        for i, sums in enumerate(self._totals()):
            found = [self._stretch(i + 1, sums, mark) for mark in range(self.marks)]
            wealths = [log_level_bet(each.y - each.p, each.upto - each.p, each.variance) for each in found]
            wealth = log_sum(wealths) - math.log(len(wealths))
            if wealth > best:
                best, where = wealth, found[wealths.index(max(wealths))]
        if where is None:
            return 0.0, None
        return best - (math.log(RECENT + 1) if self.joined > 1 else 0.0), where

    def encode(self) -> bytes:
        """Return the windows; layout in the class's notes."""
        windows, layout, counts = self._windows(), self._layout(), self._counts()
        parts = [layout.pack(start, *map(int, sums[:counts]), *sums[counts:]) for start, sums in windows]
        return _HEAD.pack(len(windows), self.last) + b"".join(parts)

    def decode(self, payload: bytes, at: int) -> int:
        """Load what windows of this shape encoded; return the offset after it.

        Raises ValueError or struct.error if the payload is cut, or has more windows than are kept.
        """
        layout = self._layout()
        n, self.last = _HEAD.unpack_from(payload, at)
        at += _HEAD.size
        if n > RECENT + 1:
            raise ValueError(f"scores of a segment keep {RECENT + 1} windows, got {n}")
        self._past = []
        for _ in range(n):
            start, *sums = layout.unpack_from(payload, at)
            self._past.append((start, [float(each) for each in sums]))
            at += layout.size
        if n:
            self._start, self._sums = self._past.pop()
        return at

    def _layout(self) -> Struct:
        return _binary(self.marks)

    def _counts(self) -> int:
        """Return how many of the first sums are integers."""
        return 1 + self.marks


class RecentLevels(Recent):
    """Recent windows of a number: its outcomes below the served quantiles, and at or below them.

    ``levels``: p_1 < ... < p_m.

    Notes
    -----
    The hypothesis is that an outcome lies below the quantile of level p_i with a chance of at most p_i, and at or below
    it with a chance of at least p_i. Bets are those of `state.scoring.alarm.log_level_bet`, so atoms raise no alarm.

    Sums of a window are n, then of each level the outcomes below its quantile, then those at or below it. In the bytes
    they are u32 each.
    """

    __slots__ = ("levels",)

    def __init__(self, levels: Sequence[float]) -> None:
        super().__init__(len(levels))
        self.levels = tuple(levels)
        self._sums = [0.0] * (1 + 2 * self.marks)

    def zero(self) -> Self:
        """Return the windows of no events at the same levels."""
        return type(self)(self.levels)

    def _stretch(self, windows: int, sums: Sequence[float], mark: int) -> Stretch:
        n, level = sums[0], self.levels[mark]
        below, upto = int(sums[1 + mark]), int(sums[1 + self.marks + mark])
        return Stretch(windows, int(n), below, upto, n * level, n * level * (1.0 - level), mark)

    def _layout(self) -> Struct:
        return _levels(self.marks)

    def _counts(self) -> int:
        return 1 + 2 * self.marks
