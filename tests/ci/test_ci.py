"""The checks for advisories and for secrets: their verdicts and exit statuses."""

import os
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.ci.advisories import LOCK, judge
from tests.ci.leaks import BASELINE, ROOT, Suspect, news, suspects

SAFE: dict[str, Any] = {"name": "a", "version": "1", "vulns": []}
BROKEN: dict[str, Any] = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
UNKNOWN: dict[str, Any] = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "status", "strictly", "says"),
    [
        ([SAFE], 0, 0, "1 of 1 packages audited, 0 advisories"),
        ([SAFE, BROKEN], 1, 1, "b 2: PYSEC-1, mended in 3"),
        ([SAFE, UNKNOWN], 0, 1, "not audited: c"),
        ([UNKNOWN, UNKNOWN], 0, 1, "NOT AUDITED: the index knows no advisories of any of 2 packages"),
    ],
)
def test_a_known_advisory_fails_and_what_was_not_audited_fails_if_strict(
    packages: list[dict[str, Any]], status: int, strictly: int, says: str
) -> None:
    for strict, expected in ((False, status), (True, strictly)):
        verdict = judge({"dependencies": packages}, strict=strict)
        assert verdict.status == expected
        assert says in "\n".join(verdict.lines)


@pytest.mark.parametrize("strict", [False, True])
def test_no_answer_is_said_and_fails_if_strict(strict: bool) -> None:  # noqa: FBT001 - of the parameters
    said = ["NOT AUDITED: advisories cannot be asked for here (no route)"]
    assert judge(None, "no route", strict=strict) == (strict, said)


def test_the_command_fails_strictly_where_nothing_can_be_asked() -> None:
    """Run it as make does, with an index that is not there."""
    place = {**os.environ, "PIP_INDEX_URL": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1"}
    for option, status in (("STRICT=", 0), ("STRICT=yes", 1)):
        command = ["make", "--no-print-directory", "-o", ".venv/.stamp", "advisories", option]
        done = subprocess.run(command, cwd=ROOT, env=place, capture_output=True, text=True, check=False)
        assert "NOT AUDITED" in done.stdout
        assert (done.returncode != 0) == bool(status)


def test_the_lock_is_there() -> None:
    assert (Path(ROOT) / LOCK).is_file()


def test_a_suspect_is_known_by_its_hash_wherever_it_moves() -> None:
    line = {"type": "Secret Keyword", "hashed_secret": "h", "line_number": 3}
    found = suspects({"a.py": [line]})
    assert news(found, suspects({"a.py": [{**line, "line_number": 99}]})) == []
    assert news(found, []) == ["a.py:3: Secret Keyword"]
    assert news(found, [Suspect("b.py", "Secret Keyword", "h"), Suspect("a.py", "Secret Keyword", "other")])


def test_all_that_is_accepted_stands_in_tests() -> None:
    accepted = suspects(orjson.loads((ROOT / BASELINE).read_bytes())["results"])
    assert {each.file for each in accepted if not each.file.startswith("tests/")} == set()
