"""The merge of a partition's two topics into one order, by the rule of workers (`streams.records.merge`).

A topic keeps its own order, also where its timestamps fall: a live worker does the same. A few chunks of each topic are
held, so memory does not grow with history.
"""

from collections.abc import Iterator
from math import inf
from sys import maxsize
from typing import cast

from aiokafka import TopicPartition

from replay.sources.record import CHUNK, TOPICS, Chunk, SourceRecord
from streams.records.merge import BEHIND, PartitionBuffer


class _Topics:
    """The chunks of both topics that are not buffered yet."""

    def __init__(self, forecasts: Iterator[Chunk], outcomes: Iterator[Chunk]) -> None:
        self.buffer = PartitionBuffer(0, [TopicPartition(name, 0) for name in TOPICS])
        self._left = dict(zip(self.buffer.sources, (forecasts, outcomes), strict=True))

    def caught_up(self, place: TopicPartition) -> bool:
        """Whether all records of a topic were read."""
        return place not in self._left

    def read(self) -> int:
        """Buffer what the place of each topic's first record depends on; return the share that was read."""
        done = 0
        for topic, (place, buffered) in enumerate(self.buffer.queues()):
            while len(buffered) <= BEHIND and place in self._left:
                chunk = next(self._left[place], None)
                if chunk is None:
                    del self._left[place]
                else:
                    self.buffer.add(topic, chunk.records)
                    done += chunk.done
        return done


def merged(forecasts: Iterator[Chunk], outcomes: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield the records of two topics of one partition as one."""
    topics = _Topics(forecasts, outcomes)
    while True:
        done = topics.read()
        batch = topics.buffer.take(CHUNK, maxsize, topics, inf)
        if batch is None:
            return
        topics.buffer.busy = False
        topics.buffer.acknowledged(batch)
        yield Chunk([cast("SourceRecord", record) for _, record in batch.records], done)
