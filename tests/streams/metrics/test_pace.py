"""Work has its share of the time, however it is cut, and may begin at once after a while without."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.metrics.pace import BURST, PIECE, REST, SHARE, Pace


class World:
    """Time that passes by work and by rests; all of it is this thread's."""

    def __init__(self) -> None:
        self.now, self.used, self.rests = 1000.0, 0.0, list[float]()
        self.pace = Pace(lambda: self.now, lambda: self.used, self._rest)

    def _rest(self, seconds: float) -> None:
        self.now += seconds
        self.rests.append(seconds)

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.used += seconds


@given(st.lists(st.tuples(st.floats(0.0, 0.02), st.floats(0.0, 0.5)), min_size=1, max_size=60))
def test_work_has_its_share_of_the_time_and_a_burst(pieces: list[tuple[float, float]]) -> None:
    world = World()
    for took, idle in pieces:
        world.pace.begin()
        assert world.used <= SHARE * (world.now - 1000.0) + BURST + 1e-9
        world.work(took)
        world.pace.end()
        world.now += idle


def test_a_burst_begins_at_once_after_a_while_without_work_and_only_then() -> None:
    world, took = World(), 0.002
    bursts = []
    for idle in (0.0, 0.0, 60.0):
        world.now += idle
        world.rests.clear()
        while not world.rests or world.rests[-1] == REST:
            world.pace.begin()
            world.work(took)
            world.pace.end()
        bursts.append(len(world.rests))
    assert bursts[0] == bursts[2] > BURST / took
    assert bursts[1] == 1


def test_a_rest_is_no_longer_than_is_said_and_what_is_left_is_forgotten() -> None:
    world = World()
    world.pace.begin()
    world.work(5.0)
    world.pace.end()
    world.pace.begin(0.25)
    world.pace.end()
    world.pace.begin()
    assert world.rests == [REST, 0.25, pytest.approx(REST)]


def test_short_pieces_run_together() -> None:
    world = World()
    world.pace.begin()
    for _ in range(9):
        world.work(PIECE / 8)
        world.pace.rest()
    assert len(world.rests) == 2
