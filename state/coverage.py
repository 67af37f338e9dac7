"""Whether most forecasts of a stream get a label at all.

What labels teach is right for forecasts that get one. If most never do, the others may be unlike them: analysts label
the highest scores, customers report every fraud, and nobody reports the good payments. A calibrator sees only labels;
the engine also sees the forecasts without one.
"""

from bisect import bisect_right
from itertools import pairwise
from struct import Struct
from typing import Final, Self

from state import counts

#: Forecasts in a closed cell of the smallest size, and most closed cells of one size before the two oldest are merged.
CELL: Final = 16
MOST: Final = 3
#: Fewest forecasts behind a share. The first so many have a cell of their own, whose labels do not count.
LEAST: Final = 100
#: Labels over which the share is averaged, and the fewest before it counts.
MEMORY: Final = 100
#: After so many labels, only one in so many is looked at, because a look takes 2 us interpreted.
EVERY: Final = 8
FEWEST: Final = 20
#: A stream becomes covered at the first share, and uncovered below the second.
COVERED: Final = 0.4
UNCOVERED: Final = 0.25

#: The reason for answering as if nothing had been learnt.
UNLABELLED: Final = "unlabelled"

_HEAD: Final = Struct("<QdBQH")


class Coverage:
    """Counts of a stream's forecasts and of the labelled ones, by the time of issue.

    Notes
    -----
    Time is the partition's count of applied records, cut into cells. The first cell has `LEAST` forecasts, so that a
    stream whose labels begin late is judged soon after the first labels. A later closed cell has `CELL` forecasts times
    a power of two. If there are more than `MOST` of a size, the two oldest are merged. So there are few cells (some 50
    for a million forecasts), and no cell but the first is longer than the time after it.

    When a forecast gets its first label, let n be the number of forecasts issued since, at least `LEAST`. Look at the n
    forecasts issued *before* it, in whole cells: which share has a label? All of them are older than the one just
    labelled. So if every forecast gets a label in the end, most of them have theirs: all if delays are equal, .6 on
    average if delays are exponential, and never below one half on average in an even stream. If only some forecasts
    ever get a label, the share is at most theirs. An outage of labels does not lower the share, because nothing is
    looked at meanwhile.

    ``share`` is the mean over the last `MEMORY` labels. From `FEWEST` labels on, a stream is uncovered until the share
    is `COVERED`, and again when it is below `UNCOVERED`. What a covered stream learns overstates a rate at most by the
    inverse of the true share.

    Bytes, little-endian: labels (u64), share (f64), uncovered (u8), where the first cell begins (u64), number of cells
    (u16). Then three times the bytes of a number (u8: 1, 2, 4 or 8) and a number of each cell: where the next cell
    begins, counted from its own beginning, 0 of the last one; forecasts; forecasts with a label.

    Examples
    --------
    Of 1,000 forecasts the last 500 wait for their label, and of 1,000 others only every tenth ever gets one:

    >>> late, few = Coverage(), Coverage()
    >>> for t in range(1, 1001):
    ...     for coverage, labelled in (late, t > 500), (few, t % 10 == 0):
    ...         coverage.issue(t)
    ...         if labelled:
    ...             coverage.label(t - 500 if coverage is late else t)
    >>> late.uncovered, round(few.share, 1), few.uncovered
    (False, 0.1, True)
    """

    __slots__ = ("_born", "_issued", "_labelled", "labels", "share", "uncovered")

    def __init__(self) -> None:
        #: Labels, except those of the first `LEAST` forecasts.
        self.labels = 0
        #: Mean share of labelled forecasts, over the last labels; in [0, 1].
        self.share = 0.0
        #: Whether most forecasts get no label.
        self.uncovered = False

        self._born: list[int] = []
        self._issued: list[int] = []
        self._labelled: list[int] = []

    @property
    def covered(self) -> bool:
        """Whether enough labels have come to say that most forecasts get one; no warm-up ends before."""
        return self.labels >= FEWEST and not self.uncovered

    def issue(self, born: int) -> None:
        """Count a forecast; ``born`` is the partition's count of applied records, and rises."""
        issued = self._issued
        if issued and issued[-1] < (CELL if len(issued) > 1 else LEAST):
            issued[-1] += 1
            return
        self._born.append(born)
        issued.append(1)
        self._labelled.append(0)
        end, size = len(issued) - 1, CELL
        while True:
            first = end
            while first > 1 and issued[first - 1] == size:
                first -= 1
            if end - first <= MOST:
                return
            issued[first] += issued.pop(first + 1)
            self._labelled[first] += self._labelled.pop(first + 1)
            del self._born[first + 1]
            end, size = first + 1, 2 * size

    def label(self, born: int) -> None:
        """Count the first label of the forecast issued at ``born``; ignored if it is older than all cells."""
        cell = bisect_right(self._born, born) - 1
        if cell < 0:
            return
        issued, labelled = self._issued, self._labelled
        if labelled[cell] < issued[cell]:
            labelled[cell] += 1
        if cell == 0:
            return
        self.labels += 1
        weight = 1.0 / self.labels
        if self.labels > MEMORY:
            if self.labels % EVERY:
                return
            weight = EVERY / MEMORY
        wanted = 0
        for at in range(cell, len(issued)):
            wanted += issued[at]
        wanted = max(wanted, LEAST)
        seen = known = 0
        while cell > 0 and seen < wanted:
            cell -= 1
            seen += issued[cell]
            known += labelled[cell]
        self.share += weight * (known / seen - self.share)
        if self.labels >= FEWEST:
            least = COVERED if self.uncovered or self.labels == FEWEST else UNCOVERED
            self.uncovered = self.share < least

    def __add__(self, other: Self) -> Self:
        """Return both together: the share of all labels, without cells."""
        made = type(self)()
        made.labels = self.labels + other.labels
        if made.labels:
            made.share = (self.labels * self.share + other.labels * other.share) / made.labels
        made.uncovered = self.uncovered or other.uncovered
        return made

    def encode(self) -> bytes:
        """Return the counts; layout in the class's notes."""
        born, n = self._born, len(self._born)
        head = _HEAD.pack(self.labels, self.share, self.uncovered, born[0] if n else 0, n)
        steps = [b - a for a, b in pairwise(born)] + [0] * min(n, 1)
        return head + counts.encode(steps) + counts.encode(self._issued) + counts.encode(self._labelled)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote; raises ValueError if it is cut or its numbers cannot be."""
        if len(payload) < _HEAD.size:
            raise ValueError(f"a coverage of {len(payload)} bytes is shorter than its own header")
        made = cls()
        made.labels, made.share, uncovered, born, n = _HEAD.unpack_from(payload)
        made.uncovered = bool(uncovered)
        steps, at = counts.decode(payload, _HEAD.size, n, "a coverage")
        made._issued, at = counts.decode(payload, at, n, "a coverage")
        made._labelled, at = counts.decode(payload, at, n, "a coverage")
        for step in steps:
            made._born.append(born)
            born += step
        if at != len(payload) or any(known > all_ for known, all_ in zip(made._labelled, made._issued, strict=True)):
            raise ValueError(f"a coverage of {len(payload)} bytes has counts that cannot be")
        return made
