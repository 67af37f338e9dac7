"""Two files, or two folders of parts, as two topics: JSON lines, plain or packed, or Parquet.

A file holds records as the topic has them: ``event_id``, ``stream``, ``p`` and so on. Each needs a time: ``timestamp``
(ms, or a timestamp column in Parquet), or otherwise ``ts``. It may give ``key`` (otherwise the event id is the key) and
``partition`` (otherwise it is the key's partition by Kafka's own hash, among ``--partitions``). Records keep the order
of the file, as in a topic, so a file should be in the order of time.
"""

import sys
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any

import orjson

from replay.sources.column import quoted
from replay.sources.parquet_table import pyarrow
from replay.sources.record import CHUNK, TOPICS, Chunk, SourceRecord, TableError
from replay.sources.unpacking import PARQUET, begins, bounded, opened, parts, stored_bytes
from replay.spool import spool, spooled
from state.fence import FORECASTS, OUTCOMES
from state.policies import Policies
from state.quick import new
from streams.config.settings import SettingsError
from streams.kafka.partitioner import partition as hashed
from streams.records.routing import target_of

#: Bytes of a file that are parsed at once: about two thousand records.
_BLOCK = 1 << 18
#: The most bytes of a line.
_LONGEST = 1 << 26
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: A parsed line and its bytes.
Line = tuple[Any, bytes]


@dataclass(frozen=True)
class FileSource:
    """Forecasts and outcomes in two files.

    Raises SettingsError if a file cannot be read, or is Parquet and pyarrow is missing. Raises TableError if a file
    holds something else, perhaps only while it is read.

    ``partitions``: number of partitions. Each learns by itself, as in a worker.
    ``routed``: the plan by which intake and router work, if the files hold records from before these. Events then
    belong to their stream, and keys are shards.
    """

    forecasts: Path
    outcomes: Path
    partitions: int = 1
    routed: Policies | None = None
    until_ms = 0
    mapped = True

    def __post_init__(self) -> None:
        for path in (self.forecasts, self.outcomes):
            if begins(path) == PARQUET:
                pyarrow()

    @property
    def names(self) -> tuple[str, str]:
        """The files' names."""
        return self.forecasts.name, self.outcomes.name

    @cached_property
    def size(self) -> int:
        """Bytes of both files, as stored."""
        return sum(stored_bytes(path) for path in (self.forecasts, self.outcomes))

    def manifest(self) -> Mapping[str, Any]:
        """Return names, sizes and digests of the files."""
        files = dict(zip(TOPICS, map(identity, (self.forecasts, self.outcomes)), strict=True))
        return {"files": files, "partitions": self.partitions}

    def read(self, topic: int, partition: int) -> Iterator[Chunk]:
        """Yield the records of a file that is a single partition, see `ready`."""
        if self.partitions != 1 or partition:
            raise ValueError("a file of several partitions is made ready first")
        for _, chunk in self._chunks(topic):
            yield chunk

    def ready(self, directory: Path) -> "FileSource | SpooledSource":
        """Sort the records of both files into one file for each partition below ``directory``, if there are several.

        Raises SettingsError if a record names a partition that does not exist.
        """
        if self.partitions == 1:
            return self
        last = 0
        for topic in (FORECASTS, OUTCOMES):
            with ExitStack() as stack:
                spools = [
                    stack.enter_context(_spool(directory, topic, number).open("wb"))
                    for number in range(self.partitions)
                ]
                for places, chunk in self._chunks(topic):
                    found: list[list[tuple[Any, ...]]] = [[] for _ in spools]
                    for place, record in zip(places, chunk.records, strict=True):
                        last = max(last, record.timestamp)
                        found[place].append(tuple(record))
                    for file, records in zip(spools, found, strict=True):
                        if records:
                            spool(records, file)
        size = sum(_spool(directory, topic, n).stat().st_size for topic in (0, 1) for n in range(self.partitions))
        return SpooledSource(directory, self.partitions, self.names, size, self.mapped, self.manifest(), last)

    def _chunks(self, topic: int) -> Iterator[tuple[list[int], Chunk]]:
        """Yield chunks with the partition of each of their records."""
        path = (self.forecasts, self.outcomes)[topic]
        number = before = time = 0
        several = self.partitions > 1
        for lines, at in parsed(path):
            records: list[SourceRecord] = []
            places: list[int] = []
            append = records.append
            for record, line in lines:
                reason = key = None
                if type(record) is dict:
                    given = record.get("timestamp")
                    if given is None:
                        given = record.get("ts")
                    if type(given) is int:
                        time = given
                    elif given is None:
                        reason = "timestamp"
                    named = record.get("key")
                    if named is None:
                        named = record.get("event_id")
                    key = named.encode() if type(named) is str else None
                    if self.routed is not None:
                        line, key = self._along(self.routed, record, line, key)  # noqa: PLW2901 - the record as intake or router make it
                    if several:
                        given = None if self.routed else record.get("partition")
                        places.append(self._place(path, number, given, key))
                elif several:
                    places.append(0)
                append(new(SourceRecord, (time, topic, number, key, line, reason, ())))
                number += 1
            yield places, Chunk(records, at - before)
            before = at

    def _along(
        self, policies: Policies, record: dict[str, Any], line: bytes, key: bytes | None
    ) -> tuple[bytes, bytes | None]:
        """Return value and key as intake and router make them; unchanged if the stream is unknown."""
        event_id = record.get("event_id")
        stream = record.get("stream", self._streams.get(event_id) if type(event_id) is str else None)
        if type(event_id) is not str or type(stream) is not str:
            return line, key
        return orjson.dumps(record | {"scope": stream}), target_of(policies, stream, event_id).encode()

    @cached_property
    def _streams(self) -> dict[str, str]:
        """The stream of each forecast, by event id. Raises `TableError` if an id comes in two streams."""
        found: dict[str, str] = {}
        for lines, _ in parsed(self.forecasts):
            for record, _ in lines:
                match record:
                    case {"event_id": str(event_id), "stream": str(stream)}:
                        if found.setdefault(event_id, sys.intern(stream)) != stream:
                            raise TableError(
                                f"{self.forecasts}: {event_id!r} is a forecast of stream {found[event_id]} and of "
                                f"{stream}; give the stream of each record of {self.outcomes}"
                            )
        return found

    def _place(self, path: Path, number: int, given: object, key: bytes | None) -> int:
        if given is None:
            return hashed(key, self.partitions) if key is not None else 0
        if type(given) is not int or not 0 <= given < self.partitions:
            raise SettingsError(
                f"record {number} of {path} is of partition {given!r}; --partitions is {self.partitions}"
            )
        return given


@dataclass(frozen=True)
class SpooledSource:
    """Files whose records were sorted into partitions; see `FileSource.ready`."""

    directory: Path
    partitions: int
    names: tuple[str, str]
    size: int
    mapped: bool
    origin: Mapping[str, Any]
    until_ms: int

    def ready(self, directory: Path) -> "SpooledSource":  # noqa: ARG002 - it is
        """Return itself."""
        return self

    def manifest(self) -> Mapping[str, Any]:
        """Return the files' manifest."""
        return self.origin

    def read(self, topic: int, partition: int) -> Iterator[Chunk]:
        """Yield the records of one partition."""
        for records, done in spooled(_spool(self.directory, topic, partition)):
            yield Chunk([new(SourceRecord, record) for record in records], done)


def _spool(directory: Path, topic: int, partition: int) -> Path:
    return directory / f"{TOPICS[topic]}-{partition}.spool"


def identity(path: Path) -> dict[str, Any]:
    """Return the identity of a file or folder: name, size and digest."""
    digest = blake2b(digest_size=16)
    for part in parts(path):
        with part.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return {"name": path.name, "bytes": stored_bytes(path), "blake2b": digest.hexdigest()}


def parsed(path: Path) -> Iterator[tuple[list[Line], int]]:
    """Yield each record parsed and as bytes, with the bytes of the file read so far. Blank lines are skipped."""
    if begins(path) == PARQUET:
        yield from _parquet_lines(path)
        return
    loads, undecodable = orjson.loads, orjson.JSONDecodeError
    with opened(path) as (file, stored):
        rest = b""
        first, read = True, False
        while True:
            block = file.read(_BLOCK)
            if first:
                block, first = _begun(path, block), False
            lines = (rest + block).split(b"\n")
            rest = lines.pop() if block else b""
            if len(rest) > _LONGEST:
                raise TableError(f"{path} does not hold a record a line: a line has over {_LONGEST:,} bytes")
            found: list[Line] = []
            for line in lines:
                try:
                    found.append((loads(line), line))
                except undecodable:
                    if line and not line.isspace():
                        found.append((None, line))  # the decoder says why in a dead letter
            read = read or bool(found)
            yield found, stored.tell()
            if not block:
                break
    if not read:
        raise TableError(f"{path} holds no records")


def _begun(path: Path, block: bytes) -> bytes:
    """Return the first block of a file without a byte order mark; TableError if the file does not hold JSON lines."""
    block = block.removeprefix(BOM_UTF8)
    begin = block[:4096].lstrip()
    if begin[:1] == b"[":
        inside: list[Any] = [{b"{": {}, b"": {}, b"[": []}.get(begin[1:].lstrip()[:1])]
        raise TableError(f"{path} is a JSON array; {lines(inside, '.', path)}")
    if begin[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) or b"\0" in begin[:16]:
        raise TableError(f"{path} is UTF-16, not UTF-8: iconv -f UTF-16 -t UTF-8 {path} > records.jsonl")
    if begin and b"{" not in begin:
        raise TableError(
            f"{path} holds no JSON lines; it begins with {quoted(begin.splitlines()[0].decode(errors='replace'))}. "
            "--table reads CSV, of scores with their labels: join the two first"
        )
    return block


def lines(inside: list[Any], place: str, path: Path) -> str:
    """Return how to make lines of an array at a place of a file, as jq names it: of objects, of lists, or of values."""
    if isinstance(inside[0], dict):
        return f"a file holds a record a line: jq -c {quote(f'{place}[]')} {path} > records.jsonl"
    rows = quote(f"{place}[] | @csv" if isinstance(inside[0], list) else "@csv")
    return f"its values have no names: jq -r {rows} {path} > table.csv, and name columns by number, such as '#1'"


def _parquet_lines(path: Path) -> Iterator[tuple[list[Line], int]]:
    """Yield the rows of a Parquet file. Columns without a value are left out. Times become ms."""
    arrow = pyarrow()
    try:
        files = [arrow.parquet.ParquetFile(part) for part in parts(path)]
        rows, size = sum(file.metadata.num_rows for file in files) or 1, stored_bytes(path)
        bounded(path, 8 * rows)
        read = 0
        for batch in chain.from_iterable(file.iter_batches(batch_size=CHUNK) for file in files):
            found: list[Line] = []
            for row in batch.to_pylist():
                record = {name: _json(value) for name, value in row.items() if value is not None}
                found.append((record, orjson.dumps(record, default=_plain)))
            read += len(found)
            yield found, size * read // rows
    except (arrow.ArrowException, OSError, ValueError, OverflowError) as exc:  # also values that Python lacks
        raise TableError(f"{path} cannot be read as a Parquet file: {str(exc).splitlines()[0]}") from exc
    if not read:
        raise TableError(f"{path} holds no records")


def _plain(value: object) -> object:
    """Return, as a number or text, a value that JSON lacks."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return float(value) if isinstance(value, Decimal) else str(value)


def _json(value: object) -> object:
    if isinstance(value, datetime):
        # A column without a time zone is read as UTC, like Kafka's clock.
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
    return value.decode(errors="replace") if isinstance(value, bytes) else value
