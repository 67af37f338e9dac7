"""What the default does with segments: each is made right, none is harmed, the order within one is kept."""

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators.by_segment import BySegment
from state.calibrators.prudent import Prudent
from tests.state.logistic import log_loss, logistic

Event = tuple[float, tuple[int, ...], float]  # forecast, slots, outcome


def events(n: int, shift: Callable[[int, tuple[int, ...]], float], groups: Any, seed: int = 1) -> list[Event]:
    """Make events whose log-odds are off by what ``shift`` says of their number and slots."""
    rng = random.Random(seed)
    made = []
    for t in range(n):
        z = rng.gauss(-1.0, 1.0)
        slots = groups(rng, t)
        made.append((logistic(z), slots, float(rng.random() < logistic(z + shift(t, slots)))))
    return made


def play(stream: Sequence[Event], late: int = 0, *, segments: bool = True) -> tuple[list[float], Prudent]:
    """Return ``p`` of each event, where each outcome is learnt so many events later, and the calibrator."""
    calibrator = Prudent(name="stream", seed=3)
    served: list[float] = []
    tickets: list[bytes] = []
    for t, (p, slots, _) in enumerate(stream):
        if t > late:
            calibrator.update(tickets[t - late - 1], stream[t - late - 1][2])
        answer = calibrator.predict(p, (), b"%d" % t, slots if segments else ())
        served.append(answer.p)
        tickets.append(answer.ticket)
    return served, calibrator


def bias(stream: Sequence[Event], served: Sequence[float], slot: int, since: int = 0) -> float:
    """Return the mean of served less happened in a segment."""
    off = [p - y for p, (_, slots, y) in list(zip(served, stream, strict=True))[since:] if slot in slots]
    return sum(off) / len(off)


def brier(stream: Sequence[Event], served: Sequence[float]) -> float:
    return sum((p - y) ** 2 for p, (_, _, y) in zip(served, stream, strict=True)) / len(stream)


def halves(rng: random.Random, _: int) -> tuple[int, ...]:
    return (2 + int(rng.random() < 0.5), 66 + int(rng.random() < 0.5))


@pytest.mark.parametrize("late", [0, 500])
def test_overlapping_segments_are_each_made_right(late: int) -> None:
    def shift(_: int, slots: tuple[int, ...]) -> float:
        return (1.0 if slots[0] == 2 else -0.5) + (0.7 if slots[1] == 66 else 0.0)

    stream = events(12_000, shift, halves)
    served, _ = play(stream, late)
    without, _ = play(stream, late, segments=False)
    for slot in (2, 3, 66, 67):
        assert abs(bias(stream, served, slot, 4000)) < 0.03
    assert max(abs(bias(stream, without, slot, 4000)) for slot in (2, 3)) > 0.1
    assert brier(stream, served) < brier(stream, without) - 0.01


def test_a_segment_that_appears_vanishes_and_is_renamed_starts_from_what_is_known() -> None:
    def groups(rng: random.Random, t: int) -> tuple[int, ...]:
        there = 4000 <= t < 8000 or t >= 10_000
        return ((4 if t < 12_000 else 5) if there and rng.random() < 0.3 else 2,)

    def shift(_: int, slots: tuple[int, ...]) -> float:
        return 1.5 if slots[0] in {4, 5} else 0.0

    stream = events(15_000, shift, groups)
    served, calibrator = play(stream)
    back = [
        p - y for t, (p, (_, slots, y)) in enumerate(zip(served, stream, strict=True)) if slots == (4,) and t > 10_000
    ]
    assert abs(sum(back) / len(back)) < 0.06
    assert abs(bias(stream, served, 5, 13_000)) < 0.06
    assert abs(bias(stream, served, 2, 4000)) < 0.02
    before = calibrator.encode()
    calibrator.predict(0.2, (), b"new", (9,))
    assert calibrator.encode() == before, "a segment takes no bytes before its first outcome"


def test_segments_that_say_nothing_cost_nearly_nothing() -> None:
    stream = events(12_000, lambda *_: 0.5, lambda rng, _: (2 + rng.randrange(20), 66 + rng.randrange(3)))
    served, _ = play(stream)
    without, _ = play(stream, segments=False)
    assert brier(stream, served) < brier(stream, without) + 0.0003


@given(
    stream=st.lists(st.tuples(st.floats(0.01, 0.99), st.integers(0, 2), st.sampled_from([0.0, 1.0])), max_size=300),
    forecasts=st.lists(st.integers(1, 9999), min_size=2, max_size=40, unique=True),
)
def test_order_within_the_same_segments_is_kept(stream: list[tuple[float, int, float]], forecasts: list[int]) -> None:
    part = BySegment()
    for p, k, y in stream * 3:
        ticket = part.answer(p, (k, 64 + k % 2))[1]
        part.learn(ticket, y, math.log(p / (1 - p)), 0.0)
    for k in range(3):
        served = [part.answer(each / 10_000, (k, 64 + k % 2))[0] for each in sorted(forecasts)]
        assert all(left < right for left, right in pairwise(served))


@pytest.mark.parametrize("hated", [False, True])
def test_log_loss_exceeds_that_without_segments_by_no_more_than_the_bound(hated: bool) -> None:  # noqa: FBT001 - a case
    part = BySegment()
    rng = random.Random(5)
    excess = 0.0
    for t in range(6000):
        p, groups = 0.05 + 0.9 * rng.random(), (rng.randrange(3), 64 + t % 2)
        served, ticket = part.answer(p, groups)
        y = float(served <= p) if hated else float(rng.random() < p)  # the other side of where segments have moved it
        excess += log_loss(served, y) - log_loss(p, y)
        part.learn(ticket, y, math.log(p / (1 - p)), 0.0)
        square = part._guard.squares
        assert excess <= -math.log(0.9) * max(1.0, math.sqrt(square) / 2.0) + 1e-3


def test_a_wrong_label_that_is_corrected_leaves_little_behind() -> None:
    stream = events(6000, lambda _, slots: 1.0 if slots[0] == 2 else 0.0, halves)
    rng = random.Random(2)
    right, revised = Prudent(name="stream"), Prudent(name="stream")
    wrong: list[tuple[int, bytes]] = []
    for t, (p, slots, y) in enumerate(stream):
        right.update(right.predict(p, (), b"%d" % t, slots).ticket, y)
        ticket = revised.predict(p, (), b"%d" % t, slots).ticket
        broken = rng.random() < 0.05
        revised.update(ticket, 1.0 - y if broken else y)
        if broken:
            wrong.append((t, ticket))
        while wrong and wrong[0][0] <= t - 200:
            number, old = wrong.pop(0)
            revised.revise(old, 1.0 - stream[number][2], stream[number][2])
    for slot in (2, 3):
        for p in (0.1, 0.3, 0.6):
            assert abs(right.predict(p, (), b"", (slot, 66)).p - revised.predict(p, (), b"", (slot, 66)).p) < 0.05


def test_a_ticket_has_at_most_forty_bytes_more_with_three_segments() -> None:
    stream = events(600, lambda *_: 0.0, lambda *_: (2, 66, 130))
    _, calibrator = play(stream)
    one = calibrator.predict(0.3, (), b"a", (2, 66, 130)).ticket
    other = calibrator.predict(0.3, (), b"a").ticket
    assert len(one) - len(other) <= 40


def test_a_burst_in_one_segment_raises_its_scores_after_it_less_than_its_labels_say() -> None:
    """Half of 300 forecasts of an hour are ones, which no score says, all in one of four segments."""
    hour, late = range(10_000, 10_300), 2300
    for seed in (0, 3):
        rng = random.Random(seed)
        calibrator = Prudent(name="stream", seed=3)
        tickets: list[bytes] = []
        y: list[float] = []
        served = raw = 0.0
        for t in range(20_000):
            p, slot = logistic(rng.gauss(-4.2, 1.2)), 2 + (0 if t in hour else rng.randrange(4))
            answer = calibrator.predict(p, (), b"%d" % t, (slot,))
            tickets.append(answer.ticket)
            y.append(float(rng.random() < (0.5 if t in hour else p)))
            if t >= late:
                calibrator.update(tickets[t - late], y[t - late])
            if t >= hour.stop + late and slot == 2:
                served, raw = served + answer.p, raw + p
        assert served < 1.9 * raw, "2.6 to 3.0 times where each counts in full"
