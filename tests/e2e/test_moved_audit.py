"""The audit of a group that was moved: from the first record of the first group to the last answer of the last one."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from replay.audit import auditor
from state import kinds, ledger
from streams.config.settings import Settings
from streams.kafka import topics
from tests.e2e.test_crashes import KILLED
from tests.e2e.test_rescale import moved, rescale, serve
from tests.e2e.world import World, wait_for
from tests.events import Sent, mixed
from tests.state.histories import altered

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


def put(w: World, label: str, partition: int, key: bytes, value: bytes) -> None:
    """Write one record to a partition."""

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=w.bootstrap) as producer:
            await producer.send_and_wait(w.topic(label), value, key=key, partition=partition)

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


@pytest.mark.parametrize("kind", [kinds.LEDGER.letter, kinds.SCORES.letter])
def test_a_row_that_was_changed_on_the_way_is_named(world: MakeWorld, audited: Audited, kind: bytes) -> None:
    made = mixed(300, seed=14)
    half = len(made.sent) // 2
    old, new = world(partitions=2, **SETTINGS), world(partitions=3, **SETTINGS)
    serve(old, made.sent[:half])
    moved(old, new)
    key, row = next(
        (key, row)
        for key, row in sorted(new.begun[1].items())
        if key[:1] == kind and (kind != kinds.LEDGER.letter or kinds.LEDGER.decode(row).status == ledger.ISSUED)
    )
    if kind == kinds.LEDGER.letter:
        named, changed = key[1:].decode(), kinds.LEDGER.encode(altered(kinds.LEDGER.decode(row), p=0.4999))
    else:
        named, changed = key[1:].decode(), row[:-1] + bytes([row[-1] ^ 1])
    put(new, "changelog", 1, key, changed)
    if kind == kinds.LEDGER.letter:
        serve(new, made.sent[half:])
    status, account = audited(new)
    assert status == auditor.UNCHECKED
    (reason,) = account["unable"]
    assert f"began with other rows than 'trueup rescale' must have made of {old.name}" in reason
    assert named in reason
    assert "is not what the old rows become" in reason
    assert set(account["partitions"]) == {"0", "1", "2"}
