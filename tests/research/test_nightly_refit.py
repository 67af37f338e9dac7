"""Batch baselines."""

import numpy as np
import pytest

from research import nightly_refit
from research.nightly_refit import Fit
from state.arrays import Floats


def sigmoid(z: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-z)))


def overconfident(n: int) -> tuple[Floats, Floats]:
    """Forecasts whose log-odds are twice too large and shifted by .7."""
    rng = np.random.default_rng(3)
    z = rng.normal(0.0, 1.5, n)
    return sigmoid(2.0 * z + 0.7), (rng.random(n) < sigmoid(z)).astype(float)


def test_platt_is_the_maximum_of_the_likelihood() -> None:
    p, y = overconfident(5000)
    mapped, z = nightly_refit.platt(p, y)(p), np.log(p) - np.log1p(-p)
    target = np.where(y == 1, (y.sum() + 1) / (y.sum() + 2), 1 / ((1 - y).sum() + 2))
    assert abs(np.mean(mapped - target)) < 1e-8
    assert abs(np.mean((mapped - target) * z)) < 1e-8


def test_beta_is_the_better_map_where_platt_has_not_the_form_and_never_decreases() -> None:
    rng = np.random.default_rng(4)
    p = rng.beta(0.3, 3.0, 20_000)
    risk = sigmoid(0.5 * np.log(p) - 3.0 * np.log1p(-p) - 0.5)
    y = (rng.random(len(p)) < risk).astype(float)
    off = [float(np.abs(fit(p, y)(p) - risk).mean()) for fit in (nightly_refit.beta, nightly_refit.platt)]
    assert off[0] < 0.01 < off[1]
    against = nightly_refit.beta(p, 1 - y)(np.linspace(0, 1, 50))
    assert np.all(np.diff(against) >= 0)


def test_isotonic_pools_adjacent_violators() -> None:
    mapped = nightly_refit.isotonic(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.0, 1.0, 0.0, 1.0]))
    assert mapped(np.array([0.0, 0.1, 0.2, 0.25, 0.3, 0.9])) == pytest.approx([0, 0, 0.5, 0.5, 0.5, 1])


@pytest.mark.parametrize("fit", [nightly_refit.platt, nightly_refit.beta, nightly_refit.isotonic])
def test_map_is_increasing_and_takes_0_and_1(fit: Fit) -> None:
    mapped = fit(*overconfident(2000))(np.array([0.0, *np.linspace(0.01, 0.99, 50), 1.0]))
    assert np.all(np.diff(mapped) >= 0)
    assert np.all((mapped >= 0) & (mapped <= 1))


@pytest.mark.parametrize("fit", [nightly_refit.platt, nightly_refit.beta, nightly_refit.isotonic])
def test_no_fit_sees_an_outcome_before_it_is_known(fit: Fit) -> None:
    p, y = overconfident(3000)
    served = nightly_refit.refitted(fit, p, y, every=500, delay=400)
    changed = y.copy()
    changed[1100:] = 1.0 - changed[1100:]
    assert np.array_equal(nightly_refit.refitted(fit, p, changed, every=500, delay=400)[:2000], served[:2000])
    assert np.array_equal(served[:500], p[:500])
    assert np.mean((served - y) ** 2) < np.mean((p - y) ** 2)


def test_window_forgets() -> None:
    p, y = overconfident(2000)
    served = nightly_refit.refitted(nightly_refit.platt, p, y, every=1000, window=300)
    assert served[1000:] == pytest.approx(nightly_refit.platt(p[700:1000], y[700:1000])(p[1000:]))
