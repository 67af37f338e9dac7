"""Metadata of brokers that aiokafka does not ask for: ids of topics, and permissions of this user."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple
from uuid import UUID

from aiokafka.protocol.api import Request
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.types import Boolean, CompactArray, Int16, Int32, Int64, Schema

from streams.kafka.broker_requests import TAGS, TEXT, struct


class Metadata(NamedTuple):
    """A topic, as a broker describes it."""

    #: Id of the cluster.
    cluster: str
    #: Its name, its id as hexadecimal digits (empty where brokers are older than 2.8) and its number of partitions.
    name: str
    id: str
    partitions: int
    #: A code, 0 where the rest can be had.
    error: int
    #: What this user may do, a bit for each of Kafka's numbers; None where brokers are older than 2.8.
    operations: int | None


_BROKERS = CompactArray(("node_id", Int32), ("host", TEXT), ("port", Int32), ("rack", TEXT), TAGS)
_PARTITIONS = CompactArray(
    ("error_code", Int16),
    ("partition", Int32),
    ("leader", Int32),
    ("leader_epoch", Int32),
    ("replicas", CompactArray(Int32)),
    ("isr", CompactArray(Int32)),
    ("offline_replicas", CompactArray(Int32)),
    TAGS,
)
_TOPICS = CompactArray(
    ("error_code", Int16),
    ("topic", TEXT),
    ("id_high", Int64),
    ("id_low", Int64),
    ("is_internal", Boolean),
    ("partitions", _PARTITIONS),
    ("authorized_operations", Int32),
    TAGS,
)
_Request = struct(
    3,
    10,
    Schema(
        ("topics", CompactArray(("id_high", Int64), ("id_low", Int64), ("topic", TEXT), TAGS)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        TAGS,
    ),
    Schema(
        ("throttle_time_ms", Int32),
        ("brokers", _BROKERS),
        ("cluster_id", TEXT),
        ("controller_id", Int32),
        ("topics", _TOPICS),
        ("cluster_authorized_operations", Int32),
        TAGS,
    ),
)


class _Topics(Request[MetadataRequest_v5 | _Request]):  # type: ignore[misc]  # aiokafka ships no type hints
    API_KEY = 3

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)

    def build(self, kind: Any) -> Any:  # noqa: ANN401 - aiokafka's
        """Return the request in a version that the broker speaks."""
        if kind is _Request:
            return kind([(0, 0, name, {}) for name in self._names], False, False, True, {})  # noqa: FBT003 - in order
        return kind(self._names, False)  # noqa: FBT003 - as above


async def of(send: Callable[[Request], Awaitable[Any]], names: Iterable[str]) -> list[Metadata]:
    """Return one broker's description of topics; ``send`` asks it."""
    response = await send(_Topics(names))
    cluster = response.cluster_id or ""
    if response.API_VERSION < _Request.API_VERSION:
        return [Metadata(cluster, name, "", len(parts), code, None) for code, name, _, parts in response.topics]
    return [
        Metadata(cluster, name, UUID(int=(high % (1 << 64) << 64) + low % (1 << 64)).hex, len(parts), code, bits)
        for code, name, high, low, _, parts, bits, *_ in response.topics
    ]
