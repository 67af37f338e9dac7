"""Labels as they are: maturity, silence, revisions, and what a restart tells again."""

from dataclasses import replace

import pytest

from state import kinds, ledger
from state.events import Calibrated, Event, Forecast, Outcome, Output, Resolved
from state.fold import RIPE
from state.policies import Policies
from state.policy import Challenger, Policy
from tests.state.histories import Table, Worker, fates

pytestmark = pytest.mark.usefixtures("no_warm_up")

#: Forecasts mature after 40 ms; their rows leave after 100, and may be revised for 150.
COUNTS = Policy("histogram", {"bins": 4}, ttl_ms=100, matures_ms=40, revisable_ms=150)
SILENT = replace(COUNTS, silence=0.0)


def forecast(
    offset: int, event_id: str, ts: int, p: float = 0.7, stream: str = "s", key: bytes | None = b"k"
) -> Forecast:
    return Forecast(offset, key, event_id, stream, p, (), ts)


def outcome(offset: int, event_id: str, ts: int, y: float = 1.0, revision: int = 0) -> Outcome:
    return Outcome(offset, b"k", event_id, y, ts, b"value", revision)


def worker(policy: Policy = SILENT, table: Table | None = None) -> Worker:
    return Worker(Policies(default=policy, early_ttl_ms=60), table)


def resolved(outputs: list[Output]) -> list[tuple[str, float, int, bool]]:
    return [(each.event_id, each.y, each.revision, each.implied) for each in outputs if isinstance(each, Resolved)]


def learnt(one: Worker, policy: Policy = SILENT) -> int:
    return one.table.served("s", Policies(default=policy)).calibrator.learnt


# Maturity, silence and revisions, one at a time.

A, B = forecast(0, "a", 1000), forecast(1, "b", 1045)
SOON, EARLY = outcome(0, "a", 1010), outcome(0, "a", 990)
ARRIVAL = replace(SILENT, learn="arrival")
LEARNT = [("a", 1.0, 0, False)]
#: Policy and events; what the last event counts, and which labels are told of it.
CASES: dict[str, tuple[Policy, list[Event], dict[str, int], list[tuple[str, float, int, bool]]]] = {
    "an outcome waits": (COUNTS, [A, SOON], {"outcomes_waiting": 1}, []),
    "also the last millisecond": (COUNTS, [A, SOON, forecast(1, "b", 1039)], {"forecasts_issued": 1}, []),
    "until its forecast matures": (
        COUNTS,
        [A, SOON, forecast(1, "b", 1040)],
        {"forecasts_issued": 1, "matured": 1},
        LEARNT,
    ),
    "one before its forecast": (COUNTS, [EARLY, A], {"forecasts_issued": 1, "early_waiting": 1}, []),
    "waits, too": (COUNTS, [EARLY, A, B], {"forecasts_issued": 1, "matured": 1}, LEARNT),
    "without silence a forecast waits on": (COUNTS, [A, B], {"forecasts_issued": 1}, []),
    "for its outcome": (COUNTS, [A, B, outcome(0, "a", 1060)], {"outcomes_resolved": 1}, LEARNT),
    "learning at arrival waits for nothing": (ARRIVAL, [A, SOON], {"outcomes_resolved": 1}, LEARNT),
    "but for silence": (ARRIVAL, [A, B], {"forecasts_issued": 1, "implied": 1}, [("a", 0.0, 0, True)]),
    "what silence said is confirmed": (SILENT, [A, B, outcome(0, "a", 1046, y=0.0)], {"outcomes_duplicate": 1}, []),
    "and what is older than that is stale": (
        SILENT,
        [A, B, outcome(0, "a", 1046, y=0.0), outcome(1, "a", 1041)],
        {"outcomes_stale": 1},
        [],
    ),
    "what silence said is revised": (
        SILENT,
        [A, B, forecast(2, "c", 1149), outcome(0, "a", 1149)],
        {"outcomes_revised": 1},
        [("a", 1.0, 1, False)],
    ),
    "until the row leaves": (
        SILENT,
        [A, B, *(forecast(n, f"e{n}", ts) for n, ts in enumerate((1105, 1149, 1200, 1200), 2)), outcome(0, "a", 1200)],
        {"outcomes_early": 1},
        [],
    ),
}


@pytest.mark.parametrize(("policy", "events", "counted", "told"), CASES.values(), ids=CASES)
def test_what_becomes_of_a_label(
    policy: Policy, events: list[Event], counted: dict[str, int], told: list[tuple[str, float, int, bool]]
) -> None:
    one = worker(policy)
    for each in events[:-1]:
        one.fold(each)
    effects = one.fold(events[-1])
    assert (fates(effects), resolved(effects.outputs)) == (counted, told)


def test_an_outcome_that_waits_is_learnt_with_the_age_and_the_key_that_it_had() -> None:
    one = worker(COUNTS)
    one.fold(A, SOON)
    assert (learnt(one, COUNTS), one.table.fence.pending, one.table.fence.waiting) == (0, 0, 1)
    effects = one.fold(forecast(1, "b", 1040))
    assert (effects.outputs[0].key, effects.delays) == (b"k", [10])
    assert (learnt(one, COUNTS), one.table.fence.waiting) == (1, 0)


def test_what_matures_before_one_event_is_bounded_and_the_rest_follows() -> None:
    one = worker()
    one.fold(*(forecast(t, f"e{t}", 1000) for t in range(RIPE + 5)))
    assert len(resolved(one.fold(forecast(100, "x", 2000)).outputs)) == RIPE
    assert len(resolved(one.fold(forecast(101, "y", 2000)).outputs)) == 5


def test_a_tick_lets_mature_what_the_next_record_would_and_one_that_comes_again_changes_nothing() -> None:
    by_tick, by_record = worker(), worker()
    for one in (by_tick, by_record):
        one.fold(*(forecast(t, f"e{t}", 1000 + t) for t in range(3)), outcome(0, "e1", 1003))
    partition = by_tick.partition
    assert partition.ripens == 1040
    partition.begin()
    said = partition.tick(1041)
    assert fates(partition.end()) == {"matured": 1, "implied": 1}
    assert (partition.tick(1041), partition.tick(1020), partition.ripens) == ([], [], 1042)
    wanted = by_record.fold(forecast(3, "x", 1041)).outputs
    assert resolved(said) == resolved(wanted) == [("e0", 0.0, 0, True), ("e1", 1.0, 0, False)]


# Silence.


def test_silence_is_the_label_of_a_forecast_without_an_outcome() -> None:
    one = worker()
    one.fold(forecast(0, "a", 1000))
    effects = one.fold(forecast(1, "b", 1045))
    assert resolved(effects.outputs) == [("a", 0.0, 0, True)]
    found = effects.outputs[0]
    assert isinstance(found, Resolved)
    assert (found.resolved_ts, found.issued_ts) == (1040, 1000)
    assert effects.delays == [], "nobody reported it"
    entry = one.table.entry("a")
    assert entry is not None
    assert (entry.status, entry.y) == (ledger.RESOLVED, 0.0)


def test_silence_and_explicit_zeros_end_in_the_same_calibrator_and_the_same_answers() -> None:
    silent, explicit = worker(), worker(COUNTS)
    answers: dict[str, list[tuple[object, ...]]] = {"silent": [], "explicit": []}
    for t in range(400):
        fraud = t % 7 == 0
        events: list[Event] = [forecast(t, f"e{t}", 1000 + t, p=t % 10 / 10)]
        late = t - 40
        for name, one in (("silent", silent), ("explicit", explicit)):
            given = list(events)
            if fraud:
                given.append(outcome(2 * t + 1, f"e{t}", 1000 + t))
            if name == "explicit" and late >= 0 and late % 7:
                given.insert(0, outcome(2 * t, f"e{late}", 1000 + t, y=0.0))
            effects = one.fold(*given)
            answers[name] += [
                (each.event_id, each.p, each.version) for each in effects.outputs if isinstance(each, Calibrated)
            ]
    assert answers["silent"] == answers["explicit"]
    assert silent.table.of(kinds.CALIBRATOR.letter) == explicit.table.of(kinds.CALIBRATOR.letter)
    assert silent.table.of(kinds.SCORES.letter) == explicit.table.of(kinds.SCORES.letter)


def test_age_of_the_first_outcome_counts_also_where_silence_had_spoken() -> None:
    one = worker()
    one.fold(forecast(0, "a", 1000), forecast(1, "b", 1000), forecast(2, "c", 1045))
    one.fold(outcome(0, "a", 1050), outcome(1, "b", 1060, y=0.0), outcome(2, "a", 1055, y=0.0))
    ages = kinds.AGES.decode(one.table[kinds.AGES.key("s")])
    assert (ages.n(1), ages.n(0)) == (1, 1)


# Revisions.


def test_later_outcome_of_another_value_replaces_the_label_wherever_it_counts() -> None:
    one, right = worker(), worker()
    for each in (one, right):
        each.fold(forecast(0, "a", 1000), forecast(1, "b", 1001))
    right.fold(outcome(0, "a", 1010))
    for each in (one, right):
        each.fold(forecast(2, "c", 1045))
    effects = one.fold(outcome(0, "a", 1046))
    assert fates(effects) == {"outcomes_revised": 1}
    assert resolved(effects.outputs) == [("a", 1.0, 1, False)]
    assert one.table.of(kinds.CALIBRATOR.letter) == right.table.of(kinds.CALIBRATOR.letter)
    scores, corrected = (kinds.history(each.table[kinds.SCORES.key("s")], None).total for each in (one, right))
    assert scores.brier("calibrated") == pytest.approx(corrected.brier("calibrated"), abs=1e-12)
    assert scores.n == corrected.n == 2


def test_the_same_revision_twice_changes_nothing() -> None:
    one = worker()
    one.fold(forecast(0, "a", 1000), forecast(1, "b", 1045), outcome(0, "a", 1046))
    before = dict(one.table)
    effects = one.fold(outcome(1, "a", 1046))
    assert (fates(effects), effects.outputs) == ({"outcomes_duplicate": 1}, [])
    after = dict(one.table)
    for key in (kinds.FENCE.key(), kinds.LEDGER.key("a")):
        before.pop(key), after.pop(key)
    assert after == before


@pytest.mark.parametrize(
    ("first", "second", "fate"),
    [
        ((1010, 0), (1009, 0), "outcomes_stale"),
        ((1010, 0), (1010, 0), "outcomes_revised"),
        ((1010, 0), (1011, 0), "outcomes_revised"),
        ((1010, 2), (1011, 0), "outcomes_stale"),
        ((1010, 2), (1011, 1), "outcomes_stale"),
        ((1010, 2), (1011, 2), "outcomes_stale"),
        ((1010, 2), (1005, 3), "outcomes_revised"),
        ((1010, 0), (1005, 1), "outcomes_revised"),
    ],
)
@pytest.mark.parametrize("when", ["early", "waiting", "resolved"])
def test_the_later_outcome_counts_by_revision_number_else_by_time(
    first: tuple[int, int], second: tuple[int, int], fate: str, when: str
) -> None:
    one = worker(replace(COUNTS, learn="arrival") if when == "resolved" else COUNTS)
    if when != "early":
        one.fold(forecast(0, "a", 1000))
    one.fold(outcome(0, "a", first[0], y=1.0, revision=first[1]))
    assert fates(one.fold(outcome(1, "a", second[0], y=0.0, revision=second[1]))) == {fate: 1}
    entry = one.table.entry("a")
    assert entry is not None
    assert entry.y == float(fate == "outcomes_stale")


def test_a_label_may_change_only_so_often() -> None:
    one = worker(replace(COUNTS, learn="arrival"))
    one.fold(forecast(0, "a", 1000))
    for n in range(ledger.MOST_REVISIONS + 1):
        one.fold(outcome(n, "a", 1001, y=float(n % 2)))
    effects = one.fold(outcome(200, "a", 1002, y=1.0))
    assert fates(effects) == {"outcomes_stale": 1}
    entry = one.table.entry("a")
    assert entry is not None
    assert entry.revisions == ledger.MOST_REVISIONS


def test_key_of_a_forecast_comes_back_with_what_silence_says() -> None:
    one = worker()
    one.fold(forecast(0, "a", 1000, key=None), forecast(1, "b", 1000, key=b"b"), forecast(2, "c", 1000, key=b"card"))
    outputs = one.fold(forecast(3, "d", 1050)).outputs
    assert [each.key for each in outputs[:3]] == [None, b"b", b"card"]


# Classes and numbers.


def test_silence_of_classes_and_numbers() -> None:
    classes = Policy("multiclass", {"classes": 3}, ttl_ms=100, matures_ms=40, silence=2.0)
    with pytest.raises(ValueError, match="silence must be the number of a class, 0 to 2"):
        replace(classes, silence=3.0)
    with pytest.raises(ValueError, match="silence must be 0 or 1"):
        replace(SILENT, silence=0.5)
    numbers = Policy("quantile", ttl_ms=100, matures_ms=40, silence=0.0)
    assert numbers.waits


# Freezing.


def test_a_frozen_map_stays_as_it_is_while_outcomes_are_told_and_challengers_learn() -> None:
    policy = Policy("histogram", {"bins": 4}, shadow=(Challenger("platt", {}),))
    frozen = replace(policy, frozen=True)
    one = worker(policy)
    for n in range(8):
        one.fold(forecast(n, f"a{n}", 1000))
        one.fold(outcome(n, f"a{n}", 1001, float(n < 2)))
    before, key = dict(one.table.of(kinds.CALIBRATOR.letter)), kinds.CALIBRATOR.key("s", policy.config)
    (challenger,) = before.keys() - {key}
    one = worker(frozen, one.table)
    served = set()
    for n in range(8, 40):
        (answer,) = one.fold(forecast(n, f"a{n}", 1000)).outputs
        assert isinstance(answer, Calibrated)
        served.add(answer.p)
        assert resolved(one.fold(outcome(n, f"a{n}", 1001)).outputs) == [(f"a{n}", 1.0, 0, False)]
    assert resolved(one.fold(outcome(40, "a0", 2000, 0.0)).outputs) == [("a0", 0.0, 1, False)]
    after = one.table.of(kinds.CALIBRATOR.letter)
    assert after[key] == before[key]
    assert after[challenger] != before[challenger]
    assert len(served) == 1
    assert kinds.history(one.table[kinds.SCORES.key("s")], None).n == 40


def test_what_a_frozen_map_has_not_learnt_it_does_not_revise_when_it_learns_again() -> None:
    policy = replace(COUNTS, learn="arrival")
    one = worker(policy)
    one.fold(forecast(0, "a", 1000))
    one.fold(outcome(0, "a", 1001))
    one = worker(replace(policy, frozen=True), one.table)
    one.fold(forecast(1, "b", 1002))
    one.fold(outcome(1, "b", 1003))
    one.fold(outcome(2, "a", 1004, 0.0))
    one = worker(policy, one.table)
    key = kinds.CALIBRATOR.key("s", policy.config)
    before = one.table[key]
    for n, event in enumerate("ab"):
        one.fold(outcome(3 + n, event, 1005 + n, float(event == "a")))
    assert one.table[key] == before
    assert learnt(one, policy) == 1
