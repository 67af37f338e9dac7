"""``trueup topics``: make or check the topics, or take them over."""

import argparse
import asyncio
import logging
import sys
from itertools import chain

from cli import reading
from cli.options import DONE, NO, Commands, command, duration, group, positive, settings, tell
from streams.config.settings import Settings
from streams.kafka import owners, permissions, remarks, topics


def add(commands: Commands) -> None:
    """Add the commands to the command line."""
    actions = group(commands, "topics", "make or check the topics, or take them over")
    create = command(actions, "create", "make the topics that do not exist", "cli.topics:create", dry_run=True)
    create.add_argument(
        "--partitions", type=positive, help="of every topic (default: as many as that of forecasts has, else 4)"
    )
    create.add_argument("--replication", type=positive, help="copies of each (default: 1; production: 3)")
    create.add_argument("--retention", help="how long inputs and outputs are kept, such as 30d (default: the brokers')")
    command(actions, "check", "say what is wrong with the topics", "cli.topics:check")
    command(
        actions,
        "take",
        "let this application write topics that were another's, or others than before; stop that first",
        "cli.topics:take",
        dry_run=True,
    )
    grant = "print the commands that grant a worker's user what it needs, and no more"
    acls = command(actions, "acls", grant, "cli.topics:acls", json_output=False)
    acls.add_argument("principal", nargs="?", default="User:trueup", help="the user (default: %(default)s)")


def _settings() -> Settings:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # its log about new topics is no news, or is printed here
    return settings()


def acls(options: argparse.Namespace) -> int:
    """Print the commands, and return the status."""
    print("\n".join(permissions.commands(settings(), options.principal)))
    return DONE


def create(options: argparse.Namespace) -> int:
    """Make missing topics, then check all, and return the status."""
    of = _settings()
    retention = duration(options, "retention")
    partitions = options.partitions or asyncio.run(topics.partitions(of, of.forecasts)) or 4
    asked: dict[str, int | None] = {
        "partitions": options.partitions, "replication": options.replication, "retention_ms": retention
    }  # fmt: skip
    made = [
        asyncio.run(
            topics.create(
                stage,
                partitions=partitions,
                replication=options.replication or 1,
                retention_ms=retention,
                dry_run=options.dry_run,
            )
        )
        for stage in of.stages
    ]
    names = list(dict.fromkeys(chain(*made)))
    if options.dry_run:
        tell(options, "would make: " + ", ".join(names) if names else "all topics exist", made=names)
        return DONE
    if not options.json:
        print("made: " + ", ".join(names) if names else "all topics exist")
    return _checked(options, of, made=names, as_worker=False, **asked)


def check(options: argparse.Namespace) -> int:
    """Print what is wrong, and return the status."""
    return _checked(options, _settings(), as_worker=True)


def _checked(
    options: argparse.Namespace, of: Settings, made: list[str] | None = None, *, as_worker: bool, **asked: int | None
) -> int:
    """Print what is wrong with the topics; return the status."""
    problems, without, noted = asyncio.run(found(of, as_worker=as_worker, **asked))
    if as_worker:
        problems = list(dict.fromkeys([*problems, *without]))
    said = "trueup's own topics are as they should be" if without else "all topics are as they should be"
    notes = [] if problems else [*without, *noted]
    if options.json:
        tell(options, "; ".join(problems) or said, made=made or [], problems=problems, notes=notes)
        return NO if problems else DONE
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return NO
    print(said, *(f"note: {each}" for each in notes), sep="\n")
    return DONE


async def found(of: Settings, *, as_worker: bool, **asked: int | None) -> tuple[list[str], list[str], list[str]]:
    """Return what is wrong with the topics of all stages; the missing topics of sources; and notes.

    Raises TopicsError if the brokers cannot be asked.
    """
    wrong = [await topics.check(stage, as_worker=as_worker, **asked) for stage in of.stages]
    without = await topics.missing_sources(of)
    noted = [] if any(wrong) else await remarks.of(of.stages)
    return list(dict.fromkeys(chain(*wrong))), without, list(dict.fromkeys(noted))


def take(options: argparse.Namespace) -> int:
    """Take topics over, say which, and return the status."""
    of = _settings()
    found = asyncio.run(_taken(of, dry_run=options.dry_run))
    tell(options, "\n".join(found) or f"all topics are those of {of.app_id}", taken=found)
    return DONE


async def _taken(of: Settings, *, dry_run: bool) -> list[str]:
    await reading.width(of, of.owners, ": run 'trueup topics create'")
    try:
        with reading.asked("nothing was taken over"):
            async with topics.admin_client(of) as admin:
                return await owners.take(admin, of, dry_run=dry_run)
    except owners.OwnersError as exc:
        raise topics.TopicsError(f"nothing was taken over: {exc}") from exc
