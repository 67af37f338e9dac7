"""Histories of many seeds end as they must; a seed stands for one history; planted bugs are found."""

import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.simulation.planting import MUTANTS, planted

ROOT = Path(__file__).resolve().parents[2]
#: Found within few histories: these run by day.
SOON = (
    "answers go out before the journal has their entry",
    "records are merged by arrival",
    "what is in the journal is not folded again",
    "intake sends a route before its forecast",
    "commands write under no claim",
)


def simulation(*arguments: str) -> str:
    """Run the simulation in a process of its own, where sets have an order, and return what it prints."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    ended = subprocess.run(
        command, check=False, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert not ended.stderr, ended.stderr
    return ended.stdout


def test_histories_end_as_they_must() -> None:
    # Among them are tasks of every kind, and lost tails.
    said = simulation("--histories", "300", "--seconds", "900", "--jobs", "2")
    assert "300 histories" in said, said


def test_a_seed_is_the_same_history_line_by_line_in_every_process() -> None:
    first, second = (simulation("--seed", "235") for _ in range(2))
    assert sha256(first.encode()).hexdigest() == sha256(second.encode()).hexdigest()
    assert "nothing is wrong" in first
    assert "alba: {" in first, "of all stages that are moved and audited"


@pytest.mark.parametrize("name", SOON)
def test_planted_bugs_are_found_and_fail_again_with_fewer_faults(name: str) -> None:
    said = simulation("--mutant", name, "--histories", "400", "--seconds", "600")
    again = re.search(r"make simulate SEED=(\d+) FAULTS=(\S+)", said)
    assert again, said
    assert again[0] in simulation("--mutant", name, "--seed", again[1], "--faults", again[2])


def test_all_bugs_can_be_planted() -> None:
    for name in MUTANTS:
        with planted(name):
            pass
