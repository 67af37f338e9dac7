"""The record of a group's move to another number of partitions, written by ``trueup state rescale`` for audits.

The first rows of a new partition follow from the old partitions' rows by a pure function (`state.rescale`), and those
from the old topics. So a `Move` names the old topics, how far they were applied, and how keys are divided. Each
partition of the new group's topic of configurations has one. It also has hashes of the new rows, with which an audit
compares its own.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import blake2b
from struct import Struct
from typing import Any, Final, Self

import orjson

from state import routes
from state.kind import KINDS
from state.kind import Moves as Kept
from state.rescale import Moved, Plan, RescaleError
from state.rescale_parts import Moves
from streams.kafka.partitioner import partition
from streams.records.decoding import SCOPED
from streams.records.routing import target

VERSION: Final = 2
#: What the inputs of a worker are keyed by.
EVENT, STREAM = KEYS = ("event", "stream")
#: The topics of a group by their labels, inputs first.
LABELS: Final = ("forecasts", "outcomes", "calibrated", "resolved", "dead-letters")

_LENGTHS: Final = Struct("<II")


class MoveError(ValueError):
    """The record of a move cannot be read; the message says why."""


@dataclass(frozen=True)
class Upstream:
    """How far intake and router of a moved group had come, for audits from the sources on."""

    #: Name and id of the old group's routes and labels, by their labels.
    topics: Mapping[str, tuple[str, str]]
    #: By old partition of the router, how many records had been applied, and the next offsets of routes and of labels.
    fences: tuple[tuple[int, int, int], ...]
    #: By old partition, the next offsets of forecasts and of outcomes: what intake and router had written.
    ends: tuple[tuple[int, int], ...]
    #: By new partition, where those of the new group begin: their next offsets then.
    since: tuple[tuple[int, int], ...]
    #: Of each source partition that intake had read: topic, partition, next offset, and the topic's id.
    sources: tuple[tuple[str, int, int, str], ...]

    @classmethod
    def of_json(cls, made: Mapping[str, Any]) -> Self:
        """Return an object from its JSON; raises ValueError, KeyError or TypeError if it is something else."""
        tuples = {name: tuple(map(tuple, made[name])) for name in ("fences", "ends", "since", "sources")}
        read = cls(topics={label: (name, id_) for label, (name, id_) in made["topics"].items()}, **tuples)
        if not len(read.fences) == len(read.ends) > 0:
            raise ValueError("it does not say the same of all partitions of the router")
        return read


@dataclass(frozen=True)
class Move:
    """The move that made the first rows of a partition."""

    #: ``TRUEUP_APP_ID`` of the old group.
    app: str
    #: The id of its changelog, and where each partition of that ended.
    changelog: str
    ends: tuple[int, ...]
    #: What the inputs are keyed by, one of `KEYS`.
    by: str
    #: Name and id of each of the old group's topics, by their labels.
    topics: Mapping[str, tuple[str, str]]
    #: By old partition, how many records had been applied, and the next offsets of forecasts and of outcomes.
    fences: tuple[tuple[int, int, int], ...]
    #: By old partition, the next offsets of what was answered, of what was resolved and of dead letters.
    outputs: tuple[tuple[int, int, int], ...]
    #: How many keys a stream is divided into, where it is more than one.
    shards: Mapping[str, int]
    #: Whether an input stayed the topic that it was.
    grown: bool
    #: By new partition, the next offsets of both inputs.
    next: tuple[tuple[int, int], ...]
    #: By new partition, where the new group's outputs begin: their next offsets then.
    since: tuple[tuple[int, int, int], ...]
    #: Of the rows of this partition by kind: a hash, see `digests`.
    digests: Mapping[str, str]
    #: How far intake and router had come; None if there were none.
    upstream: Upstream | None = None
    #: Its ``TRUEUP_TOPIC_PREFIX``.
    prefix: str = ""

    @property
    def partitions(self) -> int:
        """How many there are now."""
        return len(self.next)

    def of(self, moved: Moved) -> bool:
        """Whether it is the move that a partition's row names."""
        return (self.app, self.changelog, self.ends) == (moved.app, moved.changelog, moved.ends)

    def encode(self) -> bytes:
        """Return it as JSON with sorted keys."""
        return orjson.dumps({"version": VERSION} | asdict(self), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read the JSON of `encode`. Raises MoveError if this version would not write it."""
        try:
            made = orjson.loads(value)
            if made.pop("version", None) != VERSION:
                raise ValueError("it is of another version")
            tuples = {name: tuple(map(tuple, made[name])) for name in ("fences", "outputs", "next", "since")}
            topics = {label: tuple(each) for label, each in made["topics"].items()}
            upstream = made.get("upstream") and Upstream.of_json(made["upstream"])
            read = cls(**{**made, **tuples, "topics": topics, "ends": tuple(made["ends"]), "upstream": upstream})
            if not len(read.fences) == len(read.outputs) > 0 or len(read.next) != len(read.since):
                raise ValueError("it does not say the same of all partitions")
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise MoveError(f"what 'trueup state rescale' wrote down cannot be read by this version: {exc!r}") from exc
        return read

    def plan(self) -> Plan:
        """Return the division of keys, as it was when the rows were made."""
        known = self.shards
        return plan(
            self.by, len(self.fences), self.next, lambda stream: known.get(stream, 1), grown=self.grown, routed=()
        )


def plan(
    by: str,
    before: int,
    following: Sequence[Sequence[int]],
    shards: Callable[[str], int],
    *,
    grown: bool,
    routed: Sequence[Mapping[bytes, bytes]],
) -> Plan:
    """Return the division of keys when the records of some partitions go to others.

    ``by``: what the inputs are keyed by, one of `KEYS`.
    ``before``: the number of old partitions.
    ``following``: next offsets of both inputs, by new partition.
    ``shards``: returns the number of keys that a stream is divided into.
    ``grown``: whether an input is the same topic as before, and may have grown while it was read.
    ``routed``: the rows of the router's old partitions; empty without a router.
    """
    width = len(following)

    def right(key: str, old: int) -> bool:
        """Whether a key's records are in this old partition, also if an input has grown while it was read."""
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
    """Return the key of an event's records, if they are keyed by stream."""
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
    # The number of shards has changed since: the router knows where its forecast went.
    row = routed[partition(event_id.encode(), len(routed))].get(routes.EVENT.key(event_id))
    known = routes.EVENT.decode(row).routes if row is not None else []
    return next((each.target for each in known if each.stream == stream), key)


# -- rows ------------------------------------------------------------------------------------------------------------


def is_of_engine(key: bytes) -> bool:
    """Whether a row is one that engines read."""
    kind = KINDS.get(key[:1])
    return kind is None or kind.moves != Kept.OUTSIDE


def digests(rows: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return a hash of the rows of each kind."""
    hashed: dict[str, Any] = defaultdict(partial(blake2b, digest_size=16))
    for key in sorted(filter(is_of_engine, rows)):
        hashed[key[:1].decode()].update(_LENGTHS.pack(len(key), len(rows[key])) + key + rows[key])
    return {kind: whole.hexdigest() for kind, whole in hashed.items()}
