"""Sources of any keys: three topics become one stream, whoever is killed, and every record is where it must be."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from state import kinds
from state.events import Rejected
from state.journal import Entry
from state.router import Router
from state.routes import Routed
from streams.kafka import partitioner, topics
from streams.records.making import Maker
from streams.records.routing import RouteDecoder, encode_outcome
from tests.e2e.world import (
    BESIDE,
    Read,
    Worker,
    World,
    along,
    is_written,
    journaled,
    new_topics,
    produced,
    until_committed,
    wait_for,
)
from tests.events import Sent

MakeWorld = Callable[..., World]
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

        asyncio.run(new_topics(self.world.bootstrap, {self.topics[label]: n for label, n in WIDTHS.items()}))

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
            wait_for("a checkpoint", lambda name=changelog: is_written(self.read(name, w.partitions)))  # type: ignore[misc]

    def _committed(self, stage: str, topics: dict[str, int]) -> None:
        w = self.world
        asyncio.run(until_committed(w.bootstrap, f"{w.name}{stage}", topics, None, w.require_running))

    def read(self, name: str, partitions: int) -> list[Read]:
        return read(self.world.bootstrap, name, partitions)

    # -- what must be ----------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Assert that every record of every topic is what the one before it must become, and none is missing."""
        self._judge_intake()
        self._judge_router()
        self.world.judge()

    def _judge_intake(self) -> None:
        w = self.world
        intake = Maker(w.settings)
        wanted: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
        letters = set()
        ids = self._ids()
        for label, n in WIDTHS.items():
            topic = self.topics[label]
            for record in self.read(topic, n):
                (reader,) = intake.readers[topic]
                source = SimpleNamespace(**record._asdict(), timestamp=record.ts, headers=())
                origin = f"{reader.name}@{ids[topic]}/{record.partition}", record.offset
                became = reader.canonical(source, topic, origin, record.ts)
                if isinstance(became, Rejected):
                    letters.add((topic, record.partition, record.offset, became.reason))
                for each in (became.first, became.then) if became and not isinstance(became, Rejected) else ():
                    if each is not None:
                        there = partitioner.partition(each.key, w.partitions)
                        wanted[each.topic].add((there, each.key, each.value, record.ts))
        names = {"forecasts": w.settings.forecasts, "routes": w.settings.routes, "labels": w.settings.labels}
        for label, name in names.items():
            found = {(r.partition, r.key, r.value, r.ts) for r in self.read(name, w.partitions)}
            assert found == wanted[label], label
        said = [orjson.loads(record.value or b"") for record in w.read("dead-letters")]
        assert {(s["topic"], s["partition"], s["offset"], s["reason"]) for s in said} >= letters

    def _ids(self) -> dict[str, str]:
        """Return the ids of the source topics, as the canonical records name them."""
        found = {}
        for record in self.read(self.world.settings.routes, 2) + self.read(self.world.settings.labels, 2):
            place = orjson.loads(record.value or b"")["origin"][0]
            source, _, rest = place.partition("@")
            found[f"{self.name}-{'scores.v3' if source == 'scores' else source}"] = rest.partition("/")[0]
        return found

    def _judge_router(self) -> None:
        w = self.world
        router = w.settings.router
        rows: dict[int, dict[bytes, bytes]] = defaultdict(dict)
        wait_for("a checkpoint", lambda: is_written(self.read(router.changelog, w.partitions)))
        changelog = self.read(router.changelog, w.partitions)
        for record in changelog:
            assert record.key is not None
            if record.key[:1] in BESIDE:
                continue
            if record.value is None:
                rows[record.partition].pop(record.key, None)
            else:
                rows[record.partition][record.key] = record.value
        inputs = [self.read(name, w.partitions) for name in (router.forecasts, router.outcomes)]
        wanted = set()
        for n, entries in journaled(changelog).items():
            table: dict[bytes, bytes] = {}
            engine = Router(router.policies, table.get)
            mine = [[r for r in each if r.partition == n] for each in inputs]
            for entry in entries:
                engine.begin()
                outputs = engine.apply(RouteDecoder().events(in_order(entry, mine, engine.fence.next)))
                for key, value in engine.checkpoint().rows.items():
                    if value is None:
                        table.pop(key, None)
                    else:
                        table[key] = value
                for each in outputs:
                    assert isinstance(each, Routed)
                    there = partitioner.partition(each.target.encode(), w.partitions)
                    wanted.add((there, each.target.encode(), encode_outcome(each), each.stamp))
            assert table == rows[n]
        found = {(r.partition, r.key, r.value, r.ts) for r in self.read(w.settings.outcomes, w.partitions)}
        assert found == wanted


def read(bootstrap: str, name: str, partitions: int) -> list[Read]:
    """Return everything a topic holds, partition by partition."""

    async def run() -> list[Read]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        found: list[Read] = []
        async with consumer:
            tps = [TopicPartition(name, n) for n in range(partitions)]
            consumer.assign(tps)
            ends = await consumer.end_offsets(tps)
            while any([await consumer.position(tp) < ends[tp] for tp in tps]):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [Read(r.partition, r.offset, r.key, r.value, r.timestamp) for r in records]
        return sorted(found)

    return asyncio.run(run())


def in_order(entry: Entry, inputs: Sequence[list[Read]], first: Sequence[int]) -> list[tuple[int, Any]]:
    """Return the records of a journal entry as the router folds them; see `along`."""
    return [
        (n, SimpleNamespace(**each._asdict(), timestamp=each.ts, headers=())) for n, each in along(entry, inputs, first)
    ]


def resolved(world: World) -> dict[tuple[str, str], float]:
    """Return the last label of every event, by its stream and its id."""
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for record in world.read("resolved"):
        said = orjson.loads(record.value or b"")
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


def test_a_worker_that_starts_on_a_history_waits_until_its_labels_can_come(world: MakeWorld, tmp_path: Path) -> None:
    hour = Hour(world, tmp_path, "history", SOURCES.replace('ttl = "1d"', 'ttl = "100s"'))
    sent = made(3000)  # 300 s
    hour.send(sent)
    with hour.stages("worker"):
        (worker,) = hour.running
        said = "no: intake and router have not handed on yet what the sources hold\n"
        wait_for("the worker to wait", lambda: worker.get("/readyz") == (503, said))
        with hour.stages("intake", "router"):
            hour.wait()
            wait_for("the worker", worker.ready)
            assert worker.metric("expired_total", record="outcome") == 0
            assert resolved(hour.world) == expected(sent)
            assert worker.stop() == 0
    with hour.stages("worker"):  # its group has begun: it waits for nobody
        (worker,) = hour.running
        wait_for("the worker", worker.ready)


def test_a_record_stamped_ahead_in_a_history_costs_no_label(world: MakeWorld, tmp_path: Path) -> None:
    hour = Hour(world, tmp_path, "ahead", SOURCES.replace('"1d"', '"10d"'))
    sent = made(900)
    spread = [each._replace(ts=START + (each.ts - START) * 40_000) for each in sent]  # 40 days
    late = START + 41 * 86_400_000
    wild = {
        topic: Source(topic, b"k", orjson.dumps(fields), late)
        for topic, fields in (
            ("decisions", {"payment": "nobody", "fraud": 1}),
            ("chargebacks", {"txn": "nobody", "status": "lost"}),
            ("scores.v3", {"transaction": {"id": "alone"}, "model": "a", "riskScore": 1}),
        )
    }
    hour.send([wild["decisions"], wild["chargebacks"], *spread[:1000], wild["scores.v3"], *spread[1000:]])
    with hour.stages("intake", "router", "worker"):
        hour.wait()
    hour.judge()
    assert resolved(hour.world) == expected(sent)


@pytest.mark.parametrize("stage", ["intake", "router", "worker"])
def test_a_stage_that_is_killed_loses_nothing_and_doubles_nothing(world: MakeWorld, tmp_path: Path, stage: str) -> None:
    hour = Hour(world, tmp_path, f"kill-{stage}")
    sent = made(600, seed=2)
    # A stage may take all there is at once. Intake commits by the clock.
    steps = (1, 2, 1, 2, 3) if stage == "intake" else (1, 2, 3, 4, 5)
    parts = [sent[n * len(sent) // len(steps) : (n + 1) * len(sent) // len(steps)] for n in range(len(steps))]
    with hour.stages(*{"intake", "router", "worker"} - {stage}):
        for step, part in zip(steps, parts, strict=True):
            hour.send(part)
            with hour.world.worker("--stage", stage, "--kill", str(step), "1") as doomed:
                assert doomed.process.wait(90) == -9, doomed.printed[-2000:]
        with hour.world.worker("--stage", stage):
            hour.wait()
    hour.judge()
    assert resolved(hour.world) == expected(sent)
    # One stream has one calibrator: its records are in one partition.
    calibrators = {
        (p, key[5:]) for p, rows in hour.world.state().items() for key in rows if key[:1] == kinds.CALIBRATOR.letter
    }
    assert len({stream for _, stream in calibrators}) == len(calibrators) == 2


def test_another_number_of_partitions_is_refused_by_every_stage(world: MakeWorld, tmp_path: Path) -> None:
    hour = Hour(world, tmp_path, "wider")
    w = hour.world
    hour.send(made(60))
    with hour.stages("intake", "router", "worker"):
        hour.wait()

    async def widen() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=w.bootstrap)
        await admin.start()
        names = {topic.name for stage in w.settings.stages for topic in topics.wanted(stage)}
        await admin.create_partitions({name: NewPartitions(4) for name in names})
        await admin.close()

    asyncio.run(widen())
    for stage in ("intake", "router", "worker"):
        with w.worker("--stage", stage) as refused:
            assert refused.process.wait(90) == 70
            assert "has 4 partitions, and had 2" in refused.printed
            assert "'trueup state rescale' moves the state" in refused.printed
