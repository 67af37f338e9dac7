"""``trueup streams show`` reads from the changelog what the workers have learnt."""

import subprocess

import orjson

from tests.e2e.world import MakeWorld, World
from tests.events import mixed


def shown(w: World, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    return w.command("streams", *arguments, **{"COLUMNS": "160", **settings})


def test_streams_shows_what_the_streams_have_learnt(world: MakeWorld) -> None:
    w = world(partitions=2)
    made = mixed(1000)
    w.serve(made.sent)
    listed = shown(w, "list", "--json")
    assert listed.returncode == 0, listed.stderr
    report = orjson.loads(listed.stdout)
    assert sorted(report["streams"]) == ["stream-0", "stream-1", "stream-2"]
    assert {fate: report["fates"][fate] for fate in made.fates} == made.fates
    learnt = made.fates["outcomes_resolved"] + made.fates["early_joined"]
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
    table = shown(w, "list")
    assert table.returncode == 0
    assert "stream-2" in table.stdout
    one = shown(w, "show", "stream-1")
    assert one.returncode == 0
    assert "reliability" in one.stdout
    assert "stream-2" not in one.stdout
