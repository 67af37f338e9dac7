"""Sources of any keys: three topics become one stream, whoever is killed, and every record is where it must be."""

import asyncio
import random
import signal
from collections import defaultdict
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from aiokafka.admin import NewPartitions

from replay.audit import auditor, event_path
from state import kinds
from streams.kafka import topics
from tests.e2e.world import (
    PATIENCE,
    MakeWorld,
    Read,
    Worker,
    World,
    held,
    is_written,
    produced,
    until_committed,
    wait_for,
)
from tests.events import Sent

START = 1_700_000_000_000
SOURCES = """
early_ttl = "1d"

[streams."model-*"]
calibrator = "platt+minimax"
ttl = "1d"

[sources.scores]
topic = "{name}-scores.v3"
role = "forecast"
event_id = "transaction.id"
stream = "model-{{model}}"
p = {{ path = "riskScore", scale = [0, 1000] }}
ts = "scoredAt"

[sources.chargebacks]
topic = "{name}-chargebacks"
role = "outcome"
event_id = "txn"
y = {{ path = "status", labels = {{ lost = 1, won = 0, open = "skip" }} }}

[sources.decisions]
topic = "{name}-decisions"
role = "outcome"
event_id = "payment"
y = "fraud"
"""
WIDTHS = {"scores.v3": 3, "chargebacks": 2, "decisions": 5}


class Source(NamedTuple):
    """A record of a source topic."""

    topic: str
    key: bytes
    value: bytes
    ts: int
    headers: tuple[tuple[str, bytes], ...] = ()


def made(n: int, seed: int = 1, start: int = START) -> list[Source]:
    """Return payments in time order, one in 100 ms.

    Each is scored by one model or two, and charged back, won back, judged, or never heard of.
    """
    rng = random.Random(seed)
    found: list[Source] = []

    def add(topic: str, key: str, ts: int, **fields: Any) -> None:
        found.append(Source(topic, key.encode(), orjson.dumps(fields), ts))

    for i in range(n):
        ts, txn = start + 100 * i, f"{seed}-{i}"
        score = rng.randrange(1001)
        at = datetime.fromtimestamp(ts / 1000, UTC).isoformat(timespec="milliseconds")
        models = ("a", "b") if i % 5 == 0 else ("a",)
        for model in models:
            shown = {"transaction": {"id": txn}, "model": model, "riskScore": score, "scoredAt": at}
            add("scores.v3", f"card-{rng.randrange(40)}", ts, **shown)
        if i % 50 == 7:
            add("scores.v3", "card-0", ts, transaction={"id": txn}, model="a", riskScore="much", scoredAt=at)
        y, when = rng.random() < score / 1000, ts + rng.randrange(-300, 5000)
        if i % 3 == 0:
            add("chargebacks", f"cb-{i}", when, txn=txn, status="open")
            add("chargebacks", f"cb-{i}", when + 50, txn=txn, status="lost" if y else "won")
            if i % 9 == 0:  # and the other way round in the end
                add("chargebacks", f"cb-{i}b", when + 3000, txn=txn, status="won" if y else "lost")
        elif i % 3 == 1:
            add("decisions", f"analyst-{rng.randrange(9)}", when, payment=txn, fraud=int(y))
    return sorted(found, key=lambda each: each.ts)


class Hour:
    """The sources of a world, its stages, and what must become of the one by the others."""

    def __init__(
        self,
        world: MakeWorld,
        directory: Path,
        name: str,
        sources: str = SOURCES,
        *,
        partitions: int = 2,
        **settings: str,
    ) -> None:
        streams = directory / f"{name}.toml"
        streams.write_text(sources.format(name=name))
        self.name = name
        settings = {"TRUEUP_BATCH_RECORDS": "200", **settings}
        self.world = world(partitions=partitions, TRUEUP_STREAMS=str(streams), **settings)
        self.topics = {label: f"{name}-{label}" for label in WIDTHS}
        self.running: list[Worker] = []
        self.world.make({self.topics[label]: n for label, n in WIDTHS.items()})

    def send(self, records: list[Source]) -> None:
        """Produce records of sources in order."""
        named = [Sent(self.topics[each.topic], *each[1:]) for each in records]
        asyncio.run(produced(self.world.bootstrap, named))

    def stages(self, *which: str, **accidents: tuple[str, ...]) -> "ExitStack":
        """Run stages; accidents are given by the name of their stage."""
        stack = ExitStack()
        self.running = [
            stack.enter_context(self.world.worker("--stage", stage, *accidents.get(stage, ()))) for stage in which
        ]
        return stack

    def taken(self) -> None:
        """Return when intake has committed all there is."""
        self._committed("-intake", {self.topics[label]: n for label, n in WIDTHS.items()})

    def wait(self) -> None:
        """Return when every stage has done everything, one behind the other."""
        self.taken()
        w = self.world
        self._committed("-router", dict.fromkeys((w.settings.routes, w.settings.labels), w.partitions))
        self._committed("", dict.fromkeys((w.settings.forecasts, w.settings.outcomes), w.partitions))
        for changelog in (w.settings.changelog, w.settings.router.changelog):
            wait_for("a checkpoint", lambda name=changelog: is_written(read(w.bootstrap, name, w.partitions)))  # type: ignore[misc]

    def _committed(self, stage: str, topics: dict[str, int]) -> None:
        w = self.world
        asyncio.run(until_committed(w.bootstrap, f"{w.name}{stage}", topics, None, w.require_running))


def read(bootstrap: str, name: str, partitions: int) -> list[Read]:
    """Return everything a topic holds, partition by partition."""

    async def run() -> list[Read]:
        every = held(bootstrap, name, range(partitions))
        return sorted([Read(r.partition, r.offset, r.key, r.value, r.timestamp, tuple(r.headers)) async for r in every])

    return asyncio.run(run())


def resolved(world: World) -> dict[tuple[str, str], float]:
    """Return the last label of every event, by its stream and its id."""
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for said in world.said("resolved"):
        where = said["stream"], said["event_id"]
        found[where] = max(found.get(where, (-1, 0.0)), (said["revision"], said["y"]))
    return {where: y for where, (_, y) in found.items()}


def expected(sent: list[Source]) -> dict[tuple[str, str], float]:
    """Return the same by the sources alone."""
    models, labels = defaultdict(set), {}
    for each in sent:
        record = orjson.loads(each.value)
        if each.topic == "scores.v3":
            if record["riskScore"] != "much":
                models[record["transaction"]["id"]].add(record["model"])
        elif each.topic == "decisions":
            labels[record["payment"]] = float(record["fraud"])
        elif record["status"] != "open":
            labels[record["txn"]] = float(record["status"] == "lost")
    return {(f"model-{m}", txn): y for txn, y in labels.items() for m in models[txn]}


def test_a_history_waits_for_its_labels_and_other_partitions_are_refused_by_every_stage(
    world: MakeWorld, tmp_path: Path
) -> None:
    hour = Hour(world, tmp_path, "history", SOURCES.replace('ttl = "1d"', 'ttl = "100s"'))
    w, sent = hour.world, made(3000)  # 300 s
    hour.send(sent)
    with hour.stages("worker"):
        (worker,) = hour.running
        said = "no: intake and router have not handed on yet what the sources hold\n"
        wait_for("the worker to wait", lambda: worker.get("/readyz") == (503, said))
        with hour.stages("intake", "router"):
            hour.wait()
            wait_for("the worker", worker.ready)
            assert worker.metric("expired_total", record="outcome") == 0
            assert resolved(w) == expected(sent)
            assert worker.stop() == 0
    with hour.stages("worker"):  # its group has begun: it waits for nobody
        (worker,) = hour.running
        wait_for("the worker", worker.ready)

    names = {topic.name for stage in w.settings.stages for topic in topics.wanted(stage)}
    w.administer(lambda admin: admin.create_partitions({name: NewPartitions(4) for name in names}))
    for stage in ("intake", "router", "worker"):
        with w.worker("--stage", stage) as refused:
            assert refused.process.wait(90) == 70
            assert "has 4 partitions, and had 2" in refused.printed
            assert "'trueup state rescale' moves the state" in refused.printed


def test_stages_that_are_killed_lose_and_double_nothing_and_every_record_is_followed_to_its_answer(
    world: MakeWorld, tmp_path: Path
) -> None:
    hour = Hour(world, tmp_path, "killed")
    w, sent = hour.world, made(1500, seed=3)
    steps = (1, 2, 1, 2, 3)  # it may take all there is at once, and commits by the clock
    parts = [sent[n * len(sent) // len(steps) : (n + 1) * len(sent) // len(steps)] for n in range(len(steps))]
    with hour.stages("router", "worker", router=("--kill", "3", "1")):
        for step, part in zip(steps, parts, strict=True):
            hour.send(part)
            w.killed("--stage", "intake", "--kill", str(step), "1")
        with w.worker("--stage", "intake"):
            assert hour.running[0].process.wait(PATIENCE) == -signal.SIGKILL
            with w.worker("--stage", "router"):
                hour.wait()
    assert resolved(w) == expected(sent)
    w.judge()
    every_record_is_counted_once(w, sent, w.agree("--sources")["followed"])
    the_path_of_an_event_is_shown(w)
    a_label_that_was_sent_again_with_other_content_is_named(w)
    # One stream has one calibrator: its records are in one partition.
    calibrators = {(p, key[5:]) for p, rows in w.state().items() for key in rows if key[:1] == kinds.CALIBRATOR.letter}
    assert len({stream for _, stream in calibrators}) == len(calibrators) == 2


def every_record_is_counted_once(w: World, sent: list[Source], followed: dict[str, Any]) -> None:
    source, router = followed["sources"], followed["router"]
    assert source["records"] == len(sent)
    assert source["dead"] == sum(each.value.count(b"much") for each in sent)
    assert source["passed"] == sum(b'"open"' in each.value for each in sent)
    assert source["sent"] + source["dead"] + source["passed"] == len(sent)
    assert (source["waiting"], source["gone"], source["unread"], router["waiting"]) == (0, 0, 0, 0)
    written = sum(len(w.read(label)) for label in ("forecasts", "routes", "labels"))
    assert source["copies"] > 0, "intake has sent what it had not committed again"
    assert source["forecasts"] + source["routes"] + source["labels"] + source["copies"] >= written
    assert router["outcomes"] + router["copies"] == len(w.read("outcomes"))


def the_path_of_an_event_is_shown(w: World) -> None:
    """It was charged back and won back."""
    printed = orjson.loads(w.done("audit", "--event", "3-9", "--json").splitlines()[-1])
    assert printed["verdict"] == "answered, and its label is learnt"
    steps = [step["stage"] for step in printed["steps"]]
    assert set(steps) == {"source", "forecasts", "routes", "calibrated", "labels", "outcomes", "resolved"}
    assert steps[:2] == ["source", "forecasts"]
    sources = [step for step in printed["steps"] if step["stage"] == "source"]
    assert [orjson.loads(step["said"]).get("status") for step in sources] == [None, "lost", "won"]
    assert all("(not there)" not in step["note"] for step in sources)
    assert w.command("audit", "--event", "nobody").returncode == event_path.NOTHING


def a_label_that_was_sent_again_with_other_content_is_named(w: World) -> None:
    label = w.read("labels")[20]
    said = orjson.loads(label.value or b"")
    w.send([Sent("labels", label.key or b"", orjson.dumps(said | {"y": 1.0 - said["y"]}), label.timestamp)])
    status, account = w.audit("--sources")
    assert status == auditor.DIFFER
    doubled = next(each for each in account["differences"] if each["topic"] == "labels")
    assert (doubled["partition"], doubled["event_id"]) == (label.partition, said["event_id"])
    assert doubled["offset"] == max(each.offset for each in w.read("labels", label.partition))
    assert "doubled with other content" in doubled["what"]
    assert doubled["fields"] == {"y": [1.0 - said["y"], said["y"]]}
