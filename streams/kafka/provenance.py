"""From which changelog a disk's rows come, and how old they may be before the changelog can no longer update them.

The topic's name is not enough. A topic that was deleted and made again has the same name and other rows, and so has a
topic of another cluster. But brokers give every topic a unique id (KIP-516, Apache Kafka 2.8).
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from aiokafka import errors
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

T = TypeVar("T")

#: Pause before another attempt, s.
BACKOFF: Final = 0.1
#: Kafka's default for a topic that does not set it, ms.
DELETE_RETENTION_MS: Final = 86_400_000
#: The only ``cleanup.policy`` under which no row is lost.
COMPACT: Final = "compact"


class Origin(NamedTuple):
    """Where rows on a disk come from.

    Attributes
    ----------
    app
        ``TRUEUP_APP_ID``.
    cluster
        Id of the cluster.
    topic
        Id of the changelog, as hexadecimal digits; empty where brokers are older than 2.8.
    partitions
        Number of partitions of the changelog.
    """

    app: str
    cluster: str
    topic: str
    partitions: int

    def encode(self) -> bytes:
        """Return the origin as a row: JSON with sorted keys."""
        return json.dumps(self._asdict(), sort_keys=True, separators=(",", ":")).encode()


class Described(NamedTuple):
    """A changelog as the brokers describe it.

    Attributes
    ----------
    origin
        Which it is.
    retention_ms
        How long it keeps tombstones, ms.
    policy
        Its ``cleanup.policy``.
    """

    origin: Origin
    retention_ms: int
    policy: str = COMPACT


class _Response(Response):  # type: ignore[misc]  # aiokafka ships no type hints
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString()),
                ("port", Int32),
                ("rack", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString()),
                ("id_high", Int64),
                ("id_low", Int64),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _Request(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    RESPONSE_TYPE = _Response
    FLEXIBLE_VERSION = True
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("id_high", Int64), ("id_low", Int64), ("topic", CompactString()), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _Topic(Request[MetadataRequest_v5 | _Request]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, name: str) -> None:
        self._name = name

    def build(self, kind: Any) -> Any:  # noqa: ANN401 - aiokafka's
        """Return the request in a version that the broker speaks."""
        if kind is _Request:
            return kind([(0, 0, self._name, {})], False, False, False, {})  # noqa: FBT003 - the schema's fields in order
        return kind([self._name], False)  # noqa: FBT003 - as above


async def describe(client: AIOKafkaClient, app: str, name: str) -> Described:
    """Return what a changelog is and how it is cleaned, trying until a broker answers.

    Parameters
    ----------
    client
        Connected to the brokers.
    app
        ``TRUEUP_APP_ID``.
    name
        Name of the changelog.

    Raises
    ------
    KafkaError
        If the brokers refuse for a reason that trying again does not change.
    """

    async def ask() -> Described:
        return Described(await _origin(client, app, name), *await _cleaning(client, name))

    return await _insisted(client, ask)


class Identity(NamedTuple):
    """A topic's id as hexadecimal digits, empty where brokers are older than 2.8, and its number of partitions."""

    id: str
    partitions: int


async def identity(client: AIOKafkaClient, name: str) -> Identity:
    """Return what tells a topic from another of its name; raises as `describe`."""

    async def ask() -> Identity:
        return Identity(*(await _origin(client, "", name))[2:])

    return await _insisted(client, ask)


async def _insisted(client: AIOKafkaClient, ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again until a broker answers."""
    while True:
        try:
            return await ask()
        except errors.KafkaError as exc:
            if not exc.retriable:
                raise
            await client.force_metadata_update()
        await asyncio.sleep(BACKOFF)


async def _origin(client: AIOKafkaClient, app: str, name: str) -> Origin:
    response = await client.send(client.get_random_node(), _Topic(name))
    (topic,) = response.topics
    if topic[0]:
        raise errors.for_code(topic[0])(f"{name}: error {topic[0]}")
    if response.API_VERSION < _Request.API_VERSION:
        return Origin(app, response.cluster_id or "", "", len(topic[3]))
    number = (topic[2] % (1 << 64) << 64) + topic[3] % (1 << 64)
    return Origin(app, response.cluster_id or "", UUID(int=number).hex, len(topic[5]))


async def _cleaning(client: AIOKafkaClient, name: str) -> tuple[int, str]:
    """Return how long a topic keeps tombstones, ms, and its policy; the usual if this user may not ask."""
    retention, policy = "delete.retention.ms", "cleanup.policy"
    request = DescribeConfigsRequest([(ConfigResourceType.TOPIC, name, [retention, policy])])
    response = await client.send(client.get_random_node(), request)
    ((code, _, _, _, entries),) = response.resources
    if code and code != errors.TopicAuthorizationFailedError.errno:
        raise errors.for_code(code)(f"{name}: error {code}")
    found = {entry[0]: entry[1] for entry in entries}
    return int(found.get(retention, DELETE_RETENTION_MS)), found.get(policy, COMPACT)
