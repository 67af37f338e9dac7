"""``trueup state``: move a group's state to other partitions, restore it, or leave out a poisonous record."""

from cli import snapshot
from cli.options import Commands, command, group, positive


def add(commands: Commands) -> None:
    """Add the commands to the command line."""
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
    snapshot.add_restore(actions)
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
    skip.add_argument("--reason", required=True, help="why; kept, and told in the dead letter")
