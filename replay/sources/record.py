"""A record as a source gives it; and the interface of a source."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from streams.records.decoding import Decoder
from streams.sources.references import Headers

#: Records in a chunk: enough to hand over cheaply, few enough to show progress.
CHUNK = 2000
#: The two topics by their labels, in the order of `state.fence.FORECASTS` and `state.fence.OUTCOMES`.
TOPICS: Final = ("forecasts", "outcomes")


class TableError(Exception):
    """A table does not have the declared columns or values; the message says what it has."""


class SourceRecord(NamedTuple):
    """One record of an input topic."""

    #: The Kafka timestamp, ms since the epoch. Topics are merged by it.
    timestamp: int
    #: `state.fence.FORECASTS` or `state.fence.OUTCOMES`.
    topic: int
    #: Offset in its topic and partition; in a file, the number of the record, from 0.
    offset: int
    #: Key and value as bytes, as in the topic or the file.
    key: bytes | None
    value: bytes | None
    #: Why the record is refused (`streams.records.decoding.REASONS`), if that is known before decoding; otherwise None.
    reason: str | None = None
    #: Headers in the topic; a file has none.
    headers: Headers = ()


def loaded(decoder: Decoder, records: Sequence[SourceRecord]) -> Sequence[SourceRecord]:
    """Return the records after the schemas that they name are loaded."""
    if decoder.asks_registry:
        asyncio.run(decoder.load((record.topic, record) for record in records))
    return records


class ReplaySource(Protocol):
    """Two topics, in any storage. A source is sent to other processes, so it must be picklable."""

    @property
    def partitions(self) -> int:
        """Number of partitions of each topic."""

    @property
    def names(self) -> tuple[str, str]:
        """Names of the two topics in dead letters."""

    @property
    def size(self) -> int:
        """Size of the source, in the units of `Chunk.done`. Only the progress bar uses it."""

    @property
    def until_ms(self) -> int | None:
        """Time to which stream time goes on after the last record, ms. None: it stops there, because more will come."""

    @property
    def mapped(self) -> bool:
        """Whether records may come from source topics and need mapping."""

    def ready(self, directory: Path) -> "ReplaySource":
        """Return a source of the same records whose partitions can be read apart; it may write below a directory."""

    def manifest(self) -> Mapping[str, Any]:
        """Return what identifies the records: equal manifests mean equal records."""

    def read(self, topic: int, partition: int) -> Iterator["Chunk"]:
        """Yield the records of one partition of one topic, in the order of their offsets."""


class Chunk(NamedTuple):
    """Consecutive records, and their share of `Source.size`."""

    records: list[SourceRecord]
    done: int
