"""Challengers: they learn what they would have as the champion, and nothing else shows that they are there."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from state import kinds
from state.events import Calibrated, Event, Forecast, Outcome, Resolved
from state.forecasts import Probs
from state.policies import Policies
from state.policy import Challenger, Policy
from state.scoring.comparison import Comparison
from tests.holding import shown
from tests.state.histories import (
    CUTS,
    POLICIES,
    SHADOWED,
    SHADOWED_HISTORIES,
    STEADY,
    History,
    Table,
    Worker,
    altered,
    cut,
    judged_at_once,
    play,
    promoted,
    seeded,
)

pytestmark = pytest.mark.usefixtures("no_warm_up")


#: Stands for the long history among examples.
LONG: Final = None


@cache
def long() -> History:
    """Return a long history, for what short ones do not reach."""
    with judged_at_once():
        return play(seeded(3000, seed=2), policies=SHADOWED)


def folded(history: History, policies: Policies) -> Worker:
    """Return a worker that has folded a history's events under other policies."""
    worker = Worker(policies)
    for event in history.events:
        worker.fold(event)
    return worker


def alone() -> Iterator[tuple[str, Policy, Policies]]:
    """Yield each stream's challengers, and policies under which each of them serves alone."""
    for stream, policy in SHADOWED.patterns:
        for challenger in policy.challengers:
            others = [(pattern, challenger if pattern == stream else each) for pattern, each in POLICIES.patterns]
            yield stream, challenger, Policies(others, early_ttl_ms=POLICIES.early_ttl_ms)


def unshadowed(table: Table) -> dict[bytes, bytes]:
    """Return a table's rows without what challengers have left in it."""
    serving = {kinds.CALIBRATOR.key(stream, policy.config) for stream, policy in POLICIES.patterns}
    left: dict[bytes, bytes] = {}
    for key, row in table.items():
        if key[:1] == kinds.LEDGER.letter:
            left[key] = kinds.LEDGER.encode(altered(kinds.LEDGER.decode(row), shadows=()))
        elif key[:1] != kinds.COMPARISON.letter and (key[:1] != kinds.CALIBRATOR.letter or key in serving):
            left[key] = row
    return left


# 1. Nothing that is served, and no row of the champion's, knows of them.


@STEADY
@given(SHADOWED_HISTORIES)
@example(LONG)
def test_outputs_and_the_champions_rows_are_those_without_challengers(history: History | None) -> None:
    history = history or long()
    plain = folded(history, POLICIES)
    outputs = [output for event in history.effects for output in event.outputs]
    assert unshadowed(history.table) == plain.table
    again = Worker(POLICIES)
    assert outputs == [output for event in history.events for output in again.fold(event).outputs]


# 2. A challenger's row is the row it would have as the champion, so promoting it loses nothing.


def as_champions(table: Table, history: History) -> None:
    for stream, challenger, policies in alone():
        key = kinds.CALIBRATOR.key(stream, challenger.config)
        assert table.get(key) == folded(history, policies).table.get(key)


@STEADY
@given(SHADOWED_HISTORIES)
def test_challengers_row_is_the_one_it_would_have_as_the_champion(history: History) -> None:
    as_champions(history.table, history)


@STEADY
@given(SHADOWED_HISTORIES, CUTS, st.randoms(use_true_random=False))
def test_promotions_at_any_time_lose_nothing_and_learn_nothing_twice(
    history: History, lengths: list[int], when: random.Random
) -> None:
    policies, table = SHADOWED, Table()
    worker = Worker(policies, table)
    for batch in cut(history.events, lengths):
        if when.random() < 0.1:
            policies = promoted(policies)
            worker = Worker(policies, table)
        worker.fold(*batch)
    as_champions(table, history)
    for stream, policy in POLICIES.patterns:
        key = kinds.CALIBRATOR.key(stream, policy.config)
        assert table.get(key) == history.table.get(key)


# 3. Both sides of a comparison are of the same events, each counted once.


@STEADY
@given(SHADOWED_HISTORIES)
@example(LONG)
def test_comparison_counts_every_resolved_event_once_with_what_was_served(history: History | None) -> None:
    history = history or long()
    served: dict[str, Calibrated] = {}
    resolved = Counter[str]()
    sums: dict[str, float] = {}
    for output in history.outputs:
        if isinstance(output, Calibrated):
            served[output.event_id] = output
        elif isinstance(output, Resolved):
            assert isinstance(output.p, float)
            resolved[output.stream] += not output.revision
            loss = (output.p - output.y) ** 2
            replaced = (output.p - (1.0 - output.y)) ** 2 if output.revision else 0.0
            sums[output.stream] = sums.get(output.stream, 0.0) + loss - replaced
    for stream, policy in SHADOWED.patterns:
        for challenger in policy.challengers:
            row = history.table.get(kinds.COMPARISON.key(stream, policy.config, challenger.config))
            found = Comparison() if row is None else kinds.COMPARISON.decode(row)
            assert isinstance(found, Comparison)
            assert found.n == resolved[stream]
            if found.n:
                assert found.scores.brier("raw") * found.n == pytest.approx(sums[stream], abs=4e-9 * found.n)


# 4. Examples.

CHAMPION = Policy("minimax", {"buckets": 2, "grid": 4})
BESIDE = replace(CHAMPION, shadow=(Challenger("platt", {}), Challenger("identity", {})))


def policies(policy: Policy) -> Policies:
    return Policies([("s", policy)], default=Policy("minimax", {"grid": 7}))


def asked(n: int) -> list[Event]:
    return [Forecast(i, None, f"e{i}", "s", i / n, (), i) for i in range(n)]


def answered(n: int) -> list[Event]:
    return [Outcome(i, None, f"e{i}", float(i % 3 == 0), n + i) for i in range(n)]


def test_ledger_row_holds_what_each_challenger_would_have_served() -> None:
    worker = Worker(policies(BESIDE))
    worker.fold(Forecast(0, None, "e", "s", 0.31, (), 0))
    entry = worker.table.entry("e")
    assert entry is not None
    platt, identity = entry.shadows
    assert (platt.config, identity.config) == tuple(each.config for each in BESIDE.challengers)
    assert (identity.version, identity.p, identity.draw) == (0, 0.31, 0.31)
    assert entry.config == CHAMPION.config


def test_challenger_that_is_no_longer_configured_learns_from_the_tickets_it_has() -> None:
    worker = Worker(policies(BESIDE))
    worker.fold(*asked(10))
    worker = Worker(policies(CHAMPION), worker.table)
    effects = worker.fold(*answered(10))
    platt = kinds.CALIBRATOR.decode(worker.table[kinds.CALIBRATOR.key("s", BESIDE.challengers[0].config)], "s")
    assert platt.calibrator.learnt == 10
    assert platt.late == 45
    assert kinds.COMPARISON.decode(
        worker.table[kinds.COMPARISON.key("s", CHAMPION.config, BESIDE.challengers[0].config)]
    ).n == 10  # fmt: skip
    assert shown(effects, policies(CHAMPION), kinds.COMPARISON) == {}, "there is no gauge of what nobody has configured"


def test_added_challenger_learns_only_from_what_it_was_asked() -> None:
    worker = Worker(policies(CHAMPION))
    worker.fold(*asked(6))
    worker = Worker(policies(BESIDE), worker.table)
    effects = worker.fold(*(event._replace(offset=event.offset) for event in answered(6)))
    assert shown(effects, policies(BESIDE), kinds.COMPARISON) == {}
    assert worker.table.of(kinds.COMPARISON.letter) == {}


def test_promoted_challenger_tells_of_its_row_whichever_ticket_taught_it() -> None:
    worker = Worker(policies(BESIDE))
    worker.fold(*asked(10))
    platt, identity = BESIDE.challengers
    after = replace(platt, shadow=(Challenger(CHAMPION.calibrator, CHAMPION.options), Challenger("identity", {})))
    worker = Worker(policies(after), worker.table)
    effects = worker.fold(*answered(10))
    assert shown(effects, policies(after), kinds.CALIBRATOR) == {
        ("s", platt.config): worker.table[kinds.CALIBRATOR.key("s", platt.config)]
    }
    assert shown(effects, policies(after), kinds.COMPARISON) == {}, "these were compared with the champion of before"
    answer = worker.fold(Forecast(10, None, "new", "s", 0.5, (), 30)).outputs[0]
    assert isinstance(answer, Calibrated)
    assert (answer.config, answer.version) == (platt.config, 10)
    effects = worker.fold(Outcome(10, None, "new", 1.0, 31))
    assert shown(effects, policies(after), kinds.COMPARISON).keys() == {
        ("s", platt.config, each.config) for each in (CHAMPION, identity)
    }


def test_outcome_no_forecast_can_have_teaches_nobody() -> None:
    mixed = Policies([("s", BESIDE), ("n", Policy("multiclass", {"classes": 4}))])
    worker = Worker(mixed)
    events: list[Event] = [Outcome(0, b"k", "e", 2.0, 0), Forecast(0, b"k", "e", "s", 0.5, (), 1)]
    worker.fold(events[0])
    first = worker.fold(events[1])
    assert [type(output).__name__ for output in first.outputs] == ["Calibrated", "Rejected"]
    entry = worker.table.entry("e")
    assert entry is not None
    assert len(entry.shadows) == 2
    for each in BESIDE.challengers:
        assert kinds.CALIBRATOR.decode(worker.table[kinds.CALIBRATOR.key("s", each.config)], "s").calibrator.learnt == 0
    fit = worker.fold(Outcome(1, b"k", "e", 1.0, 2))
    assert isinstance(fit.outputs[0], Resolved)
    assert worker.fold(Forecast(1, None, "v", "n", Probs((0.25, 0.25, 0.25, 0.25)), (), 3)).outputs
