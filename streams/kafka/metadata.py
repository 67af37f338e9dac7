"""Requests that aiokafka lacks: topic ids, permissions of this user, configurations, ends of leader epochs."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from aiokafka import errors
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.api import Request
from aiokafka.protocol.types import Array, Boolean, CompactArray, Int16, Int32, Int64, Schema, String
from aiokafka.structs import TopicPartition

from streams.kafka.broker_requests import TAGS, TEXT, request, struct


class Metadata(NamedTuple):
    """A topic, as a broker describes it."""

    #: Id of the cluster.
    cluster: str
    #: Its name; its id as hexadecimal digits (KIP-516: a topic that is deleted and made again gets another id); its
    #: number of partitions.
    name: str
    id: str
    partitions: int
    #: Error code; 0 if the other fields are valid.
    error: int = 0
    #: Permissions of this user: one bit for each of Kafka's operation numbers.
    operations: int = 0


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
#: Request for descriptions of topics.
_Topics = request(
    struct(
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
)

#: Sends a request to a broker, and returns the answer.
Send = Callable[[Request], Awaitable[Any]]


async def of(send: Send, names: Iterable[str]) -> list[Metadata]:
    """Return one broker's description of topics; raises BrokersError if it is too old."""
    asked = _Topics([(0, 0, name, {}) for name in names], False, False, True, {})  # noqa: FBT003 - as in the schema
    response = await send(asked)
    cluster = response.cluster_id or ""
    return [
        Metadata(cluster, name, UUID(int=(high % (1 << 64) << 64) + low % (1 << 64)).hex, len(parts), code, bits)
        for code, name, high, low, _, parts, bits, *_ in response.topics
    ]


class Configuration(NamedTuple):
    """The configuration of a topic or a broker."""

    #: Error code and message; 0 if the values are valid.
    error: int
    message: str
    values: dict[str, str]


async def configuration(
    send: Send, name: str, kind: ConfigResourceType = ConfigResourceType.TOPIC, keys: list[str] | None = None
) -> Configuration:
    """Return one configuration, or some of its keys. Only a broker itself knows its own configuration."""
    response = await send(DescribeConfigsRequest([(kind, name, keys)]))
    ((error, message, *_, entries),) = response.resources
    return Configuration(error, message or "", {entry[0]: entry[1] for entry in entries})


_TEXT: Final = String("utf-8")
_ENDS: Final = Array(("error_code", Int16), ("partition", Int32), ("leader_epoch", Int32), ("end_offset", Int64))
_EPOCHS: Final = Array(("partition", Int32), ("current_leader_epoch", Int32), ("leader_epoch", Int32))
#: Request for the end of the epoch of a partition's leader.
_EndOfEpoch = request(
    struct(
        23,
        3,
        Schema(("replica_id", Int32), ("topics", Array(("topic", _TEXT), ("partitions", _EPOCHS)))),
        Schema(("throttle_time_ms", Int32), ("topics", Array(("topic", _TEXT), ("partitions", _ENDS)))),
        flexible=False,
    )
)


async def end_of_epoch(client: AIOKafkaClient, place: TopicPartition, epoch: int) -> int:
    """Return the offset after the last record of an epoch; -1 if the log has only earlier epochs.

    It tells a reader that a log was cut behind the reader (KIP-320, Kafka 2.3). After an unclean election or a power
    loss, a log may lose records that were read, and their offsets go to other records. Each batch names the leader
    epoch in which it was written. If that epoch ended before the reader's position, the log was cut.

    Raises KafkaError if the leader is away, or does not answer.
    """
    leader = client.cluster.leader_for_partition(place)
    if leader in (None, -1):
        raise errors.LeaderNotAvailableError(f"{place.topic}/{place.partition} has no leader")
    # -1: the reader does not know the leader's present epoch
    asked = _EndOfEpoch(-1, [(place.topic, [(place.partition, -1, epoch)])])
    ((_, ((code, _, _, end),)),) = (await client.send(leader, asked)).topics
    if code:
        raise errors.for_code(code)(f"{place.topic}/{place.partition}: error {code}")
    return int(end)
