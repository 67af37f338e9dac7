"""What a plain consumer of source topics needs beyond aiokafka's own settings."""

from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer

from streams.faust.fetching import Prefetched, report_lost_positions
from streams.faust.unpacking import Aside, Skips


def guard(consumer: AIOKafkaConsumer, topics: Iterable[str], unpacked_bytes: int, skips: Skips) -> None:
    """Bound what a consumer unpacks, leave out what is skipped, and let it raise where records were deleted unread.

    Call it when it has started and nothing is assigned to it. A partition without a committed offset begins with its
    first record.
    """
    fetcher = consumer._fetcher  # noqa: SLF001 - aiokafka has no setting for what follows
    fetcher._records = Prefetched(lambda _: unpacked_bytes, skips, aside=Aside(fetcher))  # noqa: SLF001 - as above
    report_lost_positions(fetcher, topics)
