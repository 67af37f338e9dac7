"""What streams have learnt, as metrics, pages, ``trueup streams show`` and ``trueup audit --certificate`` say it."""

import subprocess
from pathlib import Path

import orjson

from state import kinds, ledger
from tests.e2e.world import MakeWorld, Worker, World, wait_for
from tests.events import Made, mixed, outcome


def shown(w: World, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    return w.command("streams", *arguments, **{"COLUMNS": "160", **settings})


def test_streams_shows_what_the_streams_have_learnt(world: MakeWorld, tmp_path: Path) -> None:
    w = world(partitions=2)
    made = mixed(1500)
    w.send(made.sent)
    with w.worker() as worker:
        w.wait_until_applied()
        learnt = made.fates["outcomes_resolved"] + made.fates["early_joined"]
        every_record_meets_exactly_one_fate(w, worker, made)
        pages_show_streams_to_people_and_programs(worker, learnt)
        the_command_shows_them_from_the_changelog(w, made, learnt)
        certificates_have_the_digits_of_the_gauge_after_revisions(w, worker, tmp_path)
        assert worker.stop() == 0
        assert "Traceback" not in worker.printed
    w.judge()


def every_record_meets_exactly_one_fate(w: World, worker: Worker, made: Made) -> None:
    counted = {
        f"{topic}_{fate}": worker.metric("records_total", topic=topic, fate=fate)
        for topic, fate in (key.split("_") for key in made.fates if key != "early_joined")
    }
    assert counted == {fate: n for fate, n in made.fates.items() if fate != "early_joined"}
    assert worker.metric("lag_records") == 0
    applied = w.applied()
    assert {fate: applied[fate] for fate in made.fates} == made.fates


def pages_show_streams_to_people_and_programs(worker: Worker, learnt: int) -> None:
    listed = orjson.loads(worker.get("/api/streams")[1])
    assert sum(each["resolved"] for each in listed["streams"]) == learnt
    assert listed["worker"]["ready"]
    assert listed["worker"]["pending"] == worker.metric("pending_events")
    assert [each["partition"] for each in listed["worker"]["partitions"]] == [0, 1]
    for each in listed["streams"]:
        one = orjson.loads(worker.get(f"/api/streams/{each['stream']}")[1])
        assert one["maps"]
        assert all(0 <= p <= 1 for found in one["maps"] for p in found["calibrated"])
        for kind in ("raw", "calibrated"):
            measured = worker.metric("brier", stream=each["stream"], kind=kind)
            assert abs(one[kind]["brier"] - measured) < 1e-12
    names = [each["stream"] for each in listed["streams"]]
    wait_for("the page, which may be kept for a while", lambda: all(each in worker.get("/")[1] for each in names))


def the_command_shows_them_from_the_changelog(w: World, made: Made, learnt: int) -> None:
    listed = shown(w, "list", "--json")
    assert listed.returncode == 0, listed.stderr
    report = orjson.loads(listed.stdout)
    assert sorted(report["streams"]) == ["stream-0", "stream-1", "stream-2"]
    assert {fate: report["fates"][fate] for fate in made.fates} == made.fates
    assert sum(each["resolved"] + each["warm_up"]["resolved"] for each in report["streams"].values()) == learnt
    for name, few in report["streams"].items():
        ((_, each),) = orjson.loads(shown(w, "show", name, "--json").stdout)["streams"].items()
        assert all(few[kind].items() <= each[kind].items() for kind in ("raw", "calibrated"))
        assert sum(one["version"] for one in each["calibrators"]) == each["resolved"] + each["warm_up"]["resolved"]
        assert all(0 <= one["error"] <= 1 for one in each["calibrators"])
        # y is 1 with probability p²: the model's forecasts are far off, and calibration mends that.
        assert each["calibrated"]["brier"] < each["raw"]["brier"]
        # A few hundred events say much, and not yet what may wake somebody.
        assert each["raw"]["alarm"]["log10"] > each["calibrated"]["alarm"]["log10"]
        assert not each["calibrated"]["alarm"]["sounds"]
        assert each["regret"].keys() == {"brier", "log", "misclassification"}
    assert "there are: stream-0, stream-1, stream-2" in shown(w, "show", "nobody").stderr
    assert "stream-2" in shown(w, "list").stdout
    one = shown(w, "show", "stream-1").stdout
    assert "reliability" in one
    assert "stream-2" not in one


def certificates_have_the_digits_of_the_gauge_after_revisions(w: World, worker: Worker, directory: Path) -> None:
    def certified(records: str) -> dict[str, dict[str, tuple[int, float]]]:
        found: dict[str, dict[str, tuple[int, float]]] = orjson.loads(
            w.done("audit", "--certificate", records, "--json")
        )
        return found

    first = w.said("resolved")
    revised = [each for each in first if each["p"] != each["raw"]][:50]
    w.send([outcome(each["event_id"], 1 - each["y"], each["resolved_ts"] + 1, revision=1) for each in revised])
    w.wait_until_applied()
    found = certified(w.topic("resolved"))
    assert found.keys() == {"stream-0", "stream-1", "stream-2"}
    # The gauge leaves out the warm-up, which only the ledger knows.
    entries = {
        key[1:].decode(): kinds.LEDGER.decode(row)
        for state in w.state().values()
        for key, row in state.items()
        if key[:1] == kinds.LEDGER.letter
    }
    values = [record.value or b"" for record in w.read("resolved")]
    assert len(values) > len(first)
    scored = [each for each in values if entries[orjson.loads(each)["event_id"]].window != ledger.NO_WINDOW]
    every, judged = directory / "resolved.jsonl", directory / "judged.jsonl"
    every.write_bytes(b"\n".join(values))
    judged.write_bytes(b"\n".join(scored))
    assert certified(str(every)) == found
    for stream, of in certified(str(judged)).items():
        n, certificate = of["calibrated"]
        assert 0 < n < found[stream]["calibrated"][0]
        assert worker.metric("resolved", stream=stream) == n
        assert worker.metric("certificate", stream=stream, kind="calibrated") == certificate
