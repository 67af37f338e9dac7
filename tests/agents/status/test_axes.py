"""Axes: ticks are round, in order, and within the axis."""

import math
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.status.axes import Linear, Log, LogOdds, TimeAxis

_DAY = 86_400_000


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_linear_ticks_are_few_in_order_and_on_the_axis(low: float, span: float) -> None:
    axis = Linear(low, low + span, 0.0, 100.0)
    ticks = [value for value, _ in axis.ticks()]
    assert 1 <= len(ticks) <= 7
    assert ticks == sorted(ticks)
    slack = 1e-6 * span + 4 * math.ulp(abs(low) + span)
    assert all(low - slack <= each <= low + span + slack for each in ticks)
    assert axis.at(low - 1) == 0.0
    assert axis.at(low + 2 * span + 1) == 100.0


@given(st.integers(-(10**12), 4 * 10**12), st.integers(1, 10**12))
def test_ticks_of_times_are_on_the_axis_and_said_apart(start: int, span: int) -> None:
    axis = TimeAxis(start, start + span, 0.0, 100.0)
    ticks = axis.ticks()
    assert len(ticks) <= 10
    assert [value for value, _ in ticks] == sorted({value for value, _ in ticks})
    assert all(start <= value <= start + span for value, _ in ticks)


@pytest.mark.parametrize(
    ("start", "days", "said"),
    [
        ("2013-02-01", 334, ["Mar 2013", "May", "Jul", "Sep", "Nov", "Jan 2014"]),
        ("2013-02-01", 10, ["2 Feb", "4 Feb", "6 Feb", "8 Feb", "10 Feb"]),
        ("2013-02-01", 1, ["1 Feb", "06:00", "12:00", "18:00", "2 Feb"]),
        ("2003-02-01", 3652, ["2004", "2006", "2008", "2010", "2012"]),
    ],
)
def test_times_are_said_in_the_calendar(start: str, days: int, said: list[str]) -> None:
    at = int(datetime.fromisoformat(f"{start}T00:00+00:00").timestamp() * 1000)
    assert [words for _, words in TimeAxis(at, at + days * _DAY, 0.0, 1.0).ticks()] == said


def test_powers_of_ten_are_evenly_apart() -> None:
    axis = Log(0.001, 1.0, 90.0, 0.0)
    assert [words for _, words in axis.ticks()] == ["0.001", "0.01", "0.1", "1"]
    assert [round(axis.at(value), 6) for value, _ in axis.ticks()] == [90.0, 60.0, 30.0, 0.0]
    assert axis.at(0.0) == 90.0
    assert axis.at(5.0) == 0.0


@given(st.lists(st.floats(1e-5, 1 - 1e-5), min_size=1))
def test_log_odds_hold_all_rates_between_ticks_that_are_named(rates: list[float]) -> None:
    axis = LogOdds.of(rates, 0.0, 100.0)
    assert axis.low <= min(rates)
    assert max(rates) <= axis.high
    places = [axis.at(value) for value, _ in axis.ticks()]
    assert places == sorted(set(places))
    assert len(places) <= 6
    assert axis.at(0.0) == axis.at(axis.low)
    assert LogOdds.of([0.004, 0.2], 0.0, 1.0).ticks() == [(0.003, "0.3 %"), (0.01, "1 %"), (0.03, "3 %"), (0.1, "10 %")]
