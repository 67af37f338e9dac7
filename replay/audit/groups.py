"""The chain of groups that an audit follows: a group that was moved began with rows that an older group had made.

`trueup state rescale` records what it made those rows of (`replay.moves`). An audit derives the old partitions up to
the move and divides their rows by the same pure function. It compares their hashes with the recorded ones, and the rows
with the new changelog, and goes on from them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from replay import moves
from replay.audit.checkpoint import BEGAN, Rows, read_rows, write_rows
from replay.audit.output_matcher import Settled, Unauditable
from replay.audit.partition_verifier import INPUTS, LABELS, OUTPUTS, Derivation
from replay.audit.reader import PartitionReader, Span, origins, width
from replay.audit.rows import Memory, RowStore, fence_of
from replay.first_rows import Loaded
from replay.moves import Move
from replay.topic_reader import Extent
from state.frames import CorruptFrame
from state.kind import shown
from state.rescale import RescaleError, rescaled
from streams.config.settings import Settings
from streams.records import skips

#: Offset, key and row of each record.
Changelog = Iterable[tuple[int, bytes, bytes | None]]
#: Differing rows that a message names.
NAMED: Final = 3


class Group(NamedTuple):
    """One group of the chain."""

    settings: Settings
    #: The move that each partition began with, by its number; empty if they began without rows.
    moves: list[Move]
    #: The move that ended the group; None if it was not moved.
    until: Move | None
    #: Whether an earlier audit has made the group before unnecessary.
    has_begun: bool


@dataclass(frozen=True)
class Given:
    """The rows that a partition begins with."""

    #: The move that made them.
    move: Move
    #: File of the derived rows.
    rows: Rows
    #: Kinds of rows whose hashes differ from the recorded ones.
    unlike: tuple[str, ...]


def chain(
    settings: Settings,
    has_begun: Callable[[Settings, int], bool],
    topics: Callable[[Settings, Move], Mapping[str, tuple[str, str]]],
    options: str = "--checkpoint",
) -> list[Group]:
    """Return the groups to audit, the oldest first; the last one is that of the settings.

    Raises Unauditable if a move is unfinished, or topics of an earlier group are gone.

    ``has_begun``: whether the checkpoints of a group with so many partitions make the group before it unnecessary.
    ``topics``: returns name and id of each required topic of the group before, by their labels.
    ``options``: options of the audit after which the group before may be deleted.
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
    """Return the settings of the group before a move."""
    names: dict[str, Any] = {label.replace("-", "_"): name for label, (name, _) in move.topics.items()}
    of_intake = {mode.source.name for mode in settings.modes if not mode.direct}
    sources = tuple(each for each in settings.sources if each.name in of_intake)
    return replace(settings, app_id=move.app, topic_prefix=move.prefix, sources=sources, **names)


def moved(settings: Settings) -> list[Move]:
    """Return the move that each partition of a group began with, by its number; empty if there was none.

    Raises Unauditable if the move is unfinished, or the partitions disagree about it.
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
    """Require that the topics of the group before a move still exist; raises `Unauditable`, see `chain`."""
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
    """Return the records of each partition of a group, up to its move.

    The end of the journal is read first and the ends of the inputs last. So the outputs of every entry are there, and
    the inputs of every output.

    Raises Unauditable if topics are missing, or differ in their number of partitions.
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
    """Return the identity of a group's checkpoints: each topic's id, and the move that its rows began with."""
    found = origins(group.settings, [_name(group.settings, label) for label in LABELS])
    topics: dict[str, list[Any]] = {}
    for label, (name, origin) in zip(LABELS, found.items(), strict=True):
        # The number of partitions at the move: a topic that stayed the same may have grown since.
        count = origin.partitions if group.until is None else len(group.until.fences)
        topics[label] = [name, origin.cluster, origin.topic, count]
    if group.moves:
        topics["origin"] = [group.moves[0].app, group.moves[0].changelog, list(group.moves[0].ends)]
    return topics


def _name(settings: Settings, label: str) -> str:
    name: str = getattr(settings, label.replace("-", "_"))
    return name


# -- from one group to the next --------------------------------------------------------------------------------------


#: Records applied and next offsets of the inputs of each partition.
Fences = Sequence[tuple[int, int, int]]


def divide(
    name: str, ended: Sequence[Rows], fences: Fences, by: Callable[[list[dict[bytes, bytes]]], list[dict[bytes, bytes]]]
) -> list[dict[bytes, bytes]]:
    """Return the last rows of a group's partitions divided anew by a pure function; ``ended`` are files of them.

    Raises Unauditable if one was not derived as far as it had been applied at the move, or the function refuses.
    """
    parts = []
    for n, (each, end) in enumerate(zip(ended, fences, strict=True)):
        rows = Memory()
        read_rows(each, rows)
        fence = fence_of(rows)
        reached = fence.applied, *fence.next
        if reached != end:
            raise Unauditable(
                f"partition {n} of {name} was divided when {end[0]} records had been applied, up to offsets "
                f"{list(end[1:])}; its topics lead to {reached[0]}, up to {list(reached[1:])}"
            )
        parts.append(dict(sorted(rows.items())))
    try:
        return by(parts)
    except (RescaleError, CorruptFrame) as exc:
        raise Unauditable(f"the rows of {name} cannot be divided anew: {exc}") from exc


def divided(said: Sequence[Move], ended: Sequence[Rows], directory: Path) -> dict[int, Given]:
    """Return the rows that each partition of the next group begins with; raises as `divide`.

    ``said``: the recorded moves, by partition of the next group.
    """
    made = divide(said[0].app, ended, said[0].fences, lambda parts: rescaled(parts, said[0].plan()))
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
    """Put a partition's first rows into ``rows``, and return the progress to go on from.

    Raises Unauditable if the changelog has another row, or the hashes differ from the recorded ones.

    ``changelog``: offset, key and row of changelog records from before the first worker, as far as they are kept.
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
    """Put the rows that `replay.load` gave a partition into ``rows``, and return the progress; see `begin`."""
    said, found = given
    rows.write(found)
    return _begun(settings, partition, f"rows than the {said}", said.begins(settings.outputs), rows, changelog)


def _begun(
    settings: Settings,
    partition: int,
    origin: str,
    since: tuple[int, int, int],
    rows: RowStore,
    changelog: Changelog,
) -> Derivation:
    """Return the progress, if the changelog has no other rows; ``since``: next offsets of the outputs."""
    wrong = _wrong(changelog, rows)
    if wrong:
        more = f"; and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        what = f"partition {partition} of {settings.app_id} began with other {origin}"
        raise Unauditable(f"{what}: {'; '.join(wrong[:NAMED])}{more}")
    return Derivation(rows, tuple(Settled(each) for each in since))


def _wrong(changelog: Changelog, rows: RowStore) -> list[str]:
    """Return the differences of a changelog from the derived rows. Rows that were compacted away cannot be compared."""
    last = {key: (offset, row) for offset, key, row in changelog}
    wrong = []
    for key, (offset, row) in last.items():
        derived = rows.get(key)
        if not moves.is_of_engine(key) or key.startswith(skips.SKIP.letter) or row == derived:
            continue
        what = "is not what the old rows become" if derived is not None else "is of nothing that was moved"
        wrong.append(f"{shown(key)} {what} (offset {offset})")
    return wrong
