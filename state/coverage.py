"""Whether most forecasts of a stream get a label.

Labels teach what is right for forecasts that get a label. If most forecasts never do, they may be unlike the labelled
ones: analysts label the highest scores, customers report every fraud, and nobody reports the good payments. A
calibrator sees only labels; the engine also sees the forecasts without one.
"""

from bisect import bisect_right
from struct import Struct
from typing import Final, Self

from state import counts

#: Forecasts in a closed cell of the smallest size; most closed cells of one size. Of more, the two oldest are merged.
CELL: Final = 16
MOST: Final = 3
#: Fewest forecasts behind a share. The stream's first `LEAST` forecasts are one cell, whose labels do not count.
LEAST: Final = 100
#: Labels over which shares and ages are averaged, the latest with most weight; and fewest labels before the averages
#: count.
MEMORY: Final = 50
FEWEST: Final = 20
#: After `OFTEN` labels, only every `EVERY`-th label is looked at, because a look takes 2 us interpreted.
OFTEN: Final = 100
EVERY: Final = 8
#: A stream becomes covered at the first expected share, and uncovered below the second.
COVERED: Final = 0.5
UNCOVERED: Final = 0.4
#: How often the share without a label is expected to shrink again as it last did, while labels are late. They are late
#: if two things hold: the variance of ages is at least `SPREAD` (it is 1/18 in a stream's first days), and the mean
#: place of labelled forecasts is within `UNLIKE` standard errors of that of all.
AHEAD: Final = 3.0
SPREAD: Final = 0.04
UNLIKE: Final = 2.0
#: If the places of forecasts vary less than this, they count as equal.
FLAT: Final = 1e-9

#: The reason for answering as if nothing had been learnt.
UNLABELLED: Final = "unlabelled"

_HEAD: Final = Struct("<QBQ7dQH")


class Coverage:
    """Counts of a stream's forecasts and of the labelled ones, by the time of issue.

    Notes
    -----
    Time is the partition's count of applied records, cut into cells. The first cell has `LEAST` forecasts, so that a
    stream whose labels begin late is judged soon after the first labels. A later closed cell has `CELL` forecasts times
    a power of two. If there are more than `MOST` of a size, the two oldest are merged. So there are few cells (some 50
    for a million forecasts), and no cell but the first is longer than the time after it.

    When a forecast gets its first label, let n be the number of forecasts issued since, at least `LEAST`. Look at the
    2n forecasts issued *before* it, in whole cells, the newer and the older half apart: which shares have a label? All
    of them are older than the one just labelled. So if every forecast gets a label in the end, most of them have theirs
    once the stream is older than the delays. If only some forecasts ever get a label, the shares are at most theirs. An
    outage of labels does not lower them, because nothing is looked at meanwhile.

    In a stream that is younger than its delays few have a label yet. The older half's share is then above the newer's,
    and the part without a label is taken to shrink as much again, `AHEAD` times. Two signs must say that labels are
    late rather than missing. *Ages*: forecasts get labels at all ages up to the stream's own. If all come soon or at
    one age, the others would have theirs. *Scores*: labelled forecasts have the mean score of all (in log-odds, their
    place). If labels are chosen by score, or one class comes first or only, the means differ as far as scores tell
    classes apart. Equal scores are no such sign.

    From `FEWEST` labels on, a stream is uncovered until the share to expect is `COVERED`, and again when it is below
    `UNCOVERED`. What a covered stream learns overstates a rate by at most the inverse of the true share.

    Bytes, little-endian: labels (u64); uncovered (u8); since when (ms, u64); means of the two shares, newer first, of
    ages and of their squares (f64 each); sums of places, of their squares and of the places with a label (f64 each);
    where the first cell begins (u64); number of cells (u16). Then three times the bytes of a number (u8: 1, 2, 4 or 8)
    and a number of each cell: where the next cell begins, counted from its own beginning, 0 of the last one; forecasts;
    forecasts with a label.
    """

    __slots__ = (
        "_age",
        "_cells",
        "_far",
        "_known",
        "_near",
        "_places",
        "_square",
        "_squares",
        "labels",
        "since_ms",
        "uncovered",
    )

    def __init__(self) -> None:
        #: Labels, except those of the first `LEAST` forecasts.
        self.labels = 0
        #: Whether most forecasts get no label.
        self.uncovered = False
        #: Stream time at which ``uncovered`` last changed, ms; 0 if it never has.
        self.since_ms = 0

        #: Means over the last labels: shares of the newer and the older half, the label's age as a part of the
        #: stream's, and its square.
        self._near = self._far = self._age = self._square = 0.0
        #: Sums over the forecasts in cells: of places, of their squares, of the places with a label.
        self._places = self._squares = self._known = 0.0
        #: For each cell: where it begins, its forecasts, its labelled forecasts. One list for all takes less memory.
        self._cells: list[int] = []

    @property
    def covered(self) -> bool:
        """Whether enough labels have come to say that most forecasts get one; no warm-up ends before."""
        return self.labels >= FEWEST and not self.uncovered

    @property
    def share(self) -> float:
        """Mean share of forecasts with a label, among those long before the last labelled ones; in [0, 1]."""
        return self._far

    def _expected(self) -> float:
        """Return the share that is to be expected once the stream is older than its delays; in [0, 1]."""
        near, far, age, square = self._near, self._far, self._age, self._square
        if near >= far or square - age * age < SPREAD or self._unlike():
            return max(near, far)
        left: float = (1.0 - far) * ((1.0 - far) / (1.0 - near)) ** AHEAD
        return 1.0 - left

    @property
    def unlike(self) -> bool:
        """Whether the mean place of forecasts with a label differs from that of all by more than chance."""
        n, labelled = sum(self._cells[1::3]), sum(self._cells[2::3])
        if not FEWEST <= labelled < n:
            return False
        variance, square, error = self._apart(n, labelled)
        return variance > FLAT and square >= UNLIKE * UNLIKE * error

    def _unlike(self) -> bool:
        """Whether labelled forecasts differ from all in their mean place. True also if all places are equal."""
        variance, square, error = self._apart(sum(self._cells[1::3]), sum(self._cells[2::3]))
        return variance <= FLAT or square >= UNLIKE * UNLIKE * error

    def _apart(self, n: int, labelled: int) -> tuple[float, float, float]:
        """Return the variance of places, the squared distance of the mean of labelled ones, and its variance."""
        mean = self._places / n
        variance = self._squares / n - mean**2
        return variance, (self._known / labelled - mean) ** 2, variance * (1.0 / labelled - 1.0 / n)

    def issue(self, born: int, place: float) -> None:
        """Count a forecast; ``born`` is the partition's count of applied records, and rises; ``place`` its log-odds."""
        self._places += place
        self._squares += place * place
        cells = self._cells
        last = len(cells) - 2
        if last >= 0 and cells[last] < (CELL if last > 1 else LEAST):
            cells[last] += 1
            return
        cells += (born, 1, 0)
        end, size = len(cells) // 3 - 1, CELL
        while True:
            first = end
            while first > 1 and cells[3 * first - 2] == size:
                first -= 1
            if end - first <= MOST:
                return
            at = 3 * first
            cells[at + 1] += cells[at + 4]
            cells[at + 2] += cells[at + 5]
            del cells[at + 3 : at + 6]
            end, size = first + 1, 2 * size

    def label(self, born: int, place: float, now_ms: int) -> bool:
        """Count the first label of the forecast issued at ``born``; ignored if it is older than all cells.

        Returns whether ``uncovered`` changed; ``now_ms`` is stream time.
        """
        cells = self._cells
        cell = bisect_right(cells[::3], born) - 1  # the last one that begins then or before
        if cell < 0:
            return False
        if cells[3 * cell + 2] < cells[3 * cell + 1]:
            cells[3 * cell + 2] += 1
            self._known += place
        if cell == 0:
            return False
        self.labels += 1
        weight = 4.0 / (self.labels + 3)
        if self.labels > OFTEN:
            if self.labels % EVERY:
                return False
            weight = EVERY / MEMORY
        since, before = sum(cells[3 * cell + 1 :: 3]), sum(cells[1 : 3 * cell : 3])
        half = min(max(since, LEAST), before / 2)
        cell, near = self._look(cell, half)
        far = self._look(cell, half)[1] if cell else near
        age = since / (since + before)
        self._near += weight * (near - self._near)
        self._far += weight * (far - self._far)
        self._age += weight * (age - self._age)
        self._square += weight * (age * age - self._square)
        if self.labels < FEWEST:
            return False
        uncovered = self._expected() < (COVERED if self.uncovered or self.labels == FEWEST else UNCOVERED)
        if uncovered == self.uncovered:
            return False
        self.uncovered, self.since_ms = uncovered, now_ms
        return True

    def _look(self, cell: int, wanted: float) -> tuple[int, float]:
        """Look at so many forecasts before a cell; return the first cell looked at, and the share with a label."""
        seen = known = 0
        while cell > 0 and seen < wanted:
            cell -= 1
            seen += self._cells[3 * cell + 1]
            known += self._cells[3 * cell + 2]
        return cell, known / seen

    def __add__(self, other: Self) -> Self:
        """Return the sum of both: the means over all their labels, without cells."""
        made = type(self)()
        made.labels = self.labels + other.labels
        if made.labels:
            mine, theirs = self.labels, other.labels
            made._near = (mine * self._near + theirs * other._near) / made.labels
            made._far = (mine * self._far + theirs * other._far) / made.labels
            made._age = (mine * self._age + theirs * other._age) / made.labels
            made._square = (mine * self._square + theirs * other._square) / made.labels
        made.uncovered = self.uncovered or other.uncovered
        since = [each.since_ms for each in (self, other) if each.uncovered]
        made.since_ms = min(since, default=max(self.since_ms, other.since_ms))
        return made

    def encode(self) -> bytes:
        """Return the counts; layout in the class's notes."""
        cells = self._cells
        born, n = cells[::3], len(cells) // 3
        first = born[0] if n else 0
        head = _HEAD.pack(
            self.labels, self.uncovered, self.since_ms, self._near, self._far, self._age, self._square, self._places,
            self._squares, self._known, first, n,
        )  # fmt: skip
        steps = [born[at + 1] - born[at] for at in range(n - 1)] + [0] * min(n, 1)
        return head + counts.encode(steps) + counts.encode(cells[1::3]) + counts.encode(cells[2::3])

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote; raises ValueError if it is cut or its numbers are impossible."""
        if len(payload) < _HEAD.size:
            raise ValueError(f"a coverage of {len(payload)} bytes is shorter than its own header")
        made = cls()
        made.labels, uncovered, made.since_ms, *floats, born, n = _HEAD.unpack_from(payload)
        made.uncovered = bool(uncovered)
        made._near, made._far, made._age, made._square, made._places, made._squares, made._known = floats
        steps, at = counts.decode(payload, _HEAD.size, n, "a coverage")
        issued, at = counts.decode(payload, at, n, "a coverage")
        labelled, at = counts.decode(payload, at, n, "a coverage")
        for step, all_, known in zip(steps, issued, labelled, strict=True):
            made._cells += (born, all_, known)
            born += step
        if at != len(payload) or any(known > all_ for known, all_ in zip(labelled, issued, strict=True)):
            raise ValueError(f"a coverage of {len(payload)} bytes has counts that cannot be")
        return made
