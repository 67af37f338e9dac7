"""What a fetch brings of a partition, made by hand, and how it is handed over."""

import struct
from types import SimpleNamespace
from typing import Any

from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.record.util import calc_crc32c
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


def misread(length: int, base: int) -> bytes:
    """Return a batch of two records whose offsets aiokafka reads as the lengths of their keys."""
    records = b""
    for i in range(2):
        # As aiokafka reads it: no key, and a value from the fourth byte of this key to the end.
        key = b"\x01" + varint(length - 2) + b"x" * (length - 3)
        record = b"\x80\x00" + varint(i) + varint(len(key)) + key + b"\x01\x00"
        records += varint(len(record)) + record
    body = struct.pack(">hiqqqhii", 0, 1, 1000, 1000, -1, -1, -1, 2) + records
    return struct.pack(">qiibI", base, 9 + len(body), 0, 2, calc_crc32c(body)) + body


def varint(number: int) -> bytes:
    number, found = number << 1, b""
    while number > 127:
        found, number = found + bytes((number & 127 | 128,)), number >> 7
    return found + bytes((number,))
