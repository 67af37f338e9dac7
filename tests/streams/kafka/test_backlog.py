"""A first start waits for intake and router as long as they hand on what there is."""

import asyncio
import logging
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from streams.config.settings import Settings
from streams.faust import offsets
from streams.kafka import backlog, standstill, topics

#: The first record is the one at offset 3.
FIRST, ENDS = 3, 10


class Cluster:
    """Says what a group has committed, as an admin client and a consumer do: so much more at each question."""

    def __init__(self, step: int, exists: bool = True) -> None:  # noqa: FBT001, FBT002 - of a test
        self.step, self.exists, self.asked = step, exists, 0

    async def list_topics(self) -> list[str]:
        return ["scores"] if self.exists else ["others"]

    async def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        return [{"topic": name, "partitions": [{"partition": n} for n in range(2)]} for name in names]

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, ENDS)

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, FIRST)

    async def committed(
        self, by: object, group: str, places: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        assert (by, group) == (self, "trueup-intake")
        self.asked += 1
        reached = self.step * (self.asked - 1)
        return {place: OffsetAndMetadata(min(FIRST + reached, ENDS), "") for place in places if reached}


def handed_on(cluster: Cluster, *, stopped: bool = False) -> bool:
    async def run() -> bool:
        stop = asyncio.Event()
        if stopped:
            stop.set()
        with patch.object(offsets, "committed", cluster.committed):
            return await backlog._handed_on(cluster, cluster, "trueup-intake", ["scores"], stop)

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(standstill, "STILL_SECONDS", 0.05)


@pytest.mark.parametrize(
    ("cluster", "stopped", "handed", "asked", "warned"),
    [
        (Cluster(step=2), False, True, 5, []),
        (Cluster(step=0), False, False, None, ["trueup-intake has not read 14 records"]),
        (Cluster(step=0, exists=False), False, True, 0, []),
        (Cluster(step=0), True, False, 0, []),
    ],
    ids=["read", "stands still", "no topic", "stopped"],
)
def test_it_waits_for_what_was_there_as_long_as_it_is_read(
    caplog: pytest.LogCaptureFixture,
    cluster: Cluster,
    stopped: bool,  # noqa: FBT001 - a parameter
    handed: bool,  # noqa: FBT001 - a parameter
    asked: int | None,
    warned: list[str],
) -> None:
    assert handed_on(cluster, stopped=stopped) == handed
    assert asked in (None, cluster.asked)
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert [line[: len(start)] for line, start in zip(said, warned, strict=True)] == warned


def test_where_all_sources_are_the_workers_own_nobody_is_asked() -> None:
    asyncio.run(backlog.awaited(Settings(brokers=("nobody.invalid:1",)), asyncio.Event()))


def test_a_worker_begins_where_nobody_says_how_far_they_are(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Denied:
        def __init__(self, **_: object) -> None:
            raise PermissionError("the group may not be described")

    monkeypatch.setattr(topics, "AIOKafkaAdminClient", Denied)
    monkeypatch.setattr(Settings, "modes", property(lambda _: [type("Mode", (), {"topic": "scores", "direct": False})]))
    asyncio.run(backlog.awaited(Settings(), asyncio.Event()))
    assert "the group may not be described" in caplog.text


def test_a_router_waits_for_intake_and_a_worker_for_both(tmp_path: Path) -> None:
    streams = tmp_path / "streams.toml"
    streams.write_text(
        '[sources.scores]\ntopic = "scored"\nrole = "forecast"\nevent_id = "id"\nstream = "a"\np = "p"\n'
        '[sources.frauds]\ntopic = "reported"\nrole = "outcome"\nevent_id = "id"\ny = "y"\n'
    )
    settings = Settings.from_env({"TRUEUP_STREAMS": str(streams)})
    intake = {"trueup-intake": ("scored", "reported")}
    assert settings.router.before == intake
    assert settings.before == {**intake, "trueup-router": (settings.routes, settings.labels)}
    assert Settings().before == Settings().router.before == {}
