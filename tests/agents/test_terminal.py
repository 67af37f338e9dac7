"""No text from a record or a table steers the terminal that it is printed on."""

import io
import sys

import pytest
from rich.table import Table

from agents.terminal import guarded
from cli import main
from replay.console import Console

HOSTILE = "\x1b[2Jcards\x9b31m\r\u202e"
SHOWN = "⟨U+001B⟩[2Jcards⟨U+009B⟩31m⟨U+000D⟩⟨U+202E⟩"


def test_what_is_printed_is_spelled_out_and_colours_of_our_own_stay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    with guarded():
        sys.stdout.write(HOSTILE + "ends\n\tand goes on\n")
        sys.stderr.write(HOSTILE)
        table = Table("[bold]stream[/]", title=HOSTILE)
        table.add_row(HOSTILE)
        Console(force_terminal=True, width=100, color_system="standard").print(table)
    said = capsys.readouterr()
    plain, _, coloured = said.out.partition("ends\n\tand goes on\n")
    assert (plain, said.err) == (SHOWN, SHOWN)
    assert coloured.count(SHOWN) == 2, "wholly: the column is as wide"
    assert "\x1b[1m" in coloured
    assert not any(c in coloured for c in ("\x1b[2J", "\x9b", "\r", "\u202e"))


def test_a_name_on_the_command_line_is_spelled_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setenv("TRUEUP_APP_ID", HOSTILE)
    assert main.main(["config", "check"]) == 78
    assert "\x1b" not in capsys.readouterr().err
