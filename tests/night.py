"""What `make test` leaves to the night, and what tests the same promise by day. `make test TIER=night` runs all.

A test belongs here if it takes seconds and another one, or the same one with another parameter, would fail by day.
"""

import os
from fnmatch import fnmatchcase
from typing import Final

#: By file, below `tests/`, and by a pattern of names there: what stands for them by day.
NIGHT: Final = {
    "agents/test_compiled.py": {
        "test_compiled_engine_keeps*[[][bl]*": "flights there; compiled workers are held against the sources in e2e",
    },
    "bench/test_harmless.py": {
        "test_the_default*first]": "late labels, of events of all rates",
        "test_the_default*revised]": "late labels, of events of all rates",
        "test_the_default*prompt]": "late labels, which do more harm",
        "test_a_bend*": "the default with late labels, which has such a bend",
    },
    "bench/test_shift.py": {
        "*": "shifts of made forecasts in state/scoring/test_distribution.py",
    },
    "deploy/test_alerts.py": {
        "test_an_alert_fires_in_these*": "of each alert a scene in which it fires, and one in which it does not",
    },
    "deploy/test_cluster.py": {
        "*": "the schemas of Kubernetes and the restricted pod standard in deploy/test_kubernetes.py",
    },
    "deploy/test_jars.py": {
        "test_a_jar_that_the_repository*": "the jar that was exchanged in the cache",
        "test_a_jar_that_is_not*": "the jar that was exchanged in the cache",
    },
    "e2e/test_upgrade.py": {
        "*": "rolls with kills in simulation/; who gets what is left: streams/faust/test_assignor.py",
    },
    "research/test_laws.py": {
        "*": "no product: calibrators that ship, in state/calibrators/test_laws.py",
    },
    "frozen/test_frozen.py": {
        "test_outputs*[[]flights-*": "the same by the compiled engine in agents/test_compiled.py",
    },
    "replay/test_ranking.py": {
        "test_intervals_of_ranks*[[]0.4-5000]": "the same of rarer events",
        "test_intervals_of_ranks*-50]": "the same in larger windows",
    },
    "simulation/test_simulation.py": {
        "test_planted_bugs*[[][!a]*": "the same of another bug",
    },
    "state/calibrators/test_by_segment.py": {
        "test_overlapping*[[]500]": "the same with outcomes that come at once",
        "test_a_burst*": "bursts in test_twospeed.py",
    },
    "state/calibrators/test_guard.py": {
        "test_batches_of_many*[[]day]": "the same in batches of a team",
    },
    "state/calibrators/test_laws.py": {
        "test_one_revision*[[][!p]*": "prudent and platt, with others behind them",
    },
    "state/calibrators/test_location_scale.py": {
        "test_what_is_served*[[]law[13]]": "the same where the model is too high, and where it is too narrow",
        "test_right_forecasts*[[]100]": "the same with no delay, and with a longer one",
    },
    "state/calibrators/test_place_by_segment.py": {
        "test_a_new_value*-100]": "the same with outcomes that come at once",
        "test_*-500]": "the same with outcomes that come at once",
    },
    "state/calibrators/test_quantile.py": {
        "test_perfect_forecasts*-[12]00]": "the same with no delay, and with longer ones",
        "test_coverage_stays_under_the_bound[[]*-100]": "the same with ten, and with a thousand outstanding",
        "test_bound_says*[[][!h]*": "worlds that hunt for the calibrator and hide from it",
        "test_coverage*[[][!h]*": "worlds that hunt for the calibrator and hide from it",
    },
    "state/calibrators/test_twospeed.py": {
        "test_after_a_broken*[[]2]": "the same with another seed",
        "test_frauds_that_are*[[]2]": "the same with another seed",
        "*-[23]]": "the same with another seed",
    },
    "state/test_invariants.py": {
        "test_a_long_history*[[]2]": "the same in small batches",
    },
    "state/test_rescale.py": {
        "test_no_event*[[]widths[13]-*": "two to five to three, and four to one to two",
        "test_every_calibrator_redeems*[[]widths1-*": "three to two; two to five in other tests here",
        "test_every_calibrator_redeems*[[]widths0-[!p]*": "prudent and platt, with others behind them",
    },
    "streams/metrics/test_beside.py": {
        "test_segments_that_are_off*[[]classes]": "the same with numbers",
    },
}


def by_night() -> bool:
    """Whether this run is one of all tests."""
    return os.environ.get("TIER") == "night"


#: How many examples a test of properties takes.
EXAMPLES: Final = 100 if by_night() else 12


def by_day(test: str) -> bool:
    """Whether a test, by its id, runs in this run."""
    return by_night() or pattern_of(test) is None


def pattern_of(test: str) -> tuple[str, str] | None:
    """Return file and pattern of `NIGHT` that a test's id is of; None of a test that always runs."""
    path, _, name = test.partition("::")
    file = path.removeprefix("tests/")
    return next(((file, pattern) for pattern in NIGHT.get(file, ()) if fnmatchcase(name, pattern)), None)
