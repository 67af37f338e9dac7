"""What is said of a recovery, on a clock that the test moves."""

import pytest

from streams.faust.progress import EVERY, WINDOW, Progress


def test_a_line_is_due_every_few_seconds_and_says_how_far_how_fast_and_how_long() -> None:
    progress = Progress()
    assert progress.look(1000, 50.0) is None
    progress.restored(200)
    assert progress.look(750, 50.0 + EVERY / 2) is None
    progress.restored(200)
    line = progress.look(500, 50.0 + EVERY)
    assert line == "restoring: 500 of 1,000 offsets (50%), 80 rows/s, 5 s left"
    assert progress.look(499, 50.0 + EVERY * 1.5) is None
    assert progress.look(498, 50.0 + EVERY * 2) is not None


def test_the_end_is_told_once_with_all_rows_of_this_recovery() -> None:
    progress = Progress()
    for again in range(2):
        at = 100.0 * again
        progress.look(None, at)
        progress.look(1000, at + 0.25)
        progress.restored(600)
        progress.look(400, at + 1)
        progress.restored(400)
        assert progress.look(None, at + 4) == "restored 1,000 rows in 4.0 s, 250 rows/s"
        assert progress.look(None, at + 5) is None
        assert (progress.rows, progress.left, progress.seconds_left) == (1000 * (again + 1), 0, None)
        assert progress.seconds == 4.0


def test_a_recovery_that_was_over_between_two_looks_is_told_too() -> None:
    progress = Progress()
    assert progress.look(None, 1.0) is None
    progress.restored(50)
    assert progress.look(None, 1.5) == "restored 50 rows in 0.5 s, 100 rows/s"
    assert progress.look(None, 2.0) is None


def test_a_recovery_without_rows_says_nothing() -> None:
    progress = Progress()
    assert [progress.look(left, now) for left, now in ((None, 0.0), (0, 1.0), (None, 20.0))] == [None] * 3
    assert (progress.rows, progress.left, progress.seconds_left) == (0, 0, None)


def test_the_time_left_is_not_known_while_nothing_moves() -> None:
    progress = Progress()
    progress.look(1000, 0.0)
    assert progress.look(1000, EVERY) == "restoring: 0 of 1,000 offsets (0%), 0 rows/s, time left not known"
    assert progress.seconds_left is None


def test_the_rate_is_that_of_late_not_of_the_whole_recovery() -> None:
    progress = Progress()
    progress.look(10_000, 0.0)
    progress.look(9_000, 1.0)
    for second in range(2, int(WINDOW) + 3):
        progress.look(9_000 - 10 * (second - 1), float(second))
    assert progress.seconds_left == pytest.approx(progress.left / 10, rel=0.01)


def test_partitions_that_join_add_to_what_there_is_to_do() -> None:
    progress = Progress()
    progress.look(0, 0.0)  # the ends of the changelog are not known yet
    progress.look(1000, 1.0)
    progress.look(600, 2.0)
    line = progress.look(1600, EVERY)
    assert line is not None
    assert line.startswith("restoring: 400 of 2,000 offsets (20%)")
