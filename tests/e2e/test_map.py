"""``trueup streams map`` on a real broker: what is served now, what was served then, and a map that is frozen."""

import csv
import io
import random
from pathlib import Path

import orjson
import pytest

from tests.e2e.test_streams import shown
from tests.e2e.world import MakeWorld, World
from tests.events import Sent, forecast, outcome

#: Between the times of the first and of the second half of the events.
THEN = "1970-01-01T00:30:00Z"


def events(first_ms: int, n: int, times: float) -> list[Sent]:
    """Return forecasts that are so many times too high, each with its outcome."""
    chance, found = random.Random(first_ms), list[Sent]()
    for i in range(n):
        p, ts = chance.betavariate(2, 4), first_ms + 1000 * i
        found += [
            forecast(f"{first_ms}-{i}", p, ts),
            outcome(f"{first_ms}-{i}", int(chance.random() < p / times), ts + 1),
        ]
    return found


def answers(w: World, *options: str) -> dict[float, float]:
    told = shown(w, "map", "s", "--as", "csv", *options)
    assert told.returncode == 0, told.stderr
    return {float(row["raw"]): float(row["served"]) for row in csv.DictReader(io.StringIO(told.stdout))}


def test_a_map_is_that_of_now_or_of_then_and_stays_as_it_is_while_it_is_frozen(
    world: MakeWorld, tmp_path: Path
) -> None:
    (file := tmp_path / "streams.toml").write_text('[streams.s]\nunlabelled = "alike"\n')
    w = world(partitions=1, TRUEUP_STREAMS=str(file))
    first, second = events(1_000_000, 600, times=4.0), events(2_000_000, 1200, times=1.2)
    w.serve(first)
    then = answers(w)
    w.serve(second)
    now = answers(w)
    assert max(abs(now[x] - then[x]) for x in now.keys() & then.keys()) > 0.05

    assert answers(w, "--at", THEN) == pytest.approx(then, abs=1e-9)
    described = orjson.loads(shown(w, "map", "s", "--as", "json", "--diff", THEN).stdout)
    (was,), (one,) = described["then"], described["maps"]
    assert (was["version"], one["version"]) == (600, 1800)
    assert dict(zip(was["x"], was["y"], strict=True)) == pytest.approx(then, abs=1e-9)
    assert dict(zip(one["x"], one["y"], strict=True)) == now
    assert "no stream" in shown(w, "map", "s", "--at", "1970-01-01T00:00:01Z").stderr

    assert shown(w, "freeze", "s", "--reason", "year's end").returncode == 0
    until_restart = shown(w, "map", "s", "--as", "json")
    assert "workers run other streams than the streams file has" in until_restart.stderr
    assert not orjson.loads(until_restart.stdout)["maps"][0]["frozen"]
    third = events(4_000_000, 200, times=10.0)
    w.send(third)
    with w.worker() as worker:
        w.wait_until_applied()
        assert worker.metric("frozen", stream="s") == 1
    assert answers(w) == now
    w.agree()
