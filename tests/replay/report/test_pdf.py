"""The report as PDF: by a browser that is there, and a sentence where none is."""

from pathlib import Path

import pytest

from cli.main import main
from replay.report import pdf
from tests.agents.status.browser import find
from tests.replay.report.results import played


@pytest.mark.skipif(find() is None, reason="no chromium on the PATH: apt-get install chromium")
def test_a_page_is_printed() -> None:
    assert pdf.printed(b"<!doctype html><title>t</title><p>Some words").startswith(b"%PDF")


def test_without_a_browser_it_says_so_before_it_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played(tmp_path, n=60)
    monkeypatch.setenv("PATH", str(tmp_path))
    given = [f"--{name}={tmp_path / name}.jsonl" for name in ("forecasts", "outcomes")]
    assert main(["replay", *given, "--pdf", str(tmp_path / "r.pdf")]) != 0
    assert "--pdf needs Chromium on the PATH" in capsys.readouterr().err
    assert not (tmp_path / "r.pdf").exists()
