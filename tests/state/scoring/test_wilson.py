"""Wilson's interval beside published ones."""

import math

import pytest

from state.scoring.wilson import wilson


def test_the_interval_is_wilsons() -> None:
    # Newcombe (1998), Two-sided confidence intervals for the single proportion, Table I, method 3.
    for (r, n), (low, high) in {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }.items():
        assert list(wilson(r / n, n)) == pytest.approx([low, high], abs=5e-5)


def test_nothing_is_said_of_a_share_that_is_not_a_number() -> None:
    assert all(map(math.isnan, wilson(math.nan, math.nan)))
