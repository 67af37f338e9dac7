"""`trueup load`: what it refuses before it asks a broker. tests/e2e/test_load.py has the rest."""

from pathlib import Path

import pytest

from cli.main import MISCONFIGURED, main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "load needs --table FILE, or --forecasts FILE and --outcomes FILE"),
        (["--id", "id"], "--id is of a table"),
        (["--table", "x.csv", "--score", "p", "--label", "y", "--time", "t"], "load needs --id"),
    ],
)
def test_what_lacks_is_said(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", *arguments]) == MISCONFIGURED
    assert said in capsys.readouterr().err


def test_behind_intake_a_table_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "streams.toml"
    plan.write_text(
        '[sources.a]\ntopic = "a"\nrole = "forecast"\nevent_id = "id"\nstream = "s"\np = "p"\n'
        '[sources.b]\ntopic = "b"\nrole = "outcome"\nevent_id = "id"\ny = "y"\n'
    )
    monkeypatch.setenv("TRUEUP_STREAMS", str(plan))
    assert main(["load", "--forecasts", "f", "--outcomes", "o"]) == MISCONFIGURED
    assert "with sources that intake reads, load needs --table FILE" in capsys.readouterr().err
