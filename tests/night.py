"""What `make test` leaves to the night, and what tests the same promise by day. `make test TIER=night` runs all.

A test belongs here if it takes seconds and another one, or the same one with another parameter, would fail by day.
"""

import os
from fnmatch import fnmatchcase
from typing import Final

#: By file, below `tests/`, and by a pattern of names there: what stands for them by day.
NIGHT: Final = {
    "agents/test_processor.py": {"test_taking_up*[[]memory]": "the same with RocksDB"},
    "bench/test_shift.py": {"*": "shifts of made forecasts in state/scoring/test_distribution.py"},
    "chaos/test_chaos.py": {
        "test_nothing_*brokers*": "a leader that is frozen in e2e/test_cluster.py; a broker that is killed here",
    },
    "chaos/test_sources.py": {
        f"{test}*": "stages that are killed, then audited: e2e/test_intake.py, test_carried.py, test_following.py"
        for test in ("test_nothing_", "test_a_loss_", "test_a_double_", "test_two_answers_")
    },
    "deploy/test_alerts.py": {
        "test_an_alert_fires_in_these*": "of each alert a scene in which it fires, and one in which it does not",
    },
    "deploy/test_jars.py": {
        "test_exactly_the_jars*": "`make jars` checks every hash in each run of CI",
        "test_the_lock_lists*": "locks have the versions that their projects name, and `make jars` takes them",
        "test_a_jar_that_the_repository*": "the jar that was exchanged in the cache",
        "test_a_jar_that_is_not*": "the jar that was exchanged in the cache",
    },
    "e2e/test_carried.py": {
        "test_through_intake_and_router*[[][ir]*": "the same with a worker that is killed",
    },
    "e2e/test_codecs.py": {
        "test_inputs_outputs*": "records of a Java producer in every codec, and topics whose own codec is lz4",
        "test_topics_whose_own_codec*[[][gsz]*": "the same with lz4",
    },
    "e2e/test_crashes.py": {
        "test_workers_join_and_leave[[]]": "the same with slow seeks",
        "test_kill_9_between*[[]same]": "the same with an empty disk; test_a_restart keeps one",
    },
    "e2e/test_disks.py": {"test_damaged_tables*[[]halved]": "tables in which bits are flipped"},
    "e2e/test_following.py": {
        "test_sources_are_followed_*": "what is lost or doubled at a move; topics that grow in test_moved_audit.py",
    },
    "e2e/test_hostile.py": {
        "test_many_batches*": "one batch beyond the bound; bounds of all batches in streams/faust/test_unpacking.py",
        "test_a_batch_that_expands*[[][gsl]*": "the same with zstd; every codec in streams/faust/test_unpacking.py",
    },
    "e2e/test_intake.py": {
        "test_a_stage_that_is_killed*[[][rw]*": "intake; a worker in test_carried.py, a router in test_following.py",
        "test_a_record_stamped_ahead*": "the same of the merge in streams/records/test_merge.py",
    },
    "e2e/test_moved_audit.py": {
        "test_an_audit_goes_through_four*": "topics that stay and grow, and a row that was changed on the way",
        "test_a_row_that_was_changed*[[]S]": "the same with a row of the ledger",
    },
    "e2e/test_output_formats.py": {
        "test_from_avro*": "a Java client reads Avro in test_registry.py; an audit derives it in replay/audit",
    },
    "e2e/test_poison.py": {"test_a_worker_that_dies*[[]outcomes]": "the same with a forecast"},
    "e2e/test_rescale.py": {
        "test_topics_may_grow*": "the same, and an audit, in test_moved_audit.py",
        "test_intake_router_and_worker*": "a move that is killed at every step; three stages in test_following.py",
    },
    "frozen/test_frozen.py": {
        "test_outputs*[[]flights-*": "the same by the compiled engine in agents/test_compiled.py",
    },
    "lab/test_broker.py": {"test_records_of_past_years*": "brokers that restart in e2e/test_crashes.py"},
    "research/test_experiments.py": {"test_one_experiment*": "the other tests there"},
    "lab/test_flights.py": {"*": "frozen/: digests of the flights and of all answers to them"},
    "simulation/test_simulation.py": {
        "test_every_planted_bug*": "four planted bugs that are found soon",
    },
    "state/calibrators/test_auto.py": {"test_guarded_aggregate*[[][bow]*": "the same on four other streams"},
    "state/calibrators/test_by_segment.py": {
        "test_overlapping*[[]500]": "the same with outcomes that come at once",
        "test_each_of_fifty*": "overlapping segments are each made right",
        "test_a_burst*": "bursts in test_twospeed.py",
    },
    "state/calibrators/test_place_by_segment.py": {
        "test_a_new_value*-100]": "the same with outcomes that come at once",
        "test_*-500]": "the same with outcomes that come at once",
    },
    "state/calibrators/test_rare_events.py": {
        "test_grids*": "the rate of 1 % in test_noise_margin_is_nearer_still",
        "test_noise_margin*[[]0.0[05]*": "the same at 1 %",
    },
    "state/scoring/test_recent.py": {"test_few_of_many*levels*": "the same of segments of events"},
    "state/test_shadows.py": {"test_challengers_row_of_a_long*": "the same over generated histories"},
    "state/test_rescale.py": {
        "test_no_event*[[]widths[13]-*": "two to five to three, and four to one to two",
        "test_every_calibrator_redeems*[[]widths1-*": "three to two; two to five in other tests here",
    },
    "streams/metrics/test_beside.py": {"test_segments_that_are_off*[[]classes]": "the same with numbers"},
}


def by_night() -> bool:
    """Whether this run is one of all tests."""
    return os.environ.get("TIER") == "night"


def by_day(test: str) -> bool:
    """Whether a test, by its id, runs in this run."""
    return by_night() or pattern_of(test) is None


def pattern_of(test: str) -> tuple[str, str] | None:
    """Return file and pattern of `NIGHT` that a test's id is of; None of a test that always runs."""
    path, _, name = test.partition("::")
    file = path.removeprefix("tests/")
    return next(((file, pattern) for pattern in NIGHT.get(file, ()) if fnmatchcase(name, pattern)), None)
