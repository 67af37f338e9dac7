"""The other shape: source topics of any keys, an intake, a router and workers; its load, its faults, what each does.

Three source topics of different keys and numbers of partitions become the forecasts and outcomes of the workers. Two
intakes and two routers share them, so that partitions move when one of them is struck.
"""

import asyncio
import itertools
import signal
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.structs import TopicPartition

from tests.chaos import campaign, faults, outages
from tests.chaos.cluster import Cluster
from tests.chaos.faults import Drawing, Kind, few_and_long, kind, takes
from tests.chaos.feed import PART, Feed
from tests.chaos.fleet import Fleet, Member
from tests.chaos.judge import Verdict, judge
from tests.chaos.stage import PATIENCE, Stage
from tests.e2e.test_intake import SOURCES, START, WIDTHS, Source, expected, made, read, resolved
from tests.e2e.test_zombies import frozen
from tests.e2e.world import World, wait_for
from tests.events import Sent

NAME = "any"
#: Time between payments, ms; see `made`.
STEP = 100
#: Two members of each stage, and partitions of the topics between them.
STAGES = ("intake", "intake", "router", "router", "worker", "worker")
PARTITIONS = 4
#: Rows of one of the two streams leave the router while the suite runs: an hour is 36,000 payments. It learns from
#: silence, too, and most labels come after that. The first table counts that fits a stream.
REST = '[streams."model-*"]\n'
SHORT_LIVED = "model-b"
SHORT = f'[streams.{SHORT_LIVED}]\ncalibrator = "histogram"\nttl = "1h"\nmatures = "2s"\nsilence = 0\n'
SETTINGS = {
    **campaign.SETTINGS,
    # So small that a batch of intake with a backlog is several record batches for a partition.
    "TRUEUP_BATCH_BYTES": "131072",
    "TRUEUP_LETTER_BYTES": "1024",
}


class SourceFeed(Feed):
    """Payments, to the source topics by their keys; see `Feed`. Its events are payments."""

    options: ClassVar[dict[str, Any]] = {"metadata_max_age_ms": 2000}

    def _endless(self, seed: int) -> Iterator[Sent]:
        for part in itertools.count():
            self.events += PART
            for each in made(PART, seed=seed * 100_000 + part, start=START + part * PART * STEP):
                self.clock = each.ts
                yield Sent(each.topic, each.key, each.value, each.ts)

    async def _appended(self, producer: AIOKafkaProducer, number: int, records: list[Sent]) -> int | None:  # noqa: ARG002 - a lane keeps the order of keys, the client picks the partition
        sent = [await producer.send(f"{NAME}-{r.topic}", r.value, key=r.key, timestamp_ms=r.ts) for r in records]
        await asyncio.gather(*sent)
        return None


@dataclass
class Sources(Stage):
    """What faults strike, see `Stage`; and how many partitions each source topic has, by its label."""

    widths: dict[str, int]

    def of(self, stage: str) -> list[Member]:
        """Return the members that are intakes, routers or workers."""
        return [member for member in self.fleet.members if member.stage == stage]

    def groups(self) -> Iterator[tuple[str, list[TopicPartition]]]:
        """Yield the group of each stage; see `Stage.groups`."""
        w = self.world
        sources = [TopicPartition(f"{NAME}-{label}", n) for label, m in self.widths.items() for n in range(m)]
        yield f"{w.name}-intake", sources
        own = w.settings.routes, w.settings.labels
        yield f"{w.name}-router", [TopicPartition(name, n) for name in own for n in range(w.partitions)]
        yield from super().groups()

    def judge(self) -> Verdict:
        """Judge every stage; and, without any engine, that the last label of every event was learnt.

        Whether a row of the stream whose rows leave early was still there when its label came, only engines can say.
        """
        verdict = judge(self.world, sources=True)
        sources = [
            Source(label, record.key or b"", record.value or b"", record.timestamp)
            for label, width in self.widths.items()
            for record in read(self.world.bootstrap, f"{NAME}-{label}", width)
        ]
        wanted, found = (
            {name: y for name, y in labels.items() if name[0] != SHORT_LIVED}
            for labels in (expected(sorted(sources, key=lambda each: each.ts)), resolved(self.world))
        )
        wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        verdict.findings += [f"{name}: label {wanted.get(name)} became {found.get(name)}" for name in wrong[:10]]
        return verdict


# -- faults ------------------------------------------------------------------------------------------------------------


#: Steps of the order of effects: of `agents.intake`, and of `agents.processor`; 0: any moment.
STEPS = {"intake": range(4), "router": range(7)}


def _await_frozen(member: Member) -> None:
    wait_for(f"{member.stage} {member.number} to stop", lambda: frozen(member.worker), PATIENCE)


def _every_step(_: Drawing) -> list[dict[str, Any]]:
    return [{"of": stage, "step": step} for stage, steps in STEPS.items() for step in steps]


def _some_steps(drawing: Drawing) -> list[dict[str, Any]]:
    return [{"of": stage, "step": drawing.rng.choice(steps)} for stage, steps in STEPS.items()] + [
        {"of": "intake", "step": 1}
    ]


@kind("kill -9 of an intake or a router", brokers=(), each=_every_step)
def kill_stage(stage: Sources, of: str, step: int) -> None:
    """An intake or a router is killed, when its next batch has passed a step; step 0: whatever it does."""
    member, since = stage.of(of)[0], len(stage.fleet.exits)
    if step:
        member.order(die_at=step)
    else:
        member.signal(signal.SIGKILL)
    stage.fleet.await_exit(member, since, PATIENCE)


@kind("SIGSTOP of an intake or a router", brokers=(), each=_some_steps)
def freeze_stage(stage: Sources, of: str, step: int, seconds: float) -> None:
    """One is stopped beyond its session in the same way, and woken when others have its partitions: a zombie."""
    member = stage.of(of)[0]
    if step:
        member.order(freeze_at=step)
    else:
        member.signal(signal.SIGSTOP)
    _await_frozen(member)
    time.sleep(seconds)
    member.signal(signal.SIGCONT)


@kind("intakes and routers killed", brokers=())
def kill_stages(stage: Sources) -> None:
    """All intakes and all routers are killed at once."""
    struck, since = [*stage.of("intake"), *stage.of("router")], len(stage.fleet.exits)
    for member in struck:
        member.signal(signal.SIGKILL)
    for member in struck:
        stage.fleet.await_exit(member, since, PATIENCE)


@kind("an intake and a router stopped", brokers=())
def freeze_stages(stage: Sources, seconds: float) -> None:
    """An intake and a router are stopped beyond the session at once, and woken."""
    struck = stage.of("intake")[0], stage.of("router")[0]
    for member in struck:
        member.signal(signal.SIGSTOP)
    time.sleep(seconds)
    for member in struck:
        member.signal(signal.SIGCONT)


@kind("rolling restart of intakes and routers", brokers=(), spares=True)
def restart_stages(stage: Sources) -> None:
    """Intakes and routers are restarted in good order, one after another."""
    for member in [*stage.of("intake"), *stage.of("router")]:
        since = len(stage.fleet.exits)
        member.signal(signal.SIGTERM)
        stage.fleet.await_exit(member, since, PATIENCE)
        wait_for(f"{member.stage} {member.number} to serve again", member.ready, PATIENCE)


@kind("a source topic grows", brokers=(), spares=True, each=lambda _: [{"topic": label} for label in WIDTHS])
def grow_source(stage: Sources, topic: str) -> None:
    """A source topic gets a further partition."""
    name, width = f"{NAME}-{topic}", stage.widths[topic]

    async def grow(admin: AIOKafkaAdminClient) -> None:
        await admin.create_partitions({name: NewPartitions(width + 1)})

    stage.cluster.ask(grow)
    stage.widths[topic] = width + 1
    new = TopicPartition(name, width)
    wait_for(f"records in {name}/{width}", lambda: bool(campaign.ends(stage, [new]).get(new)), PATIENCE)


@kind("broker killed while intake sends", brokers=(), outage=None, each=few_and_long)
def kill_broker_sending(stage: Sources, seconds: float) -> None:
    """The broker is killed between what an intake sends first and what follows, and comes back."""
    member = stage.of("intake")[0]
    leader = stage.cluster.places(stage.world.settings.labels)[0].leader
    member.order(freeze_at=1)
    _await_frozen(member)
    stage.cluster.broker(leader).kill()
    member.signal(signal.SIGCONT)
    time.sleep(seconds)
    stage.cluster.start()


OWN: tuple[Kind, ...] = (
    kill_stage, freeze_stage, kill_stages, freeze_stages, restart_stages, grow_source, kill_broker_sending,
)  # fmt: skip
#: Every kind of a campaign by its number of brokers: those above, and those that strike brokers alone.
KINDS: dict[int, list[Kind]] = {
    brokers: [
        *OWN,
        *(each for each in kinds if each.strike.__module__ == outages.__name__ and "worker" not in takes(each)),
    ]
    for brokers, kinds in faults.KINDS.items()
}


# -- the campaign ------------------------------------------------------------------------------------------------------


@contextmanager
def stage(directory: Path, *, seed: int, rate: float, brokers: int) -> Iterator[Sources]:
    """Set up brokers, source topics, load, and the members of each stage."""
    session = campaign.default_session(brokers)
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(directory, [[] for _ in range(brokers)]))
        cluster.heal()
        streams = directory / "streams.toml"
        streams.write_text(SOURCES.format(name=NAME).replace(REST, SHORT + REST))
        settings = {
            "TRUEUP_STREAMS": str(streams),
            "TRUEUP_SESSION_SECONDS": str(session),
            "TRUEUP_REQUEST_SECONDS": str(session * campaign.REQUEST),
        }
        world = World(cluster.bootstrap, directory, PARTITIONS, replication=cluster.replication, **SETTINGS, **settings)
        wanted = [NewTopic(f"{NAME}-{label}", n, cluster.replication) for label, n in WIDTHS.items()]

        async def create(admin: AIOKafkaAdminClient) -> None:
            await admin.create_topics(wanted)

        cluster.ask(create)
        fleet = stack.enter_context(Fleet(world, [cluster.bootstrap] * len(STAGES), STAGES))
        feed = stack.enter_context(SourceFeed(world, seed, rate))
        yield Sources(world, cluster, [], fleet, feed, dict(WIDTHS))


@contextmanager
def asked(options: Namespace) -> Iterator[Sources]:
    """Set up what a command line asks for."""
    given = options.directory and options.directory / "sources"
    with (
        campaign.directory_of(given, "chaos") as directory,
        stage(directory, seed=options.seed, rate=options.rate, brokers=options.brokers) as on,
    ):
        yield on
