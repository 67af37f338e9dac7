"""Last year's table as the beginning of a live group: two commands, and the worker answers by what it taught."""

import asyncio
import subprocess
import time
from pathlib import Path

import orjson
import pytest

from cli import options
from replay import first_rows
from replay.first_rows import FreshGroup
from streams.kafka.topics import TopicsError
from tests.e2e.world import MakeWorld, World, wait_for
from tests.events import Sent

DAY = 86_400_000
NOW = int(time.time() * 1000)
#: Until half a day ago.
LAST = NOW - DAY // 2
COLUMNS = ("--score", "score", "--label", "fraud", "--time", "at", "--label-time", "known", "--id", "id")
PLAN = '[streams.cards]\nmatures = "20d"\nsilence = 0\nttl = "30d"\ncalibrator = "platt"\n'


def table(tmp_path: Path, rows: int = 4000) -> Path:
    """Sixty days of scores that are four times too high; frauds are known after five days, zeros have no date."""
    path = tmp_path / "last-year.csv"
    lines = []
    for i in range(rows):
        at = LAST - 60 * DAY + round(i * 60 * DAY / (rows - 1))
        score, fraud = (0.2, 0.4, 0.6, 0.8)[i % 4], i // 4 % 20 < i % 4
        known = at + 5 * DAY if fraud and at + 5 * DAY <= LAST else ""
        lines.append(f"old-{i},{score},{int(fraud)},{at},{known}" if known or not fraud else f"old-{i},{score},,{at},")
    path.write_text("\n".join(["id,score,fraud,at,known", *lines]) + "\n")
    return path


def sent(topic: str, **record: object) -> Sent:
    return Sent(topic, str(record["event_id"]).encode(), orjson.dumps(record), NOW)


def live(n: int, p: float) -> Sent:
    return sent("forecasts", event_id=f"new-{n}", stream="cards", p=p)


async def loaded_elsewhere_meanwhile(made: World) -> None:
    """A load that stood still before it wrote anything finds the rows of this one, and writes nothing."""
    group = FreshGroup([(0, 0)] * made.partitions, [(0, 0, 0)] * made.partitions)
    with pytest.raises(TopicsError, match="has a state by now, of another run of 'trueup load'"):
        async with first_rows.beginning(made.settings, group, {}, "trueup load"):
            pass


def test_a_worker_begins_with_what_a_table_taught(world: MakeWorld, tmp_path: Path) -> None:
    (tmp_path / "streams.toml").write_text(PLAN)
    made = world(TRUEUP_STREAMS=str(tmp_path / "streams.toml"))
    past = str(table(tmp_path))

    def load() -> subprocess.CompletedProcess[str]:
        return made.command("load", "--table", past, *COLUMNS, "--stream-name", "cards")

    made.send(live(n, 0.8) for n in range(10))  # before the load
    done = load()
    assert done.returncode == 0, done.stderr
    asyncio.run(loaded_elsewhere_meanwhile(made))
    assert "have no date. They are taken as silence" in done.stdout
    assert "4,000 forecasts and " in done.stdout
    assert f"are loaded into {made.name}" in done.stdout
    made.send(live(n, 0.2) for n in range(10, 20))
    with made.worker() as worker:
        wait_for("all answers", lambda: len(made.read("calibrated")) == 20)
        answers = made.said("calibrated")
        assert {each["event_id"] for each in answers} == {f"new-{n}" for n in range(20)}
        for each in answers:
            # Of the four scores, 0, 1, 2 and 3 in 20 were frauds.
            assert each["version"] > 500, "learnt"
            assert each["p"] < 0.3
        # A running group is refused, and a second load as well.
        running = load()
        assert running.returncode == options.MISCONFIGURED
        assert f"group {made.name} runs (1 members): stop its workers" in running.stderr
        # A label that is still to come joins the forecast that was loaded.
        waiting = made.applied()["outcomes_waiting"]
        made.send([sent("outcomes", event_id="old-3999", y=1)])
        wait_for("the label", lambda: made.applied()["outcomes_waiting"] > waiting)
        assert worker.stop() == 0
    twice = load()
    assert twice.returncode == options.MISCONFIGURED
    assert "has a state already" in twice.stderr
    account = made.agree()
    assert account["checked"]["calibrated"] == 20
    assert all("that 'trueup load' made of last-year.csv" in each for each in account["loaded"].values())
    assert len(account["loaded"]) == made.partitions
