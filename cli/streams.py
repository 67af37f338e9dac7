"""``trueup streams``: the state of each stream, its fitting options, its workers and its sources."""

import argparse
import os
from pathlib import Path

from cli import history
from cli.options import Commands, command, group, positive, settings


def add(commands: Commands) -> None:
    """Add the commands to the command line."""
    actions = group(commands, "streams", "list, show and tune streams; try what their sources become")
    reads = "Reads the changelog, so it works from anywhere and while workers run."
    listed = command(actions, "list", "list the streams that have state", says=reads, json_output=True)
    listed.set_defaults(run=_show, stream=None)
    show = command(
        actions, "show", "show a stream's reliability, ranking, error and bound", says=reads, json_output=True
    )
    show.add_argument("stream", help="name of the stream")
    show.set_defaults(run=_show)
    _add_map(actions)
    suggest = command(
        actions,
        "suggest",
        "propose matures, silence and ttl of a stream, from its history",
        says="Reads a stream's forecasts and outcomes, changes nothing, and says which `matures`, `silence`, "
        "`ttl` and `revisable` fit them and why: in words, and as lines for the streams file. A replay says what each "
        "value costs or gains, and what costs beyond chance is not proposed. Status 1: the history is too small for a "
        "proposal, or has nothing of the stream.",
        json_output=True,
    )
    suggest.add_argument("stream", help="name of the stream")
    suggest.add_argument(
        "--unpriced", action="store_true", help="do not replay the history: nothing is said of what each value costs"
    )
    history.add_source(suggest)
    suggest.set_defaults(run=_suggest)
    _add_init(actions)
    _add_changes(actions)
    trial = command(
        actions,
        "try",
        "print what a few records of a source become, or why they become nothing",
        says="Reads the newest records of the source's topics, or a file, and changes nothing. Status 1: none of them "
        "becomes a record.",
        json_output=True,
    )
    trial.add_argument("source", metavar="SOURCE", help="its name: [sources.NAME] in the streams file")
    trial.add_argument("file", nargs="?", type=Path, metavar="FILE", help="JSON lines, or one value of another format")
    trial.add_argument("--records", type=positive, default=10, help="of each topic (default: %(default)s)")
    trial.set_defaults(run=_try)


def _add_init(actions: Commands) -> None:
    init = command(
        actions,
        "init",
        "write a first streams file from a table or another history: every stream of it, with reasons",
        says="Proposes for each stream of the history what 'streams suggest' does, and writes a new streams file with "
        "the reasons as comments. Changes no file that is there. Status 1: the history is too small for a proposal of "
        "any stream, and nothing is written.",
        json_output=True,
        dry_run=True,
    )
    init.add_argument("file", type=Path, metavar="FILE", help="the new streams file, such as streams.toml")
    history.add_source(init)
    init.set_defaults(run=_init)


def _add_map(actions: Commands) -> None:
    shown = command(
        actions,
        "map",
        "show what is served for each raw score, now or at a time: as a table, CSV, SQL or JSON",
        says="Reads the changelog; for a time that is past it plays the input topics up to it, and files to their end. "
        "Changes nothing. The points of CSV and JSON are joined by straight lines in log-odds, as SQL does it, and are "
        "within .001 of what is served. Status 1: nothing was learnt by then.",
    )
    shown.add_argument("stream", help="name of the stream")
    shown.add_argument("--at", metavar="TIME", help="as it was then, such as 2026-11-01T00:00Z (default: now)")
    shown.add_argument("--diff", metavar="TIME", help="beside what it was then")
    shown.add_argument(
        "--as", dest="form", choices=("table", "csv", "sql", "json"), default="table", help="(default: %(default)s)"
    )
    shown.add_argument(
        "--of", metavar="NAME=VALUE,...", default="", help="of forecasts with these segments (default: with none)"
    )
    shown.add_argument("--of-version", metavar="NAME", help="of this version of the model (default: of each)")
    history.add_files(shown)
    shown.set_defaults(run=_map)


def _add_changes(actions: Commands) -> None:
    """Add the commands that change the streams file."""
    promote = _change(
        actions,
        "promote",
        "let a challenger serve: champion and challenger change places in the streams file",
        "Rewrites the file, comments and all, after checking it as a worker would; prints what changed and "
        "appends a line to FILE.audit.jsonl. Workers read the file when they start: restart them.",
    )
    promote.add_argument("stream", help="name of a stream; its pattern's streams change together")
    promote.add_argument("calibrator", help="the challenger's name, or its configuration where names are not enough")
    promote.add_argument(
        "--when",
        metavar="LOSS",
        help="only if its loss (brier, log, pinball) is lower by two standard errors over 5,000 events; else status 1. "
        "'brier better for 30 days': so over the last 30 days, for a job that runs every day; changes the file only "
        "with --apply",
    )
    promote.add_argument("--apply", action="store_true", help="change the file once it was better for so many days")
    promote.set_defaults(run=_promote)
    for name, does, then in (
        ("freeze", "keep a stream's map as it is: what serves learns nothing", "It serves what it had learnt."),
        ("thaw", "let a frozen map learn again", "Outcomes of the time between are never learnt."),
    ):
        freeze = _change(
            actions,
            name,
            does,
            "Changes `frozen` of the stream's pattern in the streams file, and nothing else, and appends a line "
            f"to FILE.audit.jsonl. Workers read the file when they start: restart them. {then} Status 1: it is so "
            "already.",
        )
        freeze.add_argument("stream", help="name of a stream; its pattern's streams change together")
        freeze.set_defaults(run=_freeze, frozen=name == "freeze")
    back = _change(
        actions,
        "rollback",
        "undo the last promotion: the champion of before serves again",
        "Reads the last line of FILE.audit.jsonl and lets both change places again, as 'trueup streams promote' "
        "does. Refuses if the file was changed since. A second rollback undoes the first.",
    )
    back.set_defaults(run=_rollback)


def _change(actions: Commands, name: str, does: str, says: str) -> argparse.ArgumentParser:
    """Add a command that changes the streams file."""
    made = command(actions, name, does, says=says, json_output=True, dry_run=True)
    made.add_argument("--reason", help="why, for the audit line")
    return made


def _show(options: argparse.Namespace) -> int:
    from cli import show  # noqa: PLC0415 - not part of a worker

    return show.run(settings(), options.stream, json_output=options.json)


def _map(options: argparse.Namespace) -> int:
    from cli import map as maps  # noqa: PLC0415 - not part of a worker

    return maps.run(options, settings())


def _suggest(options: argparse.Namespace) -> int:
    from cli import suggest  # noqa: PLC0415 - numpy takes a while to import

    return suggest.run(options, settings())


def _init(options: argparse.Namespace) -> int:
    from cli import init_streams  # noqa: PLC0415 - numpy takes a while to import

    return init_streams.run(options, settings())


def _promote(options: argparse.Namespace) -> int:
    from cli import promote  # noqa: PLC0415 - not part of a worker

    return promote.run(
        os.environ,
        options.stream,
        options.calibrator,
        reason=options.reason,
        when=options.when,
        apply=options.apply,
        dry_run=options.dry_run,
        json_output=options.json,
    )


def _freeze(options: argparse.Namespace) -> int:
    from cli import freeze  # noqa: PLC0415 - not part of a worker

    return freeze.run(
        os.environ,
        options.stream,
        frozen=options.frozen,
        reason=options.reason,
        dry_run=options.dry_run,
        json_output=options.json,
    )


def _rollback(options: argparse.Namespace) -> int:
    from cli import promote  # noqa: PLC0415 - not part of a worker

    return promote.rollback(os.environ, reason=options.reason, dry_run=options.dry_run, json_output=options.json)


def _try(options: argparse.Namespace) -> int:
    from cli import try_source  # noqa: PLC0415 - not part of a worker

    return try_source.run(settings(), options.source, options.records, options.file, json_output=options.json)
