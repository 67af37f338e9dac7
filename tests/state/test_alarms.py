"""Alarms begin anew where the configuration says since when: once, at that time, whatever process looks."""

from dataclasses import replace

import pytest

from state import kinds
from state.events import Forecast, Outcome
from state.policies import Policies
from state.policy import Policy
from state.scoring.history import History
from tests.state.histories import Table, Worker

pytestmark = pytest.mark.usefixtures("no_warm_up")

POLICY = Policy("identity")


def worker(since_ms: int, table: Table | None = None) -> Worker:
    return Worker(Policies(default=replace(POLICY, alarms_since_ms=since_ms)), table)


def tell(one: Worker, events: range) -> None:
    """Let each event be forecast at its number in ms with .9, and not happen."""
    for n in events:
        one.fold(Forecast(n, b"k", f"e{n}", "s", 0.9, (), n))
        one.fold(Outcome(n, b"k", f"e{n}", 0.0, n))


def history(one: Worker) -> History:
    return kinds.history(one.table[kinds.SCORES.key("s")], one.table.get(kinds.WINDOWS.key("s")))


def begun(one: Worker) -> int | None:
    row = one.table.get(kinds.ALARMS.key("s"))
    return None if row is None else kinds.ALARMS.decode(row).ms


def alarm(one: Worker) -> float:
    return history(one).log_alarm("calibrated")


def test_alarms_count_from_the_first_event_at_the_time_that_is_configured() -> None:
    one = worker(0)
    tell(one, range(1000, 1020))
    raised = alarm(one)
    assert begun(one) is None
    one = worker(1030, one.table)
    tell(one, range(1020, 1030))
    assert alarm(one) > raised > 10
    tell(one, range(1030, 1032))
    other = worker(0)
    tell(other, range(1030, 1032))
    assert alarm(one) == pytest.approx(alarm(other))
    assert (begun(one), history(one).n) == (1030, 32), "scores go on"


def test_a_restart_begins_nothing_anew_and_another_time_does() -> None:
    one = worker(1005)
    tell(one, range(1000, 1020))
    raised = alarm(one)
    one = worker(1005, one.table)
    tell(one, range(1020, 1021))
    assert alarm(one) > raised
    one = worker(0, one.table)
    tell(one, range(1021, 1022))
    assert (alarm(one) > raised, begun(one)) == (True, 1005), "what was forgotten does not come back"
    one = worker(1010, one.table)
    tell(one, range(1022, 1023))
    assert alarm(one) < raised
    assert begun(one) == 1010
