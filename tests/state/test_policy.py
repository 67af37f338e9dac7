"""Policies."""

import json
from itertools import pairwise

import pytest

from state.calibrators import MAX_FEATURES, REGISTRY
from state.calibrators.bucketed import BUCKETS, GRID
from state.events import Forecast, Rejected
from state.policies import Policies
from state.policy import Challenger, Policy, build
from streams.records.decoding import Decoder
from streams.records.limits import Limits


def test_recipe_is_canonical_json_of_what_build_needs() -> None:
    policy = Policy("identity", seed=7)
    assert policy.recipe == '{"calibrator":"identity","options":{},"seed":7}'
    assert policy.config == "2db8db98"


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (Policy("minimax", {"buckets": BUCKETS, "grid": GRID}), True),
        (Policy("minimax", ttl_ms=1, features=3, shadow=(Challenger("twospeed", {}),)), True),
        (Policy("regret_matching"), False),
        (Policy("minimax", {"grid": GRID + 1}), False),
        (Policy("minimax", seed=1), False),
    ],
)
def test_the_configuration_is_of_what_a_calibrator_is_built_from_and_nothing_else(other: Policy, *, same: bool) -> None:
    assert (other.config == Policy("minimax").config) == same


def test_features_and_their_names_are_part_of_the_recipe() -> None:
    none, counted, named, turned = (
        Policy("calibrated_regression", features=features) for features in (0, 2, ("amount", "age"), ("age", "amount"))
    )
    assert len({policy.config for policy in (none, counted, named, turned)}) == 4
    for policy in (counted, named, turned):
        assert json.loads(policy.recipe)["options"]["features"] == 2
        assert policy.n_features == 2
    assert json.loads(named.recipe)["features"] == ["amount", "age"]


@pytest.mark.parametrize("spec", REGISTRY)
def test_recipe_builds_the_calibrator_it_names(spec: str) -> None:
    policy = Policy(spec)
    assert build(policy.recipe, "stream").name == spec


def test_built_calibrator_draws_by_stream_and_seed() -> None:
    def draws(stream: str, seed: int) -> list[float]:
        calibrator = build(Policy("minimax", {"buckets": 1, "grid": 1}, seed=seed).recipe, stream)
        calibrator.update(calibrator.predict(0.2).ticket, 1)
        calibrator.update(calibrator.predict(1.0).ticket, 0)
        return [calibrator.predict(0.2, (), b"%d" % t).draw for t in range(64)]

    assert draws("a", 1) == draws("a", 1)
    assert draws("a", 1) != draws("b", 1)
    assert draws("a", 1) != draws("a", 2)


@pytest.mark.parametrize("features", [-1, MAX_FEATURES + 1, tuple(map(str, range(MAX_FEATURES + 1)))])
def test_number_of_features_must_be_allowed(features: int | tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"features must be between 0 and {MAX_FEATURES}"):
        Policy(features=features)


def test_most_streams_that_take_turns_are_remembered_although_they_are_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state.policies.REMEMBERED", 100)
    policies, looked = Policies(default=Policy("platt")), list[str]()
    monkeypatch.setattr(policies, "matched", looked.append)
    for turn in range(10):
        for n in range(110):
            assert policies.of(f"b{n}") is policies.default, turn
    assert len(looked) < 110 * 4


@pytest.mark.parametrize(
    ("calibrator", "shadow", "complaint"),
    [
        ("platt", [("platt", {})], "platt already serves"),
        ("minimax", [("minimax", {"grid": GRID})], "minimax already serves"),
        ("platt", [("twospeed", {}), ("minimax", {}), ("twospeed", {})], "names twospeed twice"),
        ("platt", [("quantile", {"levels": (0.25, 0.5)})], "quantile cannot be a challenger"),
        ("multiclass", [("platt", {})], "takes another forecast"),
        ("platt", [("minimx", {})], "minimx"),
        ("platt", [("minimax", {"grdi": 3})], "grdi"),
        ("platt", [("minimax", {"grid": 5 + i}) for i in range(9)], "at most 8"),
    ],
)
def test_challengers_that_cannot_be_are_refused(calibrator: str, shadow: list[Challenger], complaint: str) -> None:
    options = {"classes": 3} if calibrator == "multiclass" else {}
    with pytest.raises(ValueError, match=complaint):
        Policy(calibrator, options, shadow=tuple(Challenger(*each) for each in shadow))


def test_forecasts_of_three_classes_need_no_option_to_be_checked_and_decoded() -> None:
    policies = Policies([("s", Policy("multiclass", matures_ms=10, silence=2.0))])
    decoder = Decoder(policies, Limits())
    forecast = b'{"event_id":"a","stream":"s","probs":[0.2,0.3,0.5]}'
    assert isinstance(decoder.forecast(0, b"a", forecast, 1000), Forecast)
    assert isinstance(decoder.forecast(1, b"b", forecast.replace(b"0.2,", b""), 1000), Rejected)
    with pytest.raises(ValueError, match="silence must be the number of a class, 0 to 2"):
        Policy("multiclass", matures_ms=10, silence=3.0)


def test_a_row_is_as_large_as_the_slots_of_its_stream() -> None:
    sizes = [Policy(segments=names).row_bytes for names in ((), ("a",), ("a", "b", "c"))]
    assert sizes[0] < 20_000
    assert sizes[0] < sizes[1] < sizes[2] < 300_000
    assert Policy("platt+prudent", segments=("a",)).row_bytes > Policy("platt+prudent").row_bytes + 50_000
    many = Policy(segments=tuple("abcdefgh"), pairs=tuple(pairwise("abcdefgh")))
    assert many.row_bytes < sizes[2] + 20_000, "256 slots are corrected and 64 drawn for, however many there are"
