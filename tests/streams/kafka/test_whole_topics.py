"""Reading of topics to their present end, on a consumer of the test's."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError

from streams.config.settings import Settings
from streams.faust import unpacking
from streams.kafka import standstill, whole_topics
from tests.streams.fakes import record

SETTINGS = Settings(app_id="mine")


class Consumer:
    """Stands for `AIOKafkaConsumer`: gives a record of each partition at a time."""

    def __init__(self, sizes: Mapping[int, int], seconds: float) -> None:
        self._sizes = {TopicPartition("t", n): size for n, size in sizes.items()}
        self._at = Counter[TopicPartition]()
        self.running = False
        #: Seconds that each answer takes, and the time.
        self.seconds, self.now = seconds, 0.0
        #: What is at these places is no record, as what ends a transaction; and never comes.
        self.marks: set[tuple[int, int]] = set()
        #: Whether what came since is given behind them.
        self.grown = False
        self.frozen: tuple[int, int] | None = None

    def __call__(self, *topics: str, **options: Any) -> "Consumer":
        assert topics == ("t",)
        assert "group_id" not in options, "it must not disturb the workers"
        return self

    async def start(self) -> None:
        self.running = True
        asyncio.get_running_loop().time = lambda: self.now  # type: ignore[method-assign]

    async def stop(self) -> None:
        self.running = False

    def assignment(self) -> list[TopicPartition]:
        return [*self._sizes]

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 0)

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self._sizes[place] for place in places}

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._at[place] = offset

    async def position(self, place: TopicPartition) -> int:
        return self._at[place]

    async def getmany(self, *places: TopicPartition, **_: Any) -> dict[TopicPartition, list[Any]]:
        self.now += self.seconds
        found = {}
        for place in places:
            at = place.partition, self._at[place]
            if at != self.frozen:
                self._at[place] += 1
                if self.grown or at not in self.marks:
                    at = place.partition, self._at[place] - (at not in self.marks)
                    found[place] = [record("t", *at, 0, b"", b"")]
        return found


def read(monkeypatch: pytest.MonkeyPatch, made: Consumer, **how: Any) -> list[tuple[int, int]]:
    monkeypatch.setattr(whole_topics, "AIOKafkaConsumer", made)
    monkeypatch.setattr(unpacking, "bound", lambda *_: None)

    async def run() -> list[tuple[int, int]]:
        found = [records async for _, records in whole_topics.batches(SETTINGS, ["t"], **how)]
        assert all(found), "readers look at the last record"
        return [(each.partition, each.offset) for records in found for each in records]

    try:
        return asyncio.run(run())
    finally:
        assert not made.running


def test_all_is_read_or_the_last_and_what_ends_a_transaction_is_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Consumer({0: 3, 1: 0, 2: 5}, 0.0)
    made.marks = {(0, 2), (2, 1)}
    assert sorted(read(monkeypatch, made)) == [(0, 0), (0, 1), (2, 0), (2, 2), (2, 3), (2, 4)]
    assert sorted(read(monkeypatch, made, last=2)) == [(0, 1), (2, 3), (2, 4)]
    made.marks, made.grown = {(0, 2)}, True
    assert sorted(read(monkeypatch, made, last=2)) == [(0, 1), (2, 3), (2, 4)]


def test_a_topic_that_does_not_move_is_given_up_with_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Consumer({0: 9, 1: 9}, 1.0)
    made.frozen = 0, 1
    with pytest.raises(KafkaTimeoutError, match="8 of 18 offsets are left"):
        read(monkeypatch, made)


def test_a_topic_that_moves_is_read_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert len(read(monkeypatch, Consumer({0: 40}, 0.9 * standstill.STILL_SECONDS))) == 40
    assert "of 40 offsets" in caplog.text
