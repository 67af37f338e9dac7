"""What each fault of workers, disks, network and load does; those of the brokers are told in ``outages.py``."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition

from streams.kafka import topics
from tests.chaos import faults
from tests.chaos.disk import Disk
from tests.chaos.fleet import Member
from tests.chaos.proxy import Proxy
from tests.chaos.stage import PATIENCE, Stage, strike
from tests.e2e.world import World, buried
from tests.events import Sent, forecast, outcome


def _end(stage: Stage, member: Member) -> None:
    """Kill a member and keep its place empty; `_begin` lets it be filled again."""
    since = len(stage.fleet.exits)
    member.held = True
    member.signal(signal.SIGKILL)
    stage.fleet.await_exit(member, since, PATIENCE)


def _begin(member: Member) -> None:
    member.held = False


@strike.register
def _(fault: faults.KillAtStep, stage: Stage) -> None:
    member, since = stage.fleet.members[fault.worker], len(stage.fleet.exits)
    member.order(die_at=fault.step)
    stage.fleet.await_exit(member, since, PATIENCE)


@strike.register
def _(fault: faults.Kill, stage: Stage) -> None:
    member, since = stage.fleet.members[fault.worker], len(stage.fleet.exits)
    member.signal(signal.SIGKILL)
    stage.fleet.await_exit(member, since, PATIENCE)


@strike.register
def _(fault: faults.Stop, stage: Stage) -> None:
    member, since = stage.fleet.members[fault.worker], len(stage.fleet.exits)
    member.signal(signal.SIGTERM)
    stage.fleet.await_exit(member, since, PATIENCE)


@strike.register
def _(fault: faults.Stall, stage: Stage) -> None:
    member = stage.fleet.members[fault.worker]
    member.signal(signal.SIGSTOP)
    time.sleep(fault.seconds)
    member.signal(signal.SIGCONT)


@strike.register
def _(fault: faults.EmptyDisk, stage: Stage) -> None:
    member = stage.fleet.members[fault.worker]
    _end(stage, member)
    member.disk.wipe()
    _begin(member)


@strike.register
def _(fault: faults.Damage, stage: Stage) -> None:
    member = stage.fleet.members[fault.worker]
    _end(stage, member)
    for path in member.disk.data.rglob(f"*.db/{fault.files}"):
        damage(path, fault.how)
    _begin(member)


def damage(path: Path, how: str) -> None:
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


@strike.register
def _(fault: faults.FullDisk, stage: Stage) -> None:
    member, since = stage.fleet.members[0], len(stage.fleet.exits)
    if member.disk.small:
        end = time.monotonic() + PATIENCE
        while len(stage.fleet.exits) == since and time.monotonic() < end:
            member.disk.fill()  # copies are removed to make room, and a worker writes little
            time.sleep(0.5)
        stage.fleet.await_exit(member, since, PATIENCE)
        time.sleep(fault.seconds)
        member.disk.free()
    else:
        member.order(file_bytes=1 << 16)
        stage.fleet.await_exit(member, since, PATIENCE)


@strike.register
def _(fault: faults.KillRestoring, stage: Stage) -> None:
    member = stage.fleet.members[fault.worker]
    _end(stage, member)
    member.disk.wipe()
    since = len(stage.fleet.exits)
    member.order(now=False, die_restoring=fault.after)
    _begin(member)
    stage.fleet.await_exit(member, since, PATIENCE)


@strike.register
def _(fault: faults.OldDisk, stage: Stage) -> None:
    _tamper(stage, fault.worker, lambda disk: disk.age(30 * 86_400.0))


@strike.register
def _(fault: faults.ForeignDisk, stage: Stage) -> None:
    _tamper(stage, fault.worker, Disk.estrange)


@strike.register
def _(fault: faults.AheadDisk, stage: Stage) -> None:
    _tamper(stage, fault.worker, Disk.advance)


def _tamper(stage: Stage, worker: int, how: Callable[[Disk], None]) -> None:
    member = stage.fleet.members[worker]
    _end(stage, member)
    how(member.disk)
    _begin(member)


@strike.register
def _(fault: faults.MovedOffsets, stage: Stage) -> None:
    world = stage.world
    for member in stage.fleet.members:
        _end(stage, member)
    asyncio.run(buried(world.bootstrap, world.name))
    asyncio.run(_commit(world, fault.to))
    time.sleep(fault.seconds)
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


@strike.register
def _(fault: faults.Cut, stage: Stage) -> None:
    for proxy in _proxies(stage, fault.workers):
        proxy.cut()
    _mend_after(fault.seconds, stage, fault.workers)


@strike.register
def _(fault: faults.Silence, stage: Stage) -> None:
    for proxy in _proxies(stage, fault.workers):
        proxy.silence()
    _mend_after(fault.seconds, stage, fault.workers)


@strike.register
def _(fault: faults.Slow, stage: Stage) -> None:
    for proxy in _proxies(stage, fault.workers):
        proxy.slow(fault.delay)
    _mend_after(fault.seconds, stage, fault.workers)


def _mend_after(seconds: float, stage: Stage, workers: tuple[int, ...]) -> None:
    time.sleep(seconds)
    for proxy in _proxies(stage, workers):
        proxy.mend()


def _proxies(stage: Stage, workers: tuple[int, ...]) -> list[Proxy]:
    return [proxy for worker in workers for proxy in stage.proxies[worker]]


@strike.register
def _(fault: faults.RefuseChangelog, stage: Stage) -> None:
    since = len(stage.fleet.exits)
    stage.cluster.configure(stage.world.settings.changelog, max_message_bytes="100")
    for _ in range(int(PATIENCE * 10)):  # until somebody's send was refused
        if len(stage.fleet.exits) > since:
            break
        time.sleep(0.1)
    time.sleep(fault.seconds)
    most = stage.world.settings.checkpoint_bytes + topics.BATCH_OVERHEAD
    stage.cluster.configure(stage.world.settings.changelog, max_message_bytes=str(most))


@strike.register
def _(fault: faults.Storm, stage: Stage) -> None:
    guest = stage.fleet.guest()
    try:
        for n in range(fault.joins):
            end = time.monotonic() + PATIENCE
            while guest.running and guest.worker.port() is None and time.monotonic() < end:
                time.sleep(0.05)
            time.sleep(1)
            guest.signal(signal.SIGTERM if n % 2 else signal.SIGKILL)
            guest.worker.process.wait(PATIENCE)
            guest.restart()
    finally:
        guest.worker.kill()


@strike.register
def _(fault: faults.ClockJump, stage: Stage) -> None:
    stage.fleet.members[fault.worker].order(clock=fault.seconds)
    time.sleep(2)  # some batches by the wrong clock


@strike.register
def _(fault: faults.WildTimestamps, stage: Stage) -> None:
    now, shift = stage.feed.clock, int(fault.seconds * 1000)
    records = []
    for i in range(fault.records // 2):
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


@strike.register
def _(fault: faults.Poison, stage: Stage) -> None:
    now = stage.feed.clock
    stage.feed.add(
        [
            Sent(("forecasts", "outcomes")[i % 2], b"poison-%d" % (i % 100), JUNK[i % len(JUNK)], now)
            for i in range(fault.records)
        ]
    )
