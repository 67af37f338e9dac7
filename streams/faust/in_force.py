"""Announces the configuration of a partition before its first answer, with `streams.config.in_force` records."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from aiokafka.structs import TopicPartition

from state.fence import Fence
from streams.config import in_force
from streams.config.settings import Settings
from streams.faust.producing import BatchProducer
from streams.kafka import whole_topics


class Announcer:
    """Writes the configuration of this worker or router when it takes a partition up.

    ``settings``: the configuration, and the name of the topic.
    ``producer``: returns the producer; the application makes it when it starts.
    ``owner``: name of this worker, for people.
    """

    def __init__(self, settings: Settings, producer: Callable[[], BatchProducer], owner: str) -> None:
        self._settings = settings
        self._producer = producer
        self._owner = owner
        self._configuration = in_force.described(settings)
        #: The claim under which each partition was last announced.
        self._announced: dict[int, int] = {}

    async def announce(self, partition: int, claim: int, fence: Fence) -> None:
        """Write the configuration that is in force from this fence on. Return when it is acknowledged.

        A claim is announced only once, because nobody else writes the partition under it and settings do not change.

        Raises KafkaError or TimeoutError if the brokers do not acknowledge; the partition must not be answered then.

        ``claim``: offset of the partition's claim in the changelog.
        ``fence``: the fence that was recovered after the claim.
        """
        if self._announced.get(partition) == claim:
            return
        first, second = fence.next
        at = datetime.now(UTC).isoformat(timespec="seconds")
        now = in_force.InForce(claim, fence.applied, (first, second), self._configuration, self._owner, at)
        producer = self._producer()
        kind = in_force.ROUTER if self._settings.routed else in_force.WORKER
        for key, value in in_force.records(now, self._settings.batch_bytes // 2, kind):
            await producer.put(self._settings.configurations, partition, key, value)
        self._announced[partition] = claim


async def announced(
    settings: Settings, starts: Mapping[TopicPartition, int] | None = None, kind: bytes = in_force.WORKER
) -> dict[int, list[in_force.InForce]]:
    """Return the announcements of workers, or routers, by partition, the oldest first.

    Raises InForceError if a part is missing or cannot be read.
    Raises KafkaError if the topic cannot be read.

    ``starts``: as in `streams.kafka.whole_topics.batches`; None: all partitions from the beginning.
    """
    kept: dict[int, dict[bytes | None, bytes | None]] = defaultdict(dict)
    async for _, records in whole_topics.batches(settings, [settings.configurations], starts=starts):
        for record in records:
            if not (record.key or b"").startswith(in_force.FIRST_ROWS):
                kept[record.partition][record.key] = record.value
    return {partition: in_force.read(held.items(), kind) for partition, held in kept.items()}


async def recalled(settings: Settings, partition: int, config: str) -> Settings:
    """Return the settings that were in force in a partition, given their hash.

    Raises InForceError if the settings are missing, or this build cannot read them. Raises KafkaError if the topic
    cannot be read.
    """
    kind = in_force.ROUTER if settings.routed else in_force.WORKER
    told = await announced(settings, {TopicPartition(settings.configurations, partition): 0}, kind)
    for each in told.get(partition, []):
        if each.digest == config:
            return in_force.restored(each.configuration, settings)
    raise in_force.InForceError(
        f"partition {partition} was folded under configuration {config}, which {settings.configurations} does not have"
    )
