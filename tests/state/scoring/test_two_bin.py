"""The averaged two-bin error beside its definition, its noise, and the interval of what was gained."""

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.scoring.cells import EDGES
from state.scoring.scores import Scores
from state.scoring.two_bin import gain, two_bin

Event = tuple[float, float, int]

P = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]))
EVENTS = st.lists(st.tuples(P, P, st.integers(0, 1)), min_size=1, max_size=60)


def scored(events: Sequence[Event]) -> Scores:
    scores = Scores()
    for raw, p, y in events:
        scores.observe(raw, p, float(y))
    return scores


def defined(p: Sequence[float], y: Sequence[int]) -> float:
    """Return the mean over 2,000 thresholds, from the definition."""
    found = 0.0
    order = sorted(zip(p, y, strict=True))
    values, sums = [each for each, _ in order], np.concatenate(([0.0], np.cumsum([each - z for each, z in order])))
    thresholds = (np.arange(2000) + 0.5) / 2000
    for k in np.searchsorted(values, thresholds):
        found += (sums[k] / len(p)) ** 2 + ((sums[-1] - sums[k]) / len(p)) ** 2
    return found / 2000


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (0.15, 1.0), (0.0, 1.6), (-0.1, 0.5)])
def test_it_is_the_mean_over_thresholds(shift: float, scale: float) -> None:
    rng = random.Random(1)
    truth = [rng.betavariate(2, 5) for _ in range(5000)]
    y = [int(rng.random() < each) for each in truth]
    p = [min(max(0.3 + scale * (each - 0.3) + shift, 0.0), 1.0) for each in truth]
    found = two_bin(scored([(each, 0.3, z) for each, z in zip(p, y, strict=True)]), "raw")
    assert found.value == pytest.approx(defined(p, y), rel=0.02, abs=2e-6)


@given(EVENTS)
def test_it_is_within_its_limits_and_knows_the_bias(events: list[Event]) -> None:
    found = two_bin(scored(events), "raw")
    bias = sum(raw - y for raw, _, y in events) / len(events)
    assert 0.0 <= found.value <= 2.0
    assert found.value >= bias * bias / 2.0 - 1e-6, "F + R is the bias at every threshold"
    assert found.error >= 0.0


def test_the_same_forecasts_gain_nothing() -> None:
    rng = random.Random(3)
    drawn = [rng.random() for _ in range(400)]
    scores = scored([(p, p, int(rng.random() < 0.4)) for p in drawn])
    value, low, high = gain(two_bin(scores, "raw"), two_bin(scores, "calibrated"))
    assert value == 0.0
    assert low < 0.0 < high


def test_an_edge_between_forecasts_does_not_make_it_jump() -> None:
    edge = EDGES[len(EDGES) // 2]
    sides = [[(p, 0.5, t % 2) for t in range(1000)] for p in (edge - 1e-9, edge + 1e-9)]
    below, above = (two_bin(scored(each), "raw").value for each in sides)
    assert below == pytest.approx(above, rel=0.02)


def test_difference_has_no_bias_and_its_interval_holds_the_truth() -> None:
    """Two forecasts of the same events: the mean difference of 200 seeds is the difference of the expectations."""
    rng = random.Random(5)
    truth = [rng.betavariate(2, 6) for _ in range(400)]
    raw, served = [each**0.8 for each in truth], [0.9 * each + 0.02 for each in truth]

    def expected(p: Sequence[float]) -> float:
        scores = Scores()
        for each, chance in zip(p, truth, strict=True):
            scores.observe(each, each, chance)
        return two_bin(scores, "raw").value

    wanted = expected(raw) - expected(served)
    found, held, noise = [], 0, []
    for seed in range(200):
        drawn = random.Random(seed)
        scores = scored([(a, b, int(drawn.random() < c)) for a, b, c in zip(raw, served, truth, strict=True)])
        one, other = two_bin(scores, "raw"), two_bin(scores, "calibrated")
        value, low, high = gain(one, other)
        found.append(value)
        noise.append(other.value - expected(served))
        held += low <= wanted <= high
    spread = float(np.std(found)) / math.sqrt(len(found))
    assert abs(float(np.mean(found)) - wanted) < 3 * spread
    assert held >= 190
    assert float(np.mean(noise)) == pytest.approx(sum(c * (1 - c) for c in truth) / len(truth) ** 2, rel=0.4)


def test_interval_holds_the_truth_where_few_ones_are_expected() -> None:
    truth = [0.004] * 250
    raw, served = [0.004] * 250, [0.002] * 250
    wanted = 0.0 - 0.002**2  # all are off by as much, and lie in one cell
    held = 0
    for seed in range(200):
        drawn = random.Random(seed)
        scores = scored([(a, b, int(drawn.random() < c)) for a, b, c in zip(raw, served, truth, strict=True)])
        _, low, high = gain(two_bin(scores, "raw"), two_bin(scores, "calibrated"))
        held += low <= wanted <= high
    assert held >= 190


def test_no_events_have_none() -> None:
    assert all(map(math.isnan, two_bin(Scores(), "raw")))
