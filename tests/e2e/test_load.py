"""Last year's table as the beginning of a live group: two commands, and the worker answers by what it taught."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from cli import main, options
from replay import first_rows
from replay.audit import auditor
from replay.first_rows import Group
from streams.kafka.topics import TopicsError
from tests.e2e.test_intake import Hour, Source
from tests.e2e.world import World, wait_for
from tests.events import Sent

DAY = 86_400_000
NOW = int(time.time() * 1000)
#: Until half a day ago.
LAST = NOW - DAY // 2
COLUMNS = ("--score", "score", "--label", "fraud", "--time", "at", "--label-time", "known", "--id", "id")
PLAN = '[streams.cards]\nmatures = "20d"\nsilence = 0\nttl = "30d"\ncalibrator = "platt"\n'
SOURCES = """
[sources.scores]
topic = "{name}-scores.v3"
role = "forecast"
event_id = "payment"
stream = {{ constant = "cards" }}
p = "risk"

[sources.chargebacks]
topic = "{name}-chargebacks"
role = "outcome"
event_id = "txn"
y = "fraud"
"""


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


@pytest.fixture
def loading(
    world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[World, Callable[..., int]]:
    plan = tmp_path / "streams.toml"
    plan.write_text(PLAN)
    made = world(TRUEUP_STREAMS=str(plan))
    return made, loader(made, tmp_path, monkeypatch)


def loader(made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    path = table(tmp_path)

    def load(*more: str) -> int:
        return main.main(["load", "--table", str(path), *COLUMNS, "--stream-name", "cards", *more])

    return load


def files(tmp_path: Path) -> list[str]:
    """Return options with the rows of `table` as two files; its outcomes name no stream."""
    rows = [line.split(",") for line in table(tmp_path).read_text().splitlines()[1:]]
    made = {
        "forecasts": [{"event_id": i, "stream": "cards", "p": float(p), "ts": int(at)} for i, p, _, at, _ in rows],
        "outcomes": [{"event_id": i, "y": int(y), "ts": int(known)} for i, _, y, _, known in rows if known],
    }
    options = []
    for name, records in made.items():
        (tmp_path / name).write_bytes(b"\n".join(map(orjson.dumps, records)))
        options += [f"--{name}", str(tmp_path / name)]
    return options


def keep(made: World, topic: str, ms: int) -> None:
    configs = {"retention.ms": str(ms), "message.timestamp.after.max.ms": "300000"}

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=made.bootstrap)
        await admin.start()
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])
        await admin.close()

    asyncio.run(run())


def source(topic: str, key: str, **record: object) -> Source:
    return Source(topic, key.encode(), orjson.dumps(record), NOW)


async def loaded_elsewhere_meanwhile(made: World) -> None:
    """A load that stood still before it wrote anything finds the rows of this one, and writes nothing."""
    group = Group([(0, 0)] * made.partitions, [(0, 0, 0)] * made.partitions)
    with pytest.raises(TopicsError, match="has a state by now, of another run of 'trueup load'"):
        async with first_rows.beginning(made.settings, group, {}, "trueup load"):
            pass


def test_a_worker_begins_with_what_a_table_taught(
    loading: tuple[World, Callable[..., int]], capsys: pytest.CaptureFixture[str]
) -> None:
    made, load = loading
    made.send(live(n, 0.8) for n in range(10))  # before the load
    assert load() == 0
    said = capsys.readouterr().out
    asyncio.run(loaded_elsewhere_meanwhile(made))
    assert "have no date. They are taken as silence" in said
    assert "4,000 forecasts and " in said
    assert f"are loaded into {made.name}" in said
    made.send(live(n, 0.2) for n in range(10, 20))
    with made.worker() as worker:
        wait_for("all answers", lambda: len(made.read("calibrated")) == 20)
        answers = [orjson.loads(each.value or b"") for each in made.read("calibrated")]
        assert {each["event_id"] for each in answers} == {f"new-{n}" for n in range(20)}
        for each in answers:
            # Of the four scores, 0, 1, 2 and 3 in 20 were frauds.
            assert each["version"] > 500, "learnt"
            assert each["p"] < 0.3
        # A running group is refused, and a second load as well.
        assert load() == options.MISCONFIGURED
        assert f"group {made.name} runs (1 members): stop its workers" in capsys.readouterr().err
        # A label that is still to come joins the forecast that was loaded.
        waiting = made.applied()["outcomes_waiting"]
        made.send([sent("outcomes", event_id="old-3999", y=1)])
        wait_for("the label", lambda: made.applied()["outcomes_waiting"] > waiting)
        assert worker.stop() == 0
    assert load() == options.MISCONFIGURED
    assert "has a state already" in capsys.readouterr().err
    assert auditor.run(made.settings, json_output=True) == auditor.AGREE
    account = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert account["checked"]["calibrated"] == 20
    assert all("that 'trueup load' made of last-year.csv" in each for each in account["loaded"].values())
    assert len(account["loaded"]) == made.partitions


def test_labels_that_come_through_intake_and_router_find_what_was_loaded(
    world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hour = Hour(world, tmp_path, "loaded", PLAN + SOURCES)
    made, load = hour.world, loader(hour.world, tmp_path, monkeypatch)
    past = files(tmp_path)
    hour.send([source("scores.v3", f"card-{n % 3}", payment=f"new-{n}", risk=0.8) for n in range(10)])
    keep(made, made.settings.routes, DAY // 2)
    assert load() == options.MISCONFIGURED
    assert f"topic {made.settings.routes} keeps records for 0.5 days" in capsys.readouterr().err
    keep(made, made.settings.routes, 7 * DAY)
    assert main.main(["load", *past]) == 0
    assert "The router is told of " in capsys.readouterr().out
    # Silence has labelled the one long ago; the other is not yet mature.
    late, waiting = "old-2332", "old-3999"
    labels = [source("chargebacks", f"cb-{n}", txn=event, fraud=1) for n, event in enumerate((late, waiting, late))]
    labels += [source("chargebacks", "cb-new", txn="new-3", fraud=1)]

    def resolved(event: str) -> list[dict[str, object]]:
        read = (orjson.loads(each.value or b"") for each in made.read("resolved"))
        return [each for each in read if each["event_id"] == event]

    with hour.stages("intake", "router", "worker"):
        hour.wait()
        answers = [orjson.loads(each.value or b"") for each in made.read("calibrated")]
        assert len(answers) == 10
        for each in answers:
            assert each["version"] > 300, "learnt"
            assert each["p"] < 0.3
        before = made.applied()["outcomes_waiting"]
        hour.send(labels)
        hour.wait()
        assert made.applied()["outcomes_waiting"] == before + 2
        assert all(stage.stop() == 0 for stage in reversed(hour.running))
    (revised,) = resolved(late)
    assert (revised["y"], revised["revision"], revised["scope"]) == (1, 1, "cards")
    assert auditor.run(made.settings, json_output=True, sources=True) == auditor.AGREE
    account = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert account["checked"]["calibrated"] == 10
    assert account["followed"]["sources"]["loaded"] > 1500
    assert account["followed"]["router"]["outcomes"] == 3
