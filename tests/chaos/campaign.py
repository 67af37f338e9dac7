"""A campaign: brokers, proxies, workers and load, one fault after another, and what was seen of each."""

import asyncio
import logging
import math
import signal
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from lab.jvm import HOST
from streams.faust import offsets
from tests.chaos import outages, silence, strikes  # noqa: F401 - two of them are of kinds of faults
from tests.chaos.cluster import Cluster
from tests.chaos.faults import Fault
from tests.chaos.feed import Feed
from tests.chaos.fleet import Exit, Fleet
from tests.chaos.judge import Verdict
from tests.chaos.proxy import Proxy
from tests.chaos.stage import Stage
from tests.e2e.world import World, wait_for

#: Silence after which a worker's partitions move, s: with one broker, and with three, where a new leader must be found
#: within the time a send may take. A loaded machine lets a worker wait for some seconds.
SESSION, SESSION_OF_THREE = 6.0, 10.0
#: Of that, how long a send may take.
REQUEST = 5 / 6
#: Longest silence beyond the session and the outage that a fault makes, s.
GRACE = 10.0
#: Longest wait until all that was sent is applied and all workers serve, s.
PATIENCE = 240.0
#: What a worker says of a log that was cut: no fault cuts one.
CUT = "RewrittenError"
SETTINGS = {
    "TRUEUP_COMMIT_SECONDS": "0.5",
    # So small that every partition has tables, logs and compactions to be damaged.
    "TRUEUP_MEMORY_BYTES": str(12 << 20),
}
#: Rows of one stream expire while the suite runs: ten minutes are 6,000 events. Of the others one learns from silence,
#: one at maturity from outcomes alone. Those come up to five seconds late; three in a hundred labels are revised.
STREAMS = """
early_ttl = "1d"
[streams.stream-0]
matures = "4s"
silence = 0
[streams.stream-1]
matures = "3s"
revisable = "40d"
[streams.stream-2]
ttl = "10m"
"""


@dataclass
class Seen:
    """What was seen of a fault."""

    #: What went wrong.
    fault: Fault
    #: When it began, and when all was well again, s since 1970.
    began: float
    ended: float
    #: From the end of the fault until all was well again.
    seconds: float
    #: How workers ended meanwhile.
    exits: list[Exit]
    #: What was promised and not kept, a sentence each.
    broken: list[str]
    #: For how long nothing could be answered whatever workers did, s: brokers take their time to start, too.
    outage: float = 0.0
    #: Longest time for which a partition answered nothing while an acknowledged forecast waited, s; see `measure`.
    silence: float = math.nan


@contextmanager
def stage(
    directory: Path,
    *,
    workers: int,
    partitions: int,
    seed: int,
    rate: float,
    live: bool = False,
    brokers: int = 1,
    session: float | None = None,
    standbys: int = 1,
) -> Iterator[Stage]:
    """Set up brokers, proxies, workers and load."""
    session = session or default_session(brokers)
    with ExitStack() as stack:
        proxies = [[stack.enter_context(Proxy()) for _ in range(brokers)] for _ in range(workers)]
        cluster = stack.enter_context(Cluster(directory, [[own[n].port for own in proxies] for n in range(brokers)]))
        for worker, own in enumerate(proxies):
            for proxy, broker in zip(own, cluster.brokers, strict=True):
                proxy.upstream = broker.backs[worker]
        cluster.heal()
        (directory / "streams.toml").write_text(STREAMS)
        settings = {
            "TRUEUP_STREAMS": str(directory / "streams.toml"),
            "TRUEUP_SESSION_SECONDS": str(session),
            "TRUEUP_REQUEST_SECONDS": str(session * REQUEST),
            "TRUEUP_STANDBYS": str(standbys),
        }
        world = World(cluster.bootstrap, directory, partitions, replication=cluster.replication, **SETTINGS, **settings)
        cluster.configure(world.settings.calibrated, message_timestamp_type="LogAppendTime")  # see `silence`
        addresses = [",".join(f"{HOST}:{proxy.port}" for proxy in own) for own in proxies]
        fleet = stack.enter_context(Fleet(world, addresses))
        feed = stack.enter_context(Feed(world, seed, rate, live=live))
        yield Stage(world, cluster, proxies, fleet, feed)


def default_session(brokers: int) -> float:
    """Return the session of a campaign's workers, s."""
    return SESSION if brokers == 1 else SESSION_OF_THREE


@contextmanager
def directory_of(given: Path | None, name: str) -> Iterator[Path]:
    """Make the directory that is given, or a temporary one; SIGTERM then leaves workers, mounts and broker in order."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # the load's client tells every outage in dozens of lines
    with tempfile.TemporaryDirectory(prefix=f"trueup-{name}-") as temporary:
        directory = given or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        yield directory


@contextmanager
def asked(options: Namespace, name: str = "chaos", *, live: bool = False) -> Iterator[Stage]:
    """Set up what a command line asks for."""
    few = {each: getattr(options, each) for each in ("workers", "partitions", "seed", "rate", "brokers", "standbys")}
    with directory_of(options.directory, name) as directory, stage(directory, **few, live=live) as on:
        yield on


def ends(on: Stage, tps: Sequence[TopicPartition], group: str | None = None) -> dict[TopicPartition, int]:
    """Return where partitions end, or how far a group has committed them; nothing while the broker cannot say."""

    async def ask() -> dict[TopicPartition, int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=on.world.bootstrap, group_id=group, enable_auto_commit=False)
        try:  # not `async with`: that leaves open what could not be started
            await consumer.start()
            if group is None:
                return dict(await consumer.end_offsets(tps))
            return await offsets.reached(consumer, group, tps)
        finally:
            await consumer.stop()

    try:
        return asyncio.run(asyncio.wait_for(ask(), 20))
    except (KafkaError, TimeoutError, AssertionError):  # aiokafka asserts that it knows a broker, and may know none
        return {}


def recover(on: Stage, patience: float = PATIENCE) -> None:
    """Return when all that has been sent by now has gone through every stage, and all members serve."""
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


def run(on: Stage, faults: Sequence[Fault], seconds: float = math.inf) -> list[Seen]:
    """Strike with one fault after another, each when workers and brokers have recovered from the one before.

    After so many seconds the rest is left out: a machine that has other work may need long for each.
    """
    seen: list[Seen] = []
    recover(on)
    end = time.monotonic() + seconds
    for n, fault in enumerate(faults):
        if time.monotonic() > end:
            print(f"{len(faults) - n} faults are left out: the time is up", file=sys.stderr, flush=True)
            break
        before, began, broken = len(on.fleet.exits), time.time(), []
        try:
            fault.kind.strike(on, **fault.drawn)
        except AssertionError as exc:
            broken.append(str(exc))
        struck = time.monotonic()
        outage = max(fault.outage, time.time() - began) if fault.outage else 0.0
        recover(on)
        well = time.monotonic() - struck
        exits = on.fleet.exits[before:]
        ended = [e for e in exits if e.status > 0 and (fault.kind.spares or CUT in e.cause)]
        broken += [f"worker {e.number} ended with {e.status}: {e.cause[:100]}" for e in ended]
        seen.append(Seen(fault, began, time.time(), well, exits, broken, outage))
        told = ", ".join(f"worker {e.number}: {e.status} {e.cause[:100]}" for e in exits) or "none ended"
        print(f"{n + 1}/{len(faults)} {fault}: {told}; well after {well:.1f} s", file=sys.stderr, flush=True)
        for sentence in broken:
            print(f"    BROKEN: {sentence}", file=sys.stderr, flush=True)
        on.cluster.heal()
    return seen


def drain(on: Stage, events: int) -> list[int]:
    """Send what is missing of as many events, let everything be applied, stop all; return the exit statuses."""
    on.feed.finish(events)
    recover(on, 10 * PATIENCE)
    return on.fleet.stop()


def ended(on: Stage, events: int) -> tuple[Verdict, bool]:
    """Drain, and return the verdict, and whether it is good and all workers stopped well."""
    statuses = drain(on, events)
    print(f"stopped with {statuses}; judging", file=sys.stderr, flush=True)
    verdict = on.judge()
    return verdict, verdict.good and not any(statuses)


def measure(on: Stage, seen: Sequence[Seen]) -> None:
    """Note how long each fault silenced a partition, and that it was too long; the load must have ended."""
    silences = silence.measured(on.world, on.feed.acknowledged)
    for each in seen:
        each.silence = silence.longest(silences, each.began, each.ended)
        bound = on.world.settings.session_seconds * each.fault.kind.deaths + GRACE + each.outage
        if each.silence > bound:
            each.broken.append(f"a partition was silent for {each.silence:.1f} s, more than {bound:.1f}")
