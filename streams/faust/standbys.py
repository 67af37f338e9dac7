"""Copies of partitions that other workers serve, so that a partition can move without being restored.

A copy is a database like any other, kept up to date from the changelog. Nobody reads it until the group assigns its
partition to this worker. Then it is closed here and taken up like any database on disk: it is claimed, vetted and
brought to the end of the changelog. Appends of the former owner come before the claim and are read, or are refused.

Copies are kept in a thread with a consumer of its own, so that a slow copy, a silent broker or a damaged disk does not
delay this worker. A copy is given up before it takes disk space that the worker needs.
"""

import asyncio
import logging
import shutil
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import NoOffsetForPartitionError, OffsetOutOfRangeError

from streams.config.settings import Settings
from streams.faust import copies
from streams.faust.client import stop
from streams.faust.contact import Contact
from streams.faust.copies import AuthoredFetches, Copy, ask, changelog_consumer, whole
from streams.faust.progress import Standby
from streams.faust.stores import DamagedStoreError, RocksStore, now, remove_directory, restore
from streams.faust.unpacking import Head
from streams.kafka.provenance import Part
from streams.records.merge import KafkaRecord

log = logging.getLogger("trueup")

#: Seconds between two looks at the changelog's end and identity. The second is used while a copy is missing.
LOOK_SECONDS, MISSING_SECONDS = 10.0, 1.0
#: Pause before brokers are asked again after a failure, s.
PAUSE_SECONDS = 1.0
#: Share of the file system that copies must leave free.
SPARE: Final = 0.05


class Standbys:
    """Keeps copies. The thread starts with the first copy.

    ``contact``: notes the answers of brokers.
    ``store``: store of the copies, in the state table's directories, with its own databases.
    ``release``: closes the database of a partition that was served here; called on the worker's loop.
    ``usage``: returns size and free bytes of the file system of a path.
    """

    def __init__(
        self,
        settings: Settings,
        contact: Contact,
        store: RocksStore,
        release: Callable[[int], None],
        usage: Callable[[Any], Any] = shutil.disk_usage,
    ) -> None:
        #: Rows written to copies since the process began.
        self.rows = 0

        self._settings, self._contact = settings, contact
        self.store = store
        self._release = release
        self._usage = usage
        self._wanted: frozenset[int] = frozenset()
        self._served: frozenset[int] = frozenset()
        self._copies: dict[int, Copy] = {}
        #: Partitions whose copy was given up for lack of disk space, with the bytes that the copy took.
        self._crowded: dict[int, int] = {}
        self._heads: defaultdict[int, deque[Head]] = defaultdict(deque)
        #: Whether the group has assigned copies; before that, the partitions of which this disk has whole rows.
        self._told = False
        self._found = set[int]()
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._workers_loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending = False

    # -- for the loop of the worker, and for any thread ------------------------------------------------------------

    async def examine(self) -> None:
        """Find out which rows on this disk are whole, before the worker joins its group and reports them.

        So if a partition's rows here are foreign, ahead of the changelog, old or damaged, the partition goes to another
        worker with a copy. In any case, rows are vetted before they are served.
        """
        if kept := self.store.kept():
            self._found = await whole(self._settings, self._contact, self.store, kept)

    async def follow(self, partitions: Iterable[int], served: Iterable[int]) -> None:
        """Keep copies of these partitions and of no others. Return when all others are closed.

        ``partitions``: their numbers; this worker serves none of them.
        ``served``: partitions that this worker serves; the thread does not touch their files.
        """
        wanted = frozenset(partitions)
        if not self._told:
            for partition in self.store.kept() - wanted:  # `examine` may have opened it
                self.store.close(partition)
        self._told = True
        if self._loop is None:
            if not wanted:
                return
            self._loop, self._workers_loop = asyncio.new_event_loop(), asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._live, args=(self._loop,), name="standbys", daemon=True)
            self._thread.start()
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._set(wanted, frozenset(served)), self._loop))

    async def stop(self) -> None:
        """Close all copies and stop the thread."""
        if self._loop is None or self._thread is None:
            return
        await self.follow((), self._served)
        self._loop.call_soon_threadsafe(self._end)
        await asyncio.to_thread(self._thread.join)
        self._loop = self._thread = None

    def look(self) -> list[Standby]:
        """Return the copies; any thread may ask."""
        return [Standby(partition, copy.lag) for partition, copy in sorted(dict(self._copies).items())]

    def whole(self) -> list[int]:
        """Return the partitions whose copies are nearly complete; any thread may ask.

        When the process starts, these are the partitions that `examine` has found.
        """
        if self._told:
            return [each.partition for each in self.look() if each.lag is not None and each.lag <= copies.NEAR]
        return sorted(self._found)

    @property
    def missing(self) -> int:
        """Number of copies that should be here but are not; any thread may ask."""
        return len(self._wanted - set(self._copies))

    # -- the thread ------------------------------------------------------------------------------------------------

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        self._task = loop.create_task(self._run())
        with closing(loop), suppress(asyncio.CancelledError):
            loop.run_until_complete(self._task)

    def _end(self) -> None:
        self._ending = True
        if self._task is not None:
            self._task.cancel()

    async def _set(self, wanted: frozenset[int], served: frozenset[int]) -> None:
        self._wanted, self._served = wanted, served
        for partition in set(self._copies) - wanted:
            self._close(partition)
        self._changed.set()

    async def _run(self) -> None:
        told = False
        while not self._ending:  # aiokafka may have swallowed the cancellation
            await self._changed.wait()
            self._changed.clear()
            try:
                if self._wanted:
                    await self._read()
                told = False
            # aiokafka's consumer cancels its own requests, and lets their errors through.
            except (Exception, asyncio.CancelledError) as exc:
                if self._ending:
                    raise
                # The worker does not depend on copies, so no error here may end it.
                if not told:
                    log.warning(
                        "copies of partitions that other workers serve are delayed: %s: %s", type(exc).__name__, exc
                    )
                told = True
                self._changed.set()
                await asyncio.sleep(PAUSE_SECONDS)

    async def _read(self) -> None:
        consumer = changelog_consumer(self._settings, self._contact)
        try:
            await consumer.start()
            consumer._fetcher._records = prefetched = AuthoredFetches(self._settings.unpacks)  # noqa: SLF001 - see `unpacking.bound`
            self._heads = prefetched.heads
            self._restart()
            due = 0.0  # at once
            while self._wanted:
                if self._changed.is_set() or monotonic() >= due:
                    self._changed.clear()
                    await self._look(consumer)
                    due = monotonic() + (MISSING_SECONDS if self.missing else LOOK_SECONDS)
                await self._fetch(consumer)
        finally:
            await stop(consumer)

    def _restart(self) -> None:
        for copy in self._copies.values():
            copy.sought = False

    async def _look(self, consumer: AIOKafkaConsumer) -> None:
        """Open copies, set aside those that do not fit, note the end of the changelog, and seek."""
        topic = self._settings.changelog
        places = {partition: TopicPartition(topic, partition) for partition in self._wanted}
        began = now()
        described, begins, ends = await ask(consumer, self._settings, places.values())
        self._make_room()
        for partition in sorted(self._wanted & set(places)):  # by now, other copies may be wanted
            place = places[partition]
            if partition in self._copies or self._open(partition):
                self._judge(partition, described.part(began, ends[place], begins[place]), began)
        self._seek(consumer, begins)

    def _open(self, partition: int) -> bool:
        usage = self._usage(self._settings.state_dir)
        size = self._crowded.get(partition)
        if usage.free - (size or 0) < SPARE * usage.total * (1 if size is None else 2):
            return False
        try:
            offset = self.store.offset(partition)
        except DamagedStoreError as exc:  # it has been set aside
            self._lose(partition, exc)
            return False
        except Exception as exc:  # noqa: BLE001 - it may still be open where it was served
            log.info("the copy of partition %d cannot be opened yet: %s", partition, exc)
            if self._workers_loop is not None:
                self._workers_loop.call_soon_threadsafe(self._let_go, partition)
            return False
        self._crowded.pop(partition, None)
        self._copies[partition] = Copy(0 if offset is None else offset + 1)
        return True

    def _let_go(self, partition: int) -> None:
        """Make the worker close a database that becomes a copy, unless it is served again."""
        if partition in self._wanted:
            self._release(partition)

    def _judge(self, partition: int, of: Part, asked: int) -> None:
        """Set aside a copy that the changelog cannot bring up to date; note how much others lack."""
        copy = self._copies[partition]
        try:
            if self.store.vet(partition, of):
                copy = self._copies[partition] = Copy(0)
        except Exception as exc:  # noqa: BLE001 - a copy can be made anew
            self._lose(partition, exc)
            return
        copy.end = of.end
        if copy.asked is None:
            copy.asked = asked
        self._note(partition, copy)

    def _seek(self, consumer: AIOKafkaConsumer, begins: dict[TopicPartition, int]) -> None:
        places = {TopicPartition(self._settings.changelog, partition) for partition in self._copies}
        if places != consumer.assignment():
            consumer.assign(sorted(places))
            self._restart()
        for place in places:
            copy = self._copies[place.partition]
            if not copy.sought:
                self._heads[place.partition].clear()
                consumer.seek(place, max(copy.next, begins[place]))
                copy.sought = True

    async def _fetch(self, consumer: AIOKafkaConsumer) -> None:
        """Write the next records, then pause for as long: the worker needs the processor."""
        if not self._copies:
            await asyncio.sleep(copies.FETCH_SECONDS)
            return
        try:
            fetched = await consumer.getmany(timeout_ms=int(copies.FETCH_SECONDS * 1000))
        except (OffsetOutOfRangeError, NoOffsetForPartitionError):
            self._restart()  # look again: the rows no longer belong to this changelog, or it has lost what follows them
            self._changed.set()
            await asyncio.sleep(PAUSE_SECONDS)
            return
        began = monotonic()
        for place, records in fetched.items():
            if place.partition in self._copies and self._copies[place.partition].sought:
                self._write(place.partition, records)
                if place.partition in self._copies:
                    self._copies[place.partition].high = consumer.highwater(place)
        await asyncio.sleep(monotonic() - began)

    def _write(self, partition: int, records: Sequence[KafkaRecord]) -> None:
        copy = self._copies[partition]
        try:
            if copy.strayed(self._heads[partition], records):
                self._copies.pop(partition)
                self._changed.set()
                log.error(
                    "the copy of partition %d is not used: the brokers have lost rows that it has; it is recreated, "
                    "the old files are in %s",
                    partition,
                    self.store.set_aside(partition, "ahead"),
                )
                return
            restore(self.store, partition, records, now())
        except Exception as exc:  # noqa: BLE001 - a copy can be made anew
            self._lose(partition, exc)
            return
        self.rows += len(records)
        copy.next = records[-1].offset + 1
        self._note(partition, copy)
        self._make_room()

    def _note(self, partition: int, copy: Copy) -> None:
        """Note the time of the rows: when the end that they have now reached was asked for."""
        if copy.asked is None or copy.end is None or copy.end > copy.next:
            return
        if copy.next:
            self.store.write(partition, (), copy.next - 1, copy.asked)
        copy.asked, copy.whole = None, True

    def _lose(self, partition: int, exc: Exception) -> None:
        """Give up a copy that cannot be read or written. The next look opens it again."""
        self._close(partition)
        if not isinstance(exc, DamagedStoreError):  # damaged rows have been set aside
            self._remove(partition)
        log.error("the copy of partition %d is recreated: %s", partition, exc)

    def _make_room(self) -> None:
        """Remove unused rows, then copies, until the worker has enough disk space."""
        for remove in (self._idle, self._largest):
            while self._short() and (partition := remove()) is not None:
                size = self._size(partition)
                self._close(partition)
                self._remove(partition)
                if partition in self._wanted:
                    self._crowded[partition] = size
                elif partition in self.store.kept():
                    return  # they cannot be removed, either
                log.error(
                    "the copy of partition %d is removed: less than %.0f %% of %s is free, which is left to what is "
                    "served from it",
                    partition,
                    100 * SPARE,
                    self._settings.state_dir,
                )

    def _short(self) -> bool:
        usage = self._usage(self._settings.state_dir)
        return bool(usage.free < SPARE * usage.total)

    def _idle(self) -> int | None:
        """Return a partition that has rows here and is neither served nor copied, or None."""
        return min(self.store.kept() - self._served - self._wanted, default=None)

    def _largest(self) -> int | None:
        return max(self._copies, key=self._size, default=None)

    def _size(self, partition: int) -> int:
        return sum(each.st_size for each in self.store.files(partition))

    def _remove(self, partition: int) -> None:
        remove_directory(Path(self.store.partition_path(partition)))

    def _close(self, partition: int) -> None:
        self._copies.pop(partition, None)
        self.store.close(partition)
