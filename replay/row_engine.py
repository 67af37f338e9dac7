"""The workers' engine over one partition, for what replay's own does not make: rows and calibrated records."""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from pathlib import Path
from typing import Any, Final, NamedTuple

import rocksdict

from replay.sources.record import SourceRecord
from state.engine import BATCH_LIMIT, Partition
from state.events import Calibrated, Event, Forecast, Rejected
from state.fence import FORECASTS, Fence
from state.policy import Policies
from state.quotas import REFUSED, REFUSED_ID
from streams.records.output_json import encode_calibrated

#: Reasons of the dead letters of forecasts that could be read.
UNANSWERED: Final = frozenset(("conflict", REFUSED, REFUSED_ID))
#: Records between checkpoints, at least. Calibrators and scores are then written once, and not with every batch.
CHECKPOINT: Final = 20_000
#: Time, topic and offset of the record it answers; its own time; lengths of key and value; whether there is a key.
_HEAD = struct.Struct("<qBqqII?")


class PositionedRecord(NamedTuple):
    """A calibrated record, and where it stands among those of all partitions.

    Partitions are merged by the tuple: of their next answers that of the earliest record goes first. A partition keeps
    its own order.
    """

    timestamp: int
    topic: int
    partition: int
    offset: int
    ts: int
    key: bytes | None
    value: bytes


@dataclass(frozen=True)
class EngineOutput:
    """What the engine left: its fence, and below ``directory`` its rows and its calibrated records."""

    directory: Path
    fence: Fence

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all rows by ascending key."""
        stored = rocksdict.Rdict(str(self.directory / "rows"), _options(), access_type=rocksdict.AccessType.read_only())
        try:
            yield from stored.items()
        finally:
            stored.close()

    def answers(self, partition: int) -> Iterator[PositionedRecord]:
        """Yield the calibrated records in the order in which the engine gave them."""
        with (self.directory / "answers").open("rb") as file:
            while head := file.read(_HEAD.size):
                timestamp, topic, offset, ts, n, m, keyed = _HEAD.unpack(head)
                key, value = file.read(n), file.read(m)
                yield PositionedRecord(timestamp, topic, partition, offset, ts, key if keyed else None, value)


def answers(folded: Sequence[EngineOutput]) -> Iterator[PositionedRecord]:
    """Yield the calibrated records of all partitions: by time, then topic, partition and offset of what they answer."""
    return merge(*(each.answers(n) for n, each in enumerate(folded)), key=lambda answer: answer[:4])


class Engine:
    """Folds one partition into a store of its own.

    Parameters
    ----------
    policies
        The plan.
    directory
        For the rows and the records.
    """

    def __init__(self, policies: Policies, directory: Path) -> None:
        self._directory = directory
        self._rows = rocksdict.Rdict(str(directory / "rows"), _options())
        self._answers = (directory / "answers").open("wb")
        get: Callable[[bytes], bytes | None] = self._rows.get
        self._partition = Partition(policies, get)
        #: Records since the last checkpoint.
        self._behind = 0

    def fold(self, records: Sequence[SourceRecord], events: Sequence[Event]) -> None:
        """Apply some records; ``events`` are what they were decoded to, one each."""
        for at in range(0, len(events), BATCH_LIMIT):
            self._fold(records[at : at + BATCH_LIMIT], events[at : at + BATCH_LIMIT])

    def _fold(self, records: Sequence[SourceRecord], events: Sequence[Event]) -> None:
        self._partition.begin()
        outputs = self._partition.apply(events)
        self._behind += len(events)
        if self._behind >= CHECKPOINT:
            self._checkpoint()
        # Every forecast that is not dead is answered once, in order; one that contradicts its event's first is dead.
        made = (output for output in outputs if isinstance(output, Calibrated))
        dead = {
            output.offset
            for output in outputs
            if isinstance(output, Rejected) and output.topic == FORECASTS and output.reason in UNANSWERED
        }
        write = self._answers.write
        for record, event in zip(records, events, strict=True):
            if not isinstance(event, Forecast) or event.offset in dead:
                continue
            output = next(made)
            key, value, keyed = output.key or b"", encode_calibrated(output), output.key is not None
            head = _HEAD.pack(record.timestamp, record.topic, record.offset, output.ts, len(key), len(value), keyed)
            write(head + key + value)

    def _checkpoint(self) -> None:
        """Write the rows that changed."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for name, row in self._partition.checkpoint().rows.items():
            if row is None:
                batch.delete(name)
            else:
                batch.put(name, row)
        self._rows.write(batch)
        self._behind = 0

    def end(self) -> EngineOutput:
        """Write everything and return it."""
        self._checkpoint()
        self.close()
        return EngineOutput(self._directory, self._partition.fence)

    def close(self) -> None:
        """Close the store."""
        if not self._answers.closed:
            self._answers.close()
            self._rows.close()


def _options() -> Any:  # noqa: ANN401 - ships no type hints
    return rocksdict.Options(raw_mode=True)
