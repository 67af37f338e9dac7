"""A transaction that holds back what lies behind it is named once, with what ends it."""

import pytest
from aiokafka.structs import TopicPartition

from streams.kafka import transactions
from streams.kafka.transactions import HeldBack

PLACE = TopicPartition("scores", 3)


def test_a_transaction_that_hangs_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = HeldBack(["kafka:9092"])
    held.look({PLACE: (20, 40)})
    assert not held.said, "most end by themselves"
    monkeypatch.setattr(transactions, "HANGING", 0.0)
    for end in (41, 42):
        held.look({PLACE: (20, end)})
        assert held.said == tuple(caplog.messages)
    assert held.said[0].startswith("scores/3 cannot be read beyond offset 20: ")
    assert held.said[0].endswith("abort --topic scores --partition 3 --start-offset 20")
    assert next(held.samples({"scores": "forecasts"})) == (
        "held_back_records",
        ("forecasts", "3"),
        22.0,
    )
    held.look({PLACE: (42, 42)})
    assert not held.said
