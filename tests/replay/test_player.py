"""What replay's player looks at, and several configurations side by side; test_agreement.py has the rest."""

from pathlib import Path

from replay.configuration import Configuration, with_calibrator
from replay.partition_result import PartitionResult
from replay.player import Player
from state.events import Rejected
from tests.state.histories import POLICIES, History, play, seeded


def player(history: History, directory: Path, *others: Configuration) -> tuple[PartitionResult, list[Rejected]]:
    letters: list[Rejected] = []
    run = Player([Configuration("present", POLICIES), *others], directory, letters.append)
    run.play(history.events)
    return run.end(), letters


def test_last_look_is_at_what_the_engine_has_learnt(tmp_path: Path) -> None:
    history = play(seeded(3000, seed=5))
    made, _ = player(history, tmp_path)
    last = {look.stream: look for look in made.looks}
    assert set(last) == {"counts", "regret", "guarded", "ridge"}
    for stream, look in last.items():
        served = history.table.served(stream)
        assert served.calibrator.learnt == look.learnt > 100
        assert look.error == served.calibrator.error()
        assert look.bound == served.calibrator.bound(served.outstanding)
    times = [look.time for look in made.looks]
    assert times[:-4] == sorted(times[:-4])


def test_contenders_side_by_side_are_as_alone(tmp_path: Path) -> None:
    history = play(seeded(800, seed=2))
    both, _ = player(history, tmp_path / "both", with_calibrator(POLICIES, "identity"))
    alone = Player([with_calibrator(POLICIES, "identity")], tmp_path / "alone")
    alone.play(history.events)
    alone.end()
    assert both.column("p1").tolist() == alone.played.column("p0").tolist()
    assert both.column("p1").tolist() == both.column("raw").tolist()
    assert both.fates == alone.played.fates
