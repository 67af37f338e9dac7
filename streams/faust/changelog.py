"""The changelog has one writer for each partition: the brokers refuse all earlier writers.

A worker that is paused past its session does not know, when it wakes, that its partitions have moved. A check by the
worker is not enough, because it may be paused again right after that. So the brokers must refuse its batches. The new
owner claims the partition before it reads the changelog's end: it raises the epoch of the partition's producer id, and
appends a row under it. An append of the old owner either comes before that row and is recovered, or comes after it and
is refused. Appends are idempotent and use no transaction, which costs nothing per batch and leaves no markers.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from time import monotonic

from aiokafka.errors import ProducerFenced

from state import kinds
from state.claim import Claim
from streams.faust.pace import Pace
from streams.faust.producing import BatchProducer, RecordBatch
from streams.kafka.producer_ids import NOBODY, ProducerIdentity
from streams.records.encoding import NO_HEADERS

log = logging.getLogger("trueup")

#: Longest time without confirming a claim, s. A log forgets the epoch of a producer after a day without appends
#: (producer.id.expiration.ms), and the coordinator the id after seven (transactional.id.expiration.ms). Epochs end at
#: 32,767: with one every six hours they last 22 years.
RENEW_SECONDS = 6 * 3600.0

RowWrites = Mapping[bytes, bytes | None]

#: Rows that are packed or written at a time before other tasks may run: some milliseconds.
SLICE = 500


def sliced(rows: Iterable[tuple[bytes, bytes | None]]) -> Iterator[list[tuple[bytes, bytes | None]]]:
    """Yield rows in slices of at most `SLICE`."""
    left = iter(rows)
    while part := list(islice(left, SLICE)):
        yield part


class TooLargeError(Exception):
    """The rows do not fit one record batch."""


class FencedError(RuntimeError):
    """Another worker has claimed the partition. This worker may write nothing more to it."""


class MovedError(RuntimeError):
    """A partition moved before its batch was appended. Nothing was appended; the new owner reads the batch."""


@dataclass
class Writer:
    """A claim under which this worker writes."""

    #: Producer id and epoch of all appends under it.
    identity: ProducerIdentity
    #: Time at which the brokers last confirmed it.
    since: float
    #: Sequence number of the next record, modulo 2^31.
    sequence: int = 0

    def stamp(self, records: int) -> tuple[int, int, int]:
        """Reserve sequence numbers for some records; return producer id, epoch and the first number."""
        first = self.sequence
        self.sequence = (first + records) % 2**31
        return *self.identity, first


class Changelog:
    """Appends batches of rows, those of each partition under its own claim.

    ``producer``: returns the producer; the application makes it when it starts.
    ``owner``: name of this worker, for people.
    ``size``: largest record batch before compression, bytes.
    ``clock``: returns seconds; it must go on while the process is stopped.
    """

    def __init__(
        self,
        topic: Callable[[], str],
        producer: Callable[[], BatchProducer],
        owner: str,
        size: int | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._topic = topic
        self._producer = producer
        self._owner = owner
        self._size = size
        self._clock = clock
        #: Claims whose rows are still being recovered, and claims under which this worker writes.
        self._claimed: dict[int, Writer] = {}
        self._writers: dict[int, Writer] = {}

    async def claim(self, partition: int) -> int:
        """Claim a partition: brokers refuse all other writers. This worker may write after `activate`.

        Raises FencedError if another worker claimed it in the same moment.
        Raises BrokersError, KafkaError or TimeoutError if the brokers do not give the claim.
        Returns the offset of the claim: the end of the partition before it.
        """
        writer = await self._take(partition, NOBODY)
        offset = (await self._send({partition: (writer, self._row(writer))}))[partition]
        self._claimed[partition] = writer
        log.info("claimed partition %d as producer %d, epoch %d", partition, *writer.identity)
        return offset

    def activate(self, partition: int) -> None:
        """Write under the newest claim from now on: the state has been recovered up to it.

        Until then, a batch that was folded on older state is sent under the older claim, and is refused.
        """
        if partition in self._claimed:
            self._writers[partition] = self._claimed.pop(partition)

    def release(self, partition: int) -> None:
        """Forget a partition that has moved."""
        self._claimed.pop(partition, None)
        self._writers.pop(partition, None)

    async def pack(self, partition: int, rows: RowWrites, pace: Pace) -> RecordBatch:
        """Return rows as a compressed record batch for `append`; raises TooLargeError if they do not fit."""
        batch = self._producer().batch(self._size)
        async for part in pace.slices(sliced(rows.items())):
            _pack(batch, partition, part)
        await batch.compress()
        return batch

    async def append(self, rows: Mapping[int, RowWrites | RecordBatch]) -> dict[int, int]:
        """Append rows as one record batch for each partition; return the offset of each, once all are acknowledged.

        ``rows``: by partition, or the batch that `pack` made of them.

        Raises TooLargeError if the rows of a partition do not fit a batch; nothing was sent.
        Raises MovedError if this worker does not hold the claim of a partition; nothing was sent.
        Raises FencedError if another worker has claimed a partition; nothing was appended to it.
        Raises KafkaError or TimeoutError if the brokers do not acknowledge. The batches may or may not have been
        appended.
        """
        moved = [partition for partition in rows if partition not in self._writers]
        if moved:
            raise MovedError(f"partitions {moved} have moved; their new owners do the rest")
        return await self._send({partition: (self._writers[partition], each) for partition, each in rows.items()})

    def due(self, partition: int) -> bool:
        """Whether a partition's claim must be confirmed before further use."""
        writer = self._writers.get(partition)
        return writer is not None and self._clock() - writer.since >= RENEW_SECONDS

    def claims(self) -> list[int]:
        """Return the partitions whose claims this worker holds."""
        return list(self._writers)

    async def confirm(self, partition: int) -> tuple[RowWrites, int]:
        """Raise the epoch of a claim and append a claim row; return the appended rows and their offset.

        Raises FencedError if another worker holds the claim, or the brokers have forgotten it.
        Raises KafkaError or TimeoutError if the brokers do not answer.
        """
        held = self._writers[partition].identity
        writer = await self._take(partition, held)
        if writer.identity.producer_id != held.producer_id:
            raise FencedError(
                f"the brokers have forgotten the claim of partition {partition}; others may have written it since"
            )
        rows = self._row(writer)
        self._writers[partition] = writer
        return rows, (await self._send({partition: (writer, rows)}))[partition]

    async def _take(self, partition: int, held: ProducerIdentity) -> Writer:
        now = self._clock()
        try:
            return Writer(await self._producer().identify(f"{self._topic()}-{partition}", held), now)
        except ProducerFenced:
            raise self._fenced(partition) from None

    def _row(self, writer: Writer) -> RowWrites:
        return {kinds.CLAIM.key(): kinds.CLAIM.encode(Claim(*writer.identity, self._owner))}

    async def _send(self, written: Mapping[int, tuple[Writer, RowWrites | RecordBatch]]) -> dict[int, int]:
        producer, topic = self._producer(), self._topic()
        batches = []
        for partition, (_, rows) in written.items():
            if isinstance(rows, RecordBatch):
                batch = rows
            else:
                batch = producer.batch(self._size)
                _pack(batch, partition, list(rows.items()))
            batches.append((batch, topic, partition))
        for batch, _, partition in batches:
            writer, _ = written[partition]
            batch.stamp = writer.stamp(batch.record_count())
        try:
            return dict(zip(written, await producer.append(batches), strict=True))
        except ProducerFenced:
            raise self._fenced(*written) from None

    @staticmethod
    def _fenced(*partitions: int) -> FencedError:
        one = f"partition {partitions[0]}" if len(partitions) == 1 else f"one of the partitions {list(partitions)}"
        return FencedError(
            f"another worker has taken over {one}, and the brokers refuse what comes from here: "
            "was this process paused for longer than TRUEUP_SESSION_SECONDS?"
        )


def _pack(batch: RecordBatch, partition: int, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
    if batch.extend([(key, value, None, NO_HEADERS) for key, value in rows]) < len(rows):
        raise TooLargeError(f"rows of partition {partition} do not fit one record batch: raise TRUEUP_CHECKPOINT_BYTES")
