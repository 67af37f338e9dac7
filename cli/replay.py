"""``trueup replay`` on the command line."""

import argparse
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cli.options import DONE, UNUSABLE, Commands, command, positive
from streams.config import stream_config
from streams.config.settings import Settings, SettingsError

#: As `replay.sources.table.UNITS`, which takes a while to import; a test compares them.
SCORE_UNITS = ("probability", "percent", "permille", "log-odds")
#: Options of a table alone, that have no default.
_OF_TABLE: Final = (
    "score",
    "label",
    "labels",
    "time",
    "label_time",
    "time_format",
    "label_time_format",
    "time_zone",
    "decimal",
    "encoding",
    "segments",
    "entity",
    "id",
    "stream_column",
    "stream_name",
)

if TYPE_CHECKING:
    from replay.configuration import Configuration
    from replay.run import Request
    from replay.sources.table import Columns

DESCRIPTION = """\
Runs the engine over history: topics of the cluster (TRUEUP_BROKERS, TRUEUP_FORECASTS, TRUEUP_OUTCOMES), or files. It
joins no group, commits nothing, and writes to no topic that a worker uses.
"""

EPILOG = """\
examples:
  trueup dev demo --export flights && \\
  trueup replay --forecasts flights/forecasts.jsonl --outcomes flights/outcomes.jsonl \\
      --calibrator platt --calibrator platt+regret_matching       which is better, on real flights, without a broker
  trueup replay --table scores.csv --score p --label fraud --time scored_at --label-time reported_at \\
      --report review.html                                        one table of last quarter
  trueup replay --last 7d --threshold 0.8                         would it have helped last week?
  trueup replay --last 90d --report review.html                   a page to put before a review
  trueup replay --delay as-is --delay none --delay +2d            what late labels cost
  trueup replay --from 2026-11-01T00:00Z --manifest run.json      the same again: trueup replay --offsets run.json
  trueup replay --write-state trueup-2                            a worker with TRUEUP_APP_ID=trueup-2 goes on from here
"""


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    replay = command(
        commands,
        "replay",
        "run history again: compare calibrators, rebuild state",
        says=DESCRIPTION,
        more=EPILOG,
        streams=False,
        json_output=True,
    )
    replay.set_defaults(run=run)
    what, files = add_source(replay)
    what.add_argument("--manifest", type=Path, metavar="FILE", help="write down what is read, for --offsets")
    files.add_argument(
        "--partitions", type=positive, metavar="N", help="share keys out as N partitions of Kafka would (default: 1)"
    )
    runs = replay.add_argument_group("what runs, side by side; the present plan (TRUEUP_STREAMS) unless said otherwise")
    runs.add_argument(
        "--calibrator",
        action="append",
        default=[],
        metavar="NAME[:OPTION=VALUE,...]",
        help="the plan with this calibrator; may be repeated",
    )
    runs.add_argument(
        "--challengers",
        action="store_true",
        help="the plan, and each challenger in its champion's place",
    )
    runs.add_argument(
        "--streams", action="append", default=[], type=Path, metavar="FILE", help="this TOML file; may be repeated"
    )
    runs.add_argument(
        "--delay", action="append", default=[], metavar="as-is|none|+2d", help="when outcomes come; may be repeated"
    )
    runs.add_argument("--processes", type=positive, metavar="N", help="at most so many (default: one a core)")
    gives = replay.add_argument_group("what it gives")
    gives.add_argument("--threshold", type=float, metavar="P", help="count the alerts, forecasts of at least P")
    gives.add_argument(
        "--volume",
        type=float,
        default=0.02,
        metavar="SHARE",
        help="recall among this share, the highest (default: .02)",
    )
    gives.add_argument("--block", type=positive, metavar="N", help="length of the bootstrap's blocks, forecasts")
    gives.add_argument("--report", type=Path, metavar="FILE", help="write a page of HTML: figures, and which to choose")
    gives.add_argument("--pdf", type=Path, metavar="FILE", help="the same page as PDF; needs Chromium")
    gives.add_argument(
        "--model", default="", metavar="NAME", help="name and version of the model, for the page's title"
    )
    gives.add_argument("--output", type=Path, metavar="FILE", help="write calibrated records as JSON lines")
    gives.add_argument("--to-topic", metavar="TOPIC", help="write calibrated records to a topic of their own")
    gives.add_argument("--dead-letters", type=Path, metavar="FILE", help="write dead letters as JSON lines")
    gives.add_argument("--write-state", metavar="APP_ID", help="write the state for a worker with this TRUEUP_APP_ID")


def add_source(parser: argparse.ArgumentParser) -> tuple[Any, Any]:
    """Add the options that say what is read, and return their groups: of topics, and of files."""
    what = parser.add_argument_group("records of the topics, all that are kept unless said otherwise")
    what.add_argument("--from", dest="start", metavar="TIME", help="from this time on, such as 2026-11-01T00:00Z")
    what.add_argument("--to", dest="end", metavar="TIME", help="up to, not including, this time")
    what.add_argument("--last", metavar="7d", help="from so long ago on")
    what.add_argument("--offsets", type=Path, metavar="FILE", help="what this manifest says")
    return what, add_files(parser)


def add_files(parser: argparse.ArgumentParser) -> Any:  # noqa: ANN401 - a group of arguments
    """Add the options that say which files are read, and return their group."""
    files = parser.add_argument_group("records of files instead: JSON lines, .gz too, or Parquet")
    files.add_argument("--forecasts", type=Path, metavar="FILE")
    files.add_argument("--outcomes", type=Path, metavar="FILE")
    table = parser.add_argument_group("or one table, CSV or Parquet, a row a forecast with its label")
    table.add_argument("--table", type=Path, metavar="FILE")
    table.add_argument("--score", metavar="COLUMN", help="the model's score")
    table.add_argument("--score-unit", default="probability", metavar="UNIT", help=f"{', '.join(SCORE_UNITS)}")
    table.add_argument("--label", metavar="COLUMN", help="what happened; empty where it is not known")
    table.add_argument(
        "--labels", metavar="TEXT=0|1|skip,...", help="what labels mean, such as fraud=1,legit=0,open=skip"
    )
    table.add_argument("--time", metavar="COLUMN", help="when the score was made")
    table.add_argument("--label-time", metavar="COLUMN", help="when the label was known (default: with the score)")
    table.add_argument(
        "--time-format", metavar="FORMAT", help="such as '%%d.%%m.%%Y %%H:%%M' (default: ISO 8601 or numbers)"
    )
    table.add_argument("--label-time-format", metavar="FORMAT", help="of --label-time, where it differs")
    table.add_argument(
        "--time-zone", metavar="ZONE", help="of times that name none, such as Europe/Berlin (default: UTC)"
    )
    table.add_argument("--decimal", choices=(".", ","), help="the mark before a score's fraction (default: what fits)")
    table.add_argument("--encoding", metavar="NAME", help="of text, such as cp1252 (default: what fits)")
    table.add_argument("--segments", metavar="COLUMN,...", help="columns of segments; the streams file must name them")
    table.add_argument(
        "--entity", metavar="COLUMN", help="what shares an outcome, such as an account: of each at most three teach"
    )
    table.add_argument("--id", metavar="COLUMN", help="the event's id (default: the number of the row)")
    table.add_argument("--stream-column", metavar="COLUMN", help="the stream of each row")
    table.add_argument("--stream-name", metavar="NAME", help="the stream of all rows (default: the file's name)")
    return files


def joined(arguments: Sequence[str]) -> list[str]:
    """Return arguments with ``--labels -1=0,1=1`` as one: argparse takes what begins with a minus for an option."""
    found: list[str] = []
    for each in arguments:
        if found and found[-1] == "--labels" and each.startswith("-") and "=" in each and not each.startswith("--"):
            found[-1] += f"={each}"
        else:
            found.append(each)
    return found


def request(options: argparse.Namespace, settings: Settings) -> "Request":
    """Turn parsed options into a request.

    Raises
    ------
    SettingsError, TopicsError, TableError
        If it is not possible.
    """
    from replay.configuration import configurations  # noqa: PLC0415 - numpy takes a while to import
    from replay.delay import Delay  # noqa: PLC0415
    from replay.report.pdf import browser  # noqa: PLC0415
    from replay.run import Request, cores  # noqa: PLC0415
    from replay.silence import understood  # noqa: PLC0415

    if options.threshold is not None and not 0 <= options.threshold <= 1:
        raise SettingsError(f"--threshold {options.threshold}: must be between 0 and 1")
    if not 0 < options.volume <= 1:
        raise SettingsError(f"--volume {options.volume}: must be above 0 and at most 1")
    if options.pdf:
        browser()
    delays = tuple(Delay.parse(text) for text in options.delay) or (Delay(),)
    if len({each.name for each in delays}) < len(delays):
        raise SettingsError("--delay: the same one twice")
    read = source(options, settings)
    plans = configurations(settings, options.calibrator, options.streams, challengers=options.challengers)
    taken: list[str] = []
    if options.segments:
        require_segments(read.columns, plans)
    if options.table:
        plans, taken = understood(read, plans)
        taken = [*read.notes, *taken]
    return Request(
        source=read,
        configurations=plans,
        delays=delays,
        taken=taken,
        processes=options.processes or cores(),
        threshold=options.threshold,
        volume=options.volume,
        block=options.block,
        manifest=options.manifest,
        report=options.report,
        pdf=options.pdf,
        command=shlex.join(["trueup", *sys.argv[1:]]),
        model=options.model,
        output=options.output,
        letters=options.dead_letters,
        to_topic=options.to_topic,
        write_state=options.write_state,
    )


def require_segments(columns: "Columns", plans: "list[Configuration]") -> None:
    """Raise SettingsError if no plan has a segment that the table is to give: nothing would be shown of it."""
    stream = columns.stream_name if columns.stream is None else None
    known = set[str]().union(*(plan.segments(stream) for plan in plans))
    if lacking := [name for name in columns.segments if name not in known]:
        raise SettingsError(
            f"--segments {','.join(lacking)}: the streams file (TRUEUP_STREAMS or --streams) must name a stream's "
            f'segments; write there [streams."{stream or "*"}"] and below it segments = {json.dumps(columns.segments)}'
        )


def require_table(options: argparse.Namespace) -> None:
    """Raise SettingsError where an option is of a table, and there is none."""
    if not options.table and (alone := [name for name in _OF_TABLE if getattr(options, name) is not None]):
        raise SettingsError(f"--{alone[0].replace('_', '-')} is of a table: give --table FILE, too")


def source(options: argparse.Namespace, settings: Settings) -> Any:  # noqa: ANN401 - a Source
    """Turn the options of `add_source` into a source; raises as `request`."""
    from replay.sources.topics import Range, moment, reread, resolved  # noqa: PLC0415

    require_table(options)
    given = [name for name in ("start", "end", "last", "offsets") if getattr(options, name) is not None]
    if options.forecasts or options.outcomes or options.table:
        if given:
            raise SettingsError("--from, --to, --last and --offsets are of topics, not of files")
        return of_files(options)
    if getattr(options, "partitions", None):
        raise SettingsError("--partitions is of files; topics have theirs")
    if options.offsets:
        if len(given) > 1:
            raise SettingsError("--offsets says all; it does not go with --from, --to or --last")
        return reread(options.offsets, os.environ)
    if options.last and options.start:
        raise SettingsError("--last and --from: give one of them")
    start = moment(options.start) if options.start else None
    if options.last:
        try:
            start = int(time.time() * 1000) - stream_config.duration(options.last)
        except ValueError as exc:
            raise SettingsError(f"--last: {exc}") from exc
    end = moment(options.end) if options.end else None
    return resolved(settings, os.environ, Range(start, end))


def of_files(options: argparse.Namespace) -> Any:  # noqa: ANN401 - a Source
    """Turn the options of `add_files` into a source; raises as `request`."""
    from replay.sources.files import FileSource  # noqa: PLC0415

    partitions = getattr(options, "partitions", None) or 1
    if options.table:
        if options.forecasts or options.outcomes:
            raise SettingsError("--table stands for both files: do not give --forecasts and --outcomes beside it")
        return _table(options, partitions)
    if not (options.forecasts and options.outcomes):
        raise SettingsError("--forecasts and --outcomes belong together")
    return FileSource(options.forecasts, options.outcomes, partitions)


def _table(options: argparse.Namespace, partitions: int) -> Any:  # noqa: ANN401 - a Source
    from replay.sources import labels  # noqa: PLC0415 - not for --help
    from replay.sources.table import UNITS, Columns, TableSource  # noqa: PLC0415 - imports numpy

    missing = [f"--{name}" for name in ("score", "label", "time") if getattr(options, name) is None]
    if missing:
        raise SettingsError(f"--table needs {' and '.join(missing)} too: the names of its columns")
    if options.score_unit not in UNITS:
        raise SettingsError(f"--score-unit {options.score_unit}: must be one of {', '.join(UNITS)}")
    try:
        meanings = labels.parse(options.labels or "")
    except ValueError as exc:
        raise SettingsError(f"--labels {exc}") from exc
    columns = Columns(
        score=options.score,
        label=options.label,
        time=options.time,
        label_time=options.label_time,
        id=options.id,
        stream=options.stream_column,
        stream_name=options.stream_name or options.table.name.split(".")[0] or "table",
        unit=options.score_unit,
        labels=meanings,
        time_format=_format(options.time_format, "--time-format"),
        label_time_format=_format(options.label_time_format, "--label-time-format"),
        zone=_zone(options.time_zone),
        decimal=options.decimal,
        encoding=_encoding(options.encoding),
        entity=options.entity,
        segments=tuple(filter(None, (name.strip() for name in (options.segments or "").split(",")))),
    )
    return TableSource(options.table, options.table, partitions, columns=columns)


def _format(form: str | None, option: str) -> str | None:
    """Return a format that strptime knows, or None for none."""
    if form is not None:
        moment = datetime(2024, 2, 13, 14, 15, 16, tzinfo=UTC)
        try:
            datetime.strptime(moment.strftime(form), form)  # noqa: DTZ007 - only whether it can be read
        except ValueError as exc:
            raise SettingsError(f"{option} {form!r} is no format of times: {exc}") from exc
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


def run(options: argparse.Namespace) -> int:
    """Replay, print the result, and return the exit status.

    `UNUSABLE` if more than half of the records of a topic are dead letters: figures of the rest would mislead.

    Raises
    ------
    TableError
        If a table does not hold what it was said to hold.
    """
    from cli.replay_table import show  # noqa: PLC0415 - not for --help
    from replay.console import Console  # noqa: PLC0415
    from replay.export_state import next_commands, target  # noqa: PLC0415
    from replay.progress import Bar  # noqa: PLC0415
    from replay.run import replay  # noqa: PLC0415

    settings = Settings.from_env(os.environ)
    wanted = request(options, settings)
    # SIGTERM cleans up as Ctrl-C does.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Bar(Console(stderr=True, quiet=options.quiet)) as bar:
            result, pace = replay(wanted, os.environ, bar.show)
    finally:
        signal.signal(signal.SIGTERM, before)
    show(Console(stderr=options.json, markup=False, emoji=False), result, pace)
    if options.json:
        sys.stdout.write(result.encode().decode() + "\n")
    if options.write_state:
        following = next_commands(target(os.environ, options.write_state))
        taking = ", with the workers of before stopped" * (len(following) > 1)
        said = f"The state of {options.write_state} is written. Next{taking}:"
        (sys.stderr if options.json else sys.stdout).writelines(f"{line}\n" for line in (said, *following))
    status = DONE
    for topic, reasons in result.dead.items():
        if 2 * sum(reasons.values()) > result.read[topic]:
            listed = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items()))
            sys.stderr.write(
                f"trueup: more than half of {result.read[topic]:,} {topic} cannot be used: {listed}; "
                "--dead-letters FILE shows them\n"
            )
            status = UNUSABLE
    return status
