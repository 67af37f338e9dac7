"""Rows of calibrators and scores, and keys."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import keys, rows
from state.calibrators import REGISTRY
from state.frames import CorruptFrame, seal, unseal
from state.policy import Policy
from state.rows import Served
from state.scoring.history import WINDOW, History
from tests.state.histories import STEADY

SPECS = [*REGISTRY, "platt+minimax", "minimax+regret_matching"]
LESSONS = st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0.0, 1.0])), max_size=20)
Lessons = list[tuple[float, float]]


def served(spec: str, lessons: Lessons) -> Served:
    made = Served.fresh(Policy(spec).recipe, "stream")
    for t, (p, y) in enumerate(lessons):
        made.calibrator.update(made.calibrator.predict(p, (), b"%d" % t).ticket, y)
        made.late += t
    return made


@pytest.mark.parametrize("spec", SPECS)
def test_decoded_calibrator_goes_on_bit_for_bit(spec: str) -> None:
    @STEADY
    @given(LESSONS)
    def holds(lessons: Lessons) -> None:
        one = served(spec, lessons)
        other = rows.decode_calibrator(rows.encode_calibrator(one), "stream")
        assert (other.recipe, other.late, other.outstanding) == (one.recipe, one.late, one.outstanding)
        for each in (one, other):
            each.calibrator.update(each.calibrator.predict(0.3, (), b"next").ticket, 1.0)
        assert other.calibrator.predict(0.6, (), b"last") == one.calibrator.predict(0.6, (), b"last")
        assert rows.encode_calibrator(other) == rows.encode_calibrator(one)

    holds()


def test_calibrator_row_has_the_documented_layout() -> None:
    one = served("identity", [(0.5, 1.0)] * 3)
    recipe = Policy("identity").recipe.encode()
    payload = unseal(ord("C"), rows.CALIBRATOR_VERSION, rows.encode_calibrator(one))
    assert payload == pack("<HQQ", len(recipe), 3, 0) + recipe + pack("<Q", 3)


def test_row_rebuilds_the_calibrator_it_was_made_by() -> None:
    recipe = Policy("minimax", {"grid": 7, "spacing": "uniform"}, seed=9).recipe
    one = Served.fresh(recipe, "stream")
    other = rows.decode_calibrator(rows.encode_calibrator(one), "stream")
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
    frame = rows.encode_scores(history)
    assert rows.decode_history(frame, None).present == history.present
    again = rows.decode_history(frame, None)
    assert (again.total, again.windows) == (history.total, 0)
    assert rows.encode_scores(again) == frame


def test_closed_windows_have_a_row_of_their_own() -> None:
    history = History()
    closed = [t for t in range(2 * WINDOW + 1) if history.observe(0.9, t % 10 / 10, float(t % 3 == 0), t % 10 / 10)]
    assert closed == [WINDOW - 1, 2 * WINDOW - 1]
    scores, windows = rows.encode_scores(history), rows.encode_windows(history)
    again = rows.decode_history(scores, windows)
    assert (again.total, again.last, again.worst("raw")) == (history.total, history.last, history.worst("raw"))
    assert (rows.encode_scores(again), rows.encode_windows(again)) == (scores, windows)
    with pytest.raises(ValueError, match="came with the closed ones of 0"):
        rows.decode_history(scores, None)


@STEADY
@given(st.sampled_from(SPECS), LESSONS, st.data())
def test_cut_or_changed_calibrator_row_is_refused(spec: str, lessons: Lessons, data: st.DataObject) -> None:
    frame = rows.encode_calibrator(served(spec, lessons))
    at = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(CorruptFrame):
        rows.decode_calibrator(frame[:at], "stream")
    with pytest.raises(CorruptFrame):
        rows.decode_calibrator(frame[:at] + bytes((frame[at] ^ 2,)) + frame[at + 1 :], "stream")


def test_cut_or_changed_scores_row_is_refused() -> None:
    frame = rows.encode_scores(History())
    for at in range(len(frame)):
        with pytest.raises(CorruptFrame):
            rows.decode_history(frame[:at], None)
        with pytest.raises(CorruptFrame):
            rows.decode_history(frame[:at] + b"\x7f" + frame[at + 1 :], None)


def test_rows_of_another_version_or_kind_are_refused() -> None:
    calibrator, scores = rows.encode_calibrator(served("identity", [])), rows.encode_scores(History())
    with pytest.raises(CorruptFrame, match="a 'C' row has format version 8"):
        rows.decode_calibrator(seal(ord("C"), rows.CALIBRATOR_VERSION + 1, calibrator[2:-4]), "stream")
    with pytest.raises(CorruptFrame, match="a 'S' row has format version 5"):
        rows.decode_history(seal(ord("S"), rows.SCORES_VERSION + 1, scores[2:-4]), None)
    with pytest.raises(CorruptFrame, match="found a 'S' row where a 'C' row belongs"):
        rows.decode_calibrator(scores, "stream")
    with pytest.raises(CorruptFrame, match="found a 'C' row where a 'S' row belongs"):
        rows.decode_history(calibrator, None)


def test_state_that_does_not_fit_its_recipe_is_refused() -> None:
    one = served("minimax", [(0.5, 1.0)])
    one.recipe = Policy("minimax", {"grid": 7}).recipe
    with pytest.raises(ValueError, match=r"state of .* does not fit"):
        rows.decode_calibrator(rows.encode_calibrator(one), "stream")


def test_kinds_of_rows_have_letters_of_their_own() -> None:
    made = [keys.FENCE, keys.ledger("e"), keys.calibrator("s", "00000001"), keys.scores("s"), keys.expiry(0, 1, 1)]
    made += [keys.ages("s"), keys.distribution("s"), keys.names("s", b"\0" * 4), keys.segment("s", b"\0" * 4, 1)]
    assert [key[:1] for key in made] == [b"F", b"L", b"C", b"S", b"Q", b"A", b"D", b"N", b"G"]


@STEADY
@given(st.text("ab\x00é", min_size=1), st.text("ab\x00é", min_size=1))
def test_different_events_and_streams_have_different_keys(one: str, other: str) -> None:
    for key in (keys.ledger, keys.scores, lambda stream: keys.calibrator(stream, "00000001")):
        assert (key(one) == key(other)) == (one == other)
