"""Which maps a worker writes, in which order, and that nothing of it is the worker's concern when it fails."""

import asyncio
import json
import time
from typing import Any

import pytest
from aiokafka.errors import KafkaError, KafkaTimeoutError

from agents import maps
from agents.maps import Due, Maps, Publisher
from state import kinds
from state.coverage import Coverage
from state.kind import kind_of
from state.policies import Policies
from state.policy import Policy
from state.segments import Dictionary
from state.served import Served
from streams.config.effective_config import fingerprint
from streams.config.settings import Settings
from streams.kafka import permissions, topics
from streams.kafka.permissions import Grant
from streams.metrics.snapshot import PartitionSnapshot
from streams.records.maps import ALIVE
from tests.holding import hold, holding

POLICIES = Policies(
    [
        ("seg-*", Policy(segments=("country",))),
        ("classes", Policy("multiclass")),
        ("gone", Policy("platt")),
    ],
    Policy("platt"),
)


def settings(**changed: Any) -> Settings:
    return Settings(policies=POLICIES, maps="maps", request_seconds=0.5, **changed)


def row(stream: str, outcomes: int = 0) -> bytes:
    """Return the row of a stream's calibrator that has learnt so many outcomes."""
    served = Served.fresh(policy_of(stream).recipe, stream)
    for t in range(outcomes):
        served.calibrator.update(served.calibrator.predict(0.3).ticket, t % 5 == 0)
    return kinds.CALIBRATOR.encode(served)


def policy_of(stream: str) -> Policy:
    policy = POLICIES.of(stream)
    assert policy is not None
    return policy


def snapshot(**streams: int) -> PartitionSnapshot:
    """Return what is held of a partition whose streams have learnt so many outcomes."""
    return holding({key_of(stream): row(stream, n) for stream, n in streams.items()})


def key_of(stream: str) -> bytes:
    return kinds.CALIBRATOR.key(stream, policy_of(stream).config)


def put(held: PartitionSnapshot, key: bytes, row: bytes) -> None:
    kind = kind_of(key)
    hold(held, kind, row, *kind.of(key))


def due(made: Maps, held: PartitionSnapshot, claim: int = 1, applied: int = 10, partition: int = 0) -> list[Due]:
    return list(made.due(partition, held, claim, applied, 0, 0))


def test_a_map_is_due_once_until_its_calibrator_or_its_worker_changes() -> None:
    made, held = Maps(settings()), snapshot(a=3, b=4)
    first = due(made, held)
    said = [json.loads(each.value or b"") for each in first]
    assert [(each["stream"], each["version"], each["applied"]) for each in said] == [("a", 3, 10), ("b", 4, 10)]
    assert due(made, held) == first, "as long as it was not acknowledged"
    for each in first:
        made.written(each)
    assert due(made, held) == []
    put(held, key_of("a"), row("a", 5))
    (again,) = due(made, held)
    assert again.stream == "a"
    made.written(again)
    assert [each.stream for each in due(made, held, claim=2)] == ["a", "b"], "a claim confirms what earlier ones wrote"


def test_while_most_forecasts_get_no_label_the_map_is_that_of_a_calibrator_that_has_learnt_nothing() -> None:
    made, held, few = Maps(settings()), snapshot(a=200), Coverage()
    few.uncovered = True
    put(held, kinds.COVERAGE.key("a"), kinds.COVERAGE.encode(few))
    (first,) = due(made, held)
    (table,) = json.loads(first.value or b"")["stages"]
    assert table["y"] == pytest.approx(table["x"], abs=2e-6)
    made.written(first)
    put(held, key_of("a"), row("a", 300))
    assert due(made, held) == [], "what is learnt meanwhile is not served"
    few.uncovered = False
    put(held, kinds.COVERAGE.key("a"), kinds.COVERAGE.encode(few))
    (then,) = due(made, held)
    assert json.loads(then.value or b"")["version"] == 300


def test_a_stream_that_is_shown_no_longer_is_deleted_and_nothing_of_a_partition_that_moved_is() -> None:
    made, held = Maps(settings()), snapshot(a=3, b=4)
    for partition in (0, 1):
        for each in due(made, held, partition=partition):
            made.written(each)
    held.rows.pop("a", None)
    (deleted,) = due(made, held)
    assert (deleted.stream, deleted.value) == ("a", None)
    made.written(deleted)
    assert due(made, held) == []
    made.keep({0: 1})
    assert due(made, held) == []
    assert [each.stream for each in due(made, held, partition=1)] == ["b"], "it came back, and is written anew"


def test_what_has_no_map_says_why_once() -> None:
    made, held = Maps(settings()), holding({key_of("classes"): row("classes")})
    (said,) = due(made, held)
    assert json.loads(said.value or b"")["why"] == "multiclass does not serve one probability"
    made.written(said)
    put(held, key_of("classes"), kinds.CALIBRATOR.encode(Served.fresh(Policy("multiclass").recipe, "classes", b"x")))
    assert due(made, held) == []


def test_a_map_that_cannot_be_made_or_is_too_large_holds_up_no_other() -> None:
    held = snapshot(a=3, b=4)
    put(held, key_of("a"), held.rows["a"][key_of("a")][:-3])
    one, other = due(Maps(settings()), held)
    assert json.loads(one.value or b"")["why"] == maps.DAMAGED
    assert json.loads(other.value or b"")["version"] == 4
    small = Settings(policies=Policies((), Policy("platt")), maps="maps", batch_bytes=90_000, letter_bytes=100)
    made = Maps(small)
    made._most = 1000
    (large,) = due(made, snapshot(b=200))
    assert json.loads(large.value or b"")["why"] == maps.TOO_LARGE


def test_segments_are_named_by_the_rows_that_are_held() -> None:
    policy, names = policy_of("seg-1"), Dictionary(("country",))
    names.groups(("DE",))
    served = Served.fresh(policy.recipe, "seg-1")
    for t in range(3000):
        ticket = served.calibrator.predict(0.3, (), b"", (2,)).ticket
        served.calibrator.update(ticket, t % 2)
    held = holding({key_of("seg-1"): kinds.CALIBRATOR.encode(served)})
    put(held, kinds.NAMES.key("seg-1", policy.layout), kinds.NAMES.encode(names))
    (said,) = due(Maps(settings()), held)
    _, segments, _ = json.loads(said.value or b"")["stages"]
    assert (segments["names"], segments["values"], list(segments["rows"])) == (["country"], [["DE"]], ["2"])


class Producer:
    """Takes records, and fails as often as it is told."""

    failures = unreachable = 0
    sent: list[tuple[int, bytes, bytes | None]]

    def __init__(self, **_: Any) -> None:
        self.stopped = False

    async def start(self) -> None:
        if Producer.unreachable > 0:
            Producer.unreachable -= 1
            raise KafkaTimeoutError("not now")

    async def stop(self) -> None:
        self.stopped = True

    async def send(self, topic: str, value: bytes | None, *, key: bytes, partition: int) -> asyncio.Future[None]:
        assert topic == "maps"
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if key != ALIVE and Producer.failures > 0:
            Producer.failures -= 1
            acknowledged.set_exception(KafkaTimeoutError("not now"))
        else:
            Producer.sent.append((partition, key, value))
            acknowledged.set_result(None)
        return acknowledged


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> type[Producer]:
    monkeypatch.setattr(maps, "writer", lambda _, **options: Producer(**options))
    monkeypatch.setattr(Producer, "failures", 0)
    monkeypatch.setattr(Producer, "unreachable", 0)
    monkeypatch.setattr(Producer, "sent", [], raising=False)
    return Producer


def test_a_partition_is_alive_when_all_its_maps_are_written_a_few_at_a_time(
    producer: type[Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "FLYING", 2)
    held = {0: snapshot(a=3, b=4), 1: snapshot(a=5, b=6, c=7)}
    claims = {0: 7, 1: 8, 2: 9}
    publisher = Publisher(settings(), lambda: held, lambda: claims)
    began = publisher.complete

    async def run() -> None:
        producer.failures = 1
        with pytest.raises(KafkaError, match="not now"):
            await publisher.look()
        assert [(n, key) for n, key, _ in producer.sent] == [(0, b"b")]
        assert publisher.complete == began
        await publisher.look()

    asyncio.run(run())
    keys = [(0, b"a"), (0, ALIVE), (1, b"a"), (1, b"b"), (1, b"c"), (1, ALIVE)]
    assert [(n, key) for n, key, _ in producer.sent[1:]] == keys
    said = json.loads(producer.sent[2][2] or b"")
    assert (said["claim"], said["partition"]) == (7, 0)
    assert publisher.written == 5
    assert publisher.complete == began, "partition 2 was not held yet"
    del claims[2]
    asyncio.run(publisher.look())
    assert [key for _, key, _ in producer.sent[7:]] == [ALIVE, ALIVE], "nothing has changed"
    assert publisher.complete > began
    assert {name for name, _, _ in publisher.samples()} == {"written_maps", "map_failures", "maps_age_seconds"}


def test_failures_are_counted_and_tried_again(producer: type[Producer], caplog: pytest.LogCaptureFixture) -> None:
    producer.unreachable, producer.failures = 1, 2
    publisher = Publisher(settings(maps_seconds=0.01), lambda: {0: snapshot(a=3)}, lambda: {0: 7})
    publisher.start()
    while publisher.written == 0:
        time.sleep(0.01)
    publisher.stop()
    assert publisher.failures == 3
    assert [record.getMessage() for record in caplog.records if "maps cannot be written" in record.getMessage()] == [
        "maps cannot be written to maps, which is tried again: KafkaTimeoutError: not now"
    ]


def test_maps_are_off_unless_they_are_named_and_then_have_a_compacted_topic_and_a_grant() -> None:
    off, on = Settings(), Settings(maps="decisions")
    assert off.maps is None
    assert [topic.name for topic in topics.wanted(on) if topic not in topics.wanted(off)] == ["decisions"]
    assert topics.wanted(on)[-1].compacted
    assert set(permissions.needed(on)) - set(permissions.needed(off)) == {
        Grant("topic", "decisions", ("Write", "DescribeConfigs"))
    }
    assert topics.wanted(on.router) == topics.wanted(off.router), "a router writes none"
    assert permissions.needed(on.router) == permissions.needed(off.router)
    assert fingerprint(on) == fingerprint(off), "maps decide no answer"
