"""Begins a group with a snapshot on another cluster, where the same records have different offsets.

When a topic is copied to another cluster, records get new offsets. So the snapshot keeps the timestamp and checksum of
the last applied record of each input, and a partition goes on after that record. If the record is there more than once,
the first one counts, because the ledger ignores records that come again.

Audits begin with the rows (`replay.first_rows`), so they need no topic of the old cluster.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from replay import first_rows, snapshot
from replay.audit.checkpoint import read_rows
from replay.audit.partition_verifier import INPUTS
from replay.audit.reader import PartitionReader, described
from replay.audit.rows import Memory, fence_of
from replay.first_rows import SNAPSHOT, FreshGroup
from replay.snapshot import Manifest, SnapshotError, SnapshotPart
from replay.sources.files import identity
from state import formats, journal
from state.frames import OtherFormat
from state.journal import NONE, Entry, Last
from streams.config.settings import Settings

#: Next offset of each input.
Next = tuple[int, int]
#: Topics that only a group's own workers write. They must not be copied from another cluster.
_OWN: Final = ("journal", "configurations")


def restore(settings: Settings, path: Path, signers: Path | None = None, *, dry_run: bool = False) -> str:
    """Let a group without a state begin with a snapshot; return a message about it.

    Raises SnapshotError if the snapshot cannot be used, or if the inputs here lack its last records. Raises TopicsError
    if topics are missing, workers run, the group has a state, or the brokers refuse.

    ``signers``: who may have signed it, see `replay.signature.verify`; None: anybody.
    """
    if settings.has_intake:
        raise SnapshotError(
            "a group with sources for intake is not restored from a snapshot: the places of intake and router in the "
            "sources are not in it. Let a second group read copies of the sources (docs/how-to/snapshots.md)"
        )
    manifest, group = snapshot.read(path, signers), first_rows.opened(settings)
    if len(manifest.partitions) != group.partitions:
        raise SnapshotError(
            f"the snapshot {path} has {len(manifest.partitions)} partitions, the topics here {group.partitions}: make "
            "them with as many, and move the state to another number afterwards ('trueup state rescale')"
        )
    places = _places(settings, manifest)
    if dry_run:
        return f"{manifest.rows:,} rows of {path} can be restored ({_said(places)}); nothing was written"
    with TemporaryDirectory(prefix="trueup-restore-") as directory:
        snapshot.unpack(path, manifest, Path(directory))
        written = asyncio.run(_write(settings, manifest, places, group, path, Path(directory)))
    return (
        f"{written:,} rows of {manifest.application} of {manifest.at} are in {settings.app_id}, with "
        f"{manifest.applied:,} records applied. It goes on at {_said(places)}. Start the workers. They answer all "
        "records from there on, also those that the old cluster has answered after the snapshot"
    )


def _said(places: Sequence[Next]) -> str:
    """Return offsets as text for messages."""
    return "; ".join(f"partition {n}: {INPUTS[0]} {one}, {INPUTS[1]} {two}" for n, (one, two) in enumerate(places))


# -- find ------------------------------------------------------------------------------------------------------------


def _places(settings: Settings, manifest: Manifest) -> list[Next]:
    """Return the offsets from which each partition goes on."""
    same = [
        [each.cluster, each.id] == list(manifest.topics[label][1:3])
        for label, each in zip(INPUTS, described(settings, settings.inputs).values(), strict=True)
    ]
    found = []
    with PartitionReader(settings) as reader:
        for n, place in enumerate(manifest.partitions):
            for label in _OWN:
                _, end = reader.extents([reader.place(label, n)])[reader.place(label, n)]
                if end:
                    raise SnapshotError(
                        f"{reader.place(label, n).topic}/{n} has {end:,} records: workers of {settings.app_id} have "
                        "run here, or it was copied. Take another TRUEUP_APP_ID, and run 'trueup topics take' before "
                        "its workers; or delete the topic, make it by 'trueup topics create', and try again"
                    )
            one, two = (
                next_ if stays or not next_ else _behind(reader, label, n, last)
                for label, next_, last, stays in zip(INPUTS, place.next, place.last, same, strict=True)
            )
            found.append((one, two))
    return found


def _behind(reader: PartitionReader, label: str, partition: int, wanted: Last) -> int:
    """Return the offset after the first record of an input that has a timestamp and a checksum."""
    place = reader.place(label, partition)
    where = f"{place.topic}/{partition}"
    if wanted == NONE:
        raise SnapshotError(
            f"the snapshot does not say which record of {label}/{partition} was applied last, as its workers have "
            "folded none since the group was loaded, moved or cut: take another one when they have"
        )
    first, end = reader.extents([place])[place]
    begin = reader.at(place, wanted.timestamp)
    if begin is None:
        raise SnapshotError(
            f"{where} has no record of {wanted.timestamp} ms or later, the time of the last one in the snapshot: if "
            "it is still being copied, run the command again when the copy has come so far"
        )
    (records,) = reader.stretches({place: (begin, end)})
    for record in records:
        if record.timestamp == wanted.timestamp and journal.last(record.timestamp, record.value) == wanted:
            return record.offset + 1
    raise SnapshotError(
        f"{where} does not have the last record of the snapshot, of {wanted.timestamp} ms with checksum "
        f"{wanted.crc:08x}: it begins at offset {first} and ends at {end}. The topic was copied without it, its "
        "retention has deleted it, or the copy has other timestamps (message.timestamp.type=LogAppendTime)"
    )


# -- write -----------------------------------------------------------------------------------------------------------


async def _write(
    settings: Settings, manifest: Manifest, places: Sequence[Next], group: FreshGroup, path: Path, directory: Path
) -> int:
    """Write rows and fences; return their number."""
    written, files = 0, {SNAPSHOT: identity(path)}
    async with first_rows.beginning(settings, group, files, "trueup state restore", manifest.at) as begun:
        for n, (next_, place) in enumerate(zip(places, manifest.partitions, strict=True)):
            rows = _read(settings, directory / f"partition-{n}")
            fence = fence_of(rows)
            fence.next[:] = next_
            written += await begun.give(rows.items, fence, [_begun(place, next_, group.since[n])])
    return written


def _read(settings: Settings, file: Path) -> Memory:
    """Return the rows of a partition; raises `SnapshotError` if another build wrote them."""
    rows = Memory()
    read_rows(file, rows)
    keys = sorted(rows)

    def first(prefix: bytes) -> tuple[bytes, bytes] | None:
        at = bisect_left(keys, prefix)
        return (keys[at], rows[keys[at]]) if at < len(keys) and keys[at].startswith(prefix) else None

    try:
        formats.check(first, settings.policies)
    except OtherFormat as exc:
        raise SnapshotError(f"another build wrote these rows, restore them by that one: {exc}") from exc
    return rows


def _begun(place: SnapshotPart, next_: Next, said: tuple[int, int, int]) -> tuple[bytes, bytes]:
    """Return the first journal row: where the journal goes on, and after which records."""
    config = bytes.fromhex(place.config) or bytes(16)
    return journal.begun(
        Entry(place.entry, next_, next_, place.applied, place.entry, said, config, place.last, b""), said
    )
