"""``trueup letters``: what stands in the dead-letter topic and why; send its records again."""

import argparse

from cli.options import Commands, command, duration, positive, settings
from streams.config.settings import SettingsError
from streams.records import routing
from streams.records.decoding import REASONS


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    letters = command(
        commands,
        "letters",
        "show dead letters by reason and topic, and the newest of them; send their records again",
        says="Reads the dead-letter topic and changes nothing. 'letters send' sends the records of the letters "
        "again, each to its topic and partition, as it was. It leaves out what was sent before, and what the present "
        "settings would refuse: mend the source first. Status 1: 'send' left out a record that was not sent before.",
        json_output=True,
        dry_run=True,
    )
    letters.add_argument("action", nargs="?", choices=("send",), help="send the records again")
    letters.add_argument(
        "--reason", choices=sorted(REASONS | routing.REASONS), metavar="REASON", help="only of this reason"
    )
    letters.add_argument("--topic", help="only of records of this topic")
    letters.add_argument("--last", metavar="1d", help="only those of the last so many s, m, h or d")
    letters.add_argument("--limit", type=positive, metavar="N", help="the newest N (default: 20; send: all)")
    letters.add_argument("--again", action="store_true", help="with send: also what was sent again before")
    letters.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from cli import dead_letters  # noqa: PLC0415 - not part of a worker

    of = settings()
    wanted = dead_letters.Wanted(options.reason, options.topic, duration(options, "last"))
    if options.action is None:
        if options.dry_run or options.again:
            raise SettingsError("--dry-run and --again are of 'trueup letters send'")
        return dead_letters.show(of, wanted, options.limit or 20, json_output=options.json)
    return dead_letters.send(
        of, wanted, options.limit, dry_run=options.dry_run, again=options.again, json_output=options.json
    )
