"""Progress of a worker in restoring its state from the changelog, for its log and metrics.

The changelog is compacted, so an offset need not hold a row. What is left is in offsets, as brokers know only those;
the rate is in offsets and rows.
"""

from collections import deque
from typing import Final, NamedTuple

#: Time between two log lines, s.
EVERY: Final = 5.0
#: The rate is measured over the last so many seconds, because compaction and other workers change it.
WINDOW: Final = 15.0


class Recovery(NamedTuple):
    """Progress of restoring: changelog records left, and in all; zeros if nothing is being restored."""

    left: int = 0
    whole: int = 0


class Standby(NamedTuple):
    """A copy of a partition that another worker serves, and how many changelog offsets it lacks; None: unknown."""

    partition: int
    lag: int | None


class Progress:
    """Watches recoveries, one after another. The worker's loop writes it, the thread of the metrics reads it."""

    def __init__(self) -> None:
        #: Rows restored since the process began.
        self.rows = 0
        #: Changelog offsets still to be restored; 0 outside a recovery.
        self.left = 0
        #: How long the present recovery has taken, or the last one took; 0 before the first.
        self.seconds = 0.0
        #: Seconds that the present recovery will still take at its present rate; None while unknown, and outside a
        #: recovery.
        self.seconds_left: float | None = None
        #: Time and number of rows when the present recovery began, and at the last look at which nothing was restored.
        self._began: tuple[float, int] | None = None
        self._idle: tuple[float, int] | None = None
        self._total = 0
        self._told = 0.0
        #: The looks of the last `WINDOW` seconds: time, offsets left, rows restored so far.
        self._seen: deque[tuple[float, int, int]] = deque()

    def restored(self, rows: int) -> None:
        """Count rows that were written to the table."""
        self.rows += rows

    def look(self, left: int | None, now: float) -> str | None:
        """Note how much is left. Return a log line if one is due.

        ``left``: offsets still to restore, over all partitions; None while nothing is restored.
        ``now``: seconds on a clock that does not jump.
        """
        if left is None:
            return self._ended(now)
        if self._began is None:
            self._began, self._total, self._told = self._idle or (now, self.rows), 0, now
        if left > self.left:
            # The ends are not all known at once, and partitions may join while others are restored.
            self._total += left - self.left
            self._seen.clear()
        self.left = left
        self.seconds = now - self._began[0]
        self._seen.append((now, left, self.rows))
        while self._seen[0][0] < now - WINDOW:
            self._seen.popleft()
        since, before, rows = self._seen[0]
        gone = before - left
        self.seconds_left = left * (now - since) / gone if gone > 0 else None
        if now - self._told < EVERY or not left:
            return None
        self._told = now
        done = self._total - left
        rate = (self.rows - rows) / (now - since) if now > since else 0.0
        rest = "time left not known" if self.seconds_left is None else f"{self.seconds_left:,.0f} s left"
        return f"restoring: {done:,} of {self._total:,} offsets ({done / self._total:.0%}), {rate:,.0f} rows/s, {rest}"

    def _ended(self, now: float) -> str | None:
        if self._began is None and self._idle and self.rows > self._idle[1]:
            self._began = self._idle  # the recovery was over before the first look
        self._idle = now, self.rows
        if self._began is None:
            return None
        (began, rows), self._began = self._began, None
        self.left, self.seconds, self.seconds_left = 0, now - began, None
        restored = self.rows - rows
        if not restored:
            return None
        rate = restored / self.seconds if self.seconds else 0.0
        return f"restored {restored:,} rows in {self.seconds:.1f} s, {rate:,.0f} rows/s"
