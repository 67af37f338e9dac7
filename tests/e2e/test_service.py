"""The service as its users meet it: topics in, topics out, on a real broker."""

from pathlib import Path
from time import time

from tests.e2e.world import MakeWorld, wait_for
from tests.events import forecast, outcome


def test_labels_mature_are_implied_by_silence_and_revised_and_a_forecast_that_comes_again_has_its_answer(
    world: MakeWorld, tmp_path: Path
) -> None:
    (tmp_path / "streams.toml").write_text('[streams.s]\nmatures = "5s"\nsilence = 0\nrevisable = "60d"\n')
    w = world(partitions=1, TRUEUP_STREAMS=str(tmp_path / "streams.toml"))
    with w.worker():
        w.send([forecast("fraud", 0.9, 1000), outcome("fraud", 1, 2000), forecast("honest", 0.4, 2500)])
        w.wait_until_applied()
        assert w.read("resolved") == [], "neither has matured"
        w.send([forecast("later", 0.5, 8000)])
        w.wait_until_applied()
        w.send([outcome("honest", 1, 9000), outcome("honest", 1, 9000), outcome("honest", 0, 9500, revision=7)])
        w.send([forecast("fraud", 0.9, 9600)])
        w.wait_until_applied()
    first, *_, again = (record.value for record in w.read("calibrated"))
    assert first == again
    labels = w.said("resolved")
    assert [(each["event_id"], each["y"], each["revision"], each["implied"]) for each in labels] == [
        ("fraud", 1, 0, False),
        ("honest", 0, 0, True),
        ("honest", 1, 1, False),
        ("honest", 0, 2, False),
    ]
    applied = w.applied()
    assert (applied["matured"], applied["implied"]) == (1, 1)
    assert (applied["outcomes_waiting"], applied["outcomes_revised"], applied["outcomes_duplicate"]) == (1, 2, 1)
    w.judge()


def test_silence_speaks_by_the_clock_where_nothing_comes_any_more(world: MakeWorld, tmp_path: Path) -> None:
    (tmp_path / "streams.toml").write_text('[streams.s]\nmatures = "2s"\nsilence = 0\n')
    w = world(partitions=1, TRUEUP_STREAMS=str(tmp_path / "streams.toml"), TRUEUP_QUIET_SECONDS="0.5")

    def send(*names: str) -> None:
        w.send([forecast(name, 0.5, int(time() * 1000)) for name in names])

    send(*(f"e{i}" for i in range(300)))
    for step, times, name in (("5", "2", "second"), ("3", "2", "third")):  # a tick's checkpoint, and its entry
        w.killed("--kill", step, times)
        send(name)  # a worker follows the clock once a record comes at the time that it tells
    with w.worker():
        wait_for("what silence says of all", lambda: len(w.read("resolved")) == 302)
        w.wait_until_applied()
    assert {(each["y"], each["implied"]) for each in w.said("resolved")} == {(0.0, True)}
    assert w.applied()["implied"] == 302
    w.judge()
    w.agree()
