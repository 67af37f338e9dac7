"""What brokers know of consumer groups."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaError, KafkaTimeoutError, for_code
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

#: Longest wait for the coordinator of a group, s: a new cluster makes the topic of groups when it is first asked.
COORDINATOR_SECONDS: Final = 30.0
#: Pause before another attempt, s.
_BACKOFF: Final = 0.2

T = TypeVar("T")


async def members(admin: AIOKafkaAdminClient, group: str) -> int:
    """Return how many members a consumer group has; KafkaError if it cannot be described."""
    return await _answered(group, lambda: _members(admin, group), COORDINATOR_SECONDS)


async def committed(
    by: AIOKafkaConsumer | AIOKafkaAdminClient | AIOKafkaProducer,
    group: str,
    places: Iterable[TopicPartition] | None = None,
    seconds: float | None = COORDINATOR_SECONDS,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return what a group has committed, of some partitions or of all; those without an offset are left out.

    The ways of aiokafka do not read the error of a whole answer. If the coordinator has just moved, or still loads the
    group, they tell that nothing was committed.

    Raises KafkaError if the offsets may not be read, or if no coordinator answers.

    Parameters
    ----------
    by
        Asks the brokers; it is started, and may belong to another group.
    seconds
        Longest wait for the coordinator; None: for ever.
    """
    client = by.client if isinstance(by, AIOKafkaProducer) else by._client  # noqa: SLF001 - no public way to it
    topics = defaultdict(list)
    for topic, partition in places or ():
        topics[topic].append(partition)
    if places is not None and not topics:
        return {}
    asked = OffsetFetchRequest(group, None if places is None else list(topics.items()))
    return await _answered(group, lambda: _committed(client, group, asked), seconds)


async def _answered(group: str, ask: Callable[[], Awaitable[T]], seconds: float | None) -> T:
    """Ask until a coordinator answers."""
    last: KafkaError = KafkaTimeoutError(f"no coordinator of group {group} answered")
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await ask()
                except KafkaError as exc:
                    if not exc.retriable:
                        raise
                    last = exc
                await asyncio.sleep(_BACKOFF)
    except TimeoutError:
        raise last from None


async def _members(admin: AIOKafkaAdminClient, group: str) -> int:
    (response,) = await admin.describe_consumer_groups([group])
    code, _, _, _, _, found, *_ = response.groups[0]
    if code:
        raise for_code(code)(f"group {group} cannot be described")
    return len(found)


async def _committed(
    client: AIOKafkaClient, group: str, asked: OffsetFetchRequest
) -> dict[TopicPartition, OffsetAndMetadata]:
    coordinator = await client.coordinator_lookup(CoordinationType.GROUP, group)
    answer = await client.send(coordinator, asked, group=ConnectionGroup.COORDINATION)
    found, codes = {}, [answer.error_code]
    for topic, partitions in answer.topics:
        for partition, offset, noted, code in partitions:
            codes.append(code)
            if offset >= 0:
                found[TopicPartition(topic, partition)] = OffsetAndMetadata(offset, noted)
    if code := next(filter(None, codes), 0):
        raise for_code(code)(f"offsets of group {group} cannot be read")
    return found
