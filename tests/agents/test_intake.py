"""Intake: offsets follow acknowledgements, routes follow forecasts, and nothing goes on where topics have changed."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import fastavro
import orjson
import pytest
from aiokafka.errors import CommitFailedError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from agents import intake as module
from agents import taken_up
from agents.intake import Intake
from agents.worker import FAILED
from state.witnesses import SLACK
from streams.config.settings import Settings, SettingsError
from streams.faust import offsets
from streams.faust.inputs import DataLossError
from streams.faust.state_table import PartitionsError
from streams.kafka import owners, partitioner, provenance, topics
from streams.kafka.metadata import Metadata
from streams.kafka.permissions import of_intake
from streams.metrics.routing import IntakeGauges
from streams.records import skips
from streams.records.making import Maker
from streams.records.output_avro import SCHEMAS, AvroValues
from streams.records.skips import PoisonError
from tests.streams.brokers import Run
from tests.streams.fakes import Batch

STREAMS = """
[sources.scores]
topic = "scores.v3"
role = "forecast"
event_id = "id"
stream = "model"
p = "risk"

[sources.labels]
topic = "labels.v1"
role = "outcome"
event_id = "id"
y = "y"
when = { kind = "final" }
"""
S0, L0 = TopicPartition("scores.v3", 0), TopicPartition("labels.v1", 0)


class Producer:
    """Acknowledges when it is let, and remembers in which order batches were sent."""

    client = None

    def __init__(self) -> None:
        self.sent: list[tuple[str, int, Batch]] = []
        #: What was written down of what is in force.
        self.announced: list[tuple[str, int, bytes, bytes]] = []
        self.acknowledges = asyncio.Event()
        self.acknowledges.set()
        self.failure: Exception | None = None

    def batch(self) -> Batch:
        return Batch(900_000)

    async def append(self, batches: Sequence[tuple[Batch, str, int]]) -> list[int]:
        await asyncio.sleep(0)
        self.sent += [(topic, partition, batch) for batch, topic, partition in batches]
        await self._acknowledged()
        return [0] * len(batches)

    async def send_and_wait(self, topic: str, value: bytes, key: bytes, partition: int) -> None:
        await self._acknowledged()
        self.announced.append((topic, partition, key, value))

    async def _acknowledged(self) -> None:
        await self.acknowledges.wait()
        if self.failure is not None:
            raise self.failure

    def topics(self) -> list[str]:
        return [topic for topic, _, _ in self.sent]


class Consumer:
    """Hands out what it was given, and remembers commits."""

    def __init__(self) -> None:
        self.given: dict[TopicPartition, list[Any]] = {}
        self.ends = {S0: 0, L0: 0}
        self.first = {S0: 0, L0: 0}
        self.commits: list[dict[TopicPartition, tuple[int, str]]] = []
        self.sought: dict[TopicPartition, int] = {}
        self.refuses = False

    def assignment(self) -> set[TopicPartition]:
        return {S0, L0}

    def paused(self) -> set[TopicPartition]:
        return set()

    def subscription(self) -> set[str]:
        return set()

    def pause(self, *_: TopicPartition) -> None: ...

    def resume(self, *_: TopicPartition) -> None: ...

    async def getmany(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(timeout_ms / 1e6)
        given, self.given = self.given, {}
        for tp, records in given.items():
            self.ends[tp] = records[-1].offset + 1
        return given

    async def position(self, tp: TopicPartition) -> int:
        await asyncio.sleep(0)
        return self.ends[tp]

    def last_stable_offset(self, tp: TopicPartition) -> int:
        return self.ends[tp]

    highwater = last_stable_offset

    async def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        await asyncio.sleep(0)
        return {tp: self.ends[tp] for tp in tps}

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        await asyncio.sleep(0)
        return {tp: self.first[tp] for tp in tps}

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.sought[tp] = offset

    async def commit(self, offsets: dict[TopicPartition, tuple[int, str]]) -> None:
        await asyncio.sleep(0)
        if self.refuses:
            raise CommitFailedError
        self.commits.append(offsets)


def fetched(
    tp: TopicPartition,
    offset: int,
    value: dict[str, Any],
    headers: tuple[tuple[str, bytes], ...] = (),
    timestamp: int = 100,
) -> Any:
    return SimpleNamespace(
        offset=offset, timestamp=timestamp, key=b"k", value=orjson.dumps(value), headers=headers, topic=tp.topic
    )


class Scene(SimpleNamespace):
    """An intake without brokers."""

    intake: Intake
    consumer: Consumer
    producer: Producer
    stored: dict[TopicPartition, OffsetAndMetadata]
    identities: dict[str, Metadata]

    async def begin(self) -> None:
        await self.intake.on_partitions_assigned({S0, L0})
        assert self.intake.failure is None, self.intake.failure

    def give(
        self,
        tp: TopicPartition,
        *values: dict[str, Any],
        start: int = 0,
        headers: tuple[tuple[str, bytes], ...] = (),
        timestamp: int = 100,
    ) -> None:
        self.consumer.given[tp] = [
            fetched(tp, start + i, value, headers, timestamp + i) for i, value in enumerate(values)
        ]

    async def steps(self, n: int = 3) -> None:
        for _ in range(n):
            await self.intake._step()
            await asyncio.sleep(0.001)


@pytest.fixture
def settings(tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    (tmp_path / "streams.toml").write_text(getattr(request, "param", STREAMS))
    own = {"TRUEUP_STREAMS": str(tmp_path / "streams.toml"), "TRUEUP_DATA_DIR": str(tmp_path / "data")}
    return Settings.from_env({**own, "TRUEUP_COMMIT_SECONDS": "0.05"})


@pytest.fixture
def scene(run: Run, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Scene:
    async def make() -> Scene:
        made = Intake(settings, IntakeGauges("0", ["scores", "labels"], list))
        scene = Scene(intake=made, consumer=Consumer(), producer=Producer(), stored={})
        scene.identities = {
            name: Metadata("cluster", name, "6f", 2) for name in (*made.maker.topics.values(), *made.maker.readers)
        }

        async def identity(_: object, name: str) -> Metadata:
            await asyncio.sleep(0)
            return scene.identities[name]

        async def stored(*_: object) -> dict[TopicPartition, OffsetAndMetadata]:
            await asyncio.sleep(0)
            return scene.stored

        async def written(_: Settings, topics: list[str]) -> AsyncIterator[tuple[str, list[Any]]]:
            (topic,) = topics
            assert topic == settings.configurations
            records = [SimpleNamespace(key=key, value=value) for _, _, key, value in scene.producer.announced]
            for at in range(0, len(records), 2):
                yield topic, records[at : at + 2]

        monkeypatch.setattr(provenance, "identity", identity)
        monkeypatch.setattr(offsets, "committed", stored)
        monkeypatch.setattr(taken_up, "batches", written)
        made._consumer = scene.consumer
        made._producer = made._sender.producer = cast("Any", scene.producer)
        return scene

    made: Scene = run(make())
    return made


def score(event_id: str, risk: float = 0.5, model: str = "m") -> dict[str, Any]:
    return {"id": event_id, "model": model, "risk": risk}


@pytest.mark.parametrize("settings", [STREAMS.replace('p = "risk"', 'p = "risk"\nts = "at"')], indirect=True)
async def test_times_in_another_unit_and_dead_letters_are_told_at_once_with_what_to_do(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    await scene.begin()
    times = [score(f"e{n}") | {"at": 1_700_000_000 + n} for n in range(3)]
    scene.give(S0, *times, score("bad", risk=2) | {"at": 0}, timestamp=1_700_000_100_000)
    scene.give(L0, {"id": "e1", "y": 1, "kind": "draft"}, timestamp=1_700_000_100_000)
    await scene.steps()
    scene.intake._tell()
    shown = scene.intake._gauges.exposition().decode()
    assert 'trueup_far_off_times_total{topic="scores"} 3.0' in shown
    assert 'trueup_mapped_records_total{fate="passed",source="labels"} 1.0' in shown
    assert 'trueup_dead_letters_total{reason="probability",topic="scores"} 1.0' in shown
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    (far,) = [line for line in said if "far off" in line]
    assert "ts of source scores says 1970-01-20 16:13:20 UTC (1700000002 ms)" in far
    assert 'set unit = "s" for ts, in place of ms' in far
    (dead,) = [line for line in said if "dead letters" in line]
    assert dead.startswith("dead letters of scores.v3, probability: 1. ")
    assert "scores.v3/0@3" in dead
    assert dead.endswith("trueup letters --topic scores.v3 --reason probability")


TRACE = (("traceparent", b"00-1"), ("other", b"x"))
ANSWERING = f'on_error = "raw"\nclosed = true\n[streams.m]\n{STREAMS}'


def of_topic(scene: Scene, topic: str) -> list[tuple[int, bytes | None, dict[str, Any], int | None, Any]]:
    """Return the records sent to a topic: partition, key, value, timestamp and headers."""
    return [
        (partition, key, orjson.loads(value or b""), stamp, headers)
        for t, partition, batch in scene.producer.sent
        if t == topic
        for (key, value, stamp), headers in zip(batch.rows, batch.headers, strict=True)
    ]


@pytest.mark.parametrize("settings", [ANSWERING], indirect=True)
async def test_with_schemas_intake_answers_in_avro(scene: Scene) -> None:
    scene.intake.maker.values = AvroValues({"calibrated": 7})
    await scene.begin()
    scene.give(S0, score("e3", model="unknown"))
    await scene.steps()
    ((_, _, batch),) = [each for each in scene.producer.sent if each[0] == "calibrated"]
    ((_, value, _),) = batch.rows
    assert value is not None
    found = fastavro.schemaless_reader(io.BytesIO(value[5:]), SCHEMAS["calibrated"], None)
    assert isinstance(found, dict)
    assert value[:5] == b"\0\0\0\0\7"
    assert (found["event_id"], found["p"], found["calibrated"], found["draw"]) == ("e3", 0.5, False, None)
    assert (found["reason"], found["dead_letter"]["offset"]) == ("unknown_stream", 0)


@pytest.mark.parametrize("settings", [ANSWERING], indirect=True)
async def test_a_dead_forecast_is_answered_by_intake_before_its_offset_is_committed(scene: Scene) -> None:
    await scene.begin()
    scene.producer.acknowledges.clear()
    scene.give(S0, score("e1"), score("e2", risk=2), score("e3", model="unknown"), headers=TRACE)
    await scene.steps()
    await asyncio.sleep(0.06)
    await scene.steps(1)
    assert scene.consumer.commits == []
    scene.producer.acknowledges.set()
    scene.give(S0, score("far"), start=3, timestamp=10**14)
    await scene.steps()
    raw = {"calibrated": False, "raw": 0.5, "p": 0.5}
    dead = {"topic": "scores.v3", "partition": 0}
    unknown = {**raw, "event_id": "e3", "stream": "unknown", "scope": "unknown", "reason": "unknown_stream", "ts": 102}
    ahead = {**raw, "event_id": "far", "stream": "m", "scope": "m", "reason": "far_ahead", "ts": 10**14}
    assert of_topic(scene, "calibrated") == [
        (partitioner.partition(key, 2), key, {**said, "dead_letter": {**dead, "offset": offset}}, None, headers)
        for key, said, offset, headers in ((b"unknown", unknown, 2, [TRACE[0]]), (b"m", ahead, 3, []))
    ]
    letters = [value["offset"] for _, _, value, _, _ in of_topic(scene, "dead-letters")]
    assert letters == [1, 2, 3]
    assert ("raw_answers", (), 2.0) in list(scene.intake.samples())


@pytest.mark.parametrize("settings", [ANSWERING], indirect=True)
def test_intake_may_write_answers_where_it_gives_some(settings: Settings) -> None:
    assert ("calibrated", ("Write",)) in {(grant.name, grant.operations) for grant in of_intake(settings)}
    assert "calibrated" in Intake(settings, IntakeGauges("0", [], list)).maker.topics


async def test_partitions_leave_when_what_is_on_its_way_is_committed_unless_that_comes_too_late(scene: Scene) -> None:
    await scene.begin()
    scene.producer.acknowledges.clear()
    scene.give(S0, score("e1"))
    await scene.steps()
    leaving = asyncio.create_task(scene.intake.on_partitions_revoked({S0, L0}))
    scene.give(S0, score("e2"), start=1)
    await scene.steps()
    assert not leaving.done()
    scene.producer.acknowledges.set()
    await leaving
    assert [commit[S0][0] for commit in scene.consumer.commits] == [1]
    assert scene.producer.topics() == ["forecasts", "trueup-routes"]  # e2 is left to the new owner
    await scene.begin()
    scene.consumer.refuses = True
    scene.give(S0, score("e2"), start=1)
    await scene.steps()
    await scene.intake.on_partitions_revoked({S0, L0})
    assert scene.intake.failure is None


async def test_a_defect_in_a_send_ends_it_as_what_it_is(scene: Scene) -> None:
    await scene.begin()
    scene.producer.failure = ZeroDivisionError("a defect")
    scene.give(S0, score("e1"))
    await scene.steps()
    assert scene.intake.failure is scene.producer.failure


@pytest.mark.parametrize("where", ["canonical", "lacking"])
async def test_a_record_that_cannot_be_mapped_is_named_and_nothing_behind_it_is_sent(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    await scene.begin()
    (reader,) = scene.intake.maker.readers["scores.v3"]
    if where == "lacking":
        scene.intake.maker.asking["scores.v3"] = [reader]
    mapped = getattr(reader, where)

    def failing(record: Any, *rest: Any) -> Any:
        if b"bad" in record.value:
            raise RecursionError("a defect that this record shows")
        return mapped(record, *rest)

    monkeypatch.setattr(reader, where, failing)
    scene.give(S0, score("e1"), score("e2"), score("bad"), score("e3"), start=5)
    with pytest.raises(PoisonError, match=r"scores.v3/0@7 cannot be read or folded"):
        await scene.steps()
    assert scene.producer.topics() == []
    assert scene.consumer.commits == []


async def test_a_record_stamped_ahead_before_the_mark_of_a_transaction_holds_nothing_back(scene: Scene) -> None:
    await scene.begin()
    fetched = scene.consumer.getmany

    async def getmany(timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        given = await fetched(timeout_ms)
        if S0 in given:
            scene.consumer.ends[S0] += 1
        return given

    scene.consumer.getmany = getmany  # type: ignore[method-assign]
    scene.give(S0, score("ahead"), timestamp=100 + 2 * SLACK)
    scene.give(L0, *({"id": f"e{i}", "y": 1, "kind": "final"} for i in range(3)))
    await scene.steps()
    assert len(of_topic(scene, "trueup-labels")) == 3


async def test_what_operators_left_out_of_a_source_is_known_when_its_partition_is_taken_up(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    def skip(offset: int, **changes: Any) -> tuple[str, int, bytes, bytes]:
        made = skips.SourceSkip(S0.topic, "6f", 0, offset, f"ticket {offset}", "me", "now")._replace(**changes)
        return "trueup-configurations", 0, *skips.source_record(made)

    scene.stored = {S0: OffsetAndMetadata(40, noted("6f", 2, 2, 2))}
    scene.producer.announced = [
        skip(39),
        skip(40),
        skip(44),
        skip(41, topic_id="5e"),
        skip(42, topic="other"),
        skip(43, partition=7),
    ]
    await scene.begin()
    left_out = scene.intake._taken.skipped
    assert left_out[S0] == {n: f"skipped at {n}: ticket {n}" for n in (39, 40, 44)}
    assert [at for at in (39, 40, 41, 42, 43, 44) if f"@{at}: ticket" in caplog.text] == [40, 44]
    scene.producer.announced.append(("trueup-configurations", 0, b"skipped/6f/0/1", b"{"))
    await scene.intake.on_partitions_assigned({S0})
    assert "skipped/6f/0/1" in str(scene.intake.failure)


def test_an_intake_that_dies_of_a_record_counts_it_and_says_what_helps(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(_: Intake, __: asyncio.Event) -> None:
        raise PoisonError("scores.v3", 0, 7)

    async def nothing_lacks(_: Settings) -> list[str]:
        return []

    monkeypatch.setattr(Intake, "run", run)
    monkeypatch.setattr(topics, "lacking", nothing_lacks)
    monkeypatch.setattr(owners, "claim", nothing_lacks)
    monkeypatch.setattr(module, "collect_rarely", lambda: None)
    there = replace(settings, data_dir=tmp_path / "data", metrics_port=0)
    for times in (1, 2, 3):
        caplog.clear()
        assert module.run(there) == FAILED
        assert ("trueup state skip scores.v3/0@7 --reason" in caplog.text) == (times == 3)
        assert "scores.v3/0@7" in caplog.text


async def test_records_wait_for_their_schemas_and_are_dropped_with_their_partitions(scene: Scene) -> None:
    await scene.begin()
    there, asked = asyncio.Event(), list[dict[str, str]]()

    async def load(schemas: dict[str, str]) -> None:
        asked.append(schemas)
        await there.wait()

    asks = SimpleNamespace(name="a", lacking=lambda _: [] if there.is_set() else ["7"])
    scene.intake.maker.schemas = cast("Any", SimpleNamespace(load=load))
    scene.intake.maker.asking["scores.v3"] = cast("Any", [asks])
    scene.give(S0, score("e1"))
    await scene.steps(1)
    scene.give(S0, score("e2"), start=1)
    await scene.steps(1)
    assert asked == [{"7": "a"}]
    assert scene.producer.topics() == []
    there.set()
    await scene.steps()
    assert [value["event_id"] for _, _, value, _, _ in of_topic(scene, "forecasts")] == ["e1", "e2"]
    there.clear()
    scene.give(S0, score("e3"), start=2)
    await scene.steps(1)
    await scene.intake.on_partitions_revoked({S0, L0})
    there.set()
    await scene.begin()
    sent = len(scene.producer.sent)
    await scene.steps()
    assert len(scene.producer.sent) == sent
    # What is fetched while partitions are taken up is fetched again, as they are sought.
    await scene.intake.on_partitions_revoked({S0, L0})
    there.clear()
    scene.give(S0, score("e3"), start=2)
    await scene.steps(1)
    await scene.begin()
    there.set()
    await scene.steps()
    assert len(scene.producer.sent) == sent


def test_of_the_sources_of_a_topic_the_first_counts_whose_condition_holds(tmp_path: Path) -> None:
    twice = STREAMS + STREAMS.replace("[sources.scores]", "[sources.others]").replace(
        "[sources.labels]", "[sources.more]"
    )
    (tmp_path / "streams.toml").write_text(twice)
    made = Maker(Settings.from_env({"TRUEUP_STREAMS": str(tmp_path / "streams.toml")}))
    made.know(dict.fromkeys(made.topics, 2), dict.fromkeys(made.readers, "6f"))
    making = made.make([(S0, fetched(S0, 0, score("e1")))], 100)
    assert [len(records) for records in making.first.values()] == [1]


def noted(topic_id: str, *partitions: int) -> str:
    return json.dumps({"id": topic_id, "epoch": 4, "partitions": partitions})


@pytest.mark.parametrize(
    ("meta", "error"),
    [
        (noted("6f", 2, 2, 2), None),
        ("", None),
        (noted("00", 2, 2, 2), DataLossError),
        (noted("6f", 2, 4, 2), PartitionsError),
    ],
)
async def test_it_goes_on_only_where_the_topics_are_what_they_were(
    scene: Scene, meta: str, error: type[Exception] | None
) -> None:
    scene.stored = {S0: OffsetAndMetadata(7, meta), L0: OffsetAndMetadata(-1, "")}
    scene.consumer.first[L0] = 5
    await scene.intake.on_partitions_assigned({S0, L0})
    if error is None:
        assert scene.intake.failure is None
        assert scene.consumer.sought == {S0: 7, L0: 5}
        read = scene.intake._taken.read[S0]  # a log that was cut before it is noticed: see `Lineage`
        assert (read.epoch, read.following) == ((4, 7) if meta else (-1, -1))
    else:
        assert isinstance(scene.intake.failure, error)


async def test_brokers_that_do_not_answer_end_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(_: object, name: str) -> Metadata:
        raise TimeoutError(name)

    look = partial(scene.intake._taken.look, cast("Any", None))
    await scene.begin()
    await look()
    with monkeypatch.context() as frozen:
        frozen.setattr(provenance, "identity", silent)
        await look()
    for topic, other, error, says in (
        ("forecasts", ("6f", 3), PartitionsError, "forecasts has 3 partitions, and had 2"),
        ("scores.v3", ("70", 2), DataLossError, r"scores\.v3 was deleted and recreated"),
    ):
        scene.identities[topic] = Metadata("cluster", topic, *other)
        with pytest.raises(error, match=says):
            await look()
        scene.identities[topic] = Metadata("cluster", topic, "6f", 2)


@pytest.mark.parametrize(
    ("policy", "first", "end", "sought"),
    [
        ("continue", 9, 99, {S0: 9}),
        ("stop", 9, 99, None),
        ("continue", 3, 4, None),
        ("stop", 3, 5, {}),  # a new leader lacked it for a moment
    ],
)
async def test_records_deleted_unread_are_a_loss(
    scene: Scene, policy: str, first: int, end: int, sought: dict[TopicPartition, int] | None
) -> None:
    object.__setattr__(scene.intake._settings, "data_loss", policy)
    scene.consumer.first[S0], scene.consumer.ends[S0] = first, end
    if sought is not None:
        await scene.intake._taken.go_on_behind(scene.consumer, {S0: 5})
        assert scene.consumer.sought == sought
    else:
        with pytest.raises(DataLossError):
            await scene.intake._taken.go_on_behind(scene.consumer, {S0: 5})


def test_without_a_source_there_is_nothing_to_run(caplog: pytest.LogCaptureFixture) -> None:
    assert module.run(Settings()) == 78
    assert "no source is for the intake" in caplog.text


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("labels.v1", "forecasts", "other role"),
        # Intake makes the stream the scope of its forecasts, so labels of another scope would find none.
        (
            'role = "forecast"',
            'role = "forecast"\nscope = "kind"',
            r"sources\.scores: scope: .* Name what sets the ids apart in event_id",
        ),
    ],
)
def test_a_source_for_intake_has_no_scope_of_its_own_and_no_topic_of_the_other_role(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    (tmp_path / "streams.toml").write_text(STREAMS.replace(old, new, 1))
    with pytest.raises(SettingsError, match=says):
        Settings.from_env({"TRUEUP_STREAMS": str(tmp_path / "streams.toml")})
