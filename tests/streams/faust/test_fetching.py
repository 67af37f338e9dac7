"""What another leader wrote than what was read before is handed over once its log is known to follow that."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.errors import NotLeaderForPartitionError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.structs import TopicPartition

from streams.faust import fetching
from streams.faust.fetching import CheckedFetches, Lineage
from streams.faust.unpacking import Read, RecordSet
from streams.records.merge import RewrittenError

PLACE: Final = TopicPartition("forecasts", 0)
Answer = int | Exception


def batch(offset: int, epoch: int, records: int = 10) -> bytes:
    """Return a batch as a leader of an epoch writes it."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)  # noqa: FBT003 - its order
    for i in range(records):
        builder.append(i, 1000 + i, None, b"{}", [])
    data = builder.build()
    data[:8], data[12:16] = offset.to_bytes(8, "big"), epoch.to_bytes(4, "big")
    return bytes(data)


class Fetcher:
    """A fetcher that gets batches of one partition, and whose brokers say where epochs ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Answer) -> None:
        self.raised: list[Exception] = []
        self.asked: list[int] = []
        self._answers = list(answers)
        self._client = SimpleNamespace(force_metadata_update=lambda: None)
        self._state = SimpleNamespace(paused=False, position=0)
        self._state.consumed_to = lambda position: setattr(self._state, "position", position)
        self._records = CheckedFetches(lambda _: None, lambda _: {}, cast("Any", self), [PLACE.topic])
        self._set_error: Callable[..., None] = lambda _, error: self.raised.append(error)
        monkeypatch.setattr(fetching, "end_of_epoch", self._end_of)
        monkeypatch.setattr(fetching, "BACKOFF", 0)
        self.lineage = Lineage(cast("Any", self), self._records)

    async def _end_of(self, _: object, place: TopicPartition, epoch: int) -> int:
        assert place == PLACE
        self.asked.append(epoch)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _proc_fetch_request(self, data: bytes) -> bool:
        reading = PartitionRecords(PLACE, RecordSet(data), [], self._state.position, None, None, True, 0)  # noqa: FBT003 - its order
        assignment: Any = SimpleNamespace(active=True, state_value=lambda _: self._state)
        self._records[PLACE] = FetchResult(PLACE, assignment=assignment, partition_records=reading, backoff=0)
        return True

    def read(self, *batches: bytes) -> list[int]:
        """Fetch batches at once, and return the offsets that are handed over."""
        asyncio.run(self._proc_fetch_request(b"".join(batches)))
        fetched = self._records.pop(PLACE, None)
        return [] if fetched is None else [record.offset for record in fetched.getall()]


def test_what_the_next_leader_wrote_behind_what_was_read_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    fetcher = Fetcher(monkeypatch, 30)
    assert fetcher.read(batch(0, 3), batch(10, 5), batch(20, 5)) == list(range(30))
    assert fetcher.read(batch(30, 6), batch(40, 7)) == list(range(30, 50))
    assert fetcher.read(batch(50, 7)) == list(range(50, 60))
    assert (fetcher.asked, fetcher.raised) == ([5], [])


@pytest.mark.parametrize(("end", "first"), [(29, 29), (-1, 0)], ids=["cut", "made anew"])
def test_a_log_that_was_cut_behind_what_was_read_is_an_error(
    monkeypatch: pytest.MonkeyPatch, end: int, first: int
) -> None:
    fetcher = Fetcher(monkeypatch, end)
    fetcher.read(batch(0, 3, 30))
    assert fetcher.read(batch(30, 4)) == []
    (error,) = fetcher.raised
    assert isinstance(error, RewrittenError)
    assert f"forecasts/0 offset {first} is not the record that was applied before" in str(error)


def test_nothing_is_handed_over_until_the_leader_has_said_where_the_epoch_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetcher = Fetcher(monkeypatch, NotLeaderForPartitionError(), 10)
    fetcher.read(batch(0, 3))
    assert fetcher.read(batch(10, 4)) == []
    assert fetcher.read(batch(10, 4)) == list(range(10, 20))
    assert (fetcher.asked, fetcher.raised) == ([3, 3], [])


def test_what_is_read_again_after_a_seek_does_not_make_forget_how_far_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetcher = Fetcher(monkeypatch, 20, 20, 19)
    fetcher.read(batch(0, 3), batch(10, 4))
    fetcher._state.position = 0
    assert fetcher.read(batch(0, 3)) == list(range(10)), "an older epoch, in a log that was not cut"
    assert fetcher.read(batch(10, 5)) == list(range(10, 20))
    assert fetcher.read(batch(20, 6)) == []
    assert (fetcher.asked, len(fetcher.raised)) == ([4, 4, 4], 1)


def test_what_another_fetch_has_brought_while_the_leader_was_asked_is_no_sign_of_a_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetcher = Fetcher(monkeypatch, 10)
    fetcher.read(batch(0, 3))
    answered, handed = fetcher._end_of, list[int]()

    async def late(*_: object) -> int:
        monkeypatch.setattr(fetching, "end_of_epoch", answered)
        await fetcher._proc_fetch_request(batch(10, 4))  # this one is checked, kept and read meanwhile
        handed.extend(record.offset for record in fetcher._records.pop(PLACE).getall())
        return 10

    monkeypatch.setattr(fetching, "end_of_epoch", late)
    assert fetcher.read(batch(10, 4)) == []
    assert (handed, fetcher.raised) == (list(range(10, 20)), [])


def test_who_goes_on_from_a_committed_offset_notices_a_log_that_was_cut_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetcher = Fetcher(monkeypatch, 7)
    fetcher._records.read[PLACE] = Read(3, 10)
    fetcher._state.position = 10
    assert fetcher.read(batch(10, 4)) == []
    assert len(fetcher.raised) == 1
