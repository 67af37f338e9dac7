"""The wiring: what the application is told, what the agent does with a batch, and what ends the process."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import NotEnoughReplicasError
from faust.types import TP

from agents.topology import Topology, build, log_end
from state import kinds
from state.frames import OtherFormat, seal
from state.journal import NONE, Entry
from streams.config import in_force
from streams.config.settings import Settings
from streams.faust.inputs import DataLossError
from streams.records.merge import PartitionBuffer
from streams.sources.registry import RegistryError
from tests.events import forecast, outcome
from tests.streams.brokers import F0, O0, Brokers, Run
from tests.streams.fakes import Producer, record, wire

C0 = TP("trueup-state-changelog", 0)


class Ended:
    """Counts how often the process was ended."""

    times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture
def ended() -> Ended:
    return Ended()


@pytest.fixture
def topology(run: Run, tmp_path: Path, ended: Ended) -> Topology:
    async def make() -> Topology:
        made = wire(tmp_path)
        made.abort = ended
        made.app.consumer.loop = asyncio.get_running_loop()
        return made

    made: Topology = run(make())
    return made


# -- wiring --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [1, 30, 300])
def test_nothing_is_lost_by_a_default_of_faust_and_it_starts_with_every_session(tmp_path: Path, session: float) -> None:
    settings = Settings(data_dir=tmp_path, session_seconds=session, request_seconds=min(session, 15))
    faust = build(settings, abort=lambda: None).app.faust
    conf = faust.conf
    assert not faust.in_transaction
    assert conf.stream_wait_empty
    assert conf.producer_acks == -1
    assert conf.consumer_auto_offset_reset == "earliest"
    assert conf.recovery_consistency_check
    assert not conf.topic_allow_declare
    assert conf.topic_disable_leader
    assert not conf.web_enabled
    assert conf.broker_heartbeat_interval < conf.broker_session_timeout <= conf.broker_request_timeout
    assert conf.broker_session_timeout <= conf.broker_rebalance_timeout


# -- what the transport asks ---------------------------------------------------------------------------------------


class Handed:
    """Stands for the agent's stream: yields events and notes which were acknowledged when the next is asked for."""

    def __init__(self, *messages: Any) -> None:
        self._messages = messages
        self.asked = 0

    def noack(self) -> "Handed":
        return self

    async def events(self) -> AsyncIterator[Any]:
        for message in self._messages:
            self.asked += 1
            yield SimpleNamespace(value=message.value, message=message)


PAIR = [forecast("a", 0.3, 1000), outcome("a", 1, 2000)]


@pytest.fixture
def messages(run: Run, topology: Topology) -> list[Any]:
    """Take up partition 0 and return a pair of records as two batches."""
    consumer = topology.app.consumer
    consumer._thread = Brokers()
    run(topology.applied(0))
    made = []
    for tp, sent in zip((F0, O0), PAIR, strict=True):
        consumer._buffer(tp, [record(tp.topic, 0, 0, sent.ts, sent.key, sent.value)])
        batch = consumer._buffer_of(0).take(1, 1000, consumer, 0)
        assert batch is not None
        consumer.partition_buffers[0].busy = False
        message = consumer._message([batch])
        consumer.track_message(message)
        made.append(message)
    cast("Producer", topology.app.faust.producer).sent.clear()  # the topics, which are noted when it is taken up
    return made


def serve(run: Run, topology: Topology, *messages: Any) -> Handed:
    handed = Handed(*messages)
    run(cast("Any", topology.app.faust.agents["process"]).fun(handed))
    return handed


def test_a_batch_from_before_its_partition_was_taken_up_again_is_void(
    run: Run, topology: Topology, messages: list[Any], ended: Ended
) -> None:
    topology.app.consumer.partition_buffers[0] = PartitionBuffer(0, (F0, O0))
    serve(run, topology, *messages)
    assert cast("Producer", topology.app.faust.producer).sent == []
    assert topology.app.consumer._committable == {}
    assert all(message.acked for message in messages), "nobody waits for them"
    assert ended.times == 0


@pytest.mark.parametrize("topic", [C0.topic, "calibrated"], ids=["the changelog", "the outputs"])
def test_a_send_that_fails_ends_the_process_and_acknowledges_nothing(
    run: Run,
    topology: Topology,
    messages: list[Any],
    ended: Ended,
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
) -> None:
    producer = cast("Producer", topology.app.faust.producer)
    append = producer.append

    async def failing(batches: Any) -> Any:
        if any(to == topic for _, to, _ in batches):
            raise TimeoutError("late")
        return await append(batches)

    monkeypatch.setattr(producer, "append", failing)
    handed = serve(run, topology, *messages)
    assert (ended.times, handed.asked) == (1, 1)
    assert isinstance(topology.failure, TimeoutError)
    assert topology.app.consumer._committable == {}
    assert not messages[0].acked


@pytest.mark.parametrize("moved", [True, False], ids=["moved", "still here"])
def test_a_batch_whose_partition_moved_is_left_to_its_new_owner(
    run: Run,
    topology: Topology,
    messages: list[Any],
    ended: Ended,
    moved: bool,  # noqa: FBT001 - a case
) -> None:
    consumer = topology.app.consumer
    if moved:
        consumer.partition_buffers.pop(0)
    topology.processor.close(0)
    serve(run, topology, messages[0])
    assert cast("Producer", topology.app.faust.producer).sent == []
    assert consumer._committable == {}
    assert ended.times == (not moved)
    assert messages[0].acked is moved


def test_failed_ends_the_process_once_and_keeps_the_first_reason(
    topology: Topology, ended: Ended, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = RuntimeError("first"), RuntimeError("second")
    for failure in (first, second):
        topology.failed(failure)
    assert ended.times == 1
    assert topology.failure is first
    (logged,) = [each for each in caplog.records if each.levelno == logging.CRITICAL]
    assert logged.getMessage() == "cannot go on: RuntimeError: first"
    assert logged.exc_info
    assert topology.unready == "it cannot go on"


@pytest.mark.parametrize(
    ("failure", "says", "defect"),
    [
        (Exception("IO error: No space left on device: While appending"), "free some, or give the worker", False),
        (DataLossError("deleted unread"), "DataLossError: deleted unread", False),
        (TimeoutError("not acknowledged in 15 s: calibrated/1"), "15 s: calibrated/1", False),
        (TimeoutError(), "TimeoutError: ", True),
        (KeyError("a"), "KeyError: 'a'", True),
    ],
)
def test_an_end_that_shows_no_defect_says_what_to_do_and_has_no_traceback(
    caplog: pytest.LogCaptureFixture, failure: BaseException, says: str, *, defect: bool
) -> None:
    log_end(failure)
    (line,) = caplog.records
    assert says in line.message
    assert bool(line.exc_info) is defect


@pytest.mark.parametrize("what", ["state", "configuration"])
def test_what_another_build_wrote_ends_the_start_for_good_and_without_a_traceback(
    topology: Topology, run: Run, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    statuses: list[int] = []
    topology.abort = statuses.append
    if what == "configuration":
        topology.failed(in_force.InForceError("it has format version 77, run that build"))
    else:
        row = seal(kinds.COUNTS.letter[0], 77, b"")
        topology.restore(C0, [record(C0.topic, 0, 41, 0, kinds.COUNTS.key("s"), row)])
        with pytest.raises(OtherFormat) as caught:
            run(topology.applied(0))
        topology.failed(caught.value)
    assert statuses == [78]
    (line,) = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert "has format version 77" in line.message
    assert line.exc_info is None


# -- readiness and samples -----------------------------------------------------------------------------------------


def value(topology: Topology, name: str, **labels: str) -> float | None:
    return topology.gauges.registry.get_sample_value(f"trueup_{name}", labels)


def test_a_worker_that_has_not_started_or_whose_brokers_are_silent_is_not_ready_and_well(topology: Topology) -> None:
    assert topology.unready == "no partition is served"
    assert value(topology, "ready") == 0
    assert value(topology, "recovery_remaining_records") == 0
    assert value(topology, "lag_records", topic="forecasts", partition="0") is None
    topology.app.contact.lost = "Kafka at kafka:9092 has not answered for 10 s; nothing is lost"
    assert topology.unready == topology.app.contact.lost
    assert topology.healthy


async def test_a_scrape_makes_nothing_that_belongs_to_the_loop(tmp_path: Path) -> None:
    made: Topology = build(Settings(data_dir=tmp_path), abort=lambda: None)
    for recovering in (False, True):
        made.app.faust.in_recovery = recovering
        assert value(made, "recovery_remaining_records") == 0
    assert cast("Any", made.app.faust)._consumer is None
    assert cast("Any", made.app.faust.tables)._recovery is None


@pytest.fixture
def up(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """Let the application look started, with partition 0 assigned."""
    brokers = topology.app.consumer._thread = Brokers()
    brokers.assigned = {F0, O0, C0}
    topology.app.faust._started.set()
    monkeypatch.setattr(topology.app.faust, "rebalancing", False)
    monkeypatch.setattr(topology.app.faust, "in_recovery", False)
    monkeypatch.setattr(topology.app.faust.tables, "actives_ready", True)
    return brokers


def test_it_is_ready_when_partitions_are_assigned_restored_and_served(
    topology: Topology, up: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert topology.unready == ""
    assert value(topology, "ready") == 1
    faust = topology.app.faust
    for owner, name, changed in (
        (up, "assigned", set()),
        (faust, "rebalancing", True),
        (faust, "in_recovery", True),
        (faust.tables, "actives_ready", False),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, changed)
            assert topology.unready == "no partition is served", name
    buffer = topology.app.consumer.partition_buffers[0] = PartitionBuffer(0, (F0, O0))
    buffer.journal.append(Entry(1, (0, 0), (1, 0), 1, 0, (0, 0, 0), bytes(16), (NONE, NONE), bytes(1)))
    assert topology.unready == "folding again what was answered since the last checkpoint"


async def test_it_is_not_ready_while_it_waits_for_the_registry_and_its_lag_is_shown_all_the_same(
    topology: Topology, up: Brokers
) -> None:
    assert up.assigned
    asked, answered = asyncio.Event(), asyncio.Event()

    async def ask() -> str:
        if not asked.is_set():
            asked.set()
            raise RegistryError("nobody listens")
        await answered.wait()
        return "a schema"

    for wait in (topology.wait, topology.processor._terms.decoder.schemas.wait):
        asked.clear()
        answered.clear()
        waiting = asyncio.create_task(wait.answer(ask, "a schema"))
        await asked.wait()
        await asyncio.sleep(0)
        assert topology.unready == "waiting for the schema registry, for a schema"
        assert topology.healthy
        assert topology.serving
        assert value(topology, "ready") == 0
        assert (value(topology, "registry_waiting_seconds") or 0) > 0
        answered.set()
        assert await waiting == "a schema"
        assert (topology.unready, value(topology, "registry_waiting_seconds")) == ("", 0)


def test_lag_buffers_and_sizes_are_sampled_by_partition(
    run: Run,
    topology: Topology,
    up: Brokers,
) -> None:
    run(topology.applied(0))
    rows = value(topology, "state_rows", partition="0") or 0
    topology.table.store.write(0, [(b"La", b"1234")], 0)
    topology.app.consumer._buffer(F0, [record("forecasts", 0, 7, 1)])
    up.ends[F0] = 11
    assert value(topology, "buffered_records", topic="forecasts", partition="0") == 1
    assert (
        value(topology, "buffered_bytes", topic="forecasts", partition="0")
        == topology.app.consumer.partition_buffers[0].sizes[0]
    )
    assert value(topology, "fetch_paused", topic="forecasts", partition="0") == 0
    assert value(topology, "lag_records", topic="forecasts", partition="0") == 1 + 3
    assert value(topology, "buffered_records", topic="outcomes", partition="0") == 0
    assert value(topology, "lag_records", topic="outcomes", partition="0") is None, "its end is not known"
    assert (value(topology, "state_rows", partition="0") or 0) > rows
    assert (value(topology, "state_bytes", partition="0") or 0) >= 6
    assert 0 <= (value(topology, "disk_free_ratio") or -1) <= 1
    assert 0 <= (value(topology, "memory_free_ratio") or -1) <= 1


def test_what_is_in_force_is_acknowledged_once_a_claim_and_before_anything_else(run: Run, topology: Topology) -> None:
    producer = cast("Producer", topology.app.producer)

    def announced() -> list[in_force.InForce]:
        assert {row.key for sent in producer.sent for row in sent.rows} <= {kinds.INPUTS.key(), kinds.WIDTHS.key()}
        return in_force.read((row.key, row.value) for partition, row in producer.announced if partition == 3)

    producer.failure = NotEnoughReplicasError()
    with pytest.raises(NotEnoughReplicasError):
        run(topology.applied(3))
    producer.failure = None
    for _ in range(2):
        run(topology.applied(3))
    (first,) = announced()
    assert first.configuration == in_force.described(topology.settings)
    assert (first.applied, first.next, first.claim) == (0, (0, 0), topology.table.claimed(3))
    count = len(producer.announced)
    topology.table._claimed[3] = topology.table._claimed[3][0], 12
    run(topology.applied(3))
    assert [each.claim for each in announced()] == [first.claim, 12]
    assert len(producer.announced) == 2 * count
