"""The default on rare frauds, in every run of the tests: it passes the bars beside a Platt map of every night."""

import pytest

from state.policy import DEFAULT_CALIBRATOR
from tests.bench import fraud


def test_rare_frauds_learnt_after_45_days_are_served_as_they_happen(capsys: pytest.CaptureFixture[str]) -> None:
    assert fraud.main(["--stream", "zeros", DEFAULT_CALIBRATOR]) == 0, capsys.readouterr().out
