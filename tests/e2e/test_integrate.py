"""The examples of docs/how-to/decide.md on a real broker: the answer in time, else the map, else the raw score."""

import asyncio
import shutil
import subprocess
import time
import uuid
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest

from lab.broker import KAFKA
from tests.e2e.test_all_stages import running
from tests.e2e.world import ROOT, MakeWorld, World, produced, wait_for
from tests.events import Sent, outcome

CLIENTS = ROOT / "deploy/clients"
PAGE = ROOT / "docs/how-to/decide.md"
STREAM = "fraud-cards"
#: A stream whose forecasts must have segments, and are answered if they have not.
STREAMS = """
on_error = "raw"
[streams.strict]
segments = ["country"]
segments_required = true
"""


@pytest.fixture
def decide(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the example as somebody runs it who has copied the two files into one directory."""
    monkeypatch.syspath_prepend(CLIENTS / "python")
    import decide  # type: ignore[import-not-found]  # noqa: PLC0415 - found now

    return decide  # type: ignore[no-any-return]


def history(n: int) -> list[Sent]:
    """Return forecasts of a stream, under its key, and outcomes that say that they are far too high."""
    found = []
    for i in range(n):
        said = {"event_id": f"old-{i}", "stream": STREAM, "p": 0.2 + i % 7 / 10}
        found.append(Sent("forecasts", STREAM.encode(), orjson.dumps(said), 1_000_000 + 10 * i))
        label = {"event_id": f"old-{i}", "y": int(i % 25 == 0)}
        found.append(Sent("outcomes", STREAM.encode(), orjson.dumps(label), 1_000_005 + 10 * i))
    return found


def test_python_and_java_decide_by_the_answer_and_by_the_raw_score_and_python_by_the_map(
    world: MakeWorld, decide: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "streams.toml").write_text(STREAMS)
    w = world(
        TRUEUP_MAPS=f"maps-{uuid.uuid4().hex[:8]}",
        TRUEUP_MAPS_SECONDS="0.2",
        TRUEUP_STREAMS=str(tmp_path / "streams.toml"),
    )
    topics = {"forecasts": w.topic("forecasts"), "calibrated": w.topic("calibrated")}
    clock = Clock()

    async def run(worker: Any) -> None:
        maps = decide.Maps(max_age=500.0, clock=clock)
        stop = decide.follow(maps, w.topic("maps"), bootstrap_servers=w.bootstrap)
        async with decide.Decisions(w.bootstrap, 60.0, maps, **topics) as decisions:
            several = await asyncio.gather(*[decisions.decide(f"new-{i}", STREAM, 0.3 + i / 100) for i in range(20)])
            assert await decisions.decide("unusable", "strict", 0.4) == (0.4, "raw: segments")
        assert {each.source for each in several} == {"calibrated"}
        served = await asyncio.to_thread(answered, w)
        assert [each.p for each in several] == [served[f"new-{i}"] for i in range(20)]
        assert all(each.p < 0.2 for each in several), "it has learnt that scores are too high"
        java = await asyncio.to_thread(by_java, w, 30_000, [(f"new-{i}", STREAM, 0.3 + i / 100) for i in range(10)])
        assert java == [(f"new-{i}", each.p, "calibrated") for i, each in enumerate(several[:10])]
        await asyncio.to_thread(wait_for, "the map", lambda: maps.answer(STREAM, 0.3).version == 500)
        worker.kill()
        async with decide.Decisions(w.bootstrap, 0.05, maps, **topics) as decisions:
            by_map = await decisions.decide("later", STREAM, 0.3)
            assert by_map.source == "map"
            assert by_map.p == pytest.approx(several[0].p, rel=0.002)
            assert await decisions.decide("other", "unheard-of", 0.3) == (0.3, "raw: unknown")
            clock.ahead = 1000.0
            assert await decisions.decide("last", STREAM, 0.3) == (0.3, "raw: stale")
        async with decide.Decisions(w.bootstrap, 0.05, **topics) as decisions:
            assert await decisions.decide("none", STREAM, 0.3) == (0.3, "raw: late")
        stop.set()
        assert await asyncio.to_thread(by_java, w, 50, [("late", STREAM, 0.3)]) == [("late", 0.3, "raw")]

    w.send(history(500))
    with w.worker() as worker:
        w.wait_until_applied()
        asyncio.run(run(worker))


ROUTED = """
[sources.decided]
topic = "{name}-scores"
role = "forecast"
event_id = "event_id"
stream = "stream"
p = "p"
ts = "@timestamp"

[sources.chargebacks]
topic = "{name}-chargebacks"
role = "outcome"
event_id = "event_id"
y = "y"
"""


def test_where_labels_come_through_sources_forecasts_do_too_and_others_are_named(
    world: MakeWorld, decide: ModuleType, tmp_path: Path
) -> None:
    name = f"i{uuid.uuid4().hex[:8]}"
    page = PAGE.read_text().replace(" ", "")
    assert ROUTED.replace("{name}-", "").replace(" ", "").strip() in page, "it is what the page shows"
    (tmp_path / "streams.toml").write_text(ROUTED.format(name=name))
    w = world(TRUEUP_STREAMS=str(tmp_path / "streams.toml"))
    log = tmp_path / "run.log"

    async def decided(forecasts: str, *events: str) -> list[str]:
        topics = {"forecasts": forecasts, "calibrated": w.topic("calibrated")}
        async with decide.Decisions(w.bootstrap, 60.0, **topics) as decisions:
            found = await asyncio.gather(*[decisions.decide(each, STREAM, 0.3) for each in events])
        return [each.source for each in found]

    w.make({f"{name}-{each}": 1 for each in ("scores", "chargebacks")})
    events = [f"e{n}" for n in range(20)]
    with running(w.environment, log):
        assert set(asyncio.run(decided(f"{name}-scores", *events))) == {"calibrated"}
        outcomes = [outcome(each, n % 2, 0)._replace(topic=f"{name}-chargebacks") for n, each in enumerate(events)]
        asyncio.run(produced(w.bootstrap, outcomes))
        wait_for("every label", lambda: len(w.read("resolved")) == len(events))
        assert asyncio.run(decided(w.topic("forecasts"), "by-hand")) == ["calibrated"]
        wait_for("a line about it", lambda: "that intake did not write: 1. Labels that come" in log.read_text())


class Clock:
    """A clock that can be put forward, s."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def answered(w: World) -> dict[str, float]:
    """Return what was served, by event."""
    return {each["event_id"]: each["p"] for each in w.said("calibrated")}


def by_java(w: World, budget_ms: int, several: list[tuple[str, str, float]]) -> list[tuple[str, float, str]]:
    """Decide by the Java example."""
    run = subprocess.run(
        [
            shutil.which("java") or "java",
            "-cp",
            f"{KAFKA / 'lib'}/*",
            str(CLIENTS / "java/Decide.java"),
            w.bootstrap,
            w.topic("forecasts"),
            w.topic("calibrated"),
            str(budget_ms),
        ],
        input="\n".join(f"{event}\t{stream}\t{p!r}" for event, stream, p in several).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=120,
    )
    lines = [line.split("\t") for line in run.stdout.decode().splitlines()]
    return [(event, float(p), source) for event, p, source in lines]
