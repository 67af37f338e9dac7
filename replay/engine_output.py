"""What a replay leaves beside its figures: calibrated records, and the rows that a worker would have."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from replay.sources.record import SourceRecord
from replay.spool import spool, spooled
from state.effects import Changes
from state.events import Calibrated, Event, Forecast, Output, Rejected
from state.fence import FORECASTS, Fence
from streams.records.output_json import encode_calibrated

#: Rows of the file that are written at once.
_ROWS: Final = 4096


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
    """What one partition left below ``directory``, as far as it was asked for: calibrated records, and rows."""

    directory: Path
    fence: Fence

    def write_rows(self, changes: Changes) -> None:
        """Write the rows of a checkpoint that has all there are."""
        rows = sorted((key, row) for key, row in changes.rows.items() if row is not None)
        with (self.directory / "rows").open("wb") as file:
            for at in range(0, len(rows), _ROWS):
                spool(rows[at : at + _ROWS], file)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all rows by ascending key."""
        for rows, _ in spooled(self.directory / "rows"):
            yield from rows

    def answers(self) -> Iterator[PositionedRecord]:
        """Yield the calibrated records in the order in which the engine gave them."""
        for found, _ in spooled(self.directory / "answers"):
            for each in found:
                yield PositionedRecord(*each)


def answers(folded: Sequence[EngineOutput]) -> Iterator[PositionedRecord]:
    """Yield the calibrated records of all partitions: by time, then topic, partition and offset of what they answer."""
    return merge(*(each.answers() for each in folded), key=lambda answer: answer[:4])


def write_answers(
    file: BinaryIO,
    partition: int,
    records: Sequence[SourceRecord],
    events: Sequence[Event],
    outputs: Iterable[Output],
) -> None:
    """Write the calibrated records among the outputs of some records; ``events`` are what these were decoded to."""
    made, dead = [], set()
    for output in outputs:
        if isinstance(output, Calibrated):
            made.append(output)
        elif isinstance(output, Rejected) and output.topic == FORECASTS and output.reason == "conflict":
            dead.add(output.offset)
    # Every forecast that is not dead is answered once, in order; one that contradicts its event's first is dead.
    answered = [
        record
        for record, event in zip(records, events, strict=True)
        if isinstance(event, Forecast) and event.offset not in dead
    ]
    spool(
        [
            (record.timestamp, record.topic, partition, record.offset, each.ts, each.key, encode_calibrated(each))
            for record, each in zip(answered, made, strict=True)
        ],
        file,
    )
