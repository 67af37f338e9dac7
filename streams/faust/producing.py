"""How a worker produces: in prepared record batches. Each is acknowledged before the next of its partition is sent."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition
from faust.transport.drivers import aiokafka as driver

from streams.config.settings import Settings
from streams.faust.appends import Appender
from streams.faust.client import hasten
from streams.faust.contact import Contact
from streams.kafka import codecs, producer_ids, provenance
from streams.kafka.metadata import Metadata
from streams.kafka.producer_ids import NOBODY, ProducerIdentity
from streams.kafka.provenance import Described

if TYPE_CHECKING:
    from streams.faust.transport import BatchTransport

#: Smaller batches are not compressed: starting a codec takes longer than it saves.
FEW = 1000
#: Larger batches are compressed in a thread: the codec takes milliseconds, and does not hold the interpreter's lock.
MANY = 100_000
#: Longest wait for slow replicas, s. Brokers go on without one after ``replica.lag.time.max.ms``, 30 s by default.
REPLICA_SECONDS = 60.0

_STAMP, _CHECKSUM = Struct(">qhi"), Struct(">I")

#: Key, value, timestamp (ms) and headers of a record to produce.
Produced = tuple[bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]]]


class RecordBatch(BatchBuilder):  # type: ignore[misc]  # aiokafka ships no type hints
    """A record batch that may have a producer id that is not its producer's."""

    #: Producer id, epoch and sequence number of the first record; None: those of the producer. With a stamp, brokers
    #: recognise a batch that is sent again.
    stamp: tuple[int, int, int] | None = None

    def __init__(self, size: int, codec: int) -> None:
        super().__init__(size, codec)
        #: All records, while they are few enough to stay uncompressed.
        self._few: list[Produced] | None = [] if codec else None

    def extend(self, records: Sequence[Produced]) -> int:
        """Append records while they fit; return how many did. It saves a call of `append` for each record."""
        append, first = self._builder.append, self._relative_offset
        for key, value, timestamp, headers in records:
            if append(self._relative_offset, timestamp, key, value, headers) is None:
                break
            self._relative_offset += 1
        taken = int(self._relative_offset - first)
        if self._few is not None:
            self._few = None if self._builder.size() > FEW else [*self._few, *records[:taken]]
        return taken

    async def compress(self) -> None:
        """Compress a large batch before its stamp is known. Nothing can be appended afterwards."""
        if self.size() >= MANY:
            await asyncio.to_thread(self._build)

    def sealed(self, producer_id: int, epoch: int, sequence: int) -> bytes:
        """Return the bytes of the batch, under its own stamp or else this one. Nothing can be appended afterwards."""
        stamp = self.stamp or (producer_id, epoch, sequence)
        if self._buffer is not None:
            return _stamped(self._buffer, *stamp)
        if self._few and len(self._few) == self._relative_offset:
            plain = RecordBatch(FEW * 2, 0)
            plain.extend(self._few)
            self._builder: Any = plain._builder
        self._set_producer_state(*stamp)
        return cast("bytes", self._build())


def _stamped(batch: bytes, producer_id: int, epoch: int, sequence: int) -> bytes:
    """Return a finished batch with another stamp (at byte 43) and a new checksum of the bytes from 21 on."""
    changed = bytearray(batch)
    _STAMP.pack_into(changed, 43, producer_id, epoch, sequence)
    _CHECKSUM.pack_into(changed, 17, calc_crc32c(memoryview(changed)[21:]))
    return bytes(changed)


class BatchProducer:
    """Produces prepared record batches and returns their offsets.

    ``settings``: codec and size of batches, and the longest wait for brokers.
    ``contact``: whether brokers answer.
    ``client``: returns the client, connected to the brokers.
    ``own``: returns the id of batches without a stamp.
    """

    def __init__(
        self,
        settings: Settings,
        contact: Contact,
        client: Callable[[], AIOKafkaClient],
        own: Callable[[], ProducerIdentity] = lambda: NOBODY,
    ) -> None:
        #: Longest wait for brokers, s.
        self.request_timeout = settings.request_seconds
        self._codec, self._size = codecs.NUMBERS[settings.compression], settings.batch_bytes
        self._contact, self._own = contact, own
        #: Returns the client.
        self.client = client
        self._appender = Appender(client)
        #: Number of the next record of each partition, modulo 2^31.
        self._sequences: defaultdict[TopicPartition, int] = defaultdict(int)

    def batch(self, size: int | None = None) -> RecordBatch:
        """Return an empty record batch with a limit of bytes before compression; None: ``TRUEUP_BATCH_BYTES``."""
        return RecordBatch(size or self._size, self._codec)

    async def identify(self, transactional_id: str, held: ProducerIdentity) -> ProducerIdentity:
        """Return the producer id of a transactional id with a new epoch; see `streams.kafka.producer_ids.take`.

        Raises ProducerFenced if ``held`` is not the newest.
        Raises BrokersError or KafkaError if the brokers do not give it.
        Raises TimeoutError if no broker has answered within ``request_seconds``.
        """
        try:
            async with self._contact.within(self.request_timeout):
                return await producer_ids.take(self.client(), transactional_id, held)
        except TimeoutError:
            raise TimeoutError(f"no coordinator of {transactional_id} in {self.request_timeout:g} s") from None

    async def describe(self, app: str, changelog: str) -> Described:
        """Return the brokers' description of a changelog; see `streams.kafka.provenance.describe`.

        Raises KafkaError if the brokers refuse.
        Raises TimeoutError if no broker has answered within ``request_seconds``.
        """
        try:
            async with self._contact.within(self.request_timeout):
                return await provenance.describe(self.client(), app, changelog)
        except TimeoutError:
            raise TimeoutError(f"no broker described {changelog} in {self.request_timeout:g} s") from None

    async def identities(self, topics: Iterable[str]) -> list[Metadata]:
        """Return the descriptions of topics, see `streams.kafka.provenance.identity`. Raises as `describe`."""
        try:
            async with self._contact.within(self.request_timeout):
                client = self.client()
                return [await provenance.identity(client, topic) for topic in topics]
        except TimeoutError:
            raise TimeoutError(f"no broker described the inputs in {self.request_timeout:g} s") from None

    async def put(self, topic: str, partition: int, key: bytes | None, value: bytes) -> None:
        """Append one record and wait until it is acknowledged; raises as `append`."""
        batch = self.batch()
        batch.extend([(key, value, None, [])])
        await self.append([(batch, topic, partition)])

    async def append(self, batches: Sequence[tuple[RecordBatch, str, int]]) -> list[int]:
        """Append record batches, each to a different topic and partition; return the offsets of their first records.

        No other batch may be in flight to these partitions.

        Raises ProducerFenced or KafkaError if the brokers refuse one.
        Raises TimeoutError if they have not acknowledged all within ``request_seconds``, or within `REPLICA_SECONDS` if
        leaders report that they wait for replicas. This ends the process.
        """
        own, sealed = self._own(), {}
        for batch, topic, partition in batches:
            place = TopicPartition(topic, partition)
            sequence = self._sequences[place]
            seal = partial(batch.sealed, *own, sequence)
            sealed[place] = seal() if batch.size() < MANY else await asyncio.to_thread(seal)
            if batch.stamp is None:
                self._sequences[place] = (sequence + batch.record_count()) % 2**31
        now = asyncio.get_running_loop().time
        end = now() + REPLICA_SECONDS
        try:
            async with self._contact.within(self.request_timeout) as limit:

                def waits() -> None:
                    limit.reschedule(max(limit.when() or 0.0, min(now() + self.request_timeout, end)))

                offsets = await self._appender.append(sealed, waits)
        except TimeoutError:
            why = self._appender.refused
            places = ", ".join(f"{at.topic}/{at.partition}" + (f" ({why[at]})" if at in why else "") for at in sealed)
            raise TimeoutError(f"not acknowledged in {self.request_timeout:g} s: {places}") from None
        return [offsets[place] for place in sealed]


def identity_of(producer: AIOKafkaProducer) -> ProducerIdentity:
    """Return the producer id of an idempotent producer that has started."""
    manager = producer._txn_manager  # noqa: SLF001 - where it keeps its id
    return ProducerIdentity(manager.producer_id, manager.producer_epoch)


class FaustProducer(BatchProducer, driver.Producer):
    """The producer of a Faust application."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as Faust calls it
        driver.Producer.__init__(self, *args, **kwargs)
        transport = cast("BatchTransport", self.transport)
        BatchProducer.__init__(
            self,
            transport.inputs.settings,
            transport.contact,
            lambda: self._ensure_producer().client,
            lambda: identity_of(self._ensure_producer()),
        )
        self._attempt_seconds = transport.inputs.settings.attempt_seconds

    def _settings_extra(self) -> Mapping[str, Any]:
        # A retried batch is appended once and in order.
        return {"enable_idempotence": True}

    def _new_producer(self, transactional_id: str | None = None) -> AIOKafkaProducer:
        producer = super()._new_producer(transactional_id)
        hasten(producer.client, self._attempt_seconds, self._contact)
        return producer
