"""What the soak makes of its samples."""

import math
from dataclasses import replace

import pytest

from tests.chaos.samples import Sample
from tests.chaos.soak import growth


def samples(megabytes_an_hour: float, lives: int = 2) -> list[Sample]:
    """Return ten minutes of one worker, which is born ``lives`` times and fills its caches for a minute each time."""
    each = 600 // lives
    found = []
    for at in range(0, 600, 5):
        age = at % each
        megabytes = 100 + min(age, 60) + max(age - 60, 0) / 3600 * megabytes_an_hour
        found.append(Sample(float(at), {0: (at // each, megabytes)}, {0: 50}, [5, 10, 2000]))
    return found


def test_growth_is_the_slope_of_the_last_half_of_the_longest_life() -> None:
    assert growth(samples(36.0)) == pytest.approx((36.0, 295 / 60))
    later = [replace(sample, at=sample.at + 1000, resident={1: (9, 100.0)}) for sample in samples(0.0, lives=1)]
    assert growth(samples(36.0) + later) == pytest.approx((0.0, 595 / 60), abs=1e-6)


def test_lives_too_short_to_say_say_nothing() -> None:
    assert math.isnan(growth(samples(36.0, lives=6))[0])
    assert math.isnan(growth([])[0])
