"""What a review asks for: slope and intercept that are known, months, cut-offs that keep the volume, the map."""

import numpy as np
import pytest

from replay.review import LAST, fit, review
from state.arrays import Floats

DAY_MS = 86_400_000


def logistic(x: Floats) -> Floats:
    made: Floats = 1.0 / (1.0 + np.exp(-x))
    return made


def test_slope_and_intercept_are_those_that_made_the_outcomes() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(-2.0, 1.5, 60_000)
    y = (rng.random(len(x)) < logistic(0.7 * x - 0.4)).astype(np.float64)
    found = fit(logistic(x), y)
    assert found.slope == pytest.approx(0.7, abs=0.02)
    assert found.intercept == pytest.approx(-0.4, abs=0.05)
    for p, of in ((np.full(9, 0.2), y[:9]), (logistic(x[:9]), np.zeros(9)), (np.zeros(0), np.zeros(0))):
        assert np.isnan(fit(p, of).slope)
    assert np.isnan(fit(np.array([0.1, 0.2, 0.8, 0.9]), np.array([0.0, 0.0, 1.0, 1.0])).slope), "separated"


def test_months_cut_offs_and_map() -> None:
    rng = np.random.default_rng(4)
    n = 20_000
    issued = np.arange(n) * (90 * DAY_MS // n) + 1_767_225_600_000  # from 1 January 2026
    x = rng.normal(-3.0, 1.0, n) + (issued >= issued[2 * n // 3])  # scores move in the last month
    raw, p = logistic(x + 2.0), logistic(x)
    y = (rng.random(n) < p).astype(np.float64)
    found = review(raw, p, y, issued, (raw, p))
    assert [each.month for each in found.months] == ["2026-01", "2026-02", "2026-03"]
    assert found.months[0].shift < 0.05
    assert found.months[2].shift > 0.25
    assert all(abs(each.calibrated - each.observed) < 1.5 * each.chance for each in found.months)
    assert sum(each.n for each in found.months) == n
    last = round(LAST * n)
    for cut in found.cuts:
        assert (raw[-last:] >= cut.raw).mean() == pytest.approx(cut.volume, abs=1e-3)
        assert (p[-last:] >= cut.calibrated).mean() == pytest.approx(cut.volume, abs=1e-3)
        assert cut.raw_hits == cut.calibrated_hits, "the order is the same"
        assert cut.ones == y[-last:].sum()
    assert dict(found.lookup)[0.5] == pytest.approx(logistic(np.array(-2.0)), rel=0.05)
    assert found.quantiles["calibrated"][-1]["forecast"] > 0.1
