"""A campaign: broker, proxies, workers and load, one fault after another, and what was seen of each."""

import asyncio
import logging
import signal
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from lab.broker import HOST, Broker
from tests.chaos.faults import Fault
from tests.chaos.feed import Feed
from tests.chaos.fleet import Exit, Fleet
from tests.chaos.judge import Verdict, judge_all
from tests.chaos.proxy import Proxy
from tests.chaos.strikes import Stage, strike
from tests.e2e.world import World, wait_for

#: Silence after which a worker's partitions move, s. A loaded machine lets a worker wait for some seconds.
SESSION = 6.0
#: Of that, how long a send may take.
REQUEST = 5 / 6
#: Longest wait until all that was sent is applied and all workers serve, s.
PATIENCE = 240.0
SETTINGS = {
    "TRUEUP_COMMIT_SECONDS": "0.5",
    # So small that every partition has tables, logs and compactions to be damaged.
    "TRUEUP_WRITE_BUFFER_BYTES": str(1 << 18),
    "TRUEUP_BLOCK_CACHE_BYTES": str(4 << 20),
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


class Seen(NamedTuple):
    """What was seen of a fault: how workers ended meanwhile, and after how many s from its end all was well again."""

    fault: Fault
    exits: list[Exit]
    seconds: float


class Reach(NamedTuple):
    """How far the group has come, in records of both topics and all partitions: committed, and appended."""

    committed: int
    appended: int


@contextmanager
def stage(
    directory: Path,
    *,
    workers: int,
    partitions: int,
    seed: int,
    rate: float,
    live: bool = False,
    session: float = SESSION,
) -> Iterator[Stage]:
    """Set up broker, proxies, workers and load."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy()) for _ in range(workers)]
        broker = stack.enter_context(Broker(directory / "broker", fronts=[proxy.port for proxy in proxies]))
        for proxy, port in zip(proxies, broker.backs, strict=True):
            proxy.upstream = port
        (directory / "streams.toml").write_text(STREAMS)
        settings = {
            "TRUEUP_STREAMS": str(directory / "streams.toml"),
            "TRUEUP_SESSION_SECONDS": str(session),
            "TRUEUP_REQUEST_SECONDS": str(session * REQUEST),
        }
        world = World(broker.bootstrap, directory, partitions, **SETTINGS, **settings)
        fleet = stack.enter_context(Fleet(world, [f"{HOST}:{proxy.port}" for proxy in proxies]))
        feed = stack.enter_context(Feed(world, seed, rate, live=live))
        yield Stage(world, broker, proxies, fleet, feed)


@contextmanager
def asked(options: Namespace, name: str, *, live: bool = False) -> Iterator[Stage]:
    """Set up what a command line asks for; SIGTERM then leaves workers, mounts and broker in order."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # the load's client tells every outage in dozens of lines
    with tempfile.TemporaryDirectory(prefix=f"trueup-{name}-") as temporary:
        directory = options.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        with stage(
            directory,
            workers=options.workers,
            partitions=options.partitions,
            seed=options.seed,
            rate=options.rate,
            live=live,
        ) as on:
            yield on


def reach(world: World) -> Reach | None:
    """Return how far the group has come, or None while the broker cannot say."""

    async def ask() -> Reach:
        consumer = AIOKafkaConsumer(bootstrap_servers=world.settings.brokers[0], group_id=world.name)
        try:  # not `async with`: that leaves open what could not be started
            await consumer.start()
            tps = [
                TopicPartition(world.topic(label), n)
                for label in ("forecasts", "outcomes")
                for n in range(world.partitions)
            ]
            committed = sum([await consumer.committed(tp) or 0 for tp in tps])
            return Reach(committed, sum((await consumer.end_offsets(tps)).values()))
        finally:
            await consumer.stop()

    try:
        return asyncio.run(asyncio.wait_for(ask(), 20))
    except (KafkaError, TimeoutError, AssertionError):  # aiokafka asserts that it knows a broker, and may know none
        return None


def recover(on: Stage, patience: float = PATIENCE) -> None:
    """Return when all that has been sent by now is applied and all workers serve."""
    on.fleet.settle(patience)
    goal: Reach | None = None

    def there() -> bool:
        nonlocal goal
        now = reach(on.world)
        goal = goal or now
        return bool(now and goal and now.committed >= goal.appended)

    wait_for("the workers to catch up", there, patience)


def run(on: Stage, faults: Sequence[Fault]) -> list[Seen]:
    """Strike with one fault after another, each when the workers have recovered from the one before."""
    seen = []
    recover(on)
    for n, fault in enumerate(faults):
        before = len(on.fleet.exits)
        strike(fault, on)
        struck = time.monotonic()
        recover(on)
        seen.append(Seen(fault, on.fleet.exits[before:], time.monotonic() - struck))
        ended = ", ".join(f"worker {e.number}: {e.status} {e.cause[:100]}" for e in seen[-1].exits) or "none ended"
        well = f"well after {seen[-1].seconds:.1f} s"
        print(f"{n + 1}/{len(faults)} {fault}: {ended}; {well}", file=sys.stderr, flush=True)
    return seen


def drain(on: Stage, events: int) -> list[int]:
    """Send what is missing of as many events, let everything be applied, stop all; return the exit statuses."""
    on.feed.finish(events)
    recover(on, 10 * PATIENCE)
    return on.fleet.stop()


def judged(on: Stage, events: int) -> tuple[Verdict, bool]:
    """Drain, and return the verdict, and whether it is good and all workers stopped well."""
    statuses = drain(on, events)
    print(f"stopped with {statuses}; judging", file=sys.stderr, flush=True)
    verdict = judge_all(on.world)
    return verdict, verdict.good and not any(statuses)
