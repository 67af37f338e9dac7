"""The schedule is a function of its seed, and leaves out nothing."""

import random

from tests.chaos.faults import DAMAGE, KINDS, Damage, KillAtStep, draw, schedule


def test_a_seed_draws_the_same_faults_again_and_another_seed_others() -> None:
    assert schedule(3, 3, 6.0) == schedule(3, 3, 6.0)
    assert schedule(3, 3, 6.0) != schedule(4, 3, 6.0)


def test_every_round_has_every_kind_every_step_and_every_damage() -> None:
    for seed in range(20):
        faults = schedule(seed, 3, 6.0)
        assert {type(fault) for fault in faults} == set(KINDS)
        assert {fault.step for fault in faults if isinstance(fault, KillAtStep)} == {1, 2, 3, 4, 5}
        assert {(fault.files, fault.how) for fault in faults if isinstance(fault, Damage)} == set(DAMAGE)


def test_workers_that_are_struck_exist() -> None:
    rng = random.Random(1)
    for kind in KINDS:
        for fault in draw(kind, rng, 2, 6.0):
            struck = getattr(fault, "workers", None) or (getattr(fault, "worker", 0),)
            assert set(struck) <= {0, 1}


def test_names_are_told_apart() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
