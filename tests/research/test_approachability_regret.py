"""Approachability with a regret coordinate: the oracle, the epochs, the two bounds."""

import math
import random
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.calibrators.approachability_regret import FIRST, ApproachabilityRegret

THETAS = st.lists(st.floats(-1, 1), min_size=33, max_size=33)


@given(
    THETAS, st.floats(0, 3), st.floats(0, 1), st.sampled_from(["brier", "log"]), st.sampled_from(["uniform", "logit"])
)
def test_oracle_keeps_its_promise(theta: list[float], weight: float, q: float, loss: str, spacing: str) -> None:
    calibrator = ApproachabilityRegret(loss=loss, spacing=spacing)
    calibrator._theta, calibrator._lambda = theta, weight
    points, s = calibrator._grid.points, calibrator._loss
    expected, _, _ = calibrator.predict(q)
    below = max(i for i, point in enumerate(points) if point <= expected + 1e-15)
    above = min(below + 1, 32)
    share = (expected - points[below]) / (points[above] - points[below]) if above > below else 0.0
    gap = points[above] - points[below]
    rounding = max(calibrator._rounding(gap, points[below]), calibrator._rounding(gap, points[above]))
    for y in (0, 1):
        payoff = sum(
            part * (theta[i] * (y - points[i]) + weight * (s(points[i], y) - s(q, y)))
            for i, part in ((below, 1.0 - share), (above, share))
        )
        assert payoff <= gap / 2 + weight * rounding + 1e-9


def test_fresh_epoch_serves_the_nearest_point() -> None:
    calibrator = ApproachabilityRegret()
    for p in (0.0, 0.003, 0.2, 0.77, 1.0):
        expected, served, _ = calibrator.predict(p)
        assert served == expected == calibrator._grid.points[calibrator._grid.nearest(p)]


def test_epochs_double_and_refine() -> None:
    calibrator = ApproachabilityRegret(spacing="uniform")
    seen: list[tuple[int, int]] = []
    for t in range(FIRST * 15):
        if not seen or seen[-1] != (calibrator._t, calibrator._grid.last):
            seen.append((calibrator._t, calibrator._grid.last))
        calibrator.update(calibrator.predict(0.5, (), b"%d" % t).ticket, float(t % 2))
    assert seen == [(512, 32), (1024, 32), (2048, 64), (4096, 64)]
    assert calibrator._epoch == 4
    assert calibrator._lambda == 0.0


def test_outcomes_of_an_earlier_epoch_teach_the_point_they_were_served() -> None:
    calibrator = ApproachabilityRegret(spacing="uniform")
    late = calibrator.predict(0.28125).ticket
    while calibrator._epoch < 2:
        calibrator.update(calibrator.predict(0.9, (), b"%d" % calibrator.learnt).ticket, 1.0)
    calibrator.update(late, 1.0)
    assert [i / 64 for i, theta in enumerate(calibrator._theta) if theta] == [0.28125]


@pytest.mark.parametrize("loss", ["brier", "log"])
def test_regret_is_the_loss_beyond_the_forecasts_own(loss: str) -> None:
    calibrator = ApproachabilityRegret(loss=loss)
    rng, regret = random.Random(3), 0.0
    for t in range(2000):
        q = rng.random()
        _, p, ticket = calibrator.predict(q, (), b"%d" % t)
        y = float(rng.random() < q)
        calibrator.update(ticket, y)
        if loss == "brier":
            regret += (p - y) ** 2 - (q - y) ** 2
        else:
            p, q = (min(max(each, 1e-6), 1 - 1e-6) for each in (p, q))
            regret += math.log(q / p if y else (1 - q) / (1 - p))
    assert calibrator.regret() == pytest.approx(regret)


def test_bounds_are_the_published_ones() -> None:
    calibrator = ApproachabilityRegret(preset="fine", spacing="uniform")
    for t in range(FIRST):
        calibrator.update(calibrator.predict(0.3, (), b"%d" % t).ticket, float(t % 3 == 0))
    c = FIRST * (1 / 64 + 1 / (4 * 32**2)) + math.sqrt(33 * FIRST) + math.sqrt(FIRST)
    assert calibrator.bound() == pytest.approx(c / FIRST)
    assert calibrator.regret_bound() == pytest.approx(c)


def test_good_forecast_keeps_its_loss_and_a_useless_one_is_corrected() -> None:
    rng = random.Random(5)
    for useful in (True, False):
        calibrator, lost = ApproachabilityRegret(), 0.0
        for t in range(8000):
            chance = rng.random()
            q = chance if useful else rng.random()
            y = float(rng.random() < chance)
            _, p, ticket = calibrator.predict(q, (), b"%d" % t)
            calibrator.update(ticket, y)
            lost += (p - y) ** 2 - (q - y) ** 2
        assert lost / 8000 < 0.01
        assert (calibrator.error() or 1.0) < 0.06


def test_state_of_other_options_is_refused() -> None:
    state = ApproachabilityRegret(preset="joint").encode()
    for options in ({"preset": "fine"}, {"loss": "log"}, {"spacing": "uniform"}):
        with pytest.raises(ValueError, match="does not fit"):
            ApproachabilityRegret(**options).decode(state)  # type: ignore[arg-type]  # none is name or seed


def test_layout_is_the_documented_one() -> None:
    calibrator = ApproachabilityRegret(spacing="uniform")
    ticket = calibrator.predict(0.26).ticket
    assert ticket == struct.pack("<Qdd", 0, 0.25, 0.26)
    calibrator.update(ticket, 1)
    most = 512 ** (1 / 6)
    slack = 1 / 64 + most / (4 * 32**2)
    worse = 0.75**2 - 0.74**2
    weight = most / math.sqrt(512) * worse
    theta = [0.0] * 33
    theta[8] = math.sqrt(33 / 512) * 0.75
    head = struct.unpack("<IQQddddII", calibrator.encode()[:60])
    assert head == (zlib.crc32(b"joint brier uniform"), 1, 0, *head[3:7], 33, 1)
    assert head[3:7] == pytest.approx((weight, worse, slack, slack / most))
    assert struct.unpack("<33d", calibrator.encode()[60:324]) == pytest.approx(theta)
    assert calibrator.encode()[324:] == struct.pack("<dQQ", 0.25, 1, 1)
