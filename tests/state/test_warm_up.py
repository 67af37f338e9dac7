"""A warm-up: what is answered before outcomes support another score counts apart, and nowhere else."""

import random
from collections.abc import Callable

import pytest

from state import kinds, ledger
from state.events import Forecast, Outcome
from state.policies import Policies
from state.policy import Policy
from state.scoring.history import History
from state.scoring.warm_up import LONGEST, OF_SEGMENT, SegmentWarmUp
from state.served import Served
from streams.metrics.description import describe
from streams.metrics.rows import StateRows
from streams.metrics.snapshot import read
from tests.state.histories import Table, Worker

SEGMENTED = Policy(segments=("country",))


def forecast(t: int, p: float = 0.3, values: tuple[str, ...] = ()) -> Forecast:
    return Forecast(t, b"k", f"e{t}", "s", p, (), 1000 + t, b"", values)


def outcome(offset: int, t: int, y: float, ts: int = 0) -> Outcome:
    return Outcome(offset, b"k", f"e{t}", y, ts or 2000 + t)


def lived(policy: Policy, chance: Callable[[int, float], float], n: int, late: int = 300) -> tuple[Table, list[bool]]:
    """Fold a stream whose outcomes come so many events late; return its table, and which forecasts were marked."""
    worker, rng = Worker(Policies([("s", policy)])), random.Random(5)
    labels: list[float] = []
    marked = []
    for t in range(n + late):
        events: list[Forecast | Outcome] = []
        if t < n:
            p = rng.uniform(0.1, 0.9)
            labels.append(float(rng.random() < chance(t, p)))
            events.append(forecast(t, p, ("DE",) if policy.segments else ()))
        if t >= late:
            events.append(outcome(t - late, t - late, labels[t - late]))
        worker.fold(*events)
        if t < n:
            entry = worker.table.entry(f"e{t}")
            assert entry is not None
            marked.append(entry.window == ledger.NO_WINDOW)
    return worker.table, marked


def history(table: Table) -> History:
    return kinds.history(table[kinds.SCORES.key("s")], table.get(kinds.WINDOWS.key("s")))


def test_scores_ten_times_too_high_raise_no_alarm_before_the_map_has_learnt() -> None:
    table, marked = lived(SEGMENTED, lambda _, p: p / 10, 3000)
    until = marked.index(False)
    assert marked == [t < until for t in range(3000)], "it ends once"
    assert 300 < until < 1500
    found = history(table)
    assert (found.warm_up.n, found.total.n) == (until, 3000 - until)
    assert found.log_alarm("calibrated") < 3.0 < found.warm_up.log_alarm
    assert found.warm_up.mean == pytest.approx(0.5, abs=0.05)
    assert found.warm_up.observed == pytest.approx(0.05, abs=0.03)
    (segment,) = (kinds.SEGMENT.decode(row) for key, row in table.of(kinds.SEGMENT.letter).items() if key)
    assert 0 < segment.n < 3000 - until - OF_SEGMENT, "a segment has a warm-up after the stream's"
    assert segment.log_alarm("calibrated") < 3.0


def test_what_goes_wrong_after_the_warm_up_raises_the_alarm() -> None:
    table, _ = lived(Policy("platt"), lambda t, p: p if t < 4000 else p / 10, 5500)
    assert history(table).log_alarm("calibrated") > 20.0


def test_who_serves_raw_scores_has_no_warm_up_however_few_labels_come() -> None:
    worker = Worker(Policies([("s", Policy("identity"))]))
    worker.fold(forecast(0), outcome(0, 0, 1.0))
    found = history(worker.table)
    assert (found.warm_up.n, found.total.n) == (0, 1)


def test_a_warm_up_ends_once_raw_scores_have_stood_the_test() -> None:
    served = Served.fresh(Policy().recipe, "s")
    assert served.warms(0.3, 0.3, 7)
    for _ in range(LONGEST):
        served.calibrator.update(served.calibrator.predict(0.3).ticket, 0.0)
    assert not served.warms(0.3, 0.3, 8)
    assert served.warmed_ms == 8
    again = kinds.CALIBRATOR.decode(kinds.CALIBRATOR.encode(served), "s")
    assert again.warmed_ms == 8


def test_a_revised_label_of_a_warm_up_counts_there_alone() -> None:
    worker = Worker(Policies([("s", Policy())]))
    worker.fold(forecast(0), outcome(0, 0, 0.0))
    worker.fold(outcome(1, 0, 1.0, 9_000))
    found = history(worker.table)
    assert (found.warm_up.n, found.warm_up.observed, found.total.n) == (1, 1.0, 0)


def test_what_was_answered_in_a_segments_warm_up_never_counts_in_it() -> None:
    warm = SegmentWarmUp()
    assert not any(warm.admits(born, 1000 + born) for born in range(OF_SEGMENT))
    assert warm.since == 1000 + OF_SEGMENT - 1
    assert [warm.admits(born, 5000) for born in (10, warm.since - 1, warm.since)] == [False, False, True]
    assert [warm.admitted(born) for born in (10, warm.since)] == [False, True]


def test_who_is_served_raw_scores_is_told_why() -> None:
    worker = Worker(Policies([("s", Policy())]))
    worker.fold(forecast(0))
    assert words(worker.table) == "Warm-up. Raw scores are served. No label is known yet."
    slow = Policy(matures_ms=9_000)
    worker = Worker(Policies([("s", slow)]))
    worker.fold(forecast(0), outcome(0, 0, 1.0, 5))
    said = "Warm-up. Raw scores are served. Labels have come, and are learnt when their forecasts have matured."
    assert words(worker.table, slow) == said
    for policy, why in (
        (Policy(), "Raw scores are served: too few labels have come to say whether most forecasts get one."),
        (Policy(unlabelled="alike"), "Raw scores were served so far: others are served when the labels support them."),
    ):
        table, _ = lived(policy, lambda _, p: p, 30, late=1)
        assert words(table, policy).startswith(f"Warm-up. {why} Of 30 outcomes raw said 0.")


def test_the_first_scores_that_are_not_raw_have_no_outcome_yet() -> None:
    policy = Policy("platt", unlabelled="alike")
    worker = Worker(Policies([("s", policy)]))
    worker.fold(forecast(0), outcome(0, 0, 1.0), forecast(1))
    said = words(worker.table, policy)
    assert said.startswith("Warm-up until 1 January 1970, 00:00 UTC. No forecast since then has an outcome yet.")
    assert "raw said 0.3000, 1.0000 happened" in said


def words(table: Table, policy: Policy = Policy()) -> str:  # noqa: B008 - it is frozen
    """Return what the page says of a stream in its warm-up, of which nothing is judged."""
    held = read(table.get, Policies([("s", policy)]), ["s"], table.fence)
    described = describe(StateRows({0: held.rows}), "s", policy)
    assert "calibrated" not in described
    return str(described["warm_up"]["words"])
