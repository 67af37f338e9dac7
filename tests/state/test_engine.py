"""The engine: every case of the ledger, one at a time."""

import pytest

from state import kinds, ledger
from state.engine import Partition
from state.events import Calibrated, Event, Forecast, Outcome, Output, Rejected, Resolved
from state.expiry import CHUNK
from state.fence import EXPIRY, FATES, FORECASTS, ISSUED
from state.fold import SWEEP
from state.forecasts import PROBABILITY
from state.frames import CorruptFrame
from state.policies import Policies
from state.policy import Policy
from tests.holding import shown
from tests.state.histories import Table, Worker, fates

pytestmark = pytest.mark.usefixtures("no_warm_up")

IDENTITY = Policy("identity", ttl_ms=100)
OPEN = Policies(default=IDENTITY, early_ttl_ms=50)


def forecast(
    offset: int, event_id: str = "e", p: float = 0.7, ts: int = 1000, stream: str = "s", x: tuple[float, ...] = ()
) -> Forecast:
    return Forecast(offset, event_id.encode(), event_id, stream, p, x, ts)


def outcome(offset: int, event_id: str = "e", y: float = 1.0, ts: int = 1010) -> Outcome:
    return Outcome(offset, event_id.encode(), event_id, y, ts)


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
        kinds.COUNTS.key("s"),
    }
    entry = one.table.entry("e")
    assert entry is not None
    assert (entry.status, entry.born, entry.issued_ts, entry.resolved_ts) == (ledger.ISSUED, 1, 1000, 0)
    assert (entry.kind, entry.raw, entry.p, entry.draw, entry.version) == (PROBABILITY, 0.7, 0.7, 0.7, 0)
    assert (entry.config, entry.calibrator, entry.stream) == (IDENTITY.config, "identity", "s")
    assert (entry.ticket, entry.shadows, entry.key, entry.groups, entry.entity) == (b"", (), b"", (), 0)


OTHER_P, OTHER_STREAM = (forecast(1, **other)._replace(value=b"record") for other in ({"p": 0.2}, {"stream": "other"}))
CONFLICT = [Rejected(1, b"e", b"record", FORECASTS, "conflict")]
#: Events, one a batch; what the last one says and counts; then the status of the event's row, how many outcomes were
#: learnt, how many forecasts and how many outcomes wait.
CASES: dict[str, tuple[list[Event], list[Output], dict[str, int], tuple[int | None, int, int, int]]] = {
    "a forecast": ([forecast(0)], [answer()], {"forecasts_issued": 1}, (ledger.ISSUED, 0, 1, 0)),
    "its outcome": ([forecast(0), outcome(0)], [joined()], {"outcomes_resolved": 1}, (ledger.RESOLVED, 1, 0, 0)),
    "an outcome first": ([outcome(0)], [], {"outcomes_early": 1}, (ledger.EARLY, 0, 0, 1)),
    "its forecast": (
        [outcome(0, ts=990), forecast(0)],
        [answer(applied=2), joined(resolved=990)],
        {"forecasts_issued": 1, "early_joined": 1},
        (ledger.RESOLVED, 1, 0, 0),
    ),
    "another score": ([forecast(0), OTHER_P], list(CONFLICT), {"forecasts_dead": 1}, (ledger.ISSUED, 0, 1, 0)),
    "another stream": ([forecast(0), OTHER_STREAM], list(CONFLICT), {"forecasts_dead": 1}, (ledger.ISSUED, 0, 1, 0)),
    "the same forecast": (
        [forecast(0), outcome(0), forecast(1, ts=1020)],
        [answer()],
        {"forecasts_duplicate": 1},
        (ledger.RESOLVED, 1, 0, 0),
    ),
    "the same outcome": (
        [forecast(0), outcome(0), outcome(1, ts=1015)],
        [],
        {"outcomes_duplicate": 1},
        (ledger.RESOLVED, 1, 0, 0),
    ),
    "the same early outcome": ([outcome(0), outcome(1)], [], {"outcomes_duplicate": 1}, (ledger.EARLY, 0, 0, 1)),
    "another early outcome": ([outcome(0), outcome(1, y=0.0)], [], {"outcomes_revised": 1}, (ledger.EARLY, 0, 0, 1)),
    "the forecast of both": (
        [outcome(0), outcome(1, y=0.0), forecast(0)],
        [answer(applied=3), joined(y=0.0)],
        {"forecasts_issued": 1, "early_joined": 1},
        (ledger.RESOLVED, 1, 0, 0),
    ),
    "the last millisecond": (
        [forecast(0), outcome(0, "other", ts=1099)],
        [],
        {"outcomes_early": 1},
        (ledger.ISSUED, 0, 1, 1),
    ),
    "the time to live": (
        [forecast(0), outcome(0, "other", ts=1100)],
        [],
        {"outcomes_early": 1, "expired_forecasts": 1},
        (None, 0, 0, 1),
    ),
    "an outcome that comes too late": (
        [forecast(0), outcome(0, ts=1100)],
        [],
        {"outcomes_early": 1, "expired_forecasts": 1},
        (ledger.EARLY, 0, 0, 1),
    ),
    "a forecast that comes too late": (
        [outcome(0, ts=1000), forecast(0, ts=1050)],
        [answer(ts=1050, applied=2)],
        {"forecasts_issued": 1, "expired_outcomes": 1},
        (ledger.ISSUED, 0, 1, 0),
    ),
    "a resolved event expires uncounted": (
        [forecast(0), outcome(0), forecast(1, "x", ts=1100)],
        [answer("x", ts=1100, version=1, applied=3)],
        {"forecasts_issued": 1},
        (None, 1, 1, 0),
    ),
    "a joined event stays as long as its forecast": (
        [outcome(0, ts=1000), forecast(0, ts=1040), forecast(1, "x", ts=1139)],
        [answer("x", ts=1139, version=1, applied=3)],
        {"forecasts_issued": 1},
        (ledger.RESOLVED, 1, 1, 0),
    ),
    "and not longer": (
        [outcome(0, ts=1000), forecast(0, ts=1040), forecast(1, "x", ts=1140)],
        [answer("x", ts=1140, version=1, applied=3)],
        {"forecasts_issued": 1},
        (None, 1, 1, 0),
    ),
    "an event that comes again after it expired": (
        [forecast(0), outcome(0), forecast(1, p=0.2, ts=1100)],
        [answer(p=0.2, ts=1100, version=1, applied=3)],
        {"forecasts_issued": 1},
        (ledger.ISSUED, 1, 1, 0),
    ),
}


@pytest.mark.parametrize(("events", "outputs", "counted", "after"), CASES.values(), ids=CASES)
def test_what_becomes_of_an_event(
    events: list[Event], outputs: list[Output], counted: dict[str, int], after: tuple[int | None, int, int, int]
) -> None:
    one = worker()
    for each in events[:-1]:
        one.fold(each)
    effects = one.fold(events[-1])
    assert effects.outputs == outputs
    assert fates(effects) == counted
    assert effects.rejected == [(each.topic, each.reason) for each in outputs if isinstance(each, Rejected)]
    row, entry, fence = one.table.get(kinds.CALIBRATOR.key("s", IDENTITY.config)), one.table.entry("e"), one.table.fence
    learnt = 0 if row is None else kinds.CALIBRATOR.decode(row, "s").calibrator.learnt
    assert (None if entry is None else entry.status, learnt, fence.pending, fence.early) == after


def test_answers_and_resolved_events_are_counted_by_stream() -> None:
    one = worker()
    effects = one.fold(forecast(0), forecast(1), forecast(2, "f", stream="t"), outcome(0))
    assert effects.answered == {"s": 2, "t": 1}
    assert effects.resolved == {"s": 1}


def test_outcomes_of_which_nothing_says_who_is_right_are_counted() -> None:
    one = worker()
    one.fold(forecast(0), outcome(0, ts=1005))
    said = {
        "the same": outcome(1, ts=1005),
        "another at the same time": outcome(2, ts=1005, y=0.0),
        "a later one": outcome(3, ts=1006, y=1.0),
        "an earlier one": outcome(4, ts=1005, y=0.0),
        "a numbered one": outcome(5, ts=1006, y=0.0)._replace(revision=1),
        "another of its number at another time": outcome(6, ts=1007, y=1.0)._replace(revision=1),
        "another of its number and time": outcome(7, ts=1006, y=1.0)._replace(revision=1),
    }
    contradicting = [name for name, each in said.items() if one.fold(each).contradicting]
    assert contradicting == ["another at the same time", "another of its number and time"]


# Expiry.


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


# Versions, tickets and configurations.


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


# The working copy.


def test_a_damaged_row_of_any_kind_stops_the_fold() -> None:
    one = worker()
    one.fold(forecast(0), outcome(0))
    for key, row in one.table.items():
        damaged = Table({**one.table, key: row[:-1]})
        with pytest.raises(CorruptFrame):
            Worker(OPEN, damaged).fold(forecast(1, ts=1100), outcome(1, ts=1100))


def test_missing_calibrator_of_a_ticket_is_named() -> None:
    one = worker()
    one.fold(forecast(0))
    del one.table[kinds.CALIBRATOR.key("s", IDENTITY.config)]
    with pytest.raises(LookupError, match=f"stream 's' has tickets of configuration {IDENTITY.config} but no calib"):
        Partition(OPEN, one.table.get).fold([outcome(0)])
