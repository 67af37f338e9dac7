"""Rows of calibrators and scores, and keys."""

from typing import Any

import pytest

from state import kinds
from state.frames import CorruptFrame
from state.policy import Policy
from state.served import Served


def served(spec: str, lessons: list[tuple[float, float]]) -> Served:
    made = Served.fresh(Policy(spec).recipe, "stream")
    for t, (p, y) in enumerate(lessons):
        made.calibrator.update(made.calibrator.predict(p, (), b"%d" % t).ticket, y)
        made.late += t
    return made


@pytest.mark.parametrize(("late", "learnt", "outstanding"), [(0, 0, 0), (0, 5, 0), (1, 5, 1), (5, 5, 1), (6, 5, 2)])
def test_outstanding_is_the_mean_rounded_up(late: int, learnt: int, outstanding: int) -> None:
    one = served("identity", [(0.5, 0.0)] * learnt)
    one.late = late
    assert one.outstanding == outstanding


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("minimax", {"grid": 7}),
        ("histogram", {"bins": 8}),
        ("multiclass", {"classes": 4}),
        ("quantile", {"levels": (0.2, 0.9)}),
    ],
)
def test_state_that_does_not_fit_its_recipe_is_refused(spec: str, options: dict[str, Any]) -> None:
    one = served(spec, [])
    one.recipe = Policy(spec, options).recipe
    with pytest.raises(CorruptFrame, match=r"does not fit|bytes"):
        kinds.CALIBRATOR.decode(kinds.CALIBRATOR.encode(one), "stream")
