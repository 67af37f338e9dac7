"""A stream's history: windows, their worst, and bytes that no cut of batches changes."""

import random

import pytest

from state import kinds
from state.engine import Partition
from state.events import Event, Forecast, Outcome
from state.policies import Policies
from state.policy import Policy
from state.scoring import history, windows
from state.scoring.history import History
from state.scoring.scores import SCORED, Scores
from state.scoring.windows import KINDS

pytestmark = pytest.mark.usefixtures("no_warm_up")

Scored = tuple[float, float, float, float]  # raw, p, y, draw


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "WINDOW", 50)


def made(n: int, seed: int = 1) -> list[Scored]:
    rng = random.Random(seed)
    return [(rng.random(), rng.random(), float(rng.random() < 0.4), rng.random()) for _ in range(n)]


def told(events: list[Scored]) -> History:
    told = History()
    for event in events:
        told.observe(*event)
    return told


def scored(events: list[Scored]) -> Scores:
    scores = Scores()
    for event in events:
        scores.observe(*event)
    return scores


def test_windows_close_after_as_many_events() -> None:
    short = History()
    closed = [t for t, event in enumerate(made(160), 1) if short.observe(*event)]
    assert closed == [50, 100, 150]
    assert (short.windows, short.present.n, short.total.n) == (3, 10, 160)


def test_the_total_is_that_of_all_events() -> None:
    events = made(160)
    assert told(events).total == scored(events)


def test_a_window_is_a_difference_of_totals() -> None:
    events = made(160)
    last = told(events).last
    assert last is not None
    assert last.number == 2
    assert last.scores == scored(events[100:150])
    assert scored(events[:150]) - scored(events[:100]) == last.scores


def test_the_worst_window_is_that_of_the_largest_ece_of_each_kind() -> None:
    events = made(420)
    windows = [scored(events[start : start + 50]) for start in range(0, 400, 50)]
    known = told(events)
    for kind in SCORED:
        worst = known.worst(kind)
        assert worst is not None
        assert worst.number == max(range(8), key=lambda w: windows[w].error(kind))
        assert worst.scores == windows[worst.number]


def test_of_equally_bad_windows_the_first_is_the_worst() -> None:
    worst = told([(0.3, 0.3, 0.0, 0.3)] * 150).worst("raw")
    assert worst is not None
    assert worst.number == 0


def test_there_is_no_worst_window_before_one_is_complete() -> None:
    known = told(made(49))
    assert [known.last, *map(known.worst, SCORED)] == [None] * 4


def test_partitions_add_their_totals_and_share_the_worst() -> None:
    parts = [told(made(n, seed)) for n, seed in ((120, 1), (60, 2), (10, 3))]
    assert windows.overall(parts).n == 190
    alone = [part.worst("raw") for part in parts]
    assert alone[2] is None
    found = windows.worst(parts, "raw")
    assert found is not None
    assert found.scores.error("raw") == max(window.scores.error("raw") for window in alone if window)


@pytest.mark.parametrize("n", [0, 7, 50, 120, 700])
def test_decoded_history_goes_on_bit_for_bit(n: int) -> None:
    known = told(made(n))
    known.warm_up.observe(0.25, 1.0)
    again = History.decode(known.encode(), known.encode_closed() if known.windows else None)
    assert [again.log_alarm(kind) for kind in KINDS] == [known.log_alarm(kind) for kind in KINDS]
    assert [again.log_recent(kind) for kind in KINDS] == [known.log_recent(kind) for kind in KINDS]
    for event in made(100, seed=2):
        assert known.observe(*event) == again.observe(*event)
    assert again.encode() == known.encode()
    assert again.encode_closed() == known.encode_closed()


def test_rows_that_do_not_belong_together_are_refused() -> None:
    known = told(made(60))
    with pytest.raises(ValueError, match="1 windows came with the closed ones of 0"):
        History.decode(known.encode(), None)
    with pytest.raises(ValueError, match="0 windows came with the closed ones of 1"):
        History.decode(told(made(10)).encode(), known.encode_closed())
    with pytest.raises(ValueError, match="closed windows have"):
        History.decode(known.encode(), known.encode_closed() + b"\0")


def corrected(events: list[Scored], flips: list[int]) -> list[Scored]:
    return [(raw, p, 1.0 - y, draw) if t in flips else (raw, p, y, draw) for t, (raw, p, y, draw) in enumerate(events)]


@pytest.mark.parametrize("drawn", [True, False])
def test_revised_labels_give_the_rows_of_the_right_ones(drawn: bool) -> None:  # noqa: FBT001 - a parameter of tests
    events = made(173) if drawn else [(raw, p, y, p) for raw, p, y, _ in made(173)]
    flips = random.Random(7).sample(range(173), 40)
    known = told(corrected(events, flips))
    for t in flips:
        raw, p, y, draw = events[t]
        closed = known.revise(raw, p, draw, 1.0 - y, y, t // 50)
        assert closed == (t < 150)
    right = told(events)
    assert known.encode() == right.encode()
    assert (known.total, known.last) == (right.total, right.last)
    assert [known.log_recent(kind) for kind in KINDS] == [right.log_recent(kind) for kind in KINDS]
    for kind in SCORED:
        worst = known.worst(kind)
        assert worst is not None
        start = 50 * worst.number
        assert worst.scores == scored(events[start : start + 50])
    again = History.decode(known.encode(), known.encode_closed())
    assert again.encode_closed() == known.encode_closed()


def test_revision_of_a_window_to_come_is_refused() -> None:
    with pytest.raises(ValueError, match="an event of window 2 in a history of 1 windows"):
        told(made(60)).revise(0.5, 0.5, 0.5, 0.0, 1.0, 2)


def test_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "WINDOW", 1000)
    rng = random.Random(1)
    known = History()
    for _ in range(2999):
        p = rng.random() ** 5
        # In every window some events are drawn and some are not, and each kind has another worst window.
        known.observe(p, p, 0.0, p if rng.random() < 0.5 else rng.random() ** 5)
        known.bias.observe((0.5,) * 64, p, p, 0.0)
    assert len(known.encode()) <= 40 + 2 + 6986 + 2 + 8 * 257
    assert len(known.encode_closed()) <= 40 + 8 * 32 + 2 * (2 + 10874) + 4 * (2 + 6986) + 3 * 4


def test_a_stream_that_draws_nothing_keeps_its_worst_window_once() -> None:
    known = told([(raw, p, y, p) for raw, p, y, _ in made(420)])
    assert known.worst("draw") is known.worst("calibrated")
    drawn = told(made(420))
    assert len(known.encode_closed()) < 0.65 * len(drawn.encode_closed())


def folded(events: list[Event], size: int, *, restart: bool) -> dict[bytes, bytes]:
    """Fold events in batches of a size, on a fresh partition for each batch or on one; return the rows."""
    table: dict[bytes, bytes] = {}
    policies = Policies(default=Policy("calibrated_regression+minimax", features=2))
    partition = Partition(policies, table.get)
    for start in range(0, len(events), size):
        if restart:
            partition = Partition(policies, table.get)
        for key, row in partition.fold(events[start : start + size]).rows.items():
            if row is None:
                table.pop(key, None)
            else:
                table[key] = row
    return table


def joined(n: int) -> list[Event]:
    """Forecasts of two streams, each answered three events later."""
    rng = random.Random(4)
    events: list[Event] = []
    outcomes = 0
    for t in range(n):
        x = (rng.uniform(-1, 1), rng.uniform(-1, 1))
        events.append(Forecast(t, None, f"e{t}", f"s{t % 2}", rng.random(), x, t))
        if t >= 3:
            events.append(Outcome(outcomes, None, f"e{t - 3}", float(rng.random() < 0.4), t))
            outcomes += 1
    return events


def test_no_cut_of_batches_and_no_restart_shows_in_the_rows() -> None:
    events = joined(230)
    whole = folded(events, 1000, restart=False)
    scores = {key: row for key, row in whole.items() if key[:1] in (kinds.SCORES.letter, kinds.WINDOWS.letter)}
    assert len(scores) == 4
    for size, restart in ((1, False), (7, True), (64, True)):
        cut = folded(events, size, restart=restart)
        assert {key: cut[key] for key in scores} == scores


def test_the_engine_scores_features_and_windows() -> None:
    table = folded(joined(230), 40, restart=False)
    known = kinds.history(table[kinds.SCORES.key("s0")], table[kinds.WINDOWS.key("s0")])
    assert (known.windows, known.total.n) == (2, 114)
    assert len(known.bias.along("calibrated")) == 2


@pytest.mark.parametrize("before", [0, 30, 100, 130])
def test_alarms_that_begin_anew_are_those_of_a_new_history(before: int) -> None:
    events = made(before + 170)
    anew, new = told(events[:before]), History()
    anew.begin_anew()
    for t, event in enumerate(events[before:], 1):
        assert anew.observe(*event) == new.observe(*event)
        for kind in KINDS:
            for alarm in ("log_wealth", "log_alarm", "log_recent"):
                assert getattr(anew, alarm)(kind) == pytest.approx(getattr(new, alarm)(kind), abs=1e-9), (alarm, t)
    assert anew.total == scored(events), "scores go on"
    raw, p, y, draw = events[0]
    closed = anew.encode_closed()
    anew.revise(raw, p, draw, y, 1.0 - y, 0)
    assert anew.total == scored([(raw, p, 1.0 - y, draw), *events[1:]])
    assert all(each.scores.n == 50 for kind in SCORED if (each := anew.worst(kind))), "a short window is none"
    assert History.decode(anew.encode(), anew.encode_closed()).encode_closed() == anew.encode_closed() != closed
