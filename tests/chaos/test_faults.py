"""The schedule is a function of its seed, and leaves out nothing."""

import random

import pytest

from tests.chaos import campaign  # noqa: F401 - there all strikes are registered
from tests.chaos.faults import DAMAGE, Damage, KillAtStep, draw, kinds, schedule
from tests.chaos.stage import strike


def test_a_seed_draws_the_same_faults_again_and_another_seed_others() -> None:
    assert schedule(3, 3, 6.0, kinds(3)) == schedule(3, 3, 6.0, kinds(3))
    assert schedule(3, 3, 6.0, kinds(3)) != schedule(4, 3, 6.0, kinds(3))


@pytest.mark.parametrize("brokers", [1, 3])
def test_every_round_has_every_kind_every_step_and_every_damage(brokers: int) -> None:
    for seed in range(20):
        faults = schedule(seed, 3, 6.0, kinds(brokers))
        assert {type(fault) for fault in faults} == set(kinds(brokers))
        assert {fault.step for fault in faults if isinstance(fault, KillAtStep)} == {1, 2, 3, 4, 5, 6}
        assert {(fault.files, fault.how) for fault in faults if isinstance(fault, Damage)} == set(DAMAGE)


@pytest.mark.parametrize("brokers", [1, 3])
def test_every_kind_comes_once_before_any_comes_twice(brokers: int) -> None:
    """A campaign that ends early has tried as many kinds as faults."""
    every = kinds(brokers)
    for seed in range(20):
        faults = schedule(seed, 3, 6.0, every)
        assert {type(fault) for fault in faults[: len(every)]} == set(every)
    orders = {tuple(type(fault) for fault in schedule(seed, 3, 6.0, every)[: len(every)]) for seed in range(5)}
    assert len(orders) == 5


@pytest.mark.parametrize("brokers", [1, 3])
def test_workers_and_partitions_that_are_struck_exist(brokers: int) -> None:
    rng = random.Random(1)
    for kind in kinds(brokers):
        for fault in draw(kind, rng, 2, 6.0, partitions=4):
            struck = getattr(fault, "workers", None) or (getattr(fault, "worker", 0),)
            assert set(struck) <= {0, 1}
            assert getattr(fault, "partition", 0) in range(4)


def test_names_are_told_apart() -> None:
    every = {*kinds(1), *kinds(3)}
    assert len({kind.name for kind in every}) == len(every)


def test_every_kind_has_its_strike() -> None:
    unknown = strike.dispatch(object)
    assert not [kind for brokers in (1, 3) for kind in kinds(brokers) if strike.dispatch(kind) is unknown]
