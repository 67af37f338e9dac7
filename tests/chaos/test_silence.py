"""What counts as silence: a forecast was acknowledged, and its partition answers nothing."""

from tests.chaos.feed import Acknowledged
from tests.chaos.silence import Silence, longest, silences


def seconds(forecasts: str, answers: list[tuple[str, float]], acknowledged: list[Acknowledged]) -> list[float]:
    """Return the silences of forecasts named by a letter each, in order of offsets."""
    found = silences(list(enumerate(forecasts)), answers, acknowledged)
    return [round(each.seconds, 6) for each in found]


def test_a_wait_begins_at_the_acknowledgement_and_ends_with_the_answer() -> None:
    assert seconds("a", [("a", 12.5)], [Acknowledged(0, 10.0)]) == [2.5]


def test_a_partition_that_answers_others_meanwhile_is_not_silent() -> None:
    acknowledged = [Acknowledged(2, 10.0)]
    assert seconds("abc", [("a", 11.0), ("b", 13.0), ("c", 14.0)], acknowledged) == [1.0, 2.0, 1.0]


def test_a_load_that_pauses_is_no_silence() -> None:
    assert seconds("ab", [("a", 10.1), ("b", 60.2)], [Acknowledged(0, 10.0), Acknowledged(1, 60.0)]) == [0.1, 0.2]


def test_copies_and_answers_before_the_acknowledgement_say_nothing() -> None:
    answers = [("a", 9.9), ("a", 30.0), ("b", 31.0)]
    assert seconds("aba", answers, [Acknowledged(0, 10.0), Acknowledged(2, 30.5)]) == [0.0, 0.5]


def test_a_forecast_that_nobody_acknowledged_was_not_waited_for() -> None:
    assert seconds("ab", [("a", 11.0), ("b", 90.0)], [Acknowledged(0, 10.0)]) == [1.0]


def test_a_fault_has_what_of_the_silences_lies_in_its_time() -> None:
    found = [Silence(0.0, 9.0), Silence(9.5, 12.0), Silence(14.0, 15.0), Silence(21.0, 40.0)]
    assert longest(found, 10.0, 20.0) == 2.0
    assert longest(found, 11.5, 20.0) == 1.0
    assert longest(found, 10.0, 24.0) == 3.0, "the rest is of the fault that follows"
    assert longest(found, 15.5, 20.5) == 0.0
