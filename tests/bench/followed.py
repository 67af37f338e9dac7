"""What it costs to follow records from their sources: ``python -m tests.bench.followed [PAYMENTS]``.

Payments are sent to three source topics of ten partitions, and go through intake and router on a broker of this run.
Then every record is followed, in a process of its own. Printed are records of the sources a second, processor time a
record, and the largest process.
"""

import asyncio
import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from agents import compiled

compiled.prefer(os.environ)

from aiokafka import AIOKafkaConsumer, TopicPartition  # noqa: E402

from lab.broker import Broker  # noqa: E402 - the compiled engine is chosen before the first import
from replay.audit import follower  # noqa: E402
from replay.audit.plan import planned  # noqa: E402
from streams.config.settings import Settings  # noqa: E402
from tests.e2e.test_intake import Hour, made  # noqa: E402
from tests.e2e.world import World, wait_for  # noqa: E402

PAYMENTS: Final = 100_000


def follow() -> None:
    """Follow what the environment names, and print what it took."""
    account = follower.follow(Settings.from_env(os.environ))
    assert not account.differences, account.differences[:3]
    assert not account.unable, account.unable
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(each.ru_utime + each.ru_stime for each in used)
    largest = max(each.ru_maxrss for each in used) / 1024
    source, router = account.sources, account.router
    print(
        f"{source.records:,} source records in {account.seconds:.1f} s: {source.records / account.seconds:,.0f} a "
        f"second; {seconds / source.records * 1e6:.0f} us of processor time each; largest process {largest:.0f} MB; "
        f"{router.outcomes:,} outcomes, {source.copies:,} copies",
        flush=True,
    )


def main(payments: int) -> None:
    """Send payments through intake and router, and follow them."""
    with Broker() as broker, TemporaryDirectory() as directory:

        def world(partitions: int, **settings: str) -> World:
            settings["TRUEUP_BATCH_RECORDS"] = "4000"
            return World(broker.bootstrap, Path(directory), partitions, replication=1, **settings)

        hour = Hour(world, Path(directory), "followed")
        sent = made(payments)
        with hour.stages("intake", "router"):
            hour.send(sent)
            wait_for("intake and router to have done everything", lambda: settled(hour), 500)
        for _ in range(2):
            command = [sys.executable, "-m", "tests.bench.followed", "--follow"]
            subprocess.run(command, env={**os.environ, **hour.world.environment}, check=True)


def settled(hour: Hour) -> bool:
    """Whether intake and router have committed all there is."""
    settings = hour.world.settings
    plan = asyncio.run(planned(settings))

    async def routed() -> bool:
        brokers = ",".join(settings.brokers)
        async with AIOKafkaConsumer(bootstrap_servers=brokers, group_id=settings.router.app_id) as group:
            return all(
                [
                    (await group.committed(TopicPartition(topic, each.partition)) or 0) == end
                    for each in plan.routers
                    for topic, end in zip((settings.routes, settings.labels), each.end, strict=True)
                ]
            )

    sent = sum(sum(each.end) for each in plan.routers) > 0
    return sent and all(each.committed >= each.end for each in plan.sources) and asyncio.run(routed())


if __name__ == "__main__":
    if "--follow" in sys.argv:
        follow()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else PAYMENTS)
