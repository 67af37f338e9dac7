"""Record batches are unpacked here, and never beyond a bound.

Brokers limit a batch by its packed size: 1.5 kB of zstd hold 50 MB. aiokafka unpacks whatever comes, to its end. So
batches are taken out of a fetch here, and those that are packed are unpacked into a buffer of the size of the bound. A
batch that does not fit, or cannot be unpacked, is left as it is, and one record stands for it (`records.refused`). Its
offset is that of the batch's last record: who reads on behind it reads on behind the batch.

Batches of the format of before Kafka 0.11, which Kafka 4 no longer has, are left to aiokafka and not bounded.
"""

import gzip
import io
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import cramjam
import numpy as np
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecord, DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition

from streams.kafka.codecs import NUMBERS
from streams.records.refused import Refused, Skipped
from streams.records.skips import PoisonError

#: Most bytes a batch may unpack to, where nothing else is said.
LIMIT: Final = 32 << 20
#: Most bytes of keys and values handed over at once of a partition: a fetch may hold many batches that just fit.
PORTION: Final = 1 << 20

#: Where the length stands, what it counts, the magic, the checksum, what it is of, the last record, and the records.
_LENGTH, _BEFORE, _MAGIC, _CRC, _ATTRIBUTES, _LAST, _RECORDS = 8, 12, 16, 17, 21, 23, 61
#: Bytes of the head of the oldest format.
_SHORTEST: Final = 26
_CODEC, _LOG_TIME = 0x07, 0x08
_NAMES: Final = {number: name for name, number in NUMBERS.items()}
Packed = bytes | memoryview
SizeLimit = Callable[[str], int | None]
Skips = Callable[[TopicPartition], Mapping[int, str]]
#: First bytes of snappy as Java writes it: blocks, each behind its length.
_XERIAL: Final = b"\x82SNAPPY\x00"


class Head(NamedTuple):
    """What stands at the head of a batch: its first offset, the one behind its last, and who wrote it.

    ``writer`` is the producer id and its epoch.
    """

    base: int
    following: int
    writer: tuple[int, int]


class ExpandsError(ValueError):
    """It cannot be unpacked within the bound."""


class RecordSet:
    """What a fetch brought of a partition: as aiokafka's ``MemoryRecords``, whose place it takes, but bounded.

    Parameters
    ----------
    data
        Record batches; the last may be cut.

    Attributes
    ----------
    limit
        Most bytes a batch may unpack to; None leaves unpacking to aiokafka.
    skips
        What is left out by its offset, and why (`streams.records.skips.why`).
    """

    def __init__(self, data: bytes) -> None:
        self.limit: int | None = LIMIT
        self.skips: Mapping[int, str] = {}
        self._data = data
        self._at = 0
        self._end = self._whole(0)

    def _whole(self, at: int) -> int | None:
        """Return where the batch that begins there ends, or None if it is not whole."""
        if len(self._data) - at < _BEFORE:
            return None
        (length,) = struct.unpack_from(">i", self._data, at + _LENGTH)
        end = at + _BEFORE + int(length)
        return end if end <= len(self._data) else None

    def size_in_bytes(self) -> int:
        """Return how many bytes there are."""
        return len(self._data)

    def heads(self) -> Iterator[Head]:
        """Yield the heads of the whole batches that are left; those of before Kafka 0.11 end it."""
        at, end = self._at, self._end
        while end is not None and self._data[at + _MAGIC] == 2:
            (base,) = struct.unpack_from(">q", self._data, at)
            last, producer_id, epoch = struct.unpack_from(">i16xqh", self._data, at + _LAST)
            yield Head(base, base + last + 1, (producer_id, epoch))
            at, end = end, self._whole(end)

    def has_next(self) -> bool:
        """Whether there is another whole batch."""
        return self._end is not None

    def next_batch(self) -> Any:  # noqa: ANN401 - one of aiokafka's batches, or what stands for one
        """Take the next batch, unpacked.

        Raises
        ------
        CorruptRecordException
            If there is none where one should begin.
        """
        if self._end is None:
            return None
        if self._end - self._at < _SHORTEST:
            raise CorruptRecordException("a record batch without a head")
        data = memoryview(self._data)[self._at : self._end]
        self._at = self._end
        self._end = self._whole(self._at)
        if data[_MAGIC] < 2:
            return LegacyRecordBatch(data, data[_MAGIC])
        batch = DefaultRecordBatch(data)
        skipped = {offset: why for offset, why in self.skips.items() if batch.base_offset <= offset < batch.next_offset}
        opened = self._opened(batch, data)
        return SkippingBatch(batch, opened, len(data), skipped) if skipped else opened

    def _opened(self, batch: DefaultRecordBatch, data: memoryview) -> "DefaultRecordBatch | RefusedBatch":
        """Unpack a batch."""
        # What the network or a disk damaged is not for a dead letter: aiokafka checks again, and ends the worker.
        if self.limit is None or batch.compression_type == 0 or not batch.validate_crc():
            return batch
        try:
            return DefaultRecordBatch(_rebuilt(data, unpacked(batch.compression_type, data[_RECORDS:], self.limit)))
        except ExpandsError as exc:
            return RefusedBatch(batch, len(data), str(exc))


class RefusedBatch:
    """A batch of one record, which stands for those that were not unpacked."""

    is_control_batch = False

    def __init__(self, batch: DefaultRecordBatch, size: int, why: str, kind: type[Refused] = Refused) -> None:
        self.base_offset, self.next_offset = batch.base_offset, batch.next_offset
        self.producer_id, self.is_transactional = batch.producer_id, batch.is_transactional
        in_log_time = bool(batch.attributes & _LOG_TIME)
        timestamp = batch.max_timestamp if in_log_time else batch.first_timestamp
        value = kind.of(self.base_offset, self.next_offset - 1, size, why)
        self._record = DefaultRecord(self.next_offset - 1, timestamp, int(in_log_time), None, value, [])

    def validate_crc(self) -> bool:
        """Whether it is undamaged, which was seen before."""
        return True

    def __iter__(self) -> Iterator[DefaultRecord]:
        """Yield the record."""
        yield self._record


class SkippingBatch(RefusedBatch):
    """A batch some of whose records are left out, or all of it where it cannot be read."""

    def __init__(
        self,
        batch: DefaultRecordBatch,
        opened: DefaultRecordBatch | RefusedBatch,
        size: int,
        skipped: Mapping[int, str],
    ) -> None:
        super().__init__(batch, size, next(iter(skipped.values())), Skipped)
        self._opened = opened
        self._skipped = skipped

    def __iter__(self) -> Iterator[DefaultRecord]:
        """Yield the records, and what stands for those that are left out."""
        try:
            records = list(self._opened) if self._opened.validate_crc() else [self._record]
        except Exception:  # noqa: BLE001 - whatever it is, it would end the worker
            records = [self._record]
        for record in records:
            why = self._skipped.get(record.offset)
            if why is None or isinstance(record.value, Refused):
                yield record
                continue
            stands = Skipped.of(record.offset, record.offset, len(record.value or b""), why)
            yield DefaultRecord(record.offset, record.timestamp, record.timestamp_type, None, stands, [])


def _rebuilt(data: memoryview, records: Packed) -> bytearray:
    """Return a batch with its records unpacked."""
    made = bytearray(data[:_RECORDS])
    made += records
    (attributes,) = struct.unpack_from(">h", made, _ATTRIBUTES)
    struct.pack_into(">i", made, _LENGTH, len(made) - _BEFORE)
    struct.pack_into(">h", made, _ATTRIBUTES, attributes & ~_CODEC)
    struct.pack_into(">I", made, _CRC, calc_crc32c(memoryview(made)[_ATTRIBUTES:]))
    return made


def unpacked(codec: int, data: Packed, limit: int) -> Packed:
    """Unpack the records of a batch.

    Parameters
    ----------
    codec
        Its number, `streams.kafka.codecs.NUMBERS`.
    limit
        Most bytes to unpack; no more are ever held.

    Raises
    ------
    ExpandsError
        If there are more, or ``data`` is not what the codec packed.
    """
    name = _NAMES.get(codec)
    try:
        if name == "gzip":
            return _gunzipped(data, limit)
        if name == "snappy":
            return _unsnapped(bytes(data), limit)
        if name in ("lz4", "zstd"):
            return _unframed(name, data, limit)
    except (cramjam.DecompressionError, gzip.BadGzipFile, EOFError, zlib.error, struct.error) as exc:
        raise ExpandsError(f"{name} that cannot be unpacked: {exc}") from None
    raise ExpandsError(f"codec {codec} is not one of {', '.join(NUMBERS)}")


def _unframed(name: str, data: Packed, limit: int) -> Packed:
    """Unpack the frames of lz4 or zstd, into room that is mostly enough: asking for all of it takes 25 us."""
    unpack = (cramjam.lz4 if name == "lz4" else cramjam.zstd).decompress_into
    for size in (min(limit, max(32 * len(data), 1 << 16)), limit):
        room = np.empty(size, np.uint8)
        try:
            return room[: unpack(data, room)].data
        except cramjam.DecompressionError as exc:
            if "whole buffer" not in str(exc):  # what it says where there is no more room
                raise
    raise _expands(name, limit)


def _expands(name: str, limit: int) -> ExpandsError:
    return ExpandsError(f"{name} that expands beyond {limit} bytes")


def _gunzipped(data: Packed, limit: int) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        found = file.read(limit + 1)
    if len(found) > limit:
        raise _expands("gzip", limit)
    return found


def _unsnapped(data: bytes, limit: int) -> bytes:
    """Unpack snappy, in blocks or as one."""
    found = bytearray()
    for block in _blocks(data) if data.startswith(_XERIAL) else (data,):
        if len(found) + cramjam.snappy.decompress_raw_len(block) > limit:
            raise _expands("snappy", limit)
        found += cramjam.snappy.decompress_raw(block)
    return bytes(found)


def _blocks(data: bytes) -> Iterator[bytes]:
    at = 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 < size <= len(data) - at:
            raise ExpandsError("snappy with a block of no length, or cut")
        yield data[at : at + size]
        at += size


class Prefetched(OrderedDict[TopicPartition, Any]):
    """What aiokafka has fetched and not handed over, bounded.

    Parameters
    ----------
    limit
        Returns the most bytes a batch of a topic may unpack to, None for no bound.
    skips
        Returns what is left out of a partition of a topic, by its offset.
    """

    def __init__(self, limit: SizeLimit, skips: Skips = lambda _: {}) -> None:
        super().__init__()
        self._limit = limit
        self._skips = skips

    def __setitem__(self, tp: TopicPartition, fetched: object) -> None:
        """Keep what was fetched of a partition."""
        if isinstance(fetched, FetchResult):
            self.prepare(tp, fetched)
        super().__setitem__(tp, fetched)

    def prepare(self, tp: TopicPartition, fetched: FetchResult) -> None:
        """Bound what was fetched, before any of it is unpacked."""
        records = fetched._partition_records._records  # noqa: SLF001 - aiokafka has no bound
        records.limit, records.skips = self._limit(tp.topic), self._skips(tp)

    def __delitem__(self, tp: TopicPartition) -> None:
        """Let go of what was fetched of a partition."""
        _let_go(self[tp])
        super().__delitem__(tp)

    def clear(self) -> None:
        """Let go of everything."""
        for fetched in self.values():
            _let_go(fetched)
        super().clear()


def _let_go(fetched: object) -> None:
    """End the reading of a fetch: it refers to itself, and what it has unpacked would stay until the collector runs."""
    if isinstance(fetched, FetchResult) and fetched._partition_records is not None:  # noqa: SLF001
        fetched._partition_records._records_iterator.close()  # noqa: SLF001
        fetched._partition_records = None  # noqa: SLF001


def _portion(fetched: FetchResult, max_records: int | None = None) -> list[Any]:
    """Take records from a fetch until they are many or large: as its own ``getall``, which minds only their number."""
    reading = fetched._partition_records  # noqa: SLF001 - as getall does
    if not fetched.check_assignment(fetched._topic_partition) or not fetched.has_more():  # noqa: SLF001
        if reading is not None:
            reading._records_iterator.close()  # noqa: SLF001 - as `_let_go`
        return []
    records: list[Any] = []
    size = 0
    try:
        for record in reading:
            records.append(record)
            size += len(record.value or b"") + len(record.key or b"")
            if size >= PORTION or len(records) == max_records:
                fetched._update_position()  # noqa: SLF001
                break
        else:
            fetched._update_position()  # noqa: SLF001
            fetched._partition_records = None  # noqa: SLF001
    except Exception as exc:
        tp = fetched._topic_partition  # noqa: SLF001
        if not records:
            raise PoisonError(tp.topic, tp.partition, reading.next_fetch_offset) from exc
        fetched._update_position()  # noqa: SLF001 - those before it are handed over; it is fetched again
        fetched._partition_records = None  # noqa: SLF001
    return records


def bound(consumer: AIOKafkaConsumer, limit: SizeLimit, skips: Skips = lambda _: {}) -> None:
    """Bound what a consumer unpacks; call it when it has started and nothing is assigned to it. See `Prefetched`."""
    consumer._fetcher._records = Prefetched(limit, skips)  # noqa: SLF001 - aiokafka has no setting for it


# Every consumer of this process reads by them.
fetcher.MemoryRecords = RecordSet
FetchResult.getall = _portion
