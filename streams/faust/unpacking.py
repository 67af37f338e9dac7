"""Record batches are unpacked here, and never beyond a bound.

Brokers limit a batch by its packed size: 1.5 kB of zstd hold 50 MB. aiokafka unpacks whatever comes, to its end. So
batches are taken out of a fetch here, and those that are packed are unpacked into a buffer of the size of the bound. A
batch that does not fit, or cannot be unpacked, is left as it is, and one record stands for it (`records.refused`). Its
offset is that of the batch's last record: who reads on behind it reads on behind the batch.

What takes longer than a millisecond or two is unpacked in a thread (`Aside`). Its partition waits for it; what was
fetched of the others is handed over, and fetched, meanwhile.

A header takes two bytes of a batch and eighty in memory. A batch with a record of more than `HEADERS` is refused, too,
packed or not.

Batches of the format of before Kafka 0.11, which Kafka 4 no longer has, are left to aiokafka and not bounded.

aiokafka decodes the names of headers strictly, and Kafka does not say that they are UTF-8. A batch with another name is
read once more, in Python, and what is not UTF-8 becomes U+FFFD, as in Java's clients. So is one that aiokafka cannot
read, and one of which it reads an offset that is not in it: that would move the fence, and what others send would count
as applied.
"""

import asyncio
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, cast

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import Fetcher, FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecord, DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.record.util import decode_varint_py
from aiokafka.structs import TopicPartition

from streams.kafka.expansion import ExpandsError, unpacked
from streams.records.refused import Refused, Skipped
from streams.records.skips import PoisonError

#: Most bytes a batch may unpack to, where nothing else is said.
LIMIT: Final = 32 << 20
#: Most bytes of keys and values handed over at once of a partition, and most records: a fetch may hold many batches
#: that just fit, and a batch millions of records that are empty.
PORTION, PORTION_RECORDS = 1 << 20, 10_000
#: Most headers of a record, and for how many bytes of a portion each counts: one takes two bytes in a batch, and forty
#: times as many when it is read.
HEADERS, HEADER = 1 << 16, 64
#: Most bytes of a packed batch, and of what it unpacks to, for which nothing else waits: a millisecond or two. Empty
#: frames take gzip and snappy 10 ms.
AT_ONCE_PACKED, AT_ONCE = 1 << 16, 1 << 20

#: Where the length stands, what it counts, the magic, the attributes, the last record, how many there are, and the
#: records.
_LENGTH, _BEFORE, _MAGIC, _ATTRIBUTES, _LAST, _COUNT, _RECORDS = 8, 12, 16, 21, 23, 57, 61
#: Bytes of the head of the oldest format; of the shortest record behind its length.
_SHORTEST, _SHORTEST_RECORD = 26, 6
_CODEC, _LOG_TIME = 0x07, 0x08
#: Beyond every offset.
_NEVER: Final = 1 << 63
SizeLimit = Callable[[str], int | None]
Skips = Callable[[TopicPartition], Mapping[int, str]]


class Head(NamedTuple):
    """What stands at the head of a batch: its first offset, the one behind its last, and who wrote it.

    ``writer`` is the producer id and its epoch.
    """

    base: int
    following: int
    writer: tuple[int, int]


class Later(Exception):  # noqa: N818 - nothing is wrong
    """The next batch is being unpacked in a thread: ask again when it is done."""


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
    aside
        Unpacks in a thread what takes long; None unpacks everything here.
    """

    def __init__(self, data: bytes) -> None:
        self.limit: int | None = LIMIT
        self.skips: Mapping[int, str] = {}
        self.aside: Callable[[Callable[[], Opened]], Future[Opened]] | None = None
        #: The next batch, while it is being unpacked in a thread.
        self._unpacking: Future[Opened] | None = None
        self._data = data
        self._at = 0
        self._end = self._whole(0)
        #: Where the batch that was taken last begins, and the one that is read leniently, from which offset on.
        self._taken = self._lenient = -1
        self._from = 0
        #: The offset behind the batch that was taken last.
        self.following = _NEVER

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
        Later
            If it is being unpacked in a thread. It is still the next one.
        """
        if self._end is None:
            return None
        if self._end - self._at < _SHORTEST:
            raise CorruptRecordException("a record batch without a head")
        data = memoryview(self._data)[self._at : self._end]
        batch = self._whole_batch(data)
        self.following = batch.next_offset if data[_MAGIC] >= 2 else _NEVER
        self._taken, self._at = self._at, self._end
        self._end = self._whole(self._at)
        return batch

    @property
    def base(self) -> int:
        """First offset of the batch that was taken last; -1 where none was, or it is older than Kafka 0.11."""
        if self._taken < 0 or self._data[self._taken + _MAGIC] < 2:
            return -1
        (base,) = struct.unpack_from(">q", self._data, self._taken)
        return int(base)

    def step_back(self, following: int) -> bool:
        """Make the batch that was taken last the next one, which is then read leniently (`LenientBatch`).

        Its records before offset ``following`` are left out. False if it was already, or if aiokafka unpacks it.
        """
        if self._taken == self._lenient or (self.limit is None and self._data[self._taken + _ATTRIBUTES + 1] & _CODEC):
            return False
        self._at = self._lenient = self._taken
        self._from = following
        self._end = self._whole(self._at)
        return True

    def _whole_batch(self, data: memoryview) -> Any:  # noqa: ANN401 - as `next_batch`
        if data[_MAGIC] < 2:
            return LegacyRecordBatch(data, data[_MAGIC])
        batch = DefaultRecordBatch(data)
        opened = self._opened(batch, data)
        if self._at == self._lenient and not isinstance(opened, RefusedBatch):
            room = opened.room if isinstance(opened, UnpackedBatch) else data
            opened = LenientBatch(batch, opened, room, self._from)
        skipped = {offset: why for offset, why in self.skips.items() if batch.base_offset <= offset < batch.next_offset}
        if skipped and batch.is_control_batch and batch.validate_crc():
            return opened  # the mark of a transaction, which ends nothing
        return SkippingBatch(batch, opened, data, skipped) if skipped else opened

    def _opened(self, batch: DefaultRecordBatch, data: memoryview) -> "DefaultRecordBatch | Opened":
        """Unpack a batch, or have it unpacked."""
        if self._unpacking is not None:
            if not self._unpacking.done():
                raise Later
            done, self._unpacking = self._unpacking, None
            return done.result()
        if self.limit is None:
            return batch
        # What the network or a disk damaged is not for a dead letter: aiokafka checks again, and ends the worker.
        many = _too_many_headers(data) if batch.compression_type == 0 else ""
        if not (many or batch.compression_type) or not batch.validate_crc():
            return batch
        if many:
            return RefusedBatch(batch, len(data), many)
        if self.aside is None:
            return _opened(batch, data, self.limit)
        if len(data) <= AT_ONCE_PACKED:
            found = _opened(batch, data, min(self.limit, AT_ONCE))
            if self.limit <= AT_ONCE or isinstance(found, UnpackedBatch):
                return found
        self._unpacking = self.aside(partial(_opened, batch, data, self.limit))
        raise Later

    @property
    def waits(self) -> bool:
        """Whether the next batch is being unpacked in a thread, or was."""
        return self._unpacking is not None

    def let_go(self) -> None:
        """Forget what is being unpacked: nobody asks for it any more."""
        if self._unpacking is not None:
            self._unpacking.cancel()


class UnpackedBatch:
    """A batch whose records were packed; ``room`` holds it unpacked."""

    def __init__(self, batch: DefaultRecordBatch, room: memoryview) -> None:
        self.base_offset, self.next_offset = batch.base_offset, batch.next_offset
        self.producer_id, self.is_transactional = batch.producer_id, batch.is_transactional
        self.is_control_batch = batch.is_control_batch
        struct.pack_into(">h", room, _ATTRIBUTES, batch.attributes & ~_CODEC)
        self.room = room
        self._batch = DefaultRecordBatch(room)

    def validate_crc(self) -> bool:
        """Whether it is undamaged, which was seen before."""
        return True

    def __iter__(self) -> Iterator[DefaultRecord]:
        """Yield the records."""
        return iter(self._batch)

    def __next__(self) -> DefaultRecord:
        """Return the next record: aiokafka asks so for that of a control batch."""
        return next(self._batch)


class RefusedBatch:
    """A batch of one record, which stands for those that were not unpacked."""

    is_control_batch = False

    def __init__(self, batch: DefaultRecordBatch, size: int, why: str, kind: type[Refused] = Refused) -> None:
        self.base_offset, self.next_offset = batch.base_offset, batch.next_offset
        self.producer_id, self.is_transactional = batch.producer_id, batch.is_transactional
        in_log_time = bool(batch.attributes & _LOG_TIME)
        timestamp = batch.max_timestamp if in_log_time else batch.first_timestamp
        self._size, self._kind, self._stamp = size, kind, (timestamp, int(in_log_time))
        self._record = self._stands(self.base_offset, self.next_offset - 1, why)

    def _stands(self, first: int, last: int, why: str) -> DefaultRecord:
        """Return the record that stands for those from an offset to another, inclusive."""
        value = self._kind.of(first, last, self._size, why)
        return DefaultRecord(last, *self._stamp, None, value, [])

    def validate_crc(self) -> bool:
        """Whether it is undamaged, which was seen before."""
        return True

    def __iter__(self) -> Iterator[DefaultRecord]:
        """Yield the record."""
        yield self._record


class LenientBatch:
    """A batch that aiokafka does not read as Kafka has it.

    Names of headers may be any bytes, and a record's attributes are one byte, whatever it is. aiokafka takes them for a
    varint: from 0x80 on it reads what follows as something else, and the length of the key as the offset.

    Parameters
    ----------
    batch, opened
        The batch as it came, and as it is unpacked.
    room
        Its bytes, unpacked.
    start
        First offset that is asked for.
    """

    is_control_batch = False

    def __init__(
        self, batch: DefaultRecordBatch, opened: "DefaultRecordBatch | UnpackedBatch", room: memoryview, start: int = 0
    ) -> None:
        self.base_offset, self.next_offset = batch.base_offset, batch.next_offset
        self.producer_id, self.is_transactional = batch.producer_id, batch.is_transactional
        self.validate_crc = opened.validate_crc
        self._batch, self.room, self._start = batch, room, start

    def __iter__(self) -> Iterator[DefaultRecord]:
        """Yield the records from the first that is asked for as aiokafka reads them, but for the names.

        Raises
        ------
        CorruptRecordException
            If a record is not as Kafka has it.
        """
        data, at = bytearray(self.room), _RECORDS
        (count,) = struct.unpack_from(">i", data, _COUNT)
        for _ in range(count):
            try:
                record, at = self._record(data, at)
            except (IndexError, OverflowError, ValueError) as exc:
                raise CorruptRecordException(f"a record that cannot be read: {exc!r}") from exc
            if record is not None:
                yield record
        if at != len(data):
            raise CorruptRecordException(f"{len(data) - at} bytes behind the last record")

    def _record(self, data: bytearray, at: int) -> tuple[DefaultRecord | None, int]:
        """Read the record that begins there, if it is asked for; return it and where it ends."""
        batch = self._batch
        size, at = decode_varint_py(data, at)
        end = at + size
        at += 1  # attributes, which nobody uses
        passed, at = decode_varint_py(data, at)
        behind, at = decode_varint_py(data, at)
        if batch.base_offset + behind < self._start and at < end <= len(data):
            return None, end
        key, at = _sized(data, at)
        value, at = _sized(data, at)
        count, at = decode_varint_py(data, at)
        if count < 0:
            raise ValueError(f"it has {count} headers")
        headers = []
        for _ in range(count):
            name, at = _sized(data, at)
            said, at = _sized(data, at)
            if name is None:
                raise ValueError("a header has no name")
            headers.append((name.decode(errors="replace"), said))
        if at != end or end > len(data):
            raise ValueError(f"it ends at byte {at} and not at {end}")
        if not batch.base_offset <= batch.base_offset + behind < batch.next_offset:
            raise ValueError(f"its offset is {behind} behind the first of its batch")
        in_log_time = bool(batch.attributes & _LOG_TIME)
        timestamp = batch.max_timestamp if in_log_time else batch.first_timestamp + passed
        return DefaultRecord(batch.base_offset + behind, timestamp, int(in_log_time), key, value, headers), at


def _sized(data: bytearray, at: int) -> tuple[bytes | None, int]:
    """Read bytes behind their number, which is negative where there are none; return them and where they end."""
    size, at = decode_varint_py(data, at)
    return (None, at) if size < 0 else (bytes(data[at : at + size]), at + size)


Opened = UnpackedBatch | RefusedBatch


def _opened(batch: DefaultRecordBatch, data: memoryview, limit: int) -> Opened:
    """Unpack a batch: behind its head, so that nothing is copied."""
    try:
        room = unpacked(batch.compression_type, data[_RECORDS:], limit, before=_RECORDS)
    except ExpandsError as exc:
        return RefusedBatch(batch, len(data), str(exc))
    room[:_RECORDS] = data[:_RECORDS]
    many = _too_many_headers(room)
    return RefusedBatch(batch, len(data), many) if many else UnpackedBatch(batch, room)


def _too_many_headers(data: memoryview) -> str:
    """Return what is said of a batch, unpacked, of which a record has more than `HEADERS` headers; empty: none has."""
    at, last = _RECORDS, len(data) - 2 * HEADERS  # a header takes two bytes
    while at < last:
        low, high = data[at], data[at + 1]
        if low < 0x80 or high < 0x80:  # almost all records: a length of two bytes at most
            at += 1 + (low >> 1) if low < 0x80 else 2 + ((high << 7 | low & 0x7F) >> 1)
            continue
        end = _record_end(data, at)
        if end is None:
            break  # who reads it says so
        if end - at > 2 * HEADERS:
            with suppress(IndexError, ValueError):
                if (count := _headers(data, at)) > HEADERS:
                    return f"a record of {count} headers, more than {HEADERS}"
        at = end
    return ""


def _headers(data: memoryview, at: int) -> int:
    """Return how many headers the record has that begins there."""
    for _ in range(4):  # its length, its attributes, its time, its offset
        _, at = decode_varint_py(cast("bytearray", data), at)
    for _ in range(2):  # its key, its value
        size, at = decode_varint_py(cast("bytearray", data), at)
        at += max(size, 0)
    count: int = decode_varint_py(cast("bytearray", data), at)[0]
    return count


class SkippingBatch(RefusedBatch):
    """A batch some of whose records are left out.

    Records that cannot be read are left out together with the one that an operator named, if no readable one lies
    between. Those before and behind are read.
    """

    def __init__(
        self,
        batch: DefaultRecordBatch,
        opened: DefaultRecordBatch | LenientBatch | Opened,
        data: memoryview,
        skipped: Mapping[int, str],
    ) -> None:
        super().__init__(batch, len(data), next(iter(skipped.values())), Skipped)
        self._opened = opened
        self._skipped = skipped
        #: The batch with its records unpacked; None where aiokafka unpacks them.
        self._plain: memoryview | None = None
        if batch.compression_type == 0:
            self._plain = data
        elif isinstance(opened, LenientBatch | UnpackedBatch):
            self._plain = opened.room

    def __iter__(self) -> Iterator[DefaultRecord]:
        """Yield the records, and what stands for those that are left out; raise where others cannot be read."""
        if not self._opened.validate_crc():
            yield self._record
            return
        try:
            records = list(self._opened)
        except UnicodeDecodeError:
            raise  # it is read once more, leniently
        except Exception as exc:  # noqa: BLE001 - whatever it is, it would end the worker
            yield from [self._record] if self._plain is None else self._readable(self._plain, exc)
        else:
            yield from map(self._kept, records)

    def _kept(self, record: DefaultRecord) -> DefaultRecord:
        """Return a record, or what stands for it."""
        why = self._skipped.get(record.offset)
        if why is None or isinstance(record.value, Refused):
            return record
        stands = Skipped.of(record.offset, record.offset, len(record.value or b""), why)
        return DefaultRecord(record.offset, record.timestamp, record.timestamp_type, None, stands, [])

    def _readable(self, plain: memoryview, wrong: Exception) -> Iterator[DefaultRecord]:
        """Yield the records that can be read, and what stands for the others; raise ``wrong`` where nobody named them.

        Where one that cannot be read begins and ends is said by its neighbours.
        """
        following, lost = self.base_offset, False
        for record in _each(plain):
            if record is None or not following <= record.offset < self.next_offset:
                lost = True
                continue
            if lost:
                yield from self._unread(following, record.offset, wrong)
            yield self._kept(record)
            following, lost = record.offset + 1, False
        if lost:
            yield from self._unread(following, self.next_offset, wrong)

    def _unread(self, first: int, following: int, wrong: Exception) -> Iterator[DefaultRecord]:
        named = [offset for offset in self._skipped if first <= offset < following]
        if named:
            yield self._stands(first, following - 1, self._skipped[min(named)])
        elif first < following:
            raise wrong


def _each(data: memoryview) -> Iterator[DefaultRecord | None]:
    """Yield the records of a batch that is not packed, each read by itself; None for one that cannot be read.

    The last is None if something is left that is no record.
    """
    (left,), at = struct.unpack_from(">i", data, _COUNT), _RECORDS
    while left > 0 and at < len(data):
        end = _record_end(data, at)
        if end is None:
            break
        alone = bytearray(data[:_RECORDS]) + data[at:end]
        struct.pack_into(">i", alone, _COUNT, 1)
        batch = DefaultRecordBatch(alone)
        try:
            (record,) = LenientBatch(batch, batch, memoryview(alone))
        except Exception:  # noqa: BLE001 - whatever it is, it would end the worker
            record = None
        yield record
        left, at = left - 1, end
    if left or at != len(data):
        yield None


def _record_end(data: memoryview, at: int) -> int | None:
    """Return where the record that begins there ends; None if it is not whole, or too short for one."""
    size = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            end = at + (size >> 1)
            return end if not size & 1 and end <= len(data) and size >> 1 >= _SHORTEST_RECORD else None
    return None


class Aside:
    """Unpacks what takes long in a thread, one batch of this process at a time, and wakes who waits for records.

    Parameters
    ----------
    of
        The fetcher that they are waited for from; call it on its loop.
    """

    _thread: ClassVar = ThreadPoolExecutor(1, "unpacking")

    def __init__(self, of: Fetcher) -> None:
        self._fetcher = of

    def __call__(self, unpack: Callable[[], Opened]) -> Future[Opened]:
        """Begin to unpack a batch."""
        loop = asyncio.get_running_loop()

        def done(_: Future[Opened]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._wake)

        unpacking = self._thread.submit(unpack)
        unpacking.add_done_callback(done)
        # Others are fetched from the same broker meanwhile, which does not wait for this partition: see `_backoff`.
        self._fetcher._notify(self._fetcher._wait_consume_future)  # noqa: SLF001 - as aiokafka does where it takes records
        return unpacking

    def _wake(self) -> None:
        for waiter in self._fetcher._fetch_waiters:  # noqa: SLF001 - as aiokafka does where records come
            self._fetcher._notify(waiter)  # noqa: SLF001 - as above


class Prefetched(OrderedDict[TopicPartition, Any]):
    """What aiokafka has fetched and not handed over, bounded.

    Parameters
    ----------
    limit
        Returns the most bytes a batch of a topic may unpack to, None for no bound.
    skips
        Returns what is left out of a partition of a topic, by its offset.
    aside
        Unpacks in a thread what takes long; None unpacks everything where records are asked for. The records of
        several partitions are then to be asked for by ``getmany``, as ``getone`` knows no `Later`.
    """

    def __init__(self, limit: SizeLimit, skips: Skips = lambda _: {}, aside: Aside | None = None) -> None:
        super().__init__()
        self._limit = limit
        self._skips = skips
        self._aside = aside

    def __setitem__(self, tp: TopicPartition, fetched: object) -> None:
        """Keep what was fetched of a partition."""
        if isinstance(fetched, FetchResult):
            self.prepare(tp, fetched)
        super().__setitem__(tp, fetched)

    def prepare(self, tp: TopicPartition, fetched: FetchResult) -> None:
        """Bound what was fetched, before any of it is unpacked."""
        records = fetched._partition_records._records  # noqa: SLF001 - aiokafka has no bound
        records.limit, records.skips, records.aside = self._limit(tp.topic), self._skips(tp), self._aside

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
    """End the reading of a fetch."""
    if isinstance(fetched, FetchResult) and fetched._partition_records is not None:  # noqa: SLF001
        _end(fetched._partition_records)  # noqa: SLF001
        fetched._partition_records = None  # noqa: SLF001


def _end(reading: PartitionRecords) -> None:
    """End a reading: it refers to itself, and what it has unpacked would stay until the collector runs."""
    reading._records_iterator.close()  # noqa: SLF001
    reading._records.let_go()  # noqa: SLF001


def _portion(fetched: FetchResult, max_records: int | None = None) -> list[Any]:
    """Take records from a fetch until they are many or large: as its own ``getall``, which minds only their number.

    Where the next batch is being unpacked there are none, and the fetch has more: aiokafka goes on with the other
    partitions, and asks again when it is woken.
    """
    reading = fetched._partition_records  # noqa: SLF001 - as getall does
    if not fetched.check_assignment(fetched._topic_partition) or not fetched.has_more():  # noqa: SLF001
        if reading is not None:
            _end(reading)
        return []
    records: list[Any] = []
    size, most = 0, PORTION_RECORDS if max_records is None else min(PORTION_RECORDS, max_records)
    unread, following = reading._records, reading.next_fetch_offset  # noqa: SLF001
    ended = again = False
    try:
        for record in reading:
            if record.offset >= unread.following:
                reading.next_fetch_offset = following
                raise CorruptRecordException(f"offset {record.offset} is beyond its batch")
            following = record.offset + 1
            records.append(record)
            size += len(record.value or b"") + len(record.key or b"") + HEADER * len(record.headers)
            if size >= PORTION or len(records) == most:
                break
        else:
            ended = True
    except Later:
        reading._records_iterator = reading._unpack_records()  # noqa: SLF001 - the one that raised has ended
    except Exception as exc:
        tp = fetched._topic_partition  # noqa: SLF001
        if isinstance(exc, UnicodeDecodeError | CorruptRecordException) and unread.step_back(reading.next_fetch_offset):
            reading._records_iterator = reading._unpack_records()  # noqa: SLF001 - as above
            again = not records  # nobody would wake who asks
        elif not records:
            # Between the record before it and its batch there may be offsets of records that no longer are.
            offset = max(reading.next_fetch_offset, unread.base)
            raise PoisonError(tp.topic, tp.partition, offset) from exc
        else:
            ended = True  # those before it are handed over; it is fetched again
    fetched._update_position()  # noqa: SLF001
    if ended:
        fetched._partition_records = None  # noqa: SLF001
    return _portion(fetched, max_records) if again else records


def _backoff(fetched: FetchResult) -> float:
    """Return how long nothing is fetched from a broker because of what is not handed over of a partition, s.

    aiokafka waits, for a tenth of a second, for who asks for records. Here nobody can have them.
    """
    reading = fetched._partition_records  # noqa: SLF001
    return 0.0 if reading is not None and reading._records.waits else _aiokafkas_backoff(fetched)  # noqa: SLF001


def bound(consumer: AIOKafkaConsumer, limit: SizeLimit, skips: Skips = lambda _: {}) -> None:
    """Bound what a consumer unpacks; call it when it has started and nothing is assigned to it. See `Prefetched`."""
    consumer._fetcher._records = Prefetched(limit, skips)  # noqa: SLF001 - aiokafka has no setting for it


# Every consumer of this process reads by them.
fetcher.MemoryRecords = RecordSet
FetchResult.getall = _portion
_aiokafkas_backoff: Final = FetchResult.calculate_backoff
FetchResult.calculate_backoff = _backoff
