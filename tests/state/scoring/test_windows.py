"""Laws of a stream's windows and alarms, whatever its forecasts are."""

import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from state.forecasts import Classwise, Quantiles
from state.scoring import history, vector_history, windows
from state.scoring.class_scores import ClassScores
from state.scoring.history import History
from state.scoring.quantile_scores import QuantileScores
from state.scoring.scores import SCORED
from state.scoring.vector_history import VectorHistory
from state.scoring.windows import KINDS, Windows

#: Sums of numbers at these levels are exact.
LEVELS = (0.25, 0.5, 0.75, 0.875)
#: Raw and served forecast, outcome, and the draw or the event's name.
Event = tuple[Any, Any, float, Any]


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (history, vector_history):
        monkeypatch.setattr(module, "WINDOW", 50)


class Family(NamedTuple):
    """Histories of one kind of forecast: one without events, a forecast, and how many outcomes there are."""

    empty: Callable[[], Windows[Any]]
    forecast: Callable[[random.Random], Any]
    outcomes: int

    def made(self, n: int, seed: int = 1) -> list[Event]:
        """Return events; of probabilities with draws."""
        rng = random.Random(seed)
        events: list[Event] = []
        for t in range(n):
            raw, served = self.forecast(rng), self.forecast(rng)
            aside = rng.random() if isinstance(served, float) else b"%d" % t
            events.append((raw, served, float(rng.randrange(self.outcomes)), aside))
        return events

    def told(self, events: list[Event]) -> Any:
        known: Any = self.empty()
        for event in events:
            known.observe(*event)
        return known

    def read(self, known: Any) -> Any:
        """Return the history of another's bytes."""
        if isinstance(known, History):
            return History.decode(known.encode(), known.encode_closed() if known.windows else None)
        return VectorHistory.decode(known.encode())


def rows(known: Any) -> bytes:
    both: bytes = known.encode() + (known.encode_closed() if isinstance(known, History) else b"")
    return both


def ranked(known: Any) -> tuple[Any, ...]:
    """Return the kinds whose worst window is kept."""
    return SCORED if isinstance(known, History) else KINDS


def _quarters(rng: random.Random) -> Quantiles:
    """Return quantiles that are quarters."""
    return Quantiles(LEVELS, tuple(sorted(rng.randrange(-8, 16) / 4 for _ in LEVELS)))


FAMILIES = {
    "probabilities": Family(History, random.Random.random, 2),
    "classes": Family(
        lambda: VectorHistory(ClassScores(3)), lambda rng: Classwise([rng.random() for _ in range(3)]), 3
    ),
    "numbers": Family(lambda: VectorHistory(QuantileScores(LEVELS)), _quarters, 4),
}
EVERY = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
ALARMS = ("log_wealth", "log_alarm", "log_recent")


def alarms(known: Any) -> list[float]:
    return [getattr(known, alarm)(kind) for alarm in ALARMS for kind in KINDS]


@EVERY
@pytest.mark.parametrize("n", [0, 7, 50, 120, 700])
def test_a_history_goes_on_from_its_bytes(family: Family, n: int) -> None:
    known = family.told(family.made(n))
    known.warm_up.observe(*family.made(1)[0][::2][:2])
    again = family.read(known)
    assert alarms(again) == alarms(known)
    for event in family.made(100, seed=2):
        assert known.observe(*event) == again.observe(*event)
    assert rows(again) == rows(known)


@EVERY
def test_windows_close_and_the_worst_is_that_of_the_largest_error(family: Family) -> None:
    events = family.made(420)
    known = family.told(events)
    assert (known.windows, known.present.n, known.n) == (8, 20, 420)
    parts = [family.told(events[start : start + 50]).last.scores for start in range(0, 400, 50)]
    assert known.last == (7, parts[7])
    for kind in ranked(known):
        worst = known.worst(kind)
        assert worst == (max(range(8), key=lambda w: parts[w].error(kind)), parts[worst.number])
    early = family.told(events[:49])
    assert not any([early.last, *map(early.worst, ranked(early))])
    equal = family.told(events[:1] * 150)
    assert [equal.worst(kind).number for kind in KINDS] == [0, 0]


@EVERY
@pytest.mark.parametrize("n", [30, 173, 520])
def test_revised_labels_give_the_sums_of_the_right_ones(family: Family, n: int) -> None:
    events = family.made(n)
    flips = random.Random(7).sample(range(n), n // 4)
    wrong = {t: (events[t][2] + 1.0) % family.outcomes for t in flips}
    known = family.told([(raw, p, wrong.get(t, y), aside) for t, (raw, p, y, aside) in enumerate(events)])
    for t, was in wrong.items():
        raw, p, y, aside = events[t]
        closed = known.revise(raw, p, aside, was, y, t // 50)
        assert closed == (isinstance(known, History) and t < 50 * known.windows)
    right = family.told(events)
    assert (known.present, known.total, known.last) == (right.present, right.total, right.last)
    assert [known.log_recent(kind) for kind in KINDS] == [right.log_recent(kind) for kind in KINDS]
    if n < 50:
        assert rows(known) == rows(right)
    for kind in SCORED if n >= 50 and isinstance(known, History) else ():
        worst = known.worst(kind)
        assert worst.scores == family.told(events[50 * worst.number :][:50]).last.scores
    assert rows(family.read(known)) == rows(known)


@EVERY
def test_a_window_that_does_not_exist_is_refused(family: Family) -> None:
    ((raw, p, y, aside),) = family.made(1)
    with pytest.raises(ValueError, match="an event of window 2 in a history of 1 windows"):
        family.told(family.made(60)).revise(raw, p, aside, 1.0 - y, y, 2)


@EVERY
@pytest.mark.parametrize("before", [0, 30, 100, 130])
def test_alarms_that_begin_anew_are_those_of_a_new_history(family: Family, before: int) -> None:
    events = family.made(before + 220)
    anew, new = family.told(events[:before]), family.told([])
    anew.begin_anew()
    for event in events[before:]:
        assert anew.observe(*event) == new.observe(*event)
        assert alarms(anew) == pytest.approx(alarms(new), abs=1e-9)
    assert anew.total == family.told(events).total, "scores go on"
    assert all(each.scores.n == 50 for kind in ranked(anew) if (each := anew.worst(kind))), "a short window is none"
    assert rows(family.read(anew)) == rows(anew)
    ((raw, p, y, aside), *others) = events
    if before:
        was, now = y, (y + 1.0) % family.outcomes
        anew.revise(raw, p, aside, was, now, 0)
        assert anew.total == family.told([(raw, p, now, aside), *others]).total


@EVERY
def test_partitions_add_up_and_share_the_evidence_that_each_needs(family: Family) -> None:
    parts = [family.told(family.made(n, seed)) for n, seed in ((120, 1), (60, 2), (10, 3))]
    assert windows.overall(parts).n == 190
    last = windows.last(parts)
    assert last is not None
    assert last.n == 100
    for kind in KINDS:
        worst = windows.worst(parts, kind)
        assert worst is not None
        assert worst.scores.error(kind) == max(each.worst(kind).scores.error(kind) for each in parts[:2])
        for alarm in ("log_alarm", "log_recent"):
            alone = max(getattr(each, alarm)(kind) for each in parts)
            assert getattr(windows, alarm)(parts, kind) == pytest.approx(alone - math.log(3))


# Probabilities have their closed windows in a row of its own, and may be drawn.

PROBABILITIES = FAMILIES["probabilities"]


def test_rows_that_do_not_belong_together_are_refused() -> None:
    few, known = (PROBABILITIES.told(PROBABILITIES.made(n)) for n in (10, 60))
    with pytest.raises(ValueError, match="1 windows came with the closed ones of 0"):
        History.decode(known.encode(), None)
    with pytest.raises(ValueError, match="0 windows came with the closed ones of 1"):
        History.decode(few.encode(), known.encode_closed())
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
    events = PROBABILITIES.made(420)
    known, drawn = PROBABILITIES.told([(raw, p, y, p) for raw, p, y, _ in events]), PROBABILITIES.told(events)
    assert known.worst("draw") is known.worst("calibrated")
    assert len(known.encode_closed()) < 0.65 * len(drawn.encode_closed())
