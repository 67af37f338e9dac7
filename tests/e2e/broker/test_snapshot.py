"""The restore drill of docs/how-to/snapshots.md: a cluster is lost, and another one goes on from a snapshot."""

import asyncio
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from cli import options
from lab.broker import Broker
from replay import restore, snapshot
from replay.audit.output_matcher import Unauditable
from replay.snapshot import Manifest
from state.fence import FATES, INPUT_FATES
from tests.e2e.world import INPUTS, MakeWorld, World, held, wait_for
from tests.events import mixed

OUTPUTS = "calibrated", "resolved", "dead-letters"


def key(directory: Path, name: str) -> Path:
    """Make a key of ssh-keygen, and the file of who may sign beside it; return the key."""
    made = directory / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(made)], check=True)  # noqa: S607
    (directory / f"{name}.signers").write_text(f"{name} {made.with_suffix('.pub').read_text()}")
    return made


def copy(world: World, to: World, left_out: Sequence[Sequence[int]] = ((0, 0), (0, 0))) -> None:
    """Copy what the inputs still have, each record as it is, to the next offset there, as MirrorMaker does.

    ``left_out`` says, by input and partition, which offsets are too early to be copied.
    """

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=to.bootstrap, enable_idempotence=True) as producer:
            for label, earliest in zip(INPUTS, left_out, strict=True):
                async for each in held(world.bootstrap, world.topic(label), range(world.partitions)):
                    if each.offset >= earliest[each.partition]:
                        said = each.value, each.key, each.partition, each.timestamp, list(each.headers)
                        await producer.send(to.topic(label), *said)
            await producer.flush()

    asyncio.run(run())


def offsets(made: Manifest) -> dict[str, list[int]]:
    """Return where each topic stands, by partition."""
    found = {label: [place.next[n] for place in made.partitions] for n, label in enumerate(INPUTS)}
    found |= {label: [place.outputs[n] for place in made.partitions] for n, label in enumerate(OUTPUTS)}
    return found | {"journal": [place.journal for place in made.partitions]}


def came(world: World) -> int:
    """Return how many records were counted."""
    applied = world.applied()
    return sum(applied[fate] for fate in FATES[:INPUT_FATES])


def test_another_cluster_goes_on_from_a_snapshot_where_a_lost_one_stood(
    world: MakeWorld, broker: Broker, tmp_path: Path
) -> None:
    file, own, signers = tmp_path / "state.snapshot", key(tmp_path, "auditor"), tmp_path / "auditor.signers"
    key(tmp_path, "stranger")
    parts = [mixed(300, seed=seed, start=1_000_000 + seed * 60_000).sent for seed in (1, 2, 3)]
    (tmp_path / "old").mkdir()
    with ExitStack() as lost:
        lost.callback(broker.kill)
        old = World(broker.bootstrap, tmp_path / "old", TRUEUP_BATCH_RECORDS="60")
        with old.worker() as worker:
            old.send(parts[0])
            wait_for("a checkpoint", lambda: worker.ready() and sum(old.applied().values()) > 100)
            old.send(parts[1])
            taken = old.done("snapshot", str(file), "--sign", str(own))  # it runs
            assert f"rows of {old.name}, in 2 partitions with" in taken
            old.send(parts[2])
            old.wait_until_applied()
            assert worker.stop() == 0
        made = snapshot.read(file, signers)
        assert 0 < made.applied < old.sent

        # An audit begins there after retention.
        at = offsets(made)
        early = {label: [max(0, offset - 3) for offset in at[label]] for label in INPUTS}
        for label, until in (at | early).items():
            old.delete_records(label, *until)
        checked = old.agree("--from", str(file), "--signers", str(signers))["checked"]
        assert checked["forecasts"] + checked["outcomes"] == old.sent - made.applied
        assert checked["calibrated"] > 0

        # Another cluster has records only from behind the snapshot on, and then all of them, with other offsets.
        new = world()

        def refused(match: str, of: Path = file, by: Path | None = None) -> None:
            with pytest.raises(Unauditable, match=match):
                restore.restore(new.settings, of, by)

        refused("if it is still being copied, run the command again")
        copy(old, new, [at[label] for label in INPUTS])
        refused("does not have the last record of the snapshot")
        copy(old, new)
        applied, counted = old.applied(), came(old)

    refused("stranger.signers has signed|find-principals", by=tmp_path / "stranger.signers")
    damaged = tmp_path / "damaged.snapshot"
    content = file.read_bytes()
    damaged.write_bytes(content[:-20_000] + bytes([content[-20_000] ^ 1]) + content[-19_999:])
    refused("damaged", of=damaged)
    assert not new.read("changelog")

    assert f"rows of {old.name}" in new.done("state", "restore", str(file), "--signers", str(signers))
    new.begun = new.state()
    with new.worker() as worker:
        new.wait_until_applied(sum(len(new.read(label)) for label in INPUTS))
        assert worker.stop() == 0
    new.judge()
    assert came(new) == counted
    for fate in ("forecasts_issued", "forecasts_duplicate", "forecasts_dead", "outcomes_dead"):
        assert new.applied()[fate] == applied[fate], "each record counts once, on one cluster or the other"
    account = new.agree()
    assert all("'trueup state restore' made of state.snapshot" in each for each in account["loaded"].values())
    twice = new.command("state", "restore", str(file))
    assert twice.returncode == options.MISCONFIGURED
    assert "has a state already" in twice.stderr
    with pytest.raises(Unauditable, match=f"is of application {old.name}, not of {new.name}"):
        snapshot.require_same(file, made, new.settings)
