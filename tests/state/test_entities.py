"""What an entity teaches: at most three outcomes, far apart; and honest scores are served as they are."""

import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import kinds
from state.entities import APART, KEPT, MOST, ROWS, Entities, number, place
from state.events import Calibrated, Forecast, Outcome, Resolved
from state.forecasts import PROBABILITY, PROBS, QUANTILES, Normal, Probs
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Challenger, Policy
from tests.state.histories import Table, Worker

CONFIG = bytes(4)
TTL = 1000
PLAN = Policies(default=Policy(ttl_ms=TTL, unlabelled="alike"))


def remembering() -> tuple[Entities, dict[bytes, bytes]]:
    stored: dict[bytes, bytes] = {}
    return Entities(stored.get), stored


@given(st.lists(st.tuples(st.integers(1, 3), st.floats(-20, 20), st.integers(0, 50)), max_size=60))
def test_an_entity_teaches_at_most_three_outcomes_of_scores_far_apart_while_it_is_known(
    told: list[tuple[int, float, int]],
) -> None:
    entities, stored = remembering()
    now = 0
    taught: dict[int, list[tuple[int, float]]] = {}
    for entity, z, step in told:
        now += step
        if entities.teaches("s", CONFIG, entity, z, now, 100):
            taught.setdefault(entity, []).append((now, min(max(z, -13.8), 13.8)))
        stored |= entities.changes()
    for found in taught.values():
        for n, (since, _) in enumerate(found):
            window = [then for then, _ in found[:n] if since - then <= 50]
            assert len(window) < 2 * MOST
        first = [z for then, z in found if then - found[0][0] <= 100]
        assert len(first) <= MOST
        assert all(abs(one - other) > APART - 0.13 for i, one in enumerate(first) for other in first[:i])


def test_an_entity_that_is_forgotten_teaches_anew() -> None:
    entities, _ = remembering()
    told = [entities.teaches("s", CONFIG, 7, 0.0, now, 100) for now in (0, 1, 100, 101, 150, 201, 202)]
    assert told == [True, False, False, True, False, False, True]


def test_rows_are_bounded_and_keep_those_that_came_last() -> None:
    entities, _ = remembering()
    for n in range(3 * KEPT):
        assert entities.teaches("s", CONFIG, 5 + n * ROWS, 0.0, n, 10**6)
    (row,) = entities.changes().values()
    assert len(row) == 6 + KEPT * 16
    again, _ = Entities({kinds.ENTITIES.key("s", CONFIG.hex(), 5): row}.get), None
    assert not any(again.teaches("s", CONFIG, 5 + n * ROWS, 0.0, 99, 10**6) for n in range(2 * KEPT, 3 * KEPT))
    assert again.teaches("s", CONFIG, 5, 0.0, 99, 10**6)


def test_a_place_is_the_log_odds_of_what_was_forecast() -> None:
    assert place(0.5, PROBABILITY) == place(Normal(3.0, 1.0), QUANTILES) == 0.0
    assert place(Probs((0.25, 0.75)), PROBS) == pytest.approx(math.log(3.0))
    assert (place(0.0, PROBABILITY), place(1.0, PROBABILITY)) == (-13.8, 13.8)
    assert number(b"a") == number(b"a") != number(b"b")


def accounts(
    seed: int, shift: float, n: int = 250, days: int = 30
) -> Iterator[tuple[int, bool, int, str, float, float]]:
    """Yield events of accounts that are scored every day, by time: time, whether an outcome, id, entity, p, y.

    A score is the account's chance, and knows a little more every day; ``shift`` is how far off it is, in log-odds.
    """
    rng = random.Random(seed)
    events = []
    for account in range(n):
        z = rng.gauss(-1.5, 1.0)
        y = float(rng.random() < 1.0 / (1.0 + math.exp(-z)))
        start = rng.randrange(150)
        for day in range(days):
            p = 1.0 / (1.0 + math.exp(-z - shift))
            event = account * days + day
            events.append((start + day, False, event, f"account-{account}", p, y))
            events.append((start + days + 5, True, event, "", p, y))
            z += rng.gauss(0.0, 0.2) + 0.02 * (2.0 * y - 1.0)
    return iter(sorted(events))


def served(seed: int, shift: float, *, named: bool) -> tuple[float, float]:
    """Return the log loss of raw and served scores of such accounts."""
    worker, offsets, loss = Worker(PLAN, Table()), [0, 0], [0.0, 0.0]
    batch: list[Forecast | Outcome] = []
    truth: dict[str, tuple[float, float]] = {}

    def fold() -> None:
        for output in worker.fold(*batch).outputs:
            if isinstance(output, Calibrated) and isinstance(output.p, float):
                p, y = truth[output.event_id]
                for n, q in enumerate((p, output.p)):
                    loss[n] -= math.log(q if y else 1.0 - q)
        batch.clear()

    for day, happened, event, entity, p, y in accounts(seed, shift):
        truth[str(event)] = p, y
        offset = offsets[happened]
        offsets[happened] += 1
        if happened:
            batch.append(Outcome(offset, None, str(event), y, day))
        else:
            name = number(entity.encode()) if named else 0
            batch.append(Forecast(offset, None, str(event), "s", p, (), day, entity=name))
        if len(batch) == 400:
            fold()
    fold()
    return loss[0], loss[1]


def test_honest_scores_of_entities_are_served_as_they_are() -> None:
    raw, named = zip(*(served(seed, 0.0, named=True) for seed in (1, 2)), strict=True)
    assert sum(named) < 1.002 * sum(raw)
    without = [served(seed, 0.0, named=False)[1] for seed in (1, 2)]
    assert sum(named) < sum(without) < 1.01 * sum(raw), "without entities the bound on runs leaves some of the harm"


def test_scores_of_entities_that_are_off_are_mended() -> None:
    raw, named = served(3, 1.2, named=True)
    assert named < 0.95 * raw


SCORES = (0.02, 0.5, 0.98, 0.999, 0.5)
FORECASTS = [Forecast(n, None, f"e{n}", "s", p, (), n, entity=number(b"a")) for n, p in enumerate(SCORES)]


@pytest.mark.parametrize("matures", [0, 100])
def test_an_entitys_fourth_outcome_is_told_and_moves_nothing(matures: int) -> None:
    plan = Policies(
        default=Policy(ttl_ms=TTL, matures_ms=matures, silence=0.0 if matures else None, unlabelled="alike")
    )
    worker = Worker(plan, Table())
    worker.fold(*FORECASTS)
    worker.fold(*(Outcome(n, None, f"e{n}", 1.0, 10 + n) for n in range(3)))
    late = Forecast(9, None, "late", "other", 0.5, (), 500)
    if matures:
        worker.fold(late)
    kept = {
        key: row
        for key, row in worker.table.items()
        if key[:1] in (kinds.CALIBRATOR.letter, kinds.SCORES.letter, kinds.WINDOWS.letter)
    }
    made = kinds.CALIBRATOR.decode(kept[kinds.CALIBRATOR.key("s", plan.default.config)], "s")  # type: ignore[union-attr]
    assert made.calibrator.learnt == 3
    if matures:
        return
    outputs = worker.fold(*(Outcome(n, None, f"e{n}", 1.0, 20 + n) for n in (3, 4))).outputs
    assert [(each.event_id, each.y) for each in outputs if isinstance(each, Resolved)] == [("e3", 1.0), ("e4", 1.0)]
    again = worker.fold(Outcome(5, None, "e4", 0.0, 30)).outputs
    assert [(each.y, each.revision) for each in again if isinstance(each, Resolved)] == [(0.0, 1)]
    assert {key: worker.table[key] for key in kept} == kept


def test_entities_of_classes_and_numbers_teach_once() -> None:
    for spec, raw in (("multiclass", Probs((0.2, 0.3, 0.5))), ("quantile", Normal(0.0, 1.0))):
        plan = Policies(default=Policy(spec, {"classes": 3} if spec == "multiclass" else {}, unlabelled="alike"))
        worker = Worker(plan, Table())
        worker.fold(*(Forecast(n, None, f"e{n}", "s", raw, (), n, entity=number(b"a")) for n in range(4)))
        worker.fold(*(Outcome(n, None, f"e{n}", 1.0, 9) for n in range(4)))
        row = worker.table[kinds.CALIBRATOR.key("s", plan.default.config)]  # type: ignore[union-attr]
        assert kinds.CALIBRATOR.decode(row, "s").calibrator.learnt == 1


def test_a_challenger_learns_what_the_champion_learns() -> None:
    plan = Policies(default=Policy(DEFAULT_CALIBRATOR, shadow=(Challenger("platt", {}),), unlabelled="alike"))
    worker = Worker(plan, Table())
    worker.fold(*FORECASTS)
    worker.fold(*(Outcome(n, None, f"e{n}", 1.0, 10 + n) for n in range(5)))
    learnt = [
        kinds.CALIBRATOR.decode(row, "s").calibrator.learnt
        for key, row in worker.table.items()
        if key[:1] == kinds.CALIBRATOR.letter
    ]
    assert learnt == [3, 3]
