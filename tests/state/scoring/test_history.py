"""A stream's history: windows, their worst, and bytes that no cut of batches changes."""

import random

import pytest

from state import kinds
from state.engine import Partition
from state.events import Event, Forecast, Outcome
from state.policies import Policies
from state.policy import Policy
from state.scoring import history
from state.scoring.history import History
from tests.state.scoring.test_alarm import Event as Scored
from tests.state.scoring.test_alarm import told

pytestmark = pytest.mark.usefixtures("no_warm_up")


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "WINDOW", 50)


def made(n: int, seed: int = 1) -> list[Scored]:
    rng = random.Random(seed)
    return [(rng.random(), rng.random(), float(rng.random() < 0.4), rng.random()) for _ in range(n)]


def test_rows_that_do_not_belong_together_are_refused() -> None:
    known = told(made(60))
    with pytest.raises(ValueError, match="1 windows came with the closed ones of 0"):
        History.decode(known.encode(), None)
    with pytest.raises(ValueError, match="0 windows came with the closed ones of 1"):
        History.decode(told(made(10)).encode(), known.encode_closed())
    with pytest.raises(ValueError, match="closed windows have"):
        History.decode(known.encode(), known.encode_closed() + b"\0")


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
    return kinds.apart(table)


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
