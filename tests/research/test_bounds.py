"""The bounds of the papers' calibrators, as those of trueup's are tested."""

from typing import Any

import pytest

from research.calibrators.approachability_regret import ApproachabilityRegret
from state.calibrators import make
from tests.state.calibrators.test_bounds import DELAYS, SEQUENCES, Answer, bound_holds, bound_says_something, play

pytestmark = pytest.mark.usefixtures("registered")


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("outcome", SEQUENCES)
@pytest.mark.parametrize("spacing", ["uniform", "hybrid"])
def test_error_stays_under_the_bound(spacing: str, outcome: Answer, delay: str) -> None:
    calibrator = make("approachability", buckets=1, grid=20, spacing=spacing)
    outstanding = play(calibrator, outcome, DELAYS[delay])
    error, bound = calibrator.error(), calibrator.bound(outstanding)
    assert error is not None
    assert bound is not None
    assert error < bound
    assert bound < 1 or outstanding


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("outcome", SEQUENCES)
@pytest.mark.parametrize(
    "options", [{}, {"preset": "fine"}, {"preset": "coarse", "spacing": "uniform"}, {"loss": "log"}], ids=str
)
def test_error_and_regret_stay_under_their_bounds(options: dict[str, Any], outcome: Answer, delay: str) -> None:
    calibrator = make("approachability_regret", **options)
    assert isinstance(calibrator, ApproachabilityRegret)
    outstanding = play(calibrator, outcome, DELAYS[delay])
    error, bound = calibrator.error(), calibrator.bound(outstanding)
    assert error is not None
    assert bound is not None
    assert error < bound
    assert bound < 1 or outstanding or options.get("loss") == "log"
    assert calibrator.regret() < calibrator.regret_bound(outstanding)


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("approachability", {"buckets": 1, "grid": 20}),
        ("approachability_regret", {"preset": "coarse", "spacing": "uniform"}),
    ],
)
def test_long_delay_leaves_a_bound_that_says_something(spec: str, options: dict[str, Any]) -> None:
    bound_says_something(make(spec, **options), 100)


@pytest.mark.parametrize("outcome", SEQUENCES)
@pytest.mark.parametrize("spec", ["approachability", "approachability_regret"])
def test_front_takes_nothing_from_the_bound(spec: str, outcome: Answer) -> None:
    bound_holds(make(f"platt+{spec}"), outcome)
