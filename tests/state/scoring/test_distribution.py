"""The distribution of raw forecasts: what counts as a shift, when it is found, and what is none."""

import math
import random
from collections.abc import Callable

import pytest

from state.scoring.ages import DAY_MS
from state.scoring.distribution import CELLS, ENOUGH, FEWEST, RECENT, SHIFTED, Distribution, psi
from tests.state.logistic import logistic

#: Forecasts of a day, and days before anything is asked.
DAILY, DAYS = 240, 40


def played(found: Distribution, z: Callable[[float], float], first: float, last: float, seed: int = 1) -> list[float]:
    """Count forecasts whose log-odds are normal, of deviation 1 around ``z`` of the day; return each hour's shift."""
    rng = random.Random(seed)
    shifts = []
    for n in range(round(first * DAILY), round(last * DAILY)):
        day = n / DAILY
        found.observe(logistic(rng.gauss(z(day), 1.0)), round(day * DAY_MS))
        if n % (DAILY // 24) == 0 and found.comparable:
            shifts.append(found.shift())
    return shifts


def test_a_move_by_half_a_deviation_is_a_quarter() -> None:
    rng = random.Random(2)
    before, recent = Distribution(), Distribution()
    for found, mean in ((before, -4.0), (recent, -3.5)):
        for _ in range(200_000):
            found.observe(logistic(rng.gauss(mean, 1.0)), 0)
    assert psi(recent.recent, before.recent) == pytest.approx(SHIFTED, abs=0.01)


def test_chance_alone_adds_nothing() -> None:
    rng = random.Random(3)
    found = []
    for _ in range(20):
        cells = [[0] * CELLS for _ in range(2)]
        for counts, n in zip(cells, (512, 16_000), strict=True):
            for _ in range(n):
                counts[20 + round(rng.gauss(0.0, 3.0))] += 1
        found.append(psi(*cells))
    assert sum(found) / len(found) < 0.01
    assert max(found) < 0.1


def test_forecasts_of_one_kind_never_shift() -> None:
    assert max(played(Distribution(), lambda _: -4.0, 0, DAYS)) < 0.1


def test_day_and_night_are_no_shift() -> None:
    assert max(played(Distribution(), lambda day: -4.0 + 1.5 * math.sin(2 * math.pi * day), 0, DAYS)) < 0.1


def test_a_weekend_is_no_shift() -> None:
    assert max(played(Distribution(), lambda day: -4.0 + 1.5 * (day % 7 >= 5), 0, DAYS)) < 0.1


@pytest.mark.parametrize("to", [-0.6, -7.4], ids=["thirty times higher", "a thirtieth"])
def test_another_model_is_found_within_a_day_and_usual_after_weeks(to: float) -> None:
    found = Distribution()
    played(found, lambda _: -4.0, 0, DAYS)
    assert played(found, lambda _: to, DAYS, DAYS + 1)[-1] > SHIFTED
    assert min(played(found, lambda _: to, DAYS + 1, DAYS + 27)) > SHIFTED
    assert max(played(found, lambda _: to, DAYS + 27, DAYS + 60)[3 * 24 :]) < 0.1


@pytest.mark.parametrize("days", [1, 5, 15])
def test_forecasts_that_were_broken_for_days_and_are_mended_shift_back_within_eight(days: int) -> None:
    found = Distribution()
    played(found, lambda _: -4.0, 0, DAYS)
    for n in range(days * DAILY):
        found.observe(0.0, round((DAYS + n / DAILY) * DAY_MS))
    assert found.shift() > SHIFTED
    assert found.median() == 0.0 or days == 1, "yesterday was not broken yet"
    assert max(played(found, lambda _: -4.0, DAYS + days, DAYS + days + 40)[8 * 24 :]) < 0.1


def test_what_drifts_slowly_is_no_shift() -> None:
    assert max(played(Distribution(), lambda day: -4.0 + day / 200, 0, 120)) < 0.1


def test_nothing_is_said_before_two_weeks_and_of_less_than_a_hundred_a_week() -> None:
    first = (ENOUGH + RECENT) * DAY_MS
    for weekly, said in ((FEWEST + 10, True), (FEWEST - 20, False)):
        found = Distribution()
        step = 7 * DAY_MS // weekly
        for ms in range(0, first, step):
            found.observe(0.25, ms)
            assert math.isnan(found.shift())
        for ms in range(first, 2 * first, step):
            found.observe(0.25, ms)
        assert math.isnan(found.shift()) != said


def test_what_is_recent_is_a_week_and_the_present_day() -> None:
    found = Distribution()
    for day in range(3 * RECENT):
        found.observe(0.5, day * DAY_MS)
    assert sum(found.recent) == RECENT + 1
    assert sum(found.before) == pytest.approx(2 * RECENT - 1, abs=3)
    found.observe(0.5, 9 * RECENT * DAY_MS)
    assert sum(found.recent) == 1
    assert sum(found.before) == pytest.approx(3 * RECENT, abs=7)


def test_exactly_zero_and_exactly_one_have_cells_of_their_own() -> None:
    found = Distribution()
    for raw in (0.0, 5e-324, 1e-300, 1.0 - 1e-16, 1.0):
        found.observe(raw, 0)
    assert (found.recent[0], found.recent[1], found.recent[-2], found.recent[-1]) == (1, 2, 1, 1)


def test_what_came_before_stream_time_was_known_belongs_to_the_first_day() -> None:
    at_once, later = Distribution(), Distribution()
    for day in range(100, 100 + RECENT + 3):
        for n in range(10):
            at_once.observe(n / 10.0, day * DAY_MS)
            later.observe(n / 10.0, 0 if day == 100 and n < 2 else day * DAY_MS)
    assert later.encode() == at_once.encode()
