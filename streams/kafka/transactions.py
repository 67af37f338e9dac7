"""Watches transactions of other producers that stay open and hold back later records.

A consumer of committed records stops at the last stable offset: the first record of the first open transaction. If the
producer never ends the transaction, and the coordinator does not abort it, no later record is ever read. Lag is counted
up to the same offset, so it stays 0. The requests of KIP-664 (Apache Kafka 3.0) tell whose transaction it is.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.types import CompactArray, Int16, Int32, Int64, Schema
from aiokafka.structs import TopicPartition

from streams.kafka.broker_requests import TAGS, TEXT, BrokersError, request, struct

log = logging.getLogger("trueup")

#: An open transaction is reported after this long, s. Kafka's own limit is a minute by default.
HANGING: Final = 75.0

_PRODUCERS: Final = CompactArray(
    ("producer_id", Int64),
    ("producer_epoch", Int32),
    ("last_sequence", Int32),
    ("last_timestamp", Int64),
    ("coordinator_epoch", Int32),
    ("start_offset", Int64),
    TAGS,
)
_PARTITIONS: Final = CompactArray(
    ("partition", Int32), ("error_code", Int16), ("error_message", TEXT), ("producers", _PRODUCERS), TAGS
)
#: Asks for the producers that have written to partitions, and where their open transactions begin.
_DescribeProducers = request(
    struct(
        61,
        0,
        Schema(("topics", CompactArray(("topic", TEXT), ("partitions", CompactArray(Int32)), TAGS)), TAGS),
        Schema(
            ("throttle_time_ms", Int32),
            ("topics", CompactArray(("topic", TEXT), ("partitions", _PARTITIONS), TAGS)),
            TAGS,
        ),
    )
)
#: Asks for the transactional ids that a broker coordinates and this user may describe.
_ListTransactions = request(
    struct(
        66,
        0,
        Schema(("states", CompactArray(TEXT)), ("producers", CompactArray(Int64)), TAGS),
        Schema(
            ("throttle_time_ms", Int32),
            ("error_code", Int16),
            ("unknown", CompactArray(TEXT)),
            ("found", CompactArray(("transactional_id", TEXT), ("producer_id", Int64), ("state", TEXT), TAGS)),
            TAGS,
        ),
    )
)


async def owner(client: AIOKafkaClient, place: TopicPartition, offset: int) -> tuple[int, str] | None:
    """Return the producer id and transactional id of the transaction that begins at an offset.

    The transactional id is empty if no coordinator knows it or this user may not ask. The result is None if no broker
    tells.
    """
    try:
        await client.add_topic(place.topic)
        leader = client.cluster.leader_for_partition(place)
        said = await client.send(leader, _DescribeProducers([(place.topic, [place.partition], {})], {}))
        (((_, ((_, _, _, producers, _),), _),)) = said.topics
        found = next((each[0] for each in producers if each[5] == offset), None)
        if found is None:
            return None
        for broker in client.cluster.brokers():
            listed = await client.send(broker.nodeId, _ListTransactions([], [found], {}))
            if listed.found:
                return found, listed.found[0][0]
    except (BrokersError, KafkaError, ValueError):
        return None
    return found, ""


@dataclass
class _Open:
    """An open transaction that delays records: first offset, number of records, since when, and whether reported."""

    offset: int
    records: int
    since: float
    said: str = ""


class HeldBack:
    """Watches records of partitions behind open transactions.

    ``brokers``: addresses of the cluster, for the command that ends a transaction.
    """

    def __init__(self, brokers: Sequence[str]) -> None:
        self._brokers = ",".join(brokers)
        self._open: dict[TopicPartition, _Open] = {}

    async def look(self, ends: Mapping[TopicPartition, tuple[int, int]], client: AIOKafkaClient) -> None:
        """Note the last stable offset and the end of each partition, and log once which transaction hangs.

        ``client``: a connected client, which asks whose transaction it is.
        """
        now, before = monotonic(), self._open
        self._open = {}
        for place, (stable, end) in ends.items():
            if end > stable >= 0:
                known = before.get(place)
                each = known if known is not None and known.offset == stable else _Open(stable, 0, now)
                each.records = end - stable
                self._open[place] = each
        for place, each in list(self._open.items()):
            if not each.said and now - each.since >= HANGING:
                each.said = self._sentence(place, each, await owner(client, place, each.offset))
                log.warning("%s", each.said)

    def _sentence(self, place: TopicPartition, each: _Open, whose: tuple[int, str] | None) -> str:
        if whose is None:
            named = "of a producer that the brokers do not name"
        else:
            named = f"of transactional id {whose[1]!r}, producer {whose[0]}" if whose[1] else f"of producer {whose[0]}"
        return (
            f"{place.topic}/{place.partition} cannot be read beyond offset {each.offset}: a transaction {named}, "
            f"has been open for {HANGING:g} s. If its producer does not end it: kafka-transactions.sh "
            f"--bootstrap-server {self._brokers} abort --topic {place.topic} --partition {place.partition} "
            f"--start-offset {each.offset}"
        )

    def samples(self, labels: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """Yield the gauges, with topics named as in labels; any thread may ask."""
        for place, each in list(self._open.items()):
            of = labels.get(place.topic, place.topic), str(place.partition)
            yield "held_back_records", of, float(each.records)
            yield "held_back_seconds", of, monotonic() - each.since

    @property
    def said(self) -> tuple[str, ...]:
        """Sentences about hanging transactions; any thread may ask."""
        return tuple(each.said for each in list(self._open.values()) if each.said)
