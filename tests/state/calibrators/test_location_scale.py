"""Shift and scale of laws before their levels move: far off, far too narrow, by evidence, with atoms, under delay."""

import math
import random
from collections import deque

import pytest

from state.calibrators.location_scale import (
    FEWEST,
    MOST_SCALE,
    RAW_PLACE,
    WINDOW,
    LastNumbers,
    LocationScale,
    offset,
    units,
)
from state.calibrators.quantile import OVERLAP, Quantile
from state.forecasts import Law, Normal, Quantiles
from tests.state.calibrators.numbers import NORMAL, RAIN, SKEWED, Event, loss, loss_of, off, serve


def served(law: Law, late: int = 0) -> tuple[float, float, int]:
    """Serve standard normal outcomes; return the error of coverage, loss through the truth's, and saturated answers."""
    rng, calibrator = random.Random(1), Quantile()
    events: list[Event] = [(law, (), rng.gauss(0.0, 1.0)) for _ in range(10_000)]
    answers = serve(calibrator, events, late)
    return off(events, answers), loss(events, answers) / loss_of(NORMAL, events), calibrator.saturated()


@pytest.mark.parametrize("law", [Normal(8.0, 1.0), Normal(-8.0, 1.0), Normal(0.0, 0.1), Normal(0.0, 10.0)])
def test_what_is_served_is_calibrated_where_the_model_is_far_off(law: Law) -> None:
    error, loss, saturated = served(law)
    assert error <= 0.03
    assert loss <= 1.1
    assert saturated < 100


@pytest.mark.parametrize("late", [0, 100, 2000])
def test_right_forecasts_lose_less_than_a_hundredth(late: int) -> None:
    assert served(Normal(0.0, 1.0), late=late)[1] <= 1.01


def test_without_evidence_the_law_stays() -> None:
    """Also where outcomes are far off: the fewest outcomes come first, then the loss of what would have been served."""
    place = LocationScale()
    law = Normal(0.0, 1.0)
    tickets = [place.issue()] * (FEWEST - 1)
    for ticket in tickets:
        place.update(LocationScale.ticket.unpack(ticket), law, units(law), 8.0, 1.0)
        assert place.mixed == RAW_PLACE


def test_a_law_with_an_atom_is_not_moved() -> None:
    place, rng = LocationScale(), random.Random(2)
    assert units(RAIN).spread == 0.0
    for _ in range(100):
        place.update(LocationScale.ticket.unpack(place.issue()), RAIN, units(RAIN), rng.random(), 1.0)
    assert (place.learnt, place.mixed) == (0, RAW_PLACE)
    assert offset((5.0, 2.0), units(RAIN)) == (0.0, 1.0)


def test_a_law_of_rounded_numbers_is_moved() -> None:
    """Small atoms are those of rounding: a law whose values repeat here and there is moved as any other."""
    rounded = Quantiles((0.1, 0.15, 0.3, 0.375, 0.5, 0.625, 0.75, 0.9), (-2.0, -2.0, -1.0, 0.0, 0.0, 0.0, 1.0, 2.0))
    assert units(rounded).spread == 0.0  # 0 spans a quarter
    rounded = Quantiles((0.1, 0.15, 0.3, 0.45, 0.5, 0.6, 0.75, 0.9), (-2.0, -2.0, -1.0, 0.0, 0.0, 0.0, 1.0, 2.0))
    assert units(rounded).spread > 0.0


def test_late_outcomes_do_not_make_places_swing() -> None:
    """What is learnt is of raw laws, not of what was served: any delay ends at the same place."""
    law, rng = SKEWED, random.Random(3)
    ys = [law.ppf(rng.random()) * 2.0 + 40.0 for _ in range(3000)]
    for late in (0, 500):
        place, waiting, found = LocationScale(), deque[tuple[bytes, float]](), list[float]()
        for y in ys:
            waiting.append((place.issue(), y))
            if len(waiting) > late:
                ticket, known = waiting.popleft()
                place.update(LocationScale.ticket.unpack(ticket), law, units(law), known, 1.0 + late / OVERLAP)
                found.append(offset(place.mixed, units(law))[0])
        assert all(abs(c - 40.0) < 3.0 for c in found[-1000:])


def test_a_place_that_was_worse_for_long_comes_back() -> None:
    place, rng, law = LocationScale(), random.Random(4), Normal(0.0, 1.0)
    for t in range(6000):
        y = rng.gauss(0.0 if t < 5000 else 6.0, 1.0)
        place.update(LocationScale.ticket.unpack(place.issue()), law, units(law), y, 1.0)
        if t == 4999:
            before = offset(place.mixed, units(law))
    assert abs(before[0]) < 0.05
    assert abs(offset(place.mixed, units(law))[0] - 6.0) < 0.3


def test_extreme_outcomes_and_laws_stay_finite() -> None:
    place = LocationScale()
    for law in (Normal(0.0, 1e-100), Normal(1e100, 1e100), Quantiles((0.1, 0.9), (-1e100, 1e100)), Normal(0.0, 1.0)):
        for y in (1e100, -1e100, 0.0) * 30:
            place.update(LocationScale.ticket.unpack(place.issue()), law, units(law), y, 2.0)
            shift, scale = place.mixed
            assert math.isfinite(shift)
            assert 0.0 < scale <= MOST_SCALE


def test_window_has_the_quantiles_of_its_last_numbers() -> None:
    rng, window, numbers = random.Random(6), LastNumbers(), list[float]()
    for _ in range(3 * WINDOW):
        numbers.append(rng.choice((0.0, 1.0, rng.random())))
        window.add(numbers[-1])
        last = sorted(numbers[-WINDOW:])
        assert len(window) == len(last)
        assert (window.quantile(0.0), window.quantile(1.0)) == (last[0], last[-1])
        assert window.quantile(0.5) == pytest.approx((last[(len(last) - 1) // 2] + last[len(last) // 2]) / 2)
    assert LastNumbers(numbers[-WINDOW:]).spread() == window.spread()
