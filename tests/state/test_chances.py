"""Labels of known chance: which teach, and that what they teach is right of all forecasts."""

import random
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import kinds, ledger
from state.chances import MOST, Chances, weight
from state.entities import number
from state.events import Calibrated, Event, Forecast, Outcome, Resolved
from state.forecasts import Normal, Probs
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Policy
from tests.state.histories import STEADY, Table, Worker

PLAN = Policies(default=Policy(DEFAULT_CALIBRATOR, ttl_ms=10**6, label_rate="chance"))


def taught(told: list[tuple[float, float]], chances: Chances | None = None) -> list[bool]:
    """Return which of labels teach, given by the log-odds of their scores and their chances."""
    chances = chances or Chances()
    return [chances.teaches(z, chance, b"%d" % n) for n, (z, chance) in enumerate(told)]


@given(st.floats(0.001, 1.0), st.integers(1, 100))
@STEADY
def test_labels_of_one_chance_all_teach(chance: float, n: int) -> None:
    assert all(taught([(0.3, chance)] * n))


def test_labels_that_the_score_alone_chooses_all_teach() -> None:
    rng = random.Random(1)
    scores = [rng.uniform(-6.0, 2.0) for _ in range(3000)]
    assert all(taught([(z, 1.0 if z >= -1.0 else 0.02) for z in scores]))


@given(st.lists(st.tuples(st.floats(-30.0, 30.0), st.floats(1e-6, 1.0)), min_size=1, max_size=50))
@STEADY
def test_labels_continue_bit_for_bit_from_their_row_and_add_up(told: list[tuple[float, float]]) -> None:
    whole, halves = Chances(), [Chances(), Chances()]
    for n, (z, chance) in enumerate(told):
        expected = whole.teaches(z, chance, b"%d" % n)
        half = halves[0] = kinds.CHANCES.decode(kinds.CHANCES.encode(halves[0]))
        assert half.teaches(z, chance, b"%d" % n) == expected
    assert kinds.CHANCES.encode(halves[0]) == kinds.CHANCES.encode(whole)
    assert kinds.CHANCES.encode(halves[0] + halves[1]) == kinds.CHANCES.encode(whole)


def test_as_many_labels_teach_as_kish_says_and_in_the_shares_of_all_forecasts() -> None:
    """Of 100 forecasts of a score 5 are chosen, and the others labelled at .02: 1.9 of them."""
    rng = random.Random(2)
    told = [(-2.5, 1.0 if rng.random() < 0.05 / 0.069 else 0.02) for _ in range(40_000)]
    found = taught(told)
    counted = {
        chance: sum(each for each, (_, q) in zip(found, told, strict=True) if q == chance) for chance in (1.0, 0.02)
    }
    stands = [weight(chance) for _, chance in told]
    kish = sum(stands) ** 2 / sum(each * each for each in stands)
    assert sum(found) == pytest.approx(kish, rel=0.05)
    assert counted[1.0] / sum(found) == pytest.approx(0.05, abs=0.006)


def test_a_chance_near_0_stands_for_no_more_than_the_bound() -> None:
    assert weight(1e-12) == MOST
    found = taught([(0.0, 1e-12 if n % 100 == 0 else 1.0) for n in range(20_000)])
    assert sum(found) > 20_000 / MOST


def payments(seed: int, n: int = 12_000) -> tuple[list[Event], float]:
    """Return payments of which a hunch chooses a fifth for a label, beside 2 % of the others, and the rate of all.

    The scores are right on average. The hunch knows what they do not: half of the payments have three times the risk
    of the others, and of these every fifth is looked at.
    """
    rng = random.Random(seed)
    events: list[Event] = []
    rate, outcomes = 0.0, 0
    for at in range(n):
        risk, chance = (0.3, 0.2) if rng.random() < 0.5 else (0.1, 0.02)
        name = f"p{at}"
        rate += risk / n
        events.append(Forecast(at, None, name, "cards", 0.2, (), at, chance=chance))
        if rng.random() < chance:
            events.append(Outcome(outcomes, None, name, float(rng.random() < risk), at))
            outcomes += 1
    return events, rate


def served(plan: Policies, events: list[Event]) -> list[Calibrated]:
    worker = Worker(plan, Table())
    return [
        each
        for at in range(0, len(events), 1000)
        for each in worker.fold(*events[at : at + 1000]).outputs
        if isinstance(each, Calibrated)
    ]


def test_what_is_served_is_right_of_all_forecasts_and_without_chances_it_is_not() -> None:
    """Of the labels nine in eleven are of payments with three times the risk."""
    events, rate = payments(3)
    found = {}
    for name, plan in {
        "chances": PLAN,
        "alike": Policies(default=Policy(DEFAULT_CALIBRATOR, ttl_ms=10**6, unlabelled="alike")),
    }.items():
        last = served(plan, events)[-1000:]
        found[name] = sum(cast("float", each.p) for each in last) / len(last)
    assert found["alike"] > 1.25 * rate
    assert found["chances"] == pytest.approx(rate, rel=0.15)


def test_a_stream_of_known_chances_is_never_withheld() -> None:
    policy = PLAN.default
    assert policy is not None
    assert not policy.guarded
    assert replace(policy, label_rate="").guarded
    assert policy.config == replace(policy, label_rate="").config


def test_a_label_that_teaches_nothing_is_told_and_revised_and_counts_by_weight_alone() -> None:
    """The second label stands for one forecast where others stand for 50: hardly any such label teaches."""
    worker = Worker(PLAN, Table())
    names = [f"e{n}" for n in range(40)]
    events: list[Event] = [
        Forecast(n, None, name, "s", 0.2, (), n, chance=1.0 if n else 0.02) for n, name in enumerate(names)
    ]
    events += [Outcome(n, None, name, 0.0, 50) for n, name in enumerate(names)]
    told = [each for each in worker.fold(*events).outputs if isinstance(each, Resolved)]
    assert len(told) == 40
    windows = {name: kinds.LEDGER.decode(worker.table[kinds.LEDGER.key(name)]).window for name in names}
    passed = [name for name in names if windows[name] == ledger.UNTAUGHT]
    assert len(passed) > 30
    key = kinds.CALIBRATOR.key("s", PLAN.default.config if PLAN.default else "")
    assert kinds.CALIBRATOR.decode(worker.table[key], "s").calibrator.learnt == 40 - len(passed)
    weighted = kinds.WEIGHTED.decode(worker.table[kinds.WEIGHTED.key("s", *kinds.WHOLE)])
    assert (weighted.n, weighted.weight, weighted.happened) == (40, 50.0 + 39.0, 0.0)
    before = worker.table[key]
    (again,) = worker.fold(Outcome(40, None, passed[0], 1.0, 60)).outputs
    assert isinstance(again, Resolved)
    assert again.revision == 1
    assert worker.table[key] == before
    weighted = kinds.WEIGHTED.decode(worker.table[kinds.WEIGHTED.key("s", *kinds.WHOLE)])
    assert weighted.happened == 1.0


def test_a_label_teaches_by_its_chance_first_and_then_by_its_entity() -> None:
    worker = Worker(PLAN, Table())
    events: list[Event] = [
        Forecast(n, None, f"e{n}", "s", 0.2, (), n, entity=number(b"one"), chance=0.5) for n in range(10)
    ]
    worker.fold(*events, *[Outcome(n, None, f"e{n}", 1.0, 20) for n in range(10)])
    rows = [kinds.LEDGER.decode(worker.table[kinds.LEDGER.key(f"e{n}")]) for n in range(10)]
    assert sum(row.window != ledger.UNTAUGHT for row in rows) == 1
    assert {row.chance for row in rows} == {0.5}


@pytest.mark.parametrize(
    ("calibrator", "raw"), [("multiclass", Probs((0.2, 0.3, 0.5))), ("quantile", Normal(0.0, 1.0))]
)
def test_labels_of_classes_and_numbers_teach_by_their_chance(calibrator: str, raw: Probs | Normal) -> None:
    plan = Policies(default=Policy(calibrator, ttl_ms=1000, label_rate="chance"))
    worker, labels = Worker(plan, Table()), 200
    events: list[Event] = [
        Forecast(n, None, f"e{n}", "s", raw, (), n, chance=1.0 if n % 4 else 0.02) for n in range(labels)
    ]
    told = worker.fold(*events, *[Outcome(n, None, f"e{n}", float(n % 3), 300) for n in range(labels)]).outputs
    assert sum(isinstance(each, Resolved) for each in told) == labels
    assert plan.default is not None
    row = worker.table[kinds.CALIBRATOR.key("s", plan.default.config)]
    assert labels // 4 <= kinds.CALIBRATOR.decode(row, "s").calibrator.learnt < labels // 2
    assert not worker.table.of(kinds.WEIGHTED.letter)


def test_an_event_counts_by_weight_if_it_was_answered_while_there_were_weights() -> None:
    """Weights are set, then left out, on a running stream; labels of all times are revised at the end."""
    table, plain, weighed = Table(), Policy(ttl_ms=10**6), Policy(ttl_ms=10**6, weight="amount")
    for n, policy in enumerate((plain, weighed, plain)):
        Worker(Policies(default=policy), table).fold(
            Forecast(n, None, f"e{n}", "s", 0.2, (), n), Outcome(n, None, f"e{n}", 0.0, n)
        )
    for n, policy in ((3, plain), (6, weighed)):
        labels = [Outcome(n + at, None, f"e{at}", float(n == 3), 100 + n) for at in range(3)]
        Worker(Policies(default=policy), table).fold(*labels)
        weighted = kinds.WEIGHTED.decode(table[kinds.WEIGHTED.key("s", *kinds.WHOLE)])
        assert (weighted.n, weighted.weight, weighted.happened) == (1, 1.0, float(n == 3))
