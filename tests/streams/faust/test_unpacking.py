"""Packed batches: read as aiokafka reads them, never beyond the bound, and what stands for those that are not."""

import gzip
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

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
    state = SimpleNamespace(paused=False, position=0)
    state.consumed_to = lambda position: setattr(state, "position", position)
    assignment: Any = SimpleNamespace(active=True, state_value=lambda _: state)
    result = FetchResult(TP, assignment=assignment, partition_records=fetched(data), backoff=0)
    unpacking.Prefetched(lambda _: LIMIT)[TP] = result
    portions = []
    while result.has_more():
        portions.append([record.offset for record in result.getall()])
        assert state.position == (portions[-1][-1] + 1 if portions[-1] else 9)
    assert portions == [[0, 1, 2], [3, 4, 5], [6, 7, 8], []]


def test_a_batch_of_many_records_is_handed_over_in_portions_however_small_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unpacking, "PORTION_RECORDS", 40)
    state = SimpleNamespace(paused=False, position=0)
    state.consumed_to = lambda position: setattr(state, "position", position)
    assignment: Any = SimpleNamespace(active=True, state_value=lambda _: state)
    result = FetchResult(TP, assignment=assignment, partition_records=fetched(batch(4, *[b""] * 100)), backoff=0)
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


def spoiling(codec: int, count: int, *spoilt: int) -> bytes:
    """Return a batch from offset 5 on, some of whose records have an impossible number of headers."""
    plain = bytearray(batch(0, *[b"%d" % i * 99 for i in range(count)], base=5))
    for i in spoilt:
        plain[plain.index(b"%d" % i * 99) + 99] = 0x01
    packed = plain[:61] + PACK[codec](bytes(plain[61:]))
    struct.pack_into(">i", packed, 8, len(packed) - 12)
    struct.pack_into(">h", packed, 21, codec)
    struct.pack_into(">I", packed, 17, calc_crc32c(bytes(packed[21:])))
    return bytes(packed)


PACK: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: gzip.compress,
    2: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    3: lambda data: bytes(cramjam.lz4.compress(data)),
    4: lambda data: bytes(cramjam.zstd.compress(data)),
}


@pytest.mark.parametrize("codec", NUMBERS.values(), ids=NUMBERS)
def test_of_a_batch_that_cannot_be_read_everything_readable_is_read(codec: int) -> None:
    data = spoiling(codec, 5, 2) + batch(0, b"next", base=10)
    with pytest.raises(Exception, match="header"):
        read(data)
    a, b, stands, d, e, after = skipping(data, {7: "skipped at 7: why"})
    assert [a, b, d, e, after] == [
        *((5 + i, bytes, b"%d" % i * 99) for i in (0, 1, 3, 4)),
        (10, bytes, b"next"),
    ]
    assert stands[:2] == (7, Skipped)
    assert orjson.loads(bytes(stands[2] or b""))["offsets"] == [7, 7]


def test_records_that_nobody_named_and_that_cannot_be_read_still_end_the_reading() -> None:
    made = fetched(spoiling(0, 6, 0, 3, 4))
    made._records.skips = {5: "skipped at 5: why"}
    offsets: list[int] = []
    with pytest.raises(Exception, match="header"):
        offsets.extend(each.offset for each in made)
    assert offsets == [5, 6, 7]
    records = skipping(spoiling(0, 6, 0, 3, 4), {5: "skipped at 5: why", 9: "skipped at 9: too"})
    assert [(offset, kind) for offset, kind, _ in records] == [
        (5, Skipped),
        (6, bytes),
        (7, bytes),
        (9, Skipped),
        (10, bytes),
    ]
    assert orjson.loads(bytes(records[3][2] or b""))["offsets"] == [8, 9]


def test_a_record_that_is_left_out_of_a_batch_with_another_that_cannot_be_read_stands_alone() -> None:
    records = skipping(spoiling(0, 3, 2), {5: "skipped at 5: why", 7: "skipped at 7: too"})
    assert [(offset, kind) for offset, kind, _ in records] == [(5, Skipped), (6, bytes), (7, Skipped)]


@pytest.mark.parametrize("count", [-1, 0, 1, 2**31 - 1])
def test_a_batch_that_says_of_too_many_or_too_few_records_gives_those_that_it_has(count: int) -> None:
    data = bytearray(spoiling(0, 3, 2))
    struct.pack_into(">i", data, 57, count)
    data[17:21] = struct.pack(">I", calc_crc32c(bytes(data[21:])))
    records = skipping(bytes(data), {7: "skipped at 7: why"})
    there = min(2, max(0, count))
    assert [offset for offset, _, _ in records] == [*[5, 6][:there], 7]
    assert orjson.loads(bytes(records[-1][2] or b""))["offsets"] == [5 + there, 7]


def test_a_batch_that_cannot_be_taken_apart_is_left_out_whole() -> None:
    spoilt = bytearray(batch(0, b"a" * 99, b"b" * 99, base=5))
    spoilt[61] = 0x7E  # the first record's length
    spoilt[17:21] = struct.pack(">I", calc_crc32c(bytes(spoilt[21:])))
    flipped = bytearray(batch(4, b"a" * 99, b"b" * 99, base=5))
    flipped[-1] ^= 1
    for data in (bytes(spoilt), bytes(flipped)):
        with pytest.raises(CorruptRecordException):
            read(data)
        (stands, after) = skipping(data + batch(0, b"c", base=7), {5: "skipped at 5: why"})
        assert stands[:2] == (6, Skipped)
        assert orjson.loads(bytes(stands[2] or b""))["offsets"] == [5, 6]
        assert after == (7, bytes, b"c")


def test_where_a_fetch_cannot_be_read_is_named_after_what_comes_before_it() -> None:
    spoilt = bytearray(batch(0, b"a", base=1))
    spoilt[-1] ^= 1
    state = SimpleNamespace(paused=False, position=0)
    state.consumed_to = lambda position: setattr(state, "position", position)
    assignment: Any = SimpleNamespace(active=True, state_value=lambda _: state)
    data = batch(0, b"good") + bytes(spoilt)
    result = FetchResult(TP, assignment=assignment, partition_records=fetched(data), backoff=0)
    assert [record.offset for record in result.getall()] == [0]
    assert state.position == 1
    again = FetchResult(TP, assignment=assignment, partition_records=fetched(bytes(spoilt), offset=1), backoff=0)
    with pytest.raises(PoisonError, match=r"forecasts/0@1 cannot be read"):
        again.getall()


NAMED = [("traceparent", b"00"), ("gr\u00f6\u00dfe", None), ("", b"")]
LATIN = [("NAME12", b"x" * 20), *NAMED]


def headed(codec: int, *headers: list[tuple[str, bytes | None]], base: int = 0, attributes: int = 0) -> bytes:
    """Return a batch of records with headers, where ``NAME12`` is a name in Latin-1, as C clients may send it."""
    plain = RecordBatch(10_000_000, 0)
    assert plain.extend([(b"key%d" % i, b"value", 1000 + i, each) for i, each in enumerate(headers)]) == len(headers)
    data = bytearray(plain.sealed(7, 1, 0))
    records = bytes(data[61:]).replace(b"NAME12", b"gr\xf6\xdfe ")
    made = bytes(data[:61]) + PACK[codec](records)
    made = struct.pack(">qi", base, len(made) - 12) + made[12:21] + struct.pack(">h", codec | attributes) + made[23:]
    return made[:17] + struct.pack(">I", calc_crc32c(made[21:])) + made[21:]


@pytest.mark.parametrize("log_time", [0, 8], ids=["theirs", "the log's"])
@pytest.mark.parametrize("codec", NUMBERS.values(), ids=NUMBERS)
def test_a_header_s_name_that_is_not_utf_8_is_read_with_a_mark_and_its_neighbours_as_they_are(
    codec: int, log_time: int
) -> None:
    data = headed(codec, [], NAMED, LATIN, [], base=5, attributes=log_time) + headed(codec, NAMED, base=9)
    clean = headed(codec, [], NAMED, [("gr\ufffd\ufffde ", b"x" * 20), *NAMED], [], base=5, attributes=log_time)
    read = [record for each in handed_over(fetched(data, offset=5)) for record in each]
    assert read == list(fetched(clean + headed(codec, NAMED, base=9), offset=5))
    assert read[2].headers[0][0].encode().decode() == "gr\ufffd\ufffde ", "it can be sent on"


def test_a_header_s_name_that_is_not_utf_8_leaves_no_portion_empty_but_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unpacking, "PORTION_RECORDS", 2)
    data = b"".join(headed(4, LATIN, [], LATIN, base=base) for base in (0, 3, 6))
    portions = handed_over(fetched(data))
    assert [record.offset for each in portions for record in each] == list(range(9))
    assert all(portions[:-1])


def test_a_record_beside_such_a_name_is_left_out_alone() -> None:
    reading = fetched(headed(0, [], LATIN, NAMED))
    reading._records.skips = {0: "skipped at 0: why"}
    (stands, *others) = [record for each in handed_over(reading) for record in each]
    assert type(stands.value) is Skipped
    assert [(each.offset, len(each.headers)) for each in others] == [(1, 4), (2, 3)]


def test_what_is_damaged_beside_such_a_name_is_named_and_ends_nothing_else() -> None:
    far = bytes((*[0xFE] * 7, 1))  # as a length it ends beyond everything that this process has
    for damage in (b"\x7e", far, b"\x02" + far, bytes((*[0x80] * 9, 1))):
        spoilt = bytearray(headed(0, LATIN, []))
        spoilt[-1:] = damage  # the last record's number of headers
        spoilt[8:12] = struct.pack(">i", len(spoilt) - 12)
        spoilt[17:21] = struct.pack(">I", calc_crc32c(bytes(spoilt[21:])))
        with pytest.raises(PoisonError, match=r"forecasts/0@1 cannot be read"):
            handed_over(fetched(bytes(spoilt), offset=1))
    flipped = bytearray(headed(0, LATIN))
    flipped[-1] ^= 1
    with pytest.raises(PoisonError):
        handed_over(fetched(bytes(flipped)))
    with pytest.raises(PoisonError):
        handed_over(fetched(headed(4, LATIN), None))  # aiokafka unpacks it


def test_what_was_handed_over_before_such_a_name_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[bytes | None] = []

    def sized(data: bytearray, at: int) -> tuple[bytes | None, int]:
        found = read_sized(data, at)
        names.append(found[0])
        return found

    read_sized = unpacking._sized
    monkeypatch.setattr(unpacking, "_sized", sized)
    portions = handed_over(fetched(headed(4, [("before", b"")] * 100, [], LATIN, NAMED)))
    assert [[record.offset for record in each] for each in portions] == [[0, 1], [2, 3]]
    assert b"before" not in names
    assert b"traceparent" in names


@pytest.mark.parametrize("codec", NUMBERS.values(), ids=NUMBERS)
def test_a_batch_with_a_record_of_too_many_headers_is_one_record(codec: int) -> None:
    most = unpacking.HEADERS
    made = {n: headed(codec, [("a", b"b")], [("", b"")] * n, NAMED) for n in (most, most + 1)}
    limit = 1 << 20
    assert [len(each.headers) for each in fetched(made[most], limit)] == [1, most, 3]
    stands, after = read(made[most + 1] + batch(codec, b"x", base=3), limit)
    assert orjson.loads(bytes(stands[2] or b""))["refused"] == f"a record of {most + 1} headers, more than {most}"
    assert (type(stands[2]), stands[0], after) == (Refused, 2, (3, 1000, b"x"))
    flipped = bytearray(made[most + 1])
    flipped[-1] ^= 1
    with pytest.raises(CorruptRecordException):
        read(bytes(flipped), limit)


def test_headers_fill_a_portion_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "PORTION", 1000)
    headers: list[tuple[str, bytes | None]] = [("a", b"")] * 10
    portions = handed_over(fetched(headed(0, *[headers] * 5)))
    assert [len(each) for each in portions] == [2, 2, 1]


def test_what_cannot_be_read_behind_offsets_that_no_longer_are_can_be_left_out() -> None:
    data = batch(0, b"good") + spoiling(0, 1, 0)  # 1 to 4 were compacted away
    with pytest.raises(PoisonError, match=r"forecasts/0@5 cannot be read"):
        handed_over(fetched(data, offset=1))
    reading = fetched(data)
    reading._records.skips = {5: "skipped at 5: why"}
    assert [each.offset for portion in handed_over(reading) for each in portion] == [0, 5]


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


@pytest.mark.parametrize("skips", [{}, {5: "skipped at 5: why"}], ids=["plain", "left out"])
@pytest.mark.parametrize("codec", NUMBERS.values(), ids=NUMBERS)
def test_no_record_has_an_offset_beyond_its_batch(codec: int, skips: dict[int, str]) -> None:
    data = batch(codec, b"before", base=4) + misread(1000, 5, codec, PACK[codec]) + batch(codec, b"after", base=7)
    theirs = PartitionRecords(TP, MemoryRecords(data), [], 4, None, None, True, 0)  # noqa: FBT003 - its order
    assert [each.offset for each in theirs][:2] == [4, 1005], "that is why"
    reading = fetched(data, offset=4)
    reading._records.skips = skips
    found = [record for each in handed_over(reading) for record in each]
    assert [each.offset for each in found] == [4, 5, 6, 7]
    assert [len(each.key or b"") for each in found] == [3, 0 if skips else 1000, 1000, 3]


def test_an_offset_that_is_not_in_its_batch_in_truth_is_named() -> None:
    data = bytearray(batch(0, b"a", b"b", base=5))
    struct.pack_into(">i", data, 23, 0)  # its last record
    data[17:21] = struct.pack(">I", calc_crc32c(bytes(data[21:])))
    with pytest.raises(PoisonError, match=r"forecasts/0@6 cannot be read"):
        handed_over(fetched(bytes(data), offset=5))


@pytest.mark.parametrize("attributes", [0x80, 0xFF])
@pytest.mark.parametrize("codec", NUMBERS.values(), ids=NUMBERS)
def test_attributes_that_brokers_pass_over_are_no_damage(codec: int, attributes: int) -> None:
    plain = RecordBatch(10_000, 0)
    plain.extend([(None, b"%d" % i * 9, 1000 + i, []) for i in range(3)])
    records = bytearray(plain.sealed(7, 1, 0)[61:])
    size = records[0] // 2 + 1
    records[size + 1] = attributes
    body = struct.pack(">hiqqqhii", codec, 2, 1000, 1002, -1, -1, -1, 3) + PACK[codec](bytes(records))
    data = struct.pack(">qiibI", 5, 9 + len(body), 0, 2, calc_crc32c(body)) + body
    with pytest.raises((CorruptRecordException, UnicodeDecodeError)):
        read(data)
    found = [record for each in handed_over(fetched(data, offset=5)) for record in each]
    assert [(each.offset, each.timestamp, each.value) for each in found] == [
        (5 + i, 1000 + i, b"%d" % i * 9) for i in range(3)
    ]


@pytest.mark.parametrize("count", [-1, 0, 1])
def test_a_batch_with_more_records_than_it_says_is_damaged(count: int) -> None:
    data = bytearray(batch(0, b"a", b"b", base=5))
    struct.pack_into(">i", data, 57, count)
    data[17:21] = struct.pack(">I", calc_crc32c(bytes(data[21:])))
    with pytest.raises(PoisonError, match=rf"forecasts/0@{5 + max(count, 0)} cannot be read"):
        handed_over(fetched(bytes(data), offset=5))
