"""The guarantee holds against whoever sees the answer, with outcomes late and revised; the order stays."""

import math
import random
from collections import deque
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators import make
from state.calibrators.certified import CELLS, EVIDENCE, PATIENCE, Certified
from state.calibrators.certified_cell import NONE, ONE
from tests.state.scoring.test_certificate import distance

Opponent = Callable[[random.Random, int, float, float], float]

OPPONENTS: dict[str, Opponent] = {
    "other side": lambda _rng, _t, _raw, p: float(p <= 0.5),
    "other side of raw": lambda _rng, _t, raw, p: float(p <= raw),
    "ones": lambda _rng, _t, _raw, _p: 1.0,
    "zeros, then ones": lambda _rng, t, _raw, _p: float(t > 3000),
    "waves": lambda rng, t, raw, _p: float(rng.random() < (raw if t // 500 % 2 else 1.0 - raw)),
    "other side of its tenth": lambda _rng, _t, _raw, p: float(10.0 * p % 1.0 <= 0.5),
    "honest": lambda rng, _t, raw, _p: float(rng.random() < raw),
}
FORECASTS: dict[str, Callable[[random.Random], float]] = {
    "half": lambda _rng: 0.5,
    "any": lambda rng: rng.random(),
    "rare": lambda rng: rng.random() / 20.0,
}


def play(
    opponent: Opponent, forecasts: Callable[[random.Random], float], late: int, n: int = 6000, evidence: int = 0
) -> Certified:
    """Return what has played n rounds, each outcome coming so many rounds later; rare bursts come much later."""
    rng = random.Random(7)
    calibrator = Certified(evidence=evidence)
    waiting: deque[tuple[bytes, float]] = deque()
    for t in range(n):
        raw = forecasts(rng)
        p, draw, ticket = calibrator.predict(raw)
        assert p == draw
        waiting.append((ticket, opponent(rng, t, raw, p)))
        if late and t % 1500 < 200:
            continue
        while len(waiting) > late:
            calibrator.update(*waiting.popleft())
        if t % 100 == 0:
            _holds(calibrator)
    while waiting:
        calibrator.update(*waiting.pop())  # the last ones first
    _holds(calibrator)
    return calibrator


def _holds(calibrator: Certified) -> None:
    error, bound = calibrator.error(), calibrator.bound()
    assert (error is None) == (bound is None)
    assert error is None or bound is None or error <= bound + 1e-9


@pytest.mark.parametrize("late", [0, 700])
@pytest.mark.parametrize("forecasts", FORECASTS)
@pytest.mark.parametrize("opponent", OPPONENTS)
def test_distance_never_exceeds_the_guarantee(opponent: str, forecasts: str, late: int) -> None:
    calibrator = play(OPPONENTS[opponent], FORECASTS[forecasts], late, n=4000)
    bound = calibrator.bound()
    assert bound is not None
    if not late:
        t = calibrator.learnt
        assert bound <= 0.0251 + PATIENCE * math.sqrt((CELLS + 1) / (4 * t)) + (CELLS + 1) * (2 + ONE) / t


@pytest.mark.parametrize("late", [0, 700])
@pytest.mark.parametrize("opponent", OPPONENTS)
def test_distance_never_exceeds_the_guarantee_where_evidence_is_awaited(opponent: str, late: int) -> None:
    for forecasts in FORECASTS.values():
        play(OPPONENTS[opponent], forecasts, late, n=4000, evidence=EVIDENCE)


@pytest.mark.parametrize("first", [1.0, 0.0])
def test_one_kind_of_outcome_that_comes_first_moves_nothing(first: float) -> None:
    """Frauds are reported at once and 3,000 rounds later come the zeros, or the other way round; scores rise."""
    rng = random.Random(3)
    calibrator, due = Certified(), deque[bytes]()
    moved = 0
    for t in range(16_000):
        raw = (0.1 if t < 8000 else 0.5) + 0.2 * rng.random()
        p, _, ticket = calibrator.predict(raw)
        moved += p != raw
        y = float(rng.random() < raw)
        if y == first:
            calibrator.update(ticket, y)
        due.append(b"" if y == first else ticket)
        if len(due) > 3000 and (late := due.popleft()):
            calibrator.update(late, 1.0 - first)
        if t % 200 == 0:
            _holds(calibrator)
    assert moved < 160
    eager = Certified(evidence=0)
    for _ in range(3000):
        ticket = eager.predict(0.1 + 0.2 * rng.random()).ticket
        if rng.random() < 0.2:
            eager.update(ticket, 1.0)
    assert eager.predict(0.2).p > 0.5, "what would have been served"


def test_ones_alone_move_nothing_and_the_guarantee_says_that_it_says_nothing() -> None:
    calibrator = Certified()
    for _ in range(3000):
        calibrator.update(calibrator.predict(0.2).ticket, 1.0)
    assert calibrator.predict(0.2).p == 0.2
    bound = calibrator.bound()
    assert bound is not None
    assert bound > 0.8


@pytest.mark.parametrize("y", [0.0, 1.0])
def test_a_score_is_moved_when_twenty_of_each_kind_have_come_and_not_before(y: float) -> None:
    calibrator, served = Certified(), []
    for n in range(1000):
        p, _, ticket = calibrator.predict(0.5)
        served.append(p)
        calibrator.update(ticket, y if n % 50 == 0 else 1.0 - y)
    assert set(served[:951]) == {0.5}, "nineteen have come"
    assert served[-1] != 0.5


EVENTS = st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0.0, 1.0]), st.booleans()), min_size=1, max_size=7)


@given(EVENTS)
def test_error_is_never_below_the_distance_also_after_revisions(events: list[tuple[float, float, bool]]) -> None:
    calibrator = Certified(patience=0.0, evidence=0)
    served = []
    for raw, y, revised in events:
        p, _, ticket = calibrator.predict(raw)
        calibrator.update(ticket, y)
        if revised:
            calibrator.revise(ticket, y, 1.0 - y)
            y = 1.0 - y  # noqa: PLW2901 - what counts from now on
        served.append((p, y))
    error = calibrator.error()
    assert error is not None
    assert error >= distance(served) - 1e-9
    _holds(calibrator)


@given(
    st.sampled_from(sorted(OPPONENTS)),
    st.integers(100, 3000),
    st.lists(st.integers(0, 100_000), min_size=2, unique=True),
)
def test_order_is_kept_without_ties_whatever_was_learnt(opponent: str, n: int, forecasts: list[int]) -> None:
    calibrator = play(OPPONENTS[opponent], FORECASTS["any"], 30, n=n)
    served = [calibrator.predict(k / 100_000).p for k in sorted(forecasts)]
    assert all(left < right for left, right in pairwise(served))
    assert all(0.0 <= p <= 1.0 for p in served)


def test_labels_that_are_all_revised_are_in_the_guarantee() -> None:
    calibrator = Certified()
    tickets = []
    for t in range(2000):
        tickets.append(calibrator.predict(0.5).ticket)
        calibrator.update(tickets[-1], float(t % 2))
    for t in range(0, 2000, 2):
        calibrator.revise(tickets[t], 0.0, 1.0)
        _holds(calibrator)
    error = calibrator.error()
    assert error is not None
    assert error > 0.4


def games(*, minutes: int) -> tuple[Certified, float]:
    """Return what has learnt 150 games that were forecast each minute, and how far scores were moved on average.

    Scores are honest. The label of all is told when a game ends, or each on a day of its own.
    """
    rng, calibrator, moved = random.Random(4), Certified(), 0.0
    for game in range(150):
        lead, tickets = 0.0, []
        for minute in range(minutes):
            raw = 0.5 * math.erfc(-lead / math.sqrt(2.0 * (minutes - minute)))
            p, _, ticket = calibrator.predict(raw)
            moved += abs(p - raw)
            tickets.append(ticket)
            lead += rng.gauss(0.0, 1.0)
        for ticket in tickets:
            calibrator.update(ticket, float(lead > 0.0), 3_600_000 * (game + 1))
        _holds(calibrator)
    return calibrator, moved / (150 * minutes)


def test_many_labels_of_one_game_are_one_fact() -> None:
    calibrator, moved = games(minutes=200)
    assert moved < 0.004  # .0020; .0066 where each label is a fact
    again = Certified()
    again.decode(calibrator.encode())
    assert again.encode() == calibrator.encode()


def test_who_is_answered_at_once_widens_no_margin_by_a_run() -> None:
    found = []
    for at in (0, 3_600_000):
        calibrator = Certified(evidence=0)
        for _ in range(3000):
            p, _, ticket = calibrator.predict(0.3)
            calibrator.update(ticket, float(p <= 0.5), at)
        found.append(calibrator.bound())
    assert found[0] == found[1]


def test_what_was_right_is_left_as_it_is() -> None:
    rng = random.Random(1)
    calibrator, moved = make("certified"), 0
    for _ in range(20_000):
        raw = rng.betavariate(2, 8)
        p, _, ticket = calibrator.predict(raw)
        moved += p != raw
        calibrator.update(ticket, float(rng.random() < raw))
    assert moved < 200


def test_what_is_always_too_high_is_moved_down() -> None:
    rng = random.Random(2)
    calibrator = make("certified")
    total = 0.0
    for _ in range(20_000):
        p, _, ticket = calibrator.predict(0.4 + 0.2 * rng.random())
        y = float(rng.random() < 0.2)
        calibrator.update(ticket, y)
        total += p - y
    assert total / 20_000 < 0.02
    bound = calibrator.bound()
    assert bound is not None
    assert bound < 0.05


def test_late_outcomes_are_in_the_guarantee_and_not_paid_back() -> None:
    """A thousand ones come a thousand rounds late, and then all is as it was said to be."""
    prompt, late = (play(OPPONENTS["honest"], FORECASTS["any"], each) for each in (0, 700))
    assert late.bound() > prompt.bound()  # type: ignore[operator]  # after outcomes
    assert late.predict(0.4).p == pytest.approx(0.4, abs=0.03)


@pytest.mark.parametrize("spec", ["prudent+certified", "regret_matching+certified"])
def test_the_draw_of_what_stands_before_it_is_left_as_it_is(spec: str) -> None:
    rng = random.Random(6)
    calibrator, front = make(spec, name="stream"), make(spec.removesuffix("+certified"), name="stream\0front")
    drawn = moved = 0
    for t in range(3000):
        raw, key = rng.random(), b"%d" % t
        p, draw, ticket = calibrator.predict(raw, (), key)
        own = front.predict(raw, (), key)
        assert draw == own.draw
        drawn += draw != p
        moved += p != own.p
        y = float(rng.random() < (0.9 if t < 600 else 0.1) * raw)
        calibrator.update(ticket, y)
        front.update(own.ticket, y)
    assert drawn > 1000
    assert moved > 0


def test_more_outcomes_than_32_bits_hold_are_counted_like_any_others() -> None:
    calibrator = Certified(evidence=0)
    for t in range(40):
        calibrator.update(calibrator.predict(0.3).ticket, float(t % 3 < 1))
    before = calibrator.predict(0.3)
    bound = calibrator.bound()
    calibrator.learnt += 2**32
    for cell in {id(each): each for each in calibrator._cells if each is not NONE}.values():
        cell.events, cell.zeros, cell.ones = cell.events + 2**33, cell.zeros + 2**32, cell.ones + 2**32
    again = Certified(evidence=0)
    again.decode(calibrator.encode())
    assert again.encode() == calibrator.encode()
    answer = again.predict(0.3)
    assert answer.p == before.p
    again.update(answer.ticket, 0.0)
    assert again.learnt == 41 + 2**32
    after = again.bound()
    assert after is not None
    assert bound is not None
    assert after < 1e-3 < bound
