"""Calibrated regression: every bound of its docstring, on gentle and on hostile sequences, and how it grows."""

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from state.arrays import Floats
from state.calibrators.calibrated_regression import FUNCTIONS, CalibratedRegression
from state.scoring.smooth import smooth_error

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
@pytest.mark.parametrize("functions", FUNCTIONS)
def test_bias_error_and_regret_stay_under_their_bounds(functions: str, outcome: str) -> None:
    calibrator = CalibratedRegression(features=2, functions=functions, knots=8)
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
            assert regret <= calibrator.regret_bound()
            assert all(abs(bias) <= bound for _, _, bias, bound in calibrator.biases())
    error, bound = calibrator.error(), calibrator.bound()
    assert error is not None
    assert bound is not None
    assert error <= bound < 1.0
    assert n / 20 < happened < n - n / 20  # the opponent did not settle for what the first answer already says


@pytest.mark.parametrize("functions", FUNCTIONS)
def test_what_is_served_is_the_maps_answer_or_a_fixed_point_of_the_regression(functions: str) -> None:
    calibrator = CalibratedRegression(features=2, functions=functions, knots=8)
    rng, fixed = random.Random(2), 0
    for t in range(1500):
        raw, x = rng.random(), features(t, 2, rng)
        p, _, ticket = calibrator.predict(raw, x)
        if calibrator.potential() <= 1.0 + calibrator._sums.log_det:
            assert p == calibrator._map.answer(raw, x)
        else:
            fixed += 1
            tail = np.empty(calibrator._functions.count)
            calibrator._functions.fill(tail, p, x)
            value = float(np.array(calibrator._sums.theta[1:]) @ (1.0, p, raw, *x, *tail))
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


def test_state_of_the_first_version_is_refused_with_its_number() -> None:
    calibrator = CalibratedRegression(features=1)
    old = calibrator.encode()[: -len(calibrator._map.encode())]
    with pytest.raises(ValueError, match="format version 1, this build reads version 2"):
        calibrator.decode(old)


def test_bias_is_the_sum_it_says() -> None:
    calibrator = CalibratedRegression(features=1, functions="hats", knots=4)
    rng, rows, errors = random.Random(8), [], []
    for _ in range(400):
        raw, x = rng.random(), rng.uniform(-1, 1)
        p, _, ticket = calibrator.predict(raw, (x,))
        y = float(rng.random() < raw)
        calibrator.update(ticket, y)
        rows.append((1.0, p, raw, x, *(max(0.0, 1.0 - abs(4 * p - k)) for k in range(5))))
        errors.append(p - y)
    f = np.array(rows)
    names, lengths, biases, _ = zip(*calibrator.biases(["age"]), strict=True)
    assert names == ("constant", "answer", "forecast", "age", "hat 0", "hat 0.25", "hat 0.5", "hat 0.75", "hat 1")
    assert lengths == pytest.approx((f**2).sum(axis=0))
    assert biases == pytest.approx(f.T @ errors, abs=1e-8)
    assert calibrator.error() == pytest.approx(smooth_error(f.T[4:] @ errors) / 400)


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


def smooth_calibration_error(p: Floats, error: Floats, cells: int = 512) -> float:
    """Return sup Σ w(p)(p - y) over 1-Lipschitz |w| <= 1, on a mesh so fine that it is at most .001 a round too low."""
    k = np.minimum((p * cells).astype(int), cells - 1)
    over = p * cells - k
    sums = np.zeros(cells + 1)
    np.add.at(sums, k, error * (1 - over))
    np.add.at(sums, k + 1, error * over)
    return smooth_error(sums)


def rate(n: int) -> float:
    """Return the theorem's bound on the smooth calibration error of ``growing`` after n = 8**k rounds, a priori.

    With L levels there are m = 2 + 2**L coordinates, of squares at most 3 + L together, hence (the geometric mean of
    A's eigenvalues is at most their arithmetic mean) ln det A <= m ln(1 + n (3 + L) / m).
    """
    levels = round(math.log(n, 8))
    missed: float = sum(7 * 4.0**level / 2 for level in range(levels)) + 0.5
    m = 2 + 2 ** (levels - 1)  # the level due at n itself has seen nothing yet
    log_det = m * math.log1p(n * (3 + levels - 1) / m)
    return (missed + math.sqrt((n + 2.5) * (2.0 + log_det))) / n


@pytest.mark.parametrize("outcome", ["adversary", "adversary on a mesh", "iid", "drift"])
def test_smooth_calibration_error_of_the_growing_family_falls_as_the_theorem_says(outcome: str) -> None:
    n, rng = 8**5, random.Random(12)
    calibrator = CalibratedRegression(functions="growing", knots=32)
    p, error, missed, upper = np.zeros(n), np.zeros(n), 0.0, math.inf
    for t in range(n):
        raw = rng.random()
        p[t], _, ticket = calibrator.predict(raw)
        error[t] = p[t] - OUTCOMES[outcome](t, raw, p[t], (), rng)
        level = len(f"{t:o}") - 1 if t else 0  # the mesh in force: 2**-level, level the integer part of log_8 t
        missed += abs(error[t]) * 2.0**-level / 2
        assert calibrator._sums.learnt == t
        calibrator.update(ticket, p[t] - error[t])
        if t + 1 in (8**2, 8**3, 8**4, 8**5):
            bound = calibrator.bound()
            assert bound is not None
            measured = smooth_calibration_error(p[: t + 1], error[: t + 1]) / (t + 1)
            assert measured <= bound + missed / (t + 1)
            if bound < 1.0:
                assert bound + missed / (t + 1) <= rate(t + 1)
            assert rate(t + 1) < upper
            upper = rate(t + 1)
    assert upper < 0.15
    assert n / 20 < (p - error).sum() < n - n / 20  # both outcomes occurred


def test_growing_by_feature_is_smoothly_calibrated_on_each_subsequence() -> None:
    """Each subsequence has its own opponent; the family of each is as fine as its own length allows."""
    n, rng = 8000, random.Random(3)
    calibrator = CalibratedRegression(features=2, functions="growing_by_feature", knots=8)
    growing = calibrator._growing
    assert growing is not None
    p, error, xs, missed = np.zeros(n), np.zeros(n), np.zeros((n, 3)), np.zeros(3)
    for t in range(n):
        raw, x = rng.random(), (float(t % 2 == 0), float(t % 9 == 0))
        p[t], _, ticket = calibrator.predict(raw, x)
        y = float(p[t] <= 0.5) if x[1] else float(rng.random() < raw**2) if x[0] else float(int(8 * p[t]) % 2 == 0)
        error[t], xs[t] = p[t] - y, (1.0, *x)
        missed += abs(error[t]) * xs[t] * np.exp2(-np.array(growing.levels)) / 2
        calibrator.update(ticket, y)
    assert growing.levels == [3, 3, 2]  # at 4096 outcomes the last had 456
    lengths = xs.sum(axis=0)
    for i, length in enumerate(lengths):
        bound = math.sqrt((length + 2.5) * calibrator.potential_bound())
        assert smooth_calibration_error(p, error * xs[:, i]) <= bound + missed[i]
        assert bound + missed[i] < length
        assert length / 20 < (p - error) @ xs[:, i] < length - length / 20  # both outcomes occurred on each


def test_family_grows_at_powers_of_two_and_goes_on_from_its_bytes() -> None:
    calibrator, rng, sizes = CalibratedRegression(features=1, functions="growing_by_feature"), random.Random(5), []
    for t in range(1100):
        again = CalibratedRegression(features=1, functions="growing_by_feature")
        if t in (0, 1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 1023, 1024, 1025):
            again.decode(calibrator.encode())
            assert again.encode() == calibrator.encode()
            calibrator = again  # the stream goes on with the copy, also over the next growth
        raw = rng.random()
        before = calibrator._functions.count
        calibrator.update(calibrator.predict(raw, (float(t % 2 == 0),)).ticket, float(rng.random() < raw))
        if calibrator._functions.count > before:
            sizes.append((t + 1, calibrator._functions.count))
    # Σ 1 = T reaches 8, 64, 512; Σ x² = T/2 reaches 1, 8, 64 and 512 at twice as many, but for the first round, of 1.
    assert sizes == [(1, 1), (8, 2), (16, 3), (64, 5), (128, 7), (512, 11), (1024, 15)]


def test_bytes_do_not_depend_on_when_they_were_read() -> None:
    plain, interrupted = (CalibratedRegression(functions="growing") for _ in range(2))
    rng = random.Random(7)
    for t in range(700):
        raw = rng.random()
        y = float(rng.random() < raw)
        plain.update(plain.predict(raw).ticket, y)
        interrupted.update(interrupted.predict(raw).ticket, y)
        if t % 10 == 0:
            payload = interrupted.encode()
            interrupted = CalibratedRegression(functions="growing")
            interrupted.decode(payload)
    assert interrupted.encode() == plain.encode()


@pytest.mark.parametrize("functions", ["linear", "polynomial", "hats"])
def test_order_of_outcomes_changes_only_the_rounding(functions: str) -> None:
    forward, backward = (CalibratedRegression(features=2, functions=functions) for _ in range(2))
    rng = random.Random(9)
    tickets = []
    for t in range(300):
        x = features(t, 2, rng)
        tickets.append((forward.predict(rng.random(), x).ticket, float(rng.random() < 0.4)))
        if t % 3 == 0:
            for calibrator in (forward, backward):
                calibrator.update(*tickets[-1])
    for ticket, y in tickets:
        forward.update(ticket, y)
    for ticket, y in reversed(tickets):
        backward.update(ticket, y)
    assert forward._sums._pair == pytest.approx(backward._sums._pair, abs=1e-9)


def test_ticket_from_before_a_growth_meets_the_new_functions_at_its_answer() -> None:
    calibrator = CalibratedRegression(functions="growing")
    ticket = calibrator.predict(0.5).ticket
    issued = np.frombuffer(ticket)[0]
    for t in range(70):
        calibrator.update(calibrator.predict(t / 70).ticket, float(t % 2))
    before = calibrator._sums.a.copy()
    calibrator.update(ticket, 1.0)
    added = np.diag(calibrator._sums.a - before)
    assert added[3:] == pytest.approx(
        [max(0.0, 1 - abs(issued - k) * w) ** 2 for k, w in ((0.5, 2), (0.25, 4), (0.75, 4))]
    )


def test_missing_features_count_as_zeros() -> None:
    calibrator = CalibratedRegression(features=2)
    calibrator.update(calibrator.predict(0.5, (1.0, -1.0)).ticket, 1.0)
    assert calibrator.predict(0.4) == calibrator.predict(0.4, (0.0, 0.0))


@pytest.mark.parametrize("x", [(0.5,), (0.0, 0.0, 0.0), (1.5, 0.0), (math.nan, 0.0)])
def test_wrong_features_are_refused(x: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"x must have 2 components|must be in"):
        CalibratedRegression(features=2).predict(0.5, x)


def test_state_of_other_options_is_refused() -> None:
    grown = CalibratedRegression(functions="growing")
    for t in range(100):
        grown.update(grown.predict(0.5).ticket, float(t % 2))
    others = (
        CalibratedRegression(features=1),
        CalibratedRegression(functions="polynomial", degree=4),
        CalibratedRegression(functions="hats", knots=2),
        CalibratedRegression(functions="growing_by_feature"),
        CalibratedRegression(functions="growing", knots=2),
    )
    for other in others:
        before = other.encode()
        with pytest.raises(ValueError, match="state of"):
            other.decode(grown.encode())
        with pytest.raises(ValueError, match="state of"):
            grown.decode(before + b"\0")
        assert other.encode() == before
