"""Sends the records that intake makes from source records, in batches and in order."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter, time
from typing import Any, Final

from aiokafka.structs import TopicPartition

from agents.notices import Notices
from streams.faust.outputs import PackedBatch
from streams.faust.producing import BatchProducer
from streams.metrics.routing import IntakeGauges
from streams.records.making import Maker, Making
from streams.records.skips import PoisonError

#: The most batches in flight: one is sent while the next is read.
FLYING: Final = 2
#: Source records mapped and packed at a time. This many fit the processor's cache (python -m tests.bench.parts).
PART: Final = 250

#: Called with the number of the finished step; tests kill the process there. 1: first records acknowledged, 2: routes
#: acknowledged, 3: offsets committed.
Probe = Callable[[int], None]


class Sending:
    """The packed records made from a batch of source records.

    ``packed``: makes an empty pack for records that are sent together.
    """

    def __init__(self, packed: Callable[[], PackedBatch]) -> None:
        #: Records to send first, and records to send when the first are acknowledged.
        self.first, self.then = packed(), packed()
        #: Next offset of each source partition.
        self.ends: dict[TopicPartition, int] = {}
        self.records = self.raw_answers = 0
        self.started = perf_counter()

    def add(self, making: Making) -> None:
        """Add the records made from some source records."""
        for to, made in ((self.first, making.first), (self.then, making.then)):
            for (label, partition), records in made.items():
                to.pack(label, partition, records)
        self.ends |= making.ends
        self.raw_answers += making.raw_answers


class Sender:
    """Maps source records, sends the result, and counts.

    ``done``: called with the next offset of each source partition, when all records made from earlier source records
    are acknowledged.
    """

    #: The producer; set it before the first batch.
    producer: BatchProducer

    def __init__(
        self,
        maker: Maker,
        gauges: IntakeGauges,
        notices: Notices,
        probe: Probe,
        done: Callable[[dict[TopicPartition, int]], object],
    ) -> None:
        self._maker, self._gauges, self._notices, self._probe, self._done = maker, gauges, notices, probe, done
        self._flying: deque[asyncio.Task[None]] = deque()
        #: The error that ended sending. Nothing is sent afterwards.
        self.failure: BaseException | None = None
        #: Dead forecasts that were answered with their raw score.
        self.raw_answers = 0

    async def room(self) -> None:
        """Wait until another batch may be sent."""
        while len(self._flying) >= FLYING:
            await self._flying[0]

    def send(self, batch: Sequence[tuple[TopicPartition, Any]]) -> None:
        """Map and pack source records, and send the result. Raises `PoisonError` if one cannot be mapped."""
        before = self._flying[-1] if self._flying else None
        self._flying.append(asyncio.create_task(self._deliver(self._packed(batch), before)))

    async def land(self) -> None:
        """Wait for the batches in flight."""
        while self._flying:
            await self._flying[-1]

    def _made(self, batch: Sequence[tuple[TopicPartition, Any]], now: int) -> Making:
        """Return the records made of source records, and count them."""
        making = self._maker.make(batch, now)
        for fate, n in making.fates.items():
            self._gauges.mapped(*fate, n)
        for tp, offset, reason in making.rejected:
            self._notices.dead(tp.topic, tp.partition, offset, reason)
        return making

    def _packed(self, batch: Sequence[tuple[TopicPartition, Any]]) -> Sending:
        """Return the packed records of a batch, made a part at a time."""
        sending, now = Sending(self._empty), int(time() * 1000)
        for at in range(0, len(batch), PART):
            part = batch[at : at + PART]
            try:
                sending.add(self._made(part, now))
            except Exception as exc:
                raise (self._poison(part, now) or exc) from exc
        sending.records = len(batch)
        return sending

    def _poison(self, part: Sequence[tuple[TopicPartition, Any]], now: int) -> PoisonError | None:
        """Find the record that cannot be mapped or packed, by trying each. The results are dropped."""
        for tp, record in part:
            try:
                Sending(self._empty).add(self._maker.make([(tp, record)], now))
            except Exception:  # noqa: BLE001 - any error ended the part
                return PoisonError(tp.topic, tp.partition, record.offset)
        return None

    def _empty(self) -> PackedBatch:
        return PackedBatch(self._maker.topics, lambda: self.producer, self._gauges.produced)

    async def _deliver(self, sending: Sending, before: "asyncio.Task[None] | None") -> None:
        """Send a batch after the one before it. Note that its offsets may be committed.

        Each partition has one record batch in flight. With two, the client could give up the first one while the
        partition has no leader, and still send the second. When the first one is sent again, the router would take it
        for a copy.
        """
        try:
            if before is not None:
                await before
            if self.failure is not None:
                return
            await sending.first.send()
            self._probe(1)
            await sending.then.send()
            self._probe(2)
            self._done(sending.ends)
            self._gauges.batch(sending.records, perf_counter() - sending.started)
            self.raw_answers += sending.raw_answers
        except Exception as exc:  # noqa: BLE001 - after any error the batch was not sent
            self.failure = exc
        finally:
            self._flying.popleft()
