"""Approachability: the step under delay, the state."""

import math
import random
import struct
from collections import deque

import pytest

from research.calibrators.approachability import STEP, Approachability


def test_step_is_that_of_the_notes_scaled_by_the_delay() -> None:
    calibrator = Approachability(buckets=1, grid=20, spacing="uniform")
    tickets = [calibrator.predict(p / 100, (), b"%d" % p).ticket for p in range(0, 100, 5)]
    late = 0
    for t, ticket in enumerate(tickets):
        _, i, _ = struct.unpack("<HHQ", ticket)
        before = calibrator._field.get(i, 0.0)
        calibrator.update(ticket, 1.0)
        late += t
        step = STEP * math.sqrt(21 / (t + 1 + 2 * late))
        assert calibrator._field[i] == min(before + step * (1 - i / 20), 1.0)


def test_constant_delay_divides_the_step_by_the_root_of_1_plus_2d() -> None:
    delay, rounds = 10, 4000
    calibrator = Approachability(buckets=1, grid=20)
    tickets = [calibrator.predict(0.5, (), b"%d" % t).ticket for t in range(delay)]
    for t in range(rounds):
        tickets.append(calibrator.predict(0.5, (), b"%d" % (t + delay)).ticket)
        calibrator.update(tickets.pop(0), float(t % 2))
    t, late = calibrator._clock[0]
    assert math.sqrt(t / (t + 2 * late)) == pytest.approx(1 / math.sqrt(1 + 2 * delay), rel=0.01)


def test_theta_stays_in_the_cube() -> None:
    calibrator = Approachability(buckets=2, grid=10)
    rng = random.Random(1)
    for t in range(2000):
        calibrator.update(calibrator.predict(rng.random(), (), b"%d" % t).ticket, float(t // 300 % 2))
    assert all(-1.0 <= theta <= 1.0 for theta in calibrator._field.values())


class Heedless(Approachability):
    """Takes every outcome for one that came at once."""

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:  # noqa: ARG002 - as the others have it
        j, i, _ = struct.unpack("<HHQ", ticket)
        super().update(self._ticket(j, i), y)


def test_step_scaled_by_the_delay_does_better_against_an_opponent() -> None:
    errors = []
    for kind in (Approachability, Heedless):
        calibrator = kind(buckets=1, grid=20)
        rng, waiting = random.Random(17), deque[tuple[bytes, float]]()
        for t in range(20_000):
            expected, _, ticket = calibrator.predict(rng.random(), (), b"%d" % t)
            waiting.append((ticket, float(expected <= 0.5)))
            if len(waiting) > 100:
                calibrator.update(*waiting.popleft())
        errors.append(calibrator.error() or 1.0)
    assert errors[0] < errors[1]


def test_one_outcome_that_comes_very_late_does_not_stop_the_learning() -> None:
    def error(stragglers: int) -> float:
        calibrator = Approachability(buckets=1, grid=20)
        first = calibrator.predict(0.5, (), b"first").ticket
        for t in range(6000):
            expected, _, ticket = calibrator.predict(0.5, (), b"%d" % t)
            calibrator.update(ticket, float(expected <= 0.5))
            if t == 3000 and stragglers:
                calibrator.update(first, 1.0)
        return calibrator.error() or 1.0

    assert error(1) < 2 * error(0)  # by the sum of delays the step is sqrt(3) smaller, by a maximum 77 times


def test_layout_is_the_documented_one() -> None:
    calibrator = Approachability(buckets=2, grid=4, spacing="uniform")
    early = calibrator.predict(0.75).ticket
    assert early == struct.pack("<HHQ", 1, 3, 0)
    calibrator.update(calibrator.predict(0.75).ticket, 1)
    calibrator.update(early, 1)
    assert calibrator.encode()[16:] == struct.pack("<IQQQd", 8, 2, 2, 1, calibrator._field[8])


def test_bound_is_the_published_one_with_the_constant_of_decreasing_steps() -> None:
    calibrator = Approachability(buckets=1, grid=20, spacing="uniform")
    for t in range(1000):
        calibrator.update(calibrator.predict(0.3, (), b"%d" % t).ticket, float(t % 3 == 0))
    assert calibrator.bound() == pytest.approx(1 / 40 + (2 / STEP + STEP) * math.sqrt(21 / 1000))
