"""How large a calibrator's state can become: never larger than is said, and refused where it fits no batch."""

import random
from typing import Any

import pytest

from state.calibrators import REGISTRY, kind, make, options_of
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Challenger, Policy
from streams.config.settings import Settings, SettingsError

SMALL = {"buckets": 5, "grid": 6, "bins": 7}


@pytest.mark.parametrize(
    "spec", [*(each for each in REGISTRY if kind(each) == "p"), "platt+minimax", "histogram+platt", "prudent+certified"]
)
def test_a_state_is_never_larger_than_its_bound(spec: str) -> None:
    allowed = options_of(spec, {})
    options: dict[str, Any] = {name: value for name, value in SMALL.items() if name in allowed}
    n = int("features" in allowed)
    options |= {"features": 1} if n else {}
    calibrator = make(spec, **options)
    most, rng = calibrator.largest(), random.Random(1)
    for i in range(4000):
        p, x = rng.random(), (rng.uniform(-1, 1),) * n
        ticket = calibrator.predict(p, x, b"%d" % i).ticket
        assert len(ticket) < 100
        calibrator.update(ticket, float(rng.random() < 0.5))
        if i % 50 == 0:
            assert len(calibrator.encode()) <= most
    assert len(calibrator.encode()) <= most == calibrator.largest()


def test_an_adversary_fills_nearly_all_of_the_bound() -> None:
    calibrator = make("minimax", buckets=2, grid=2)
    for i in range(4000):
        answer = calibrator.predict(i % 20 / 20, (), b"%d" % i)
        calibrator.update(answer.ticket, float(answer.p < 0.5))
    assert len(calibrator.encode()) >= 0.8 * calibrator.largest()


def test_a_state_with_more_segments_than_it_counts_stays_within_its_bound() -> None:
    calibrator, rng = make(DEFAULT_CALIBRATOR), random.Random(3)
    for i in range(8000):
        p, slots = rng.random(), tuple(64 * name + rng.randrange(64) for name in range(8))
        calibrator.update(calibrator.predict(p, (), b"%d" % i, slots).ticket, float(rng.random() < p))
    most = calibrator.largest(512)
    assert 0.5 * most < len(calibrator.encode()) <= most == calibrator.largest(1024)


WIDE = {"grid": 1000, "buckets": 1000}


@pytest.mark.parametrize(
    "policy", [Policy("regret_matching", WIDE), Policy("platt", shadow=(Challenger("regret_matching", WIDE),))]
)
def test_options_that_outgrow_a_batch_are_refused_with_sizes_that_would_do(policy: Policy) -> None:
    with pytest.raises(SettingsError, match=r"buckets = .* or grid = .* would do") as refused:
        Settings(policies=Policies([("wide", policy)]))
    said = str(refused.value)
    for name in WIDE:
        size = int(said.split(f"{name} = ")[1].split(maxsplit=1)[0])
        Settings(policies=Policies([("wide", Policy("regret_matching", {**WIDE, name: size}))]))


def test_defaults_fit_the_smallest_batch_that_holds_a_letter() -> None:
    Settings(letter_bytes=0, batch_bytes=200_000)
