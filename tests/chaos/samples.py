"""What a soak measures while it runs: memory and files of each worker, and how long answers take."""

import asyncio
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from tests.chaos.fleet import Fleet
from tests.e2e.world import World

PAGE = 4096
#: Events whose first answer is remembered: later copies of it say nothing of the wait.
REMEMBERED = 200_000


@dataclass(frozen=True)
class Sample:
    """A moment of the soak."""

    #: Seconds since the start.
    at: float
    #: Of each worker that runs: its process id, and its memory in MB; and its open files.
    resident: dict[int, tuple[int, float]]
    files: dict[int, int]
    #: Milliseconds from forecast to answer, of the answers since the sample before.
    waits: list[int] = field(repr=False)


class Sampler:
    """Takes a sample every few seconds on threads of its own; a context.

    The wait of an answer is the time at which a consumer sees it, less the Kafka timestamp of its forecast, which
    is the time at which the load sent it.
    """

    def __init__(self, world: World, fleet: Fleet, every: float = 5.0) -> None:
        self.samples: list[Sample] = []
        self.began = time.monotonic()
        self._world, self._fleet, self._every = world, fleet, every
        self._waits: list[int] = []
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._sample, name="samples"),
            threading.Thread(target=lambda: asyncio.run(self._listen()), name="answers"),
        ]

    def __enter__(self) -> Self:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._closing.set()
        for thread in self._threads:
            thread.join()

    def now(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.began

    def _sample(self) -> None:
        while not self._closing.wait(self._every):
            resident, files = {}, {}
            for member in self._fleet.members:
                process = Path(f"/proc/{member.pid}")
                try:
                    pages = int((process / "statm").read_text().split()[1])
                    files[member.number] = len(list((process / "fd").iterdir()))
                    resident[member.number] = member.pid, pages * PAGE / 1e6
                except OSError:  # it ends just now
                    continue
            waits, self._waits = self._waits, []
            self.samples.append(Sample(self.now(), resident, files, waits))

    async def _listen(self) -> None:
        seen: OrderedDict[str, None] = OrderedDict()
        topic = self._world.topic("calibrated")
        while not self._closing.is_set():
            consumer = AIOKafkaConsumer(bootstrap_servers=self._world.bootstrap, auto_offset_reset="latest")
            try:
                await consumer.start()
                consumer.assign([TopicPartition(topic, n) for n in range(self._world.partitions)])
                while not self._closing.is_set():
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        now = time.time_ns() // 1_000_000
                        for record in records:
                            event_id = orjson.loads(record.value)["event_id"]
                            if event_id not in seen:
                                seen[event_id] = None
                                self._waits.append(now - record.timestamp)
                    while len(seen) > REMEMBERED:
                        seen.popitem(last=False)
            except KafkaError:
                await asyncio.sleep(0.5)
            finally:
                await consumer.stop()
