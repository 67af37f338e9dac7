"""The isotonic regression beside the smooth map: it follows steps, and costs next to nothing where there are none."""

import math
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators.isotonic import BINS, EVERY, FIRST, HALFLIFE, LOW, PRIOR, WEIGHT, WIDTH, Isotonic
from state.calibrators.logistic import sigmoid
from state.calibrators.twospeed import TwoSpeed

CENTRES = [LOW + (i + 0.5) * WIDTH for i in range(BINS)]
LABELS = st.lists(
    st.tuples(st.floats(-8.0, 8.0), st.sampled_from([0.0, 1.0]), st.floats(0.01, 0.99)), min_size=FIRST, max_size=90
)


def pooled(n: Sequence[float], ones: Sequence[float]) -> list[float]:
    """Return the isotonic regression by its definition: the largest of the least means of the runs that hold a bin."""
    runs = range(len(n))
    return [
        max(min(sum(ones[a : b + 1]) / sum(n[a : b + 1]) for b in runs if b >= i) for a in runs if a <= i) for i in runs
    ]


@given(LABELS)
def test_a_fit_is_the_isotonic_regression_of_the_bins(labels: list[tuple[float, float, float]]) -> None:
    """Bins without labels are as the nearest one with some."""
    steps, n, ones = Isotonic(), dict[int, float](), dict[int, float]()
    labels = labels[: FIRST + (len(labels) - FIRST) // EVERY * EVERY]
    for z, y, q in labels:
        steps.learn(z, y, q, q, 0.0, 1.0, 0.0, 0)
        i = min(max(int((z - LOW) // WIDTH), 0), BINS - 1)
        fade = math.log(2.0) * q * (1.0 - q) / HALFLIFE
        before, held = n.get(i, PRIOR), ones.get(i, PRIOR * q)
        n[i] = before + fade * (PRIOR - before) + 1.0
        ones[i] = held + fade * (PRIOR * q - held) + y
    used = sorted(n)
    edge = 1.0 / (len(labels) + 2.0)
    expected = pooled([n[i] for i in used], [ones[i] for i in used])
    for i, centre in enumerate(CENTRES):
        value = expected[min(range(len(used)), key=lambda k: (abs(used[k] - i), -k))]
        assert steps.at(centre) == pytest.approx(min(max(value, edge), 1.0 - edge), abs=1e-6)


@given(LABELS)
def test_it_never_falls_and_comes_back_from_its_bytes(labels: list[tuple[float, float, float]]) -> None:
    steps, again = Isotonic(), Isotonic()
    for k, (z, y, q) in enumerate(labels):
        steps.learn(z, y, q, q, steps.at(z), 1.0, 0.0, 0)
        if k % 7 == 0:
            steps.revise(z, q, steps.at(z), 2.0 * y - 1.0)
    again.decode(steps.encode())
    served = [steps.at(k / 10) for k in range(-90, 91)]
    assert served == [again.at(k / 10) for k in range(-90, 91)]
    assert steps.mixed(0.5, served[0]) == again.mixed(0.5, served[0])
    assert all(left <= right for left, right in pairwise(served))
    assert all(0.0 < p < 1.0 for p in served)


@given(st.lists(st.tuples(st.floats(-4.0, 4.0), st.sampled_from([0.0, 1.0])), max_size=300))
def test_the_mixture_loses_no_more_than_its_bound(labels: list[tuple[float, float]]) -> None:
    steps, excess = Isotonic(), 0.0
    for z, y in labels:
        q, step = sigmoid(z), steps.at(z)
        p = steps.mixed(q, step)
        steps.learn(z, y, q, q, step, 1.0, 0.0, 0)
        excess += math.log((q if y else 1.0 - q) / (p if y else 1.0 - p))
    assert excess <= -math.log(WEIGHT) * max(1.0, math.sqrt(steps._guard.squares) / 2.0) + 1e-9


def test_a_risk_in_steps_is_served_nearly_as_it_is() -> None:
    lost = [0.0, 0.0]
    for seed in range(2):
        rng, calibrator = random.Random(seed), TwoSpeed()
        for t in range(10_000):
            z = rng.gauss(-1.0, 1.5)
            risk = (0.02, 0.18, 0.6, 0.92)[(z > -2.0) + (z > 0.0) + (z > 1.5)]
            y = float(rng.random() < risk)
            answer = calibrator.predict(sigmoid(z))
            calibrator.update(answer.ticket, y)
            if t >= 3000:
                for n, p in enumerate((answer.p, risk)):
                    lost[n] -= math.log(p if y else 1.0 - p)
    assert lost[0] < 1.009 * lost[1]  # 1.006; by the smooth map alone 1.014
