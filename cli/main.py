"""The command line."""

import argparse
import errno
import io
import os
import select
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final

import shtab

from agents import __version__, logs, terminal
from cli import history, options
from replay.sources.record import TableError
from state.frames import CorruptFrame
from streams.config.settings import SettingsError
from streams.kafka.topics import TopicsError

#: Exit status if the reader of the output has gone, as shells give it.
UNREAD = 128 + signal.SIGPIPE

EPILOG = f"""\
A first look, on this machine alone:
  trueup dev demo                 real flights through a real broker, with a report

A cluster of your own:
  export TRUEUP_BROKERS=kafka-1:9092,kafka-2:9092
  trueup topics create --partitions 8 --replication 3
  trueup run

Every setting is an environment variable; 'trueup run --help' lists them.

{options.ENDS}"""

#: The modules that add commands, in the order of the help.
COMMANDS: Final = (
    "serve", "doctor", "topics", "config", "streams", "replay", "load", "audit", "dead_letters", "forget", "state",
    "schema", "dev",
)  # fmt: skip

#: Errors of a file or directory that somebody named; each says which.
_OF_FILES: Final = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)

#: These commands write data: state, records, reports. Only the user who runs them may read it.
_PRIVATE: Final = ("run", "replay", "load", "audit", "snapshot", "streams")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    try:
        with terminal.guarded():
            try:
                return _run_command(arguments)
            finally:
                sys.stdout.flush()
    except BrokenPipeError:
        if not _unread():
            raise
        return UNREAD
    except OSError as exc:
        if said := _of_files(exc):
            return options.refused(SettingsError(said))
        raise
    except SystemExit as ended:
        # rich or argparse may have met this error first; argparse ignores it
        if isinstance(ended.__context__, BrokenPipeError) or (not ended.code and _unread()):
            return UNREAD
        raise


def _of_files(exc: OSError) -> str:
    """Return which file or directory is full, missing or forbidden; empty if the error is another one."""
    if exc.errno not in (errno.ENOSPC, errno.EDQUOT) and "temporary directory" not in str(exc):
        named = isinstance(exc, _OF_FILES) and exc.filename is not None
        return f"cannot use {exc.filename}: {exc.strerror}" if named else ""
    try:
        sys.stdout.flush()
    except OSError:
        _drop([sys.stdout.fileno()])  # else it is tried once more at the end, as a traceback
    place = f"in {exc.filename}" if exc.filename else "where the output and temporary files go"
    return f"{exc.strerror}: make room {place}; TMPDIR names another directory for temporary files"


def _unread() -> bool:
    """Return whether the reader of the output has gone, as after `head`. The rest of the output is then dropped."""
    ends = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with suppress(io.UnsupportedOperation):  # the stream is not a file
            ends.register(stream.fileno(), 0)  # poll reports errors whatever the mask
    gone = [end for end, event in ends.poll(0) if event & select.POLLERR]
    _drop(gone)
    return bool(gone)


def _drop(ends: Iterable[int]) -> None:
    """Drop what is still written to these files."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for end in ends:
        os.dup2(nowhere, end)


def _run_command(arguments: Sequence[str] | None) -> int:
    command_line = parser()
    given = command_line.parse_args(history.joined(sys.argv[1:] if arguments is None else arguments))
    if given.command is None:
        command_line.print_help()
        return options.DONE
    if given.command in _PRIVATE:
        os.umask(0o077)
    try:
        with options.applied(given):
            level = os.environ.get("TRUEUP_LOG_LEVEL", "INFO").upper()
            logs.configure(level, getattr(given, "stage", None) or given.command)
            return int(given.run(given))
    except (SettingsError, TopicsError, TableError, CorruptFrame) as exc:
        return options.refused(exc)
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    made = options.Parser(
        prog="trueup",
        description="Joins risk forecasts with what happened, on Kafka, and keeps the scores honest.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"trueup {__version__}")
    shtab.add_argument_to(made, "--completion", help="print what completes commands in this shell")
    commands = made.add_subparsers(dest="command", metavar="COMMAND")
    made.set_defaults(commands=commands)  # for the page that lists them
    for each in COMMANDS:
        import_module(f"cli.{each}").add(commands)
    return made


if __name__ == "__main__":
    sys.exit(main())
