"""What draws by segment promise: the theorem for every group, counts that commute, and without segments nothing new."""

import random
from typing import Final

import pytest

from state.calibrators.group_regret import GroupRegret
from state.calibrators.regret_matching import RegretMatching

#: Overlapping segments of the opponent's events, each of which holds half of them.
SEGMENTS: Final = 8


def slots(rng: random.Random) -> tuple[int, ...]:
    """Return one slot of each of eight names, the second of two with even odds."""
    return tuple(64 * k + 1 + int(rng.random() < 0.5) for k in range(SEGMENTS))


def opposed(rounds: int, attacked: int | None, seed: int = 5) -> GroupRegret:
    """Play the opponent who answers the other side of ``p`` in one segment, or everywhere; elsewhere chance decides."""
    calibrator = GroupRegret(buckets=1, name="opponent", seed=seed)
    rng = random.Random(seed)
    for t in range(rounds):
        groups = slots(rng)
        p, _, ticket = calibrator.predict(0.5, (), b"%d" % t, groups)
        hated = attacked is None or attacked in groups
        calibrator.update(ticket, float(p <= 0.5 if hated else rng.random() < 0.5))
    return calibrator


@pytest.mark.parametrize("attacked", [None, 1, 65])
def test_no_segment_is_off_against_the_opponent_of_one(attacked: int | None) -> None:
    calibrator = opposed(12_000, attacked)
    error = calibrator.error()
    assert error is not None
    assert error < 0.03
    groups = calibrator.groups()
    assert [each.slot for each in groups] == [64 * k + side for k in range(SEGMENTS) for side in (1, 2)]
    assert max(each.error for each in groups) < 0.04
    assert all(each.error <= each.bound <= 1.0 for each in groups)
    whole = calibrator.bound()
    assert whole is not None
    assert error <= whole < 1.0


def test_without_segments_it_is_regret_matching_to_the_byte() -> None:
    rng = random.Random(3)
    one, other = GroupRegret(name="stream", seed=3), RegretMatching(name="stream", seed=3)
    for t in range(2000):
        p = rng.random()
        answer = one.predict(p, (), b"%d" % t)
        assert answer == other.predict(p, (), b"%d" % t)
        y = float(rng.random() < p * p)
        one.update(answer.ticket, y)
        other.update(answer.ticket, y)
    assert one.encode() == other.encode()
    assert one.bound(7) == other.bound(7)
    assert one.groups() == []


def test_late_outcomes_have_no_bound_by_segment() -> None:
    calibrator = opposed(500, None)
    assert calibrator.bound(3) == 1.0
    assert {each.bound for each in calibrator.groups(3)} == {1.0}


def test_more_outcomes_than_32_bits_hold_are_read_again() -> None:
    calibrator = GroupRegret()
    calibrator.update(calibrator.predict(0.3, key=b"1", groups=(2, 64)).ticket, 1.0)
    for row in calibrator._segments.values():
        i = row.counts.index(1)
        calibrator._count_in(row, i, 2**33, 2**32)
    again = GroupRegret()
    again.decode(calibrator.encode())
    assert [each.n for each in again.groups()] == [1 + 2**33] * 2
    assert again.encode() == calibrator.encode()
