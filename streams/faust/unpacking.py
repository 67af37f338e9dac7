"""Record batches are unpacked here, and never beyond a bound.

Brokers limit a batch by its packed size: 1.5 kB of zstd hold 50 MB. aiokafka unpacks whatever comes, to its end. So
batches are taken out of a fetch here, and those that are packed are unpacked into a buffer of the size of the bound. A
batch that does not fit, or cannot be unpacked, is left as it is, and one record stands for it (`records.refused`). Its
offset is that of the batch's last record: who reads on behind it reads on behind the batch.

What takes longer than a millisecond or two is unpacked in a thread (`Aside`). Its partition waits for it; what was
fetched of the others is handed over, and fetched, meanwhile.

Batches of the format of before Kafka 0.11, which Kafka 4 no longer has, are left to aiokafka and not bounded.

A batch that is undamaged, and that aiokafka cannot read to its end, is refused from there on: one record stands for the
rest. So is one of which it reads an offset that is not in it: that would move the fence, and what others send would
count as applied.
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
from streams.faust.batches import Opened, RefusedBatch, SkippingBatch, UnpackedBatch
from streams.records.skips import PoisonError

#: Most bytes a batch may unpack to, where nothing else is said.
LIMIT: Final = 32 << 20
#: Most bytes of keys and values handed over at once of a partition, and most records: a fetch may hold many batches
#: that just fit, and a batch millions of records that are empty.
PORTION, PORTION_RECORDS = 1 << 20, 10_000
#: For how many bytes of a portion a header counts: one takes two bytes in a batch, and forty times as many when it is
#: read.
HEADER: Final = 64
#: Most bytes of a packed batch, and of what it unpacks to, for which nothing else waits: a millisecond or two. Empty
#: frames take gzip and snappy 10 ms.
AT_ONCE_PACKED, AT_ONCE = 1 << 16, 1 << 20

#: Where the length stands, what it counts, the magic, and the last record.
_LENGTH, _BEFORE, _MAGIC, _LAST = 8, 12, 16, 23
#: In which epoch of its partition's leader a batch was written.
_EPOCH: Final = struct.Struct(">12xi")
#: Bytes of the head of the oldest format.
_SHORTEST: Final = 26
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


class Read:
    """How far a partition was read, and in which epoch of its leader the last of that was written; -1: not known."""

    __slots__ = ("epoch", "following")

    def __init__(self, epoch: int = -1, following: int = -1) -> None:
        self.epoch, self.following = epoch, following

    def on(self, epoch: int, following: int) -> None:
        """Note a batch; one that is read again, after a seek, changes nothing."""
        if following > self.following:
            self.epoch, self.following = epoch, following


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
        #: The batch that was taken last; None where none was, or it is older than Kafka 0.11.
        self._taken: memoryview | None = None
        #: The offset behind the batch that was taken last.
        self.following = _NEVER
        #: How far the partition was read.
        self.read = Read()

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

    @property
    def epoch(self) -> int:
        """The epoch of the leader that wrote the next batch; -1 where it is not known."""
        begun = self._end is not None and self._data[self._at + _MAGIC] >= 2
        return int(_EPOCH.unpack_from(self._data, self._at)[0]) if begun else -1

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
        """Return the first offset that was not read of the batch that was taken last, where ``offset`` was next."""
        # Between the record before it and its batch there may be offsets of records that no longer are.
        return offset if self._taken is None else max(offset, DefaultRecordBatch(self._taken).base_offset)

    def rest(self, first: int, wrong: Exception) -> list[DefaultRecord] | None:
        """Return what stands for the batch that was taken last from an offset on.

        None if it is damaged, or nothing is bounded. There is no record where all offsets were read.
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
        """Whether the next batch is being unpacked in a thread, or was."""
        return self._unpacking is not None

    def let_go(self) -> None:
        """Forget what is being unpacked: nobody asks for it any more."""
        if self._unpacking is not None:
            self._unpacking.cancel()


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
                loop.call_soon_threadsafe(wake, self._fetcher)

        unpacking = self._thread.submit(unpack)
        unpacking.add_done_callback(done)
        # Others are fetched from the same broker meanwhile, which does not wait for this partition: see `_backoff`.
        self._fetcher._notify(self._fetcher._wait_consume_future)  # noqa: SLF001 - as aiokafka does where it takes records
        return unpacking


def wake(fetcher: Fetcher) -> None:
    """Tell who waits for records of a fetcher that there may be some."""
    for waiter in fetcher._fetch_waiters:  # noqa: SLF001 - as aiokafka does where records come
        fetcher._notify(waiter)  # noqa: SLF001 - as above


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
            ended = True  # those before it are handed over; it is fetched again
    fetched._update_position()  # noqa: SLF001
    if ended:
        fetched._partition_records = None  # noqa: SLF001
    return records


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
