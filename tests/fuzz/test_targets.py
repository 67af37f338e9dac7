"""Every target holds on its seeds, on what was found before, and on mutations of both."""

import gc
import random
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fuzz.mutation import mutated
from tests.fuzz.targets import TARGETS, inputs
from tests.night import EXAMPLES

MUTATIONS: Final = 5 * EXAMPLES


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left() -> None:
    """Let what earlier tests left unfinished tell so here, and not on the standard error that targets look at."""
    gc.collect()


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_what_was_found_before_hold(name: str) -> None:
    seeds = inputs(name)
    assert seeds
    for seed in seeds:
        TARGETS[name].check(seed)
        for end in range(0, min(len(seed), 200), 3):
            TARGETS[name].check(seed[:end])


@pytest.mark.parametrize("name", TARGETS)
def test_anything_else_holds(name: str) -> None:
    seeds, check = inputs(name), TARGETS[name].check

    @settings(max_examples=MUTATIONS)
    @given(st.binary(max_size=300) | st.integers(0, 2**32).map(lambda seed: mutated(random.Random(seed), seeds)))
    @example(b"")
    def holds(data: bytes) -> None:
        check(data)

    holds()
