"""How far what was learnt is trusted: its theorem, and what a batch of labels can do to it."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators import Calibrator, make
from state.calibrators.guard import WEIGHT, Guard
from state.policy import DEFAULT_CALIBRATOR
from state.scoring.ages import BATCH

LOSSES = st.floats(0.0, 5.0)
STREAMS = st.lists(st.tuples(LOSSES, LOSSES, st.integers(0, 3)), max_size=200)


@given(STREAMS)
def test_the_mixture_is_never_worse_than_what_it_departs_from_by_more_than_its_theorem(
    stream: list[tuple[float, float, int]],
) -> None:
    guard, mixed, departed, square = Guard(), 0.0, 0.0, 0.0
    for raw, learnt, at in stream:
        w = guard.weight
        mixed -= math.log(w * math.exp(-raw) + (1.0 - w) * math.exp(-learnt))
        departed += raw
        guard.weigh(raw - learnt, (raw - learnt) ** 2, at)
        square = guard.squares + guard.excess
    # What is cut off at `SURE` gives away e^-12 of itself.
    assert mixed <= departed - math.log(WEIGHT) * max(1.0, math.sqrt(square) / 2.0) + 1e-3 * len(stream)


@given(STREAMS)
def test_labels_of_times_of_their_own_are_no_batch(stream: list[tuple[float, float, int]]) -> None:
    alone, timed = Guard(), Guard()
    for n, (raw, learnt, _) in enumerate(stream):
        alone.weigh(raw - learnt, (raw - learnt) ** 2, 0)
        timed.weigh(raw - learnt, (raw - learnt) ** 2, 1 + n // (BATCH - 1))
    assert timed.weight == alone.weight
    assert timed.excess == 0.0


@given(st.lists(st.floats(-5.0, 5.0), min_size=BATCH, max_size=400))
def test_a_first_batch_moves_the_weight_no_further_than_two_standard_errors_of_one_fact(deltas: list[float]) -> None:
    guard = Guard()
    for delta in deltas:
        guard.weigh(delta, delta * delta, 7)
    if abs(sum(deltas)) >= math.sqrt(sum(delta * delta for delta in deltas)):
        assert abs(math.log(guard.weight / (1.0 - guard.weight)) - math.log(9.0)) <= 2.0 + 1e-9


def test_batches_that_agree_are_believed() -> None:
    guard = Guard()
    for night in range(12):
        for _ in range(100):
            guard.weigh(0.01, 0.0001, 1 + night)
    assert guard.weight < 1e-4


@given(STREAMS, st.integers(0, 200))
def test_a_decoded_guard_goes_on_as_the_encoded_one(stream: list[tuple[float, float, int]], cut: int) -> None:
    guard, other = Guard(), Guard()
    for n, (raw, learnt, at) in enumerate(stream):
        if n == cut:
            other.decode(guard.encode())
        guard.weigh(raw - learnt, (raw - learnt) ** 2, at)
        if n >= cut:
            other.weigh(raw - learnt, (raw - learnt) ** 2, at)
    if cut < len(stream):
        assert other.encode() == guard.encode()
        assert other.weight == guard.weight


def seasons(by: str, seed: int) -> tuple[float, float]:
    """Return the log loss of raw and served scores of five honest seasons: 30 teams, 200 days, labels at the end."""
    rng = random.Random(seed)
    calibrator: Calibrator = make(DEFAULT_CALIBRATOR, name="playoffs")
    raw = served = 0.0
    for season in range(1, 6):
        teams = []
        for team in range(30):
            z = rng.gauss(0.0, 0.8)
            y = float(rng.random() < 1.0 / (1.0 + math.exp(-z)))
            for day in range(200):
                p = 1.0 / (1.0 + math.exp(-z))
                teams.append((team if by == "team" else day, p, y))
                z += rng.gauss(0.0, math.sqrt(0.025)) + 0.0125 * (2.0 * y - 1.0)
        teams.sort(key=lambda each: each[0])
        tickets = []
        for _, p, y in teams:
            answer = calibrator.predict(p, (), b"")
            tickets.append((answer.ticket, y))
            raw -= math.log(p if y else 1.0 - p)
            served -= math.log(answer.p if y else 1.0 - answer.p)
        for ticket, y in tickets:
            calibrator.update(ticket, y, season)
    return raw, served


@pytest.mark.parametrize("by", ["team", "day"])
def test_batches_of_many_labels_of_few_teams_do_no_harm(by: str) -> None:
    lost = [served / raw - 1.0 for raw, served in (seasons(by, seed) for seed in (0, 3))]
    assert sum(lost) / len(lost) < 0.02  # as single facts .044 by team, .093 by day
