"""Losses: the proper ones are, and the others are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.scoring.losses import LOG_CLIP, NAMES, NOT_PROPER, PROPER, expected, named

UNIT = st.floats(0, 1)


@given(st.sampled_from(NAMES), UNIT, UNIT)
def test_no_forecast_costs_less_than_the_chance(name: str, chance: float, p: float) -> None:
    loss = named(name)
    assert expected(loss, chance, chance) <= expected(loss, p, chance) + 1e-9


@given(st.sampled_from(NAMES), UNIT, UNIT)
def test_losses_are_linear_in_the_outcome(name: str, p: float, y: float) -> None:
    if name != "brier":
        assert named(name)(p, y) == pytest.approx(expected(PROPER[name], p, y))  # type: ignore[index]  # one of NAMES


@pytest.mark.parametrize("name", NOT_PROPER)
def test_a_loss_that_is_not_proper_has_a_cheaper_lie_and_is_refused(name: str) -> None:
    loss, chance, lie = NOT_PROPER[name]
    assert expected(loss, lie, chance) < expected(loss, chance, chance)
    with pytest.raises(ValueError, match=f"'{name}' is not proper.*Kuleshov & Ermon 2017, Theorem 2"):
        named(name)


def test_an_unknown_loss_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="there are brier, log, misclassification"):
        named("brior")


def test_absolute_loss_prefers_silence_in_the_papers_example() -> None:
    # 001001...: the forecast 1/3 costs 4/9, the forecast 0 costs 1/3.
    loss = NOT_PROPER["absolute"][0]
    assert expected(loss, 1 / 3, 1 / 3) == pytest.approx(4 / 9)
    assert expected(loss, 0.0, 1 / 3) == pytest.approx(1 / 3)


def test_a_wrong_certainty_costs_a_finite_log_loss() -> None:
    assert named("log")(1.0, 0.0) == named("log")(1.0 - LOG_CLIP, 0.0) == pytest.approx(13.8155, abs=1e-4)


def test_either_label_costs_the_same_at_one_half() -> None:
    assert expected(named("misclassification"), 0.5, 0.5) == 0.5
    assert [named("misclassification")(0.5, y) for y in (0.0, 1.0)] == [1.0, 0.0]
