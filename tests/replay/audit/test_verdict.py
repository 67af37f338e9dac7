"""What an audit says of itself."""

import pytest

from replay.audit.partition_verifier import Checked
from replay.audit.verdict import Verdict, account, tell
from replay.console import Console


def test_rows_that_a_group_began_with_are_said_to_be_judged_by_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = [Verdict(0, Checked()), Verdict(1, Checked(), loaded="5 rows that 'trueup load' made of a.csv")]
    tell(Console(width=200), account(verdicts, None, 1.0, None))
    assert "partition 1 began with 5 rows that 'trueup load' made of a.csv: all that" in capsys.readouterr().out
