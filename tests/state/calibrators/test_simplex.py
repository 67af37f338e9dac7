"""Three classes on a grid: there is always a point to play, and the vector is calibrated."""

import math
import random
import struct
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators.simplex import Simplex, _nearest, _points
from state.forecasts import Classwise, Probs

COUNTS = st.tuples(*[st.integers(0, 9)] * 3)
PROBS = st.lists(st.floats(0, 1), min_size=3, max_size=3).map(lambda p: Classwise(p).normalised())


def counted(grid: int, counts: list[tuple[int, ...]]) -> Simplex:
    """Return a calibrator of one bucket whose points have seen these outcomes."""
    points = len(_points(grid)[0])
    cells = [struct.pack("<I3Q", i, *s) for i, s in enumerate(counts[:points]) if sum(s)]
    calibrator = Simplex(buckets=1, grid=grid)
    calibrator.decode(struct.pack("<III", 1, grid, len(cells)) + b"".join(cells))
    return calibrator


@given(st.integers(1, 4), st.lists(COUNTS, min_size=15, max_size=15), PROBS)
def test_rule_attains_the_bound_it_needs(grid: int, counts: list[tuple[int, ...]], p: Probs) -> None:
    calibrator = counted(grid, counts)
    points, index = _points(grid)
    corners, weights = calibrator._mixture(0, index[_nearest(p, grid)])
    field = [[v / grid for v in calibrator._field.get(i, (0, 0, 0))] for i in corners]
    size = max(math.hypot(*v) for v in field)
    for y in range(3):
        off = [[(k == y) - points[i][k] / grid for k in range(3)] for i in corners]
        costs = [sum(a * b for a, b in zip(v, d, strict=True)) for v, d in zip(field, off, strict=True)]
        cost = sum(w * c for w, c in zip(weights, costs, strict=True)) / sum(weights)
        assert cost <= size * math.sqrt(2 / 3) / grid + 1e-9


@given(st.integers(1, 12), PROBS)
def test_fresh_bucket_serves_the_nearest_point(grid: int, p: Probs) -> None:
    expected, served, _ = Simplex(grid=grid).predict(p)
    assert served == expected
    best = min(math.dist([a / grid for a in point], p) for point in _points(grid)[0])
    assert math.dist(served, p) <= best + 1e-9


def test_draws_have_the_expected_mean() -> None:
    # (0, 0, 1) saw only class 0, (0, 1, 0) only class 2, and (1, 0, 0) only class 1: each corner points to the next.
    calibrator = counted(1, [(3, 0, 0), (0, 0, 3), (0, 3, 0)])
    answer = calibrator.predict(Probs((0.5, 0.3, 0.2)))
    n = 9000
    counts = Counter(calibrator.predict(Probs((0.5, 0.3, 0.2)), key=b"%d" % t).draw for t in range(n))
    for k in range(3):
        drawn = sum(count * p[k] for p, count in counts.items()) / n
        assert abs(drawn - answer.p[k]) < 0.032  # six standard deviations
    assert len(counts) == 3


@pytest.mark.parametrize("opponent", ["least", "most", "cycle"])
def test_error_stays_under_the_bound(opponent: str) -> None:
    calibrator, rng = Simplex(), random.Random(3)
    for t in range(4000):
        p = Classwise([rng.random() for _ in range(3)]).normalised()
        expected, _, ticket = calibrator.predict(p, key=b"%d" % t)
        y = t % 3 if opponent == "cycle" else expected.index((min if opponent == "least" else max)(expected))
        calibrator.update(ticket, y)
    error, bound = calibrator.error(), calibrator.bound()
    assert error is not None
    assert bound is not None
    assert error < bound < 1


def test_other_forecasts_and_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="must be of 3 classes, got 2"):
        Simplex().predict(Probs((0.5, 0.5)))
    ticket = Simplex().predict(Probs((0.5, 0.3, 0.2))).ticket
    with pytest.raises(ValueError, match="must be one of 0 to 2"):
        Simplex().update(ticket, 3)
    with pytest.raises(ValueError, match="does not fit"):
        Simplex(grid=4).decode(Simplex(grid=5).encode())


def test_layout_is_the_documented_one() -> None:
    calibrator = Simplex(buckets=2, grid=2)
    answer = calibrator.predict(Probs((0.5, 0.5, 0.0)))
    assert answer.ticket == struct.pack("<HH", 3, 4)
    calibrator.update(answer.ticket, 2)
    assert calibrator.encode() == struct.pack("<III", 2, 2, 1) + struct.pack("<I3Q", 3 * 6 + 4, 0, 0, 1)
