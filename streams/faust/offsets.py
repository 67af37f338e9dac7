"""What consumer groups have committed."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from streams.kafka.groups import COORDINATOR_SECONDS, answered


async def committed(
    by: AIOKafkaConsumer | AIOKafkaAdminClient | AIOKafkaProducer,
    group: str,
    places: Iterable[TopicPartition] | None = None,
    seconds: float | None = COORDINATOR_SECONDS,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group, for some or all partitions. Partitions without one are left out.

    aiokafka's own functions ignore an error that concerns the whole answer. If the coordinator has just moved or still
    loads the group, they report that nothing was committed.

    Raises KafkaError if the offsets may not be read, or if no coordinator answers.

    ``by``: the started client that asks the brokers; it may belong to another group.
    ``seconds``: longest wait for the coordinator; None: for ever.
    """
    client = by.client if isinstance(by, AIOKafkaProducer) else by._client  # noqa: SLF001 - no public way to it
    topics = defaultdict(list)
    for topic, partition in places or ():
        topics[topic].append(partition)
    if places is not None and not topics:
        return {}
    asked = OffsetFetchRequest(group, None if places is None else list(topics.items()))
    return await answered(group, lambda: _committed(client, group, asked), seconds)


async def reached(
    by: AIOKafkaConsumer | AIOKafkaAdminClient | AIOKafkaProducer, group: str, places: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the committed offset of each partition, 0 if there is none; raises as `committed`."""
    found = await committed(by, group, places)
    return {place: found[place].offset if place in found else 0 for place in places}


async def _committed(
    client: AIOKafkaClient, group: str, asked: OffsetFetchRequest
) -> dict[TopicPartition, OffsetAndMetadata]:
    coordinator = await client.coordinator_lookup(CoordinationType.GROUP, group)
    answer = await client.send(coordinator, asked, group=ConnectionGroup.COORDINATION)
    found, codes = {}, [answer.error_code]
    for topic, partitions in answer.topics:
        for partition, offset, noted, code in partitions:
            codes.append(0 if code == UnknownTopicOrPartitionError.errno else code)
            if offset >= 0:
                found[TopicPartition(topic, partition)] = OffsetAndMetadata(offset, noted)
    if code := next(filter(None, codes), 0):
        raise for_code(code)(f"offsets of group {group} cannot be read")
    return found
