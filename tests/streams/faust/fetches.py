"""What a fetch brings of a partition, made by hand, and how it is handed over."""

from types import SimpleNamespace
from typing import Any

from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.structs import TopicPartition

from streams.faust.unpacking import RecordSet

TP = TopicPartition("forecasts", 0)
LIMIT = 100_000


def fetched(data: bytes, limit: int | None = LIMIT, offset: int = 0) -> PartitionRecords:
    """Return a fetch whose batches are bounded, as aiokafka makes one."""
    made = PartitionRecords(TP, records := RecordSet(data), [], offset, None, None, True, 0)  # noqa: FBT003 - its order
    records.limit = limit
    return made


def handed_over(reading: PartitionRecords) -> list[list[Any]]:
    """Return the portions in which a fetch is handed over."""
    state = SimpleNamespace(paused=False, position=reading.next_fetch_offset)
    state.consumed_to = lambda position: setattr(state, "position", position)
    assignment: Any = SimpleNamespace(active=True, state_value=lambda _: state)
    result = FetchResult(TP, assignment=assignment, partition_records=reading, backoff=0)
    portions = []
    while result.has_more():
        portions.append(result.getall())
    return portions
