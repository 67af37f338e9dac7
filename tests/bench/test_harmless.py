"""The default beside raw forecasts, in every run of the tests: a change that does harm does not go unnoticed."""

from typing import Final

import pytest

from state.calibrators import Calibrator, make
from state.calibrators.twospeed import TwoSpeed
from state.policy import DEFAULT_CALIBRATOR
from tests.bench.harmless import SEED, Case, cases, harm, labels, play

Name = tuple[str, str]

#: How many standard errors the default may be worse than raw forecasts by Brier score, log loss and AUC: what it was
#: when it was last looked at, rounded up, and less than 0 where it is better. More is a regression, or a price to be
#: stated here. docs/explanation/calibrators.md says what is behind those above 0.
MOST: Final[dict[Name, tuple[float, float, float]]] = {
    ("flights", "prompt"): (-17.5, -19.0, -19.5),
    ("flights", "late"): (2.0, 0.5, 17.0),
    ("flights", "ones first"): (-1.0, -3.0, -2.5),
    ("flights", "zeros first"): (10.5, 12.5, 10.0),
    ("flights", "revised"): (2.0, 0.5, 17.0),
    ("flights 1.0%", "prompt"): (-105.0, -95.0, -1.0),
    ("flights 1.0%", "late"): (-100.0, -90.0, 4.0),
    ("flights 1.0%", "ones first"): (-100.0, -90.0, 0.0),
    ("flights 1.0%", "zeros first"): (-105.0, -90.0, 1.5),
    ("flights 1.0%", "revised"): (-100.0, -93.0, 4.0),
}


@pytest.fixture(scope="module")
def played() -> dict[Name, Case]:
    return {(case.name, case.outcomes): case for case in cases(quick=True)}


def beyond(case: Case, calibrator: Calibrator) -> list[str]:
    """Say by which metrics a calibrator is worse than raw forecasts by more than it may."""
    found = harm(case, play(calibrator, case.raw, labels(case, case.partitions[0])))
    several = zip(found.errors.items(), MOST[case.name, case.outcomes], strict=True)
    return [
        f"{metric} {errors:+.1f} errors, at most {most:+.1f}" for (metric, errors), most in several if errors > most
    ]


@pytest.mark.parametrize("name", MOST, ids=", ".join)
def test_the_default_does_no_more_harm_than_is_known(name: Name, played: dict[Name, Case]) -> None:
    assert not beyond(played[name], make(DEFAULT_CALIBRATOR, name="harm", seed=SEED))


def test_every_row_that_is_played_has_its_limits(played: dict[Name, Case]) -> None:
    assert set(played) == set(MOST)


@pytest.mark.parametrize("outcomes", ["late", "revised"])
def test_a_bend_that_follows_what_comes_too_late_is_noticed(outcomes: str, played: dict[Name, Case]) -> None:
    """The harm that the default did before the bend had a share: here the share is 1 and stays there."""
    bent = TwoSpeed()
    bent._bent, bent._bent_held = 1.0, 1e300
    said = beyond(played["flights", outcomes], bent)
    assert [each.split(" ")[0] for each in said][:2] == ["Brier", "log"]
    assert not beyond(played["flights", outcomes], TwoSpeed())
