"""The recent alarm of a segment: windows that labels do not move, few false alarms, and an error that is found."""

import math
import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.scoring.alarm import ALPHA
from state.scoring.recent import LEAST, RECENT, Recent, RecentLevels

#: n, happened and the chance of each event of a window of the stream, in quarters so that sums are exact.
WINDOWS = st.lists(
    st.tuples(st.sampled_from([1, 100, LEAST - 1, LEAST, 300]), st.integers(0, 4), st.integers(0, 4)), max_size=15
)


def played(windows: list[tuple[int, int, int]]) -> Recent:
    recent = Recent()
    for number, (n, happened, quarters) in enumerate(windows):
        p = quarters / 4
        for t in range(n):
            recent.observe(p, p * p, float(t % 4 < happened), number)
    return recent


@given(WINDOWS)
def test_windows_are_those_of_their_sums_and_bounded(windows: list[tuple[int, int, int]]) -> None:
    by_sums = Recent()
    for number, (n, happened, quarters) in enumerate(windows):
        p = quarters / 4
        y = sum(t % 4 < happened for t in range(n))
        by_sums.add((n, y, n * p, n * p * p), number)
    recent = played(windows)
    assert recent.encode() == by_sums.encode()
    stretches = recent.stretches()
    assert [each.windows for each in stretches] == list(range(1, len(stretches) + 1))
    assert len(stretches) <= RECENT + 1
    assert all(later.n - each.n >= LEAST for each, later in pairwise(stretches))
    again = Recent()
    end = again.decode(b"xy" + recent.encode(), 2)
    assert (again.encode(), end) == (recent.encode(), 2 + len(recent.encode()))


@given(WINDOWS, st.integers(0, 2**32))
def test_a_revision_leaves_the_sums_of_the_corrected_labels(windows: list[tuple[int, int, int]], seed: int) -> None:
    rng = random.Random(seed)
    recent, expected, changes = Recent(), Recent(), []
    for number, (n, _, quarters) in enumerate(windows):
        p = quarters / 4
        for _ in range(n):
            was, y = float(rng.random() < 0.5), float(rng.random() < 0.5)
            recent.observe(p, p * p, was, number)
            expected.observe(p, p * p, y, number)
            changes.append(((0.0, y - was), number))
    rng.shuffle(changes)
    for change in changes:
        recent.change(*change)
    assert recent.encode() == expected.encode()


@given(WINDOWS, WINDOWS)
def test_partitions_add_up_from_the_present_window_back(
    one: list[tuple[int, int, int]], other: list[tuple[int, int, int]]
) -> None:
    first, second = played(one), played(other)
    both, found = first + second, [first.stretches(), second.stretches()]
    assert both.encode() == (second + first).encode()
    assert len(both.stretches()) == max(map(len, found))
    for i, each in enumerate(both.stretches()):
        parts = [stretches[min(i, len(stretches) - 1)] for stretches in found if stretches]
        assert (each.n, each.y, each.p) == tuple(sum(getattr(part, name) for part in parts) for name in ("n", "y", "p"))
    assert (first + Recent()).encode() == first.encode()
    assert (first + Recent()).log_alarm() == first.log_alarm()


def test_what_was_added_up_needs_more_evidence() -> None:
    one = played([(400, 4, 2), (400, 4, 2)])
    evidence, stretch = (one + one).log_alarm()
    assert stretch is not None
    doubled = played([(800, 4, 2), (800, 4, 2)]).log_alarm()[0]
    assert evidence == pytest.approx(doubled - math.log(RECENT + 1))


def test_few_of_many_honest_segments_ever_raise_it() -> None:
    # 32 segments in 20 windows of the stream: of all of them at most .02 reach 64 / ALPHA, and 1.3 reach 1 / ALPHA.
    rng = np.random.default_rng(11)
    most = []
    for k in range(32):
        recent, chance, here = Recent(), 0.02 + 0.6 * k / 32, -math.inf
        for window in range(20):
            n = int(rng.integers(20, 400))
            for t, y in enumerate((rng.random(n) < chance).tolist()):
                recent.observe(chance, chance * chance, float(y), window)
                here = max(here, recent.log_alarm()[0]) if t % 16 == 0 else here
        most.append(here)
    assert sum(each >= math.log(1 / ALPHA) for each in most) <= 3
    assert max(most) < math.log(64 / ALPHA)


def test_an_error_is_found_and_the_alarm_ends_after_it() -> None:
    rng, recent, level, found = random.Random(3), Recent(), math.log(64 / ALPHA), 0
    for window in range(40):
        for _ in range(300):
            recent.observe(0.2, 0.04, float(rng.random() < (0.4 if 10 <= window < 15 else 0.2)), window)
            found += 10 <= window < 15 and recent.log_alarm()[0] < level
        if window < 10 or window >= 15 + RECENT + 1:
            assert recent.log_alarm()[0] < level
        if 10 < window < 15:
            evidence, stretch = recent.log_alarm()
            assert evidence > level
            assert stretch is not None
            assert stretch.y / stretch.n > 0.3
    assert found < 600


def of_marks(windows: list[tuple[int, int, int]], empty: Recent) -> Recent:
    """Play windows whose events have three binary events, or levels."""
    for number, (n, happened, quarters) in enumerate(windows):
        for t in range(n):
            y = [float((t + k) % 4 < happened) for k in range(3)]
            p = [(quarters + k) % 5 / 4 for k in range(3)]
            rest = y if isinstance(empty, RecentLevels) else [*p, *[each * each for each in p]]
            empty.add([1.0, *y, *rest], number)
    return empty


@pytest.mark.parametrize("make", [lambda: Recent(3), lambda: RecentLevels((0.25, 0.5, 0.75))])
@given(WINDOWS, WINDOWS)
def test_several_binary_events_are_counted_apart_and_add_up(
    make: Callable[[], Recent], one: list[tuple[int, int, int]], other: list[tuple[int, int, int]]
) -> None:
    first, second = of_marks(one, make()), of_marks(other, make())
    again = make()
    assert again.decode(b"xy" + first.encode(), 2) == 2 + len(first.encode())
    assert again.encode() == first.encode()
    both = first + second
    assert both.encode() == (second + first).encode()
    for mark in range(3):
        found = [each.stretches(mark) for each in (first, second)]
        for i, each in enumerate(both.stretches(mark)):
            parts = [stretches[min(i, len(stretches) - 1)] for stretches in found if stretches]
            assert (each.n, each.y, each.p) == tuple(sum(getattr(x, name) for x in parts) for name in ("n", "y", "p"))


def test_of_several_binary_events_the_one_that_is_wrong_is_found_and_pays_for_the_others() -> None:
    alone, among = Recent(), Recent(4)
    for t in range(400):
        y = float(t % 2)
        alone.observe(0.25, 0.0625, y, 0)
        calm = [float(t % 4 == 0)] * 3
        among.add([1.0, *calm, y, *[0.25] * 4, *[0.0625] * 4], 0)
    evidence, stretch = among.log_alarm()
    assert stretch is not None
    assert (stretch.mark, stretch.y, stretch.p) == (3, 200, 100.0)
    assert evidence == pytest.approx(alone.log_alarm()[0] - math.log(4), abs=1e-6)


def test_an_atom_that_covers_more_than_its_level_raises_no_alarm() -> None:
    rain, wrong = RecentLevels((0.25, 0.5)), RecentLevels((0.25, 0.5))
    for _ in range(1000):  # no rain, which was said to be at least as likely as the level
        rain.add([1.0, 0.0, 0.0, 1.0, 1.0], 0)
        wrong.add([1.0, 0.0, 0.0, 0.0, 0.0], 0)
    assert rain.log_alarm()[0] < 0.0
    evidence, stretch = wrong.log_alarm()
    assert evidence > 100.0
    assert stretch is not None
    assert stretch.mark == 1


@pytest.mark.parametrize("payload", [b"", b"\1\0\0\0\0", b"\x0a\0\0\0\0" + b"\0" * 280])
def test_what_is_no_recent_windows_is_refused(payload: bytes) -> None:
    with pytest.raises(Exception, match=r"windows|unpack_from"):
        Recent().decode(payload, 0)
