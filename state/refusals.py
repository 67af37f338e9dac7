"""What became of refused records, for as long as they may be redelivered.

A refused record leaves no row of its own. So after a crash nothing would tell that it was refused: its bucket has been
filled since, its event may have been answered by a later record, and the row that it did not fit may be gone. Runs of
offsets are kept in one row.
"""

from bisect import bisect_right
from dataclasses import dataclass
from struct import Struct
from typing import Final

from state.frames import DAMAGE, CorruptFrame, damaged, seal, unseal
from state.keys import REFUSALS

VERSION: Final = 1
#: Marks of a record, which add up: it was refused for its stream's records or new ids; its dead letter holds no value;
#: it did not fit the row of its event, and its dead letter says ``conflict`` of a forecast, ``label`` of an outcome.
REFUSED: Final = 1
REFUSED_ID: Final = 2
WITHHELD: Final = 4
UNFIT: Final = 8
#: Most bytes the row has for each applied record that is remembered: a mark, and three numbers of a few bytes.
RECORD_BYTES: Final = 10

_KIND: Final = REFUSALS[0]
_HEAD: Final = Struct("<QII")


@dataclass(slots=True)
class _Run:
    """Offsets of a topic that follow each other and have the same mark; ``applied`` is the count at the last one."""

    mark: int
    first: int
    last: int
    applied: int


class Refusals:
    """The refused records of one partition, as a working copy.

    Parameters
    ----------
    held
        How many applied records are remembered.
    row
        As `encode` returned it; None while there are none.

    Raises
    ------
    CorruptFrame
        If the row is not intact.
    """

    def __init__(self, held: int, row: bytes | None = None) -> None:
        self._held = held
        #: By topic, in the order of offsets and of applied counts.
        self._runs: tuple[list[_Run], list[_Run]] = ([], []) if row is None else _decode(row)
        self._changed = False

    def add(self, topic: int, offset: int, mark: int, applied: int) -> None:
        """Note what became of a record that is applied; its offset is above all others of its topic."""
        runs = self._runs[topic]
        last = runs[-1] if runs else None
        # One that would be forgotten by now, were batches smaller, begins anew: batches must not show in the row.
        if last and last.last == offset - 1 and last.mark == mark and applied - last.applied <= self._held:
            last.last, last.applied = offset, applied
        else:
            runs.append(_Run(mark, offset, offset, applied))
        self._changed = True

    def mark(self, topic: int, offset: int) -> int:
        """Return what became of a record; 0 if nothing of it is known."""
        runs = self._runs[topic]
        if not runs:
            return 0
        at = bisect_right(runs, offset, key=_first) - 1
        return runs[at].mark if at >= 0 and offset <= runs[at].last else 0

    def changes(self, applied: int) -> dict[bytes, bytes | None]:
        """Forget what is older than it has to be; return the row to write since the last call, None to delete it."""
        for runs in self._runs:
            gone = bisect_right(runs, applied - self._held, key=_applied)
            if gone:
                del runs[:gone]
                self._changed = True
        if not self._changed:
            return {}
        self._changed = False
        return {REFUSALS: self.encode()}

    def encode(self) -> bytes | None:
        """Return the row, None if there are none: a base of applied counts, how many runs each topic has, and the runs.

        Of each its mark (u8), how far its first offset is from the last one before it, how many follow it, and its
        applied count less the base: each in groups of seven bits, the lowest first, with the highest bit set in all but
        the last.
        """
        if not any(self._runs):
            return None
        base = min(run.applied for runs in self._runs for run in runs)
        made = bytearray(_HEAD.pack(base, *map(len, self._runs)))
        for runs in self._runs:
            at = 0
            for run in runs:
                made.append(run.mark)
                for number in (run.first - at, run.last - run.first, run.applied - base):
                    _put(made, number)
                at = run.last
        return seal(_KIND, VERSION, bytes(made))


def _first(run: _Run) -> int:
    return run.first


def _applied(run: _Run) -> int:
    return run.applied


def _put(made: bytearray, number: int) -> None:
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)


def _take(payload: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while payload[at] > 127:
        number |= (payload[at] & 127) << shift
        shift += 7
        at += 1
    return number | payload[at] << shift, at + 1


def _decode(row: bytes) -> tuple[list[_Run], list[_Run]]:
    payload = unseal(_KIND, VERSION, row)
    found: tuple[list[_Run], list[_Run]] = [], []
    try:
        base, *counts = _HEAD.unpack_from(payload)
        at = _HEAD.size
        for runs, count in zip(found, counts, strict=True):
            offset = 0
            for _ in range(count):
                mark = payload[at]
                gap, at = _take(payload, at + 1)
                more, at = _take(payload, at)
                applied, at = _take(payload, at)
                runs.append(_Run(mark, offset + gap, offset + gap + more, base + applied))
                offset += gap + more
    except DAMAGE as exc:
        raise damaged(_KIND, exc) from exc
    if at != len(payload):
        raise CorruptFrame("the refused records are longer or shorter than their row says")
    return found
