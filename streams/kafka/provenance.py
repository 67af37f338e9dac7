"""The changelog that rows on a disk come from, and the age up to which the changelog can update them.

The topic's name is not enough: a topic that was deleted and made again has the same name and other rows, and so has a
topic of another cluster. But brokers give every topic a unique id (KIP-516, Apache Kafka 2.8).
"""

import json
from functools import partial
from typing import Final, NamedTuple

from aiokafka import errors
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import DescribeConfigsRequest

from streams.kafka import metadata
from streams.kafka.broker_requests import insisted

#: Kafka's default for a topic that does not set it, ms.
DELETE_RETENTION_MS: Final = 86_400_000
#: The only ``cleanup.policy`` under which no row is lost.
COMPACT: Final = "compact"


class Origin(NamedTuple):
    """The changelog that rows on a disk come from."""

    app: str
    #: Id of the cluster.
    cluster: str
    #: Id of the changelog, as hexadecimal digits; empty if brokers are older than 2.8.
    topic: str
    #: Number of partitions of the changelog.
    partitions: int

    def encode(self) -> bytes:
        """Return the origin as a row: JSON with sorted keys."""
        return json.dumps(self._asdict(), sort_keys=True, separators=(",", ":")).encode()


class Described(NamedTuple):
    """A changelog as the brokers describe it."""

    #: Which it is.
    origin: Origin
    #: How long it keeps tombstones, ms.
    retention_ms: int
    #: Its ``cleanup.policy``.
    policy: str = COMPACT


async def describe(client: AIOKafkaClient, app: str, name: str) -> Described:
    """Return the identity and the cleanup of a changelog, trying until a broker answers.

    Raises KafkaError if the brokers refuse for a reason that does not pass.
    """

    async def ask() -> Described:
        return Described(await _origin(client, app, name), *await _cleaning(client, name))

    return await insisted(ask, client)


class TopicIdentity(NamedTuple):
    """A topic's id as hexadecimal digits, empty if brokers are older than 2.8, and its number of partitions."""

    id: str
    partitions: int


async def identity(client: AIOKafkaClient, name: str) -> TopicIdentity:
    """Return the identity of a topic, which differs from others of its name; raises as `describe`."""
    origin = await insisted(lambda: _origin(client, "", name), client)
    return TopicIdentity(origin.topic, origin.partitions)


async def _origin(client: AIOKafkaClient, app: str, name: str) -> Origin:
    (topic,) = await metadata.of(partial(client.send, client.get_random_node()), [name])
    if topic.error:
        raise errors.for_code(topic.error)(f"{name}: error {topic.error}")
    return Origin(app, topic.cluster, topic.id, topic.partitions)


async def _cleaning(client: AIOKafkaClient, name: str) -> tuple[int, str]:
    """Return how long a topic keeps tombstones, ms, and its policy; the defaults if this user may not ask."""
    retention, policy = "delete.retention.ms", "cleanup.policy"
    request = DescribeConfigsRequest([(ConfigResourceType.TOPIC, name, [retention, policy])])
    response = await client.send(client.get_random_node(), request)
    ((code, _, _, _, entries),) = response.resources
    if code and code != errors.TopicAuthorizationFailedError.errno:
        raise errors.for_code(code)(f"{name}: error {code}")
    found = {entry[0]: entry[1] for entry in entries}
    return int(found.get(retention, DELETE_RETENTION_MS)), found.get(policy, COMPACT)
