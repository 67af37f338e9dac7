"""``trueup snapshot`` and ``trueup state``: save a group's state, move it, restore it, leave a record out."""

import argparse
from pathlib import Path

from cli import reading
from cli.options import DONE, Commands, command, group, positive, settings, tell


def add(commands: Commands) -> None:
    """Add the commands to the command line."""
    _add_snapshot(commands)
    actions = group(commands, "state", "move or restore a group's state; leave out a poisonous record")
    rescale = command(
        actions,
        "rescale",
        "move the state of a group to another number of partitions, under another application id",
        "cli.rescale:rescale",
        says="Reads the state that the settings name, and writes it anew for another group, whose topics must "
        "exist. First stop all workers, when they have applied all records. The old state stays as it is. If the "
        "command is stopped on the way, run it again.",
        dry_run=True,
    )
    rescale.add_argument("--partitions", type=positive, required=True, help="the new number of partitions")
    rescale.add_argument("--to", required=True, metavar="APP_ID", help="application id of the new group")
    rescale.add_argument(
        "--keys",
        choices=("event", "stream"),
        help="what the worker's inputs are keyed by (default: stream behind a router, else event)",
    )
    rescale.add_argument(
        "changes", nargs="*", metavar="TRUEUP_NAME=VALUE", help="settings of the new group that differ, topics' names"
    )
    _add_restore(actions)
    skip = command(
        actions,
        "skip",
        "leave out a record that ends every process that reads it",
        "cli.skip:skip",
        says="Writes down that a record of an input or of a source is left out; it becomes a dead letter, "
        "'skipped'. A worker, router or intake that dies of the same record again and again prints the command.",
        dry_run=True,
    )
    skip.add_argument("place", metavar="TOPIC/PARTITION@OFFSET", help="the record")
    skip.add_argument("--reason", required=True, help="why; it is kept, and shown in the dead letter")


def _add_snapshot(commands: Commands) -> None:
    taken = command(
        commands,
        "snapshot",
        "write the state of a group to one file, from which an audit or another cluster goes on",
        "cli.state:take",
        says="Reads the changelog, and changes no topic; workers may run meanwhile. The file has the rows of each "
        "partition as its last checkpoint left them, and where it stands in inputs, journal and outputs. 'trueup audit "
        "--from FILE' begins there, 'trueup state restore FILE' on another cluster, too.",
    )
    taken.add_argument("file", type=Path, metavar="FILE", help="the file; one that is there is replaced")
    taken.add_argument("--sign", type=Path, metavar="KEY", help="sign it by ssh-keygen with this private key: FILE.sig")


def _add_restore(actions: Commands) -> None:
    restored = command(
        actions,
        "restore",
        "let a group without a state begin with a snapshot, on this cluster or on another one",
        "cli.state:restore",
        says="The inputs must be there, with any offsets: each partition goes on behind the last record of each that "
        "is in the snapshot, found by its time and content. Topics must exist and have as many partitions. An audit "
        "begins with what was restored.",
        dry_run=True,
    )
    restored.add_argument("file", type=Path, metavar="FILE", help="what 'trueup snapshot' wrote")
    add_signers(restored)


def add_signers(parser: argparse.ArgumentParser) -> None:
    """Add the option that names who may have signed a snapshot."""
    parser.add_argument(
        "--signers",
        type=Path,
        metavar="FILE",
        help="require FILE.sig of a key in this file, ssh-keygen's ALLOWED SIGNERS (default: require no signature)",
    )


def take(options: argparse.Namespace) -> int:
    """Write the file, print what it holds; return the status."""
    from replay import snapshot  # noqa: PLC0415 - not part of a worker

    of = settings()
    with reading.asked("cannot read the state"):
        made = snapshot.take(of, options.file, options.sign)
    said = (
        f"{options.file} has {made.rows:,} rows of {made.application}, in {(n := len(made.partitions))} "
        f"partition{'s' * (n != 1)} with {made.applied:,} records applied"
        + (f"; signed: {options.file}.sig" if options.sign else "")
    )
    if of.has_intake:
        said += (
            ". Where intake and router stand in the sources is not in it: it serves audits, and a group without "
            "sources can be restored from it"
        )
    tell(options, said, **made.shown())
    return DONE


def restore(options: argparse.Namespace) -> int:
    """Let the group begin with the file's state; return the status."""
    from replay import restore  # noqa: PLC0415 - not part of a worker

    with reading.asked("the brokers", "; run the command again"):
        said = restore.restore(settings(), options.file, options.signers, dry_run=options.dry_run)
    tell(options, said)
    return DONE
