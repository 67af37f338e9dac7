"""A challenger beside a champion on a real broker, and then in its place."""

import subprocess
from pathlib import Path

import orjson

from replay.audit import auditor
from state import kinds, ledger
from tests.e2e.test_streams import shown
from tests.e2e.world import MakeWorld, World, wait_for
from tests.events import Sent, forecast, mixed, outcome

FILE = """\
[streams."stream-*"]  # promoted in a test
calibrator = "minimax"
options = { grid = 20 }
ttl = "45d"
shadow = ["histogram", "platt+minimax"]
"""
OLD = 40


def compared(w: World, stream: str, champion: str, challenger: str) -> int:
    """Return how many events have a label and an answer of both after their warm-ups, by the ledger."""
    entries = (
        kinds.LEDGER.decode(row)
        for state in w.state().values()
        for key, row in state.items()
        if key[:1] == kinds.LEDGER.letter
    )
    return sum(
        entry.status == ledger.RESOLVED
        and entry.stream.startswith(stream)
        and entry.config == champion
        and entry.window != ledger.NO_WINDOW
        and any(each.config == challenger and not each.warm for each in entry.shadows)
        for entry in entries
    )


def promote(w: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as an operator does."""
    return w.command("streams", "promote", *arguments, USER="grace")


def test_promoted_challenger_serves_warm_nothing_is_lost_and_all_of_it_can_be_audited(
    world: MakeWorld, tmp_path: Path
) -> None:
    file = tmp_path / "streams.toml"
    file.write_text(FILE)
    w = world(TRUEUP_STREAMS=str(file))
    before = w.settings.policies.of("stream-0")
    assert before is not None
    made = mixed(1500, seed=1)
    waiting = [forecast(f"old-{i}", i / OLD, 5_000_000 + i, f"stream-{i % 3}") for i in range(OLD)]
    w.send([*made.sent, *waiting])
    with w.worker() as worker:
        w.wait_until_applied()
        resolved = made.fates["outcomes_resolved"] + made.fates["early_joined"]
        both = {each.config: compared(w, "stream-", before.config, each.config) for each in before.challengers}
        assert min(both.values()) > resolved // 3
        for each in before.challengers:
            assert worker.metric("shadow_events", calibrator=each.calibrator, config=each.config) == both[each.config]
        assert worker.stop() == 0
    w.judge()
    (then := tmp_path / "then.toml").write_text(FILE)
    (none := tmp_path / "none.toml").touch()
    daily = "--checkpoint", str(tmp_path / "checkpoint")
    w.agree(*daily)
    beside = orjson.loads(shown(w, "show", "stream-1", "--json").stdout)["streams"]["stream-1"]["shadows"]
    assert {each["challenger"]["calibrator"] for each in beside} == {"histogram", "platt+minimax"}
    assert all(each["champion"]["config"] == before.config for each in beside)

    refused = promote(w, "stream-0", "twospeed")
    assert refused.returncode != 0
    assert file.read_text() == FILE
    done = promote(w, "stream-0", "platt+minimax", "--reason", "a test")
    assert done.returncode == 0, done.stderr
    assert '+calibrator = "platt+minimax"' in done.stdout
    line = orjson.loads((tmp_path / "streams.toml.audit.jsonl").read_bytes())
    assert (line["who"], line["figures"]["streams"], line["figures"]["events"]) == (
        "grace",
        3,
        both[before.challengers[1].config],
    )
    file.write_text(file.read_text() + "alarms_since = 1970-01-01T01:40:00Z\n")
    w.reconfigure()
    after = w.settings.policies.of("stream-0")
    assert after is not None
    assert (after.config, line["to"]["config"]) == (before.challengers[1].config,) * 2

    state, served = w.state(), len(w.read("calibrated"))
    learnt = {
        (partition, stream): kinds.CALIBRATOR.decode(row, stream).calibrator.learnt
        for partition, found in state.items()
        for stream in ("stream-0", "stream-1", "stream-2")
        if (row := found.get(kinds.CALIBRATOR.key(stream, after.config)))
    }
    assert len(learnt) == 6
    assert sum(learnt.values()) == resolved
    more = mixed(600, seed=2, start=6_000_000)
    late = [outcome(f"old-{i}", i % 2, 5_900_000 + i) for i in range(OLD)]
    with w.worker() as worker:
        wait_for("the worker", worker.ready)
        assert worker.metric("shadow_events") == 0, "nothing has resolved under the new champion"
        w.send([forecast("2-probe", 0.4, 5_800_000, "stream-0")])
        wait_for("an answer", lambda: len(w.read("calibrated")) > served)
        (first,) = (record for record in w.read("calibrated") if (record.value or b"").startswith(b'{"event_id":"2-'))
        answer = orjson.loads(first.value or b"")
        assert answer["config"] == after.config
        assert answer["version"] == learnt[first.partition, answer["stream"]] > 100
        w.send([*late, *more.sent])
        w.wait_until_applied()
        again = more.fates["outcomes_resolved"] + more.fates["early_joined"]
        behind = compared(w, "stream-", after.config, before.config)
        assert 0 < behind <= again
        assert worker.metric("shadow_events", calibrator="minimax", config=before.config) == behind
        assert worker.stop() == 0
    w.judge()
    # Tickets of before teach the calibrator that issued them, and those that challenged it then.
    state = w.state()
    begun = {
        kinds.ALARMS.decode(row).ms
        for part in state.values()
        for key, row in kinds.apart(part).items()
        if key[:1] == b"a"
    }
    assert begun == {6_000_000}, "alarms count from there, and the audits below follow"
    for each in (before, *before.challengers):
        found = (
            kinds.CALIBRATOR.decode(row, key[5:].decode()).calibrator.learnt
            for partition in state.values()
            for key, row in partition.items()
            if key[:1] == kinds.CALIBRATOR.letter and key[1:5].hex() == each.config
        )
        assert sum(found) == resolved + again + OLD

    # Either file, and none: what was in force, the workers have written down.
    for streams in (then, file, none):
        whole = w.agree(TRUEUP_STREAMS=str(streams))
        assert [len(found) for found in whole["in_force"].values()] == [2, 2]
    resumed = w.agree(*daily)
    assert resumed["checked"] == whole["checked"]
    assert resumed["resumed"] > 1000

    # A tampered answer of either configuration, each in a partition of its own.
    altered = {}
    for partition, config in enumerate((before.config, after.config)):
        record = next(
            each for each in w.read("calibrated", partition) if f'"config":"{config}"'.encode() in (each.value or b"")
        )
        value = orjson.loads(record.value or b"")
        altered[partition] = value["event_id"]
        w.send([Sent("calibrated", record.key or b"", orjson.dumps(value | {"p": 0.123456}), record.timestamp)])
    for options in ((), daily):
        status, account = w.audit(*options)
        assert status == auditor.DIFFER
        assert {each["partition"]: each["event_id"] for each in account["differences"]} == altered
        assert all(list(each["fields"]) == ["p"] for each in account["differences"])
