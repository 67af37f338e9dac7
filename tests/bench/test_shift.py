"""The shift of raw forecasts on a real year: seasons, weekends, nights and storms, and nothing that is broken."""

from lab import flights
from state.scoring.ages import DAY_MS
from state.scoring.distribution import SHIFTED, Distribution


def test_a_year_of_flights_in_which_nothing_is_broken_never_shifts_and_a_model_that_is_replaced_does() -> None:
    made = flights.load()
    found, day, worst = Distribution(), 0, 0.0
    for p, ms in zip(made.p.tolist(), made.forecast_ms.tolist(), strict=True):
        if ms // DAY_MS > day and found.comparable:
            worst = max(worst, found.shift())
        day = max(day, ms // DAY_MS)
        found.observe(p, day * DAY_MS)
    assert 0.0 < worst < 0.05
    for p in made.p[: len(made) // 320].tolist():
        found.observe(p / (p + 30.0 * (1.0 - p)), (day + 1) * DAY_MS)
    assert found.shift() > SHIFTED
