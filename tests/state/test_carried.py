"""What goes through the engine untouched: what forecasts carry, and the forecast of a dead letter."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from state.events import Calibrated, Carried, Event, Forecast, Output, Rejected
from state.fence import OUTCOMES
from state.policies import Policies
from state.policy import Policy
from tests.state.histories import STEADY, Worker

START = 1_700_000_000_000


def policies(on_error: str = "none") -> Policies:
    return Policies([("s", Policy("histogram", on_error=on_error))], Policy("histogram"))


def forecast(offset: int, event_id: str = "e", stream: str = "s", p: float = 0.25) -> Forecast:
    carried = Carried((("traceparent", b"%d" % offset),), b'{"n":%d}' % offset)
    return Forecast(offset, b"k", event_id, stream, p, (), START + offset, b"value", (), carried)


def carried(outputs: list[Output]) -> list[tuple[str, bytes]]:
    return [(each.event_id, each.carried.fields) for each in outputs if isinstance(each, Calibrated) and each.carried]


def refused(outputs: list[Output]) -> list[tuple[int, str, Forecast | None]]:
    return [(each.offset, each.reason, each.forecast) for each in outputs if isinstance(each, Rejected)]


def test_what_is_carried_changes_no_row() -> None:
    one, other = Worker(policies()), Worker(policies("raw"))
    effects = one.fold(forecast(0), forecast(1, "f", "t"))
    assert effects.rows == other.fold(forecast(0)._replace(carried=None), forecast(1, "f", "t")).rows


def test_what_conflicts_is_answered_with_its_own_score() -> None:
    worker = Worker(policies("raw"))
    events = [forecast(0), forecast(1, stream="t"), forecast(2, p=0.5)]
    outputs = worker.fold(*events).outputs
    assert refused(outputs) == [(1, "conflict", events[1]), (2, "conflict", events[2])]
    again = Worker(policies("raw"), worker.table).fold(*events).outputs
    assert again == outputs


def test_no_dead_letter_holds_its_forecast_where_none_is_answered() -> None:
    outputs = Worker(policies()).fold(*[forecast(i, f"e{i % 4}", p=i / 9) for i in range(9)]).outputs
    assert {letter for _, _, letter in refused(outputs)} == {None}


def test_an_outcome_that_is_refused_is_no_forecast() -> None:
    worker = Worker(Policies(default=Policy("histogram"), on_error="raw"))
    outcomes: list[Event] = [Rejected(i, b"k", b"junk", OUTCOMES, "label") for i in range(5)]
    assert {letter for _, _, letter in refused(worker.fold(*outcomes).outputs)} == {None}


@STEADY
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("st"), st.sampled_from([0.25, 0.5])), max_size=20),
    st.integers(1, 6),
)
def test_every_forecast_has_one_answer_and_it_is_its_own(sent: list[tuple[str, str, float]], size: int) -> None:
    known = policies("raw")
    known = known.changed(known.patterns, replace(Policy("histogram"), on_error="raw"))
    events = [forecast(i, *each) for i, each in enumerate(sent)]
    worker, told = Worker(known), list[Output]()
    for at in range(0, len(events), size):
        told += worker.fold(*events[at : at + size]).outputs

    def places(outputs: list[Output]) -> list[tuple[bytes, float]]:
        """Return which record each answer is of, by what it carries, and with what score."""
        found = []
        for output in outputs:
            answered = output.forecast if isinstance(output, Rejected) else output
            assert isinstance(answered, Calibrated | Forecast)
            assert answered.carried is not None
            assert isinstance(answered.raw, float)
            found.append((answered.carried.fields, answered.raw))
        return found

    assert places(told) == [(b'{"n":%d}' % i, p) for i, (_, _, p) in enumerate(sent)]


def test_a_stream_says_itself_whether_its_dead_forecasts_are_answered() -> None:
    known = Policies([("s", Policy("histogram", on_error="raw"))], Policy("histogram"))
    assert known.answering
    assert [known.answers_raw(stream) for stream in ("s", "t", "")] == [True, False, False]
    closed = Policies([("s", Policy("histogram"))], None, on_error="raw")
    assert closed.answering
    assert [closed.answers_raw(stream) for stream in ("s", "t", "")] == [False, True, True]
    assert not Policies([("s", Policy("histogram"))], Policy()).answering
