"""The groups that an audit goes through: a group that was moved began with rows that another one had made.

`trueup state rescale` writes down what it made them of (`replay.moves`). So an audit of the new group derives the old
partitions up to the move, divides their rows by the same pure function, sees that the hashes which were written down
then are those of its own rows, and that the new changelog has no other rows, and goes on with them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from replay import moves
from replay.audit.checkpoint import BEGAN, Rows, read_rows, write_rows
from replay.audit.output_matcher import Settled, Unauditable
from replay.audit.partition_verifier import INPUTS, LABELS, OUTPUTS, Derivation
from replay.audit.reader import Extent, PartitionReader, Span, origins, width
from replay.audit.rows import Memory, RowStore, fence_of
from replay.loaded import Loaded
from replay.moves import Move
from state.frames import CorruptFrame
from state.kind import shown
from state.rescale import RescaleError, rescaled
from streams.config.settings import Settings
from streams.records import skips

#: Offset, key and row of each record.
Changelog = Iterable[tuple[int, bytes, bytes | None]]
#: Rows that are named where several are not what they must be.
NAMED: Final = 3


class Group(NamedTuple):
    """One group that an audit goes through.

    Attributes
    ----------
    settings
        Of its workers.
    moves
        How its partitions began, by their number; empty if they began with nothing.
    until
        How it was moved itself; None if it was not.
    has_begun
        Whether an audit has come far enough in it for the group before to be needed no more.
    """

    settings: Settings
    moves: list[Move]
    until: Move | None
    has_begun: bool


@dataclass(frozen=True)
class Given:
    """What a partition begins with.

    Attributes
    ----------
    move
        How its rows came about.
    rows
        Where the derived rows are.
    unlike
        Kinds of rows that are not what was written down.
    """

    move: Move
    rows: Rows
    unlike: tuple[str, ...]


def chain(
    settings: Settings,
    has_begun: Callable[[Settings, int], bool],
    topics: Callable[[Settings, Move], Mapping[str, tuple[str, str]]],
    options: str = "--checkpoint",
) -> list[Group]:
    """Return the groups to audit, the oldest first; the last one is that of the settings.

    Parameters
    ----------
    has_begun
        Whether the checkpoints of a group of so many partitions make the group before it superfluous.
    topics
        Returns name and id of each topic that is needed of the group before, by their labels.
    options
        Those of the audit after which the group before may go.

    Raises
    ------
    Unauditable
        If a move has not been finished, or the topics of a group before are not there any more.
    """
    found: list[Group] = []
    here, until = settings, None
    while True:
        began = moved(here)
        found.append(Group(here, began, until, has_begun(here, len(began))))
        if not began or found[-1].has_begun:
            return found[::-1]
        before = began[0]
        if any(group.settings.app_id == before.app for group in found):
            raise Unauditable(f"{here.app_id} began with rows of {before.app}, which began with rows of it")
        needed = topics(here, before)
        newer, here, until = here, older(here, before), before
        _require_there(here, needed, newer, options)


def older(settings: Settings, move: Move) -> Settings:
    """Return the settings of the group that a group was made of."""
    names: dict[str, Any] = {label.replace("-", "_"): name for label, (name, _) in move.topics.items()}
    of_intake = {mode.source.name for mode in settings.modes if not mode.direct}
    sources = tuple(each for each in settings.sources if each.name in of_intake)
    return replace(settings, app_id=move.app, topic_prefix=move.prefix, sources=sources, **names)


def moved(settings: Settings) -> list[Move]:
    """Return how the partitions of a group began, by their number; empty if they began with nothing.

    Raises
    ------
    Unauditable
        If the move has not been finished, or the partitions do not say the same.
    """
    count = width(settings, [settings.configurations])
    with PartitionReader(settings) as reader:
        found = [reader.move(n) for n in range(count)]
    known = [each for each in found if each is not None]
    if known and len(known) < len(found):
        lacking = next(n for n, each in enumerate(found) if each is None)
        raise Unauditable(
            f"'trueup state rescale' has not finished making {settings.app_id} of {known[0].app}: partition {lacking} "
            "has no rows yet. Run it again"
        )
    if len({(each.app, each.changelog, each.ends) for each in known}) > 1:
        raise Unauditable(f"the partitions of {settings.app_id} began with rows of several states: run rescale again")
    if known and known[0].partitions != len(found):
        raise Unauditable(
            f"{settings.app_id} was made with {known[0].partitions} partitions, and its topics have {len(found)}"
        )
    return known


def _require_there(settings: Settings, named: Mapping[str, tuple[str, str]], newer: Settings, options: str) -> None:
    """See that the topics of a group before a move are still there; raises `Unauditable`, see `chain`."""
    keep = (
        f": {newer.app_id} began with rows of {settings.app_id}, which only its topics prove. Keep those until an "
        f"audit of {newer.app_id} with {options} has ended with 0"
    )
    for label, (name, topic_id) in named.items():
        try:
            width(settings, [name])
        except Unauditable:
            raise Unauditable(f"there is no topic {name} ({label} of {settings.app_id}) any more{keep}") from None
        if origins(settings, [name])[name].topic != topic_id:
            raise Unauditable(f"{name} ({label} of {settings.app_id}) was deleted and made anew{keep}")


def spans(group: Group) -> dict[int, Span]:
    """Return what there is of each partition of a group, up to where it was moved.

    The end of the journal is asked for first, and the ends of the inputs last. So the outputs of every entry are there,
    and the inputs of every output.

    Raises
    ------
    Unauditable
        If topics are not there, or do not have equally many partitions.
    """
    settings, until = group.settings, group.until
    if until is None:
        count = width(settings, [_name(settings, label) for label in (*LABELS, "configurations")])
    else:
        count = len(until.fences)
    with PartitionReader(settings) as reader:
        order = ("journal", *OUTPUTS[::-1], *INPUTS[::-1])
        extents = reader.extents([reader.place(label, n) for label in order for n in range(count)])
        found = {n: {label: extents[reader.place(label, n)] for label in LABELS} for n in range(count)}
    if until is not None:
        for n, span in found.items():
            _, *applied = until.fences[n]
            for label, end in zip((*INPUTS, *OUTPUTS), (*applied, *until.outputs[n]), strict=True):
                span[label] = Extent(span[label].first, end)
    return dict(found)


def of_checkpoint(group: Group) -> dict[str, list[Any]]:
    """Return what a checkpoint of a group is of: of each topic what the brokers call it, and what its rows began as."""
    found = origins(group.settings, [_name(group.settings, label) for label in LABELS])
    topics: dict[str, list[Any]] = {}
    for label, (name, origin) in zip(LABELS, found.items(), strict=True):
        # As many partitions as there were: a topic that stayed the same may have grown since.
        count = origin.partitions if group.until is None else len(group.until.fences)
        topics[label] = [name, origin.cluster, origin.topic, count]
    if group.moves:
        topics["origin"] = [group.moves[0].app, group.moves[0].changelog, list(group.moves[0].ends)]
    return topics


def _name(settings: Settings, label: str) -> str:
    name: str = getattr(settings, label.replace("-", "_"))
    return name


# -- from one group to the next --------------------------------------------------------------------------------------


def require_end(settings: Settings, partition: int, move: Move, rows: RowStore) -> None:
    """See that a partition was derived as far as it had been applied when its rows were divided."""
    fence = fence_of(rows)
    reached = (fence.applied, *fence.next)
    if reached != move.fences[partition]:
        raise Unauditable(
            f"partition {partition} of {settings.app_id} was divided when {move.fences[partition][0]} records had been "
            f"applied, up to offsets {list(move.fences[partition][1:])}; its topics lead to {reached[0]}, up to "
            f"{list(reached[1:])}"
        )


def divided(said: Sequence[Move], ended: Sequence[Rows], directory: Path) -> dict[int, Given]:
    """Divide the rows that a group had ended with, and return with what each partition of the next one begins.

    Parameters
    ----------
    said
        What was written down, by partition of the next one.
    ended
        Files of the rows of the old partitions, in order.
    directory
        Where theirs are to be.

    Raises
    ------
    Unauditable
        If they cannot be divided.
    """
    parts = []
    for each in ended:
        rows = Memory()
        read_rows(each, rows)
        parts.append(dict(sorted(rows.items())))
    try:
        made = rescaled(parts, said[0].plan())
    except (RescaleError, CorruptFrame) as exc:
        raise Unauditable(f"the rows of {said[0].app} cannot be divided anew: {exc}") from exc
    found = {}
    for n, (move, part) in enumerate(zip(said, made, strict=True)):
        own = moves.digests(part)
        unlike = [kind for kind in sorted(own.keys() | move.digests.keys()) if move.digests.get(kind) != own.get(kind)]
        found[n] = Given(move, write_rows(directory, BEGAN, n, Memory(part)), tuple(unlike))
    return found


def begin(
    settings: Settings,
    partition: int,
    given: Given,
    rows: RowStore,
    changelog: Changelog,
) -> Derivation:
    """Put the rows that a partition begins with into ``rows``, and return what to go on from.

    Parameters
    ----------
    settings
        Of the group's workers.
    given
        What it begins with.
    changelog
        What the changelog still has from before the first worker: offset, key and row.

    Raises
    ------
    Unauditable
        If the changelog has another row, or other rows were written down.
    """
    read_rows(given.rows, rows)
    origin = f"rows than 'trueup state rescale' must have made of {given.move.app}, in {settings.changelog}"
    begun = _begun(settings, partition, origin, given.move.since[partition], rows, changelog)
    if given.unlike:
        raise Unauditable(
            f"partition {partition} of {settings.app_id}: 'trueup state rescale' has made other rows of "
            f"{given.move.app} than this version does, of the kinds {', '.join(given.unlike)} (see "
            "docs/reference/state.md): another version did it, or its state was not what its topics lead to"
        )
    return begun


def loaded(
    settings: Settings,
    partition: int,
    given: tuple[Loaded, Mapping[bytes, bytes]],
    rows: RowStore,
    changelog: Changelog,
) -> Derivation:
    """Put the rows that `replay.load` gave a partition into ``rows``, and return what to go on from; see `begin`."""
    said, found = given
    rows.write(found)
    return _begun(settings, partition, f"rows than the {said}", said.since, rows, changelog)


def _begun(
    settings: Settings,
    partition: int,
    origin: str,
    since: tuple[int, int, int],
    rows: RowStore,
    changelog: Changelog,
) -> Derivation:
    """Return what to go on from with rows, if the changelog has none other; ``since``: next offsets of the outputs."""
    wrong = _wrong(changelog, rows)
    if wrong:
        more = f"; and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        what = f"partition {partition} of {settings.app_id} began with other {origin}"
        raise Unauditable(f"{what}: {'; '.join(wrong[:NAMED])}{more}")
    return Derivation(rows, tuple(Settled(each) for each in since))


def _wrong(changelog: Changelog, rows: RowStore) -> list[str]:
    """Return what of a changelog is not what was derived; what was compacted away is not known to be."""
    last = {key: (offset, row) for offset, key, row in changelog}
    wrong = []
    for key, (offset, row) in last.items():
        derived = rows.get(key)
        if not moves.is_of_engine(key) or key.startswith(skips.SKIP.letter) or row == derived:
            continue
        what = "is not what the old rows become" if derived is not None else "is of nothing that was moved"
        wrong.append(f"{shown(key)} {what} (offset {offset})")
    return wrong
