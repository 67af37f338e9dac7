"""Quantile recalibration: coverage under every order and delay, levels that never cross, atoms, clamping."""

import math
import random
import struct
from collections import deque
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators.levels import TAIL, chain
from state.calibrators.location_scale import FEWEST
from state.calibrators.quantile import LEVELS, Quantile
from state.forecasts import Law, Normal
from tests.state.calibrators.numbers import NORMAL, RAIN, Event, loss, loss_of, serve

T = 6000
LINKS = ("identity", "logit")
World = Callable[[int, random.Random, tuple[float, ...]], tuple[Law, float]]


def iid(_: int, rng: random.Random, __: tuple[float, ...]) -> tuple[Law, float]:
    mean = rng.gauss(0, 2)
    return Normal(mean, 0.5), rng.gauss(mean, 1)


def drifting(t: int, rng: random.Random, _: tuple[float, ...]) -> tuple[Law, float]:
    return Normal(0, 1), rng.gauss(math.sin(t / 500), 1 + 0.9 * math.sin(t / 700))


def hiding(_: int, rng: random.Random, play: tuple[float, ...]) -> tuple[Law, float]:
    """Put the outcome just above one of the levels played, or far away: the opponent sees them all."""
    law = Normal(0, 1)
    v = rng.choice(play)
    return law, law.ppf(v) + 1e-6 if TAIL < v < 1 - TAIL else rng.choice((-1e9, 1e9))


def hunting(_: int, rng: random.Random, play: tuple[float, ...]) -> tuple[Law, float]:
    """Put the outcome between two levels of the chain, on the side that drives them to cross."""
    law = Normal(0, 1)
    low, high = min(max(play[1], TAIL), 0.9), min(max(play[-2], 2 * TAIL), 1 - TAIL)
    return law, law.ppf(rng.choice((low, high, (low + high) / 2)))


def far_below(_: int, __: random.Random, ___: tuple[float, ...]) -> tuple[Law, float]:
    return Normal(0, 1), -1e300  # F is exactly 0


def repeating(t: int, _: random.Random, __: tuple[float, ...]) -> tuple[Law, float]:
    """Forty outcomes in succession are nearly the same."""
    return Normal(0, 1), random.Random(t // 40).gauss(0, 1) + 1e-3 * (t % 40)


WORLDS: list[World] = [iid, drifting, hiding, hunting, far_below, repeating]


def play(calibrator: Quantile, world: World, delay: int, rounds: int = T, most: int = 0) -> float:
    """Resolve events at random, ``delay`` of them outstanding; return how near the error came to the bound.

    The bound is that of ``most`` outstanding, if that is more. What is left at the end is resolved too.
    """
    rng, waiting, nearest = random.Random(5), list[tuple[bytes, float]](), math.inf
    for t in range(rounds):
        law, y = world(t, rng, calibrator._play)
        waiting.append((calibrator.predict(law, key=b"%d" % t).ticket, y))
        if len(waiting) > delay:
            calibrator.update(*waiting.pop(rng.randrange(len(waiting))))
            error, bound = calibrator.error(), calibrator.bound(max(delay, most))
            assert error is not None
            assert bound is not None
            nearest = min(nearest, bound - error)
    for ticket, y in waiting:
        calibrator.update(ticket, y)
    return nearest


@pytest.mark.parametrize("delay", [0, 10, 100, 1000])
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("world", WORLDS)
def test_coverage_stays_under_the_bound(world: World, link: str, delay: int) -> None:
    calibrator = Quantile(link=link, rate=0.05)
    assert play(calibrator, world, delay, 2000 + delay) >= -1e-9


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("world", WORLDS)
def test_coverage_stays_under_the_bound_while_delays_change(world: World, link: str) -> None:
    """Steps shrink and grow again; the bound is that of the longest delay."""
    calibrator, nearest = Quantile(link=link, rate=0.3), math.inf
    for delay in (0, 60, 5, 0):
        nearest = min(nearest, play(calibrator, world, delay, 900, most=60))
    assert nearest >= -1e-9


@pytest.mark.parametrize(("link", "most"), [("identity", 0.005), ("logit", 0.03)])
@pytest.mark.parametrize("world", WORLDS)
def test_bound_says_something(world: World, link: str, most: float) -> None:
    calibrator = Quantile(link=link, rate=0.05)
    play(calibrator, world, 0)
    assert (calibrator.error() or 0.0) <= (calibrator.bound() or 1.0) < most


def test_bound_of_the_anchor_is_the_published_one() -> None:
    calibrator = Quantile(levels=(0.4999, 0.5), link="identity", rate=0.05)
    play(calibrator, iid, 0, 1000)
    # One level beside the anchor: q0 = p, so at most (p + (1 + h) η) / (η T) and never more than (1 + 2 η) / (η T).
    assert calibrator.bound() == pytest.approx((0.5001 + 0.05 * (1.4999)) / 50, rel=0.01)
    assert (calibrator.bound() or 1.0) <= (1 + 2 * 0.05) / (0.05 * 1000)


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=12), st.data())
def test_chain_is_monotone_and_keeps_the_anchor(s: list[float], data: st.DataObject) -> None:
    anchor = data.draw(st.integers(0, len(s) - 1))
    v = chain(s, anchor)
    assert len(v) == len(s)
    assert v[anchor] == s[anchor]
    assert all(a <= b for a, b in pairwise(v))
    assert all(v[j] >= s[j] if j > anchor else v[j] <= s[j] for j in range(len(s)))


def test_two_orders_of_resolution_play_the_same_levels() -> None:
    rng = random.Random(8)
    first, second = Quantile(), Quantile()
    for calibrator in (first, second):
        play(calibrator, iid, 0, 200)
    resolved = [(first.predict(Normal(0, 1), key=b"%d" % t).ticket, rng.gauss(0, 3)) for t in range(300)]
    shuffled = rng.sample(resolved, len(resolved))
    for one, other in zip(resolved, shuffled, strict=True):
        first.update(*one)
        second.update(*other)
    assert first._play == second._play
    assert (first.error(), first.saturated()) == (second.error(), second.saturated())


def test_atoms_are_covered_by_what_is_served() -> None:
    rng, calibrator = random.Random(4), Quantile(levels=(0.1, 0.3, 0.5, 0.7, 0.9))
    below, upto, n = [0] * 5, [0] * 5, 4000
    for t in range(n):
        p, _, ticket = calibrator.predict(RAIN, key=b"%d" % t)
        y = 0.0 if rng.random() < 0.6 else rng.expovariate(0.5)
        below = [k + (y < q) for k, q in zip(below, p.values, strict=True)]
        upto = [k + (y <= q) for k, q in zip(upto, p.values, strict=True)]
        calibrator.update(ticket, y)
    for k, covered, most in zip(below, calibrator.coverage(), upto, strict=True):
        assert k / n <= covered <= most / n
    # Nothing lies below 0, and .6 at or below: only the drawn transform covers a tenth and three tenths.
    assert below[0] == 0
    assert upto[0] / n > 0.5
    assert (calibrator.error() or 1.0) <= (calibrator.bound() or 0.0) < 0.1


@pytest.mark.parametrize("link", LINKS)
def test_serving_is_clamped_and_coverage_is_not(link: str) -> None:
    declared = Quantile(levels=(0.1, 0.9), low=0.0, high=10.0, link=link, rate=0.5)
    undeclared = Quantile(levels=(0.1, 0.9), link=link, rate=0.5)
    law = Normal(5.0, 1.0)
    served = []
    for _ in range(FEWEST - 1):  # before laws are moved
        p, _, ticket = declared.predict(law)
        declared.update(ticket, 9.9999)
        undeclared.update(undeclared.predict(law).ticket, 9.9999)
        served.append(p.values)
        assert all(0.0 <= q <= 10.0 for q in p.values)
    assert max(served)[1] == 10.0  # a level that has to cover everything
    assert declared._play == undeclared._play
    assert all(abs(q - 5.0) <= 6.0 for q in undeclared.predict(law).p.values)


def test_first_answer_is_the_raw_quantiles() -> None:
    for link in LINKS:
        answer = Quantile(link=link).predict(Normal(3.0, 2.0))
        assert answer.p.values == pytest.approx([Normal(3.0, 2.0).ppf(level) for level in LEVELS])
        assert answer.draw == answer.p


def test_state_whose_counts_disagree_is_refused() -> None:
    state = Quantile(levels=(0.25, 0.5)).encode()
    changed = state[:60] + struct.pack("<35Q", 0, 1, 0, 2, *[0] * 31) + state[340:]
    with pytest.raises(ValueError, match="state of 1 outcomes, issued in blocks that hold 2"):
        Quantile(levels=(0.25, 0.5)).decode(changed)


@pytest.mark.parametrize("delay", [0, 1, 7, 100, 1000])
def test_outstanding_forecasts_are_counted(delay: int) -> None:
    """Never more than there were, and as many once three times as many outcomes have come."""
    calibrator, waiting = Quantile(), deque[bytes]()
    for t in range(4 * delay + 100):
        waiting.append(calibrator.predict(Normal(0, 1), key=b"%d" % t).ticket)
        if len(waiting) > delay:
            calibrator.update(waiting.popleft(), 0.0)
            assert calibrator.outstanding() <= delay
            assert calibrator.learnt < 3 * delay or calibrator.outstanding() == delay


def test_a_long_wait_is_forgotten_when_the_outcomes_have_doubled() -> None:
    calibrator = Quantile()
    tickets = [calibrator.predict(Normal(0, 1), key=b"%d" % t).ticket for t in range(300)]
    for ticket in tickets:
        calibrator.update(ticket, 0.0)
    assert calibrator.outstanding() == 300 - 160  # the first end of a block of 16 after 150 outcomes
    while calibrator.learnt < 700:
        calibrator.update(calibrator.predict(Normal(0, 1)).ticket, 0.0)
    assert calibrator.outstanding() == 0


@pytest.mark.parametrize(
    ("link", "delay"), [*(("logit", delay) for delay in (0, 100, 200, 500, 2000)), ("identity", 500)]
)
def test_perfect_forecasts_are_left_as_they_are_however_late_outcomes_come(link: str, delay: int) -> None:
    """Steps of η made the levels swing: with 500 outstanding the pinball loss was 3.6 times that of raw forecasts."""
    calibrator, rng = Quantile(link=link), random.Random(21)
    events: list[Event] = [(NORMAL, (), rng.gauss(0, 1)) for _ in range(8000)]
    assert loss(events, serve(calibrator, events, delay)) <= 1.01 * loss_of(NORMAL, events)
    assert calibrator._alike(delay) <= 1.0 + min(delay, 0.2)  # so steps are those of the delay alone


@pytest.mark.parametrize("horizon", [12, 50])
def test_right_forecasts_of_overlapping_horizons_are_left_nearly_as_they_are(horizon: int) -> None:
    """What happens in the next hour, forecast every five minutes: the loss was 1.06 to 1.15 times raw's."""
    raw = served = 0.0
    for seed in range(3):
        calibrator, rng = Quantile(), random.Random(seed)
        steps = [rng.gauss(0, 1) for _ in range(horizon + 4000)]
        events: list[Event] = [(NORMAL, (), sum(steps[t:][:horizon]) / math.sqrt(horizon)) for t in range(4000)]
        served += loss(events, serve(calibrator, events, horizon - 1))
        raw += loss_of(NORMAL, events)
        assert 4.0 < calibrator._alike(horizon) <= 1.0 + 2.0 * horizon
    assert served <= 1.01 * raw


def test_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="low must be below high"):
        Quantile(low=1.0, high=1.0)
