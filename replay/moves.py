"""Divides a group's keys among a different number of partitions, for `trueup state rescale`."""

from collections.abc import Callable, Mapping, Sequence

from state import routes
from state.kind import KINDS
from state.kind import Moves as Kept
from state.rescale import Plan, RescaleError
from state.rescale_parts import Moves
from streams.kafka.partitioner import partition
from streams.records.limits import SCOPED
from streams.records.routing import target
from streams.records.skips import SKIP

#: What the keys of a worker's inputs may be.
EVENT, STREAM = KEYS = ("event", "stream")


def plan(
    by: str,
    before: int,
    following: Sequence[Sequence[int]],
    shards: Callable[[str], int],
    *,
    grown: bool,
    routed: Sequence[Mapping[bytes, bytes]],
) -> Plan:
    """Return the division of keys among the new partitions.

    ``by``: what the inputs' keys are, one of `KEYS`.
    ``before``: the number of old partitions.
    ``following``: next offsets of both inputs, by new partition.
    ``shards``: returns the number of keys of a stream.
    ``grown``: whether an input is the same topic as before, perhaps with more partitions.
    ``routed``: the rows of the router's old partitions; empty without a router.
    """
    width = len(following)

    def right(key: str, old: int) -> bool:
        """Whether a key's records are in this old partition. It allows for an input that got more partitions."""
        name = key.encode()
        return partition(name, before) == old or (grown and partition(name, width) == old)

    def of_event(name: str, stream: str, old: int) -> int:
        key = name if by == EVENT else _stream_key(name, stream, old, shards, right, routed)
        if not right(key, old):
            other = STREAM if by == EVENT else EVENT
            raise RescaleError(
                f"event {name!r} is in partition {old}, and its {by} would be in {partition(key.encode(), before)}. "
                f"Are the inputs keyed by {other}? Then give --keys {other}. If they are keyed by anything else, it is "
                "not known where records of an event will be; see docs/explanation/routing.md"
            )
        return partition(key.encode(), width)

    def of_stream(stream: str) -> Moves:
        if by == EVENT:
            return frozenset((old, new) for old in range(before) for new in range(width))
        names = [stream] if shards(stream) == 1 else [f"{stream}#{k}" for k in range(shards(stream))]
        return frozenset((partition(each.encode(), before), partition(each.encode(), width)) for each in names)

    def home(stream: str) -> int:
        many = by == STREAM and shards(stream) > 1
        return partition((f"{stream}#0" if many else stream).encode(), width)

    return Plan(width, of_event, of_stream, home, following)


def _stream_key(
    name: str,
    stream: str,
    old: int,
    shards: Callable[[str], int],
    right: Callable[[str, int], bool],
    routed: Sequence[Mapping[bytes, bytes]],
) -> str:
    """Return the key of an event's records, if records are keyed by stream."""
    event_id, _, scope = name.partition(SCOPED)
    stream = stream or scope
    if not stream:
        raise RescaleError(
            f"an outcome of event {event_id!r} waits for its forecast and does not say its stream: wait until it has "
            "expired (early_ttl)"
        )
    key = target(stream, event_id, shards(stream))
    if right(key, old) or not routed:
        return key
    # If the number of shards has changed since then, the router still knows where the forecast went.
    row = routed[partition(event_id.encode(), len(routed))].get(routes.EVENT.key(event_id))
    known = routes.EVENT.decode(row).routes if row is not None else []
    return next((each.target for each in known if each.stream == stream), key)


# -- rows ------------------------------------------------------------------------------------------------------------


def is_of_engine(key: bytes) -> bool:
    """Whether engines read this row."""
    kind = KINDS.get(key[:1])
    return kind is None or kind.moves != Kept.OUTSIDE


def is_derived(key: bytes) -> bool:
    """Whether records have led to this row: engines read it, and no operator wrote it."""
    return is_of_engine(key) and not key.startswith(SKIP.letter)
