"""Processes that share out jobs, when they are to end."""

import signal

import pytest

from replay.processes import Processes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_behind_the_last_jobs_ends_the_command_too(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), Processes(2, lambda _: None):
        signal.raise_signal(number)
    assert signal.getsignal(number) is before
