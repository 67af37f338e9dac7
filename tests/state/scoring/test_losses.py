"""Losses: all of them are proper."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.scoring.losses import LOG_CLIP, NAMES, PROPER, Loss, Name

UNIT = st.floats(0, 1)


def expected(loss: Loss, p: float, chance: float) -> float:
    """Return the expected loss of a forecast when the outcome is 1 with this chance, and 0 otherwise."""
    return (1.0 - chance) * loss(p, 0.0) + chance * loss(p, 1.0)


@given(st.sampled_from(NAMES), UNIT, UNIT)
def test_no_forecast_costs_less_than_the_chance(name: Name, chance: float, p: float) -> None:
    assert expected(PROPER[name], chance, chance) <= expected(PROPER[name], p, chance) + 1e-9


@given(st.sampled_from(NAMES), UNIT, UNIT)
def test_losses_are_linear_in_the_outcome(name: Name, p: float, y: float) -> None:
    if name != "brier":
        assert PROPER[name](p, y) == pytest.approx(expected(PROPER[name], p, y))


def test_a_wrong_certainty_costs_a_finite_log_loss() -> None:
    assert PROPER["log"](1.0, 0.0) == PROPER["log"](1.0 - LOG_CLIP, 0.0) == pytest.approx(13.8155, abs=1e-4)


def test_either_label_costs_the_same_at_one_half() -> None:
    loss = PROPER["misclassification"]
    assert expected(loss, 0.5, 0.5) == 0.5
    assert [loss(0.5, y) for y in (0.0, 1.0)] == [1.0, 0.0]
