"""A broker that is silent holds nobody up: what is asked of it ends soon, and the others are asked."""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.errors import KafkaError, NodeNotReadyError, RequestTimedOutError
from aiokafka.protocol.admin import ApiVersionRequest_v0, ApiVersionResponse_v0
from aiokafka.protocol.group import JoinGroupRequest
from aiokafka.protocol.metadata import MetadataRequest, MetadataResponse_v0
from aiokafka.structs import BrokerMetadata

from streams.faust import client as clients
from streams.faust import contact as contacts
from streams.faust.client import Client, directly, hasten, stop
from streams.faust.contact import Contact

#: Of the brokers' answers, s.
ATTEMPT, PATIENCE = 1.0, 30.0


class Broker:
    """Answers requests for versions and for metadata until it is frozen, and counts connections."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.awake = asyncio.Event()
        self.awake.set()
        self.asked = 0
        self.port = 0
        self.others: list[Broker] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                kind, _, correlation = struct.unpack_from(">hhi", await reader.readexactly(size))
                await self.awake.wait()
                self.asked += 1
                if kind == ApiVersionRequest_v0.API_KEY:
                    body = ApiVersionResponse_v0(0, [(kind, 0, 0) for kind in (3, 11, 18)]).encode()
                else:
                    nodes = [(each.node, "127.0.0.1", each.port) for each in self.others]
                    body = MetadataResponse_v0(nodes, []).encode()
                writer.write(struct.pack(">ii", len(body) + 4, correlation) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def cluster(brokers: int = 2) -> AsyncIterator[tuple[Client, list[Broker]]]:
    made = [Broker(node) for node in range(brokers)]
    servers = [await asyncio.start_server(broker.serve, "127.0.0.1", 0) for broker in made]
    for broker, server in zip(made, servers, strict=True):
        broker.port, broker.others = server.sockets[0].getsockname()[1], made
    client = AIOKafkaClient(bootstrap_servers=f"127.0.0.1:{made[-1].port}", request_timeout_ms=int(PATIENCE * 1000))
    hasten(client, ATTEMPT, Contact(["kafka"]))
    assert isinstance(client, Client)
    await client.bootstrap()
    try:
        async with asyncio.timeout(20):
            yield client, made
    finally:
        for broker in made:
            broker.awake.set()
        await client.close()
        for server in servers:
            server.close()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing says when
        await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "FIRST_PROBE", 0.01)
    monkeypatch.setattr(clients, "PROBE", 0.02)


async def test_a_connection_to_a_frozen_broker_holds_up_no_other() -> None:
    async with cluster() as (client, brokers):
        brokers[0].awake.clear()
        frozen = asyncio.create_task(client.send(0, MetadataRequest([])))
        await until(client._locks[0, 0].locked)
        await client.send(1, MetadataRequest([]))
        assert not frozen.done()
        with pytest.raises(KafkaError):
            await frozen


async def test_metadata_and_coordinators_are_asked_of_brokers_that_answer() -> None:
    async with cluster(5) as (client, brokers):
        for broker in brokers[:4]:
            broker.awake.clear()
            with pytest.raises(KafkaError):
                await client.send(broker.node, MetadataRequest([]))
        assert {client.get_random_node() for _ in range(100)} == {4}
        assert await client.force_metadata_update()
        for broker in brokers:
            broker.awake.clear()
        with pytest.raises(KafkaError):
            await client.send(4, MetadataRequest([]))
        assert client.get_random_node() in range(5)


async def test_a_broker_that_answers_again_is_asked_again_and_the_log_has_one_line_of_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="trueup")
    async with cluster() as (client, brokers):
        brokers[0].awake.clear()
        for _ in range(20):
            with pytest.raises(KafkaError):
                await client.send(0, MetadataRequest([]))
        await until(lambda: bool(caplog.records))
        brokers[0].awake.set()
        await until(lambda: not client.silent)
        await client.send(0, MetadataRequest([]))
    said = [record.getMessage() for record in caplog.records if record.name == "trueup"]
    assert said[0] == "broker 0 does not answer"
    assert said[1].startswith("broker 0 answers again, after ")
    assert len(said) == 2


async def test_a_broker_that_freezes_again_is_silent_again() -> None:
    async with cluster() as (client, brokers):
        for _ in range(2):
            await client.send(0, MetadataRequest([]))
            brokers[0].awake.clear()
            with pytest.raises(RequestTimedOutError):
                await client.send(0, MetadataRequest([]))
            asked = asyncio.create_task(client.send(0, MetadataRequest([])))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert isinstance(asked.exception(), NodeNotReadyError)
            brokers[0].awake.set()
            await until(lambda: not client.silent)


async def test_a_broker_that_the_cluster_has_replaced_is_asked_when_the_cluster_has_it_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="trueup")
    async with cluster() as (client, brokers):
        brokers[0].awake.clear()
        with pytest.raises(KafkaError):
            await client.send(0, MetadataRequest([]))
        for broker in brokers:
            broker.others = brokers[1:]
        await until(lambda: bool(client.replaced))
        assert client.cluster.brokers() == {BrokerMetadata(1, "127.0.0.1", brokers[1].port, None)}
        with pytest.raises(NodeNotReadyError):
            await client.send(0, MetadataRequest([]))
        brokers[0].awake.set()
        for broker in brokers:
            broker.others = brokers
        with pytest.raises(NodeNotReadyError):
            await client.send(0, MetadataRequest([]))
        while client.cluster.broker_metadata(0) is None:  # an answer may be from before
            await client.force_metadata_update()
        await client.send(0, MetadataRequest([]))
        assert not client.replaced
    said = [record.getMessage() for record in caplog.records if record.name == "trueup"]
    assert said[-2:] == ["broker 0 does not answer, and the cluster goes on without it", "broker 0 is back"]


async def test_members_of_the_group_are_waited_for() -> None:
    async with cluster() as (client, brokers):
        await client.send(0, MetadataRequest([]))
        brokers[0].awake.clear()
        joining = asyncio.create_task(client.send(0, JoinGroupRequest("group", 1000, 1000, "", "", "consumer", [])))
        done, _ = await asyncio.wait([joining], timeout=3 * ATTEMPT)
        assert not done
        joining.cancel()


def test_answers_are_handled_whole_and_in_order_however_they_come() -> None:
    handled: list[bytes] = []
    connection: Any = SimpleNamespace(_reader=SimpleNamespace(), _handle_frame=handled.append)
    for _ in range(2):  # a connection that is looked up again is as it was
        directly(connection)
    answers = [b"first", b"", b"x" * 300]
    stream = b"".join(struct.pack(">i", len(each)) + each for each in answers)
    for part in (stream[:2], stream[2:7], stream[7:20], stream[20:]):
        connection._reader.feed_data(part)
    assert handled == answers


def test_answers_that_come_after_a_connection_was_closed_are_nobodys() -> None:
    connection: Any = SimpleNamespace(_reader=SimpleNamespace(), handled=0)

    def handle(_: bytes) -> None:
        connection.handled += 1
        connection._reader = None  # what aiokafka does with an answer to another request

    connection._handle_frame = handle
    reader = connection._reader
    directly(connection)
    reader.feed_data(struct.pack(">i", 1) + b"a" + struct.pack(">i", 1) + b"b")
    assert connection.handled == 1
    directly(connection)  # one that broke before it was used


class Resting:
    """A consumer one of whose requests rests before its next attempt, with aiokafka's own way to stop."""

    def __init__(self) -> None:
        self._client = self
        self.closed = False
        self.stopping = asyncio.Event()

    async def stop(self) -> None:
        fetching, resting = (asyncio.create_task(asyncio.sleep(60)) for _ in range(2))
        await asyncio.sleep(0)
        self.stopping.set()
        await Fetcher.close(SimpleNamespace(_fetch_task=fetching, _fetch_waiters=[], _pending_tasks=[resting]))

    async def close(self) -> None:
        self.closed = True


async def test_who_is_cancelled_while_a_consumer_is_stopped_is_cancelled() -> None:
    consumer = Resting()
    stopping = asyncio.create_task(stop(cast("AIOKafkaConsumer", consumer)))
    await consumer.stopping.wait()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert consumer.closed


async def test_silence_of_all_brokers_is_noted_by_what_is_asked_anyway_and_so_is_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(contacts, "SECONDS", 1.5)
    monkeypatch.setattr(contacts, "EARLY", 0.0)
    monkeypatch.setattr(contacts, "LOOK", 0.01)
    monkeypatch.setattr(contacts, "SLOW", 0.3)
    async with cluster() as (client, brokers):
        watching = asyncio.create_task(client.contact.watch())
        await client.send(0, MetadataRequest([]))
        brokers[0].awake.clear()
        with pytest.raises(KafkaError):
            await client.send(0, MetadataRequest([]))
        await client.send(1, MetadataRequest([]))
        assert client.contact.silence == 0, "the other one answers"
        assert not client.contact.lost
        brokers[1].awake.clear()
        with pytest.raises(KafkaError):
            await client.send(1, MetadataRequest([]))
        await until(lambda: bool(client.contact.lost))
        async with client.contact.within(1.0):
            await asyncio.sleep(1.5)  # nobody could have answered
        brokers[0].awake.set()
        await until(lambda: not client.contact.lost)
        watching.cancel()
    said = [record.message for record in caplog.records if record.message.startswith("Kafka at")]
    assert said[0] == "Kafka at kafka has not answered for 1.5 s; nothing is lost"
    assert said[1].startswith("Kafka at kafka answers again")
    assert len(said) == 2


async def test_nothing_that_is_asked_is_no_silence() -> None:
    async with cluster() as (client, brokers):
        await client.send(0, MetadataRequest([]))
        for broker in brokers:
            broker.awake.clear()
        await asyncio.sleep(0.05)
        assert client.contact.silence == 0
        with pytest.raises(TimeoutError):
            async with client.contact.within(0.05):
                await asyncio.sleep(5)


async def test_a_look_in_the_turn_in_which_the_time_is_up_is_no_defect() -> None:
    wrong: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
    contact = Contact([])
    contact.asked()
    with pytest.raises(TimeoutError):
        async with contact.within(1e-9):  # so all its times are up in the next turn
            await asyncio.sleep(5)
    assert not wrong


async def test_where_no_broker_of_the_last_metadata_answers_the_first_ones_are_asked_again() -> None:
    async with cluster() as (client, brokers), cluster(1) as (_, (moved,)):
        moved.node = 7
        client._bootstrap_servers = f"127.0.0.1:{moved.port}"
        for broker in brokers:
            broker.awake.clear()
        for node in (0, 1):
            with pytest.raises(KafkaError):
                await client.send(node, MetadataRequest([]))
        await until(lambda: client.cluster.broker_metadata(7) is not None)
        assert await client.send(7, MetadataRequest([]))
