"""Several processes share the tests of a run: none is lost, and none that fails or dies is passed over."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forks import ROOT

CONFTEST = "from tests.conftest import pytest_addoption, pytest_runtestloop\n"
TESTS = """\
import os, pytest
@pytest.fixture(scope="module")
def one(): return os.getpid()
@pytest.mark.parametrize("n", range(9))
def test_of_one_file(one, n, capfd):
    os.system("echo said")
    assert (one, capfd.readouterr().out) == (os.getpid(), "said\\n")
def test_fails():
    print("seen by whom it may concern")
    assert {1: 2} == {1: 3}
@pytest.mark.skip
def test_skipped(): pass
"""
DIES = "import os\ndef test_dies(): os.kill(os.getpid(), 9)\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for n in range(3):
        (tmp_path / f"test_{n}.py").write_text(TESTS)
    (tmp_path / "test_dies.py").write_text(DIES)
    return tmp_path


def test_each_test_runs_once_and_what_fails_or_dies_is_told(directory: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--processes", "3", str(directory)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout + ended.stderr
    assert "4 failed, 27 passed, 3 skipped" in ended.stdout.splitlines()[-1]
    assert "test_dies - the process that ran it ended with -9" in ended.stdout
    assert ended.stdout.count("seen by whom it may concern") == 3 * 2, "in the test's text, and where it was printed"
    assert "{1: 2} == {1: 3}" in ended.stdout
