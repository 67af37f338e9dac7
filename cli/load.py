"""``trueup load`` on the command line."""

import argparse
import os
import sys
from dataclasses import replace

from cli import history
from cli.options import DONE, Commands, command, tell
from replay.configuration import configurations
from replay.processes import cores
from replay.silence import understood
from streams.config.settings import Settings, SettingsError

DESCRIPTION = """\
Teaches a group what a table of the past, or files, would have taught it. Its workers then begin with these maps, and
answer all records that its topics hold or get meanwhile. The plan is that of TRUEUP_STREAMS. The group must be new or
stopped, and have no state. An audit begins with what was loaded. If intake reads sources, the router is told of the
events that labels may still come for.
"""

EPILOG = """\
example:
  trueup topics create
  trueup load --table last-year.csv --score p --label fraud --time scored_at --label-time reported_at --id payment \\
      --stream-name fraud-cards
  trueup run
"""


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    load = command(
        commands,
        "load",
        "let a new group begin with what a table of the past teaches",
        "cli.load:run",
        says=DESCRIPTION,
        more=EPILOG,
        dry_run=True,
    )
    history.add_files(load)
    load.add_argument(
        "--keys",
        choices=("event", "stream"),
        default="event",
        help="of a table: what live records are keyed by, so that labels meet their forecasts (default: event); behind "
        "intake the stream, in any case",
    )


def run(options: argparse.Namespace) -> int:
    """Load, say what was loaded, and return the exit status.

    Raises SettingsError, TopicsError or TableError if it is not possible. Workers then accept nothing of what was
    written.
    """
    from replay import first_rows, load  # noqa: PLC0415 - rich takes a while to import
    from replay.console import Bar, Console  # noqa: PLC0415

    settings = Settings.from_env(os.environ)
    history.require_table(options)
    if not (options.table or options.forecasts):
        raise SettingsError("load needs --table FILE, or --forecasts FILE and --outcomes FILE")
    if options.table and not options.id:
        raise SettingsError("load needs --id, the column of event ids: labels that are still to come name the event")
    group = first_rows.opened(settings)
    options.partitions = group.partitions
    source = history.of_files(options)
    (plan,) = configurations(settings, [], [])
    source = replace(source, routed=plan.policies if settings.has_intake else None)
    if options.table:
        source = replace(source, by_stream=options.keys == "stream")
        history.require_used(source.columns, [plan])
        (meant,), said = understood(source, [plan])
        if any(meant.policies.of(stream) != plan.policies.of(stream) for stream in source.silent):
            raise SettingsError(f"TRUEUP_STREAMS has to say what silence means, before anything is loaded. {said[-1]}")
        notes = sys.stderr if options.json else sys.stdout
        notes.writelines(f"{sentence}\n" for sentence in (*source.notes, *said))
    if options.dry_run:
        tell(options, f"{settings.app_id} may be loaded, into {group.partitions} partitions; nothing was written")
        return DONE
    with Bar(Console(stderr=True, quiet=options.quiet)) as bar:
        told = load.load(source, plan, settings, group, cores(), bar.show)
    tell(options, told)
    return DONE
