"""``trueup audit --certificate`` finds in the output records what the worker's gauge says."""

from pathlib import Path

import orjson

from state import kinds, ledger
from tests.e2e.world import MakeWorld, World
from tests.events import mixed, outcome


def verify(w: World, records: str) -> dict[str, dict[str, tuple[int, float]]]:
    """Run the command as a user does, and return what it finds."""
    found: dict[str, dict[str, tuple[int, float]]] = orjson.loads(w.done("audit", "--certificate", records, "--json"))
    return found


def test_verify_has_the_digits_of_the_gauge_after_revisions_of_two_partitions(world: MakeWorld, tmp_path: Path) -> None:
    w = world(partitions=2)
    w.send(mixed(1500).sent)
    with w.worker() as worker:
        w.wait_until_applied()
        first = w.said("resolved")
        revised = [each for each in first if each["p"] != each["raw"]][:50]
        w.send([outcome(each["event_id"], 1 - each["y"], each["resolved_ts"] + 1, revision=1) for each in revised])
        w.wait_until_applied()
        found = verify(w, w.topic("resolved"))
        assert found.keys() == {"stream-0", "stream-1", "stream-2"}
        # The gauge leaves out the warm-up, which only the ledger knows.
        entries = {
            key[1:].decode(): kinds.LEDGER.decode(row)
            for state in w.state().values()
            for key, row in state.items()
            if key[:1] == kinds.LEDGER.letter
        }
        later = [
            record.value or b""
            for record in w.read("resolved")
            if entries[orjson.loads(record.value or b"")["event_id"]].window != ledger.NO_WINDOW
        ]
        judged = tmp_path / "judged.jsonl"
        judged.write_bytes(b"\n".join(later))
        for stream, scored in verify(w, str(judged)).items():
            n, certificate = scored["calibrated"]
            assert 0 < n < found[stream]["calibrated"][0]
            assert worker.metric("resolved", stream=stream) == n
            assert worker.metric("certificate", stream=stream, kind="calibrated") == certificate
    records = tmp_path / "resolved.jsonl"
    records.write_bytes(b"\n".join(record.value or b"" for record in w.read("resolved")))
    assert len(w.read("resolved")) > len(first)
    assert verify(w, str(records)) == found
