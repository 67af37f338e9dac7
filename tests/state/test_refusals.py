"""What became of refused records is remembered for as long as they may come again, and no longer."""

import random

import pytest

from state.fence import FORECASTS, OUTCOMES
from state.frames import CorruptFrame, seal, unseal
from state.keys import REFUSALS
from state.refusals import RECORD_BYTES, REFUSED, REFUSED_ID, VERSION, WITHHELD, Refusals


def stored(refusals: Refusals, applied: int) -> bytes:
    row = refusals.changes(applied)[REFUSALS]
    assert row == refusals.encode()
    assert row is not None
    return row


def test_marks_are_told_again_after_a_restart() -> None:
    refusals = Refusals(100)
    marks = {(FORECASTS, 7): REFUSED, (FORECASTS, 8): REFUSED | WITHHELD, (OUTCOMES, 7): REFUSED_ID, (OUTCOMES, 9): 4}
    for applied, ((topic, offset), mark) in enumerate(marks.items()):
        refusals.add(topic, offset, mark, applied)
    again = Refusals(100, stored(refusals, 4))
    for each in (refusals, again):
        assert {place: each.mark(*place) for place in marks} == marks
        assert [each.mark(topic, offset) for topic in (0, 1) for offset in (0, 6, 10, 10**9)] == [0] * 8
    assert again.mark(OUTCOMES, 8) == 0


def test_what_cannot_come_again_is_forgotten() -> None:
    refusals = Refusals(10)
    refusals.add(FORECASTS, 1, REFUSED, 1)
    refusals.add(FORECASTS, 5, REFUSED, 5)
    stored(refusals, 11)
    assert (refusals.mark(FORECASTS, 1), refusals.mark(FORECASTS, 5)) == (0, REFUSED)
    assert refusals.changes(12) == {}
    assert refusals.changes(15) == {REFUSALS: None}
    assert refusals.changes(16) == {}


def test_batches_do_not_show_in_the_row() -> None:
    rng = random.Random(4)
    one, many = Refusals(9), Refusals(9)
    offsets = [0, 0]
    for applied in range(1, 500):
        topic = rng.randrange(2)
        offsets[topic] += 1
        if rng.random() < 0.4:
            one.add(topic, offsets[topic], REFUSED, applied)
            many.add(topic, offsets[topic], REFUSED, applied)
        one.changes(applied)
        if not applied % 7:
            many.changes(applied)
    one.add(FORECASTS, 1000, REFUSED, 500)
    many.add(FORECASTS, 1000, REFUSED, 500)
    assert one.changes(500) == many.changes(500)


@pytest.mark.parametrize("gap", [1, 3, 1000])
def test_the_row_has_no_more_room_than_settings_leave_for_it(gap: int) -> None:
    held = 8000
    refusals = Refusals(held)
    for i in range(3 * held):  # the worst: no two records that follow each other have the same mark
        refusals.add(i % 2, gap * i, (REFUSED, WITHHELD)[i // 2 % 2], i)
    assert len(stored(refusals, 3 * held)) <= held * RECORD_BYTES


def test_a_flood_of_any_length_is_one_run() -> None:
    refusals = Refusals(8000)
    for i in range(100_000):
        refusals.add(FORECASTS, 5_000_000_000 + i, REFUSED, 90_000_000_000 + i)
    row = stored(refusals, 90_000_100_000)
    assert len(row) < 50
    assert Refusals(8000, row).mark(FORECASTS, 5_000_099_999) == REFUSED


@pytest.mark.parametrize("change", [lambda p: p[:-1], lambda p: p + b"\0", lambda p: p[:4], lambda p: p[:-1] + b"\xff"])
def test_a_damaged_row_is_refused(change: object) -> None:
    refusals = Refusals(10)
    refusals.add(FORECASTS, 300, REFUSED, 1)
    payload = unseal(REFUSALS[0], VERSION, stored(refusals, 1))
    with pytest.raises(CorruptFrame):
        Refusals(10, seal(REFUSALS[0], VERSION, change(payload)))  # type: ignore[operator]
