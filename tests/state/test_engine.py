"""The engine: every case of the ledger, one at a time."""

from typing import Any

import pytest

from state import kinds, ledger, services
from state.effects import Effects
from state.engine import Partition
from state.events import Calibrated, Forecast, Outcome, Output, Rejected, Resolved
from state.expiry import CHUNK
from state.fence import EXPIRY, FATES, FORECASTS, ISSUED, OUTCOMES, Fence
from state.fold import SWEEP
from state.forecasts import PROBABILITY
from state.frames import CorruptFrame
from state.policies import Policies
from state.policy import Policy
from tests.holding import shown
from tests.state.histories import Table, Worker

pytestmark = pytest.mark.usefixtures("no_warm_up")

IDENTITY = Policy("identity", ttl_ms=100)
OPEN = Policies(default=IDENTITY, early_ttl_ms=50)


def forecast(
    offset: int, event_id: str = "e", p: float = 0.7, ts: int = 1000, stream: str = "s", x: tuple[float, ...] = ()
) -> Forecast:
    return Forecast(offset, event_id.encode(), event_id, stream, p, x, ts)


def outcome(offset: int, event_id: str = "e", y: float = 1.0, ts: int = 1010) -> Outcome:
    return Outcome(offset, event_id.encode(), event_id, y, ts)


def dead(offset: int, topic: int = FORECASTS, reason: str = "not_json") -> Rejected:
    return Rejected(offset, b"k", b"junk", topic, reason)


def answer(
    event_id: str = "e", p: float = 0.7, ts: int = 1000, version: int = 0, stream: str = "s", applied: int = 1
) -> Calibrated:
    """Return what the identity answers."""
    return Calibrated(event_id.encode(), event_id, stream, p, p, p, "identity", IDENTITY.config, version, ts, applied)


def joined(
    event_id: str = "e",
    p: float = 0.7,
    y: float = 1.0,
    version: int = 0,
    issued: int = 1000,
    resolved: int = 1010,
) -> Resolved:
    made = "identity", version, issued, resolved, 0, False
    return Resolved(event_id.encode(), event_id, "s", p, p, p, y, *made)


def fates(effects: Effects | Fence) -> dict[str, int]:
    return {fate: n for fate, n in zip(FATES, effects.fates, strict=True) if n}


def worker(policies: Policies = OPEN) -> Worker:
    """Return a worker of an empty partition."""
    return Worker(policies)


# The ledger's cases.


def test_forecast_first_is_answered_and_kept_as_issued() -> None:
    one = worker()
    effects = one.fold(forecast(0))
    assert effects.outputs == [answer()]
    assert fates(effects) == {"forecasts_issued": 1}
    assert one.table.keys() == {
        kinds.FENCE.key(),
        kinds.LEDGER.key("e"),
        kinds.QUEUE.key(EXPIRY, 100, 0),
        kinds.CALIBRATOR.key("s", IDENTITY.config),
        kinds.COVERAGE.key("s"),
        kinds.COURSE.key("s"),
        kinds.DISTRIBUTION.key("s"),
    }
    entry = one.table.entry("e")
    assert entry is not None
    assert (entry.status, entry.born, entry.issued_ts, entry.resolved_ts) == (ledger.ISSUED, 1, 1000, 0)
    assert (entry.kind, entry.raw, entry.p, entry.draw, entry.version) == (PROBABILITY, 0.7, 0.7, 0.7, 0)
    assert (entry.config, entry.calibrator, entry.stream) == (IDENTITY.config, "identity", "s")
    assert (entry.ticket, entry.shadows, entry.key, entry.groups, entry.entity) == (b"", (), b"", (), 0)


def test_outcome_after_its_forecast_resolves_it_once() -> None:
    one = worker()
    one.fold(forecast(0))
    effects = one.fold(outcome(0))
    assert effects.outputs == [joined()]
    assert fates(effects) == {"outcomes_resolved": 1}
    assert effects.delays == [10]
    entry = one.table.entry("e")
    assert entry is not None
    assert (entry.status, entry.born, entry.issued_ts) == (ledger.RESOLVED, 1, 1000)
    assert (entry.resolved_ts, entry.y) == (1010, 1.0)
    assert one.table.served("s", OPEN).calibrator.learnt == 1
    assert kinds.history(one.table[kinds.SCORES.key("s")], None).present.n == 1


def test_outcome_first_is_parked_and_says_nothing() -> None:
    one = worker()
    effects = one.fold(outcome(0))
    assert (effects.outputs, effects.delays) == ([], [])
    assert fates(effects) == {"outcomes_early": 1}
    assert one.table.keys() == {kinds.FENCE.key(), kinds.LEDGER.key("e"), kinds.QUEUE.key(EXPIRY, 50, 0)}
    assert (one.partition.fence.early, one.partition.fence.pending) == (1, 0)


def test_forecast_after_its_outcome_is_answered_and_resolved_at_once() -> None:
    one = worker()
    one.fold(outcome(0, ts=990))
    effects = one.fold(forecast(0))
    assert effects.outputs == [answer(applied=2), joined(resolved=990)]
    assert fates(effects) == {"forecasts_issued": 1, "early_joined": 1}
    assert effects.delays == [-10]
    assert (one.partition.fence.early, one.partition.fence.pending) == (0, 0)
    assert one.table.served("s", OPEN).calibrator.learnt == 1


def test_both_orders_leave_the_same_calibrator_and_scores() -> None:
    first, last = worker(), worker()
    first.fold(forecast(0), outcome(0))
    last.fold(outcome(0), forecast(0))
    assert first.table.of(kinds.CALIBRATOR.letter) == last.table.of(kinds.CALIBRATOR.letter)
    assert first.table.of(kinds.SCORES.letter) == last.table.of(kinds.SCORES.letter)


@pytest.mark.parametrize("other", [{"p": 0.2}, {"stream": "other"}])
def test_forecast_that_repeats_an_id_with_anything_else_is_a_dead_letter_and_is_not_answered(
    other: dict[str, Any],
) -> None:
    one = worker()
    one.fold(forecast(0))
    record = forecast(1, **other)._replace(value=b"record")
    effects = one.fold(record)
    assert effects.outputs == [Rejected(1, b"e", b"record", FORECASTS, "conflict")]
    assert effects.rejected == [(FORECASTS, "conflict")]
    assert fates(effects) == {"forecasts_dead": 1}


def test_duplicate_forecast_gets_the_served_answer() -> None:
    one = worker()
    one.fold(forecast(0), outcome(0))
    before = dict(one.table)
    effects = one.fold(forecast(1, ts=1020))
    assert effects.outputs == [answer()]
    assert fates(effects) == {"forecasts_duplicate": 1}
    assert effects.rows.keys() == {kinds.FENCE.key()}
    assert {**one.table, kinds.FENCE.key(): b""} == {**before, kinds.FENCE.key(): b""}


def test_answers_and_resolved_events_are_counted_by_stream() -> None:
    one = worker()
    effects = one.fold(forecast(0), forecast(1), forecast(2, "f", stream="t"), outcome(0))
    assert effects.answered == {"s": 2, "t": 1}
    assert effects.resolved == {"s": 1}


def test_duplicate_outcome_says_and_teaches_nothing() -> None:
    one = worker()
    one.fold(forecast(0), outcome(0))
    effects = one.fold(outcome(1, ts=1015))
    assert not effects.outputs
    assert effects.rows.keys() == {kinds.FENCE.key(), kinds.LEDGER.key("e")}
    assert fates(effects) == {"outcomes_duplicate": 1}
    assert one.table.served("s", OPEN).calibrator.learnt == 1


@pytest.mark.parametrize(("y", "fate"), [(1.0, "outcomes_duplicate"), (0.0, "outcomes_revised")])
def test_second_early_outcome_is_compared_with_the_first(y: float, fate: str) -> None:
    one = worker()
    one.fold(outcome(0))
    assert fates(one.fold(outcome(1, y=y))) == {fate: 1}
    assert one.fold(forecast(0)).outputs[1] == joined(y=y)


def test_dead_records_are_counted_and_handed_on() -> None:
    letters = [dead(3), dead(0, OUTCOMES, "label")]
    one = worker()
    effects = one.fold(*letters)
    assert effects.outputs == letters
    assert effects.rejected == [(FORECASTS, "not_json"), (OUTCOMES, "label")]
    assert fates(effects) == {"forecasts_dead": 1, "outcomes_dead": 1}
    assert effects.rows.keys() == {kinds.FENCE.key()}
    assert one.table.fence.next == [4, 1]


def test_events_are_told_apart_by_id_and_not_by_record_key() -> None:
    one = worker()
    effects = one.fold(Forecast(0, None, "a", "s", 0.1, (), 0), Forecast(1, None, "b", "s", 0.2, (), 0))
    assert [output.key for output in effects.outputs] == [None, None]
    assert fates(effects) == {"forecasts_issued": 2}


# Expiry.


def test_unresolved_forecast_expires_with_its_time_to_live() -> None:
    one = worker()
    one.fold(forecast(0))
    assert fates(one.fold(outcome(0, "other", ts=1099))) == {"outcomes_early": 1}
    effects = one.fold(outcome(1, "another", ts=1100))
    assert fates(effects) == {"outcomes_early": 1, "expired_forecasts": 1}
    assert effects.rows[kinds.LEDGER.key("e")] is None
    assert one.partition.fence.pending == 0


def test_outcome_that_comes_too_late_is_parked_and_teaches_nothing() -> None:
    one = worker()
    one.fold(forecast(0))
    effects = one.fold(outcome(0, ts=1100))
    assert effects.outputs == []
    assert fates(effects) == {"outcomes_early": 1, "expired_forecasts": 1}
    assert one.table.served("s", OPEN).calibrator.learnt == 0
    assert fates(one.fold(outcome(1, "x", ts=1150))) == {"outcomes_early": 1, "expired_outcomes": 1}


def test_parked_outcome_expires_with_its_own_time_to_live() -> None:
    one = worker()
    one.fold(outcome(0, ts=1000))
    effects = one.fold(forecast(0, ts=1050))
    assert effects.outputs == [answer(ts=1050, applied=2)]
    assert fates(effects) == {"forecasts_issued": 1, "expired_outcomes": 1}


def test_resolved_row_expires_uncounted() -> None:
    one = worker()
    one.fold(forecast(0), outcome(0))
    effects = one.fold(dead(1), forecast(2, "x", ts=1100))
    assert fates(effects) == {"forecasts_issued": 1, "forecasts_dead": 1}
    assert one.table.entry("e") is None


def test_joined_row_leaves_by_its_forecasts_time_to_live() -> None:
    one = worker()
    one.fold(outcome(0, ts=1000), forecast(0, ts=1040))
    one.fold(forecast(1, "x", ts=1139))
    assert one.table.entry("e") is not None
    assert one.partition.fence.queues[EXPIRY, 50].head == 1
    one.fold(forecast(2, "y", ts=1140))
    assert one.table.entry("e") is None


def test_expired_event_that_comes_again_is_a_new_one() -> None:
    one = worker()
    one.fold(forecast(0), outcome(0))
    assert one.fold(forecast(1, p=0.2, ts=1100)).outputs == [answer(p=0.2, ts=1100, version=1, applied=3)]


def test_forecast_whose_earlier_copy_would_be_forgotten_is_counted() -> None:
    one = worker()
    assert one.fold(forecast(0), forecast(1, "later", ts=1101)).belated == 0
    again = one.fold(forecast(2), forecast(3, "young", ts=1002))
    assert (again.belated, again.fates[ISSUED]) == (1, 2)
    assert one.fold(forecast(4)).belated == 0, "its row is there"


def test_sweep_is_bounded_and_outruns_what_comes_in() -> None:
    one = worker()
    for t in range(2 * CHUNK):
        one.fold(forecast(t, f"e{t}", ts=1000))
    for t in range(2 * CHUNK):
        effects = one.fold(forecast(2 * CHUNK + t, f"f{t}", ts=1100))
        assert effects.fates[FATES.index("expired_forecasts")] <= SWEEP
    assert len(one.table.entries()) == 2 * CHUNK
    assert one.table.entry("e127") is None


def test_event_time_that_runs_back_expires_nothing_early() -> None:
    one = worker()
    one.fold(forecast(0, "late", ts=1090), forecast(1, "old", ts=900))
    one.fold(forecast(2, "x", ts=1189))
    assert one.table.entry("old") is not None, "entered at stream time 1090"
    one.fold(forecast(3, "y", ts=1190))
    assert one.table.entry("late") is None
    assert one.table.entry("old") is None


# Versions, tickets and configurations.


def test_late_is_how_many_others_were_learnt_while_an_outcome_waited() -> None:
    one = worker()
    one.fold(*(forecast(t, f"e{t}") for t in range(4)))
    one.fold(*(outcome(t, f"e{t}") for t in range(4)))
    assert one.table.served("s", OPEN).late == 0 + 1 + 2 + 3


def test_streams_learn_apart() -> None:
    one = worker()
    one.fold(forecast(0, "a", stream="a"), outcome(0, "a"), forecast(1, "b", stream="b"))
    assert one.table.served("a", OPEN).calibrator.learnt == 1
    assert one.table.served("b", OPEN).calibrator.learnt == 0
    assert list(one.table.of(kinds.SCORES.letter)) == [kinds.SCORES.key("a")]


def test_new_configuration_starts_afresh_and_the_old_one_learns_from_its_own_tickets() -> None:
    before, after = Policies(default=Policy("minimax")), Policies(default=IDENTITY)
    one = worker(before)
    one.fold(forecast(0, "a"), forecast(1, "b"), outcome(0, "a"))
    two = Worker(after, one.table)
    effects = two.fold(forecast(2, "c"), outcome(1, "b"), outcome(2, "c"))
    assert effects.outputs[0] == answer("c", applied=4)
    assert [output.calibrator for output in effects.outputs[1:]] == ["minimax", "identity"]  # type: ignore[union-attr]
    assert two.table.served("s", before).calibrator.learnt == 2
    assert two.table.served("s", after).calibrator.learnt == 1
    scored = kinds.history(two.table[kinds.SCORES.key("s")], None).present
    assert scored.n == 3, "scores are the stream's, not the calibrator's"


def test_changed_time_to_live_holds_for_new_forecasts_only() -> None:
    one = worker()
    one.fold(forecast(0, "a"))
    two = Worker(Policies(default=Policy("identity", ttl_ms=10)), one.table)
    two.fold(forecast(1, "b"), forecast(2, "c", ts=1010))
    assert two.table.entry("a") is not None
    assert two.table.entry("b") is None


def test_stream_that_was_closed_still_redeems_its_tickets() -> None:
    one = worker()
    one.fold(forecast(0, "a"), forecast(1, "b"))
    closed = Worker(Policies(), one.table)
    effects = closed.fold(outcome(0, "a"), forecast(2, "a"))
    assert effects.outputs == [joined("a"), answer("a")]
    assert shown(effects, Policies(), kinds.CALIBRATOR) == {}, "none serves it now"
    assert closed.table.served("s", OPEN).calibrator.learnt == 1


def test_forecast_of_a_closed_stream_is_an_error_of_the_caller() -> None:
    with pytest.raises(LookupError, match="stream 's' has no policy"):
        worker(Policies()).fold(forecast(0))


# Effects.


def test_effects_name_the_rows_that_views_show() -> None:
    effects = worker().fold(forecast(0, "a"), forecast(1, "b", stream="t"), outcome(0, "a"))
    assert shown(effects, OPEN, kinds.SCORES) == {("s",): effects.rows[kinds.SCORES.key("s")]}
    assert shown(effects, OPEN, kinds.CALIBRATOR) == {
        (stream, IDENTITY.config): effects.rows[kinds.CALIBRATOR.key(stream, IDENTITY.config)] for stream in ("s", "t")
    }


def test_calibrator_of_an_old_configuration_is_written_and_not_shown() -> None:
    one = worker(Policies(default=Policy("minimax")))
    one.fold(forecast(0))
    effects = Worker(OPEN, one.table).fold(outcome(0))
    assert kinds.CALIBRATOR.key("s", Policy("minimax").config) in effects.rows
    assert shown(effects, OPEN, kinds.CALIBRATOR) == {}
    assert shown(effects, OPEN, kinds.SCORES).keys() == {("s",)}


def test_first_ticket_stores_the_recipe_it_was_made_by() -> None:
    one = worker()
    assert kinds.CALIBRATOR.key("s", IDENTITY.config) in one.fold(forecast(0)).rows
    one.fold(outcome(0))
    assert kinds.CALIBRATOR.key("s", IDENTITY.config) not in one.fold(forecast(1, "b")).rows


# Offsets.


# The working copy.


def test_working_copies_that_were_let_go_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> tuple[Table, list[Output]]:
        one, outputs = worker(), list[Output]()
        for t in range(30):
            pair = forecast(t, f"e{t}", stream=f"s{t % 3}"), outcome(t, f"e{t - 2}")
            outputs += one.fold(*pair).outputs
        return one.table, outputs

    kept = run()
    monkeypatch.setattr(services, "KEPT", 1)
    assert run() == kept


@pytest.mark.parametrize(
    "key",
    [
        kinds.FENCE.key(),
        kinds.LEDGER.key("e"),
        kinds.QUEUE.key(EXPIRY, 100, 0),
        kinds.SCORES.key("s"),
        kinds.CALIBRATOR.key("s", IDENTITY.config),
    ],
)
def test_damaged_row_stops_the_fold(key: bytes) -> None:
    one = worker()
    one.fold(forecast(0), outcome(0))
    one.table[key] = one.table[key][:-1]
    with pytest.raises(CorruptFrame):
        Worker(OPEN, one.table).fold(forecast(1, ts=1100), outcome(1, ts=1100))


def test_missing_calibrator_of_a_ticket_is_named() -> None:
    one = worker()
    one.fold(forecast(0))
    del one.table[kinds.CALIBRATOR.key("s", IDENTITY.config)]
    with pytest.raises(LookupError, match=f"stream 's' has tickets of configuration {IDENTITY.config} but no calib"):
        Partition(OPEN, one.table.get).fold([outcome(0)])
