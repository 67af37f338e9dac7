"""What a plain consumer of source topics needs beyond aiokafka's own settings."""

from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer

from streams.faust.transport import Prefetched, report_lost_positions


def guard(consumer: AIOKafkaConsumer, topics: Iterable[str], unpacked_bytes: int) -> None:
    """Bound what a consumer unpacks, and let it raise where records were deleted unread.

    Call it when it has started and nothing is assigned to it. A partition without a committed offset begins with its
    first record.
    """
    consumer._fetcher._records = Prefetched(lambda _: unpacked_bytes)  # noqa: SLF001 - aiokafka has no setting for it
    report_lost_positions(consumer._fetcher, topics)  # noqa: SLF001 - aiokafka has one setting for both
