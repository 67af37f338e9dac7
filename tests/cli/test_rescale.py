"""``trueup state rescale`` without brokers: its settings, and where an event's records are."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from cli import group_states, rescale
from replay import moves
from state import routes
from state.rescale import Plan, RescaleError
from state.routes import EVENT, RoutedStream, RouteRow
from streams.config.settings import Settings, SettingsError
from streams.faust import offsets
from streams.kafka import provenance
from streams.kafka.metadata import Metadata
from streams.kafka.partitioner import partition
from streams.kafka.topics import TopicsError
from streams.records.limits import SCOPED
from streams.records.routing import target


def plan(by: str, routed: list[dict[bytes, bytes]] | None = None, *, grown: bool = False) -> Plan:
    """Return where what belongs if four partitions become five; the stream ``wide`` has four keys."""
    following = [[0, 0] for _ in range(5)]
    return moves.plan(by, 4, following, {"wide": 4, "s": 1}.__getitem__, grown=grown, routed=routed or [])


def test_settings_that_differ_are_those_of_the_new_group() -> None:
    environment = {"TRUEUP_APP_ID": "old", "TRUEUP_FORECASTS": "f", "HOME": "/nowhere"}
    settings = rescale.settled(environment, "new", ["TRUEUP_FORECASTS=g", "TRUEUP_OUTCOMES=o"])
    assert (settings.app_id, settings.forecasts, settings.outcomes) == ("new", "g", "o")
    for change in ("TRUEUP_FORECASTS", "FORECASTS=g", "TRUEUP_APP_ID=x", "TRUEUP_FORCASTS=g"):
        with pytest.raises(SettingsError, match=change.partition("=")[0]):
            rescale.settled({}, "new", [change])


def test_a_group_is_not_moved_to_itself_nor_to_other_brokers() -> None:
    old = Settings(app_id="old")
    with pytest.raises(SettingsError, match="another application id than old"):
        rescale.run(old, old, 4, None)
    with pytest.raises(SettingsError, match="the same brokers"):
        rescale.run(old, Settings(app_id="new", brokers=("elsewhere:9092",)), 4, None)


def test_an_event_goes_by_its_id() -> None:
    made = plan("event")
    assert made.of_event("e1", "s", partition(b"e1", 4)) == partition(b"e1", 5)
    with pytest.raises(RescaleError, match="Then give --keys stream"):
        made.of_event("e1", "s", (partition(b"e1", 4) + 1) % 4)
    assert len(made.of_stream("s")) == 4 * 5


def test_an_event_goes_with_its_stream() -> None:
    made = plan("stream")
    there = partition(b"s", 4)
    assert made.of_event("e1", "s", there) == partition(b"s", 5) == made.home("s")
    assert made.of_event(f"e1{SCOPED}s", "", there) == partition(b"s", 5)
    assert made.of_stream("s") == {(there, partition(b"s", 5))}
    with pytest.raises(RescaleError, match="does not say its stream"):
        made.of_event("e1", "", there)


def test_an_event_goes_with_its_shard_and_with_the_one_that_it_was_sent_to() -> None:
    keys = [f"wide#{k}".encode() for k in range(4)]
    made = plan("stream")
    assert made.of_stream("wide") == {(partition(key, 4), partition(key, 5)) for key in keys}
    assert made.home("wide") in {partition(key, 5) for key in keys}
    # Before there were four shards, it went to the stream itself: the router knows.
    there = partition(b"wide", 4)
    stray = next(name for n in range(50) if partition(target("wide", name := f"e{n}", 4).encode(), 4) != there)
    name = f"{stray}{SCOPED}wide"
    with pytest.raises(RescaleError, match="is in partition"):
        made.of_event(name, "wide", there)
    row = EVENT.encode(RouteRow(1, 1, [RoutedStream(0, "other", "other"), RoutedStream(0, "wide", "wide")], []))
    routed: list[dict[bytes, bytes]] = [{} for _ in range(4)]
    routed[partition(stray.encode(), 4)][b"E" + stray.encode()] = row
    assert plan("stream", routed).of_event(name, "wide", there) == partition(b"wide", 5)


def test_what_came_after_a_topic_had_grown_may_be_there_already() -> None:
    name = next(f"e{i}" for i in range(99) if partition(f"e{i}".encode(), 5) != partition(f"e{i}".encode(), 4))
    there = partition(name.encode(), 5)
    assert plan("event", grown=True).of_event(name, "s", there) == there
    with pytest.raises(RescaleError):
        plan("event").of_event(name, "s", there)


@pytest.mark.parametrize(
    ("noted", "then"),
    [
        ('{"id":"a","epoch":4,"partitions":[2,2,2]}', '{"id":"a","epoch":4,"partitions":[5,5,5]}'),
        ("by hand", "by hand"),
    ],
)
def test_what_intake_has_sent_must_be_committed(noted: str, then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def identity(_: object, name: str) -> Metadata:
        return Metadata("cluster", name, f"id-of-{name}", 3)

    monkeypatch.setattr(provenance, "identity", identity)
    sent = {routes.ORIGIN.key("src@id-of-scores/1"): routes.ORIGIN.seal((40).to_bytes(8, "little"))}
    gone = {routes.ORIGIN.key("src@of-another/1"): routes.ORIGIN.seal((99).to_bytes(8, "little"))}
    stages: Any = [None, SimpleNamespace(parts=[sent, gone])]
    old: Any = SimpleNamespace(
        app_id="old", intake_group="old-intake", modes=[SimpleNamespace(topic="scores", direct=False)]
    )

    def asked(offset: int) -> dict[TopicPartition, tuple[int, str]]:
        async def stored(_: object, group: str) -> dict[TopicPartition, tuple[int, str]]:
            assert group == "old-intake"
            return {TopicPartition("scores", 1): (offset, noted)}

        monkeypatch.setattr(offsets, "committed", stored)
        admin: Any = None
        producer: Any = SimpleNamespace(client=None)
        return asyncio.run(group_states.intake_offsets(admin, producer, old, stages, 5))

    assert asked(40) == {TopicPartition("scores", 1): (40, then)}
    with pytest.raises(TopicsError, match="intake has sent scores/1 up to offset 39 and not committed it"):
        asked(39)
