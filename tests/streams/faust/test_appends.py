"""Record batches to the brokers that lead their partitions: what is tried again, and what is not."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from aiokafka.errors import (
    InvalidProducerEpoch,
    KafkaConnectionError,
    KafkaError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.produce import ProduceRequest, ProduceResponse_v7
from aiokafka.structs import TopicPartition

from streams.faust import appends
from streams.kafka.producer_ids import PRODUCER_FENCED

C0, R0, C1 = TopicPartition("calibrated", 0), TopicPartition("resolved", 0), TopicPartition("calibrated", 1)
#: What a broker says of a partition: an error's number, and the offset.
Said = tuple[int, int]


class Cluster:
    """Stands for what aiokafka's client knows and does of a cluster with leaders, and remembers what is asked."""

    def __init__(self, leaders: dict[TopicPartition, int]) -> None:
        self.leaders = leaders
        self.cluster = self
        self._request_timeout_ms = 1000
        self.asked: list[tuple[int, dict[TopicPartition, bytes]]] = []
        self.groups: list[object] = []
        self.updates = 0
        #: By turns: what is answered for each partition, or what is raised; then everything is appended at 7.
        self.script: list[dict[TopicPartition, Said] | Exception] = []
        self.on_update: Callable[[], None] = lambda: None
        #: How often no broker says which partitions a topic has.
        self.unknown = 0

    def leader_for_partition(self, place: TopicPartition) -> int | None:
        return self.leaders.get(place)

    async def _wait_on_metadata(self, _: str) -> None:
        await asyncio.sleep(0)
        if self.unknown:
            self.unknown -= 1
            raise UnknownTopicOrPartitionError

    async def force_metadata_update(self) -> None:
        self.updates += 1
        self.on_update()

    async def send(self, node: int, request: ProduceRequest, *, group: object) -> Any:
        assert request.required_acks == appends.ACKS
        self.groups.append(group)
        batches = {
            TopicPartition(topic, partition): data
            for topic, partitions in request._topics
            for partition, data in partitions
        }
        self.asked.append((node, batches))
        said = self.script.pop(0) if self.script else {}
        if isinstance(said, Exception):
            raise said
        return ProduceResponse_v7(
            [(place.topic, [(place.partition, *said.get(place, (0, 7)), -1, 0)]) for place in batches], 0
        )


def append(cluster: Cluster, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    batches = {place: f"{place.topic}/{place.partition}".encode() for place in places}
    return asyncio.run(appends.Appender(lambda: cluster).append(batches))


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "BACKOFF", 0.0)


def test_what_one_broker_leads_is_one_request() -> None:
    cluster = Cluster({C0: 1, R0: 1, C1: 2})
    assert append(cluster, [C0, R0, C1]) == {C0: 7, R0: 7, C1: 7}
    assert sorted(cluster.asked) == [
        (1, {C0: b"calibrated/0", R0: b"resolved/0"}),
        (2, {C1: b"calibrated/1"}),
    ]
    assert cluster.updates == 0


@pytest.mark.parametrize("error", [NotLeaderForPartitionError, UnknownTopicOrPartitionError])
def test_a_partition_that_moved_is_asked_for_again_where_it_went_and_the_others_are_not(error: type[Any]) -> None:
    cluster = Cluster({C0: 1, R0: 1})
    cluster.script = [{C0: (error.errno, -1), R0: (0, 5)}]
    cluster.on_update = lambda: cluster.leaders.update({C0: 2})
    assert append(cluster, [C0, R0]) == {C0: 7, R0: 5}
    assert cluster.asked[1:] == [(2, {C0: b"calibrated/0"})]
    assert cluster.updates == 1


def test_a_topic_that_no_broker_could_be_asked_about_is_asked_for_again() -> None:
    cluster = Cluster({})
    cluster.unknown = 1
    cluster.on_update = lambda: cluster.leaders.update({C0: 1})
    assert append(cluster, [C0]) == {C0: 7}
    assert cluster.updates == 1


def test_a_leader_that_waits_for_its_replicas_is_asked_again_and_that_is_told() -> None:
    cluster, told = Cluster({C0: 1, R0: 1}), [0]
    cluster.script = [{C0: (RequestTimedOutError.errno, -1), R0: (0, 5)}, KafkaConnectionError("gone")]

    def waits() -> None:
        told[0] += 1

    batches = {place: f"{place.topic}/{place.partition}".encode() for place in (C0, R0)}
    assert asyncio.run(appends.Appender(lambda: cluster).append(batches, waits)) == {C0: 7, R0: 5}
    assert told == [1]
    assert cluster.asked[1:] == [(1, {C0: b"calibrated/0"})] * 2


def test_why_a_batch_waits_is_known_until_it_is_appended() -> None:
    cluster, said = Cluster({C0: 1, R0: -1}), list[object]()
    cluster.script = [{C0: (UnknownTopicOrPartitionError.errno, -1)}]
    appender = appends.Appender(lambda: cluster)

    def found() -> None:
        said.append(dict(appender.refused))
        cluster.leaders[R0] = 1

    cluster.on_update = found
    asyncio.run(appender.append({C0: b"x", R0: b"y"}))
    assert said == [
        {C0: "UnknownTopicOrPartitionError", R0: "the topic is not there, or nobody leads this partition"},
    ]
    assert appender.refused == {}


async def test_requests_share_a_few_connections_in_turn() -> None:
    cluster = Cluster({C0: 1})
    appender = appends.Appender(lambda: cluster)
    for _ in range(2 * appends.CONNECTIONS):
        await appender.append({C0: b"x"})
    assert len(set(cluster.groups)) == appends.CONNECTIONS
    assert cluster.groups[: appends.CONNECTIONS] == cluster.groups[appends.CONNECTIONS :]


@pytest.mark.parametrize("code", [PRODUCER_FENCED, InvalidProducerEpoch.errno])
def test_an_older_epoch_is_fenced(code: int) -> None:
    cluster = Cluster({C0: 1})
    cluster.script = [{C0: (code, -1)}]
    with pytest.raises(ProducerFenced):
        append(cluster, [C0])


@pytest.mark.parametrize("error", [TopicAuthorizationFailedError, OutOfOrderSequenceNumber])
def test_what_will_not_pass_is_raised_with_its_place(error: type[Any]) -> None:
    cluster = Cluster({C0: 1})
    cluster.script = [{C0: (error.errno, -1)}]
    with pytest.raises(error, match="calibrated/0"):
        append(cluster, [C0])
    assert len(cluster.asked) == 1


def test_an_error_of_the_connection_that_will_not_pass_is_raised() -> None:
    cluster = Cluster({C0: 1})
    cluster.script = [KafkaError("unsupported")]
    with pytest.raises(KafkaError, match="unsupported"):
        append(cluster, [C0])
