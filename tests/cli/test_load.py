"""`trueup load`: what it refuses before it asks a broker. tests/e2e/test_load.py has the rest."""

import pytest

from cli.main import main
from cli.options import MISCONFIGURED


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
