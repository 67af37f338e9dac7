"""The groups that an audit goes through: a group that was moved began with rows that another one had made.

`trueup state rescale` writes down what it made them of (`replay.moves`). So an audit of the new group derives the old
partitions up to the move, divides their rows by the same pure function, sees that the hashes which were written down
then are those of its own rows, and that the new changelog has no other rows, and goes on with them.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka.client import AIOKafkaClient

from replay import moves
from replay.audit import begun
from replay.audit.begun import Rows
from replay.audit.output_matcher import Settled, Unauditable
from replay.audit.partition_verifier import INPUTS, OUTPUTS, Derivation, Memory, RowStore, fence_of
from replay.audit.reader import PartitionReader, Span, origins, spans
from replay.loaded import Loaded
from replay.moves import Move
from state.frames import CorruptFrame
from state.kind import shown
from state.rescale import RescaleError, rescaled
from streams.config.settings import Settings
from streams.kafka import provenance
from streams.kafka.topics import partitions
from streams.records import skips

#: How the names of files of rows begin that a group ended or begins with.
ENDED, BEGAN = "ended-", "began-"
#: Rows that are named where several are not what they must be.
NAMED = 3


@dataclass(frozen=True)
class Group:
    """One group, and what there is of it.

    Attributes
    ----------
    settings
        Of its workers.
    spans
        What there is of each partition.
    moves
        How its partitions began, by their number; empty if they began with nothing.
    topics
        Of each label what the brokers call it, for checkpoints: cluster, id and number of partitions.
    checkpoint
        Directory of its checkpoints; None without any.
    """

    settings: Settings
    spans: dict[int, Span]
    moves: list[Move]
    topics: dict[str, list[Any]]
    checkpoint: Path | None

    def path(self, partition: int) -> Path | None:
        """Return the file of a partition's checkpoint; None without any."""
        return None if self.checkpoint is None else self.checkpoint / f"partition-{partition}"

    @property
    def has_begun(self) -> bool:
        """Whether an audit has come far enough in every partition for the group before to be needed no more."""
        return all((path := self.path(n)) is not None and path.exists() for n in self.spans)


class Begun(NamedTuple):
    """What a partition begins with.

    Attributes
    ----------
    move
        How its rows came about.
    directory, rows
        Where the derived rows are.
    unlike
        Kinds of rows that are not what was written down.
    """

    move: Move
    directory: Path
    rows: Rows
    unlike: tuple[str, ...]


def chain(settings: Settings, runner: asyncio.Runner, checkpoint: Path | None = None) -> list[Group]:
    """Return the groups to audit, the oldest first; the last one is that of the settings.

    Parameters
    ----------
    checkpoint
        Directory of checkpoints: a directory in it for each group, by its application id.

    Raises
    ------
    Unauditable
        If the topics of a group cannot be audited, or are not there any more.
    """
    here, there = settings, runner.run(spans(settings))
    found: list[Group] = []
    before: Move | None = None
    while True:
        directory = None if checkpoint is None else checkpoint / here.app_id
        topics = {} if directory is None else runner.run(origins(here))
        if before is not None:
            for each in topics.values():
                each[-1] = len(before.fences)  # as many as there were
        began = moved(here, {n: span.told for n, span in there.items()}, runner)
        found.append(Group(here, there, began, topics, directory))
        if not found[-1].moves or found[-1].has_begun:
            return found[::-1]
        before = found[-1].moves[0]
        if any(group.settings.app_id == before.app for group in found):
            raise Unauditable(f"{here.app_id} began with rows of {before.app}, which began with rows of it")
        newer, here = here, older(here, before)
        there = runner.run(_until(here, before, newer))


def older(settings: Settings, move: Move) -> Settings:
    """Return the settings of the group that a group was made of."""
    names: dict[str, Any] = {label.replace("-", "_"): name for label, (name, _) in move.topics.items()}
    return replace(settings, app_id=move.app, topic_prefix=move.prefix, sources=(), **names)


def moved(settings: Settings, there: Mapping[int, tuple[int, int]], runner: asyncio.Runner) -> list[Move]:
    """Return how the partitions of a group began, by their number; empty if they began with nothing.

    Parameters
    ----------
    there
        By partition the first offset and the end of what is in force.

    Raises
    ------
    Unauditable
        If the move has not been finished, or the partitions do not say the same.
    """
    reader = PartitionReader(settings, runner)
    try:
        runner.run(reader.start())
        found = [reader.move(n, told) for n, told in sorted(there.items())]
    finally:
        runner.run(reader.stop())
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


async def require_there(
    settings: Settings, named: Mapping[str, tuple[str, str]], newer: Settings, options: str = "--checkpoint"
) -> None:
    """See that the topics of a group before a move are still there, by their labels with name and id.

    Raises
    ------
    Unauditable
        If one is not, or was made anew; ``options`` are those of the audit after which it may go.
    """
    keep = (
        f": {newer.app_id} began with rows of {settings.app_id}, which only its topics prove. Keep those until an "
        f"audit of {newer.app_id} with {options} has ended with 0"
    )
    client = AIOKafkaClient(bootstrap_servers=",".join(settings.brokers), **settings.security.client_options())
    try:
        await client.bootstrap()
        for label, (name, topic_id) in named.items():
            if await partitions(settings, name) is None:
                raise Unauditable(f"there is no topic {name} ({label} of {settings.app_id}) any more{keep}")
            if (await provenance.identity(client, name)).id != topic_id:
                raise Unauditable(f"{name} ({label} of {settings.app_id}) was deleted and made anew{keep}")
    finally:
        await client.close()


async def _until(settings: Settings, move: Move, newer: Settings) -> dict[int, Span]:
    """Return what there is of a group up to a move; raises `Unauditable` if its topics are not what they were."""
    await require_there(settings, {label: move.topics[label] for label in moves.LABELS}, newer)
    told = await partitions(settings, settings.configurations) is not None
    reader = PartitionReader(settings)
    try:
        await reader.start()
        now = await reader.spans(len(move.fences), told=told)
    finally:
        await reader.stop()
    found = {}
    for n, span in now.items():
        _, *applied = move.fences[n]
        ends = dict(zip((*INPUTS, *OUTPUTS), (*applied, *move.outputs[n]), strict=True))
        found[n] = replace(span, end={**span.end, **ends})
    return found


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


def divided(said: Sequence[Move], ended: Sequence[Rows], directory: Path) -> dict[int, Begun]:
    """Divide the rows that a group had ended with, and return with what each partition of the next one begins.

    Parameters
    ----------
    said
        What was written down, by partition of the next one.
    ended
        Files of the rows of the old partitions, in order.
    directory
        Where files of rows are.

    Raises
    ------
    Unauditable
        If they cannot be divided.
    """
    parts = []
    for each in ended:
        rows = Memory()
        begun.read_rows(directory, each, rows)
        parts.append(dict(sorted(rows.items())))
    try:
        made = rescaled(parts, said[0].plan())
    except (RescaleError, CorruptFrame) as exc:
        raise Unauditable(f"the rows of {said[0].app} cannot be divided anew: {exc}") from exc
    found = {}
    for n, (move, part) in enumerate(zip(said, made, strict=True)):
        own = moves.digests(part)
        unlike = [kind for kind in sorted(own.keys() | move.digests.keys()) if move.digests.get(kind) != own.get(kind)]
        found[n] = Begun(move, directory, begun.write_rows(directory, n, Memory(part), BEGAN), tuple(unlike))
    return found


def begin(
    settings: Settings,
    partition: int,
    given: Begun,
    rows: RowStore,
    changelog: Iterable[tuple[int, bytes, bytes | None]],
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
    begun.read_rows(given.directory, given.rows, rows)
    of = f"partition {partition} of {settings.app_id}"
    origin = f"rows than 'trueup state rescale' must have made of {given.move.app}"
    _require_same(f"{of} began with other {origin}, in {settings.changelog}", changelog, rows)
    if given.unlike:
        raise Unauditable(
            f"{of}: 'trueup state rescale' has made other rows of {given.move.app} than this version does, of the "
            f"kinds {', '.join(given.unlike)} (see docs/reference/state.md): another version did it, or its state was "
            "not what its topics lead to"
        )
    return _derivation(given.move.since[partition], rows)


def loaded(
    settings: Settings,
    partition: int,
    given: tuple[Loaded, Mapping[bytes, bytes]],
    rows: RowStore,
    changelog: Iterable[tuple[int, bytes, bytes | None]],
) -> Derivation:
    """Put the rows that `replay.load` gave a partition into ``rows``, and return what to go on from; see `begin`."""
    said, found = given
    rows.write(found)
    _require_same(f"partition {partition} of {settings.app_id} began with other rows than the {said}", changelog, rows)
    return _derivation(said.since, rows)


def _derivation(since: tuple[int, int, int], rows: RowStore) -> Derivation:
    """Return what to go on from with rows; ``since`` are the next offsets of the outputs."""
    return Derivation(rows, tuple(Settled(each) for each in since))


def _require_same(what: str, changelog: Iterable[tuple[int, bytes, bytes | None]], rows: RowStore) -> None:
    wrong = _wrong(changelog, rows)
    if wrong:
        more = f"; and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        raise Unauditable(f"{what}: {'; '.join(wrong[:NAMED])}{more}")


def _wrong(changelog: Iterable[tuple[int, bytes, bytes | None]], rows: RowStore) -> list[str]:
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
