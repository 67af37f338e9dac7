"""What each fault of workers, disks, network and load does; those of the brokers are told in ``outages.py``."""

import asyncio
import itertools
import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition

from streams.kafka import topics
from tests.chaos.disk import Disk
from tests.chaos.faults import Drawing, few, kind
from tests.chaos.fleet import Member
from tests.chaos.proxy import Proxy
from tests.chaos.stage import PATIENCE, BrokenPromiseError, Stage
from tests.e2e.world import World, buried, wait_for
from tests.events import Sent, forecast, outcome


def _end(stage: Stage, member: Member) -> None:
    """Kill a member and keep its place empty; `_begin` lets it be filled again."""
    since = len(stage.fleet.exits)
    member.held = True
    member.signal(signal.SIGKILL)
    stage.fleet.await_exit(member, since, PATIENCE)


def _begin(member: Member) -> None:
    member.held = False


_twins = itertools.count()
#: The step behind which a batch stands in the journal.
NOTED = 3
#: Files of a database, and what becomes of them.
DAMAGE = (
    ("*.sst", "halved"),
    ("*.sst", "flipped"),
    ("MANIFEST-*", "shortened"),
    ("MANIFEST-*", "flipped"),
    ("*.log", "halved"),
    ("*.log", "flipped"),
)


@kind("kill -9 at a step", each=lambda _: [{"step": step} for step in range(1, 7)])
def kill_at_step(stage: Stage, worker: int, step: int) -> None:
    """The worker is killed when its next batch has passed a step of the order of effects."""
    member, since = stage.fleet.members[worker], len(stage.fleet.exits)
    member.order(die_at=step)
    stage.fleet.await_exit(member, since, PATIENCE)


@kind("kill -9 at random")
def kill(stage: Stage, worker: int) -> None:
    """The worker is killed, whatever it does."""
    _signal(stage, worker, signal.SIGKILL)


@kind("SIGTERM")
def stop(stage: Stage, worker: int) -> None:
    """The worker gets SIGTERM."""
    _signal(stage, worker, signal.SIGTERM)


def _signal(stage: Stage, worker: int, number: signal.Signals) -> None:
    member, since = stage.fleet.members[worker], len(stage.fleet.exits)
    member.signal(number)
    stage.fleet.await_exit(member, since, PATIENCE)


@kind("SIGSTOP beyond the session")
def stall(stage: Stage, worker: int, seconds: float) -> None:
    """The worker is stopped beyond its session and woken: a zombie."""
    member = stage.fleet.members[worker]
    member.signal(signal.SIGSTOP)
    time.sleep(seconds)
    member.signal(signal.SIGCONT)


@kind("empty disk")
def empty_disk(stage: Stage, worker: int) -> None:
    """The worker is killed and its data directory lost."""
    _tamper(stage, worker, Disk.wipe)


@kind("damaged RocksDB files", each=lambda _: [{"files": files, "how": how} for files, how in DAMAGE])
def damage_disk(stage: Stage, worker: int, files: str, how: str) -> None:
    """The worker is killed and files of its databases are truncated, or a bit of them is flipped."""

    def damage(disk: Disk) -> None:
        for path in disk.data.rglob(f"*.db/{files}"):
            _damage(path, how)

    _tamper(stage, worker, damage)


def _damage(path: Path, how: str) -> None:
    """Cut a file to half, cut off its end, or flip a bit in its middle."""
    size = path.stat().st_size
    if how == "halved":
        os.truncate(path, size // 2)
    elif how == "shortened":
        os.truncate(path, max(size - 20, 0))
    elif size:
        with path.open("r+b") as file:
            file.seek(size // 2)
            byte = file.read(1)[0]
            file.seek(size // 2)
            file.write(bytes([byte ^ 1]))


@kind("full disk", each=few)
def fill_disk(stage: Stage, seconds: float) -> None:
    """A worker's disk is full for a while: the first one's, which is small where the system lets us mount it."""
    member, since = stage.fleet.members[0], len(stage.fleet.exits)
    if member.disk.small:
        end = time.monotonic() + PATIENCE
        while len(stage.fleet.exits) == since and time.monotonic() < end:
            member.disk.fill()  # copies are removed to make room, and a worker writes little
            time.sleep(0.5)
        stage.fleet.await_exit(member, since, PATIENCE)
        time.sleep(seconds)
        member.disk.free()
    else:
        member.order(file_bytes=1 << 16)
        stage.fleet.await_exit(member, since, PATIENCE)


@kind("kill -9 while restoring", deaths=2)
def kill_restoring(stage: Stage, worker: int) -> None:
    """The disk is lost, and the worker is killed again when it has restored a fetch of the changelog."""
    member = stage.fleet.members[worker]
    _end(stage, member)
    member.disk.wipe()
    since = len(stage.fleet.exits)
    member.order(now=False, die_restoring=1)
    _begin(member)
    stage.fleet.await_exit(member, since, PATIENCE)


@kind("kill -9 while folding again", outage=1.0, each=lambda _: [{"times": 1}, {"times": 2}])
def kill_folding(stage: Stage, worker: int, times: int) -> None:
    """A worker is killed behind an entry of the journal, then all others; and it again when it folds what is there."""
    members, member = stage.fleet.members, stage.fleet.members[worker]
    since, member.held = len(stage.fleet.exits), True
    member.order(die_at=NOTED)
    stage.fleet.await_exit(member, since, PATIENCE)
    for each in members:
        if each is not member:
            _end(stage, each)
    for _ in range(times):
        asyncio.run(buried(stage.world.bootstrap, stage.world.name))
        since = len(stage.fleet.exits)
        member.order(now=False, die_folding=1)
        _begin(member)
        stage.fleet.await_exit(member, since, PATIENCE)
        member.held = True
    for each in members:
        _begin(each)


@kind("old disk")
def old_disk(stage: Stage, worker: int) -> None:
    """The worker is killed and comes back on rows of 30 days ago, which lack what the changelog has forgotten since."""
    _tamper(stage, worker, lambda disk: disk.age(30 * 86_400.0))


@kind("foreign disk")
def foreign_disk(stage: Stage, worker: int) -> None:
    """The worker is killed and comes back on rows of another changelog."""
    _tamper(stage, worker, Disk.estrange)


@kind("disk ahead of its changelog")
def ahead_disk(stage: Stage, worker: int) -> None:
    """The worker is killed and comes back on rows that the changelog has lost."""
    _tamper(stage, worker, Disk.advance)


def _tamper(stage: Stage, worker: int, how: Callable[[Disk], object]) -> None:
    member = stage.fleet.members[worker]
    _end(stage, member)
    how(member.disk)
    _begin(member)


@kind(
    "committed offsets moved",
    outage=None,
    each=lambda of: [{"to": to, "seconds": of.few} for to in ("end", "beginning")],
)
def move_offsets(stage: Stage, seconds: float, to: str) -> None:
    """All workers are killed, and another tool commits the ends or the beginnings of the inputs for their group."""
    world = stage.world
    for member in stage.fleet.members:
        _end(stage, member)
    asyncio.run(buried(world.bootstrap, world.name))
    asyncio.run(_commit(world, to))
    time.sleep(seconds)
    for member in stage.fleet.members:
        _begin(member)


async def _commit(world: World, to: str) -> None:
    """Commit the ends or the beginnings of the inputs for a group without members, as a tool does."""
    consumer = AIOKafkaConsumer(bootstrap_servers=world.bootstrap, group_id=world.name, enable_auto_commit=False)
    async with consumer:
        tps = [
            TopicPartition(world.topic(label), n)
            for label in ("forecasts", "outcomes")
            for n in range(world.partitions)
        ]
        consumer.assign(tps)
        await consumer.commit(await (consumer.end_offsets if to == "end" else consumer.beginning_offsets)(tps))


@kind("network cut", outage=None, each=few)
def cut(stage: Stage, workers: tuple[int, ...], seconds: float) -> None:
    """Connections between workers and broker are reset, and new ones too."""
    _relay(stage, workers, Proxy.cut, seconds)


@kind("network silent", outage=None, each=few)
def silence(stage: Stage, workers: tuple[int, ...], seconds: float) -> None:
    """Nothing passes between workers and broker, and no side is told."""
    _relay(stage, workers, Proxy.silence, seconds)


@kind("network silent beyond the session", outage=None)
def silence_long(stage: Stage, workers: tuple[int, ...], seconds: float) -> None:
    """The same beyond the session: what was under way to the broker arrives when the partitions have moved."""
    _relay(stage, workers, Proxy.silence, seconds)


def _slowly(drawing: Drawing) -> list[dict[str, float]]:
    return [{"delay": round(drawing.rng.uniform(0.05, 0.4), 2), "seconds": drawing.session}]


@kind("slow acknowledgements", outage=None, each=_slowly)
def slow(stage: Stage, workers: tuple[int, ...], delay: float, seconds: float) -> None:
    """Every byte between workers and broker is late, acknowledgements too."""
    _relay(stage, workers, lambda proxy: proxy.slow(delay), seconds)


def _relay(stage: Stage, workers: tuple[int, ...], how: Callable[[Proxy], None], seconds: float) -> None:
    proxies = [proxy for worker in workers for proxy in stage.proxies[worker]]
    for proxy in proxies:
        how(proxy)
    time.sleep(seconds)
    for proxy in proxies:
        proxy.mend()


@kind("changelog sends refused", outage=math.inf, each=few)
def refuse_changelog(stage: Stage, seconds: float) -> None:
    """The broker refuses what is sent to the changelog, until a worker has noticed, and then some."""
    since = len(stage.fleet.exits)
    stage.cluster.configure(stage.world.settings.changelog, max_message_bytes="100")
    for _ in range(int(PATIENCE * 10)):  # until somebody's send was refused
        if len(stage.fleet.exits) > since:
            break
        time.sleep(0.1)
    time.sleep(seconds)
    most = stage.world.settings.checkpoint_bytes + topics.BATCH_OVERHEAD
    stage.cluster.configure(stage.world.settings.changelog, max_message_bytes=str(most))


@kind("rebalance storm")
def storm(stage: Stage) -> None:
    """Another worker joins and leaves, again and again."""
    guest = stage.fleet.guest()
    try:
        for n in range(4):
            end = time.monotonic() + PATIENCE
            while guest.running and guest.worker.port() is None and time.monotonic() < end:
                time.sleep(0.05)
            time.sleep(1)
            guest.signal(signal.SIGTERM if n % 2 else signal.SIGKILL)
            guest.worker.process.wait(PATIENCE)
            guest.restart()
    finally:
        guest.worker.kill()


@kind("clock jump", each=lambda of: [{"seconds": of.rng.choice((-1, 1)) * of.rng.uniform(100, 1e6)}])
def jump_clock(stage: Stage, worker: int, seconds: float) -> None:
    """The worker's wall clock jumps."""
    stage.fleet.members[worker].order(clock=seconds)
    time.sleep(2)  # some batches by the wrong clock


@kind("wild timestamps")
def wild_timestamps(stage: Stage) -> None:
    """The producers' clocks jump: records come from the future, then from the past."""
    now, shift = stage.feed.clock, 240_000
    records = []
    for i in range(1000):
        event_id = f"wild-{now}-{i}"
        ts = now + (shift if i % 2 else -shift)
        records += [forecast(event_id, i % 97 / 96, ts), outcome(event_id, i % 2, max(ts - 50 + i % 100, 0))]
    stage.feed.add(records)


JUNK = (
    b"not json",
    b"[]",
    b'{"event_id": 1}',
    b'{"event_id":"a","stream":"s","p":1.5}',
    b"",
    b"\xff" * 1000,
    b"{" * 500,
)


@kind("poison in bulk", each=lambda _: [{"records": 5000}])
def poison(stage: Stage, records: int) -> None:
    """Thousands of records nobody can read."""
    now = stage.feed.clock
    stage.feed.add(
        [
            Sent(("forecasts", "outcomes")[i % 2], b"poison-%d" % (i % 100), JUNK[i % len(JUNK)], now)
            for i in range(records)
        ]
    )


@kind("doubled instance id", deaths=2)
def double_ids(stage: Stage) -> None:
    """Two more workers start at a time under one instance id; who serves in the end is killed."""
    name = f"twin-{next(_twins)}"
    twins = [stage.fleet.guest(TRUEUP_INSTANCE_ID=name) for _ in range(2)]

    def healthy() -> int:
        return sum(twin.running and twin.worker.get("/healthz")[0] == 200 for twin in twins)

    try:
        wait_for("a twin to start", lambda: any(twin.worker.port() is not None for twin in twins), PATIENCE)
        wait_for("a twin to serve or to end", lambda: any(t.ready() or not t.running for t in twins), PATIENCE)
        try:
            wait_for("one of two workers with one instance id to end", lambda: healthy() < 2, PATIENCE / 4)
        except AssertionError:
            raise BrokenPromiseError("two workers with one instance id are both healthy") from None
    finally:
        for twin in twins:
            twin.worker.kill()
