"""``trueup snapshot``: the state of a group in one file, and ``trueup state restore``: a group that begins with it."""

import argparse
from pathlib import Path

from cli import reading
from cli.options import DONE, Commands, command, settings, tell


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    taken = command(
        commands,
        "snapshot",
        "write the state of a group to one file, from which an audit or another cluster goes on",
        "cli.snapshot:take",
        says="Reads the changelog, and changes no topic; workers may run meanwhile. The file has the rows of each "
        "partition as its last checkpoint left them, and where it stands in inputs, journal and outputs. 'trueup audit "
        "--from FILE' begins there, 'trueup state restore FILE' on another cluster, too.",
    )
    taken.add_argument("file", type=Path, metavar="FILE", help="the file; one that is there is replaced")
    taken.add_argument("--sign", type=Path, metavar="KEY", help="sign it by ssh-keygen with this private key: FILE.sig")


def add_restore(actions: Commands) -> None:
    """Add ``trueup state restore`` to the commands of ``trueup state``."""
    restored = command(
        actions,
        "restore",
        "let a group without a state begin with a snapshot, on this cluster or on another one",
        "cli.snapshot:restore",
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
    """Write the file, say what it has, and return the status."""
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
    """Let the group begin with the file, say so, and return the status."""
    from replay import restore  # noqa: PLC0415 - not part of a worker

    with reading.asked("the brokers", "; run the command again"):
        said = restore.restore(settings(), options.file, options.signers, dry_run=options.dry_run)
    tell(options, said)
    return DONE
