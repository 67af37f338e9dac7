"""The rule that plays a field, and the bounds that follow: minimax and regret matching."""

import math
import random
import struct
from collections import Counter, deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators import Calibrator, make
from state.calibrators.bucketed import Bucketed
from state.calibrators.minimax import Minimax, length
from state.calibrators.regret_matching import RegretMatching
from tests.state.calibrators.test_bounds import adversary, iid

T = 20_000
CLASSES = [Minimax, RegretMatching]
Answer = Callable[[int, float], float]


def play(calibrator: Calibrator, outcome: Answer, rounds: int = T) -> list[float]:
    rng = random.Random(17)
    served = []
    for t in range(rounds):
        expected, p, ticket = calibrator.predict(rng.random(), (), b"%d" % t)
        calibrator.update(ticket, outcome(t, expected))
        served.append(p)
    return served


def counted(kind: type[Bucketed], counts: list[tuple[int, int]]) -> Bucketed:
    """Return a calibrator of one bucket whose cells hold these (n, s)."""
    calibrator = kind(buckets=1, grid=len(counts) - 1, spacing="uniform")
    cells = b"".join(struct.pack("<IQQ", i, n, min(s, n)) for i, (n, s) in enumerate(counts) if n)
    used = sum(1 for n, _ in counts if n)
    calibrator.decode(struct.pack("<IIII", *calibrator._shape, used) + cells)
    return calibrator


COUNTS = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=2, max_size=30)


@given(st.sampled_from(CLASSES), COUNTS, st.floats(0, 1))
def test_rule_attains_the_bound_it_needs(kind: type[Bucketed], counts: list[tuple[int, int]], p: float) -> None:
    calibrator = counted(kind, counts)
    points = calibrator._grid.points
    field = [calibrator._field.get(i, 0) for i in range(len(points))]
    expected, served, _ = calibrator.predict(p)
    below = max(i for i, point in enumerate(points) if point <= expected + 1e-12)
    above = min(below + 1, len(points) - 1)
    if expected == served:
        weights = {points.index(served): 1.0}
    else:
        upper = (expected - points[below]) / (points[above] - points[below])
        weights = {below: 1.0 - upper, above: upper}
    needed = max(map(abs, field)) / (2 * (len(points) - 1))
    for y in (0, 1):
        cost = sum(weight * field[i] * (y - points[i]) for i, weight in weights.items())
        assert cost <= needed + 1e-9 * max(map(abs, field))


@given(st.sampled_from(CLASSES), st.floats(0, 1), st.integers(1, 12), st.integers(1, 60))
def test_fresh_bucket_serves_the_nearest_point(kind: type[Bucketed], p: float, buckets: int, grid: int) -> None:
    expected, served, _ = kind(buckets=buckets, grid=grid, spacing="uniform").predict(p)
    assert served == expected
    assert abs(served - p) <= 0.5 / grid + 1e-15


def test_draws_have_the_expected_mean() -> None:
    calibrator = counted(Minimax, [(0, 0), (10, 10), (10, 0), (0, 0)])  # V_1 = 20/3, V_2 = -20/3
    counts = Counter(calibrator.predict(0.34, (), b"%d" % t).draw for t in range(10_000))
    assert calibrator.predict(0.34).p == 0.5
    assert set(counts) == {1 / 3, 2 / 3}
    assert abs(counts[1 / 3] - 5000) < 200  # four standard deviations


def test_buckets_learn_apart() -> None:
    calibrator = make("minimax", buckets=10, grid=10, spacing="uniform")
    for t in range(100):
        calibrator.update(calibrator.predict(0.95, (), b"%d" % t).ticket, 0)
    assert calibrator.predict(0.3).draw == 0.3
    assert calibrator.predict(0.95).draw < 0.5


@pytest.mark.parametrize(
    ("spec", "options", "most"),
    [
        ("platt+minimax", {}, 0.015),
        ("minimax", {}, 0.03),
        ("platt+regret_matching", {}, 0.05),
        ("regret_matching", {"noise": 0.0}, 0.035),
    ],
)
def test_adversary_is_calibrated(spec: str, options: dict[str, object], most: float) -> None:
    calibrator = make(spec, seed=1, **options)  # type: ignore[arg-type]  # none of them is name or seed
    play(calibrator, adversary)
    error = calibrator.error()
    assert error is not None
    assert error < most  # every deterministic method ends at .5; the promise is .05


@given(st.integers(1, 300), st.integers(1, 60), st.lists(st.integers(0, 30), min_size=1, max_size=300))
def test_closed_form_lies_above_the_recursion_whenever_delays_come(t: int, n: int, delays: list[int]) -> None:
    a = 0.0
    for i in range(t):
        a += 1 + 2 * delays[i % len(delays)] + a**0.5 / (n * 2**0.5)
    late = sum(delays[i % len(delays)] for i in range(t))
    assert a**0.5 <= length(t, 1, 1 / n, late) * (1 + 1e-9)
    assert length(t, 1, 1 / n, late) <= (1.3 if late == 0 else 1.8) * a**0.5


def test_bound_of_regret_matching_is_below_the_published_one() -> None:
    calibrator = make("regret_matching", buckets=1, grid=20, spacing="uniform", noise=0.0)
    play(calibrator, iid, 1000)
    assert (calibrator.bound() or 1.0) <= 1 / 40 + (2 * 21 / 1000) ** 0.5
    assert (calibrator.bound(2) or 1.0) <= 1 / 40 + (2 * 21 * 5 / 1000) ** 0.5
    assert calibrator.bound() == pytest.approx(1 / 40 + 1.05 * (21 / 1000) ** 0.5)


@pytest.mark.parametrize("spec", ["minimax", "regret_matching"])
def test_points_that_were_never_served_do_not_count(spec: str) -> None:
    """The same outcomes at the same points: a grid that goes on where nothing is served has no larger bound."""
    near, far = ([0.1, 0.2, 0.3], [0.1, 0.2, 0.3, *(0.5 + i / 100 for i in range(40))])
    bounds = []
    for points in (near, far):
        calibrator = make(spec, buckets=1, points=points)
        for t in range(4000):
            calibrator.update(calibrator.predict(0.2, (), b"%d" % t).ticket, float(t % 5 == 0))
        bounds.append(calibrator.bound() or 1.0)
    assert bounds[1] == pytest.approx(bounds[0], rel=0.2)


def test_outcomes_some_hundred_forecasts_late_leave_a_bound_that_says_something() -> None:
    calibrator, waiting = make("regret_matching", buckets=4), deque[tuple[bytes, float]]()
    rng = random.Random(3)
    for t in range(60_000):
        p = min(max(rng.gauss(0.2, 0.05), 0.0), 1.0)
        waiting.append((calibrator.predict(p, (), b"%d" % t).ticket, float(rng.random() < p)))
        if len(waiting) > 150:
            calibrator.update(*waiting.popleft())
    assert (calibrator.error() or 1.0) < (calibrator.bound(150) or 1.0) < 0.8


@pytest.mark.parametrize("spec", ["minimax", "regret_matching", "platt+minimax"])
def test_errors_are_those_of_what_was_played(spec: str) -> None:
    calibrator, rng, played = make(spec, buckets=3, grid=7), random.Random(8), dict[float, list[float]]()
    for t in range(500):
        _, draw, ticket = calibrator.predict(rng.random(), (), b"%d" % t)
        played.setdefault(draw, []).append(float(rng.random() < 0.3))
        calibrator.update(ticket, played[draw][-1])
    off = sum(abs(sum(ys) - len(ys) * p) for p, ys in played.items())
    assert calibrator.error() == pytest.approx(off / 500)
    chance = sum(math.sqrt(2 * len(ys) * p * (1 - p) / math.pi) for p, ys in played.items())
    assert calibrator.error_by_chance() == pytest.approx(chance / 500)
    assert make("minimax+platt").error_by_chance() is None
