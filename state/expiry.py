"""Queues of ledger rows that will mature or leave: first in, first out. There is one for each role and time to live.

Rows enter with the partition's stream time, which never falls. So rows with one time to live fall due in order. Only
the head of each queue is looked at, and nothing scans the store. Entries are stored in chunks, one row for every 64
events.
"""

from collections.abc import Callable, Iterator
from math import inf
from struct import Struct
from typing import Final

from state.fence import MATURITY, Fence, QueueBounds
from state.frames import CorruptFrame
from state.kind import Form, KeyPart, Kind, Moves

#: Entries in a chunk row. Every checkpoint writes the last chunk again, so it must stay small.
CHUNK: Final = 64

_ENTRY: Final = Struct("<qQB")

#: Time of entry (stream time, ms), the applied count that identifies the entry, and the event id.
QueueEntry = tuple[int, int, str]


def _encode(entries: list[QueueEntry]) -> bytes:
    parts = []
    for since, born, event_id in entries:
        name = event_id.encode()
        parts.append(_ENTRY.pack(since, born, len(name)) + name)
    return b"".join(parts)


def _decode(payload: bytes) -> list[QueueEntry]:
    entries, at = [], 0
    while at < len(payload):
        since, born, n = _ENTRY.unpack_from(payload, at)
        at += _ENTRY.size
        entries.append((since, born, payload[at : at + n].decode()))
        at += n
    if at > len(payload):
        raise CorruptFrame("the last entry of an expiry queue's chunk is cut")
    return entries


QUEUE: Final = Kind[list[QueueEntry]](
    "Q",
    "the entries of a queue",
    (KeyPart("role", "B"), KeyPart("time to live in ms", "Q"), KeyPart("chunk number", "Q")),
    {1: Form(list, _encode, _decode)},
    Moves.ANEW,
    f"one for {CHUNK} entries of a queue",
)


class Expiry:
    """The queues of one partition, as a working copy.

    ``fence``: holds the bounds of the queues; changed by `push` and `pop`.
    """

    def __init__(self, get: Callable[[bytes], bytes | None], fence: Fence) -> None:
        self._get = get
        self._fence = fence
        self._chunks: dict[bytes, list[QueueEntry]] = {}
        #: Key and content of the last chunk of each queue, by role and time to live.
        self._tails: dict[tuple[int, int], tuple[bytes, list[QueueEntry]]] = {}
        self._changed: dict[bytes, None] = {}
        self._dropped: dict[bytes, None] = {}
        #: No entry is due before this stream time, ms.
        self.soonest = self._soonest()

    def push(self, role: int, ttl_ms: int, named: int, event_id: str) -> None:
        """Enter a row that is due in ``ttl_ms`` of stream time. ``named``: the applied count that identifies it."""
        which = role, ttl_ms
        queue = self._fence.queues.get(which)
        if queue is None:
            queue = self._fence.queues[which] = QueueBounds(role, ttl_ms)
        now = self._fence.stream_time
        if queue.head == queue.tail:
            queue.due = now + ttl_ms
            self.soonest = min(self.soonest, queue.due)
        tail = self._tails.get(which)
        if tail is None or not queue.tail % CHUNK:
            key = QUEUE.key(role, ttl_ms, queue.tail // CHUNK)
            if queue.tail % CHUNK:
                chunk = self._chunk(key)
            else:
                chunk = self._chunks[key] = []
            tail = self._tails[which] = key, chunk
        tail[1].append((now, named, event_id))
        self._changed[tail[0]] = None
        queue.tail += 1

    def due(self) -> Iterator[QueueBounds]:
        """Yield each queue while its first entry is due; the caller pops it.

        Maturing rows go first. A queue that was not popped is not yielded again.
        """
        now = self._fence.stream_time
        queues = list(self._fence.queues.values())
        for queue in [each for each in queues if each.role == MATURITY] + [
            each for each in queues if each.role != MATURITY
        ]:
            seen = -1
            while seen < queue.head < queue.tail and queue.due <= now:
                seen = queue.head
                yield queue

    def _first(self, queue: QueueBounds) -> QueueEntry:
        return self._chunk(QUEUE.key(queue.role, queue.ttl_ms, queue.head // CHUNK))[queue.head % CHUNK]

    def pop(self, queue: QueueBounds) -> QueueEntry:
        """Remove and return the first entry of a queue that is not empty. An empty chunk is deleted."""
        first = self._first(queue)
        key = QUEUE.key(queue.role, queue.ttl_ms, queue.head // CHUNK)
        queue.head += 1
        if not queue.head % CHUNK:
            self._chunks.pop(key, None)
            self._changed.pop(key, None)
            self._dropped[key] = None
        if queue.head < queue.tail:
            queue.due = self._first(queue)[0] + queue.ttl_ms
        self.soonest = self._soonest()
        return first

    @property
    def ripens(self) -> float:
        """Stream time before which no forecast matures, ms."""
        queues = self._fence.queues.values()
        return min((each.due for each in queues if each.role == MATURITY and each.head < each.tail), default=inf)

    def _soonest(self) -> float:
        return min((queue.due for queue in self._fence.queues.values() if queue.head < queue.tail), default=inf)

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the chunk rows that changed since the last call; None deletes one."""
        rows: dict[bytes, bytes | None] = dict.fromkeys(self._dropped)
        rows.update({key: QUEUE.encode(self._chunks[key]) for key in self._changed})
        self._changed.clear()
        self._dropped.clear()
        # Keep the first and the last chunk of each queue, which the next batch is likely to need.
        ends = {
            QUEUE.key(queue.role, queue.ttl_ms, at // CHUNK)
            for queue in self._fence.queues.values()
            for at in (queue.head, queue.tail)
        }
        self._chunks = {key: chunk for key, chunk in self._chunks.items() if key in ends}
        self._tails.clear()
        return rows

    def _chunk(self, key: bytes) -> list[QueueEntry]:
        chunk = self._chunks.get(key)
        if chunk is None:
            row = self._get(key)
            if row is None:
                raise LookupError(f"expiry chunk {key.hex()} is in the fence but not in the table")
            chunk = self._chunks[key] = QUEUE.decode(row)
        return chunk
