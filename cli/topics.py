"""``trueup topics``: make or check the topics, or take them over."""

import argparse
import asyncio
import logging
import sys
from itertools import chain

from aiokafka.errors import KafkaError

from cli.options import DONE, NO, Commands, command, duration, group, positive, settings, tell
from streams.config.settings import Settings
from streams.kafka import owners, permissions, remarks, topics


def add(commands: Commands) -> None:
    """Add the commands to the command line."""
    actions = group(commands, "topics", "make or check the topics, or take them over")
    create = command(actions, "create", "make the topics that do not exist", json_output=True, dry_run=True)
    create.add_argument(
        "--partitions", type=positive, help="of every topic (default: as many as that of forecasts has, else 4)"
    )
    create.add_argument("--replication", type=positive, help="copies of each (default: 1; production: 3)")
    create.add_argument("--retention", help="how long inputs and outputs are kept, such as 30d (default: the brokers')")
    create.set_defaults(run=_create)
    check = command(actions, "check", "say what is wrong with the topics", json_output=True)
    check.set_defaults(run=lambda options: _check(options, _settings(), as_worker=True))
    take = command(
        actions,
        "take",
        "let this application write topics that were another's, or others than before; stop that first",
        json_output=True,
        dry_run=True,
    )
    take.set_defaults(run=_take)
    acls = command(actions, "acls", "print the commands that grant a worker's user what it needs, and no more")
    acls.add_argument("principal", nargs="?", default="User:trueup", help="the user (default: %(default)s)")
    acls.set_defaults(run=_acls)


def _settings() -> Settings:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what it would log of new topics is no news, or said here
    return settings()


def _acls(options: argparse.Namespace) -> int:
    print("\n".join(permissions.commands(settings(), options.principal)))
    return DONE


def _create(options: argparse.Namespace) -> int:
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
    return _check(options, of, made=names, as_worker=False, **asked)


def _check(
    options: argparse.Namespace, of: Settings, made: list[str] | None = None, *, as_worker: bool, **asked: int | None
) -> int:
    """Say what is wrong with the topics, and return the status."""
    problems, without, noted = asyncio.run(found(of, as_worker=as_worker, **asked))
    if as_worker:
        problems = list(dict.fromkeys([*problems, *without]))
    said = "trueup's own topics are as they must be" if without else "all topics are as they must be"
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
    """Return what is wrong with the topics of all stages, which topics of sources are missing, and what to know.

    Raises TopicsError if the brokers cannot be asked.
    """
    wrong = [await topics.check(stage, as_worker=as_worker, **asked) for stage in of.stages]
    without = await topics.missing_sources(of)
    noted = [] if any(wrong) else await remarks.of(of.stages)
    return list(dict.fromkeys(chain(*wrong))), without, list(dict.fromkeys(noted))


def _take(options: argparse.Namespace) -> int:
    of = _settings()
    found = asyncio.run(_taken(of, dry_run=options.dry_run))
    tell(options, "\n".join(found) or f"all topics are those of {of.app_id}", taken=found)
    return DONE


async def _taken(of: Settings, *, dry_run: bool) -> list[str]:
    if await topics.partitions(of, of.owners) is None:
        raise topics.TopicsError(f"topic {of.owners} does not exist: run 'trueup topics create'")
    try:
        async with topics.admin_client(of) as admin:
            return await owners.take(admin, of, dry_run=dry_run)
    except (owners.OwnersError, KafkaError) as exc:
        raise topics.TopicsError(f"nothing was taken over: {str(exc) or type(exc).__name__}") from exc
