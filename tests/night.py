"""What `make test` leaves to the night, and what tests the same promise by day. `make test TIER=night` runs all.

A test belongs here if it takes seconds and another one, or the same one with another parameter, would fail by day.
"""

import os
from fnmatch import fnmatchcase
from typing import Final

#: By file, below `tests/`, and by a pattern of names there: what stands for them by day.
NIGHT: Final = {
    "chaos/test_sources.py": {
        "test_a_loss_is_noticed[[]change*": "a lost score, and a loss in each other judge",
        "test_a_double_is_noticed[[][fro]*": "a double of the answers",
    },
    "deploy/test_jars.py": {
        "test_exactly_the_jars*": "`make jars` checks every hash in each run of CI",
        "test_a_jar_that_the_repository*": "the jar that was exchanged in the cache",
        "test_a_jar_that_is_not*": "the jar that was exchanged in the cache",
    },
    "e2e/test_codecs.py": {
        "test_inputs_outputs*": "records of a Java producer in every codec, and topics whose own codec is lz4",
        "test_topics_whose_own_codec*[[][gsz]*": "the same with lz4",
    },
    "e2e/test_hostile.py": {
        "test_a_batch_that_expands*[[][gsl]*": "the same with zstd; every codec in streams/faust/test_unpacking.py",
    },
    "e2e/test_output_formats.py": {
        "test_from_avro*[[][aj]*": "the same with protobuf; a Java client reads Avro in test_registry.py",
        "test_intake_answers*[[][ap]*": "the same with jsonschema",
        "test_an_incompatible*[[][aj]*": "the same with protobuf",
    },
    "lab/test_broker.py": {"test_records_of_past_years*": "brokers that restart in e2e/test_crashes.py"},
    "lab/test_experiments.py": {"test_one_experiment*": "the other tests there"},
    "lab/test_flights.py": {"*": "frozen/: digests of the flights and of all answers to them"},
    "state/calibrators/test_by_segment.py": {
        "test_each_of_fifty*": "overlapping segments are each made right",
        "test_a_burst*": "bursts in test_twospeed.py",
    },
    "state/calibrators/test_rare_events.py": {
        "test_grids*": "the rate of 1 % in test_noise_margin_is_nearer_still",
        "test_noise_margin*[[]0.0[05]*": "the same at 1 %",
    },
    "state/test_shadows.py": {"test_challengers_row_of_a_long*": "the same over generated histories"},
}


def by_day(test: str) -> bool:
    """Whether a test, by its id, runs in this run."""
    return os.environ.get("TIER") == "night" or pattern_of(test) is None


def pattern_of(test: str) -> tuple[str, str] | None:
    """Return file and pattern of `NIGHT` that a test's id is of; None of a test that always runs."""
    path, _, name = test.partition("::")
    file = path.removeprefix("tests/")
    return next(((file, pattern) for pattern in NIGHT.get(file, ()) if fnmatchcase(name, pattern)), None)
