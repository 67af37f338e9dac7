"""What a replay writes in addition to its figures: calibrated records, also to a topic, and a worker's rows."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from aiokafka.errors import KafkaError

from replay.sources.record import SourceRecord
from replay.spool import spool, spooled
from state.effects import Changes
from state.events import Calibrated, Event, Forecast, Output, Rejected
from state.fence import FORECASTS, Fence
from streams.config.settings import Settings, SettingsError
from streams.kafka import topics
from streams.kafka.topics import TopicsError
from streams.kafka.writer import append, writer
from streams.records.output_json import encode_calibrated

#: Number of rows written to the file at once.
_ROWS: Final = 4096
#: Header of every record: the name of the replay, see `replay.result.Result.run`.
HEADER = "trueup-replay"


class PositionedRecord(NamedTuple):
    """A calibrated record, and its position among those of all partitions.

    Partitions are merged by this tuple: the answer to the earliest record comes first. A partition keeps its own order.
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
    """Files of one partition below ``directory``, if asked for: calibrated records, and rows."""

    directory: Path
    fence: Fence

    def write_rows(self, changes: Changes) -> None:
        """Write all rows, as in one checkpoint."""
        rows = sorted((key, row) for key, row in changes.rows.items() if row is not None)
        with (self.directory / "rows").open("wb") as file:
            for at in range(0, len(rows), _ROWS):
                spool(rows[at : at + _ROWS], file)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all rows in the order of keys."""
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
    """Write the calibrated records among the outputs of some records. ``events``: the decoded records."""
    made, dead = [], set()
    for output in outputs:
        if isinstance(output, Calibrated):
            made.append(output)
        elif isinstance(output, Rejected) and output.topic == FORECASTS and output.reason == "conflict":
            dead.add(output.offset)
    # Every usable forecast is answered once, in order. A forecast that contradicts the first one of its event is dead.
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


# -- on a topic of their own -------------------------------------------------------------------------------------------


def check(settings: Settings, topic: str, partitions: int) -> None:
    """Before anything is read, refuse a topic to which these records must not or cannot be written.

    Raises SettingsError if it is one of the live topics.
    Raises TopicsError if it does not exist or has too few partitions.
    """
    live = {each.name for each in topics.wanted(settings)}
    if topic in live:
        raise SettingsError(f"--to-topic {topic}: workers use it; a replay writes only to a topic of its own")
    count = asyncio.run(topics.partitions(settings, topic))
    if count is None:
        raise TopicsError(f"there is no topic {topic}: make it, with at least {partitions} partitions")
    if count < partitions:
        raise TopicsError(f"topic {topic} has {count} partitions, the replay {partitions}: it needs as many")


def send(settings: Settings, topic: str, run: str, folded: Sequence[EngineOutput]) -> None:
    """Produce the calibrated records, each to its forecast's partition; wait until all are acknowledged.

    Raises TopicsError if the brokers refuse. Records that were sent before that have the header of this run.
    """
    try:
        asyncio.run(_send(settings, topic, run, folded))
    except (KafkaError, OSError) as exc:
        raise TopicsError(
            f"cannot write to {topic}: {exc!r}; what was written has the header {HEADER}={run}, "
            "and the same replay writes it again"
        ) from exc


async def _send(settings: Settings, topic: str, run: str, folded: Sequence[EngineOutput]) -> None:
    headers = [(HEADER, run.encode())]
    async with writer(settings) as producer:
        for partition, each in enumerate(folded):
            records = ((answer.ts, answer.key, answer.value, headers) for answer in each.answers())
            await append(producer, topic, partition, records)
