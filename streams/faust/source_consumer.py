"""What a plain consumer of source topics needs beyond aiokafka's own settings."""

from collections import defaultdict
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, TopicPartition

from streams.faust.fetching import CheckedFetches, Lineage, report_lost_positions
from streams.faust.unpacking import Read, Skips


def guard(
    consumer: AIOKafkaConsumer, topics: Iterable[str], unpacked_bytes: int, skips: Skips
) -> defaultdict[TopicPartition, Read]:
    """Bound what a consumer unpacks, leave out what is skipped, and let it raise where records were deleted or cut.

    Call it when it has started and nothing is assigned to it. A partition without a committed offset begins with its
    first record.

    Returns how far it has read each partition. Who goes on from a committed offset notes that here.
    """
    fetcher = consumer._fetcher  # noqa: SLF001 - aiokafka has no setting for what follows
    records = CheckedFetches(lambda _: unpacked_bytes, skips, fetcher, topics)
    Lineage(fetcher, records)
    report_lost_positions(fetcher, topics)
    return records.read
