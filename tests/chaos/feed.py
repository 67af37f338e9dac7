"""The load: a mixed stream of events at a steady rate, for as long as it is asked for, to a broker that may be away."""

import asyncio
import itertools
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from tests.e2e.world import World
from tests.events import Sent, mixed

#: Events made at once.
PART = 1000
#: How often records are sent, s.
TICK = 0.1
#: Time between events, ms, by the records' own clock; outcomes come up to fifty such steps later.
STEP = 100


class Feed:
    """Produces on a thread of its own, straight to the broker; a context.

    A send that fails is done again: the copies are events like any other, which the worker must tell apart.

    Parameters
    ----------
    rate
        Records a second.
    live
        Records carry the time at which they are sent, instead of a clock of their own.
    """

    def __init__(self, world: World, seed: int, rate: float, *, live: bool = False) -> None:
        self._world = world
        self._rate = rate
        self._live = live
        self._records = self._endless(seed)
        self._extra: deque[list[Sent]] = deque()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="feed")
        #: Events made, and records acknowledged.
        self.events, self.acknowledged = 0, 0
        #: Event time of the record made last, ms.
        self.clock = 0
        self._least = 0

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, at once."""
        self._least = 0
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
        began, taken = time.monotonic(), 0
        while not self._closing.is_set() or self.events < self._least or self._extra:
            due = int((time.monotonic() - began) * self._rate) - taken
            if self._closing.is_set():
                due = 5 * PART if self.events < self._least else 0
            batch = list(itertools.islice(self._records, due))
            taken += due
            if self._live:
                now = time.time_ns() // 1_000_000
                batch = [record._replace(ts=now) for record in batch]
            while self._extra:
                batch += self._extra.popleft()
            for start in range(0, len(batch), PART):
                producer = await self._send(producer, batch[start : start + PART])
            await asyncio.sleep(0 if self._closing.is_set() else TICK)
        await producer.stop()

    async def _send(self, producer: AIOKafkaProducer, records: list[Sent]) -> AIOKafkaProducer:
        while True:
            try:
                sent = [
                    await producer.send(self._world.topic(r.topic), r.value, key=r.key, timestamp_ms=r.ts)
                    for r in records
                ]
                await asyncio.gather(*sent)
            except KafkaError:
                await producer.stop()
                producer = await self._connected()
            else:
                self.acknowledged += len(records)
                return producer

    async def _connected(self) -> AIOKafkaProducer:
        while True:
            producer = AIOKafkaProducer(bootstrap_servers=self._world.settings.brokers[0], linger_ms=5, acks="all")
            try:
                await producer.start()
            except KafkaError:
                await producer.stop()
                await asyncio.sleep(0.2)
            else:
                return producer
