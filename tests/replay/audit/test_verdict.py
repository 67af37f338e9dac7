"""What an audit says of itself."""

import pytest

from replay.audit.partition_verifier import Checked
from replay.audit.verdict import Verdict, account, tell
from replay.console import Console


def test_rows_that_a_group_before_a_move_had_loaded_are_said_to_be_judged_by_nobody(
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdicts = [
        Verdict(0, Checked(), "new"),
        Verdict(1, Checked(), "old", loaded="5 rows that 'trueup load' made of a.csv"),
    ]
    tell(Console(width=200), account("new", verdicts, None, 1.0, None))
    said = capsys.readouterr().out
    assert "its rows began with those of old" in said
    assert "partition 1 of old began with 5 rows that 'trueup load' made of a.csv: all that" in said
