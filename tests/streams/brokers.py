"""Stands for the thread that talks to the brokers: topics that are lists, and a fetch that a test can hold up."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import ConsumerRecord
from faust.types import TP

from streams.faust.fetching import LoopConsumer
from streams.faust.transport import BatchConsumer
from tests.streams.fakes import record

F, O, C = "forecasts", "outcomes", "trueup-state-changelog"  # noqa: E741 - the topics by their first letters
F0, O0, F1, O1, C0 = TP(F, 0), TP(O, 0), TP(F, 1), TP(O, 1), TP(C, 0)

#: Runs a coroutine on the loop the application was wired on.
Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Brokers(LoopConsumer):
    """Answers from dictionaries, and notes what it was asked to do."""

    def __init__(self) -> None:
        self.assigned: set[TP] = set()
        self.commits: dict[TP, int | None] = {}
        self.refuses_commits = False
        self.expels: BaseException | None = None
        self.first: dict[TP, int] = {}
        self.ends: dict[TP, int] = {}
        #: Where the fetcher goes on.
        self.positions: dict[TP, int] = {}
        self.calls: list[tuple[str, object]] = []
        self.held: dict[TP, list[ConsumerRecord[bytes | None, bytes | None]]] = defaultdict(list)

    def append(self, tp: TP, n: int) -> None:
        """Append records, each with its offset as key, value and time."""
        for offset in range(len(self.held[tp]), len(self.held[tp]) + n):
            text = str(offset).encode()
            self.held[tp].append(record(tp.topic, tp.partition, offset, offset, text, text))
        self.ends[tp] = len(self.held[tp])

    def assignment(self) -> set[TP]:
        return self.assigned

    def rejoin(self) -> None:
        self.calls.append(("rejoin", None))

    def expelled(self) -> BaseException | None:
        return self.expels

    async def committed(self, tps: Iterable[TP]) -> dict[TP, int | None]:
        await asyncio.sleep(0)
        return {tp: self.commits.get(tp) for tp in tps}

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        return {tp: self.first.get(tp, 0) for tp in partitions}

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        return {tp: self.ends.get(tp, 0) for tp in partitions}

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        self.calls.append(("seek", dict(partitions)))
        await asyncio.sleep(0)
        self.positions |= partitions
        await asyncio.sleep(0)

    async def commit(self, offsets: Mapping[TP, int]) -> bool:
        self.calls.append(("commit", dict(offsets)))
        if not self.refuses_commits:
            self.commits.update(offsets)
        return not self.refuses_commits

    def throttle(self, pause: list[TP], resume: list[TP]) -> None:
        self.calls.append(("throttle", (pause, resume)))

    def reach(self, tp: TP) -> tuple[int | None, int | None]:
        return self.positions.get(tp), self.ends.get(tp)

    async def getmany(self, active: set[TP] | None, _: float) -> dict[TP, list[Any]]:
        """Take up to two records of each partition; the fetcher moves on at once, the records arrive turns later."""
        fetched = {}
        for tp in sorted(active or ()):
            start = self.positions.get(tp, 0)
            if not self.first.get(tp, 0) <= start <= self.ends.get(tp, start):
                raise OffsetOutOfRangeError({tp: start})
            if records := self.held[tp][start : start + 2]:
                fetched[tp] = records
                self.positions[tp] = start + len(records)
        for _turn in range(9):  # longer than a seek, so that a fetch may end in the midst of one
            await asyncio.sleep(0)
        return fetched


class Fetcher:
    """Stands for Faust's fetcher service."""

    should_stop = False


def buffer(consumer: BatchConsumer, tp: TP, *timestamps: int, start: int = 0) -> None:
    """Buffer records as if they had been fetched."""
    records = [record(tp.topic, tp.partition, start + i, ts) for i, ts in enumerate(timestamps)]
    consumer._buffer(tp, records)
