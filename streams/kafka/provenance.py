"""Which changelog the rows on a disk come from, and how old they may be so that the changelog can still update them.

The topic's name is not enough: a topic that was deleted and made again, or one of another cluster, may have the same
name and other rows. But brokers give every topic a unique id (KIP-516).
"""

import json
from functools import partial
from typing import Final, NamedTuple

from aiokafka import errors
from aiokafka.client import AIOKafkaClient

from streams.kafka import metadata
from streams.kafka.broker_requests import insisted
from streams.kafka.metadata import Metadata

#: Kafka's default of ``delete.retention.ms``, for topics that do not set it.
DEFAULT_RETENTION_MS: Final = 86_400_000
#: The only ``cleanup.policy`` under which no row is lost.
COMPACT: Final = "compact"


class Part(NamedTuple):
    """A partition of a changelog: which rows on a disk it can bring up to date."""

    #: Origin that the rows must have.
    origin: bytes
    #: Earliest time to which the rows may be complete, ms since 1970. Older tombstones may have been compacted away.
    oldest: int
    #: Offset at which the partition ends.
    end: int
    #: Offset of the first record that it still has.
    begin: int = 0


class Described(NamedTuple):
    """A changelog as the brokers describe it."""

    #: Whose it is.
    app: str
    topic: Metadata
    #: How long it keeps tombstones, ms.
    retention_ms: int
    #: Its ``cleanup.policy``.
    policy: str = COMPACT

    @property
    def origin(self) -> bytes:
        """What identifies it, as JSON with sorted keys. Each database has it in a row."""
        topic = self.topic
        of = {"app": self.app, "cluster": topic.cluster, "partitions": topic.partitions, "topic": topic.id}
        return json.dumps(of, separators=(",", ":")).encode()

    def part(self, at: int, end: int, begin: int = 0) -> Part:
        """Return a partition. ``at``: the time at which its begin and end were asked for, ms since 1970."""
        return Part(self.origin, at - self.retention_ms // 2, end, begin)


async def describe(client: AIOKafkaClient, app: str, name: str) -> Described:
    """Return the identity and the cleanup of a changelog. Try until a broker answers.

    Raises KafkaError if the brokers refuse for a reason that does not pass. Raises BrokersError if they are too old.
    """

    async def ask() -> Described:
        return Described(app, await _topic(client, name), *await _cleaning(client, name))

    return await insisted(ask, client)


async def identity(client: AIOKafkaClient, name: str) -> Metadata:
    """Return the description of a topic, whose id differs from others of its name; raises as `describe`."""
    return await insisted(lambda: _topic(client, name), client)


async def _topic(client: AIOKafkaClient, name: str) -> Metadata:
    (topic,) = await metadata.of(partial(client.send, client.get_random_node()), [name])
    if topic.error:
        raise errors.for_code(topic.error)(f"{name}: error {topic.error}")
    return topic


async def _cleaning(client: AIOKafkaClient, name: str) -> tuple[int, str]:
    """Return how long a topic keeps tombstones, ms, and its cleanup policy; the defaults if this user may not ask."""
    keys = ["delete.retention.ms", "cleanup.policy"]
    found = await metadata.configuration(partial(client.send, client.get_random_node()), name, keys=keys)
    if found.error and found.error != errors.TopicAuthorizationFailedError.errno:
        raise errors.for_code(found.error)(f"{name}: error {found.error}")
    retention, policy = map(found.values.get, keys)
    return int(retention or DEFAULT_RETENTION_MS), policy or COMPACT
