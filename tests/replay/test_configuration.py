"""What is replayed: plans with another calibrator, and with a challenger in its champion's place."""

from dataclasses import replace
from pathlib import Path

import pytest

from replay.configuration import configurations
from state.policies import Policies
from state.policy import Challenger, Policy
from streams.config.settings import Settings, SettingsError

POLICIES = Policies(
    [
        ("a-*", Policy("platt", features=2, shadow=(Challenger("minimax", {}), Challenger("histogram", {"bins": 20})))),
        ("b-*", Policy("twospeed", shadow=(Challenger("minimax", {}),))),
        ("c-*", Policy("identity")),
    ],
    Policy("platt+minimax"),
)
SETTINGS = replace(Settings(), policies=POLICIES)


def test_a_challenger_takes_its_champions_place_wherever_it_is_one() -> None:
    found = configurations(SETTINGS, ["identity"], [], challengers=True)
    assert [each.name for each in found] == ["present", "minimax", "histogram:bins=20", "identity"]
    present, minimax, histogram, _ = (each.policies for each in found)
    assert present is POLICIES
    assert [policy.calibrator for _, policy in minimax.patterns] == ["minimax", "minimax", "identity"]
    assert [policy.calibrator for _, policy in histogram.patterns] == ["histogram", "twospeed", "identity"]
    for plan in (minimax, histogram):
        assert plan.default == POLICIES.default
    (_, promoted), *_ = histogram.patterns
    assert promoted.config == POLICIES.patterns[0][1].challengers[1].config, "it is what the shadow has learnt as"


def test_a_calibrator_that_is_a_challenger_may_be_replayed_for_all() -> None:
    (found,) = configurations(SETTINGS, ["minimax"], [])
    assert [policy.calibrator for _, policy in found.policies.patterns] == ["minimax"] * 3


def test_a_calibrator_beside_a_file_takes_the_place_of_the_files_own(tmp_path: Path) -> None:
    paths = [tmp_path / "one.toml", tmp_path / "two.toml"]
    for n, path in enumerate(paths, 1):
        path.write_text(f'[streams."loans"]\ncalibrator = "twospeed"\nttl = "{n}d"\n')
    (alone,) = configurations(SETTINGS, ["minimax"], paths[:1])
    assert alone.name == "minimax"
    assert [(each.calibrator, each.ttl_ms) for _, each in alone.policies.patterns] == [("minimax", 86_400_000)]
    both = configurations(SETTINGS, ["minimax", "platt"], paths)
    assert [each.name for each in both] == ["one minimax", "one platt", "two minimax", "two platt"]


def test_a_plan_without_challengers_says_so() -> None:
    with pytest.raises(SettingsError, match="`shadow` names them"):
        configurations(Settings(), [], [], challengers=True)
