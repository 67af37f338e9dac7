"""The state table: rows go to the changelog first, in one atomic record batch, and to disk afterwards.

Stock Faust writes RocksDB first and the changelog later, one record at a time, so a crash in between loses or doubles
updates. Here, rows that are written together are one record batch of the changelog. Its acknowledgement is the commit
point: from then on the rows are on this disk, or can be rebuilt on another. The disk may be behind. It stores the
offset up to which it has rows, and the next owner of the partition restores the rest.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import faust
from faust.types import TP, EventT

from state import kinds
from state.fence import Fence
from state.inputs import InputIds, Widths
from streams.faust.changelog import Changelog, MovedError, RowWrites, sliced
from streams.faust.inputs import DataLossError
from streams.faust.pace import HURRIED, Pace
from streams.faust.producing import BatchProducer, RecordBatch
from streams.faust.stores import RocksStore, now, restore
from streams.kafka.provenance import COMPACT
from streams.records.merge import KafkaRecord

NAME = "state"


class ForeignWriterError(RuntimeError):
    """Another writer has appended to this partition's changelog, although the claim should have prevented that."""


class PartitionsError(RuntimeError):
    """The number of partitions of an input has changed, so records of one key are in several partitions."""


class StateTable(faust.Table):  # type: ignore[type-arg]
    """A Faust table whose rows are bytes and whose writes are batches.

    ``owner``: name of this worker in its claims.
    ``changelog``: topic of the changelog; empty: as Faust names it.
    ``batch_bytes``: largest size of rows that are written at once; None: ``TRUEUP_BATCH_BYTES``.
    """

    def __init__(
        self,
        app: faust.App,
        *,
        owner: str = "",
        changelog: str = "",
        batch_bytes: int | None = None,
        **options: int,
    ) -> None:
        self._changelog_name = changelog
        self.owner = owner
        self.changelog = Changelog(
            lambda: str(self.changelog_topic_name), lambda: cast("BatchProducer", app.producer), owner, batch_bytes
        )
        self._locks: dict[int, asyncio.Lock] = {}
        #: Changelog offset at which the next batch of each partition must be appended.
        self._next: dict[int, int] = {}
        #: Rows of each partition that are in the changelog but not yet in the store.
        self._unwritten: dict[int, dict[bytes, bytes | None]] = {}
        #: When each partition was last claimed, ms since 1970, and the end of its changelog then.
        self._claimed: dict[int, tuple[int, int]] = {}
        #: Number of partitions of the inputs, once known.
        self.widths = Widths(0, 0)
        super().__init__(
            app,
            name=NAME,
            key_type=bytes,
            value_type=bytes,
            recovery_buffer_size=2,  # Faust throws these records away; with 1 it would go on reading after the recovery
            options=options,
            help="ledger, calibrators, scores and fence of every partition",
        )

    def _new_store(self) -> RocksStore:
        return self.rocks()

    def rocks(self) -> RocksStore:
        """Return a second store in the table's directories. A database may be open in only one store at a time."""
        return RocksStore("rocksdb://", self.app, self, table_name=self.name, options=dict(self.options or {}))

    @property
    def store(self) -> RocksStore:
        """The store of the rows. It may be behind the changelog."""
        return cast("RocksStore", self.data)

    def _changelog_topic_name(self) -> str:
        return self._changelog_name or super()._changelog_topic_name()

    async def claim(self, partition: int) -> None:
        """Claim a partition's changelog: brokers refuse all other writers; raises as `Changelog.claim`."""
        began = now()
        self._claimed[partition] = began, await self.changelog.claim(partition)

    def claimed(self, partition: int) -> int:
        """Return the changelog offset of the newest claim of a partition; KeyError if it was never claimed."""
        return self._claimed[partition][1]

    def is_claimed(self, partition: int) -> bool:
        """Whether this worker has claimed a partition."""
        return partition in self._claimed

    async def vet(self, partitions: Iterable[int]) -> list[int]:
        """Set aside the databases of claimed partitions that are damaged or cannot be brought up to date.

        The latter is so if their rows come from another changelog, the changelog lacks them, or they are so old that
        later deletions may have been compacted away.

        Raises KafkaError or TimeoutError if the brokers do not describe the changelog. Returns the partitions that were
        set aside. Their whole changelog must be restored.
        """
        producer = cast("BatchProducer", self.app.producer)
        described = await producer.describe(self.app.conf.id, str(self.changelog_topic_name))
        at, vet = now(), self.store.vet
        # In a thread, because after damage it reads all rows.
        return [
            each for each in partitions if await asyncio.to_thread(vet, each, described.part(at, self.claimed(each)))
        ]

    async def recognise(self, partitions: Iterable[int], topics: tuple[str, str]) -> None:
        """Compare the input topics with those from which the partitions' rows came; note the topics if none are noted.

        Raises DataLossError if a topic was recreated after its records were applied: the fence would hide as many new
        records. Raises PartitionsError if a topic has another number of partitions than when its first records were
        applied. Raises KafkaError or TimeoutError if the brokers do not describe the topics, or as `commit`.

        ``topics``: names of the topics of forecasts and of outcomes.
        """
        found = await cast("BatchProducer", self.app.producer).identities(topics)
        self.widths = widths = Widths(*(each.partitions for each in found))
        for partition in partitions:
            await self._recognise(partition, topics, InputIds(*(each.id for each in found)), widths)

    async def _recognise(self, partition: int, topics: tuple[str, str], given: InputIds, widths: Widths) -> None:
        row = self.store.read(partition, kinds.INPUTS.key())
        known = given if row is None else kinds.INPUTS.decode(row)
        fence = self.store.read(partition, kinds.FENCE.key())
        applied = Fence.decode(fence).next if fence else (0, 0)
        for topic, before, found, offset in zip(topics, known, given, applied, strict=True):
            if before != found and offset:
                raise DataLossError(
                    f"the state of partition {partition} has applied {topic} up to offset {offset - 1}, but that topic "
                    f"was deleted and recreated: its id was {before} and is {found}. Restore it, or give the worker "
                    "another TRUEUP_APP_ID"
                )
        stored = self.store.read(partition, kinds.WIDTHS.key())
        before_widths = widths if stored is None else kinds.WIDTHS.decode(stored)
        for topic, had, has in zip(topics, before_widths, widths, strict=True):
            if had != has and any(applied):
                raise PartitionsError(
                    f"{topic} has {has} partitions, and had {had} when the state of partition {partition} was begun: "
                    "records of one key stand in different partitions now, and do not meet. 'trueup state rescale' "
                    "moves the state to another number of partitions and another TRUEUP_APP_ID; "
                    "see docs/how-to/rescale.md"
                )
        if row is None or known != given or stored is None or before_widths != widths:
            rows = {kinds.INPUTS.key(): kinds.INPUTS.encode(given), kinds.WIDTHS.key(): kinds.WIDTHS.encode(widths)}
            await self.commit(partition, rows)

    async def append(self, rows: Mapping[int, RowWrites]) -> None:
        """Append rows to the changelog and wait until it acknowledges. The next `commit` writes them to the store.

        Raises TooLargeError if the rows of a partition do not fit one record batch; nothing was sent.
        Raises MovedError if a partition has moved; nothing was sent.
        Raises FencedError if another worker has claimed a partition; nothing was appended to it.
        Raises ForeignWriterError if another writer has appended to a changelog.
        Raises KafkaError or TimeoutError if the brokers do not acknowledge. The batches may or may not have been
        appended.

        ``rows``: rows of each partition, by key; None deletes.
        """
        async with self._locked(rows):
            await self._append(rows)

    async def commit(
        self, partition: int, rows: RowWrites, probe: Callable[[int], None] = lambda _: None, pace: Pace = HURRIED
    ) -> None:
        """Append rows to the changelog, wait until it acknowledges, then write them to the store.

        Raises as `append`.

        ``rows``: by key; None deletes.
        ``probe``: called with 1 when the changelog has acknowledged, with 2 when the store has written.
        ``pace``: rests while rows are packed and written.
        """
        batch = await self.changelog.pack(partition, rows, pace)  # meanwhile the journal is written
        async with self._locked([partition]):
            await self._append({partition: rows}, {partition: batch})
            unwritten, offset = self._unwritten.pop(partition), self._next[partition] - 1
        probe(1)
        claim, last = self._claimed.get(partition), list[tuple[bytes, bytes | None]]()
        async for part in pace.slices(sliced(unwritten.items())):
            self._require_claim(partition, claim)
            if last:
                self.store.begin(partition, last, offset)
            last = part
        self._require_claim(partition, claim)  # it may also have moved during the rest after the last slice
        self.store.write(partition, last, offset, now())
        probe(2)

    def _require_claim(self, partition: int, claim: tuple[int, int] | None) -> None:
        if self._claimed.get(partition) is not claim or partition not in self._next:
            raise MovedError(f"partition {partition} has moved: its new owner restores the rows that are left")

    async def _append(self, rows: Mapping[int, RowWrites], packed: Mapping[int, RecordBatch] | None = None) -> None:
        for partition in rows:
            if self.changelog.due(partition):
                await self._confirm(partition)
        offsets = await self.changelog.append(packed or rows)
        for partition, offset in offsets.items():
            self._appended(partition, rows[partition], offset)

    async def renew(self) -> None:
        """Confirm claims that have not been confirmed for long.

        Raises FencedError, ForeignWriterError, KafkaError or TimeoutError as `commit`.
        """
        for partition in self.changelog.claims():
            async with self._locked([partition]):
                if self.changelog.due(partition):
                    await self._confirm(partition)

    async def cleanup(self) -> str:
        """Return the changelog's ``cleanup.policy`` if it loses rows, otherwise an empty text; raises as `vet`."""
        producer = cast("BatchProducer", self.app.producer)
        policy = (await producer.describe(self.app.conf.id, str(self.changelog_topic_name))).policy
        return "" if policy == COMPACT else policy

    async def _confirm(self, partition: int) -> None:
        rows, offset = await self.changelog.confirm(partition)
        self._appended(partition, rows, offset)

    def _appended(self, partition: int, rows: RowWrites, offset: int) -> None:
        expected = self._expected(partition)
        if expected is not None and offset != expected:
            raise ForeignWriterError(
                f"rows of partition {partition} were appended to {self.changelog_topic_name} at offset {offset}, "
                f"expected {expected}: another worker writes this partition"
            )

        self._next[partition] = offset + len(rows)
        self._unwritten.setdefault(partition, {}).update(rows)

    @asynccontextmanager
    async def _locked(self, partitions: Iterable[int]) -> AsyncIterator[None]:
        """Lock the changelog of some partitions, so that nothing else is in flight to them."""
        locks = [self._locks.setdefault(partition, asyncio.Lock()) for partition in sorted(partitions)]
        taken = 0
        try:
            for lock in locks:
                await lock.acquire()
                taken += 1
            yield
        finally:
            for lock in locks[:taken]:
                lock.release()

    def _expected(self, partition: int) -> int | None:
        if partition in self._next:
            return self._next[partition]
        stored = self.store.offset(partition)
        return None if stored is None else stored + 1

    def restore(self, tp: TP, records: Sequence[KafkaRecord]) -> None:
        """Write recovered changelog records; see `streams.faust.stores.restore`."""
        restore(self.store, tp.partition, records, now())

    def apply_changelog_batch(self, batch: Iterable[EventT[Any]]) -> None:
        """Do nothing, because `restore` has already written these records. Faust hands them over later.

        A second write would overwrite newer rows: it would put back an older fence, and a batch would be folded twice.
        """

    def reopened(self, partition: int) -> None:
        """Note that a partition was recovered again: others may have written to it before it was claimed."""
        self._next.pop(partition, None)
        self._unwritten.pop(partition, None)
        self.changelog.activate(partition)
        offset, claimed = self.store.offset(partition), self._claimed.get(partition)
        if offset is not None and claimed is not None:  # the rows contain all that was appended before the claim
            self.store.write(partition, (), offset, claimed[0])

    def closed(self, partition: int) -> None:
        """Note that a partition has moved."""
        self._next.pop(partition, None)
        self._unwritten.pop(partition, None)
        self._claimed.pop(partition, None)
        self.changelog.release(partition)
        self.store.anew(partition)

    def following(self, partition: int) -> int:
        """Return the next offset of the changelog to restore."""
        offset = self.store.offset(partition)
        return 0 if offset is None else offset + 1
