"""Options and exit statuses that commands share. Each has one meaning."""

import argparse
import json
import os
import pwd
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, NoReturn

import orjson

from replay.audit.output_matcher import Unauditable
from replay.sources.record import TableError
from state.frames import REMEDY, CorruptFrame, OtherFormat
from streams.config import stream_config
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError

DONE, NO, UNUSABLE, MISCONFIGURED = 0, 1, 65, 78
#: What each exit status means. Statuses with two digits come from sysexits.h.
STATUSES: Final = {
    DONE: "done; what was asked about is as it should be",
    NO: "the answer is no: something differs, is wrong, is missing, or was left out",
    2: "unknown arguments; an audit could not be made",
    UNUSABLE: "what was read cannot be used",
    70: "a stage that serves failed: start it again",
    MISCONFIGURED: "arguments or settings are wrong; restarting does not help",
    130: "interrupted",
}
#: The same in short, for the end of every help text.
_ENDS: Final = [f"{status} {re.split('[;:]', meaning)[0]}" for status, meaning in STATUSES.items()]
ENDS: Final = textwrap.fill(f"exit status: {'; '.join(_ENDS)}", 110) + "\n"

#: argparse has no public name for the object that holds the commands.
Commands = Any


def command(
    commands: Commands,
    name: str,
    help_: str,
    run: str,
    *,
    says: str | None = None,
    more: str = "",
    streams: bool = True,
    json_output: bool = True,
    dry_run: bool = False,
) -> argparse.ArgumentParser:
    """Add a command with the options that all commands have.

    ``commands``: the result of `argparse.ArgumentParser.add_subparsers`.
    ``name, help_, says``: the command, what it does in one line, and in a paragraph (None: the line).
    ``run``: the function (``module:name``) that takes the options, carries the command out and returns the status. It
      is imported only then, so that `--help` does not wait for what commands need.
    ``more``: text after the options.
    ``streams``: whether the command has ``--streams``. `trueup replay` adds its own, which may be repeated.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help_,
        description=says or f"{help_[0].upper()}{help_[1:]}.",
        epilog=f"{more}\n{ENDS}" if more else ENDS,
        formatter_class=argparse.RawDescriptionHelpFormatter if more else argparse.HelpFormatter,
    )
    # The page of all commands shows the description.
    parser.set_defaults(told=help_, run=partial(_carried_out, run))
    everywhere = parser.add_argument_group("options of all commands")
    everywhere.add_argument("--brokers", metavar="HOST:PORT,...", help="the cluster (default: TRUEUP_BROKERS)")
    if streams:
        everywhere.add_argument("--streams", type=Path, metavar="FILE", help="streams file (default: TRUEUP_STREAMS)")
    everywhere.add_argument("-q", "--quiet", action="store_true", help="no progress, and no log below an error")
    if json_output:
        parser.add_argument("--json", action="store_true", help="print one JSON object last")
    if dry_run:
        parser.add_argument("--dry-run", action="store_true", help="say what would be written, and write nothing")
    return parser


def _carried_out(run: str, options: argparse.Namespace) -> int:
    return int(resolve_name(run)(options))


class Parser(argparse.ArgumentParser):
    """A parser whose errors show the usage of the given command, and suggest the command that was probably meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - argparse's
        """Parse arguments. An argument that a command does not know is an error of that command, not of `trueup`."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            parts = "--table" in (args or ()) and all(map(os.path.exists, unknown))
            hint = "; of several files, name their folder" if parts else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """End with the usage and a message."""
        given = re.match(r"argument COMMAND: invalid choice: '(.*?)' ", message)
        super().error(f"{message}{meant(given[1], self.prog) if given else ''}")


def meant(word: str, group: str) -> str:
    """Return a question: was a similar command meant, first of all one of the group? Empty if none is similar."""
    from cli import main  # noqa: PLC0415 - it imports this

    known = [f"trueup {name}" for name, _ in commands(main.parser())]
    known.sort(key=lambda each: each.startswith(f"{group} "), reverse=True)
    last = {each.rpartition(" ")[2]: each for each in known[::-1]}
    near = get_close_matches(word, last, n=1)
    return f"; did you mean '{last[near[0]]}'?" if near else ""


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield the words of every command and what it does. Groups are left out."""
    below = parser.get_default("commands")
    for name, each in below.choices.items() if below else ():
        if each.get_default("run") is not None:
            yield name, each.get_default("told")
        yield from ((f"{name} {word}", said) for word, said in commands(each))


def group(commands: Commands, name: str, help_: str) -> Commands:
    """Add a group of commands; return the object that takes them."""
    parser = commands.add_parser(name, help=help_, description=f"{help_[0].upper()}{help_[1:]}.")
    made = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")
    parser.set_defaults(commands=made)  # for the page of all commands
    return made


@contextmanager
def applied(options: argparse.Namespace) -> Iterator[None]:
    """Put options that stand for settings into the environment, for this process and its child processes."""
    before = dict(os.environ)
    if getattr(options, "brokers", None) is not None:
        os.environ["TRUEUP_BROKERS"] = options.brokers
    if isinstance(streams := getattr(options, "streams", None), Path):
        os.environ["TRUEUP_STREAMS"] = str(streams)
    if getattr(options, "quiet", False):
        os.environ["TRUEUP_LOG_LEVEL"] = "ERROR"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def settings() -> Settings:
    """Return the settings of the environment; raises `SettingsError`."""
    return Settings.from_env(os.environ)


def print_json(found: object) -> None:
    """Print one JSON object: dataclasses as objects, paths as text, NaN as null.

    The output is ASCII, so no text can control a terminal.
    """
    print(json.dumps(orjson.loads(orjson.dumps(found, default=os.fspath))))


def tell(options: argparse.Namespace, said: str, **found: object) -> None:
    """Print a sentence, or one JSON object that has the sentence as ``said``."""
    if options.json:
        print_json({"said": said, **found})
    else:
        print(said)


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return names in words: the first names, and how many there are."""
    more = f", … ({len(names):,} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "none"


def refused(exc: SettingsError | TopicsError | TableError | ValueError) -> int:
    """Print why a command was not carried out, and return the status."""
    said = f"trueup: {exc}"
    if isinstance(exc, CorruptFrame):
        said = f"trueup: the state cannot be read: {exc}{f'; {REMEDY}' if isinstance(exc, OtherFormat) else ''}"
    print(said, file=sys.stderr)
    unusable = isinstance(exc, Unauditable) or not isinstance(exc, SettingsError | TopicsError | CorruptFrame)
    return UNUSABLE if unusable else MISCONFIGURED


def duration(options: argparse.Namespace, name: str) -> int | None:
    """Return an option such as ``7d`` in ms; None if it is not given.

    Raises SettingsError if it is not a duration; the message names the option.
    """
    given = getattr(options, name)
    try:
        return None if given is None else stream_config.duration(given)
    except ValueError as exc:
        raise SettingsError(f"--{name}: {exc}") from exc


def user() -> str:
    """Return the user's name, or the number, because containers may run under a number without a name."""
    try:
        return os.environ.get("USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def positive(value: str) -> int:
    """Return a number of at least 1; raises ``argparse.ArgumentTypeError``."""
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
