"""The alarm: no bet gains on average from calibrated forecasts, whatever came before, and few ever do."""

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from state.calibrators import make
from state.scoring import history
from state.scoring.alarm import ALPHA, log_wealth
from state.scoring.cells import Bin, grain
from state.scoring.history import History
from state.scoring.windows import KINDS, RECENT, Alarmed

UNIT = st.floats(0, 1)
Event = tuple[float, float, float, float]  # raw, p, y, draw
EVENTS = st.lists(st.tuples(UNIT, UNIT, st.sampled_from([0.0, 1.0]), UNIT), max_size=40)
Model = Callable[[int, random.Random], tuple[float, float]]  # the raw forecast and the chance


def told(events: list[Event]) -> History:
    told = History()
    for event in events:
        told.observe(*event)
    return told


def wealth_after(events: list[Event], kind: Alarmed) -> float:
    return math.exp(told(events).log_wealth(kind))


@example([(0.5, 0.5, 1.0, 0.5)] * 3, 0.5, 0.5, 0.5)  # the next event closes a window
@given(EVENTS, UNIT, UNIT, UNIT)
def test_wealth_does_not_grow_on_average(events: list[Event], raw: float, p: float, draw: float) -> None:
    # The supermartingale itself: at any state, for any next forecast, wherever its draw fell. Windows have 4 events.
    # The chance is the forecast as it is summed.
    raw, p = grain(raw), grain(p)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "WINDOW", 4)
        for kind, chance in zip(KINDS, (raw, p), strict=True):
            zero, one = (wealth_after([*events, (raw, p, y, draw)], kind) for y in (0.0, 1.0))
            assert (1.0 - chance) * zero + chance * one <= wealth_after(events, kind) * (1 + 1e-9)


@given(EVENTS, UNIT, UNIT, st.floats(0, 0.2))
def test_fractional_outcomes_gain_less(events: list[Event], raw: float, p: float, spread: float) -> None:
    low, high = max(0.0, p - spread), min(1.0, p + spread)
    chance = (p - low) / (high - low) if high > low else 0.0  # of the high one, so that the mean is p
    below, above = (wealth_after([*events, (raw, p, y, p)], "calibrated") for y in (low, high))
    assert (1.0 - chance) * below + chance * above <= wealth_after(events, "calibrated") * (1 + 1e-9)


def test_wealth_begins_at_one() -> None:
    assert [History().log_wealth(kind) for kind in KINDS] == pytest.approx([0.0, 0.0])
    assert [History().log_recent(kind) for kind in KINDS] == pytest.approx([-math.log(2.0)] * 2)


@given(EVENTS)
def test_what_was_calm_is_forgiven(events: list[Event]) -> None:
    assert log_wealth(told(events).total.cells("raw")) >= 19 * math.log(18 / 19) - math.log(2)


def test_wealth_of_one_cell_by_hand() -> None:
    # One event of 1/2 that came true: S = 1/2, V = 1/4.
    bets = [math.exp(sign * 2.0**k / 2 - (math.exp(2.0**k) - 1 - 2.0**k) / 4) for k in range(-6, 2) for sign in (1, -1)]
    assert log_wealth([Bin(1, 0.5, 1, 0.25, 0.5)]) == pytest.approx(math.log(sum(bets) / 16))
    others = [Bin(0, 0, 0, 0, 0)] * 3
    mixed = math.log((sum(bets) / 16 + 3 / 4 + sum(bets) / 16 / 4) / 2)
    assert log_wealth([Bin(1, 0.5, 1, 0.25, 0.5), *others]) == pytest.approx(mixed)


def drifting(t: int, rng: random.Random) -> tuple[float, float]:
    """A model that is right for 10,000 events and then ever bolder, by up to 1.5 in log-odds after 10,000 more."""
    chance = rng.betavariate(2, 4)
    off = min(1.5, max(0.0, (t - 10_000) / 6_667))
    return 1 / (1 + math.exp(-math.log(chance / (1 - chance)) - off)), chance


def serve(model: Model, rounds: int, spec: str = "platt+minimax") -> tuple[History, dict[Alarmed, int]]:
    """Serve a model's forecasts; return what is known in the end, and after how many events each alarm was seen."""
    calibrator, told, rng = make(spec, seed=5), History(), random.Random(5)
    sounded: dict[Alarmed, int] = {}
    for t in range(rounds):
        raw, chance = model(t, rng)
        p, draw, ticket = calibrator.predict(raw, (), b"%d" % t)
        y = float(rng.random() < chance)
        calibrator.update(ticket, y)
        told.observe(raw, p, y, draw)
        if t % 500 == 499:
            for kind in KINDS:
                if told.log_alarm(kind) >= -math.log(ALPHA):
                    sounded.setdefault(kind, t + 1)
    return told, sounded


def test_drift_of_the_model_sounds_the_alarm_and_what_is_served_does_not() -> None:
    told, sounded = serve(drifting, 25_000)
    assert sounded.keys() == {"raw"}
    assert 10_000 < sounded["raw"] < 20_000  # before the drift is complete
    worst = told.worst("raw")
    assert worst is not None
    assert worst.number == 4  # the boldest 5,000


def test_draws_of_a_calibrated_service_are_no_evidence() -> None:
    # With the draw in place of its mean, the same stream would be tested for a claim that nobody makes.
    _, sounded = serve(lambda _, rng: (0.41, float(rng.random() < 0.41)), 3000, "minimax")
    assert not sounded


def at(rate: float, served: float, n: int, told: History, seed: int = 4) -> History:
    """Add events of a base rate for which one chance was served."""
    rng = random.Random(seed)
    for _ in range(n):
        told.observe(served, served, float(rng.random() < rate))
    return told


@pytest.mark.parametrize("served", [0.0, 0.002, 0.008])
def test_a_rare_event_served_at_half_or_twice_its_rate_sounds_both_alarms(served: float) -> None:
    told = at(0.004, served, 8 * history.WINDOW, History())
    assert told.log_alarm("calibrated") >= -math.log(ALPHA)
    assert told.log_recent("calibrated") >= -math.log(ALPHA)
    calm = at(0.004, 0.004, 8 * history.WINDOW, History())
    assert calm.log_recent("calibrated") < 0


def test_the_recent_alarm_falls_when_the_trouble_ends_and_the_other_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "WINDOW", 500)
    told = at(0.5, 0.3, 2000, History())
    assert told.log_recent("raw") >= -math.log(ALPHA)
    at(0.3, 0.3, 500 * (RECENT + 1), told)
    assert told.log_recent("raw") < -math.log(ALPHA) <= told.log_alarm("raw")


def test_the_recent_alarm_remembers_slow_evidence_over_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    # No window alone gives the alarm; eight of them do.
    monkeypatch.setattr(history, "WINDOW", 500)
    told = at(0.37, 0.3, 500 * RECENT, History())
    assert told.last is not None
    assert log_wealth(told.last.scores.cells("raw")) < -math.log(ALPHA)
    assert told.log_recent("raw") >= -math.log(ALPHA)


@given(st.lists(st.tuples(UNIT, st.sampled_from([0.0, 1.0])), max_size=40), UNIT)
def test_the_recent_wealth_does_not_grow_on_average_within_a_window(
    events: list[tuple[float, float]], p: float
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "WINDOW", 7)
        told = [(p, p, y, p) for p, y in events]
        now = recent_after(told)
        if len(told) % 7 == 6:
            return  # the next event closes the window, and somebody new begins to bet
        p = grain(p)
        zero, one = (recent_after([*told, (p, p, y, p)]) for y in (0.0, 1.0))
        assert (1.0 - p) * zero + p * one <= now * (1 + 1e-9)


def recent_after(events: list[Event]) -> float:
    return math.exp(told(events).log_recent("raw"))
