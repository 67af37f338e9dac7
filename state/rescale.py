"""Rescaling: divides the rows of some partitions among another number of partitions.

Rows of events move unchanged: ledger rows, entries in queues, tickets. `state.rescale_stream` divides the rows of
streams. The journal does not move, because a state is divided only when its last checkpoint is complete.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from state import kinds, ledger, routes
from state.expiry import CHUNK, QueueEntry
from state.fence import EARLY, EARLY_WAITING, FATES, ISSUED, MATURED_EXPIRY, WAITING, Fence, QueueBounds
from state.kind import KINDS as ROWS
from state.kind import Kind, form
from state.kind import Moves as Kept
from state.rescale_parts import Event, Moves, Rows
from state.rescale_stream import Divided
from state.witnesses import Witnesses


class RescaleError(ValueError):
    """The rows cannot be divided; the message says why."""


class Moved(NamedTuple):
    """Where the rows of a partition came from."""

    #: ``TRUEUP_APP_ID`` of that state.
    app: str
    #: Id of its changelog from the brokers; empty if they give none.
    changelog: str
    #: Next offset of each partition of the changelog when it was read.
    ends: tuple[int, ...]
    #: The new number of partitions.
    partitions: int

    def encode(self) -> bytes:
        """Return the payload: JSON with sorted keys."""
        return json.dumps(self._asdict(), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read a payload."""
        made = json.loads(payload)
        return cls(str(made["app"]), str(made["changelog"]), tuple(made["ends"]), int(made["partitions"]))


MOVED: Final = Kind[Moved](
    "M",
    "what the rows were made of",
    (),
    {1: form(Moved)},
    Kept.OUTSIDE,
    "one a partition that `trueup state rescale` wrote: what its rows were made of",
)


@dataclass(frozen=True)
class Plan:
    """The new partitions of events and streams."""

    #: The new number of partitions.
    width: int
    #: Returns the new partition of an event's records, given the event's name, its stream (empty if unknown) and its
    #: old partition; raises `RescaleError` if the old partition was wrong.
    of_event: Callable[[str, str, int], int]
    #: Returns which old partition's part of a stream goes to which new partition. One of the new ones is its home.
    of_stream: Callable[[str], Moves]
    #: Returns a stream's home, which is among the new partitions of ``of_stream``.
    home: Callable[[str], int]
    #: Next offsets of both inputs, by new partition.
    next: Sequence[Sequence[int]]


def rescaled(parts: Sequence[Rows], plan: Plan) -> list[dict[bytes, bytes]]:
    """Return the rows of a worker's new partitions.

    Raises RescaleError if two partitions have an event of the same name, or ``plan`` refuses one.
    Raises CorruptFrame if a row is damaged.

    ``parts``: the rows of the old partitions. All records of the inputs are applied.
    ``plan``: the new partitions of events and streams.
    """
    parts = [kinds.apart(part) for part in parts]
    made: list[dict[bytes, bytes]] = [{} for _ in range(plan.width)]
    where: dict[bytes, Event] = {}
    events: dict[str, list[Event]] = defaultdict(list)
    erased: list[tuple[bytes, str, int]] = []
    held = [[0, 0, 0] for _ in range(plan.width)]
    feeding: list[set[int]] = [set() for _ in range(plan.width)]
    for old, part in enumerate(parts):
        for key in [key for key in part if key[:1] == kinds.LEDGER.letter]:
            row = kinds.LEDGER.decode(part[key])
            stream = row.stream
            if row.status == ledger.ERASED:
                erased.append((key, stream, old))
                continue
            new = plan.of_event(key[1:].decode(), stream, old)
            if key in where:
                raise RescaleError(
                    f"event {key[1:].decode()!r} has a row in partition {where[key].old} and another in {old}: they "
                    "would meet"
                )
            where[key] = event = Event(key, old, new)
            feeding[new].add(old)
            status = row.status
            if status == ledger.EARLY:
                held[new][2] += 1
                made[new][key] = part[key]
                continue
            held[new][0] += status in (ledger.ISSUED, ledger.IMMATURE)
            held[new][1] += status == ledger.WAITING
            events[stream].append(event)
    for key, stream, old in erased:
        # `trueup forget` writes to every partition. The name is kept only where records of the event come.
        with suppress(RescaleError):
            new = plan.of_event(key[1:].decode(), stream, old)
            if key not in where:
                where[key] = Event(key, old, new)
                feeding[new].add(old)
                made[new][key] = parts[old][key]
    for stream, found in _by_stream(parts, events).items():
        of_stream = events.get(stream, [])
        moves = plan.of_stream(stream) | {(each.old, each.new) for each in of_stream}
        for old, new in moves:
            feeding[new].add(old)
        Divided(stream, parts, found, of_stream, moves, plan.home(stream)).into(made)
    fences = [Fence.decode(part[kinds.FENCE.key()]) if kinds.FENCE.key() in part else Fence() for part in parts]
    queues = _queues(
        parts, fences, plan.width, lambda role, named, event_id: _entered(parts, where, role, named, event_id)
    )
    _shut(made, fences, queues, feeding, plan, _fates(fences, held))
    return [kinds.together(rows) for rows in made]


def _entered(parts: Sequence[Rows], where: Mapping[bytes, Event], role: int, named: int, event_id: str) -> int | None:
    """Return the new partition of a queue's entry; None if its row is gone or was entered again later."""
    event = where.get(kinds.LEDGER.key(event_id))
    if event is None:
        return None
    born = kinds.LEDGER.decode(parts[event.old][event.key]).born
    return event.new if role == MATURED_EXPIRY or born == named else None


def _by_stream(parts: Sequence[Rows], events: Iterable[str]) -> dict[str, list[tuple[int, bytes]]]:
    """Return old partition and key of each stream's rows, without those of its events."""
    found: dict[str, list[tuple[int, bytes]]] = {stream: [] for stream in events}
    for old, part in enumerate(parts):
        for key in part:
            kind = ROWS.get(key[:1])
            if kind is not None and kind.of_stream:
                found.setdefault(kind.stream(key), []).append((old, key))
    return found


def _fates(fences: Sequence[Fence], held: Sequence[Sequence[int]]) -> list[list[int]]:
    """Divide the counts so that each partition's counts agree with its rows; the first partition gets the rest."""
    left = [sum(counts) for counts in zip(*(fence.fates for fence in fences), strict=True)]
    fates = [[0] * len(FATES) for _ in held]
    for own, (pending, waiting, early) in zip(fates[1:], held[1:], strict=True):
        came = min(waiting, left[WAITING])
        own[ISSUED], own[WAITING] = pending + waiting, came
        own[EARLY_WAITING] = waiting - came
        own[EARLY] = early + waiting - came
        left = [before - here for before, here in zip(left, own, strict=True)]
    fates[0] = left
    return fates


_Queues = dict[tuple[int, int], list[QueueEntry]]


def _queues(
    parts: Sequence[Rows],
    fences: Sequence[Fence],
    width: int,
    entered: Callable[[int, int, str], int | None],
) -> list[_Queues]:
    """Return the entries of the new partitions' queues, ordered by stream time."""
    queues: list[_Queues] = [{} for _ in range(width)]
    for part, fence in zip(parts, fences, strict=True):
        for role, ttl_ms, entry in _entries(part, fence):
            new = entered(role, *entry[1:])
            if new is not None:
                queues[new].setdefault((role, ttl_ms), []).append(entry)
    for each in queues:
        for found in each.values():
            found.sort(key=lambda entry: entry[0])
    return queues


def _entries(part: Rows, fence: Fence) -> Iterator[tuple[int, int, QueueEntry]]:
    """Yield role, time to live and entry of everything in a partition's queues; entries of witnesses come last.

    In a partition without stream time yet, an entry gets the time of its witness: with time 0 it would expire at once.
    """
    for (role, ttl_ms), queue in fence.queues.items():
        chunk: list[QueueEntry] = []
        for at in range(queue.head, queue.tail):
            if not chunk or not at % CHUNK:
                chunk = kinds.QUEUE.decode(part[kinds.QUEUE.key(role, ttl_ms, at // CHUNK)])
            yield role, ttl_ms, chunk[at % CHUNK]
    for witness in Witnesses(part.get(kinds.WITNESSES.key())).waiting:
        if witness.entry is not None:
            role, ttl_ms, named, event_id = witness.entry
            yield role, ttl_ms, (fence.stream_time or witness.ts, named, event_id)


def _shut(
    made: Sequence[dict[bytes, bytes]],
    fences: Sequence[Fence],
    queues: Sequence[_Queues],
    feeding: Sequence[set[int]],
    plan: Plan,
    fates: Sequence[list[int]],
) -> None:
    """Write the queues and the fences."""
    applied = max(fence.applied for fence in fences)
    for new, own in enumerate(made):
        fence = Fence(list(plan.next[new]), 0, applied, fates[new])
        fence.stream_time = max([fences[old].stream_time for old in feeding[new]], default=0)
        for (role, ttl_ms), entries in queues[new].items():
            fence.queues[role, ttl_ms] = QueueBounds(role, ttl_ms, 0, len(entries), entries[0][0] + ttl_ms)
            for at in range(0, len(entries), CHUNK):
                own[kinds.QUEUE.key(role, ttl_ms, at // CHUNK)] = kinds.QUEUE.encode(entries[at : at + CHUNK])
        own[kinds.FENCE.key()] = fence.encode()


# -- the router ------------------------------------------------------------------------------------------------------


def rescaled_routes(parts: Sequence[Rows], plan: Plan) -> list[dict[bytes, bytes]]:
    """Return the rows of a router's new partitions; as `rescaled`."""
    made: list[dict[bytes, bytes]] = [{} for _ in range(plan.width)]
    where: dict[str, int] = {}
    born: dict[str, int] = {}
    origins: dict[bytes, bytes] = {}
    held = [[0, 0] for _ in range(plan.width)]
    feeding: list[set[int]] = [set() for _ in range(plan.width)]
    for old, part in enumerate(parts):
        for key, frame in part.items():
            if key[:1] == routes.ORIGIN.letter:
                # All sent records are applied, so the largest offset in any partition is that of the last one sent.
                origins[key] = max(origins.get(key, frame), frame, key=routes.ORIGIN.decode)
            if key[:1] != routes.EVENT.letter:
                continue
            event_id = key[1:].decode()
            new = where[event_id] = plan.of_event(event_id, "", old)
            feeding[new].add(old)
            row = routes.EVENT.decode(frame)
            born[event_id] = row.born
            held[new][0 if row.routes else 1] += 1
            made[new][key] = frame
    fences = [Fence.decode(part[kinds.FENCE.key()]) if kinds.FENCE.key() in part else Fence() for part in parts]
    for new, own in enumerate(made):
        own.update(origins)
        feeding[new] |= set(range(len(parts)))
    queues = _queues(
        parts,
        fences,
        plan.width,
        lambda _, named, event_id: where.get(event_id) if born.get(event_id) == named else None,
    )
    left = [sum(counts) for counts in zip(*(fence.fates for fence in fences), strict=True)]
    fates = [[0] * len(FATES) for _ in made]
    for own_fates, (known, unknown) in zip(fates[1:], held[1:], strict=True):
        own_fates[routes.OPENED], own_fates[routes.EARLY_OPENED] = known, unknown
        left = [before - here for before, here in zip(left, own_fates, strict=True)]
    fates[0] = left
    _shut(made, fences, queues, feeding, plan, fates)
    return made
