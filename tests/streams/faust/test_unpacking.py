"""Packed batches: read as aiokafka reads them, never beyond the bound, and what stands for those that are not."""

import gzip
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import cramjam
import orjson
import pytest
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c

from state.events import Event, Rejected
from state.fence import FORECASTS
from streams.faust import unpacking
from streams.faust.producing import RecordBatch
from streams.faust.unpacking import RecordSet
from streams.kafka.codecs import NUMBERS
from streams.records import refused
from streams.records.refused import Refused, Skipped
from streams.records.skips import PoisonError
from tests.streams.faust.fetches import LIMIT, TP, fetched, handed_over, misread

PACKED = {name: number for name, number in NUMBERS.items() if name != "none"}
BOMB = bytes(LIMIT + 1)


def batch(codec: int, *values: bytes, base: int = 0) -> bytes:
    """Return a record batch as a broker keeps it."""
    made = RecordBatch(10_000_000, codec)
    assert made.extend([(b"key", value, 1000 + i, []) for i, value in enumerate(values)]) == len(values)
    data = made.sealed(7, 1, 0)
    return struct.pack(">q", base) + bytes(data[8:])


def read(data: bytes, limit: int | None = LIMIT) -> list[tuple[int, int, bytes | None]]:
    """Return offset, timestamp and value of the records of a fetch."""
    return [(each.offset, each.timestamp, each.value) for each in fetched(data, limit)]


def damaged(data: bytes) -> bytes:
    """Return a batch whose packed records are damaged and whose checksum is right."""
    spoilt = data[:61] + bytes(byte ^ 0xFF for byte in data[61:])
    return spoilt[:17] + struct.pack(">I", calc_crc32c(spoilt[21:])) + spoilt[21:]


def taken(data: bytes, offset: int = 0) -> tuple[FetchResult, SimpleNamespace]:
    """Return what aiokafka's consumer takes the records of a fetch from, and the place that it keeps."""
    state = SimpleNamespace(paused=False, position=offset)
    state.consumed_to = lambda position: setattr(state, "position", position)
    assignment: Any = SimpleNamespace(active=True, state_value=lambda _: state)
    return FetchResult(TP, assignment=assignment, partition_records=fetched(data, offset=offset), backoff=0), state


def test_aiokafka_reads_by_it() -> None:
    assert fetcher.MemoryRecords is RecordSet


@pytest.mark.parametrize("codec", NUMBERS.values(), ids=NUMBERS)
def test_what_is_within_the_bound_is_read_as_aiokafka_reads_it(codec: int) -> None:
    data = batch(codec, b"x" * 500, b"y" * 500) + batch(codec, b"z" * 900, base=2) + batch(codec, b"cut")[:-1]
    theirs = PartitionRecords(TP, MemoryRecords(data), [], 0, None, None, True, 0)  # noqa: FBT003 - its order
    assert list(fetched(data)) == list(theirs)
    assert list(fetched(data, None)) == list(
        PartitionRecords(TP, MemoryRecords(data), [], 0, None, None, True, 0)  # noqa: FBT003 - its order
    )


@pytest.mark.parametrize("codec", PACKED.values(), ids=PACKED)
def test_a_batch_that_expands_beyond_the_bound_is_one_record_and_reading_goes_on_behind_it(codec: int) -> None:
    bomb = batch(codec, b"a", BOMB, b"c", base=5)
    data = batch(codec, b"x" * 500, base=4) + bomb + batch(codec, b"y" * 500, base=8)
    before, stands, after = read(data)
    assert (before[0], after[0]) == (4, 8)
    assert stands[:2] == (7, 1000)
    assert type(stands[2]) is Refused
    said = orjson.loads(bytes(stands[2]))
    assert said["offsets"] == [5, 7]
    assert said["packed_bytes"] == len(bomb)
    assert said["refused"].endswith(f"that expands beyond {LIMIT} bytes")


def test_a_batch_that_is_not_packed_is_not_bounded() -> None:
    assert read(batch(0, BOMB)) == [(0, 1000, BOMB)]


@pytest.mark.parametrize("codec", PACKED.values(), ids=PACKED)
def test_a_batch_that_cannot_be_unpacked_is_one_record(codec: int) -> None:
    ((offset, _, value),) = read(damaged(batch(codec, b"x" * 500, b"y" * 500)))
    assert offset == 1
    assert type(value) is Refused
    assert orjson.loads(bytes(value))["offsets"] == [0, 1]


def test_a_codec_that_kafka_does_not_have_is_one_record() -> None:
    data = bytearray(batch(4, b"x" * 500))
    data[22] = 7
    data[17:21] = struct.pack(">I", calc_crc32c(bytes(data[21:])))
    ((_, _, value),) = read(bytes(data))
    assert b"codec 7 is not one of" in (value or b"")


def test_a_batch_that_was_damaged_on_its_way_is_no_dead_letter() -> None:
    data = bytearray(batch(4, b"x" * 500))
    data[-1] ^= 1
    with pytest.raises(CorruptRecordException, match="Invalid CRC"):
        read(bytes(data))


def test_what_is_no_batch_is_damage() -> None:
    with pytest.raises(CorruptRecordException):
        read(bytes(100))


def test_a_fence_within_a_refused_batch_goes_on_behind_it() -> None:
    (record,) = fetched(batch(4, b"a", BOMB, b"c", base=5), offset=6)
    assert record.offset == 7


def test_a_fetch_of_many_batches_is_handed_over_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "PORTION", 2000)
    data = b"".join(batch(4, *[b"x" * 990] * 3, base=3 * i) for i in range(3))
    result, state = taken(data)
    unpacking.Fetches(lambda _: LIMIT)[TP] = result
    portions = []
    while result.has_more():
        portions.append([record.offset for record in result.getall()])
        assert state.position == (portions[-1][-1] + 1 if portions[-1] else 9)
    assert portions == [[0, 1, 2], [3, 4, 5], [6, 7, 8], []]


def test_a_batch_of_many_records_is_handed_over_in_portions_however_small_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unpacking, "PORTION_RECORDS", 40)
    result, _ = taken(batch(4, *[b""] * 100))
    assert len(result.getall(30)) == 30
    assert len(result.getall(50)) == 40
    assert [record.offset for record in result.getall()] == list(range(70, 100))


def test_only_what_stands_for_a_batch_is_given_that_reason() -> None:
    stands = Rejected(9, None, Refused.of(5, 9, 100, "zstd that expands beyond 5 bytes"), FORECASTS, "event_id")
    other = Rejected(10, None, b"{}", FORECASTS, "event_id")
    events: list[Event] = [stands, other]
    assert refused.named(events) == [stands._replace(reason="batch"), other]


def skipping(data: bytes, skips: dict[int, str]) -> list[tuple[int, type, bytes | None]]:
    """Return offset, type and value of the records of a fetch of which some are left out."""
    made = fetched(data)
    made._records.skips = skips
    return [(each.offset, type(each.value), each.value) for each in made]


@pytest.mark.parametrize("codec", NUMBERS.values(), ids=NUMBERS)
def test_a_record_that_is_left_out_leaves_its_neighbours(codec: int) -> None:
    data = batch(codec, b"a" * 99, b"b" * 99, b"c" * 99, base=5) + batch(codec, b"d" * 99, base=8)
    before, stands, *after = skipping(data, {6: "skipped at 6: why", 99: "other"})
    assert (before, after) == ((5, bytes, b"a" * 99), [(7, bytes, b"c" * 99), (8, bytes, b"d" * 99)])
    assert stands[:2] == (6, Skipped)
    said = orjson.loads(bytes(stands[2] or b""))
    assert said == {"offsets": [6, 6], "packed_bytes": 99, "refused": "skipped at 6: why"}


PACK: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: gzip.compress,
    2: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    3: lambda data: bytes(cramjam.lz4.compress(data)),
    4: lambda data: bytes(cramjam.zstd.compress(data)),
}


def test_a_damaged_batch_is_left_out_whole() -> None:
    flipped = bytearray(batch(4, b"a" * 99, b"b" * 99, base=5))
    flipped[-1] ^= 1
    with pytest.raises(CorruptRecordException):
        read(bytes(flipped))
    (stands, after) = skipping(bytes(flipped) + batch(0, b"c", base=7), {5: "skipped at 5: why"})
    assert stands[:2] == (6, Skipped)
    assert orjson.loads(bytes(stands[2] or b""))["offsets"] == [5, 6]
    assert after == (7, bytes, b"c")


def test_where_a_fetch_cannot_be_read_is_named_after_what_comes_before_it() -> None:
    spoilt = bytearray(batch(0, b"a", base=1))
    spoilt[-1] ^= 1
    result, state = taken(batch(0, b"good") + bytes(spoilt))
    assert [record.offset for record in result.getall()] == [0]
    assert state.position == 1
    again, _ = taken(bytes(spoilt), offset=1)
    with pytest.raises(PoisonError, match=r"forecasts/0@1 cannot be read"):
        again.getall()


LATIN: list[tuple[str, bytes | None]] = [("NAME12", b"x" * 20)]


def headed(codec: int, *headers: list[tuple[str, bytes | None]], base: int = 0, attributes: int = 0) -> bytes:
    """Return a batch of records with headers, where ``NAME12`` is a name in Latin-1, as C clients may send it."""
    plain = RecordBatch(10_000_000, 0)
    assert plain.extend([(b"key%d" % i, b"value", 1000 + i, each) for i, each in enumerate(headers)]) == len(headers)
    data = bytearray(plain.sealed(7, 1, 0))
    records = bytes(data[61:]).replace(b"NAME12", b"gr\xf6\xdfe ")
    made = bytes(data[:61]) + PACK[codec](records)
    made = struct.pack(">qi", base, len(made) - 12) + made[12:21] + struct.pack(">h", codec | attributes) + made[23:]
    return made[:17] + struct.pack(">I", calc_crc32c(made[21:])) + made[21:]


def refused_rest(data: bytes, skips: dict[int, str] | None = None, start: int = 0) -> list[tuple[int, object]]:
    """Return each record's offset with its value's size, or with the offsets that are said of a refused rest."""
    reading = fetched(data, offset=start)
    reading._records.skips = skips or {}
    found: list[tuple[int, object]] = []
    for record in (each for portion in handed_over(reading) for each in portion):
        said = orjson.loads(bytes(record.value)) if type(record.value) is Refused else None
        found.append((record.offset, said["offsets"] if said else len(record.value or b"")))
        assert said is None or said["packed_bytes"] > 0
    return found


@pytest.mark.parametrize("log_time", [0, 8], ids=["theirs", "the log's"])
@pytest.mark.parametrize("codec", NUMBERS.values(), ids=NUMBERS)
def test_a_batch_that_cannot_be_read_to_its_end_is_refused_from_there_on(codec: int, log_time: int) -> None:
    data = headed(codec, [], LATIN, [], base=5, attributes=log_time) + headed(codec, [], base=9)
    assert refused_rest(data, start=5) == [(5, 5), (7, [6, 7]), (9, 5)]
    assert refused_rest(data, start=6) == [(7, [6, 7]), (9, 5)], "the same, wherever reading begins again"
    assert refused_rest(data, {5: "skipped at 5: why"}, 5)[1:] == [(7, [6, 7]), (9, 5)]


def test_what_is_damaged_is_refused_by_nobody_but_an_operator() -> None:
    flipped = bytearray(headed(0, LATIN, base=1))
    flipped[-1] ^= 1
    for limit in (LIMIT, None):
        with pytest.raises(PoisonError, match=r"forecasts/0@1 cannot be read"):
            handed_over(fetched(bytes(flipped), limit, offset=1))
    with pytest.raises(PoisonError, match=r"forecasts/0@1 cannot be read"):
        handed_over(fetched(headed(4, LATIN, base=1), None))  # a topic of our own, where 0 was compacted away


def test_headers_fill_a_portion_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "PORTION", 1000)
    headers: list[tuple[str, bytes | None]] = [("a", b"")] * 10
    portions = handed_over(fetched(headed(0, *[headers] * 5)))
    assert [len(each) for each in portions] == [2, 2, 1]


def transactional(value: bytes, base: int, attributes: int) -> bytes:
    """Return a batch of one record, whose key is that of an abort marker, in a transaction of producer 9."""
    made = RecordBatch(10_000, 0)
    made.extend([(b"\0\0\0\0", value, 1000, [])])
    data = bytearray(struct.pack(">q", base) + bytes(made.sealed(9, 1, 0)[8:]))
    struct.pack_into(">h", data, 21, attributes)
    struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[21:])))
    return bytes(data)


def test_the_mark_of_a_transaction_is_read_though_its_offset_is_left_out() -> None:
    in_one, mark = 0x10, 0x30
    data = transactional(b"aborted", 0, in_one) + transactional(b"", 1, mark) + transactional(b"kept", 2, in_one)
    records = RecordSet(data)
    records.limit, records.skips = LIMIT, {1: "skipped at 1: why"}
    reading = PartitionRecords(TP, records, [(9, 0)], 0, None, None, True, 1)  # noqa: FBT003 - its order
    assert [(each.offset, each.value) for each in reading] == [(2, b"kept")]


def test_no_record_has_an_offset_beyond_its_batch() -> None:
    data = batch(0, b"before", base=4) + misread(1000, 5) + batch(0, b"after", base=7)
    theirs = PartitionRecords(TP, MemoryRecords(data), [], 4, None, None, True, 0)  # noqa: FBT003 - its order
    assert [each.offset for each in theirs][:2] == [4, 1005], "that is why"
    assert refused_rest(data, start=4) == [(4, 6), (6, [5, 6]), (7, 5)]


@pytest.mark.parametrize(("count", "read"), [(0, [(6, [5, 6])]), (1, [(5, 1), (6, [6, 6])])])
def test_a_batch_with_more_records_than_it_says_is_refused_from_there_on(count: int, read: object) -> None:
    data = bytearray(batch(0, b"a", b"b", base=5))
    struct.pack_into(">i", data, 57, count)
    data[17:21] = struct.pack(">I", calc_crc32c(bytes(data[21:])))
    assert refused_rest(bytes(data) + batch(0, b"cc", base=7), start=5) == [*cast("list[object]", read), (7, 2)]


def test_bytes_behind_a_batch_s_last_record_stand_for_nothing() -> None:
    data = bytearray(batch(0, b"a", b"b", base=5) + b"left")
    struct.pack_into(">i", data, 8, len(data) - 12)
    data[17:21] = struct.pack(">I", calc_crc32c(bytes(data[21:])))
    assert refused_rest(bytes(data) + batch(0, b"cc", base=7), start=5) == [(5, 1), (6, 1), (7, 2)]
