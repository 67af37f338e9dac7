"""Which history a command reads: topics, files, or a table."""

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cli.options import duration
from replay.configuration import Configuration
from replay.sources import labels, scores
from replay.sources.files import FileSource
from replay.sources.table import Columns, TableSource
from replay.sources.topics import Range, moment, reread, resolved
from streams.config.settings import Settings, SettingsError

#: Options that only a table has: the argument of each, and its help. None of them has a default.
OF_TABLE: Final[Mapping[str, tuple[str, str]]] = {
    "score": ("COLUMN", "the model's score"),
    "label": ("COLUMN", "what happened; empty where it is not known"),
    "labels": ("TEXT=0|1|skip,...", "what labels mean, such as fraud=1,legit=0,open=skip"),
    "time": ("COLUMN", "when the score was made"),
    "label-time": ("COLUMN", "when the label was known (default: with the score)"),
    "time-format": ("FORMAT", "such as '%%d.%%m.%%Y %%H:%%M' (default: ISO 8601 or numbers)"),
    "label-time-format": ("FORMAT", "of --label-time, where it differs"),
    "time-zone": ("ZONE", "of times that name none, such as Europe/Berlin (default: UTC)"),
    "encoding": ("NAME", "of text, such as cp1252 (default: what fits)"),
    "segments": ("COLUMN,...", "columns of segments; the streams file must name them"),
    "entity": ("COLUMN", "what shares an outcome, such as an account: of each at most three teach"),
    "weight": ("COLUMN", "what a forecast weighs, such as an amount; the streams file must have `weight`"),
    "label-rate": ("COLUMN", "its chance of a label; the streams file must have `label_rate`"),
    "model-version": ("COLUMN", "the version of the model; the streams file must set model_version"),
    "id": ("COLUMN", "the event's id (default: the number of the row)"),
    "stream-column": ("COLUMN", "the stream of each row"),
    "stream-name": ("NAME", "the stream of all rows (default: the file's name)"),
}
#: Options with the same name as a field of `replay.sources.table.Columns`.
_SAME: Final = ("score", "label", "time", "label_time", "id", "entity", "weight", "label_rate", "model_version")


def add_source(parser: argparse.ArgumentParser) -> tuple[Any, Any]:
    """Add the options that say what is read; return their groups: of topics, and of files."""
    what = parser.add_argument_group("records of the topics, all that are kept unless said otherwise")
    what.add_argument("--from", dest="start", metavar="TIME", help="from this time on, such as 2026-11-01T00:00Z")
    what.add_argument("--to", dest="end", metavar="TIME", help="up to, not including, this time")
    what.add_argument("--last", metavar="7d", help="from so long ago on")
    what.add_argument("--offsets", type=Path, metavar="FILE", help="what this manifest says")
    return what, add_files(parser)


def add_files(parser: argparse.ArgumentParser) -> Any:  # noqa: ANN401 - a group of arguments
    """Add the options that say which files are read; return their group."""
    files = parser.add_argument_group("records of files instead: JSON lines, .gz too, or Parquet")
    files.add_argument("--forecasts", type=Path, metavar="FILE")
    files.add_argument("--outcomes", type=Path, metavar="FILE")
    table = parser.add_argument_group("or one table, CSV, JSON lines or Parquet, a row a forecast with its label")
    table.add_argument("--table", type=Path, metavar="FILE")
    table.add_argument(
        "--score-unit",
        default="probability",
        metavar="UNIT",
        help="probability, percent, permille, log-odds, or what stands for 0 and for 1, such as 0,1000 or 850,300",
    )
    for name, (metavar, help_) in OF_TABLE.items():
        table.add_argument(f"--{name}", metavar=metavar, help=help_)
    return files


def joined(arguments: Sequence[str]) -> list[str]:
    """Join ``--labels -1=0,1=1`` and the like into one argument: argparse takes a leading minus for an option."""
    found: list[str] = []
    for each in arguments:
        valued = found and found[-1] in ("--labels", "--score-unit")
        if valued and each.startswith("-") and not each.startswith("--") and ("=" in each or "," in each):
            found[-1] += f"={each}"
        else:
            found.append(each)
    return found


def source(options: argparse.Namespace, settings: Settings) -> Any:  # noqa: ANN401 - a Source
    """Turn the options of `add_source` into a source; raises as `request`."""
    require_table(options)
    given = [name for name in ("start", "end", "last", "offsets") if getattr(options, name) is not None]
    if options.forecasts or options.outcomes or options.table:
        if given:
            raise SettingsError("--from, --to, --last and --offsets are for topics, not for files")
        return of_files(options)
    if getattr(options, "partitions", None):
        raise SettingsError("--partitions is for files; topics have their own number")
    if options.offsets:
        if len(given) > 1:
            raise SettingsError("--offsets already gives the range: leave out --from, --to and --last")
        return reread(options.offsets, os.environ)
    if options.last and options.start:
        raise SettingsError("--last and --from: give one of them")
    start = moment(options.start) if options.start else None
    if options.last:
        start = int(time.time() * 1000) - (duration(options, "last") or 0)
    end = moment(options.end) if options.end else None
    return resolved(settings, os.environ, Range(start, end))


def of_files(options: argparse.Namespace) -> Any:  # noqa: ANN401 - a Source
    """Turn the options of `add_files` into a source; raises as `request`."""
    partitions = getattr(options, "partitions", None) or 1
    if options.table:
        if options.forecasts or options.outcomes:
            raise SettingsError("--table stands for both files: do not give --forecasts and --outcomes beside it")
        return _table(options, partitions)
    if not (options.forecasts and options.outcomes):
        raise SettingsError("--forecasts and --outcomes belong together")
    return FileSource(options.forecasts, options.outcomes, partitions)


def _table(options: argparse.Namespace, partitions: int) -> TableSource:
    missing = [f"--{name}" for name in ("score", "label", "time") if getattr(options, name) is None]
    if missing:
        raise SettingsError(f"--table needs {' and '.join(missing)} too: the names of its columns")
    try:
        scores.scale(options.score_unit)
    except ValueError as exc:
        raise SettingsError(f"--score-unit {exc}") from exc
    try:
        meanings = labels.parse(options.labels or "")
    except ValueError as exc:
        raise SettingsError(f"--labels {exc}") from exc
    columns = Columns(
        **{name: getattr(options, name) for name in _SAME},
        stream=options.stream_column,
        stream_name=options.stream_name or options.table.name.split(".")[0] or "table",
        unit=options.score_unit,
        labels=meanings,
        time_format=_format(options.time_format, "--time-format"),
        label_time_format=_format(options.label_time_format, "--label-time-format"),
        zone=_zone(options.time_zone),
        encoding=_encoding(options.encoding),
        segments=tuple(filter(None, (name.strip() for name in (options.segments or "").split(",")))),
    )
    return TableSource(options.table, options.table, partitions, columns=columns)


def _format(form: str | None, option: str) -> str | None:
    """Return a format that strptime knows and that includes the year; None for no format."""
    if form is not None:
        moment = datetime(2024, 2, 13, 14, 15, 16, tzinfo=UTC)
        try:
            if datetime.strptime(moment.strftime(form), form).year != moment.year:  # noqa: DTZ007 - only this
                raise ValueError("it has no year; write one such as '%d.%m.%Y %H:%M'")
        except ValueError as exc:
            raise SettingsError(f"{option} {form!r} is not a format of times: {exc}") from exc
    return form


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise SettingsError(f"--time-zone {name!r} is not known here; write one such as Europe/Berlin or UTC") from exc


def _encoding(name: str | None) -> str | None:
    try:
        "".encode(name or "utf-8")
    except LookupError as exc:
        raise SettingsError(f"--encoding {name!r} is not known; write one such as cp1252, latin-1 or utf-16") from exc
    return name


def require_table(options: argparse.Namespace) -> None:
    """Raise SettingsError if an option needs a table but none is given."""
    alone = [name for name in OF_TABLE if getattr(options, name.replace("-", "_")) is not None]
    if alone and not options.table:
        raise SettingsError(f"--{alone[0]} is for a table: give --table FILE, too")


def reads(options: argparse.Namespace) -> list[str]:
    """Return the keys that the streams file needs to use the named columns.

    Records of a table have such a column under the key's own name.
    """
    keys = ("entity", "weight", "label_rate", "model_version")
    return [name for name in keys if getattr(options, name, None) is not None]


def require_used(columns: Columns, plans: list[Configuration]) -> None:
    """Raise SettingsError unless the named columns are exactly those for which the streams file asks."""
    stream = columns.stream_name if columns.stream is None else None
    for name in ("weight", "label_rate", "model_version"):
        option, column = f"--{name.replace('_', '-')}", getattr(columns, name)
        found = [value for plan in plans for value in plan.values(stream, name)]
        paths = [value for value in found if isinstance(value, str)]
        if column is None and paths and stream is not None:
            raise SettingsError(f'streams."{stream}" reads {name} at "{paths[0]}": add {option} COLUMN')
        if column is not None and found and not paths:
            raise SettingsError(f"{option} {column}: the streams file has the number {found[0]}; give one of the two")
        if column is not None and not found:
            raise SettingsError(
                f"{option} {column}: the streams file (TRUEUP_STREAMS or --streams) must say that a stream uses it; "
                f'write there [streams."{stream or "*"}"] and below it {name} = "{name}"'
            )
    known = set[str]().union(*(plan.segments(stream) for plan in plans))
    if lacking := [name for name in columns.segments if name not in known]:
        raise SettingsError(
            f"--segments {','.join(lacking)}: the streams file (TRUEUP_STREAMS or --streams) must name a stream's "
            f'segments; write there [streams."{stream or "*"}"] and below it '
            f"segments = {json.dumps(columns.segments, ensure_ascii=False)}"
        )
