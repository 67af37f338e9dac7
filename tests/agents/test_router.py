"""The router's wiring: labels become outcomes in the partition of their stream, whatever it is asked again."""

from dataclasses import replace
from pathlib import Path
from time import monotonic, time
from typing import Any, cast

import orjson
import pytest

from agents import router
from agents.topology import Topology
from streams.config.settings import Settings
from streams.faust.changelog import Writer
from streams.kafka import owners, topics
from streams.kafka.permissions import Grant, needed
from streams.kafka.producer_ids import ProducerIdentity
from streams.records import routing
from streams.records.merge import Batch
from tests.streams.brokers import Run
from tests.streams.fakes import PARTITIONS, Producer, record, restore


def wire(directory: Path, producer: Producer) -> Topology:
    """Wire a router without brokers."""
    topology = router.build(Settings(data_dir=directory).router, abort=lambda: None)
    topology.app.faust.producer = producer  # type: ignore[assignment]
    topology.processor._current = lambda _: True  # else it asks the consumer
    for partition in range(PARTITIONS):
        topology.table.changelog._writers[partition] = Writer(ProducerIdentity(partition, 0), monotonic())
        topology.table._claimed[partition] = int(time() * 1000), 0
    return topology


def asked(offset: int, event_id: str, stream: str, ts: int = 0) -> tuple[int, Any]:
    value = routing.encode_route(event_id, stream, stream, ("scores@1/0", offset))
    return 0, record("trueup-routes", 0, offset, ts, event_id.encode(), value)


def said(offset: int, event_id: str, y: float, ts: int = 0) -> tuple[int, Any]:
    value = routing.encode_label(event_id, "", "", y, ts, 0, ("labels@1/0", offset))
    return 1, record("trueup-labels", 0, offset, ts, event_id.encode(), value)


async def routed(directory: Path, *records: tuple[int, Any]) -> Topology:
    """Return a router that has processed records of partition 0."""
    topology = wire(directory, Producer())
    await topology.applied(0)
    applied = await topology.processor.fold([Batch(0, list(records), {}, 0)])
    await topology.processor.answer(applied)
    return topology


def letters(topology: Topology) -> list[tuple[str, int, str]]:
    """Return topic, offset and reason of each dead letter."""
    rows = cast("Producer", topology.app.faust.producer).rows("dead-letters")
    found = [orjson.loads(row.value or b"") for row in rows]
    return [(each["topic"], each["offset"], each["reason"]) for each in found]


def test_what_intake_did_not_write_is_a_dead_letter_with_its_place(run: Run, tmp_path: Path) -> None:
    values = [b"", b"[]", b"no", b'{"event_id":"e"}', b'{"event_id":"e","stream":1,"target":"s"}']
    records = [(t, record("t", 0, i, 0, b"k", value)) for t in (0, 1) for i, value in enumerate(values)]
    topology = run(routed(tmp_path, *records))
    assert letters(topology) == [(topic, i, "route") for topic in ("trueup-routes", "trueup-labels") for i in range(5)]
    shown = topology.gauges.exposition().decode()
    assert 'trueup_routed_records_total{app="trueup",fate="dead",topic="labels"} 5.0' in shown


NUMBER, OFFSET = 2**32 - 1, 2**63 - 2


@pytest.mark.parametrize(
    ("number", "offset", "ts", "dead"),
    [
        (NUMBER, OFFSET, 0, 0),
        (NUMBER + 1, OFFSET, 0, 1),
        (0, OFFSET + 1, 0, 1),
        (0, 0, 253_402_300_799_999, 0),
        (0, 0, 253_402_300_800_000, 1),
        (0, 0, 2**63 - 1, 1),
    ],
)
def test_a_label_with_numbers_that_no_row_holds_is_a_dead_letter(
    run: Run, tmp_path: Path, number: int, offset: int, ts: int, dead: int
) -> None:
    value = routing.encode_label("e", "", "", 1.0, 1000, number, ("labels@1/0", offset))
    topology = run(routed(tmp_path, (1, record("trueup-labels", 0, 0, ts, b"e", value)), said(1, "f", 1.0)))
    assert letters(topology) == [("trueup-labels", 0, "route")] * dead
    restore(topology)
    _, journal = run(topology.applied(0))
    assert journal.entries[-1].ends == (0, 2)


def test_the_gauges_say_what_is_waited_for(run: Run, tmp_path: Path) -> None:
    records = asked(0, "a", "s"), asked(1, "b", "s"), said(0, "c", 1.0), said(1, "a", 1.0)
    lines = run(routed(tmp_path, *records)).gauges.exposition().decode().splitlines()
    assert {'trueup_routed_events{app="trueup"} 2.0', 'trueup_unrouted_events{app="trueup"} 1.0'} <= set(lines)
    assert 'trueup_routed_records_total{app="trueup",fate="routed",topic="labels"} 1.0' in lines
    assert 'trueup_outputs_total{app="trueup",topic="outcomes"} 1.0' in lines


def test_it_has_a_group_a_state_and_topics_of_its_own() -> None:
    settings = Settings(app_id="mine", outcomes="labelled").router
    assert (settings.app_id, settings.changelog) == ("mine-router", "mine-router-state-changelog")
    names = [topic.name for topic in topics.wanted(settings)]
    assert names == [
        "mine-routes",
        "mine-labels",
        "labelled",
        "dead-letters",
        "mine-router-state-changelog",
        "mine-router-journal",
        "mine-configurations",
    ]
    sourced = replace(settings, taken_in=("scores",))
    assert set(needed(sourced)) - set(needed(settings)) == {
        Grant("topic", "scores", ("Describe",)),
        Grant("group", "mine-intake", ("Describe",)),
    }
    assert owners.of(sourced) == owners.of(settings), "a further source is no change of what it works on"
    granted = {(grant.name, operation) for grant in needed(settings) for operation in grant.operations}
    assert {("labelled", "Write"), ("mine-labels", "Read"), ("mine-router", "Read")} <= granted
    assert not any(name in ("calibrated", "labelled") and what == "Read" for name, what in granted)


def test_settings_of_a_router_keep_the_rest() -> None:
    settings = Settings(request_seconds=7, letter_bytes=100)
    assert replace(settings.router, app_id="trueup", forecasts="forecasts", outcomes="outcomes", routed="") == settings
