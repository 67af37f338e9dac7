"""The invariants of trueup, each over random histories; see `tests.state.histories`."""

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Final
from unittest.mock import patch

import pytest
from hypothesis import example, given

from state import kinds, ledger
from state.engine import Partition
from state.events import Calibrated, Event, Forecast, Outcome, Output, Passed, Rejected, Resolved
from state.expiry import CHUNK
from state.fence import (
    EARLY,
    EARLY_JOINED,
    EXPIRED_FORECAST,
    EXPIRED_OUTCOME,
    FATES,
    FORECAST_DEAD,
    FORECAST_DUPLICATE,
    FORECASTS,
    IMPLIED,
    ISSUED,
    MATURED,
    OUTCOME_DEAD,
    OUTCOME_DUPLICATE,
    OUTCOME_REVISED,
    OUTCOME_STALE,
    OUTCOMES,
    RESOLVED,
    WAITING,
    Fence,
)
from state.scoring import history as scores
from tests.state.histories import (
    CUTS,
    HISTORIES,
    PLANS,
    POLICIES,
    ROOT,
    SHADOWED,
    SMALL_BATCH,
    STEADY,
    STREAMS,
    WEIGHED_HISTORIES,
    History,
    Plan,
    Table,
    Worker,
    cut,
    digest,
    folded_again,
    play,
    seeded,
)

#: Stands for the long history among examples.
LONG: Final = None


@cache
def long() -> History:
    """Return what short histories cannot reach: full expiry chunks, thousands of outcomes, every case many times."""
    return play(seeded(3000, seed=1), policies=SHADOWED)


def test_the_long_history_holds_every_case() -> None:
    met = dict(zip(FATES, long().table.fence.fates, strict=True))
    assert met.pop("early_unusable") == 0, "an outcome that is 0 or 1 fits every forecast that is one probability"
    assert met.pop("outcomes_erased") == 0, "test_erasure.py has these"
    assert all(n >= 10 for n in met.values()), met
    assert any(queue.head > 2 * CHUNK for queue in long().table.fence.queues.values())


# 1. Every accepted outcome of an issued, unexpired event changes its calibrator exactly once.


@STEADY
@given(HISTORIES)
@example(LONG)
def test_every_accepted_outcome_changes_its_calibrator_exactly_once(history: History | None) -> None:
    table, outputs = (history or long()).table, (history or long()).outputs
    resolved = Counter(output.stream for output in outputs if isinstance(output, Resolved) and not output.revision)
    fates = table.fence.fates
    assert sum(resolved.values()) == fates[RESOLVED] + fates[EARLY_JOINED] + fates[MATURED] + fates[IMPLIED]
    for stream, n in resolved.items():
        assert table.served(stream).calibrator.learnt == n
        scored = kinds.history(table[kinds.SCORES.key(stream)], None)
        assert scored.present.n + scored.warm_up.n == n


# 2. Every accepted forecast gets at least one calibrated record; all records for one event are identical.


@STEADY
@given(HISTORIES)
@example(LONG)
def test_every_accepted_forecast_is_answered_and_all_its_answers_are_identical(history: History | None) -> None:
    history = history or long()
    lives: dict[str, Calibrated] = {}  # an event that expired and came again has a new life
    for event, effects in zip(history.events, history.effects, strict=True):
        answers = [output for output in effects.outputs if isinstance(output, Calibrated)]
        assert len(answers) == (isinstance(event, Forecast) and not effects.rejected)
        for answer in answers:
            assert answer.event_id == event.event_id  # type: ignore[union-attr]  # it is a Forecast
            if effects.fates[ISSUED]:
                lives[answer.event_id] = answer
            assert answer == lives[answer.event_id]
        for output in effects.outputs:
            if isinstance(output, Resolved):
                answer = lives[output.event_id]
                assert output[:6] == answer[:6]
                assert (output.calibrator, output.version, output.issued_ts) == answer[6:7] + answer[8:10]


# 3. The same events in the same order give the same bytes, state and outputs: however they are cut into batches and
# checkpoints, and wherever a crash lets them be folded again.


def crashing(history: History, plan: Plan) -> tuple[Table, list[Output]]:
    return folded_again(lambda table: Partition(history.policies, table.get), history.events, plan)


@STEADY
@given(HISTORIES | WEIGHED_HISTORIES, PLANS)
def test_whatever_is_folded_again_rows_and_outputs_are_those_of_one_fold(history: History, plan: Plan) -> None:
    assert crashing(history, plan) == (history.table, history.outputs)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_long_history_with_crashes_has_the_rows_and_outputs_of_one_fold(seed: int) -> None:
    rng = random.Random(seed)
    most = (10, 300)[seed - 1]
    thens = ("", "", "checkpoint", "killed", "lost", "reset", "twice")
    with patch.object(scores, "WINDOW", 50):  # so that windows close, and the worst is kept
        history = play(seeded(3000, seed=1), policies=SHADOWED)
        plan = [(rng.randrange(1, most), rng.choice(thens)) for _ in history.events]
        assert crashing(history, plan) == (history.table, history.outputs)
    assert len(history.table.of(kinds.WINDOWS.letter)) == len(STREAMS)


@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_rows_and_outputs_do_not_depend_on_the_hash_seed(hash_seed: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.state.histories"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == digest(long())


# 4. State is bounded: rows expire, rows per stream are fixed by configuration.


#: One of parked outcomes, two without maturity, and of three streams that mature two each and one for revisions.
QUEUES = 3 + 2 * 3 + 1


def fillers(table: Table, n: int) -> list[Event]:
    """Return events that say nothing new, long after everything fell due."""
    offset, ts = table.fence.next[OUTCOMES], table.fence.stream_time + 10**6
    return [Outcome(offset + i, None, "filler", 1.0, ts + 10**6 * (i // (n // 4 + 1))) for i in range(n)]


@STEADY
@given(HISTORIES)
def test_every_row_expires_and_only_streams_remain(history: History) -> None:
    worker = Worker(history.policies, Table(history.table))
    waiting = sum(queue.tail - queue.head for queue in worker.table.fence.queues.values())
    for event in fillers(worker.table, 4 * (SMALL_BATCH + waiting + 1)):
        worker.fold(event)
    fence = worker.table.fence
    assert (fence.pending, fence.waiting, fence.early) == (0, 0, 1)
    assert worker.table.of(kinds.LEDGER.letter).keys() == {kinds.LEDGER.key("filler")}
    assert len(worker.table.of(kinds.QUEUE.letter)) <= len(fence.queues) <= QUEUES
    shadows = sum(len(policy.shadow) for _, policy in history.policies.patterns)
    assert len(worker.table.of(kinds.CALIBRATOR.letter)) <= len(STREAMS) + shadows
    assert len(worker.table.of(kinds.SCORES.letter)) <= len(STREAMS)
    assert len(worker.table.of(kinds.COMPARISON.letter)) <= shadows


@STEADY
@given(HISTORIES)
def test_rows_leave_only_when_they_are_due(history: History) -> None:
    worker = Worker(history.policies)
    ttl = {stream: policy.ttl_ms for stream in STREAMS if (policy := POLICIES.of(stream))}
    since: dict[str, int] = {}  # stream time at which the row entered its queue
    for event in history.events:
        before = dict(worker.table.of(kinds.LEDGER.letter))
        effects = worker.fold(event)
        fence = worker.table.fence
        gone = [key for key in before if effects.rows.get(key, before[key]) is None]
        if not isinstance(event, Rejected | Passed) and effects.fates[ISSUED] + effects.fates[EARLY]:
            since[event.event_id] = fence.stream_time
        for key in gone:  # a row that expired and was entered anew by the same event is not among them
            entry = kinds.LEDGER.decode(before[key])
            lives = ttl[entry.stream] if entry.stream else POLICIES.early_ttl_ms
            assert since[key[1:].decode()] + lives <= fence.stream_time


# 5. Nothing is dropped in silence: the counts add up.


def adds_up(events: Sequence[Event], fence: Fence, table: Table) -> None:
    n = fence.fates
    forecasts = sum(isinstance(event, Forecast) for event in events)
    outcomes = sum(isinstance(event, Outcome) for event in events)
    letters = Counter(event.topic for event in events if isinstance(event, Rejected))
    # Dead letters of usable records: forecasts that conflict, and labels that their forecast cannot have.
    refused = [n[FORECAST_DEAD] - letters[FORECASTS], n[OUTCOME_DEAD] - letters[OUTCOMES]]
    assert min(refused) >= 0
    assert n[ISSUED] + n[FORECAST_DUPLICATE] + refused[FORECASTS] == forecasts
    labels = n[OUTCOME_DUPLICATE] + n[OUTCOME_REVISED] + n[OUTCOME_STALE]
    assert n[RESOLVED] + n[WAITING] + n[EARLY] + labels + refused[OUTCOMES] == outcomes
    assert fence.applied == len(events)
    times = [event.ts for event in events if not isinstance(event, Rejected | Passed)]
    assert fence.stream_time == max(times, default=0)
    status = Counter(entry.status for entry in table.entries())
    assert fence.pending == status[ledger.ISSUED] + status[ledger.IMMATURE]
    assert fence.waiting == status[ledger.WAITING]
    assert fence.early == status[ledger.EARLY]
    assert status[ledger.RESOLVED] <= n[RESOLVED] + n[EARLY_JOINED] + n[MATURED] + n[IMPLIED]
    assert n[EXPIRED_FORECAST] <= n[ISSUED]
    assert n[EXPIRED_OUTCOME] <= n[EARLY]


@STEADY
@given(HISTORIES, CUTS)
@example(LONG, [3000])
def test_counts_add_up_after_every_batch(history: History | None, lengths: list[int]) -> None:
    history = history or long()
    worker = Worker(history.policies)
    applied = 0
    total = [0] * len(worker.partition.fence.fates)
    for batch in cut(history.events, lengths):
        effects = worker.fold(*batch)
        applied += len(batch)
        total = [a + b for a, b in zip(total, effects.fates, strict=True)]
        assert total == worker.table.fence.fates
        adds_up(history.events[:applied], worker.table.fence, worker.table)
