"""What `quantile` does with segments: each value is made right, none is harmed, coverage keeps its bound."""

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from state.calibrators import make
from state.calibrators.by_segment import MOST
from state.calibrators.location_scale import WINDOW, Place, units
from state.calibrators.place_by_segment import PlaceBySegment, regrouped, served_at
from state.calibrators.quantile import Quantile
from state.forecasts import Law, Normal, Quantiles
from tests.state.calibrators.numbers import NORMAL, RAIN, SKEWED, Event, Served, loss, off, pinball, serve

RAW = Place(0.0, 1.0)


def play(events: Sequence[Event], late: int = 0, *, segments: bool = True) -> tuple[list[tuple[float, ...]], Quantile]:
    """Return what is served of each event, and the calibrator."""
    calibrator = Quantile(seed=3)
    return serve(calibrator, events, late, segments=segments), calibrator


def coverage(events: Sequence[Event], served: Served, slot: int, since: int) -> float:
    """Return how far the level most off is from what it covers in a segment."""
    own = [(event, values) for event, values in list(zip(events, served, strict=True))[since:] if slot in event[1]]
    return off([event for event, _ in own], [values for _, values in own])


def drawn(
    n: int, law: Law, by: Callable[[int, float], float], groups: Callable[[random.Random], tuple[int, ...]], seed: int
) -> list[Event]:
    """Make outcomes of a law that ``by`` moves, given their first slot."""
    rng = random.Random(seed)
    made = []
    for _ in range(n):
        slots = groups(rng)
        made.append((law, slots, by(slots[0], law.ppf(rng.random()))))
    return made


def one_of(many: int) -> Callable[[random.Random], tuple[int, ...]]:
    return lambda rng: (2 + rng.randrange(many), 66 + rng.randrange(5))


@pytest.mark.parametrize("late", [0, 500])
@pytest.mark.parametrize(
    ("law", "by", "most"),
    [
        (NORMAL, lambda slot, y: y + 3.0 * (slot - 3.5), 0.5),
        (SKEWED, lambda slot, y: y + 3.0 * (slot - 3.5), 0.9),
        (SKEWED, lambda slot, y: 3.0 + (y - 3.0) * (1.0, 0.3, 1.0, 3.0)[slot - 2], 0.92),
    ],
)
def test_each_value_is_covered_as_the_whole_is(
    law: Law, by: Callable[[int, float], float], most: float, late: int
) -> None:
    events = drawn(4000, law, by, one_of(4), 1)
    (apart, _), (whole, _) = (play(events, late, segments=each) for each in (True, False))
    assert max(coverage(events, whole, slot, 2000) for slot in range(2, 6)) > 0.2
    assert max(coverage(events, apart, slot, 2000) for slot in range(2, 6)) < 0.2
    assert loss(events, apart, 2000) < most * loss(events, whole, 2000)


@pytest.mark.parametrize("late", [0, 500])
@pytest.mark.parametrize(
    ("seed", "world"),
    list(
        enumerate(
            (
                lambda rng, _: rng.gauss(0.0, 1.0),
                lambda rng, _: rng.gauss(0.0, 1.0) / rng.random() ** 0.5,  # tails of order 2
                lambda rng, t: rng.gauss(math.sin(t / 500), 1.0),
                lambda rng, _: rng.expovariate(0.3),
            )
        )
    ),
)
def test_values_that_say_nothing_cost_at_most_half_a_hundredth(
    seed: int, world: Callable[[random.Random, int], float], late: int
) -> None:
    rng = random.Random(seed)
    events: list[Event] = [
        (NORMAL, (rng.randrange(12), 64 + rng.randrange(50), 128 + rng.randrange(6)), world(rng, t))
        for t in range(3000)
    ]
    (apart, _), (whole, _) = (play(events, late, segments=each) for each in (True, False))
    assert loss(events, apart) <= 1.005 * loss(events, whole)


@pytest.mark.parametrize("groups", [(9,), (9, 69)])
def test_a_value_that_was_never_seen_is_served_as_the_whole(groups: tuple[int, ...]) -> None:
    """Nine events in ten lie 4 below those of three rare values: an average value is far from most events."""
    rare = drawn(
        4000, NORMAL, lambda slot, y: y + 4.0 * (slot > 2), lambda rng: (_skewed(rng), 66 + rng.randrange(2)), 2
    )
    _, calibrator = play(rare)
    whole = calibrator.predict(NORMAL).p.values
    assert calibrator.predict(NORMAL, groups=groups).p.values == pytest.approx(whole)
    assert calibrator.predict(NORMAL, groups=(3, 66)).p.values[3] > whole[3] + 2.0


@pytest.mark.parametrize(("by", "late"), [(0.0, 0), (0.0, 100), (4.0, 0), (4.0, 100)])
def test_a_new_value_goes_from_the_whole_to_its_own_place(by: float, late: int) -> None:
    known = drawn(4000, NORMAL, lambda slot, y: y + 4.0 * (slot > 2), lambda rng: (_skewed(rng),), 2)
    since = drawn(
        1000,
        NORMAL,
        lambda slot, y: y + (by if slot == 9 else 4.0 * (slot > 2)),
        lambda rng: (9 if rng.random() < 0.2 else _skewed(rng),),
        5,
    )
    events = [*known, *since]
    (apart, calibrator), (whole, _) = (play(events, late, segments=each) for each in (True, False))
    own = [t for t in range(4000, 5000) if events[t][1] == (9,)][: 10 + late // 5]
    served, base = (sum(pinball(each[t], events[t][2]) for t in own) for each in (apart, whole))
    assert served <= 1.1 * base
    assert calibrator.predict(NORMAL, groups=(9,)).p.values[3] == pytest.approx(by, abs=0.5)


def _skewed(rng: random.Random) -> int:
    """Draw one value nine times in ten, else one of three."""
    return 2 if rng.random() < 0.9 else 3 + rng.randrange(3)


def test_a_rare_value_learns_from_few_outcomes_of_its_own() -> None:
    """What it learnt before a long silence is still there: memory is of its own outcomes, not of time."""

    def by(slot: int, y: float) -> float:
        return y + 3.0 * (slot == 2)

    often = drawn(4000, NORMAL, by, lambda rng: (2 + (rng.random() > 0.05),), 3)
    seldom = drawn(4000, NORMAL, lambda _, y: y, lambda _: (3,), 4)
    _, calibrator = play([*often, *seldom])
    moved = calibrator.predict(NORMAL, groups=(2,)).p.values[3] - calibrator.predict(NORMAL, groups=(3,)).p.values[3]
    assert moved == pytest.approx(3.0, abs=0.6)


@pytest.mark.parametrize("late", [0, 100])
def test_coverage_keeps_its_bound_and_levels_never_cross_against_an_opponent(late: int) -> None:
    """The opponent sees what is served, and lets one value's outcomes lie above it and the other's below."""
    rng, calibrator, waiting = random.Random(5), Quantile(rate=0.05), deque[tuple[bytes, float]]()
    for t in range(1500):
        slot = 2 + rng.randrange(2)
        p, _, ticket = calibrator.predict(NORMAL, (), b"%d" % t, (slot,))
        assert all(a <= b for a, b in pairwise(p.values))
        below = min(max(p.values[0] - 1e-6, -1e50), 1e50)
        above = min(max(p.values[-1] + 1e-6, -1e50), 1e50)
        waiting.append((ticket, above if slot == 2 else below))
        if len(waiting) > late:
            calibrator.update(*waiting.popleft())
            error, bound = calibrator.error(), calibrator.bound()
            assert error is not None
            assert bound is not None
            assert error <= bound + 1e-9


def test_without_slots_and_with_atoms_nothing_is_moved_by_segment() -> None:
    calibrator = Quantile()
    for t in range(100):
        calibrator.update(calibrator.predict(RAIN, (), b"%d" % t, (2,)).ticket, float(t % 3))
        calibrator.update(calibrator.predict(NORMAL, (), b"%d" % t).ticket, float(t % 3))
    assert calibrator._segments.encode() == PlaceBySegment().encode()


def test_a_ticket_follows_its_event_to_other_slots() -> None:
    _, calibrator = play(drawn(300, NORMAL, lambda slot, y: y + slot, one_of(4), 7))
    ticket = calibrator.predict(NORMAL, (), b"e", (2, 66)).ticket
    moved = calibrator.regrouped(ticket, {2: 3, 66: 70})
    assert moved != ticket
    assert calibrator.regrouped(moved, {3: 2, 70: 66}) == ticket
    without = calibrator.predict(NORMAL, (), b"e").ticket
    assert calibrator.regrouped(without, {}) == without
    part = PlaceBySegment()
    served, own = part.place(RAW, (2, 66))
    assert served_at(regrouped(own, {2: 3, 66: 70})) == served == RAW


def test_a_revised_outcome_changes_what_is_counted_and_no_place() -> None:
    _, calibrator = play(drawn(300, NORMAL, lambda slot, y: y + slot, one_of(4), 8))
    before = calibrator._segments.encode()
    ticket = calibrator.predict(NORMAL, (), b"e", (2, 66)).ticket
    calibrator.update(ticket, 50.0)
    known = calibrator._segments.encode()
    counts = calibrator.coverage()
    calibrator.revise(ticket, 50.0, -50.0)
    assert before != known == calibrator._segments.encode()
    assert all(a > b for a, b in zip(calibrator.coverage(), counts, strict=True))


def test_a_state_with_more_values_than_it_corrects_stays_within_its_bound() -> None:
    rng, calibrator = random.Random(9), make("quantile")
    for t in range(2000):
        slots = tuple(64 * name + rng.randrange(64) for name in range(8))
        calibrator.update(calibrator.predict(NORMAL, (), b"%d" % t, slots).ticket, rng.gauss(0.0, 1.0))
    most = calibrator.largest(512)
    assert 0.8 * most < len(calibrator.encode()) <= most == calibrator.largest(64 * 16)
    assert calibrator.largest(64) < most
    assert len(PlaceBySegment().encode()) + MOST * 34 + 4 * 8 * WINDOW == PlaceBySegment().largest()


def test_extreme_outcomes_and_laws_stay_finite() -> None:
    part, waiting = PlaceBySegment(), list[tuple[bytes, Law, float]]()
    for law in (Normal(0.0, 1e-49), Normal(1e49, 1e49), Quantiles((0.1, 0.9), (-1e49, 1e49)), NORMAL):
        for y in (1e100, -1e100, 0.0) * 30:
            waiting.append((part.place(RAW, (2, 66))[1], law, y))
    for _ in range(3):  # what is learnt again and again
        for ticket, law, y in waiting:
            part.update(ticket, RAW, law, units(law), y, 2.0)
            (shift, scale), _ = part.place(RAW, (2, 66))
            assert math.isfinite(shift)
            assert 0.0 < scale < math.inf


def test_outcomes_that_never_vary_stay_finite() -> None:
    part = PlaceBySegment()
    for t in range(5000):
        part.update(part.place(RAW, (2 + t % 2,))[1], RAW, NORMAL, units(NORMAL), 0.25, 1.0)
    (shift, scale), _ = part.place(RAW, (2,))
    assert math.isfinite(shift)
    assert scale > 0.0
