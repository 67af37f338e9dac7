"""What each fault does to the stage: workers, disks, proxies, broker, load."""

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from lab.broker import Broker
from tests.chaos import faults
from tests.chaos.faults import Fault
from tests.chaos.feed import Feed
from tests.chaos.fleet import Fleet, Member
from tests.chaos.proxy import Proxy
from tests.e2e.world import World
from tests.events import Sent, forecast, outcome

#: Longest wait for a worker to meet with what was ordered, s.
PATIENCE = 120.0


@dataclass
class Stage:
    """What faults strike. The proxies are those of the workers, in order."""

    world: World
    broker: Broker
    proxies: list[Proxy]
    fleet: Fleet
    feed: Feed


@singledispatch
def strike(fault: Fault, stage: Stage) -> None:
    """Inject a fault; returns when it is over, and what it ended has ended."""
    raise NotImplementedError(type(fault))


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
        member.disk.fill()
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
def _(fault: faults.KillBroker, stage: Stage) -> None:
    stage.broker.kill()
    time.sleep(fault.seconds)
    stage.broker.start()


@strike.register
def _(fault: faults.FreezeBroker, stage: Stage) -> None:
    stage.broker.pause()
    time.sleep(fault.seconds)
    stage.broker.resume()


@strike.register
def _(fault: faults.Cut, stage: Stage) -> None:
    for worker in fault.workers:
        stage.proxies[worker].cut()
    _mend_after(fault.seconds, stage, fault.workers)


@strike.register
def _(fault: faults.Silence, stage: Stage) -> None:
    for worker in fault.workers:
        stage.proxies[worker].silence()
    _mend_after(fault.seconds, stage, fault.workers)


@strike.register
def _(fault: faults.Slow, stage: Stage) -> None:
    for worker in fault.workers:
        stage.proxies[worker].slow(fault.delay)
    _mend_after(fault.seconds, stage, fault.workers)


def _mend_after(seconds: float, stage: Stage, workers: tuple[int, ...]) -> None:
    time.sleep(seconds)
    for worker in workers:
        stage.proxies[worker].mend()


@strike.register
def _(fault: faults.RefuseChangelog, stage: Stage) -> None:
    since = len(stage.fleet.exits)
    _limit_changelog(stage.world, 100)
    for _ in range(int(PATIENCE * 10)):  # until somebody's send was refused
        if len(stage.fleet.exits) > since:
            break
        time.sleep(0.1)
    time.sleep(fault.seconds)
    _limit_changelog(stage.world, 1_048_588)


def _limit_changelog(world: World, largest: int) -> None:
    """Let the broker take record batches of so many bytes."""

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=world.settings.brokers[0])
        await admin.start()
        try:
            configs = {"cleanup.policy": "compact", "max.message.bytes": str(largest)}
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, world.settings.changelog, configs)])
        finally:
            await admin.close()

    asyncio.run(run())


@strike.register
def _(fault: faults.Storm, stage: Stage) -> None:
    address = stage.world.environment["TRUEUP_BROKERS"]
    guest = Member(90 + len(list(stage.world.directory.glob("disk-9*"))), stage.world, address, small_disk=False)
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
