"""Every bound, on sequences that are kind, that turn and that fight, under every kind of delay; and its LP."""

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import pytest

from state.calibrators import Calibrator, make

T = 2000
Answer = Callable[[int, float], float]


def iid(t: int, _: float) -> float:
    return float(random.Random(t).random() < 0.3)


def zeros_then_ones(t: int, _: float) -> float:
    return float(t >= T // 2)


def alternating(t: int, _: float) -> float:
    return float(t % 2)


def log_block(t: int, _: float) -> float:
    return float((t + 1).bit_length() % 2)


def square_wave(t: int, _: float) -> float:
    return float(t // 100 % 2)


def adversary(_: int, expected: float) -> float:
    """The outcome that is farthest from the expected answer: it must not see the draw, or no method is calibrated."""
    return float(expected <= 0.5)


SEQUENCES = [iid, zeros_then_ones, alternating, log_block, square_wave, adversary]


def fixed(delay: int) -> Callable[[random.Random], float]:
    return lambda _: delay


def out_of_order(rng: random.Random) -> float:
    return rng.expovariate(1 / 20)


def missing_at_random(rng: random.Random) -> float:
    return 5.0 if rng.random() < 0.7 else float("inf")


DELAYS = {
    "0": fixed(0),
    "10": fixed(10),
    "100": fixed(100),
    "1000": fixed(1000),
    "out of order": out_of_order,
    "missing at random": missing_at_random,
}


def play(calibrator: Calibrator, outcome: Answer, delay: Callable[[random.Random], float], rounds: int = T) -> int:
    """Play, then resolve what is due ever; return the most outcomes that were to come at one time."""
    rng = random.Random(17)
    waiting: list[tuple[float, int, bytes, float]] = []
    most = 0
    for t in range(rounds):
        expected, _, ticket = calibrator.predict(rng.random(), (), b"%d" % t)
        due = t + delay(rng)
        if due < float("inf"):
            heappush(waiting, (due, t, ticket, outcome(t, expected)))
        while waiting and waiting[0][0] <= t:
            calibrator.update(*heappop(waiting)[2:])
        most = max(most, len(waiting))
    while waiting:
        calibrator.update(*heappop(waiting)[2:])
    return most


def stays_under_its_bound(calibrator: Calibrator, outcome: Answer, delay: str) -> int:
    """Play, and assert the bound; return as `play`."""
    outstanding = play(calibrator, outcome, DELAYS[delay])
    error, bound = calibrator.error(), calibrator.bound(outstanding)
    assert error is not None
    assert bound is not None
    assert error < bound
    assert bound < 1 or outstanding
    return outstanding


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("outcome", SEQUENCES)
@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("minimax", {}),
        ("regret_matching", {"noise": 0.0}),
        ("regret_matching", {"noise": 1.0}),
    ],
    ids=["minimax", "regret matching", "regret matching with a margin for noise"],
)
def test_error_stays_under_the_bound(spec: str, options: dict[str, Any], outcome: Answer, delay: str) -> None:
    calibrator = make(spec, buckets=1, grid=20, **options)
    stays_under_its_bound(calibrator, outcome, delay)


@pytest.mark.parametrize(
    ("spec", "options", "delay"),
    [
        ("minimax", {"buckets": 1, "grid": 20}, 100),
        ("minimax", {"buckets": 1, "grid": 20}, 1000),
        ("regret_matching", {"buckets": 1, "grid": 20, "noise": 0.0}, 100),
    ],
)
def test_long_delay_leaves_a_bound_that_says_something(spec: str, options: dict[str, Any], delay: int) -> None:
    """In the T rounds above a delay of 100 puts every bound at 1, where it says nothing."""
    calibrator = make(spec, **options)
    assert play(calibrator, adversary, fixed(delay), 60_000) == delay
    assert (calibrator.error() or 1.0) < (calibrator.bound(delay) or 1.0) < 1


@pytest.mark.parametrize("outcome", SEQUENCES)
@pytest.mark.parametrize("spec", ["minimax", "regret_matching"])
def test_front_takes_nothing_from_the_bound(spec: str, outcome: Answer) -> None:
    stays_under_its_bound(make(f"platt+{spec}"), outcome, "10")
