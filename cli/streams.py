"""``trueup streams``: the state of each stream, options that fit it, who serves it, and its sources."""

import argparse
from pathlib import Path

from cli import history
from cli.options import Commands, command, group, positive


def add(commands: Commands) -> None:
    """Add the commands to the command line."""
    actions = group(commands, "streams", "list, show and tune streams; try what their sources become")
    reads = "Reads the changelog, so it works from anywhere and while workers run."
    run = "cli.show:run"
    listed = command(actions, "list", "list the streams that have state", run, says=reads)
    listed.set_defaults(stream=None)
    figures = "show a stream's reliability, ranking, error and bound"
    show = command(actions, "show", figures, run, says=reads)
    show.add_argument("stream", help="name of the stream")
    _add_map(actions)
    suggest = command(
        actions,
        "suggest",
        "propose matures, silence and ttl of a stream, from its history",
        "cli.suggest:run",
        says="Reads a stream's forecasts and outcomes, changes nothing, and says which `matures`, `silence`, "
        "`ttl` and `revisable` fit them and why: in words, and as lines for the streams file. A replay says what each "
        "value costs or gains, and what costs beyond chance is not proposed. Status 1: the history is too small for a "
        "proposal, or has nothing of the stream.",
    )
    suggest.add_argument("stream", help="name of the stream")
    suggest.add_argument(
        "--unpriced", action="store_true", help="do not replay the history: nothing is said of what each value costs"
    )
    history.add_source(suggest)
    _add_init(actions)
    _add_changes(actions)
    trial = command(
        actions,
        "try",
        "print what a few records of a source become, or why they become nothing",
        "cli.try_source:run",
        says="Reads the newest records of the source's topics, or a file, and changes nothing. Status 1: none of them "
        "becomes a record.",
    )
    trial.add_argument("source", metavar="SOURCE", help="its name: [sources.NAME] in the streams file")
    trial.add_argument("file", nargs="?", type=Path, metavar="FILE", help="JSON lines, or one value of another format")
    trial.add_argument("--records", type=positive, default=10, help="of each topic (default: %(default)s)")


def _add_init(actions: Commands) -> None:
    init = command(
        actions,
        "init",
        "write a first streams file from a table or another history: every stream of it, with reasons",
        "cli.init_streams:run",
        says="Proposes for each stream of the history what 'streams suggest' does, and writes a new streams file with "
        "the reasons as comments. Changes no file that is there. Status 1: the history is too small for a proposal of "
        "any stream, and nothing is written.",
        dry_run=True,
    )
    init.add_argument("file", type=Path, metavar="FILE", help="the new streams file, such as streams.toml")
    history.add_source(init)


def _add_map(actions: Commands) -> None:
    shown = command(
        actions,
        "map",
        "show what is served for each raw score, now or at a time: as a table, CSV, SQL or JSON",
        "cli.map:run",
        json_output=False,  # JSON is one of the forms, --as json
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


def _add_changes(actions: Commands) -> None:
    """Add the commands that change the streams file."""
    promote = _change(
        actions,
        "promote",
        "let a challenger serve: champion and challenger change places in the streams file",
        "cli.promote:run",
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
    for name, does, then in (
        ("freeze", "keep a stream's map as it is: what serves learns nothing", "It serves what it had learnt."),
        ("thaw", "let a frozen map learn again", "Outcomes of the time between are never learnt."),
    ):
        freeze = _change(
            actions,
            name,
            does,
            "cli.promote:freeze",
            "Changes `frozen` of the stream's pattern in the streams file, and nothing else, and appends a line "
            f"to FILE.audit.jsonl. Workers read the file when they start: restart them. {then} Status 1: it is so "
            "already.",
        )
        freeze.add_argument("stream", help="name of a stream; its pattern's streams change together")
        freeze.set_defaults(frozen=name == "freeze")
    _change(
        actions,
        "rollback",
        "undo the last promotion: the former champion serves again",
        "cli.promote:rollback",
        "Reads the last line of FILE.audit.jsonl and lets both change places again, as 'trueup streams promote' "
        "does. Refuses if the file was changed since. A second rollback undoes the first.",
    )


def _change(actions: Commands, name: str, does: str, run: str, says: str) -> argparse.ArgumentParser:
    """Add a command that changes the streams file."""
    made = command(actions, name, does, run, says=says, dry_run=True)
    made.add_argument("--reason", help="why, for the audit line")
    return made
