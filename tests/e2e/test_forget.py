"""Events that are erased while workers die: by a command, on real topics, and an audit that still agrees."""

from pathlib import Path

import orjson

from state import kinds, ledger
from tests.e2e.test_intake import Hour, made
from tests.e2e.world import MakeWorld, World, wait_for
from tests.events import forecast, outcome

START = 1_000_000


def _rows(w: World, event_id: str) -> list[tuple[int, bytes]]:
    """Return status and payload of the rows that name an event."""
    found = [
        rows[key]
        for rows in w.state().values()
        for key in rows
        if key[1:].split(b"\n")[0] == event_id.encode() and key[:1] == kinds.LEDGER.letter
    ]
    return [(row.status, row.encode()) for row in map(kinds.LEDGER.decode, found)]


def test_events_are_erased_through_kill_9_and_the_audit_counts_them(world: MakeWorld) -> None:
    w = world(partitions=2)
    w.send([forecast(f"e{n}", 0.25, START + n) for n in range(20)])
    w.send([outcome(f"e{n}", n % 2, START + 100 + n) for n in range(10)] + [outcome("early", 1, START + 200)])
    with w.worker() as worker:
        w.wait_until_applied(31)
        worker.kill()
    forgotten = orjson.loads(w.done("forget", "e1", "e11", "early", "--json"))
    assert forgotten["records"] == 6, "one in each partition: nobody knows the key"
    w.killed("--kill", "3", "1")
    w.send([outcome("e11", 1, START + 300), forecast("e1", 0.25, START + 301)])
    with w.worker() as worker:
        wait_for("the dead letter", lambda: bool(w.read("dead-letters")))
        w.wait_until_applied(39)
        assert worker.metric("records_total", topic="outcomes", fate="erased") > 0
        assert worker.stop() == 0
    w.judge()
    for event_id in ("e1", "e11", "early"):
        rows = _rows(w, event_id)
        assert {status for status, _ in rows} == {ledger.ERASED}
        assert len({len(row) for _, row in rows}) <= 2, "the stream of a forecast, or none"
    (letter,) = w.said("dead-letters")
    assert (letter["reason"], letter["key"], letter["value"], letter["withheld"]) == ("erased", None, None, True)
    again = orjson.loads(w.command("forget", "e2", "NOPE", "e1", "--dry-run", "--json").stdout)
    assert again["letters"] == [], "the letter of an erased event holds nothing of it"
    assert again["unknown"] == ["NOPE"]
    assert "not known here: NOPE" in again["said"]
    assert w.agree()["checked"]["erased"] == 7
    refused = w.command("forget", "e\n1")
    assert (refused.returncode, "Traceback" in refused.stderr) == (78, False)
    assert "not allowed as the id of an event (event_id)" in refused.stderr


def test_all_events_of_a_key_are_erased_also_those_that_rows_alone_still_name(world: MakeWorld, tmp_path: Path) -> None:
    file = tmp_path / "streams.toml"
    file.write_text('[streams."*"]\nmatures = "1h"\nttl = "2h"\n')
    w = world(partitions=1, TRUEUP_STREAMS=str(file))
    of_anna = [forecast(f"a{n}", 0.25, START + n)._replace(key=b"anna") for n in range(4)]
    other = forecast("a5", 0.25, START + 9)
    w.serve([*of_anna, other, forecast("a3", 0.5, START + 10)._replace(key=b"anna")])
    w.agree()
    w.delete_records("forecasts", 3)
    planned = orjson.loads(w.command("forget", "--key", "anna", "--dry-run", "--json").stdout)
    assert sorted(planned["events"]) == ["a0", "a1", "a2", "a3"]
    assert planned["letters"] == [f"{w.settings.dead_letters}/0@0"], "of another forecast with the id of the last"
    w.done("forget", "--key", "anna")
    with w.worker() as worker:
        w.wait_until_applied(10)
        assert worker.stop() == 0
    assert {status for n in range(4) for status, _ in _rows(w, f"a{n}")} == {ledger.ERASED}
    assert {status for status, _ in _rows(w, "a5")} == {ledger.IMMATURE}


def test_behind_a_router_an_event_is_erased_in_its_streams_and_followed(world: MakeWorld, tmp_path: Path) -> None:
    hour = Hour(world, tmp_path, "forgotten")
    w = hour.world
    sent = made(40, seed=3)
    with hour.stages("intake", "router", "worker"):
        hour.send(sent)
        hour.wait()
        answered = w.said("calibrated")[0]["event_id"]
        assert "not known here: never-seen." in w.done("forget", answered, "never-seen")
        wait_for("the erasure", lambda: any(b'"erase":true' in (each.value or b"") for each in w.read("outcomes")))
        hour.wait()
        card = next(each.key for each in sent if each.topic == "scores.v3" and answered.encode() not in each.value)
        of_card = {
            orjson.loads(each.value)["transaction"]["id"]
            for each in sent
            if each.topic == "scores.v3" and each.key == card and b'"much"' not in each.value
        }
        assert set(orjson.loads(w.done("forget", "--key", card.decode(), "--json"))["events"]) == of_card
        hour.wait()
    assert {status for status, _ in _rows(w, answered)} == {ledger.ERASED}
    assert {status for each in of_card for status, _ in _rows(w, each)} == {ledger.ERASED}
    account = w.agree("--sources")
    assert account["followed"]["sources"]["erased"] == 2 + len(of_card)
    assert account["checked"]["erased"] >= 1
