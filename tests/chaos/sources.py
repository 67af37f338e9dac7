"""The other shape: source topics of any keys, an intake, a router and workers; its load, its faults, what each does.

Three source topics of different keys and numbers of partitions become the forecasts and outcomes of the workers. Two
intakes and two routers share them, so that partitions move when one of them is struck.
"""

import asyncio
import itertools
import random
import signal
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from streams.kafka import groups
from tests.chaos import campaign
from tests.chaos.cluster import Cluster
from tests.chaos.faults import Fault, Outage
from tests.chaos.feed import PART, Feed
from tests.chaos.fleet import Fleet, Member
from tests.chaos.judge import Verdict, judge
from tests.chaos.stage import PATIENCE, Stage, strike
from tests.e2e.test_intake import SOURCES, START, WIDTHS, Source, expected, made, read, resolved
from tests.e2e.test_zombies import frozen
from tests.e2e.world import World, wait_for
from tests.events import Sent

NAME = "any"
#: Time between payments, ms; see `made`.
STEP = 100
STAGES = ("intake", "router", "worker")
#: Rows of one of the two streams leave the router while the suite runs: an hour is 36,000 payments. The first table
#: counts that fits a stream.
REST = '[streams."model-*"]\n'
SHORT_LIVED = "model-b"
SHORT = f'[streams.{SHORT_LIVED}]\ncalibrator = "histogram"\nttl = "1h"\n'
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
        """Yield the consumer group of each stage and the partitions that it reads, in the order of the stages."""
        w = self.world
        own, given = (w.settings.routes, w.settings.labels), (w.settings.forecasts, w.settings.outcomes)
        yield (
            f"{w.name}-intake",
            [TopicPartition(f"{NAME}-{label}", n) for label, m in self.widths.items() for n in range(m)],
        )
        yield f"{w.name}-router", [TopicPartition(name, n) for name in own for n in range(w.partitions)]
        yield w.name, [TopicPartition(name, n) for name in given for n in range(w.partitions)]


# -- faults ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KillStage(Fault):
    """An intake or a router is killed, when its next batch has passed a step; step 0: whatever it does."""

    name = "kill -9 of an intake or a router"
    stage: str
    step: int


@dataclass(frozen=True)
class FreezeStage(Fault):
    """One is stopped beyond its session in the same way, and woken when others have its partitions: a zombie."""

    name = "SIGSTOP of an intake or a router"
    stage: str
    step: int
    seconds: float


@dataclass(frozen=True)
class KillStages(Fault):
    """All intakes and all routers are killed at once."""

    name = "intakes and routers killed"


@dataclass(frozen=True)
class FreezeStages(Fault):
    """An intake and a router are stopped beyond the session at once, and woken."""

    name = "an intake and a router stopped"
    seconds: float


@dataclass(frozen=True)
class RestartStages(Fault):
    """Intakes and routers are restarted in good order, one after another."""

    name = "rolling restart of intakes and routers"
    spares = True


@dataclass(frozen=True)
class GrowSource(Fault):
    """A source topic gets a further partition."""

    name = "a source topic grows"
    spares = True
    topic: str


@dataclass(frozen=True)
class KillBrokerSending(Outage):
    """The broker is killed between what an intake sends first and what follows, and comes back."""

    name = "broker killed while intake sends"


KINDS: tuple[type[Fault], ...] = (
    KillStage, FreezeStage, KillStages, FreezeStages, RestartStages, GrowSource, KillBrokerSending,
)  # fmt: skip
#: Steps of the order of effects: of `agents.intake`, and of `agents.processor`; 0: any moment.
STEPS = {"intake": range(4), "router": range(7)}


def schedule(seed: int, session: float, kinds: Sequence[type[Fault]]) -> list[Fault]:
    """Return a round of faults, every kind at least once, in an order drawn from the seed."""
    rng = random.Random(seed)
    few = partial(rng.uniform, 1, session / 2)
    every = [
        *(KillStage(stage, step) for stage, steps in STEPS.items() for step in steps),
        *(FreezeStage(stage, rng.choice(steps), round(session + few(), 1)) for stage, steps in STEPS.items()),
        FreezeStage("intake", 1, round(session + few(), 1)),
        KillStages(),
        FreezeStages(round(session + few(), 1)),
        RestartStages(),
        *(GrowSource(label) for label in WIDTHS),
        KillBrokerSending(round(few(), 1)),
        KillBrokerSending(round(session + few(), 1)),
    ]
    drawn = [fault for fault in every if type(fault) in kinds]
    rng.shuffle(drawn)
    return drawn


# -- what each does ----------------------------------------------------------------------------------------------------


def _await_frozen(member: Member) -> None:
    wait_for(f"{member.stage} {member.number} to stop", lambda: frozen(member.worker), PATIENCE)


@strike.register
def _(fault: KillStage, stage: Stage) -> None:
    assert isinstance(stage, Sources)
    member, since = stage.of(fault.stage)[0], len(stage.fleet.exits)
    if fault.step:
        member.order(die_at=fault.step)
    else:
        member.signal(signal.SIGKILL)
    stage.fleet.await_exit(member, since, PATIENCE)


@strike.register
def _(fault: FreezeStage, stage: Stage) -> None:
    assert isinstance(stage, Sources)
    member = stage.of(fault.stage)[0]
    if fault.step:
        member.order(freeze_at=fault.step)
    else:
        member.signal(signal.SIGSTOP)
    _await_frozen(member)
    time.sleep(fault.seconds)
    member.signal(signal.SIGCONT)


@strike.register
def _(fault: KillStages, stage: Stage) -> None:  # noqa: ARG001 - nothing is drawn
    assert isinstance(stage, Sources)
    struck, since = [*stage.of("intake"), *stage.of("router")], len(stage.fleet.exits)
    for member in struck:
        member.signal(signal.SIGKILL)
    for member in struck:
        stage.fleet.await_exit(member, since, PATIENCE)


@strike.register
def _(fault: FreezeStages, stage: Stage) -> None:
    assert isinstance(stage, Sources)
    struck = stage.of("intake")[0], stage.of("router")[0]
    for member in struck:
        member.signal(signal.SIGSTOP)
    time.sleep(fault.seconds)
    for member in struck:
        member.signal(signal.SIGCONT)


@strike.register
def _(fault: RestartStages, stage: Stage) -> None:  # noqa: ARG001 - as above
    assert isinstance(stage, Sources)
    for member in [*stage.of("intake"), *stage.of("router")]:
        since = len(stage.fleet.exits)
        member.signal(signal.SIGTERM)
        stage.fleet.await_exit(member, since, PATIENCE)
        wait_for(f"{member.stage} {member.number} to serve again", member.ready, PATIENCE)


@strike.register
def _(fault: GrowSource, stage: Stage) -> None:
    assert isinstance(stage, Sources)
    name, width = f"{NAME}-{fault.topic}", stage.widths[fault.topic]

    async def grow(admin: AIOKafkaAdminClient) -> None:
        await admin.create_partitions({name: NewPartitions(width + 1)})

    stage.cluster.ask(grow)
    stage.widths[fault.topic] = width + 1
    new = TopicPartition(name, width)
    wait_for(f"records in {name}/{width}", lambda: bool(ends(stage, [new]).get(new)), PATIENCE)


@strike.register
def _(fault: KillBrokerSending, stage: Stage) -> None:
    assert isinstance(stage, Sources)
    member = stage.of("intake")[0]
    leader = stage.cluster.places(stage.world.settings.labels)[0].leader
    member.order(freeze_at=1)
    _await_frozen(member)
    stage.cluster.broker(leader).kill()
    member.signal(signal.SIGCONT)
    time.sleep(fault.seconds)
    stage.cluster.start()


# -- the campaign ------------------------------------------------------------------------------------------------------


@contextmanager
def stage(
    directory: Path,
    *,
    seed: int,
    rate: float,
    stages: Sequence[str] = tuple(each for each in STAGES for _ in range(2)),
    partitions: int = 4,
    brokers: int = 1,
    session: float | None = None,
    standbys: int = 0,
) -> Iterator[Sources]:
    """Set up brokers, source topics, load, and the members of each stage."""
    session = session or campaign.default_session(brokers)
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(directory, [[] for _ in range(brokers)]))
        cluster.heal()
        streams = directory / "streams.toml"
        streams.write_text(SOURCES.format(name=NAME).replace(REST, SHORT + REST))
        settings = {
            "TRUEUP_STREAMS": str(streams),
            "TRUEUP_SESSION_SECONDS": str(session),
            "TRUEUP_REQUEST_SECONDS": str(session * campaign.REQUEST),
            "TRUEUP_STANDBYS": str(standbys),
        }
        world = World(cluster.bootstrap, directory, partitions, replication=cluster.replication, **SETTINGS, **settings)
        wanted = [NewTopic(f"{NAME}-{label}", n, cluster.replication) for label, n in WIDTHS.items()]

        async def create(admin: AIOKafkaAdminClient) -> None:
            await admin.create_topics(wanted)

        cluster.ask(create)
        fleet = stack.enter_context(Fleet(world, [cluster.bootstrap] * len(stages), stages))
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


def ends(on: Sources, tps: Sequence[TopicPartition], group: str | None = None) -> dict[TopicPartition, int]:
    """Return where partitions end, or how far a group has committed them; nothing while the broker cannot say."""

    async def ask() -> dict[TopicPartition, int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=on.world.bootstrap, group_id=group, enable_auto_commit=False)
        try:  # not `async with`: that leaves open what could not be started
            await consumer.start()
            if group is None:
                return dict(await consumer.end_offsets(tps))
            found = await groups.committed(consumer, group, tps)
            return {tp: found[tp].offset if tp in found else 0 for tp in tps}
        finally:
            await consumer.stop()

    try:
        return asyncio.run(asyncio.wait_for(ask(), 20))
    except (KafkaError, TimeoutError, AssertionError):  # aiokafka asserts that it knows a broker, and may know none
        return {}


def recover(on: Stage, patience: float = campaign.PATIENCE) -> None:
    """Return when what the sources hold by now has gone through every stage, and all members serve."""
    assert isinstance(on, Sources)
    on.fleet.settle(patience)
    for group, tps in on.groups():  # what one has committed, the next can read
        goal: dict[TopicPartition, int] = {}

        def there(group: str = group, tps: list[TopicPartition] = tps, goal: dict[TopicPartition, int] = goal) -> bool:
            if not goal:
                goal.update(ends(on, tps))
                return False
            done = ends(on, tps, group)
            return bool(done) and all(done[tp] >= end for tp, end in goal.items())

        wait_for(f"{group} to catch up", there, patience)


def drain(on: Sources, payments: int) -> list[int]:
    """Send what is missing of as many payments, let all stages finish, stop all; return the exit statuses."""
    on.feed.finish(payments)
    recover(on, 10 * campaign.PATIENCE)
    return on.fleet.stop()


def judged(on: Sources) -> Verdict:
    """Judge every stage; and, without any engine, that the last label of every event was learnt.

    Whether a row of the stream whose rows leave early was still there when its label came, only engines can say.
    """
    verdict = judge(on.world, sources=True)
    sources = [
        Source(label, record.key or b"", record.value or b"", record.ts)
        for label, width in on.widths.items()
        for record in read(on.world.bootstrap, f"{NAME}-{label}", width)
    ]
    wanted, found = (
        {name: y for name, y in labels.items() if name[0] != SHORT_LIVED}
        for labels in (expected(sorted(sources, key=lambda each: each.ts)), resolved(on.world))
    )
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    verdict.findings += [f"{name}: label {wanted.get(name)} became {found.get(name)}" for name in wrong[:10]]
    return verdict
