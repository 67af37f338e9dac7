"""Columns of a Parquet table: text, numbers and times of any type, and values inside lists and structs."""

import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from datetime import tzinfo
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from replay.sources.column import Column, shown
from replay.sources.record import TableError
from replay.sources.text_table import Text, places
from replay.sources.times import NEVER, UTC_ASSUMED
from replay.sources.unpacking import bounded, parts
from streams.config.settings import SettingsError

#: Matches a step into a column: a field of a struct, or a place in a list, counted from 0.
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
#: Floats hold integers exactly up to this one.
_EXACT: Final = 1 << 53


def read(path: Path, named: Mapping[str, str], zone: tzinfo | None = None) -> Text:
    """Read columns of a table.

    Raises SettingsError if pyarrow is missing. Raises TableError if the file is broken, or if a column is missing,
    exists twice, or has a type that is not read.

    ``named``: names by option. ``score.values[1]`` is inside a column; ``#3`` is the third column.
    ``zone``: time zone for times without one.
    """
    arrow = pyarrow()
    try:
        there = parts(path)
        files = [arrow.parquet.ParquetFile(part) for part in there]
        schema, count = files[0].schema_arrow, sum(file.metadata.num_rows for file in files)
        for file, part in zip(files, there, strict=True):
            if file.schema_arrow.names != schema.names:
                raise TableError(
                    f"{part} has other columns than the parts before it: {', '.join(file.schema_arrow.names)}"
                )
        if not count:
            raise TableError(f"{path} has no rows")
        bounded(path, 8 * count)
        folders = [_folders(part.relative_to(path)) for part in there]
        header = schema.names + [name for name in folders[0] if name not in schema.names]
        paths = {option: _path(name, header) for option, name in named.items()}
        found = places(path, header, {option: top for option, (top, _) in paths.items()})
        columns: dict[str, Column] = {}
        notes: list[str] = []
        for option, at in found.items():
            top = header[at]
            if at >= len(schema.names):
                said_by = [
                    (each.get(top, ""), file.metadata.num_rows) for each, file in zip(folders, files, strict=True)
                ]
                texts = [value for value, rows in said_by for _ in range(rows)]
                columns[option] = Column(option.split()[0], named[option], texts, range(1, count + 1))
                continue
            nth = schema.names[:at].count(top)
            tables = [arrow.table({"": _plain(arrow, file.read(columns=[top]).column(nth))}) for file in files]
            column = arrow.concat_tables(tables, promote_options="permissive").column(0).combine_chunks()
            said = f"{option.split()[0]} {shown(named[option])}"
            for field, place in _STEP.findall(paths[option][1]):
                column = _inside(arrow, said, column, field or int(place))
            cells, naive = _cells(arrow, option, said, column, zone)
            if naive and not zone:
                notes = [UTC_ASSUMED]
            columns[option] = Column(option.split()[0], named[option], cells, range(1, count + 1))
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as exc:
        raise TableError(f"{path} cannot be read as a Parquet file: {str(exc).splitlines()[0]}") from exc
    return Text(columns, notes)


def _folders(part: Path) -> dict[str, str]:
    """Return the columns whose values folders are named after, such as ``dt=2026-01-31``, as in Hive and Spark."""
    told = dict(unquote(name).split("=", 1) for name in part.parent.parts if "=" in name)
    return {name: "" if value == "__HIVE_DEFAULT_PARTITION__" else value for name, value in told.items()}


def _plain(arrow: Any, column: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """Return a column without dictionary encoding, because other parts of the table may not have it."""
    return column.cast(column.type.value_type) if arrow.types.is_dictionary(column.type) else column


def pyarrow() -> Any:  # noqa: ANN401 - a module without types
    """Return pyarrow; SettingsError if it is not installed."""
    try:
        import pyarrow  # noqa: ICN001, PLC0415 - an extra, and slow to import
        import pyarrow.compute  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ModuleNotFoundError as exc:
        raise SettingsError("Parquet files need pyarrow: pip install '.[parquet]'; or use CSV or JSON lines") from exc
    return pyarrow


def _path(name: str, names: list[str]) -> tuple[str, str]:
    """Split a name into a column and the steps inside it."""
    for match in re.finditer(r"[.\[]", name):
        top, steps = name[: match.start()], name[match.start() :]
        if name not in names and top in names and _STEP.sub("", steps) == "":
            return top, steps
    return name, ""


def _inside(arrow: Any, said: str, column: Any, step: str | int) -> Any:  # noqa: ANN401 - pyarrow's
    kind = column.type
    if isinstance(step, int) and _is_list(arrow, kind):
        try:
            return arrow.compute.list_element(column, step)
        except arrow.ArrowInvalid as exc:
            raise TableError(f"{said}: not every row has a value [{step}]: {exc}") from exc
    if isinstance(step, str) and arrow.types.is_struct(kind) and step in [field.name for field in kind]:
        return arrow.compute.struct_field(column, step)
    inner = _example(arrow, kind)
    how = f"name a value inside, such as '{inner}'" if inner else "write a column of it"
    raise TableError(f"{said}: there is no {step} in {kind}; {how}")


def _is_list(arrow: Any, kind: Any) -> bool:  # noqa: ANN401 - pyarrow's
    types = arrow.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _example(arrow: Any, kind: Any) -> str:  # noqa: ANN401 - pyarrow's
    """Return the steps from a type to a number inside it. In a list it is the second value, that of class 1."""
    if _is_list(arrow, kind):
        return "[1]" + _example(arrow, kind.value_type)
    if arrow.types.is_struct(kind):
        fields = sorted(kind, key=lambda field: not _is_list(arrow, field.type) or not _is_float(arrow, field.type))
        return f".{fields[0].name}{_example(arrow, fields[0].type)}"
    return ""


def _is_float(arrow: Any, kind: Any) -> bool:  # noqa: ANN401 - pyarrow's
    return bool(arrow.types.is_floating(kind.value_type))


def _cells(arrow: Any, option: str, said: str, column: Any, zone: tzinfo | None) -> tuple[Any, bool]:  # noqa: ANN401 - pyarrow's
    """Return cells as in `Column`, and whether they are times without a zone."""
    types, kind = arrow.types, column.type
    if types.is_dictionary(kind):
        return _cells(arrow, option, said, column.dictionary_decode(), zone)
    if types.is_nested(kind):
        flag, name = said.split(" ", 1)
        inner = _example(arrow, kind)
        said_how = (
            f"name a value inside, such as {flag} {shlex.quote(name + inner)}" if inner else "write a column of it"
        )
        raise TableError(f"{said} holds {kind}; {said_how}")
    if types.is_time(kind) or types.is_duration(kind):
        raise TableError(f"{said} holds {kind}, without dates; name a column of times")
    naive = "time" in option and (types.is_date(kind) or (types.is_timestamp(kind) and kind.tz is None))
    if types.is_timestamp(kind) or types.is_date(kind):
        column = column.cast(arrow.timestamp("ms", kind.tz if types.is_timestamp(kind) else None), safe=False)
        if naive:
            column = arrow.compute.assume_timezone(
                column, str(zone or "UTC"), ambiguous="earliest", nonexistent="earliest"
            )
        return column.cast("int64").fill_null(NEVER).to_numpy(zero_copy_only=False).astype("datetime64[ms]"), naive
    if types.is_floating(kind):
        column = column.cast("float32").cast("float64") if types.is_float16(kind) else column.cast("float64")
    if option == "--score" and (types.is_floating(kind) or types.is_integer(kind) or types.is_decimal(kind)):
        return column.cast("float64").to_numpy(zero_copy_only=False).astype("float64"), False
    if types.is_floating(kind):
        if option == "--id" and (arrow.compute.max(arrow.compute.abs(column)).as_py() or 0) >= _EXACT:
            raise TableError(f"{said} holds {kind}, which has rounded ids of so many digits; write them as text")
        with suppress(arrow.ArrowInvalid):
            column = column.cast("int64")  # an integer that was stored as a float is written as an integer
    try:
        return ["" if cell is None else cell for cell in column.cast("string").to_pylist()], False
    except arrow.ArrowInvalid as exc:
        raise TableError(f"{said} holds {kind} that is not text; write it as text") from exc
