"""Witnesses: records far ahead of stream time. Stream time follows them only when several agree.

Rows expire and forecasts mature in stream time, which never falls. So one record from a clock that runs ahead must not
move it. A record more than `SLACK` ahead is a witness and does not move stream time. When `SEVERAL` witnesses have
come, stream time moves to the earliest of them, then on to each that is within the slack. So after a quiet night three
records are enough. A single witness is forgotten after `MEMORY` applied records.

Entries of expiry queues are ordered by stream time. So the entry of a witness's row waits here until stream time
reaches the witness, or the witness is forgotten.
"""

from struct import Struct
from typing import Final, NamedTuple

from state.expiry import Expiry
from state.fence import Fence
from state.frames import CorruptFrame
from state.kind import Form, Kind, Moves

#: The most that one record may move stream time, ms.
SLACK: Final = 300_000
#: Records that must agree before stream time moves further.
SEVERAL: Final = 3
#: Applied records for which a witness is remembered.
MEMORY: Final = 10_000

_WITNESS: Final = Struct("<qQBQQB")
_NO_ROLE: Final = 0xFF


class WaitingEntry(NamedTuple):
    """An entry that waits for an expiry queue: the arguments of `state.expiry.Expiry.push`."""

    role: int
    ttl_ms: int
    named: int
    event_id: str


class Witness(NamedTuple):
    """A record far ahead of stream time."""

    #: Its event time, ms.
    ts: int
    #: The partition's applied count when it came.
    applied: int
    #: The queue entry of the row that it made, if it made one.
    entry: WaitingEntry | None


class Witnesses:
    """The witnesses of one partition, as a working copy; at most ``SEVERAL - 1`` wait.

    Raises CorruptFrame if the row is not intact.

    ``row``: the stored witnesses; None if there are none.
    """

    def __init__(self, row: bytes | None = None) -> None:
        self.waiting: list[Witness] = [] if row is None else WITNESSES.decode(row)
        self._changed = False

    def add(self, ts: int, applied: int) -> None:
        """Note a record far ahead; call `settle` next."""
        self.waiting.append(Witness(ts, applied, None))
        self._changed = True

    def follow(self, ts: int, fence: Fence, expiry: Expiry) -> None:
        """Move stream time by a record with time ``ts`` (ms) that is far ahead, or that comes while witnesses wait."""
        if ts - fence.stream_time > SLACK:
            self.add(ts, fence.applied)
        else:
            fence.stream_time = ts
        self.settle(fence, expiry)

    def settle(self, fence: Fence, expiry: Expiry) -> None:
        """Release the witnesses that stream time has reached or that are forgotten. Stream time may follow them."""
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

    def hold(self, entry: WaitingEntry) -> None:
        """Keep the queue entry of the row that the last witness made."""
        self.waiting[-1] = self.waiting[-1]._replace(entry=entry)
        self._changed = True

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the row if it changed since the last call; None deletes it."""
        if not self._changed:
            return {}
        self._changed = False
        return {WITNESSES.key(): WITNESSES.encode(self.waiting) if self.waiting else None}


def _encode(waiting: list[Witness]) -> bytes:
    """Return all witnesses as bytes, in the order in which they came."""
    parts = []
    for ts, applied, entry in waiting:
        role, ttl_ms, named, event_id = entry or WaitingEntry(_NO_ROLE, 0, 0, "")
        name = event_id.encode()
        parts.append(_WITNESS.pack(ts, applied, role, ttl_ms, named, len(name)) + name)
    return b"".join(parts)


def _decode(payload: bytes) -> list[Witness]:
    found, at = [], 0
    while at < len(payload):
        ts, applied, role, ttl_ms, named, n = _WITNESS.unpack_from(payload, at)
        at += _WITNESS.size
        entry = None if role == _NO_ROLE else WaitingEntry(role, ttl_ms, named, payload[at : at + n].decode())
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
