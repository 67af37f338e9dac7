"""The demo's producer plays the flights from now on, in their order, with gaps that are shortened alike."""

from deploy.producer import SPEED, moved
from lab.player import TimedRecord


def test_the_first_is_due_at_once_and_gaps_are_shortened() -> None:
    messages = [TimedRecord(ms, "forecasts", b"k", b"v") for ms in (5_000, 5_000, 8_600_000, 12_245_000)]
    times = [message.time_ms for message in moved(messages, 1_000_000, 3600)]
    assert times == [1_000_000, 1_000_000, 1_002_388, 1_003_400]


def test_only_the_time_is_changed() -> None:
    message = TimedRecord(7, "outcomes", b"key", b"value")
    assert list(moved([message], 7, SPEED)) == [message]
