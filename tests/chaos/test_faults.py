"""The schedule is a function of its seed, and leaves out nothing."""

import random
from typing import Any

import pytest

from tests.chaos import campaign, sources, strikes  # noqa: F401 - there all kinds of faults are
from tests.chaos.faults import KINDS, Kind, draw, schedule

OF_BROKERS: Any = [*KINDS.values(), *sources.KINDS.values()]


@pytest.mark.parametrize("kinds", OF_BROKERS)
def test_a_seed_draws_the_same_faults_again_and_every_kind_before_any_comes_twice(kinds: list[Kind]) -> None:
    """A campaign that ends early has tried as many kinds as faults."""
    orders = []
    for seed in range(20):
        faults = schedule(seed, 3, 6.0, kinds)
        assert faults == schedule(seed, 3, 6.0, kinds)
        assert {fault.kind for fault in faults[: len(kinds)]} == {fault.kind for fault in faults} == set(kinds)
        orders.append(tuple(fault.kind for fault in faults[: len(kinds)]))
        assert {each.drawn["step"] for each in faults if each.kind is strikes.kill_at_step} <= {1, 2, 3, 4, 5, 6}
    assert len(set(orders)) > 15


def test_workers_and_partitions_that_are_struck_exist_and_names_are_told_apart() -> None:
    rng, every = random.Random(1), {kind for kinds in OF_BROKERS for kind in kinds}
    for kind in every:
        for fault in draw(kind, rng, 2, 6.0, partitions=4):
            assert {*fault.drawn.get("workers", ()), fault.drawn.get("worker", 0)} <= {0, 1}
            assert fault.drawn.get("partition", 0) in range(4)
    assert len({kind.told for kind in every}) == len({kind.name for kind in every}) == len(every)
