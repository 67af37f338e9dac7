"""Calibrated regression: every bound of its docstring, on gentle and on hostile sequences."""

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from state.calibrators.calibrated_regression import CalibratedRegression, line_meets_answer

Outcome = Callable[[int, float, float, tuple[float, ...], random.Random], float]  # t, raw, answer, x

#: What y is, given the round, the raw forecast, the answer and the features.
OUTCOMES: dict[str, Outcome] = {
    "adversary": lambda _t, _raw, p, _x, _rng: float(p <= 0.5),
    "adversary on a mesh": lambda _t, _raw, p, _x, _rng: float(p < 1.0 and int(8 * p) % 2 == 0),
    "iid": lambda _t, raw, _p, _x, rng: float(rng.random() < raw * raw),
    "drift": lambda t, _raw, _p, _x, rng: float(rng.random() < 0.5 + 0.5 * math.sin(t / 500)),
    "zeros then ones": lambda t, _raw, _p, _x, _rng: float(t % 4000 >= 2000),
    "subsequence": lambda _t, _raw, _p, x, _rng: x[0] if x else 1.0,
    "adversary on a subsequence": lambda _t, raw, p, x, rng: float(p <= 0.5 if x and x[0] else rng.random() < raw),
    "fractions": lambda _t, raw, p, _x, _rng: abs(raw - p),
}


def features(t: int, d: int, rng: random.Random) -> tuple[float, ...]:
    """Return a segment of every third round, then noise."""
    return (float(t % 3 == 0), *(rng.uniform(-1, 1) for _ in range(d - 1)))[:d]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_bias_error_and_regret_stay_under_their_bounds(outcome: str) -> None:
    calibrator = CalibratedRegression(features=2)
    rng, regret, served, happened, n = random.Random(6), 0.0, 0.0, 0.0, 2500
    for t in range(n):
        raw, x = rng.random(), features(t, 2, rng)
        p, _, ticket = calibrator.predict(raw, x)
        y = OUTCOMES[outcome](t, raw, p, x, rng)
        calibrator.update(ticket, y)
        served += (p - y) ** 2
        regret += (p - y) ** 2 - (raw - y) ** 2
        happened += y
        if t % 50 == 0 or t < 20:
            sums = calibrator._sums
            # Φ is the regret to all weights, and the worst (Σ w·f (ŷ - y))² / w'Aw of all weights at once.
            potential = calibrator.potential()
            assert potential == pytest.approx(served - sums.theta[0], abs=1e-6)
            assert potential == pytest.approx(
                calibrator._bias() @ np.linalg.solve(sums.a, calibrator._bias()), abs=1e-6
            )
            assert potential <= calibrator.potential_bound()
            assert regret <= 2.0 + calibrator.potential_bound()
            assert all(abs(bias) <= bound for _, _, bias, bound in calibrator.biases())
    error, bound = calibrator.error(), calibrator.bound()
    assert error is not None
    assert bound is not None
    assert error <= bound < 1.0
    assert n / 20 < happened < n - n / 20  # the opponent did not settle for what the first answer already says


def test_what_is_served_is_the_maps_answer_or_a_fixed_point_of_the_regression() -> None:
    calibrator = CalibratedRegression(features=2)
    rng, fixed = random.Random(2), 0
    for t in range(1500):
        raw, x = rng.random(), features(t, 2, rng)
        p, _, ticket = calibrator.predict(raw, x)
        if calibrator.potential() <= 1.0 + calibrator._sums.log_det:
            assert p == calibrator._map.answer(raw, x)
        else:
            fixed += 1
            value = float(np.array(calibrator._sums.theta[1:]) @ (1.0, p, raw, *x))
            assert min(max(value, 0.0), 1.0) == pytest.approx(p, abs=2e-9)
        calibrator.update(ticket, float(p <= 0.5))
    assert 50 < fixed < 1450


def rare(seed: int, n: int, spread: float) -> tuple[list[float], list[tuple[float, ...]], list[float]]:
    """Return forecasts of events at .5 %, eight segments off by log-odds of that deviation, and outcomes; n of them."""
    rng = np.random.default_rng(seed)
    x = np.eye(8)[rng.integers(0, 8, n)]
    z = rng.normal(0.0, 1.0, n) - 5.75
    offsets = rng.normal(0.0, spread, 8)
    rates = np.exp(offsets) / np.exp(offsets).mean()  # segments differ, and the forecast's mean is right
    raw = 1.0 / (1.0 + np.exp(-z))
    y = rng.random(n) < raw * rates[x.argmax(axis=1)]
    return raw.tolist(), [tuple(row) for row in x.tolist()], y.astype(float).tolist()


def log_loss(served: list[float], y: list[float]) -> float:
    return -sum(math.log(p if happened else 1.0 - p) for p, happened in zip(served, y, strict=True)) / len(y)


@pytest.mark.parametrize("spread", [0.7, 0.0])
def test_rare_events_are_served_as_well_as_raw_from_the_first_outcome(spread: float) -> None:
    """Exactly 0 was served to every event until an event had happened, and to a tenth of them ever after."""
    ratios, gains = [], []
    for seed in (21, 22, 23):
        raw, xs, y = rare(seed, 10_000, spread)
        calibrator, served = CalibratedRegression(features=8), []
        assert calibrator.predict(raw[0], xs[0]).p == pytest.approx(raw[0])
        for p, x, happened in zip(raw, xs, y, strict=True):
            answer = calibrator.predict(p, x)
            served.append(answer.p)
            calibrator.update(answer.ticket, happened)
        assert 0.0 < min(served) <= max(served) < 1.0
        ratios.append(log_loss(served, y) / log_loss(raw, y))
        gains.append(auc(served, y) - auc(raw, y))
    assert max(ratios) <= 1.02
    assert not spread or sum(gains) > 0.0


def auc(p: list[float], y: list[float]) -> float:
    """Return the share of pairs, one that happened and one that did not, which p orders rightly; p has no ties."""
    ranked = sorted(range(len(p)), key=p.__getitem__)
    ones = [rank for rank, t in enumerate(ranked, 1) if y[t]]
    return (sum(ones) - len(ones) * (len(ones) + 1) / 2) / (len(ones) * (len(p) - len(ones)))


@pytest.mark.parametrize("raw", [0.0, 1e-12, 1.0])
def test_certainty_is_never_served(raw: float) -> None:
    calibrator = CalibratedRegression()
    for y in [1.0 - round(raw)] * 30 + [float(round(raw))] * 300:
        p, _, ticket = calibrator.predict(raw)
        assert 0.0 < p < 1.0
        calibrator.update(ticket, y)


def test_bias_is_the_sum_it_says() -> None:
    calibrator = CalibratedRegression(features=1)
    rng, rows, errors = random.Random(8), [], []
    for _ in range(400):
        raw, x = rng.random(), rng.uniform(-1, 1)
        p, _, ticket = calibrator.predict(raw, (x,))
        y = float(rng.random() < raw)
        calibrator.update(ticket, y)
        rows.append((1.0, p, raw, x))
        errors.append(p - y)
    f = np.array(rows)
    names, lengths, biases, _ = zip(*calibrator.biases(["age"]), strict=True)
    assert names == ("constant", "answer", "forecast", "age")
    assert lengths == pytest.approx((f**2).sum(axis=0))
    assert biases == pytest.approx(f.T @ errors, abs=1e-8)
    assert calibrator.error() == pytest.approx(abs(sum(errors)) / 400)


def test_each_named_segment_is_unbiased() -> None:
    """Two segments that overlap, wrong in opposite directions, and a forecast that sees neither."""
    calibrator = CalibratedRegression(features=2)
    rng, n = random.Random(4), 6000
    for t in range(n):
        x = (float(t % 2 == 0), float(t % 5 == 0))
        y = float(rng.random() < 0.5 + 0.3 * x[0] - 0.4 * x[1])
        calibrator.update(calibrator.predict(0.5, x).ticket, y)
    segments = {each.name: each for each in calibrator.biases(["vip", "night"])}
    # The forecast misses the segments' rates, .72 and .25, by .22 and .25; the bound is below what that comes to.
    for name, length, missed in (("vip", n / 2, 0.22), ("night", n / 5, 0.25)):
        assert segments[name].length == length
        assert abs(segments[name].bias) <= segments[name].bound < missed * length


def test_missing_features_count_as_zeros() -> None:
    calibrator = CalibratedRegression(features=2)
    calibrator.update(calibrator.predict(0.5, (1.0, -1.0)).ticket, 1.0)
    assert calibrator.predict(0.4) == calibrator.predict(0.4, (0.0, 0.0))


@pytest.mark.parametrize("x", [(0.5,), (0.0, 0.0, 0.0), (1.5, 0.0), (math.nan, 0.0)])
def test_wrong_features_are_refused(x: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"x must have 2 components|must be in"):
        CalibratedRegression(features=2).predict(0.5, x)


@pytest.mark.parametrize(
    ("slope", "s", "p", "fixed"),
    [
        (0.5, -0.1, 0.9, 0.0),
        (0.5, 0.2, 0.9, 0.4),
        (0.5, 0.6, 0.1, 1.0),
        (3.0, 0.1, 0.0, 1.0),  # slope > 1: clip(s / slack) would be 0
        (3.0, -2.5, 1.0, 0.0),  # and here 1
        (3.0, -1.0, 0.1, 0.0),  # three fixed points, 0, .5 and 1: the nearest to the forecast
        (3.0, -1.0, 0.6, 0.5),
        (3.0, -1.0, 0.8, 1.0),
        (3.0, 0.0, 0.9, 1.0),
        (1.0, 0.0, 0.37, 0.37),  # every point is fixed
        (1.0, 0.1, 0.37, 1.0),
        (1.0, -0.1, 0.37, 0.0),
    ],
)
def test_line_meets_answer_in_every_case(slope: float, s: float, p: float, fixed: float) -> None:
    assert line_meets_answer(s, slope, p) == pytest.approx(fixed)
