"""A record as a source gives it, and what a source is."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from streams.records.decoding import Decoder
from streams.sources.references import Headers

#: Records a source hands over at once. Large enough that handing over costs nothing, small enough to show progress.
CHUNK = 2000


class TableError(Exception):
    """A table does not have the declared columns or values; the message says what it has."""


class SourceRecord(NamedTuple):
    """One record of an input topic."""

    #: The Kafka timestamp, ms since the epoch: what topics are merged by.
    timestamp: int
    #: `state.fence.FORECASTS` or `state.fence.OUTCOMES`.
    topic: int
    #: In its topic and partition, increasing; in a file, the number of the record, from 0.
    offset: int
    #: Their bytes in the topic or the file.
    key: bytes | None
    value: bytes | None
    #: Why it is refused (`streams.records.decoding.REASONS`), if that is known before it is decoded; else None.
    reason: str | None = None
    #: Those of the topic; a file has none.
    headers: Headers = ()


def loaded(decoder: Decoder, records: Sequence[SourceRecord]) -> Sequence[SourceRecord]:
    """Return records when the schemas that they name are loaded."""
    if decoder.asks_registry:
        asyncio.run(decoder.load((record.topic, record) for record in records))
    return records


class ReplaySource(Protocol):
    """Two topics, however they are stored. It is sent to other processes, so it must be picklable."""

    @property
    def partitions(self) -> int:
        """Number of partitions of each topic."""

    @property
    def names(self) -> tuple[str, str]:
        """What the two topics are called in dead letters."""

    @property
    def size(self) -> int:
        """How much there is to read, in the unit that `Chunk.done` counts; only progress depends on it."""

    @property
    def until_ms(self) -> int | None:
        """Until when time runs at least, beside the last record of a partition; None: no further, records will come."""

    @property
    def mapped(self) -> bool:
        """Whether records may be those of sources, which are mapped."""

    def ready(self, directory: Path) -> "ReplaySource":
        """Return the same records, each partition to be read apart; what that needs is written below a directory."""

    def manifest(self) -> Mapping[str, Any]:
        """Return what identifies the records: the same manifest, the same records."""

    def read(self, topic: int, partition: int) -> Iterator["Chunk"]:
        """Yield the records of one partition of one topic, in the order of their offsets."""


class Chunk(NamedTuple):
    """Some records in a row, and how much of `Source.size` they stand for."""

    records: list[SourceRecord]
    done: int
