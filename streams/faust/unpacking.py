"""Unpacks fetched record batches, each into a bounded number of bytes.

Brokers limit the packed size of a batch: 1.5 kB of zstd can hold 50 MB. aiokafka unpacks without a bound. So this
module takes the batches out of a fetch and unpacks them itself. A large batch is unpacked in a thread (`Aside`); other
partitions are handed over and fetched meanwhile.

A single record takes the place of a batch that is too large or cannot be unpacked (`records.refused`). It has the
batch's last offset, so the reader goes on after the batch. If only the end of a batch is unreadable, the record takes
the place of that end. An offset that lies outside its batch counts as unreadable: it would move the fence past records
that were never applied.

Batches from before Kafka 0.11 are left to aiokafka, without a bound. Kafka 4 has none.
"""

import asyncio
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import Fetcher, FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecord, DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.structs import TopicPartition

from streams.faust import batches
from streams.faust.batches import HEAD_BYTES, Opened, RefusedBatch, SkippingBatch, UnpackedBatch
from streams.records.skips import PoisonError

#: Default limit of the bytes that a batch may unpack to.
LIMIT: Final = 32 << 20
#: The most bytes of keys and values, and the most records, of a partition that one call hands over. A fetch may hold
#: many batches of the largest size, and a batch may hold millions of empty records.
PORTION, PORTION_RECORDS = 1 << 20, 10_000
#: Bytes that a header counts as in a portion. It takes two bytes in a batch, and forty times as many in memory.
HEADER: Final = 64
#: Batches of at most these sizes, packed and unpacked, are not given to a thread: they take a millisecond or two. With
#: empty frames, gzip and snappy take up to 10 ms.
AT_ONCE_PACKED, AT_ONCE = 1 << 16, 1 << 20

#: Positions in a batch's head: the length, the first byte that the length counts, and the magic.
_LENGTH, _BEFORE, _MAGIC = 8, 12, 16
#: Position of the epoch of the leader that wrote the batch.
_EPOCH: Final = struct.Struct(">12xi")
#: Length of the head in the oldest format, bytes.
_SHORTEST: Final = 26
#: An offset larger than all others.
_NEVER: Final = 1 << 63
SizeLimit = Callable[[str], int | None]
Skips = Callable[[TopicPartition], Mapping[int, str]]


class Head(NamedTuple):
    """First offset of a batch, the offset after its last one, and its writer: producer id and epoch."""

    base: int
    following: int
    writer: tuple[int, int]


class Read:
    """Next offset to read of a partition, and the leader epoch that wrote the offset before it; -1: unknown."""

    __slots__ = ("epoch", "following")

    def __init__(self, epoch: int = -1, following: int = -1) -> None:
        self.epoch, self.following = epoch, following

    def on(self, epoch: int, following: int) -> None:
        """Note that a batch was read. Reading it again after a seek changes nothing."""
        if following > self.following:
            self.epoch, self.following = epoch, following


class Later(Exception):  # noqa: N818 - nothing is wrong
    """A thread is still unpacking the next batch."""


class RecordSet:
    """The fetched batches of a partition. It replaces aiokafka's ``MemoryRecords``, and bounds what a batch unpacks to.

    ``data``: record batches; the last may be cut.
    """

    def __init__(self, data: bytes) -> None:
        #: The most bytes that a batch may unpack to; None leaves unpacking to aiokafka.
        self.limit: int | None = LIMIT
        #: Offsets to leave out, each with its reason (`streams.records.skips.why`).
        self.skips: Mapping[int, str] = {}
        #: Unpacks large batches in a thread; None unpacks everything at once.
        self.aside: Callable[[Callable[[], Opened]], Future[Opened]] | None = None
        #: The next batch, while it is being unpacked in a thread.
        self._unpacking: Future[Opened] | None = None
        self._data = data
        self._at = 0
        self._end = self._whole(0)
        #: The batch that was taken last; None if there was none, or if it is older than Kafka 0.11.
        self._taken: memoryview | None = None
        #: The offset after the batch taken last.
        self.following = _NEVER
        #: How far the partition was read.
        self.read = Read()

    def _whole(self, at: int) -> int | None:
        """Return the end of the batch that begins at a position, or None if it is cut."""
        if len(self._data) - at < _BEFORE:
            return None
        (length,) = struct.unpack_from(">i", self._data, at + _LENGTH)
        end = at + _BEFORE + int(length)
        return end if end <= len(self._data) else None

    def size_in_bytes(self) -> int:
        """Return how many bytes there are."""
        return len(self._data)

    def heads(self) -> Iterator[Head]:
        """Yield the heads of the whole batches that are left, up to the first without one or from before Kafka 0.11."""
        at, end = self._at, self._end
        while end is not None and end - at >= HEAD_BYTES and self._data[at + _MAGIC] == 2:
            batch = DefaultRecordBatch(memoryview(self._data)[at:end])
            yield Head(batch.base_offset, batch.next_offset, (batch.producer_id, batch.producer_epoch))
            at, end = end, self._whole(end)

    @property
    def epoch(self) -> int:
        """The epoch of the leader that wrote the next batch; -1 if unknown."""
        begun = self._end is not None and self._data[self._at + _MAGIC] >= 2
        return int(_EPOCH.unpack_from(self._data, self._at)[0]) if begun else -1

    def has_next(self) -> bool:
        """Whether another whole batch is left."""
        return self._end is not None

    def next_batch(self) -> Any:  # noqa: ANN401 - one of aiokafka's batches, or what stands for one
        """Take the next batch, unpacked.

        Raises CorruptRecordException if no batch begins where one should. Raises Later if a thread is still unpacking
        it. It then remains the next batch.
        """
        self._taken = None
        if self._end is None:
            return None
        if self._end - self._at < _SHORTEST:
            raise CorruptRecordException("a record batch without a head")
        data = memoryview(self._data)[self._at : self._end]
        batch = self._whole_batch(data)
        if data[_MAGIC] >= 2:
            self.following = batch.next_offset
            self.read.on(self.epoch, self.following)
        else:
            self.following = _NEVER
        self._at = self._end
        self._end = self._whole(self._at)
        return batch

    def unread(self, offset: int) -> int:
        """Return the first unread offset of the batch taken last. ``offset`` is the one after the last record read."""
        # Compaction may have removed records between the last one read and this batch.
        return offset if self._taken is None else max(offset, DefaultRecordBatch(self._taken).base_offset)

    def rest(self, first: int, wrong: Exception) -> list[DefaultRecord] | None:
        """Return the records that take the place of the rest of the batch taken last, from the offset ``first`` on.

        The list is empty if every offset was read. None if the batch is damaged, or has no bound.
        """
        if self._taken is None or self.limit is None or not (batch := DefaultRecordBatch(self._taken)).validate_crc():
            return None
        why = f"a record from offset {first} on cannot be read: {wrong!r}"
        stands = RefusedBatch(batch, len(self._taken), why).stands(first, why)
        return [stands] if first <= stands.offset else []

    def _whole_batch(self, data: memoryview) -> Any:  # noqa: ANN401 - as `next_batch`
        if data[_MAGIC] < 2:
            return LegacyRecordBatch(data, data[_MAGIC])
        batch = DefaultRecordBatch(data)
        opened = self._opened(batch, data)
        self._taken = data
        skipped = {offset: why for offset, why in self.skips.items() if batch.base_offset <= offset < batch.next_offset}
        if skipped and batch.is_control_batch and batch.validate_crc():
            return opened  # the marker of a transaction, which ends nothing here
        return SkippingBatch(batch, opened, data, skipped) if skipped else opened

    def _opened(self, batch: DefaultRecordBatch, data: memoryview) -> "DefaultRecordBatch | Opened":
        if self._unpacking is not None:
            if not self._unpacking.done():
                raise Later
            done, self._unpacking = self._unpacking, None
            return done.result()
        if self.limit is None:
            return batch
        # A dead letter cannot repair damage by network or disk. aiokafka checks the batch again, and ends the worker.
        if not batch.compression_type or not batch.validate_crc():
            return batch
        if self.aside is None:
            return batches.opened(batch, data, self.limit)
        if len(data) <= AT_ONCE_PACKED:
            found = batches.opened(batch, data, min(self.limit, AT_ONCE))
            if self.limit <= AT_ONCE or isinstance(found, UnpackedBatch):
                return found
        self._unpacking = self.aside(partial(batches.opened, batch, data, self.limit))
        raise Later

    @property
    def waits(self) -> bool:
        """Whether the next batch was given to a thread."""
        return self._unpacking is not None

    def let_go(self) -> None:
        """Forget the batch that a thread is unpacking."""
        if self._unpacking is not None:
            self._unpacking.cancel()


class Aside:
    """Unpacks large batches in a thread, one at a time in this process. Wakes the readers when a batch is ready.

    ``of``: the fetcher whose readers wait. Create the object on its event loop.
    """

    _thread: ClassVar = ThreadPoolExecutor(1, "unpacking")

    def __init__(self, of: Fetcher) -> None:
        self._fetcher = of

    def __call__(self, unpack: Callable[[], Opened]) -> Future[Opened]:
        """Start to unpack a batch in the thread."""
        loop = asyncio.get_running_loop()

        def done(_: Future[Opened]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(wake, self._fetcher)

        unpacking = self._thread.submit(unpack)
        unpacking.add_done_callback(done)
        # The fetcher does not wait for this partition: it fetches others from the same broker meanwhile. See
        # `_backoff`.
        self._fetcher._notify(self._fetcher._wait_consume_future)  # noqa: SLF001 - as aiokafka does where it takes records
        return unpacking


def wake(fetcher: Fetcher) -> None:
    """Wake the readers of a fetcher, because there may be records."""
    for waiter in fetcher._fetch_waiters:  # noqa: SLF001 - as aiokafka does where records come
        fetcher._notify(waiter)  # noqa: SLF001 - as above


class Fetches(OrderedDict[TopicPartition, Any]):
    """aiokafka's buffer of fetched records, with a bound on what a batch unpacks to.

    ``limit``: returns the most bytes a batch of a topic may unpack to; None for no bound.
    ``skips``: returns the offsets of a partition to leave out, each with its reason.
    ``aside``: unpacks large batches in a thread; None unpacks everything when it is read. With a thread, read with
      ``getmany``, because ``getone`` does not know `Later`.
    """

    def __init__(self, limit: SizeLimit, skips: Skips = lambda _: {}, aside: Aside | None = None) -> None:
        super().__init__()
        self._limit = limit
        self._skips = skips
        self._aside = aside

    def __setitem__(self, tp: TopicPartition, fetched: object) -> None:
        """Keep a fetch of a partition."""
        if isinstance(fetched, FetchResult):
            self.prepare(tp, fetched)
        super().__setitem__(tp, fetched)

    def prepare(self, tp: TopicPartition, fetched: FetchResult) -> None:
        """Bound a fetch, before any of it is unpacked."""
        records = fetched._partition_records._records  # noqa: SLF001 - aiokafka has no bound
        records.limit, records.skips, records.aside = self._limit(tp.topic), self._skips(tp), self._aside

    def __delitem__(self, tp: TopicPartition) -> None:
        """Drop a fetch of a partition."""
        _let_go(self[tp])
        super().__delitem__(tp)

    def clear(self) -> None:
        """Drop all fetches."""
        for fetched in self.values():
            _let_go(fetched)
        super().clear()


def _let_go(fetched: object) -> None:
    if isinstance(fetched, FetchResult) and fetched._partition_records is not None:  # noqa: SLF001
        _end(fetched._partition_records)  # noqa: SLF001
        fetched._partition_records = None  # noqa: SLF001


def _end(reading: PartitionRecords) -> None:
    """Break the reference of a reading to itself, so that its unpacked records are freed at once."""
    reading._records_iterator.close()  # noqa: SLF001
    reading._records.let_go()  # noqa: SLF001


def _portion(fetched: FetchResult, max_records: int | None = None) -> list[Any]:
    """Take records from a fetch until they are many or large. aiokafka's ``getall`` only limits their number.

    Returns none while the next batch is being unpacked. aiokafka then goes on with other partitions, and asks again
    when it is woken.
    """
    reading = fetched._partition_records  # noqa: SLF001 - as getall does
    if not fetched.check_assignment(fetched._topic_partition) or not fetched.has_more():  # noqa: SLF001
        if reading is not None:
            _end(reading)
        return []
    records: list[Any] = []
    size, most = 0, PORTION_RECORDS if max_records is None else min(PORTION_RECORDS, max_records)
    unread, following = reading._records, reading.next_fetch_offset  # noqa: SLF001
    ended = False
    try:
        for record in reading:
            if record.offset >= unread.following:
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
        tp, first = fetched._topic_partition, unread.unread(following)  # noqa: SLF001
        rest = unread.rest(first, exc)
        if rest is not None:
            records += [reading._consumer_record(tp, each) for each in rest]  # noqa: SLF001 - as it makes all others
            reading.next_fetch_offset = unread.following
            reading._records_iterator = reading._unpack_records()  # noqa: SLF001 - as above
        elif not records:
            raise PoisonError(tp.topic, tp.partition, first) from exc
        else:
            reading.next_fetch_offset = following
            ended = True  # earlier records are handed over; this record is fetched again
    fetched._update_position()  # noqa: SLF001
    if ended:
        fetched._partition_records = None  # noqa: SLF001
    return records


def _backoff(fetched: FetchResult) -> float:
    """Return how long, s, an unread partition delays the next fetch from its broker; 0 while a thread unpacks.

    aiokafka waits a tenth of a second for a reader. No reader can have these records yet.
    """
    reading = fetched._partition_records  # noqa: SLF001
    return 0.0 if reading is not None and reading._records.waits else _aiokafkas_backoff(fetched)  # noqa: SLF001


def bound(consumer: AIOKafkaConsumer, limit: SizeLimit, skips: Skips = lambda _: {}) -> None:
    """Bound what a consumer unpacks. Call it after the start, before partitions are assigned. See `Fetches`."""
    consumer._fetcher._records = Fetches(limit, skips)  # noqa: SLF001 - aiokafka has no setting for it


# Set for the whole process: all its consumers use it.
fetcher.MemoryRecords = RecordSet
FetchResult.getall = _portion
_aiokafkas_backoff: Final = FetchResult.calculate_backoff
FetchResult.calculate_backoff = _backoff
