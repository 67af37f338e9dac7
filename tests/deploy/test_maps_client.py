"""The client of maps: what it takes, what it answers when, and that it needs nothing of the repository."""

import ast
import json
import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from deploy.clients.python import trueup_maps
from deploy.clients.python.trueup_maps import ALIVE, Maps

CLIENT = Path(trueup_maps.__file__)
HALVES: list[dict[str, Any]] = [{"x": [0.0, 0.1, 0.5, 0.9, 1.0], "y": [0.0, 0.02, 0.25, 0.6, 1.0]}]


def record(applied: int = 1, claim: int = 1, stages: Any = HALVES, **more: Any) -> bytes:
    """Return a map that was made at second 1000."""
    said = {
        "format": 1,
        "stream": "s",
        "partition": 0,
        "applied": applied,
        "claim": claim,
        "version": applied,
        "config": "c0ffee00",
        "at": 1_000_000,
        "stages": stages,
    }
    return json.dumps(said | more).encode()


def alive(claim: int, at: float) -> bytes:
    return json.dumps({"format": 1, "partition": 0, "claim": claim, "applied": 9, "at": at * 1000}).encode()


class At:
    """A clock that stands still."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_reasons_say_why_an_answer_is_raw() -> None:
    clock = At(1000.0)
    maps = Maps(max_age=60.0, clock=clock)
    assert maps.answer("s", 0.5) == (0.5, "loading", -1, "")
    maps.loaded()
    assert maps.answer("s", 0.5) == (0.5, "unknown", -1, "")
    maps.take(0, b"s", record(applied=4))
    assert maps.answer("s", 0.5) == (0.25, "", 4, "c0ffee00")
    assert maps.answer("s", 0.5, partition=1).reason == "unknown"
    for score in (-0.1, 1.1, math.nan, None, "0.5"):
        answer = maps.answer("s", score)  # type: ignore[arg-type]
        assert answer.p is score
        assert answer.reason == "score"
    clock.now = 1060.5
    assert maps.answer("s", 0.5) == (0.5, "stale", 4, "c0ffee00")
    maps.take(0, ALIVE, alive(claim=1, at=1050.0))
    assert maps.answer("s", 0.5).p == 0.25, "its worker says that it still counts"
    maps.take(0, b"s", None)
    assert maps.answer("s", 0.5).reason == "unknown"


def test_a_map_that_a_later_worker_has_not_confirmed_is_stale() -> None:
    maps = Maps(max_age=60.0, clock=At(1010.0))
    maps.take(0, b"s", record(claim=1))
    maps.take(0, ALIVE, alive(claim=2, at=1009.0))
    assert maps.answer("s", 0.5).reason == "stale"
    maps.take(0, ALIVE, alive(claim=1, at=1010.0))
    assert maps.answer("s", 0.5).reason == "stale", "it woke up late"
    maps.take(0, b"s", record(claim=2))
    assert maps.answer("s", 0.5).reason == ""


def test_an_older_version_that_comes_late_changes_nothing() -> None:
    maps = Maps(clock=At(1000.0))
    maps.take(0, b"s", record(applied=10, claim=2))
    maps.take(0, b"s", record(applied=9, claim=1, stages=[{"x": [0.0, 1.0], "y": [0.0, 0.1]}]))
    assert maps.answer("s", 0.5).version == 10
    maps.take(0, b"s", record(applied=10, claim=2, version=11))
    assert maps.answer("s", 0.5).version == 11


def test_of_several_partitions_that_of_the_most_outcomes_answers() -> None:
    maps = Maps(clock=At(1000.0))
    maps.take(0, b"s", record(applied=10, version=10))
    maps.take(1, b"s", record(applied=3, version=30))
    assert maps.answer("s", 0.5).version == 30
    assert maps.answer("s", 0.5, partition=0).version == 10
    maps.take(1, b"s", None)
    assert maps.answer("s", 0.5).version == 10


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"{}",
        b"not json",
        b"\xff",
        record(format=2),
        record(at="now"),
        record(stages=[{"x": [0.0, 0.5, 0.5, 1.0], "y": [0.0, 0.1, 0.2, 1.0]}]),
        record(stages=[{"x": [0.0, 1.0], "y": [0.0]}]),
        record(stages=[{"x": [0.1, 1.0], "y": [0.0, 1.0]}]),
        record(stages=[{"weight": 1.0}]),
        record(stages=7),
        record(version=None),
    ],
)
def test_a_record_that_cannot_be_read_is_counted_and_changes_nothing(value: bytes) -> None:
    maps = Maps(clock=At(1000.0))
    maps.take(0, b"s", record())
    maps.take(0, b"s", value)
    maps.take(0, ALIVE, value[:1])
    maps.take(0, None, value)
    assert maps.unreadable == 2
    assert maps.answer("s", 0.5).p == 0.25


def test_lines_are_straight_in_log_odds_and_beside_zero_and_one_in_probabilities() -> None:
    maps = Maps(clock=At(1000.0))
    maps.take(0, b"s", record())
    low, high = (math.log(p / (1 - p)) for p in (0.02, 0.25))
    middle = maps.answer("s", 0.25).p  # halfway between .1 and .5 in log-odds
    assert math.log(middle / (1 - middle)) == pytest.approx((low + high) / 2)
    assert maps.answer("s", 0.05).p == pytest.approx(0.01)
    assert maps.answer("s", 0.95).p == pytest.approx(0.8)
    assert [maps.answer("s", p).p for p in (0.0, 0.1, 0.9, 1.0)] == [0.0, 0.02, 0.6, 1.0]


def test_answers_are_of_one_version_while_another_thread_takes_maps() -> None:
    """Each version serves one constant: an answer that mixed two would be another number."""
    maps = Maps(clock=At(1000.0))
    several = [record(applied=n, stages=[{"x": [0.0, 1.0], "y": [n / 1000, n / 1000]}]) for n in range(1, 500)]
    maps.take(0, b"s", several[0])

    def write() -> None:
        for each in several:
            maps.take(0, b"s", each)

    writer = threading.Thread(target=write)
    writer.start()
    versions = []
    while writer.is_alive():
        answer = maps.answer("s", 0.5)
        assert answer.p == answer.version / 1000
        versions.append(answer.version)
    writer.join()
    assert versions == sorted(versions)


def test_the_file_stands_alone() -> None:
    tree = ast.parse(CLIENT.read_text())
    named = {
        each.module if isinstance(each, ast.ImportFrom) else each.names[0].name
        for each in ast.walk(tree)
        if isinstance(each, (ast.Import, ast.ImportFrom))
    }
    needed = {(name or "").split(".")[0] for name in named} - sys.stdlib_module_names
    assert needed == {"aiokafka", "confluent_kafka"}
    code = "import trueup_maps; m = trueup_maps.Maps(); print(m.answer('s', 0.5).reason)"
    run = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=CLIENT.parent, env={}, capture_output=True, text=True, check=True
    )
    assert run.stdout == "loading\n"
