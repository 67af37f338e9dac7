"""The audit of a group that was moved: from the first record of the first group to the last answer of the last one."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from replay.audit import auditor
from streams.config.settings import Settings
from streams.kafka import topics
from tests.e2e.test_crashes import KILLED
from tests.e2e.test_rescale import moved, rescale, serve
from tests.e2e.world import World, wait_for
from tests.events import Sent, mixed

MakeWorld = Callable[..., World]
Audited = Callable[..., tuple[int, dict[str, Any]]]
SETTINGS = {"TRUEUP_DEFAULT_CALIBRATOR": "platt+minimax", "TRUEUP_BATCH_RECORDS": "60"}


def struck(w: World, records: list[Sent]) -> None:
    """Let a worker be killed on the way, and another one apply the rest, and stop."""
    w.send(records)
    w.sent += len(records)
    with ExitStack() as stack:
        first = stack.enter_context(w.worker("--kill", "3", "4"))
        assert first.process.wait(90) == KILLED, first.printed[-4000:]
        second = stack.enter_context(w.worker())
        wait_for("the worker to serve", second.ready)
        w.wait_until_applied(w.sent)
        assert second.stop() == 0


def asked(w: World, ask: Callable[[Any], Awaitable[Any]]) -> None:
    """Ask the brokers for something."""

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=w.bootstrap)
        await admin.start()
        try:
            await ask(admin)
        finally:
            await admin.close()

    asyncio.run(run())


def counted(account: dict[str, Any]) -> int:
    return int(account["checked"]["forecasts"] + account["checked"]["outcomes"])


def test_an_audit_goes_through_four_and_eight_to_three_partitions(
    world: MakeWorld, audited: Audited, tmp_path: Path
) -> None:
    made = mixed(1200, seed=11)
    third = len(made.sent) // 3
    again = [each for each in made.sent[:third] if b'"p"' in each.value][:40]
    four, eight, three = (world(partitions=n, **SETTINGS) for n in (4, 8, 3))
    struck(four, made.sent[:third])
    daily = tmp_path / "daily"
    assert audited(four, checkpoint=daily)[0] == auditor.AGREE
    assert rescale(four, eight, doomed=(2, 5)).returncode == -signal.SIGKILL
    assert rescale(four, eight, doomed=(4, 3)).returncode == -signal.SIGKILL
    moved(four, eight)
    struck(eight, made.sent[third : 2 * third])
    moved(eight, three)
    serve(three, [*made.sent[2 * third :], *again])
    three.judge()

    status, account = audited(three)
    assert (status, account["differences"], account["unable"]) == (auditor.AGREE, [], [])
    assert counted(account) == len(made.sent) + len(again)
    assert {name: len(each["partitions"]) for name, each in account["earlier_groups"].items()} == {
        four.name: 4,
        eight.name: 8,
    }
    assert len(account["partitions"]) == 3
    # The same by the checkpoints that the daily audit of the first group had left.
    status, account = audited(three, checkpoint=daily)
    assert (status, account["differences"], account["unable"]) == (auditor.AGREE, [], [])
    assert 0 < account["resumed"] <= third
    assert counted(account) == len(made.sent) + len(again)
    # From now on the old groups are not read any more.
    old = [w.topic(label) for w in (four, eight) for label in ("forecasts", "calibrated")]
    asked(three, lambda admin: admin.delete_topics(old))
    serve(three, mixed(60, seed=12).sent)
    status, account = audited(three, checkpoint=daily)
    assert (status, account["unable"], account["earlier_groups"]) == (auditor.AGREE, [], {})
    assert 0 < account["resumed"] < counted(account)
    # Without the checkpoints they would have to be.
    status, account = audited(three)
    assert status == auditor.UNCHECKED
    assert f"there is no topic {eight.settings.forecasts}" in account["unable"][0]
    assert f"Keep those until an audit of {three.name} with --checkpoint has ended with 0" in account["unable"][0]


def test_an_audit_goes_on_where_topics_stay_and_grow(world: MakeWorld, audited: Audited) -> None:
    made = mixed(300, seed=13)
    half = len(made.sent) // 2
    old = world(partitions=2, **SETTINGS)
    serve(old, made.sent[:half])
    new = world(partitions=4, **SETTINGS)
    for label in ("FORECASTS", "OUTCOMES", "CALIBRATED", "RESOLVED", "DEAD_LETTERS"):
        new.environment[f"TRUEUP_{label}"] = old.environment[f"TRUEUP_{label}"]
    new.settings = Settings.from_env(new.environment)
    names = [topic.name for topic in topics.wanted(old.settings) if not topic.compacted]
    asked(old, lambda admin: admin.create_partitions({name: NewPartitions(4) for name in names}))
    new.sent = old.sent
    moved(old, new)
    serve(new, made.sent[half:])
    status, account = audited(new)
    assert (status, account["differences"], account["unable"]) == (auditor.AGREE, [], [])
    assert counted(account) == len(made.sent)
