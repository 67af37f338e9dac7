"""Stands for what aiokafka's fetcher asks: a client, and brokers that keep batches in memory."""

import asyncio
import struct
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from aiokafka.structs import TopicPartition


class Log:
    """Stands for aiokafka's client: answers fetches from batches in memory, at once or when there is one."""

    _metadata_max_age_ms = 300_000

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.cluster = SimpleNamespace(leader_for_partition=lambda _: 0, broker_metadata=lambda _: None)
        self.batches: defaultdict[TopicPartition, list[bytes]] = defaultdict(list)
        self._appended = asyncio.Event()

    def append(self, tp: TopicPartition, *batches: bytes) -> None:
        """Append batches made for any offset."""
        for each in batches:
            self.batches[tp].append(struct.pack(">q", self.end(tp)) + each[8:])
        self._appended.set()

    def end(self, tp: TopicPartition) -> int:
        return following(self.batches[tp][-1]) if self.batches[tp] else 0

    async def send(self, _: int, request: Any) -> Any:
        offsets = {TopicPartition(topic, n): offset for topic, each in request.topics for n, offset, _ in each}
        while not any(self.end(tp) > offset for tp, offset in offsets.items()):
            self._appended.clear()
            await self._appended.wait()
        topics: defaultdict[str, list[Any]] = defaultdict(list)
        for tp, offset in offsets.items():
            data = b"".join(each for each in self.batches[tp] if following(each) > offset)
            topics[tp.topic].append((tp.partition, 0, self.end(tp), self.end(tp), [], data))
        return SimpleNamespace(API_VERSION=4, topics=list(topics.items()))


def following(data: bytes) -> int:
    """Return the offset behind the last of a batch."""
    base, last = struct.unpack_from(">q15xi", data)
    return int(base + last + 1)
