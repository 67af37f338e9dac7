"""The key of the draws: without it nobody can compute them, with it everybody draws the same."""

from pathlib import Path

from replay.configuration import Configuration
from replay.player import Player
from state import kinds
from state.engine import Partition
from state.events import Calibrated, Event, Forecast, Outcome
from state.policies import Policies
from state.policy import Policy
from tests.state.histories import Worker

COIN = b"a secret of at least 16 bytes"


def policies(coin: bytes) -> Policies:
    return Policies(default=Policy("minimax", {"buckets": 1, "grid": 7}), coin=coin)


def events(n: int = 400) -> list[Event]:
    found: list[Event] = []
    for i in range(n):
        found.append(Forecast(i, None, f"e{i}", "s", 0.5, (), i))
        found.append(Outcome(i, None, f"e{i}", float(i % 3 == 0), i))
    return found


def drawn(worker: Worker) -> list[object]:
    return [output.draw for output in worker.fold(*events()).outputs if isinstance(output, Calibrated)]


def test_draws_depend_on_the_key_and_on_nothing_else() -> None:
    open_, keyed, again, other = (drawn(Worker(policies(coin))) for coin in (b"", COIN, COIN, COIN + b"."))
    assert keyed == again
    assert keyed != open_
    assert keyed != other


def test_a_stored_calibrator_goes_on_under_the_key() -> None:
    whole, parts = Worker(policies(COIN)), Worker(policies(COIN))
    for event in events():
        whole.fold(event)
        parts.fold(event)
        parts.partition = Partition(policies(COIN), parts.table.get)
    assert parts.table == whole.table


def test_the_key_stands_in_no_row() -> None:
    worker = Worker(policies(COIN))
    drawn(worker)
    assert len(worker.table.of(kinds.CALIBRATOR.letter)) == 1
    assert not any(COIN in row for row in worker.table.values())


def test_replay_draws_what_was_served(tmp_path: Path) -> None:
    run = Player([Configuration("present", policies(COIN))], tmp_path)
    run.play(events())
    assert run.end().column("draw0").tolist() == drawn(Worker(policies(COIN)))
