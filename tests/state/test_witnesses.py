"""Stream time: one record from a clock that runs ahead does not move it, several do."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from replay.configuration import Configuration
from replay.player import Player
from state import kinds
from state.engine import Partition
from state.events import Event, Forecast, Outcome, Resolved
from state.expiry import Expiry
from state.fence import EXPIRED_FORECAST, FATES, Fence
from state.policies import Policies
from state.policy import Policy
from state.witnesses import MEMORY, SEVERAL, SLACK, Witnesses
from tests.state.histories import POLICIES, Table, Worker, play, seeded

HOUR = 3_600_000
NOW = 1_700_000_000_000
#: The last millisecond that a record may name.
LAST = 253_402_300_799_999
OPEN = Policies(default=Policy("identity", ttl_ms=10 * HOUR), early_ttl_ms=10 * HOUR)


def forecast(i: int, ts: int, stream: str = "s") -> Forecast:
    return Forecast(i, None, f"{stream}-{i}", stream, 0.5, (), ts)


def settled(worker: Worker) -> int:
    """Tell a worker of an empty partition the time; return the next offset."""
    worker.fold(*(forecast(i, NOW, "clock") for i in range(SEVERAL)))
    assert worker.table.fence.stream_time == NOW
    return SEVERAL


@pytest.mark.parametrize("ahead", [SLACK + 1, 23 * HOUR, LAST - NOW])
def test_one_record_ahead_expires_nothing_of_another_stream(ahead: int) -> None:
    worker = Worker(OPEN)
    at = settled(worker)
    worker.fold(*(forecast(at + i, NOW + i, "theirs") for i in range(50)))
    worker.fold(forecast(at + 50, NOW + ahead, "wild"))
    effects = [worker.fold(Outcome(i, None, f"theirs-{at + i}", 1.0, NOW + 60_000)) for i in range(50)]
    assert sum(isinstance(output, Resolved) for each in effects for output in each.outputs) == 50
    assert worker.table.fence.fates[EXPIRED_FORECAST] == 0
    assert worker.table.fence.stream_time <= NOW + 60_000 + SLACK


def test_what_a_record_ahead_asked_for_is_answered_and_learnt() -> None:
    worker = Worker(OPEN)
    at = settled(worker)
    effects = worker.fold(forecast(at, NOW + 23 * HOUR), Outcome(0, None, f"s-{at}", 1.0, NOW + 23 * HOUR))
    assert [type(output).__name__ for output in effects.outputs] == ["Calibrated", "Resolved"]


def test_after_a_quiet_time_three_records_move_stream_time_and_none_expires_early() -> None:
    worker = Worker(OPEN)
    at = settled(worker)
    later = NOW + 48 * HOUR  # longer than the time to live
    for i in range(SEVERAL):
        assert worker.table.fence.stream_time == NOW
        worker.fold(forecast(at + i, later + i, "morning"))
    fence = worker.table.fence
    assert fence.stream_time == later + SEVERAL - 1
    assert kinds.WITNESSES.key() not in worker.table
    worker.fold(forecast(at + SEVERAL, later + SEVERAL), forecast(at + SEVERAL + 1, later + SEVERAL))
    assert worker.table.fence.fates[EXPIRED_FORECAST] == SEVERAL, "those of the evening before"
    assert all(worker.table.entry(f"morning-{at + i}") for i in range(SEVERAL))


def test_rows_of_records_ahead_expire_when_their_own_time_to_live_has_passed() -> None:
    worker = Worker(OPEN)
    at = settled(worker)
    worker.fold(forecast(at, NOW + HOUR, "wild"))
    n = at + 1
    for minutes in range(0, 12 * 60, 4):
        worker.fold(forecast(n, NOW + minutes * 60_000))
        gone = worker.table.entry(f"wild-{at}") is None
        assert gone == (minutes * 60_000 >= 11 * HOUR), minutes
        n += 1


def test_witness_that_nobody_joins_is_forgotten_and_its_row_leaves() -> None:
    worker = Worker(OPEN)
    at = settled(worker)
    worker.fold(forecast(at, LAST, "wild"))
    n = at + 1
    for _ in range(0, MEMORY + 1000, 1000):
        worker.fold(*(forecast(n + i, NOW + n + i) for i in range(1000)))
        n += 1000
    assert kinds.WITNESSES.key() not in worker.table
    for hours in range(1, 20):
        worker.fold(*(forecast(n + i, NOW + hours * HOUR + i) for i in range(1000)))
        n += 1000
    assert worker.table.entry(f"wild-{at}") is None


def test_two_witnesses_that_were_forgotten_do_not_count() -> None:
    witnesses, fence = Witnesses(), Fence(stream_time=NOW, applied=MEMORY + SEVERAL)
    for i in range(SEVERAL - 1):
        witnesses.add(LAST, i)
    witnesses.add(LAST, fence.applied)
    witnesses.settle(fence, Expiry(Table().get, fence))
    assert fence.stream_time == NOW
    assert len(witnesses.waiting) == 1


def leaping(seed: int) -> list[Event]:
    """Return a history with quiet nights, and now and then a record from a clock that runs ahead."""
    rng = random.Random(seed)
    found: list[Event] = []
    night = 0
    for event in play(seeded(1500, seed)).events:
        if isinstance(event, Forecast | Outcome):
            night += rng.random() < 0.02
            wild = rng.choice((HOUR, 40 * HOUR, LAST // 2)) if rng.random() < 0.03 else 0
            found.append(event._replace(ts=event.ts + night * (SLACK + 50_000) + wild))
        else:
            found.append(event)
    return found


@pytest.mark.parametrize("seed", range(2))
def test_cuts_and_crashes_leave_the_same_rows_of_a_history_that_leaps(seed: int) -> None:
    events = leaping(seed)
    alone, together = Worker(), Worker()
    for event in events:
        alone.fold(event)
    for at in range(0, len(events), 37):
        together.fold(*events[at : at + 37])
        together.partition = Partition(POLICIES, together.table.get)
    assert together.table == alone.table
    assert alone.table.fence.fates[EXPIRED_FORECAST] > 10


@pytest.mark.parametrize("seed", range(2))
def test_replay_keeps_the_stream_time_of_the_engine(seed: int, tmp_path: Path) -> None:
    events = leaping(seed)
    worker = Worker()
    for event in events:
        worker.fold(event)
    run = Player([Configuration("present", POLICIES)], tmp_path)
    run.play(events)
    assert dict(zip(FATES, run.end().fates, strict=True)) == dict(zip(FATES, worker.table.fence.fates, strict=True))


def test_expiries_say_when_they_were_due() -> None:
    worker = Worker(OPEN)
    at = settled(worker)
    late: Sequence[Event] = [forecast(at + i, NOW + 11 * HOUR + i) for i in range(SEVERAL + 2)]
    assert worker.fold(*late).lapsed == [NOW + 10 * HOUR] * SEVERAL
