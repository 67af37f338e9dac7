"""Records that are far ahead of stream time: stream time follows them when several say so.

Rows expire and forecasts mature in stream time, which never falls. So one record from a clock that runs ahead must not
move it: a record that is more than `SLACK` ahead is a witness, and the time stays. When `SEVERAL` witnesses have come,
stream time moves to the earliest of them, and on with each that is then within the slack. After a quiet night this
takes three records. A witness that nobody joins is forgotten after `MEMORY` applied records.

Entries of expiry queues stand in the order of stream time. So the entry of a row that a witness made waits here, and is
entered when stream time has reached the witness, or when the witness is forgotten.
"""

from struct import Struct
from typing import Final, NamedTuple

from state.expiry import Expiry
from state.fence import Fence
from state.frames import CorruptFrame
from state.kind import Form, Kind, Moves

#: How far ahead of stream time one record may move it, ms.
SLACK: Final = 300_000
#: How many records have to say that it is later than that.
SEVERAL: Final = 3
#: How many applied records a witness is remembered for.
MEMORY: Final = 10_000

_WITNESS: Final = Struct("<qQBQQB")
_NO_ROLE: Final = 0xFF


class Entry(NamedTuple):
    """An entry of an expiry queue that waits: arguments of `state.expiry.Expiry.push`."""

    role: int
    ttl_ms: int
    named: int
    event_id: str


class Witness(NamedTuple):
    """A record far ahead of stream time.

    Attributes
    ----------
    ts
        Its event time, ms.
    applied
        The partition's applied count when it came.
    entry
        The queue entry of the row that it made, if it made one.
    """

    ts: int
    applied: int
    entry: Entry | None


class Witnesses:
    """The witnesses of one partition, as a working copy; at most ``SEVERAL - 1`` wait.

    Parameters
    ----------
    row
        What waits; None while nothing does.

    Raises
    ------
    CorruptFrame
        If the row is not intact.
    """

    def __init__(self, row: bytes | None = None) -> None:
        self.waiting: list[Witness] = [] if row is None else WITNESSES.decode(row)
        self._changed = False

    def add(self, ts: int, applied: int) -> None:
        """Note a record far ahead; `settle` is to be called next."""
        self.waiting.append(Witness(ts, applied, None))
        self._changed = True

    def follow(self, ts: int, fence: Fence, expiry: Expiry) -> None:
        """Move stream time by a record of ``ts``, ms, that is far ahead of it, or that follows some which are."""
        if ts - fence.stream_time > SLACK:
            self.add(ts, fence.applied)
        else:
            fence.stream_time = ts
        self.settle(fence, expiry)

    def settle(self, fence: Fence, expiry: Expiry) -> None:
        """Let go of the witnesses that stream time has reached, or that are forgotten; it may move on with them."""
        remembered = [each for each in self.waiting if fence.applied - each.applied <= MEMORY]
        gone = [each for each in self.waiting if fence.applied - each.applied > MEMORY]
        remembered.sort(key=lambda witness: witness.ts)
        for witness in gone:
            if witness.entry is not None:
                expiry.push(*witness.entry)
        if len(remembered) >= SEVERAL:
            fence.stream_time = max(fence.stream_time, remembered[0].ts)
        left: list[Witness] = []
        for witness in remembered:
            if witness.ts - fence.stream_time > SLACK:
                left.append(witness)
                continue
            fence.stream_time = max(fence.stream_time, witness.ts)
            if witness.entry is not None:
                expiry.push(*witness.entry)
        if len(left) < len(self.waiting):
            left.sort(key=lambda witness: witness.applied)
            self.waiting = left
            self._changed = True

    def hold(self, entry: Entry) -> None:
        """Keep the queue entry of the row that the last witness made."""
        self.waiting[-1] = self.waiting[-1]._replace(entry=entry)
        self._changed = True

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the row to write since the last call, None if it is to be deleted; nothing if nothing changed."""
        if not self._changed:
            return {}
        self._changed = False
        return {WITNESSES.key(): WITNESSES.encode(self.waiting) if self.waiting else None}


def _encode(waiting: list[Witness]) -> bytes:
    """Return every witness in the order in which they came."""
    parts = []
    for ts, applied, entry in waiting:
        role, ttl_ms, named, event_id = entry or Entry(_NO_ROLE, 0, 0, "")
        name = event_id.encode()
        parts.append(_WITNESS.pack(ts, applied, role, ttl_ms, named, len(name)) + name)
    return b"".join(parts)


def _decode(payload: bytes) -> list[Witness]:
    found, at = [], 0
    while at < len(payload):
        ts, applied, role, ttl_ms, named, n = _WITNESS.unpack_from(payload, at)
        at += _WITNESS.size
        entry = None if role == _NO_ROLE else Entry(role, ttl_ms, named, payload[at : at + n].decode())
        found.append(Witness(ts, applied, entry))
        at += n
    if at > len(payload):
        raise CorruptFrame("the last witness is cut")
    return found


WITNESSES: Final = Kind[list[Witness]](
    "T",
    "the witnesses",
    (),
    {1: Form(list, _encode, _decode)},
    Moves.ANEW,
    "at most one a partition: records far ahead of stream time",
)
