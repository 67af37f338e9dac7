"""The load: a mixed stream of events at a steady rate, for as long as it is asked for, to a broker that may be away."""

import asyncio
import itertools
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from streams.kafka.partitioner import partition
from tests.e2e.world import World
from tests.events import Sent, mixed

#: Events made at once.
PART = 1000
#: How often records are sent, s.
TICK = 0.1
#: How far the load may be behind its rate, s: on a machine that cannot keep up, records that are due then are not made.
LATE = 60.0
#: Time between events, ms, by the records' own clock; outcomes come up to fifty such steps later.
STEP = 100
#: Longest wait for an acknowledgement before a send is done again, ms.
REQUEST_MS = 5000


class Acknowledged(NamedTuple):
    """A send that was acknowledged: the offset of its last record, and when, s since 1970."""

    offset: int
    at: float


class Feed:
    """Produces on a thread of its own, straight to the brokers; a context.

    A send that fails is done again: the copies are events like any other, which the worker must tell apart. A partition
    whose leader is away does not hold the others up.

    ``rate``: records a second, at most.
    ``live``: records carry the time at which they are sent, instead of a clock of their own.
    """

    #: Further options of its producer.
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, world: World, seed: int, rate: float, *, live: bool = False) -> None:
        self._world = world
        self._rate = rate
        self._live = live
        self._records = self._endless(seed)
        self._extra: deque[list[Sent]] = deque()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="feed")
        #: Events made.
        self.events = 0
        #: Event time of the record made last, ms.
        self.clock = 0
        #: Of each partition of the forecasts: the offset of the last record of each send, and when it was acknowledged.
        self.acknowledged: dict[int, list[Acknowledged]] = {n: [] for n in range(world.partitions)}
        self._least = 0
        #: Parts of the load that are not acknowledged yet, and whether nobody waits for them any more.
        self._pending = 0
        self._abandoned = False

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, at once."""
        self._least, self._abandoned = 0, True
        self._closing.set()
        self._thread.join()

    def add(self, records: list[Sent]) -> None:
        """Send these too, with their own times."""
        self._extra.append(records)

    def finish(self, least: int) -> None:
        """Return when as many events have been made, as fast as it goes, and all is acknowledged."""
        self._least = least
        self._closing.set()
        self._thread.join()

    def _endless(self, seed: int) -> Iterator[Sent]:
        for part in itertools.count():
            made = mixed(PART, seed=seed * 100_000 + part, start=1_000_000 + part * PART * STEP, step=STEP)
            self.events += PART
            for sent in made.sent:
                self.clock = sent.ts
                yield sent

    async def _run(self) -> None:
        producer = await self._connected()
        lanes: list[asyncio.Queue[list[Sent]]] = [asyncio.Queue() for _ in range(self._world.partitions)]
        async with asyncio.TaskGroup() as tasks:
            sending = [tasks.create_task(self._send(producer, n, lane)) for n, lane in enumerate(lanes)]
            await self._fill(lanes)
            for task in sending:
                task.cancel()
        await producer.stop()

    async def _fill(self, lanes: list[asyncio.Queue[list[Sent]]]) -> None:
        """Give every partition its records, in order; when the load ends, return when all are acknowledged."""
        began, taken, most = time.monotonic(), 0, len(lanes) * LATE / TICK
        while not self._closing.is_set() or self.events < self._least or self._extra or self._pending:
            if self._abandoned:
                return
            due = int((time.monotonic() - began) * self._rate) - taken
            if self._closing.is_set():
                due = 5 * PART if self.events < self._least else 0
            taken += due
            batch = list(itertools.islice(self._records, due if self._pending < most else 0))
            if self._live:
                now = time.time_ns() // 1_000_000
                batch = [record._replace(ts=now) for record in batch]
            while self._extra:
                batch += self._extra.popleft()
            of_partition: dict[int, list[Sent]] = defaultdict(list)
            for record in batch:
                of_partition[partition(record.key, len(lanes))].append(record)
            for n, records in of_partition.items():
                for start in range(0, len(records), PART):
                    lanes[n].put_nowait(records[start : start + PART])
                    self._pending += 1
            await asyncio.sleep(0 if self._closing.is_set() else TICK)
            while self._closing.is_set() and self._pending and not self._abandoned:  # noqa: ASYNC110 - set by a thread
                await asyncio.sleep(0.01)

    async def _send(self, producer: AIOKafkaProducer, number: int, lane: asyncio.Queue[list[Sent]]) -> None:
        while True:
            records = await lane.get()
            while True:
                try:
                    appended = await self._appended(producer, number, records)
                except KafkaError:
                    await asyncio.sleep(TICK)
                    continue
                break
            if appended is not None:
                self.acknowledged[number].append(Acknowledged(appended, time.time()))
            self._pending -= 1

    async def _appended(self, producer: AIOKafkaProducer, number: int, records: list[Sent]) -> int | None:
        """Return the offset of the last forecast among records that were acknowledged."""
        sent = [
            await producer.send(self._world.topic(r.topic), r.value, key=r.key, timestamp_ms=r.ts, partition=number)
            for r in records
        ]
        forecasts = self._world.topic("forecasts")
        offsets = [each.offset for each in await asyncio.gather(*sent) if each.topic == forecasts]
        return max(offsets, default=None)

    async def _connected(self) -> AIOKafkaProducer:
        while True:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._world.bootstrap,
                linger_ms=5,
                acks="all",
                request_timeout_ms=REQUEST_MS,
                **self.options,
            )
            try:
                await producer.start()
            except KafkaError:
                await producer.stop()
                await asyncio.sleep(0.2)
            else:
                return producer
