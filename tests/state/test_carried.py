"""What goes through the engine untouched: what forecasts carry, and the forecast of a dead letter."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from state.events import Calibrated, Carried, Forecast, Output, Rejected
from state.policies import Policies
from state.policy import Policy
from tests.state.histories import STEADY, Worker

START = 1_700_000_000_000


def policies(on_error: str = "none") -> Policies:
    return Policies([("s", Policy("histogram", on_error=on_error))], Policy("histogram"))


def forecast(offset: int, event_id: str = "e", stream: str = "s", p: float = 0.25) -> Forecast:
    carried = Carried((("traceparent", b"%d" % offset),), b'{"n":%d}' % offset)
    return Forecast(offset, b"k", event_id, stream, p, (), START + offset, b"value", (), carried)


def test_what_is_carried_changes_no_row() -> None:
    one, other = Worker(policies()), Worker(policies("raw"))
    effects = one.fold(forecast(0), forecast(1, "f", "t"))
    assert effects.rows == other.fold(forecast(0)._replace(carried=None), forecast(1, "f", "t")).rows


def test_no_dead_letter_holds_its_forecast_where_none_is_answered() -> None:
    outputs = Worker(policies()).fold(*[forecast(i, f"e{i % 4}", p=i / 9) for i in range(9)]).outputs
    assert {each.forecast for each in outputs if isinstance(each, Rejected)} == {None}


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
