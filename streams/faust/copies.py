"""One copy of a partition's rows: its progress, the last writers, and the consumer that updates it."""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.errors import KafkaError

from state import kinds
from streams.config.settings import Settings
from streams.faust import unpacking
from streams.faust.client import hasten, idle_ms, stop
from streams.faust.contact import Contact
from streams.faust.stores import RocksStore, now
from streams.faust.unpacking import Head
from streams.kafka import provenance
from streams.kafka.provenance import Described, Part
from streams.records.merge import KafkaRecord

log = logging.getLogger("trueup")

#: Longest wait for new records, s. Nobody waits for the records of a copy.
FETCH_SECONDS: Final = 0.5
#: A copy that lacks at most this many offsets counts as whole: restoring them takes a tenth of a second.
NEAR: Final = 10_000
#: When a process starts, rows also count as whole if they were complete at most this long ago, ms.
LATELY_MS: Final = 3_600_000


@dataclass
class Copy:
    """A database that is open."""

    #: Next offset of the changelog to write.
    next: int
    #: An end of the changelog, and when it was asked for, ms since 1970; None once the rows have reached it.
    end: int | None = None
    asked: int | None = None
    #: End of the changelog at the last fetch.
    high: int | None = None
    #: Whether the copy has been up to date since it was opened.
    whole: bool = False
    #: Whether the consumer reads on from ``next``.
    sought: bool = False
    #: Producer id and epoch of the newest batch; None while unknown.
    writer: tuple[int, int] | None = None

    @property
    def lag(self) -> int | None:
        """Number of changelog offsets that the copy lacks; None while unknown."""
        ends = [end for end in (self.end, self.high) if end is not None]
        return max(max(ends) - self.next, 0) if ends else None

    def strayed(self, heads: deque[Head], records: Sequence[KafkaRecord]) -> bool:
        """Whether rows were appended to an up-to-date copy under a claim that the copy has not seen.

        If so, the brokers have lost the end of the changelog, and new records filled the gap before this copy noticed.
        While a copy is being made, claims may be missing: compaction keeps only the newest.
        """
        following, strayed = self.next, False
        while heads and heads[0].base <= records[-1].offset:
            head = heads.popleft()
            if self.writer is not None and head.writer != self.writer and head.base <= following and self.whole:
                first = next((each for each in records if each.offset >= head.base), None)
                strayed |= first is None or first.key != kinds.CLAIM.key() or head.base < following
            self.writer, following = head.writer, head.following
        return strayed


class AuthoredFetches(unpacking.Fetches):
    """Fetched records, and the writers of their batches."""

    def __init__(self, limit: unpacking.SizeLimit) -> None:
        super().__init__(limit)
        self.heads: defaultdict[int, deque[Head]] = defaultdict(deque)

    def prepare(self, tp: TopicPartition, fetched: FetchResult) -> None:
        """Note the heads of the batches."""
        super().prepare(tp, fetched)
        self.heads[tp.partition] += fetched._partition_records._records.heads()  # noqa: SLF001 - as above


def changelog_consumer(settings: Settings, contact: Contact) -> AIOKafkaConsumer:
    """Return a consumer of the changelog, which is not started and joins no group."""
    consumer = AIOKafkaConsumer(
        enable_auto_commit=False,
        auto_offset_reset="none",
        max_partition_fetch_bytes=1 << 20,
        fetch_max_wait_ms=idle_ms(settings.attempt_seconds, int(FETCH_SECONDS * 1000)),
        **settings.client_options(),
    )
    hasten(consumer, settings.attempt_seconds, contact)
    return consumer


async def ask(
    consumer: AIOKafkaConsumer, settings: Settings, places: Collection[TopicPartition]
) -> tuple[Described, dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the identity of the changelog, and the first and the end offset of each partition."""
    async with asyncio.timeout(settings.request_seconds):
        client, topic = consumer._client, settings.changelog  # noqa: SLF001 - see `provenance.describe`
        described = await provenance.describe(client, settings.app_id, topic)
        return described, await consumer.beginning_offsets(places), await consumer.end_offsets(places)


async def whole(settings: Settings, contact: Contact, store: RocksStore, kept: Collection[int]) -> set[int]:
    """Return which partitions have rows on this disk that the changelog can soon bring up to date.

    If the brokers do not describe the changelog, the age of the rows decides.
    """
    consumer = changelog_consumer(settings, contact)
    begun, parts = now(), dict[int, Part]()
    try:
        await consumer.start()
        places = [TopicPartition(settings.changelog, partition) for partition in kept]
        described, begins, ends = await ask(consumer, settings, places)
        parts = {each.partition: described.part(begun, ends[each], begins[each]) for each in places}
    except (KafkaError, TimeoutError) as exc:
        log.info("rows on this disk are reported to the group unchecked: %s: %s", type(exc).__name__, exc)
    finally:
        await stop(consumer)
    found, unfit = set[int](), list[int]()
    for n in sorted(kept):
        try:
            if n in parts and not await asyncio.to_thread(store.fit, n, parts[n]):
                unfit.append(n)
            elif await asyncio.to_thread(_soon_whole, store, n, parts.get(n), begun):
                found.add(n)
        except Exception as exc:  # noqa: BLE001 - any error: a worker that serves from these rows will meet it
            log.warning("the rows of partition %d cannot be opened: %s", n, exc)
    if unfit:
        log.warning("the rows of partitions %s on this disk cannot be used", unfit)
    return found


def _soon_whole(store: RocksStore, partition: int, of: Part | None, at: int) -> bool:
    """Whether rows lack little of the changelog, or were up to date lately. ``at``: now, ms since 1970."""
    offset, as_of = store.offset(partition), store.as_of(partition)
    near = of is not None and offset is not None and of.end - 1 - offset <= NEAR
    return near or (as_of is not None and as_of >= at - LATELY_MS)
