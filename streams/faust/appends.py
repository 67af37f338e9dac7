"""Sends record batches straight to the brokers that lead their partitions.

aiokafka's producer is made for single records: a task gathers them, and sends each broker one request at a time. Here
all records are in batches already, and a partition has at most one batch in flight. So each batch is sent at once. The
acknowledgement comes in a third of the time, for half of the work.

Batches that are appended together share one request to each broker, so the partitions of a turn share its cost. A batch
that waits for replicas delays the others of its request, and the requests behind it on its connection.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Final

from aiokafka import errors
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.structs import TopicPartition

from streams.kafka.producer_ids import PRODUCER_FENCED

log = logging.getLogger("trueup")

#: Pause before another attempt, s.
BACKOFF: Final = 0.1
#: Wait for all in-sync replicas.
ACKS: Final = -1
#: Share of an attempt that a leader may wait for its replicas. Then the leader answers that it waits, so it does not
#: count as silent.
REPLICAS: Final = 0.75
_FENCED: Final = frozenset({PRODUCER_FENCED, errors.InvalidProducerEpoch.errno})
#: Connections to each broker. Requests take turns on them, so that one does not wait for the answers to others.
CONNECTIONS: Final = 8

Batches = Mapping[TopicPartition, bytes]
Offsets = dict[TopicPartition, int]


class Appender:
    """Appends for all partitions of a worker.

    ``client``: returns the client, connected to the brokers.
    """

    def __init__(self, client: Callable[[], AIOKafkaClient]) -> None:
        self._client = client
        self._number = count()
        #: Why the last append to a partition failed, until one is acknowledged.
        self.refused: dict[TopicPartition, str] = {}

    async def append(self, batches: Batches, waits: Callable[[], None] = lambda: None) -> Offsets:
        """Append a record batch to each partition. Try until all are acknowledged; return their first offsets.

        A batch that is sent again is appended only once, even by a new leader: its producer id and sequence numbers
        identify it. No other batch may be in flight to these partitions.

        Raises ProducerFenced if a higher epoch of the producer id has appended.
        Raises KafkaError if the brokers refuse for another reason that does not pass.

        ``batches``: finished batches, with producer id, epoch and sequence number.
        ``waits``: called when a leader reports that it has appended a batch and still waits for its replicas.
        """
        client = self._client()
        left = dict(batches)
        offsets: Offsets = {}
        while True:
            led: defaultdict[int, dict[TopicPartition, bytes]] = defaultdict(dict)
            for place, data in left.items():
                with suppress(errors.UnknownTopicOrPartitionError):  # while no broker answers: it gives up after a try
                    await client._wait_on_metadata(place.topic)  # noqa: SLF001 - as aiokafka's own producer does
                leader = client.cluster.leader_for_partition(place)
                if leader is not None and leader >= 0:
                    led[leader][place] = data
                else:
                    self.refused[place] = "the topic is not there, or nobody leads this partition"
            asked = [self._request(leader, part, waits) for leader, part in led.items()]
            for found in [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked):
                offsets |= found
            left = {place: data for place, data in left.items() if place not in offsets}
            if not left:
                return offsets
            await client.force_metadata_update()
            await asyncio.sleep(BACKOFF)

    async def _request(self, leader: int, batches: Batches, waits: Callable[[], None]) -> Offsets:
        """Return the first offsets of the batches that a broker appended. Batches to try again are left out."""
        client = self._client()
        topics = defaultdict(list)
        for (topic, partition), data in batches.items():
            topics[topic].append((partition, data))
        wait_ms = int(client._request_timeout_ms * REPLICAS)  # noqa: SLF001 - no public way to ask
        request = ProduceRequest(None, ACKS, wait_ms, list(topics.items()))
        try:
            response = await client.send(leader, request, group=("appends", next(self._number) % CONNECTIONS))
        except errors.KafkaError as exc:
            if not exc.retriable:
                raise
            log.debug("appending to %s, trying again: %r", ", ".join(topics), exc)  # the client says who is away
            return {}
        found = {}
        for topic, partitions in response.topics:
            for partition, code, offset, *_ in partitions:
                place = TopicPartition(topic, partition)
                if code == errors.NoError.errno:
                    found[place] = offset
                    self.refused.pop(place, None)
                else:
                    self.refused[place] = _refused(leader, f"{topic}/{partition}", code, waits)
        return found


def _refused(leader: int, place: str, code: int, waits: Callable[[], None]) -> str:
    """Log and return why a batch was not appended and will be tried again; raises as `Appender.append`."""
    if code in _FENCED:
        raise errors.ProducerFenced
    error = errors.for_code(code)(place)
    if not error.retriable:
        raise error
    if code == errors.RequestTimedOutError.errno:
        waits()
        log.warning(
            "broker %d waits for a replica of %s that does not follow; it goes on without the replica after "
            "replica.lag.time.max.ms",
            leader,
            place,
        )
    else:
        log.warning("appending to %s, trying again: %r", place, error)
    return type(error).__name__
