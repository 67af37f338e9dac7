"""What the soak makes of its samples."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos import picture
from tests.chaos.samples import Sample
from tests.chaos.soak import growth


def samples(megabytes_an_hour: float, lives: int = 2) -> list[Sample]:
    """Return ten minutes of one worker, which is born ``lives`` times and fills its caches for a minute each time."""
    each = 600 // lives
    found = []
    for at in range(0, 600, 5):
        age = at % each
        megabytes = 100 + min(age, 60) + max(age - 60, 0) / 3600 * megabytes_an_hour
        found.append(Sample(float(at), {0: (at // each, megabytes)}, {0: 50}, at, [5, 10, 2000]))
    return found


def test_growth_is_the_slope_of_the_last_half_of_the_longest_life() -> None:
    assert growth(samples(36.0)) == pytest.approx((36.0, 295 / 60))
    later = [replace(sample, at=sample.at + 1000, resident={1: (9, 100.0)}) for sample in samples(0.0, lives=1)]
    assert growth(samples(36.0) + later) == pytest.approx((0.0, 595 / 60), abs=1e-6)


def test_lives_too_short_to_say_say_nothing() -> None:
    assert math.isnan(growth(samples(36.0, lives=6))[0])
    assert math.isnan(growth([])[0])


def test_a_picture_is_drawn_of_a_worker_that_was_away_and_a_broker_that_did_not_answer(tmp_path: Path) -> None:
    taken = samples(10.0)
    taken[3] = Sample(15.0, {}, {}, None, [])
    path = tmp_path / "soak.png"
    picture.draw(path, taken, [(60.0, 75.0, "kill -9 at random")], "ten minutes")
    assert path.read_bytes().startswith(b"\x89PNG")
