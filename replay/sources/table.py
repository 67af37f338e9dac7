"""One table as two topics: a row holds a score, its time and, where it is known, its label. CSV or Parquet.

Each row becomes a forecast at its time, and an outcome if it has a label. The outcome comes at the time of the label,
or with the forecast if the table does not say when labels came.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from replay.sources.files import FileSource, begins, identity
from replay.sources.labels import Meanings, meanings
from replay.sources.record import CHUNK, Chunk, SourceRecord, TableError
from state.arrays import Floats, Integers
from state.calibrators.base import new
from state.fence import FORECASTS
from streams.config.settings import SettingsError
from streams.kafka.partitioner import partition as hashed

_PARQUET: Final = b"PAR1"
#: By name: from the numbers of a column to probabilities.
UNITS: Final = ("probability", "percent", "permille", "log-odds")
#: Whole numbers below these are times in seconds, milliseconds, microseconds; larger ones nanoseconds. Since 1970:
#: seconds up to the year 5138.
_TIMES: Final = ((10**11, 1000.0), (10**14, 1.0), (10**17, 1e-3))
#: A row whose time, or whose label's time, is missing.
_NEVER: Final = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Columns:
    """Names of columns, and what stands in them.

    Attributes
    ----------
    score, label, time
        The model's score, what happened, and when the score was made.
    label_time
        When the label became known; None: with the score.
    id
        Of the event; None: the number of the row.
    stream
        Name of the stream; None: all rows are of `stream_name`.
    stream_name
        Name of the stream of all rows, or of rows without one.
    unit
        One of `UNITS`.
    labels
        What text in the label column means, see `replay.sources.labels.parse`: 0, 1, or None for a row without a label.
    segments
        Columns that hold segments; their names are the segments'.
    time_format
        Of times that are text and not ISO 8601, as strptime reads it, such as ``%d.%m.%Y %H:%M``.
    """

    score: str
    label: str
    time: str
    label_time: str | None = None
    id: str | None = None
    stream: str | None = None
    stream_name: str = "table"
    unit: str = "probability"
    labels: Meanings = field(default_factory=dict)
    time_format: str | None = None
    segments: tuple[str, ...] = ()

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
        }
        named = {option: name for option, name in options.items() if name is not None}
        return named | {f"--segments {name}": name for name in self.segments}


@dataclass(frozen=True)
class TableSource(FileSource):
    """Forecasts and outcomes in one table.

    Parameters
    ----------
    columns
        Which column holds what.

    Raises
    ------
    SettingsError
        If the file cannot be read, or pyarrow is missing.
    TableError
        If a column is missing or holds something else; when the source is read.
    """

    columns: Columns = Columns("", "", "")

    def __post_init__(self) -> None:
        begins(self.forecasts)
        _pyarrow()

    @property
    def size(self) -> int:
        """Records of both topics."""
        return self._rows.count + int(np.sum(~np.isnan(self._rows.labels)))

    def manifest(self) -> Mapping[str, Any]:
        """Return name, size and digest of the table, and which columns were read."""
        return {
            "files": {"table": identity(self.forecasts)},
            "columns": self.columns.named,
            "partitions": self.partitions,
        }

    @cached_property
    def silent(self) -> Mapping[str, int]:
        """By stream: zeros that have no date though labels have some. They are no outcomes: nobody reported them."""
        return Counter(self._rows.streams[row] for row in np.flatnonzero(self._rows.silent))

    @cached_property
    def ages_ms(self) -> Integers:
        """How long the ones of the table took to be known, ms; those without both times are left out."""
        rows = self._rows
        dated = (rows.labels == 1) & (rows.label_times != _NEVER) & (rows.times != _NEVER)
        ages: Integers = np.maximum(rows.label_times[dated] - rows.times[dated], 0)
        return ages

    @cached_property
    def _rows(self) -> "Rows":
        return read(self.forecasts, self.columns)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_rows"}  # other processes read it

    def _chunks(self, topic: int) -> Iterator[tuple[list[int], Chunk]]:
        rows = self._rows
        times = rows.times if topic == FORECASTS else rows.label_times
        mine = np.arange(rows.count) if topic == FORECASTS else np.flatnonzero(~np.isnan(rows.labels))
        timed = times != _NEVER
        # A row without a time becomes a dead letter; it has to stand somewhere, so it stands first.
        first = int(times[timed].min()) if timed.any() else 0
        stands = np.where(timed, times, first)
        order = mine[np.argsort(stands[mine], kind="stable")]
        for begin in range(0, len(order), CHUNK):
            records, places = [], []
            for number, row in enumerate(order[begin : begin + CHUNK].tolist(), begin):
                event_id = rows.ids[row]
                made: dict[str, object] = {"event_id": event_id}
                if topic == FORECASTS:
                    made |= {"stream": rows.streams[row], "p": float(rows.scores[row])}
                    if rows.segments:
                        made["segments"] = {name: column[row] for name, column in rows.segments.items() if column[row]}
                else:
                    made["y"] = int(rows.labels[row])
                key = event_id.encode()
                reason = None if timed[row] else "timestamp"
                value = orjson.dumps(made)
                records.append(new(SourceRecord, (int(stands[row]), topic, number, key, value, reason, ())))
                places.append(hashed(key, self.partitions) if self.partitions > 1 else 0)
            yield places, Chunk(records, len(records))


@dataclass(frozen=True)
class Rows:
    """What a table holds, a value a row.

    Attributes
    ----------
    scores
        Probabilities; NaN where there is none.
    labels
        0.0, 1.0, or NaN for rows without a label.
    times, label_times
        Ms since 1970; the least integer where there is none.
    ids, streams
        Names.
    segments
        By column; empty where a row has none.
    silent
        Rows whose label is 0 and was never reported; they have no label here.
    """

    scores: Floats
    labels: Floats
    times: Integers
    label_times: Integers
    ids: list[str]
    streams: list[str]
    segments: Mapping[str, list[str]]
    silent: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.scores)


def read(path: Path, columns: Columns) -> Rows:
    """Read the columns of a table.

    Raises
    ------
    SettingsError
        If the file cannot be read.
    TableError
        If a column is missing, or does not hold what it should.
    """
    table = _table(path, columns)
    scores = _scores(table[columns.score], columns)
    times = _times(table[columns.time], "--time", columns)
    if (times == _NEVER).all():
        raise TableError(f"--time {columns.time}: no row has a time")
    label_times = times if columns.label_time is None else _times(table[columns.label_time], "--label-time", columns)
    count = len(scores)
    ids = [str(n) for n in range(count)] if columns.id is None else _names(table[columns.id], map(str, range(count)))
    default = (columns.stream_name for _ in range(count))
    streams = list(default) if columns.stream is None else _names(table[columns.stream], default)
    segments = {name: _names(table[name], ("" for _ in range(count))) for name in columns.segments}
    labels = _labels(table[columns.label], columns)
    silent = (labels == 0) & (label_times == _NEVER) & (columns.label_time is not None)
    if columns.label_time is not None and (labels == 1).any() and (label_times[labels == 1] == _NEVER).all():
        raise TableError(
            f"--label-time {columns.label_time}: no row with label 1 has a time; leave the option out to take labels "
            "as known with the score"
        )
    labels[silent] = np.nan
    return Rows(scores, labels, times, label_times, ids, streams, segments, silent)


def _table(path: Path, columns: Columns) -> Any:  # noqa: ANN401 - pyarrow ships no type hints
    """Return the named columns as a pyarrow table."""
    arrow = _pyarrow()
    try:
        if begins(path) == _PARQUET:
            there = arrow.parquet.read_schema(path).names
            _present(path, there, columns)
            return arrow.parquet.read_table(path, columns=sorted(set(columns.named.values())))
        with arrow.csv.open_csv(path) as head:
            there = head.schema.names
        _present(path, there, columns)
        formats = [arrow.csv.ISO8601] + ([columns.time_format] if columns.time_format else [])
        # What names something is text, whatever it looks like: 007 is not 7.
        text = {name: arrow.string() for name in (columns.id, columns.stream, *columns.segments) if name}
        options = arrow.csv.ConvertOptions(
            include_columns=sorted(set(columns.named.values())),
            column_types=text,
            timestamp_parsers=formats,
            strings_can_be_null=True,
        )
        return arrow.csv.read_csv(path, convert_options=options)
    except arrow.ArrowInvalid as exc:
        raise TableError(f"{path} is no table that can be read: {exc}") from exc


def _present(path: Path, there: Iterable[str], columns: Columns) -> None:
    there = list(there)
    for option, name in columns.named.items():
        if name not in there:
            raise TableError(
                f"{option.removesuffix(f' {name}')} {name}: {path} has no such column; there are: {', '.join(there)}"
            )


def _scores(column: Any, columns: Columns) -> Floats:  # noqa: ANN401 - pyarrow's
    try:
        values: Floats = column.cast("float64").to_numpy(zero_copy_only=False).astype(np.float64)
    except _pyarrow().ArrowInvalid as exc:
        raise TableError(f"--score {columns.score} is not a column of numbers: {exc}") from exc
    if columns.unit == "log-odds":
        with np.errstate(over="ignore"):
            shares: Floats = 1 / (1 + np.exp(-values))
            return shares
    values = values / {"probability": 1, "percent": 100, "permille": 1000}[columns.unit]
    known = values[~np.isnan(values)]
    if not len(known):
        raise TableError(f"--score {columns.score}: no row has a score")
    outside = np.mean((known < 0) | (known > 1))
    if outside > 0.5:
        raise TableError(
            f"--score {columns.score}: {outside:.0%} of the scores are not in [0, 1] (from {known.min():g} to "
            f"{known.max():g}); --score-unit says what they are: {', '.join(UNITS)}"
        )
    return values


def _labels(column: Any, columns: Columns) -> Floats:  # noqa: ANN401 - pyarrow's
    encoded = column.cast("string").combine_chunks().dictionary_encode()
    values = encoded.dictionary.to_pylist()
    counts = np.bincount(encoded.indices.drop_null().to_numpy(zero_copy_only=False), minlength=len(values))
    try:
        meant = [*meanings(dict(zip(values, counts.tolist(), strict=True)), columns.labels).values()]
    except ValueError as exc:
        raise TableError(f"--label {columns.label} {exc}") from exc
    indices = encoded.indices.fill_null(len(meant)).to_numpy(zero_copy_only=False)
    found: Floats = np.array([*meant, np.nan])[indices]
    return found


def _times(column: Any, option: str, columns: Columns) -> Integers:  # noqa: ANN401 - pyarrow's
    arrow = _pyarrow()
    if arrow.types.is_null(column.type):
        return np.full(len(column), _NEVER)
    if arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type):
        sample = next((each for each in column.to_pylist() if each), "")
        if not columns.time_format:
            raise TableError(
                f"{option}: {sample!r} is not a time that is recognised (ISO 8601, or a number since 1970); "
                f"say how it is written, such as --time-format '%d.%m.%Y %H:%M'"
            )
        try:
            column = arrow.compute.strptime(column, format=columns.time_format, unit="ms", error_is_null=False)
        except arrow.ArrowInvalid as exc:
            raise TableError(f"{option}: not all times are written as {columns.time_format}: {exc}") from exc
    if arrow.types.is_temporal(column.type):
        # A column without a zone is read as UTC, as Kafka's clock is.
        milliseconds = column.cast(arrow.timestamp("ms"), safe=False).cast("int64")
        found: Integers = milliseconds.combine_chunks().fill_null(_NEVER).to_numpy(zero_copy_only=False)
        return found
    try:
        numbers: Floats = column.cast("float64").to_numpy(zero_copy_only=False).astype(np.float64)
    except arrow.ArrowInvalid as exc:
        raise TableError(f"{option} is neither a time nor a number: {exc}") from exc
    known = ~np.isnan(numbers)
    if not known.any():
        return np.full(len(numbers), _NEVER)
    middle = float(np.median(np.abs(numbers[known])))
    factor = next((factor for limit, factor in _TIMES if middle < limit), 1e-6)
    times = np.full(len(numbers), _NEVER)
    times[known] = np.rint(numbers[known] * factor).astype(np.int64)
    return times


def _names(column: Any, defaults: Iterable[str]) -> list[str]:  # noqa: ANN401 - pyarrow's
    return [
        default if name is None else name
        for name, default in zip(column.cast("string").to_pylist(), defaults, strict=False)
    ]


def _pyarrow() -> Any:  # noqa: ANN401 - a module without types
    try:
        import pyarrow  # noqa: ICN001, PLC0415 - an extra, and slow to import
        import pyarrow.compute  # noqa: PLC0415
        import pyarrow.csv  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ModuleNotFoundError as exc:
        raise SettingsError("tables need pyarrow: pip install '.[parquet]'; or use JSON lines") from exc
    return pyarrow
