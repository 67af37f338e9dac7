"""The trials of containers, as far as they go without Docker."""

from pathlib import Path

import pytest

from tests.images import compose


def test_without_docker_it_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["compose"])
    assert compose.main() == 0
    assert capsys.readouterr().out.startswith("skipped: there is no docker")
