"""Options refuse what they do not take."""

import math

import pytest

from state.calibrators.options import Option, choice, increasing, integer, number, text

INTEGER = integer(5, 1, 9, "how many")
NUMBER = number(0.5, 0.0, 1.0, "how much")
CHOICE = choice("a", ("a", "b"), "which")
POINTS = increasing(3, "where")
PAIRS = increasing(3, "where", least=2)
TEXT = text("a", "what")


@pytest.mark.parametrize(
    ("option", "values"),
    [
        (INTEGER, [1, 9]),
        (NUMBER, [0, 1, 0.25]),
        (CHOICE, ["a", "b"]),
        (POINTS, [(), (0.5,), [0.1, 0.2, 0.9]]),
        (PAIRS, [(), (0.1, 0.2), [0.1, 0.2, 0.9]]),
        (TEXT, ["", "b+c"]),
    ],
)
def test_option_takes_its_default_and_what_is_allowed(option: Option, values: list[object]) -> None:
    assert option.takes(option.default)
    assert all(option.takes(value) for value in values)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        (INTEGER, [0, 10, 5.0, True, "5", None]),
        (NUMBER, [-0.1, 1.1, math.nan, math.inf, True, "0.5", None]),
        (CHOICE, ["c", "", 1, None]),
        (PAIRS, [(0.5,), (0.1, 0.2, 0.3, 0.4)]),
        (TEXT, [1, None, b"a"]),
        (
            POINTS,
            [(0.0,), (1.0,), (0.5, 0.5), (0.9, 0.1), (0.1, 0.2, 0.3, 0.4), (math.nan,), (True,), "0.5", 0.5, None],
        ),
    ],
)
def test_option_refuses_anything_else(option: Option, values: list[object]) -> None:
    assert not any(option.takes(value) for value in values)
