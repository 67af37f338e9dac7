"""Reads topics from the first kept record to the record that was the last one when reading began."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaTimeoutError
from aiokafka.structs import ConsumerRecord, TopicPartition

from streams.config.settings import Settings
from streams.faust import unpacking
from streams.faust.client import stop
from streams.faust.unpacking import Skips
from streams.kafka import standstill
from streams.kafka.standstill import Standstill

log = logging.getLogger("trueup")

#: The most bytes to fetch from a partition at once. With whole record batches, reading takes 6 us a record.
FETCH_BYTES: Final = 4 << 20
#: Time between two log lines about the progress of reading, s.
TELL_SECONDS: Final = 5.0


async def batches(
    settings: Settings,
    topics: Sequence[str],
    *,
    whole: bool = False,
    committed: bool = False,
    left_out: Skips = lambda _: {},
    starts: Mapping[TopicPartition, int] | None = None,
    last: int | None = None,
) -> AsyncIterator[tuple[str, list[ConsumerRecord[bytes, bytes]]]]:
    """Yield the records of each partition in order, with the name of their topic. No group is joined.

    Raises RuntimeError if ``whole`` is set but records were deleted. Raises PoisonError if records cannot be read.
    Raises KafkaError if the topics cannot be read, or nothing comes for `standstill.STILL_SECONDS`.

    ``whole``: whether every record must still be there.
    ``committed``: whether records of open and aborted transactions are skipped.
    ``starts``: the partitions to read, each from this offset or the first kept one; None: all from the first kept one.
    ``last``: read only this many last offsets of each partition; None: all.
    ``left_out``: returns the offsets of a partition to leave out, each with the reason (`streams.records.skips.why`).
    """
    # Without a group, subscribing assigns all partitions of the topics.
    consumer = AIOKafkaConsumer(
        *(topics if starts is None else ()),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if committed else "read_uncommitted",
        max_partition_fetch_bytes=FETCH_BYTES,
        request_timeout_ms=int(settings.request_seconds * 1000),
        **settings.client_options(),
    )
    try:
        await consumer.start()
        unpacking.bound(consumer, lambda _: unpacking.LIMIT, left_out)
        if starts is not None:
            consumer.assign(list(starts))
        places = list(consumer.assignment())
        first, end = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        if whole and any(first.values()):
            raise RuntimeError("records of the output topics were deleted by retention before they were counted")
        at = {place: max(first[place], (starts or first)[place], end[place] - (last or end[place])) for place in places}
        for place, offset in at.items():
            consumer.seek(place, offset)
        missing = {place: end[place] - offset for place, offset in at.items() if offset < end[place]}
        now = asyncio.get_running_loop().time
        told, still = now(), Standstill(now)
        total = sum(missing.values())
        while missing:
            for place, records in (await consumer.getmany(*missing, timeout_ms=500)).items():
                if records[-1].offset >= end[place]:
                    records = [each for each in records if each.offset < end[place]]  # noqa: PLW2901 - the others
                if records:  # a transaction's marker at the end gives no record
                    yield place.topic, records
            # Positions are compared, because a transaction's marker is not a record.
            missing = {place: n for place in missing if (n := end[place] - await consumer.position(place)) > 0}
            left = sum(missing.values())
            if still.at(left):
                raise KafkaTimeoutError(
                    f"nothing of {', '.join(topics)} came for {standstill.STILL_SECONDS:g} s, and {left} of {total} "
                    "offsets are left. Do the brokers that lead it answer?"
                )
            if now() - told >= TELL_SECONDS:
                log.info("reading %s: %d of %d offsets", ", ".join(topics), total - left, total)
                told = now()
    finally:
        await stop(consumer)
