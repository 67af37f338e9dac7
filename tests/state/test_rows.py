"""Rows of calibrators and scores, and keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import kinds
from state.policy import Policy
from state.scoring.history import WINDOW, History
from state.served import Served
from tests.state.histories import STEADY

LESSONS = st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0.0, 1.0])), max_size=20)
Lessons = list[tuple[float, float]]


def served(spec: str, lessons: Lessons) -> Served:
    made = Served.fresh(Policy(spec).recipe, "stream")
    for t, (p, y) in enumerate(lessons):
        made.calibrator.update(made.calibrator.predict(p, (), b"%d" % t).ticket, y)
        made.late += t
    return made


def test_row_rebuilds_the_calibrator_it_was_made_by() -> None:
    recipe = Policy("minimax", {"grid": 7, "spacing": "uniform"}, seed=9).recipe
    one = Served.fresh(recipe, "stream")
    other = kinds.CALIBRATOR.decode(kinds.CALIBRATOR.encode(one), "stream")
    assert other.recipe == recipe
    assert other.calibrator.predict(0.2).p == one.calibrator.predict(0.2).p == 1 / 7


@pytest.mark.parametrize(("late", "learnt", "outstanding"), [(0, 0, 0), (0, 5, 0), (1, 5, 1), (5, 5, 1), (6, 5, 2)])
def test_outstanding_is_the_mean_rounded_up(late: int, learnt: int, outstanding: int) -> None:
    one = served("identity", [(0.5, 0.0)] * learnt)
    one.late = late
    assert one.outstanding == outstanding


@STEADY
@given(LESSONS)
def test_decoded_scores_are_the_encoded_ones(lessons: Lessons) -> None:
    history = History()
    for p, y in lessons:
        history.observe(p, 1 - p, y, 1 - p)
    frame = kinds.SCORES.encode(history)
    assert kinds.history(frame, None).present == history.present
    again = kinds.history(frame, None)
    assert (again.total, again.windows) == (history.total, 0)
    assert kinds.SCORES.encode(again) == frame


def test_closed_windows_have_a_row_of_their_own() -> None:
    history = History()
    closed = [t for t in range(2 * WINDOW + 1) if history.observe(0.9, t % 10 / 10, float(t % 3 == 0), t % 10 / 10)]
    assert closed == [WINDOW - 1, 2 * WINDOW - 1]
    scores, windows = kinds.SCORES.encode(history), kinds.WINDOWS.encode(history)
    again = kinds.history(scores, windows)
    assert (again.total, again.last, again.worst("raw")) == (history.total, history.last, history.worst("raw"))
    assert (kinds.SCORES.encode(again), kinds.WINDOWS.encode(again)) == (scores, windows)
    with pytest.raises(ValueError, match="came with the closed ones of 0"):
        kinds.history(scores, None)


def test_state_that_does_not_fit_its_recipe_is_refused() -> None:
    one = served("minimax", [(0.5, 1.0)])
    one.recipe = Policy("minimax", {"grid": 7}).recipe
    with pytest.raises(ValueError, match=r"state of .* does not fit"):
        kinds.CALIBRATOR.decode(kinds.CALIBRATOR.encode(one), "stream")


@STEADY
@given(st.text("ab\x00é", min_size=1), st.text("ab\x00é", min_size=1))
def test_different_events_and_streams_have_different_keys(one: str, other: str) -> None:
    for kind, *more in ((kinds.LEDGER,), (kinds.SCORES,), (kinds.CALIBRATOR, "00000001")):
        assert (kind.key(one, *more) == kind.key(other, *more)) == (one == other)
