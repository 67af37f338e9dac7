"""What follows from the declaration of a kind of row."""

import json
import subprocess
import sys

import pytest

from state.kind import CONFIG, KINDS, LAYOUT, PLAIN, SLOT, STREAM, KeyPart, Kind, Moves
from tests.state.histories import ROOT


def test_a_row_that_is_declared_is_merged_shown_checked_and_documented() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.state.toy_row"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "gauges": ['trueup_toys{stream="s"} 7.0'],
        "rescaled": 7,
        "inspected": [3],
        "refused": "a '0' row has format version 9, this build reads version 1",
        "called": "the toys of stream 's'",
        "page": [
            "| `0` | `0` · stream | one a stream: how many toys it has | 1 | `__main__.py` | "
            + Moves.SUM.value
            + " | yes |"
        ],
        "reference": ["| `toys` | gauge | stream | Toys of a stream. | – |"],
    }


def test_two_kinds_cannot_have_one_letter() -> None:
    before = dict(KINDS)
    with pytest.raises(ValueError, match="two kinds of rows have the letter L"):
        Kind("L", "another", (), {1: PLAIN}, Moves.LEFT, "")
    assert before == KINDS


@pytest.mark.parametrize(
    ("moves", "key", "why"),
    [
        (Moves.TAUGHT, (STREAM,), "the toys: rows that a calibrator taught have stream and configuration first"),
        (Moves.SUM, (STREAM, SLOT), "the toys: rows that are added up have layout and slot last"),
        (Moves.SHARED, (STREAM, LAYOUT, SLOT, CONFIG), "the toys: rows that are added up have layout and slot last"),
    ],
)
def test_a_key_that_a_rescale_could_not_read_is_refused(moves: Moves, key: tuple[KeyPart, ...], why: str) -> None:
    before = dict(KINDS)
    with pytest.raises(ValueError, match=why):
        Kind("0", "the toys", key, {1: PLAIN}, moves, "")
    assert before == KINDS
