"""Read topics from the first kept record to the record that was the last one when reading began."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition

from streams.config.settings import Settings
from streams.faust import unpacking
from streams.faust.unpacking import Skips

#: Most bytes to fetch from a partition at once. With whole record batches, reading takes 6 us a record.
FETCH_BYTES: Final = 4 << 20


async def batches(
    settings: Settings,
    topics: Sequence[str],
    *,
    whole: bool = False,
    left_out: Skips = lambda _: {},
    starts: Mapping[TopicPartition, int] | None = None,
) -> AsyncIterator[tuple[str, list[ConsumerRecord[bytes, bytes]]]]:
    """Yield the records of each partition in order, with the name of their topic, without joining a group.

    Raises RuntimeError if ``whole`` is set, and records were deleted.
    Raises PoisonError if records cannot be read.
    Raises KafkaError if the topics cannot be read.

    Parameters
    ----------
    whole
        Whether every record must still be there.
    starts
        The partitions to read, each from an offset on or from the first that is kept; None: all from the first.
    left_out
        Returns what is left out of a partition, by its offset, and why (`streams.records.skips.why`).
    """
    # Without a group, subscribing assigns all partitions of the topics.
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=",".join(settings.brokers),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=FETCH_BYTES,
        **settings.security.client_options(),
    )
    try:
        await consumer.start()
        unpacking.bound(consumer, lambda _: unpacking.LIMIT, left_out)
        places = consumer.assignment()
        first, end = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        if whole and any(first.values()):
            raise RuntimeError("records of the output topics were deleted by retention before they were counted")
        if starts is not None:
            first = {place: max(offset, first[place]) for place, offset in starts.items()}
            for place, offset in first.items():
                consumer.seek(place, offset)
        left = {place for place in first if end[place] > first[place]}
        while left:
            for place, records in (await consumer.getmany(*left, timeout_ms=1000)).items():
                yield place.topic, records
                if records[-1].offset + 1 >= end[place]:
                    left.discard(place)
    finally:
        await consumer.stop()
