"""Decisions by the topic of maps: a client beside a real worker answers what the worker would, also after kill -9."""

import math
import random
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from deploy.clients.python.trueup_maps import Maps, follow
from state.calibrators.logistic import P_CLIP
from state.maps import TOLERANCE
from streams.records.maps import ALIVE
from tests.e2e.world import MakeWorld, World, wait_for
from tests.events import Sent, forecast, outcome

STREAMS = """
[streams.s]
segments = ["country"]
[streams.classes]
calibrator = "multiclass"
"""


class Ahead:
    """A clock that can be put forward, s."""

    seconds = 0.0

    def __call__(self) -> float:
        return time.time() + self.seconds


@contextmanager
def following(w: World, clock: Callable[[], float] = time.time) -> Iterator[Maps]:
    """Follow the maps of a world."""
    maps = Maps(max_age=120.0, clock=clock)
    stop = follow(maps, w.topic("maps"), bootstrap_servers=w.bootstrap)
    try:
        assert maps.wait(60.0)
        yield maps
    finally:
        stop.set()


def events(first: int, n: int, *, resolved: bool = True) -> list[Sent]:
    """Return forecasts that are too high, in one country more than in others, and outcomes that follow them."""
    r = random.Random(first)
    found = []
    for i in range(first, first + n):
        p, country, ts = r.betavariate(1, 4), r.choice(["DE", "FR", "IT"]), 1_000_000 + 10 * i
        found.append(forecast(f"e{i}", p, ts, segments={"country": country}))
        if resolved:
            found.append(outcome(f"e{i}", int(r.random() < p * (0.8 if country == "DE" else 0.3)), ts + 5))
    return found


def odds(p: float) -> float:
    p = min(max(p, P_CLIP), 1.0 - P_CLIP)
    return math.log(p / (1.0 - p))


def learnt(w: World) -> dict[int, int]:
    """Return how many events each partition has resolved; some are told twice after a crash."""
    found: dict[int, set[str]] = defaultdict(set)
    for record in w.read("resolved"):
        found[record.partition].add(orjson.loads(record.value or b"")["event_id"])
    return {partition: len(several) for partition, several in found.items()}


def up_to_date(w: World, maps: Maps) -> Callable[[], bool]:
    """Return what says whether the client has learnt all that was resolved."""
    versions = learnt(w)
    return lambda: {each.partition: each.version for each in maps.streams().get("s", ())} == versions


def compare(w: World, maps: Maps, first: int, n: int) -> None:
    """Send forecasts, and hold what the worker serves against what the client says of them."""
    sent = events(first, n, resolved=False)
    given = {(said := orjson.loads(each.value))["event_id"]: said["segments"] for each in sent}
    w.send(sent)
    w.wait_until_applied()
    compared, moved = 0, 0.0
    for record in w.read("calibrated"):
        said = orjson.loads(record.value or b"")
        if said["event_id"] in given:
            answer = maps.answer("s", said["raw"], given[said["event_id"]], record.partition)
            assert answer.reason == ""
            assert (answer.version, answer.config) == (said["version"], said["config"])
            assert abs(odds(answer.p) - odds(said["p"])) <= TOLERANCE, said
            compared, moved = compared + 1, moved + abs(odds(said["p"]) - odds(said["raw"]))
    assert compared == n
    assert moved / n > 0.2, "it is not the raw score that they agree on"


def test_a_client_answers_what_the_worker_serves_and_versions_never_fall(world: MakeWorld, tmp_path: Path) -> None:
    (tmp_path / "streams.toml").write_text(STREAMS)
    maps_of = {"TRUEUP_MAPS": f"maps-{uuid.uuid4().hex[:8]}", "TRUEUP_MAPS_SECONDS": "0.5"}
    w, clock = world(TRUEUP_STREAMS=str(tmp_path / "streams.toml"), **maps_of), Ahead()
    with following(w, clock) as maps:
        assert maps.answer("s", 0.3)[:2] == (0.3, "unknown")
        with w.worker() as worker:
            w.send(events(0, 1200))
            w.wait_until_applied()
            wait_for("the maps of all that was resolved", up_to_date(w, maps))
            compare(w, maps, 10_000, 300)
            wait_for("a look at the maps", lambda: worker.metric("maps_age_seconds") > 0.0)
            assert worker.metric("written_maps_total") >= 2
            assert worker.metric("map_failures_total") == 0
            w.send(events(20_000, 1200))
            wait_for("some of these to be resolved", lambda: sum(learnt(w).values()) > 1300)
            worker.kill()
        clock.seconds = 500.0
        assert maps.answer("s", 0.3, partition=0)[:2] == (0.3, "stale")
        clock.seconds = 0.0
        with w.worker() as worker:
            w.wait_until_applied()
            wait_for("the maps of all that was resolved", up_to_date(w, maps))
            compare(w, maps, 40_000, 300)
            with following(w) as late:
                assert up_to_date(w, late)()
                compare(w, late, 50_000, 50)
            assert worker.stop() == 0
    versions: dict[tuple[int, bytes], list[tuple[int, int]]] = defaultdict(list)
    for record in sorted(w.read("maps"), key=lambda each: (each.partition, each.offset)):
        said: dict[str, Any] = orjson.loads(record.value or b"")
        versions[record.partition, record.key or b""].append((said["applied"], said["claim"]))
        assert said["partition"] == record.partition
    assert {key for _, key in versions} == {b"s", ALIVE}
    for several in versions.values():
        assert several == sorted(several)
        assert several[0][0] < several[-1][0], "by which a client knows what a worker wrote late"
        assert len({claim for _, claim in several}) == 2, "both workers wrote it"
    w.judge()
