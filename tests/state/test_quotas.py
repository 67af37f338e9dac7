"""Quotas: what is refused, what is not, and that nothing but the records of one topic decides it."""

import pytest

from state import kinds
from state.events import Calibrated, Event, Forecast, Outcome, Output, Rejected, Resolved
from state.fence import FORECAST_DEAD, FORECASTS, IMPLIED, OUTCOME_DEAD, OUTCOMES
from state.policies import Policies
from state.policy import Policy
from state.quotas import LETTERS, REFUSED, REFUSED_ID, SHARED, Buckets, Clocks, Quota, Rate
from state.witnesses import SLACK
from tests.state.histories import Worker

START = 1_700_000_000_000
SECOND = 1000


def worker(quota: Quota | None = None, rest: Quota | None = None, **policy: object) -> Worker:
    """Return a worker of stream ``s``, of ``open`` under a pattern without a quota, and of any other."""
    patterns = [("s", Policy("histogram", quota=quota, **policy)), ("open", Policy("histogram"))]  # type: ignore[arg-type]
    return Worker(Policies(patterns, Policy("histogram"), quota=rest))


class Sender:
    """Gives records of both topics the next offset, a millisecond apart."""

    def __init__(self, now: int = START) -> None:
        self.now = now
        self.offsets = [-1, -1]

    def _place(self, topic: int) -> tuple[int, bytes]:
        self.now += 1
        self.offsets[topic] += 1
        return self.offsets[topic], b"k"

    def forecast(self, event_id: str, stream: str = "s", p: float = 0.25, ts: int = 0) -> Forecast:
        return Forecast(*self._place(FORECASTS), event_id, stream, p, (), ts or self.now, b"value")

    def outcome(self, event_id: str, y: float = 1.0, ts: int = 0) -> Outcome:
        return Outcome(*self._place(OUTCOMES), event_id, y, ts or self.now, b"value")

    def junk(self, topic: int = FORECASTS, stream: str = "", reason: str = "not_json", ts: int = 0) -> Rejected:
        return Rejected(*self._place(topic), b"junk", topic, reason, stream, ts or self.now)


def letters(outputs: list[Output]) -> list[tuple[int, str, bool]]:
    return [(each.offset, each.reason, each.withheld) for each in outputs if isinstance(each, Rejected)]


def answered(outputs: list[Output]) -> list[str]:
    return [each.event_id for each in outputs if isinstance(each, Calibrated)]


def test_a_stream_has_as_many_records_as_its_rate_and_then_as_many_as_time_brings() -> None:
    one, send = worker(Quota(records=Rate(3, SECOND))), Sender()
    first = one.fold(*[send.forecast(f"a{i}") for i in range(5)])
    assert answered(first.outputs) == ["a0", "a1", "a2"]
    assert letters(first.outputs) == [(3, REFUSED, False), (4, REFUSED, False)]
    assert first.refused == {"s": 2}
    assert first.fates[FORECAST_DEAD] == 2
    send.now += 700  # .7 s bring two more, not three
    assert answered(one.fold(*[send.forecast(f"b{i}") for i in range(4)]).outputs) == ["b0", "b1"]
    send.now += 60 * SECOND  # and a minute no more than the bucket holds
    assert len(answered(one.fold(*[send.forecast(f"c{i}") for i in range(9)]).outputs)) == 3


def test_other_streams_are_answered_beside_one_that_floods() -> None:
    one, send = worker(Quota(records=Rate(1, 86_400_000))), Sender()
    events: list[Event] = []
    for i in range(50):
        events += [send.forecast(f"s{i}"), send.forecast(f"o{i}", "open"), send.forecast(f"d{i}", "default")]
    outputs = one.fold(*events).outputs
    assert len(answered(outputs)) == 1 + 50 + 50
    assert len(letters(outputs)) == 49


def test_what_is_sent_again_takes_of_the_records_and_not_of_the_new_ids() -> None:
    one, send = worker(Quota(ids=Rate(1, 86_400_000))), Sender()
    outputs = one.fold(*[send.forecast("a") for _ in range(5)], send.forecast("b")).outputs
    assert answered(outputs) == ["a"] * 5
    assert letters(outputs) == [(5, REFUSED_ID, False)]


def test_a_refused_forecast_may_be_sent_again_with_the_same_id() -> None:
    one, send = worker(Quota(ids=Rate(1, SECOND))), Sender()
    assert letters(one.fold(send.forecast("a"), send.forecast("b")).outputs) == [(1, REFUSED_ID, False)]
    send.now += SECOND
    assert answered(one.fold(send.forecast("b")).outputs) == ["b"]


def test_the_first_outcome_of_a_forecast_is_never_refused() -> None:
    tight = Quota(Rate(2, 86_400_000), Rate(2, 86_400_000), Rate(1, 86_400_000))
    one, send = worker(tight, tight), Sender()
    one.fold(send.forecast("a"), send.forecast("b"))
    one.fold(*[send.outcome(f"unknown-{i}") for i in range(9)])
    outputs = one.fold(send.outcome("a"), send.outcome("b")).outputs
    assert [each.event_id for each in outputs if isinstance(each, Resolved)] == ["a", "b"]


def test_the_first_outcome_is_not_refused_where_silence_has_labelled_the_event() -> None:
    one, send = worker(Quota(records=Rate(2, 86_400_000)), ttl_ms=10**9, matures_ms=100, silence=0.0), Sender()
    one.fold(*[send.forecast(f"o{i}", "open") for i in range(3)], send.forecast("a"))
    send.now += 1000
    one.fold(send.forecast("b"))
    assert one.table.fence.fates[IMPLIED] == 1
    outputs = one.fold(send.outcome("a", 1.0), send.outcome("a", 0.0), send.outcome("a", 1.0), send.outcome("a", 0.0))
    said = [each.y for each in outputs.outputs if isinstance(each, Resolved)]
    assert said == [1.0, 0.0, 1.0]  # the label, and as many corrections as the quota has room for
    assert letters(outputs.outputs) == [(3, REFUSED, False)]


def test_outcomes_that_come_again_take_of_their_own_records() -> None:
    one, send = worker(Quota(records=Rate(2, 86_400_000))), Sender()
    one.fold(send.forecast("a"), send.forecast("b"), send.forecast("c"))
    effects = one.fold(*[send.outcome("a") for _ in range(5)])
    assert letters(effects.outputs) == [(3, REFUSED, False), (4, REFUSED, False)]
    assert effects.refused == {"s": 2}
    assert effects.fates[OUTCOME_DEAD] == 2


def test_outcomes_of_unknown_events_are_bounded_by_the_quota_of_the_rest() -> None:
    one, send = worker(rest=Quota(ids=Rate(2, SECOND))), Sender()
    effects = one.fold(*[send.outcome(f"x{i}") for i in range(4)], *[send.outcome("x0") for _ in range(3)])
    assert letters(effects.outputs) == [(2, REFUSED_ID, False), (3, REFUSED_ID, False)]
    assert effects.refused == {"": 2}
    assert one.table.fence.early == 2


def test_streams_that_no_pattern_matches_share_one_quota() -> None:
    one, send = worker(rest=Quota(ids=Rate(3, 86_400_000))), Sender()
    outputs = one.fold(*[send.forecast(f"e{i}", f"made-up-{i}") for i in range(6)]).outputs
    assert answered(outputs) == ["e0", "e1", "e2"]
    assert set(one.table.of(kinds.QUOTA.letter)) == {kinds.QUOTA.letter, kinds.QUOTA.key(SHARED)}


def test_dead_letters_beyond_the_rate_say_where_their_record_stands() -> None:
    one, send = worker(rest=Quota(dead_letters=Rate(2, SECOND))), Sender()
    effects = one.fold(*[send.junk() for _ in range(5)])
    assert letters(effects.outputs) == [(i, "not_json", i > 1) for i in range(5)]
    assert effects.withheld == 3
    # Nothing else has to come for time to pass.
    send.now += SECOND
    assert [withheld for _, _, withheld in letters(one.fold(*[send.junk() for _ in range(4)]).outputs)] == [
        False,
        False,
        True,
        True,
    ]


def test_dead_letters_of_a_stream_that_could_be_read_are_its_own() -> None:
    one, send = worker(Quota(dead_letters=Rate(1, 86_400_000)), Quota(dead_letters=Rate(2, 86_400_000))), Sender()
    flood = [send.junk(stream="s", reason="probability") for _ in range(5)]
    outputs = one.fold(*flood, send.junk(), send.junk(stream="open"), send.junk()).outputs
    assert [withheld for _, _, withheld in letters(outputs)] == [False, True, True, True, True, False, False, False]


@pytest.mark.parametrize("reason", ["batch", "skipped"])
def test_letters_that_stand_for_other_records_are_always_whole(reason: str) -> None:
    one, send = worker(rest=Quota(dead_letters=Rate(1, 86_400_000))), Sender()
    outputs = one.fold(*[send.junk(reason=reason) for _ in range(5)]).outputs
    assert not any(withheld for _, _, withheld in letters(outputs))


def test_without_quotas_there_is_no_row_of_them() -> None:
    one, send = worker(), Sender()
    one.fold(send.forecast("a"), send.outcome("a"), send.outcome("x"), send.junk())
    assert not one.table.of(kinds.QUOTA.letter)


def test_outcomes_do_not_change_what_becomes_of_forecasts() -> None:
    """An audit knows how answered forecasts stand among outcomes, and of refused ones it does not."""
    quota = Quota(Rate(2, SECOND), Rate(2, SECOND), Rate(1, SECOND))
    forecasts = [Forecast(i, b"k", f"a{i}", "s", 0.25, (), START + i * 200, b"value") for i in range(40)]
    outcomes = [Outcome(i, b"k", f"x{i}", 1.0, START + i * 900, b"value") for i in range(30)]
    mixed = [each for pair in zip(forecasts, outcomes, strict=False) for each in pair] + list(forecasts[30:])
    one, other, third = worker(quota, quota), worker(quota, quota), worker(quota, quota)
    first = one.fold(*forecasts).outputs + one.fold(*outcomes).outputs
    second = other.fold(*outcomes).outputs + other.fold(*forecasts).outputs
    last = third.fold(*mixed).outputs
    assert sorted(map(str, letters(first))) == sorted(map(str, letters(second))) == sorted(map(str, letters(last)))
    assert answered(first) == answered(second) == answered(last)


def test_one_clock_that_runs_ahead_stops_no_bucket_for_long() -> None:
    one, send = worker(Quota(records=Rate(5, SECOND))), Sender()
    one.fold(*[send.forecast(f"a{i}") for i in range(3)])
    one.fold(send.forecast("ahead", ts=send.now + 400 * 86_400 * SECOND))
    send.now += SLACK
    one.fold(*[send.forecast(f"b{i}") for i in range(5)])
    send.now += SECOND
    assert len(answered(one.fold(*[send.forecast(f"c{i}") for i in range(9)]).outputs)) == 5


def test_a_first_record_far_ahead_is_not_believed() -> None:
    clocks = Clocks()
    for ts in (START + 10**12, START, START + 10**12):
        clocks.move(FORECASTS, ts)
    assert clocks.now[FORECASTS] == START + SLACK
    clocks.move(FORECASTS, START - 10**12)
    assert clocks.now[FORECASTS] == START + SLACK


def test_made_up_times_claim_no_years_of_tokens() -> None:
    one, send = worker(Quota(records=Rate(2, SECOND))), Sender()
    one.fold(*[send.forecast(f"o{i}", "open") for i in range(5)])
    old = [send.forecast(f"a{i}", ts=1000 + i * 86_400 * SECOND) for i in range(30)]
    assert len(answered(one.fold(*old).outputs)) == 2


def test_a_bucket_that_is_read_under_another_rate_holds_no_more_than_it() -> None:
    full = Buckets(Quota(dead_letters=Rate(100, SECOND)))
    smaller = Buckets(Quota(dead_letters=Rate(2, SECOND)), full.encode())
    for _ in range(2):
        assert smaller.has(LETTERS)
        smaller.take(LETTERS)
    assert not smaller.has(LETTERS)
    # What had no rate is full under any.
    assert Buckets(Quota(records=Rate(7, SECOND)), full.encode())._levels[0] == 7 * 86_400_000


def test_more_streams_than_are_kept_in_memory_have_the_same_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state.quotas._CACHED", 3)
    quota = Quota(ids=Rate(1, 86_400_000))
    one, send = Worker(Policies([("*", Policy("histogram", quota=quota))])), Sender()
    for _ in range(3):
        for i in range(9):
            one.fold(send.forecast(f"e{send.offsets[0]}", f"stream-{i}"))
    assert one.table.fence.fates[FORECAST_DEAD] == 18
