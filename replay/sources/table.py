"""One table as two topics. A row has a score, its time, and, if known, its label. CSV, JSON lines or Parquet.

Each row becomes a forecast at its time, and an outcome if it has a label. The outcome comes at the time of the label,
or with the forecast if the table does not say when labels came.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import tzinfo
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import orjson
from numpy.typing import NDArray

from replay.sources import json_table, label_times, names, parquet_table, scores, text_table, times
from replay.sources.column import Column, counted, shown
from replay.sources.files import FileSource, identity
from replay.sources.labels import Meanings, meanings
from replay.sources.record import CHUNK, Chunk, SourceRecord, TableError
from replay.sources.text_table import Text
from replay.sources.times import NEVER
from replay.sources.unpacking import PARQUET, begins, holds_json
from state.arrays import Floats, Integers
from state.fence import FORECASTS
from state.policy import DEFAULT_TTL_MS
from state.quick import new
from streams.kafka.partitioner import partition as hashed
from streams.records.routing import target_of


@dataclass(frozen=True)
class Columns:
    """Names of columns, and the meaning of their values."""

    #: The model's score, what happened, and when the score was made.
    score: str
    label: str
    time: str
    #: When the label became known; None: with the score. It may be the label's own column: then a row with a time is a
    #: 1, and a row without one is a 0 that nobody reported.
    label_time: str | None = None
    #: Id of the event; None: the number of the row.
    id: str | None = None
    #: Name of the stream; None: all rows belong to `stream_name`.
    stream: str | None = None
    #: Stream of rows that name no stream.
    stream_name: str = "table"
    #: Unit of scores, as `scores.scale` takes it.
    unit: str = "probability"
    #: What text in the label column means, see `replay.sources.labels.parse`: 0, 1, or None for a row without a label.
    labels: Meanings = field(default_factory=dict)
    #: Format of times for strptime, such as ``%d.%m.%Y %H:%M``; None: `times.read` finds it. If the times of labels
    #: have no format of their own, they have that of `time`, provided that it fits one of their cells.
    time_format: str | None = None
    label_time_format: str | None = None
    #: Time zone of times that do not name one; None: UTC.
    zone: tzinfo | None = None
    #: Encoding of text; None: the one that fits.
    encoding: str | None = None
    #: Columns with segments. Their names are those of the segments.
    segments: tuple[str, ...] = ()
    #: The entity of each row, such as an account, whose rows share outcomes; None: unknown.
    entity: str | None = None
    #: The weight of a forecast, such as an amount; and its chance of a label; None: unknown.
    weight: str | None = None
    label_rate: str | None = None
    #: The version of the model that made each row's score; None: unknown.
    model_version: str | None = None

    @property
    def given(self) -> dict[str, object]:
        """The settings about columns that are not names."""
        said = {
            name: getattr(self, name) for name in ("unit", "labels", "time_format", "label_time_format", "encoding")
        }
        return {name: value for name, value in said.items() if value} | ({"zone": str(self.zone)} if self.zone else {})

    @property
    def named(self) -> dict[str, str]:
        """The columns, by the option that names each."""
        options = {
            "--score": self.score,
            "--label": self.label,
            "--time": self.time,
            "--label-time": self.label_time,
            "--id": self.id,
            "--stream-column": self.stream,
            "--entity": self.entity,
            "--weight": self.weight,
            "--label-rate": self.label_rate,
            "--model-version": self.model_version,
        }
        named = {option: name for option, name in options.items() if name is not None}
        return named | {f"--segments {name}": name for name in self.segments}


@dataclass(frozen=True)
class TableSource(FileSource):
    """Forecasts and outcomes in one table.

    Raises SettingsError if the file cannot be read, or is Parquet and pyarrow is missing. Raises TableError, when the
    source is read, if a column is missing or holds something else.
    """

    #: Meaning of the columns.
    columns: Columns = Columns("", "", "")
    #: Whether the key is the stream, not the event's id.
    by_stream: bool = False
    mapped = False

    @property
    def notes(self) -> Sequence[str]:
        """What was assumed when the table was read, in sentences."""
        return self._rows.notes

    @property
    def size(self) -> int:
        """Records of both topics."""
        return int(np.sum(self._rows.forecast) + np.sum(~np.isnan(self._rows.labels)))

    def manifest(self) -> Mapping[str, Any]:
        """Return name, size and digest of the table, and which columns were read."""
        return {
            "files": {"table": identity(self.forecasts)},
            "columns": self.columns.named,
            "options": self.columns.given,
            "partitions": self.partitions,
        }

    @cached_property
    def at_once(self) -> bool:
        """Whether labels are taken as known with their score: they are in its row, and have no time of their own."""
        rows = self._rows
        return self.columns.label_time is None and bool((rows.forecast & ~np.isnan(rows.labels)).any())

    @cached_property
    def streams(self) -> Sequence[str]:
        """Names of all streams of the table."""
        return list(dict.fromkeys(self._rows.streams))

    @cached_property
    def silent(self) -> Mapping[str, int]:
        """By stream: zeros without a date, if other labels have dates. They are not outcomes: nobody reported them."""
        return Counter(self._rows.streams[row] for row in np.flatnonzero(self._rows.silent))

    @cached_property
    def ages_ms(self) -> Integers:
        """How long it took until ones were known, ms. Rows that lack one of the times are left out."""
        rows = self._rows
        dated = (rows.labels == 1) & (rows.label_times != NEVER) & (rows.times != NEVER)
        ages: Integers = np.maximum(rows.label_times[dated] - rows.times[dated], 0)
        return ages

    @cached_property
    def latest_ms(self) -> Mapping[str, int]:
        """By stream: how long its slowest label took, ms. Only streams where that is at least `DEFAULT_TTL_MS`."""
        rows, found = self._rows, dict[str, int]()
        dated = ~np.isnan(rows.labels) & (rows.label_times != NEVER) & (rows.times != NEVER)
        ages = np.where(dated, rows.label_times - rows.times, 0)
        for row in np.flatnonzero(ages >= DEFAULT_TTL_MS):
            stream = rows.streams[row]
            found[stream] = max(found.get(stream, 0), int(ages[row]))
        return found

    @cached_property
    def _rows(self) -> "TableRows":
        return read(self.forecasts, self.columns)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_rows"}  # other processes read it

    def _chunks(self, topic: int) -> Iterator[tuple[list[int], Chunk]]:
        rows = self._rows
        times = rows.times if topic == FORECASTS else rows.label_times
        mine = np.flatnonzero(rows.forecast if topic == FORECASTS else ~np.isnan(rows.labels))
        timed = times != NEVER
        # A row without a time becomes a dead letter, and comes first.
        first = int(times[timed].min()) if timed.any() else 0
        stands = np.where(timed, times, first)
        # Rows of one time may be sorted by label or score, so they are put in the order of their ids.
        hashes = np.array([crc32(rows.ids[row].encode()) for row in mine.tolist()], dtype=np.int64)
        order = mine[np.lexsort((hashes, stands[mine]))]
        known = {name: ~np.isnan(column) for name, column in rows.numbers.items()}
        for begin in range(0, len(order), CHUNK):
            records, places = [], []
            for number, row in enumerate(order[begin : begin + CHUNK].tolist(), begin):
                event_id = rows.ids[row]
                made: dict[str, object] = {"event_id": event_id}
                if topic == FORECASTS:
                    made |= {"stream": rows.streams[row], "p": float(rows.scores[row])}
                    if rows.segments:
                        made["segments"] = {name: column[row] for name, column in rows.segments.items() if column[row]}
                    made |= {name: column[row] for name, column in rows.texts.items() if column[row]}
                    made |= {name: float(column[row]) for name, column in rows.numbers.items() if known[name][row]}
                else:
                    made["y"] = int(rows.labels[row])
                key = (rows.streams[row] if self.by_stream else event_id).encode()
                if self.routed:
                    made["scope"] = stream = rows.streams[row]
                    key = target_of(self.routed, stream, event_id).encode()
                reason = None if timed[row] else "timestamp"
                value = orjson.dumps(made)
                records.append(new(SourceRecord, (int(stands[row]), topic, number, key, value, reason, ())))
                places.append(hashed(key, self.partitions) if self.partitions > 1 else 0)
            yield places, Chunk(records, len(records))


@dataclass(frozen=True)
class TableRows:
    """The values of a table, one for each row."""

    #: Probabilities; NaN if there is none.
    scores: Floats
    #: 0.0, 1.0, or NaN for rows without a label.
    labels: Floats
    #: Ms since 1970; the smallest integer if there is none. A label in a row of its own has the time and the stream of
    #: its score.
    times: Integers
    label_times: Integers
    #: Names of events and of streams.
    ids: list[str]
    streams: list[str]
    #: By column; empty if a row has none.
    segments: Mapping[str, list[str]]
    #: By field: entities and versions of the model; empty if unknown.
    texts: Mapping[str, list[str]]
    #: By field: weights and chances of a label; NaN if a row has none.
    numbers: Mapping[str, Floats]
    #: Rows whose label is a 0 that was never reported. They have no label here.
    silent: NDArray[np.bool_]
    #: Rows that are forecasts. With --id, a label may have a row of its own if a different row has the score.
    forecast: NDArray[np.bool_]
    #: What was assumed, in sentences.
    notes: Sequence[str] = ()

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.scores)

    def at(self, kept: NDArray[np.bool_]) -> "TableRows":
        """Return some of the rows."""

        def of(column: Any) -> Any:  # noqa: ANN401 - a field
            if isinstance(column, Mapping):
                return {name: of(each) for name, each in column.items()}
            return [*compress(column, kept.tolist())] if isinstance(column, list) else column[kept]

        return replace(
            self, **{each.name: of(getattr(self, each.name)) for each in fields(self) if each.name != "notes"}
        )


def read(path: Path, columns: Columns) -> TableRows:
    """Read the columns of a table.

    Raises SettingsError if the file cannot be read. Raises TableError if a column is missing or does not hold
    what it should.
    """
    if begins(path) == PARQUET:
        table = parquet_table.read(path, columns.named, columns.zone)
    elif holds_json(path):
        table = json_table.read(path, columns.named)
    else:
        table = text_table.read(path, columns.named, columns.encoding)
    try:
        return _rows(table, columns)
    except TableError as exc:
        if table.doubt and not str(exc).isascii():
            raise TableError(f"{exc}. {table.doubt}") from exc
        raise


def _rows(table: Text, columns: Columns) -> TableRows:
    found = dict(table.columns)
    notes = list(table.notes)
    for option in sorted(found.keys() & {"--id", "--entity", *(f"--segments {name}" for name in columns.segments)}):
        found[option], changed = names.whole(found[option])
        notes += changed
    made = times.read(found["--time"], columns.time_format, columns.zone)
    notes += made.notes
    happened = columns.label == columns.label_time  # its time, if it happened
    labels = np.empty(0) if happened else _labels(found["--label"], columns)
    values, outside = scores.read(found["--score"], columns.unit)
    notes += outside
    known = made
    if columns.label_time is not None:
        form = columns.label_time_format
        known = times.read(found["--label-time"], form or columns.time_format, columns.zone, only=form is not None)
        notes += known.notes
        if happened:
            labels = (known.ms != NEVER).astype(np.float64)
    if (made.ms == NEVER).all():
        raise TableError(f"--time {shown(columns.time)}: no row has a time")
    ids, scored, repeated = names.events(found, values, labels)
    notes += repeated
    count, issued = len(values), made.ms[scored]
    forecast = scored == np.arange(count)
    streams = [columns.stream_name] * count
    if columns.stream is not None:
        streams = names.read(found["--stream-column"], streams)
        streams = streams if forecast.all() else [streams[row] for row in scored.tolist()]
    segments = {name: names.read(found[f"--segments {name}"], [""] * count) for name in columns.segments}
    texts = {name: names.read(each, [""] * count) for name, each in _of(found, "entity", "model_version").items()}
    numbers = {name: scores.numbers(each) for name, each in _of(found, "weight", "label_rate").items()}
    silent = np.zeros(count, dtype=np.bool_)
    if columns.label_time is not None:
        notes += label_times.follow(known.ms, issued, labels, found, columns.zone, scored)
        notes += label_times.at_once(known.ms[~np.isnan(labels)], issued)
        silent, dated = label_times.completed(labels, known.ms, issued, found["--label-time"])
        notes += dated
    labels[silent] = np.nan
    said = ids, streams, segments, texts, numbers
    rows = TableRows(values, labels, issued, known.ms, *said, silent, forecast, list(dict.fromkeys(notes)))
    return _used(rows, found["--score"].rows)


def _of(found: Mapping[str, Column], *names: str) -> dict[str, Column]:
    """Return the columns that options name, by field."""
    return {name: each for name in names if (each := found.get(f"--{name.replace('_', '-')}"))}


def _used(rows: TableRows, numbers: Sequence[int]) -> TableRows:
    """Leave out rows without score, label and time, such as a line of totals. Add notes about incomplete rows."""
    kept = ~np.isnan(rows.scores) | ~np.isnan(rows.labels) | (rows.times != NEVER) | rows.silent
    if not rows.forecast.all():
        alone = counted(int(np.sum(~rows.forecast)), "row")
        rows = replace(
            rows, notes=[*rows.notes, f"{alone} of a label without a score; --id says which event each is of."]
        )
    # A label in a row of its own needs the time when it became known. Silence needs none.
    when = np.where(rows.forecast, rows.times, np.where(rows.silent, 0, rows.label_times))
    for what, lacks in {
        "score": np.isnan(rows.scores) & rows.forecast & kept,
        "time": (when == NEVER) & kept,
    }.items():
        if lacks.any():
            first = numbers[int(np.argmax(lacks))]
            note = f"Rows without a {what} cannot be used: {lacks.sum():,} in all, the first is row {first}."
            rows = replace(rows, notes=[*rows.notes, note])
    if kept.all():
        return rows
    first = numbers[int(np.argmin(kept))]
    left = counted(int(np.sum(~kept)), "row")
    note = f"{left} without score, label and time, and passed over; the first is row {first}."
    return replace(rows.at(kept), notes=[*rows.notes, note])


def _labels(column: Column, columns: Columns) -> Floats:
    cells = column.texts
    try:
        meant = meanings(Counter(cells), columns.labels)
    except ValueError as exc:
        raise TableError(f"--label {shown(columns.label)} {exc}{_when(column, columns)}") from exc
    found: Floats = np.array([meant[cell] for cell in cells])
    return found


def _when(column: Column, columns: Columns) -> str:
    """Return the remedy if the label's column holds times; otherwise an empty text."""
    with suppress(TableError):
        form = columns.label_time_format or columns.time_format
        if (times.read(replace(column, option="--label-time"), form).ms == NEVER).all():
            return ""
        return "; if it says when what you forecast happened, name it by --label-time, too"
    return ""
