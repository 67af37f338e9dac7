"""Checkpoint files: an audit writes them, and the next audit goes on from them.

A file is a sequence of frames; the last is a hash of all others. The first is a JSON object that identifies what was
audited, so that a file from another audit is refused.

Each partition of a worker has one file. An audit that begins at the sources has one file of offsets and entries, which
names a file of rows for each partition of the router; intake has no state. Replacing this file is the commit point.
Files that it does not name are removed.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from struct import Struct, error
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from replay.audit.along import NOTHING, Reached
from replay.audit.output_matcher import Derived, RecordHeaders, Settled, Unauditable
from replay.audit.partition_verifier import IDENTIFY, Checked, Derivation, Skips
from replay.audit.rows import RowStore, fence_of
from streams import atomic_file
from streams.config.in_force import InForce

VERSION: Final = 5
#: Name of the file of the sources in the directory of checkpoints.
SOURCES: Final = "sources"
#: Prefixes of files with a router's rows: the rows at the end of the audit, and the rows with which it began.
ROUTER, BEGAN = "router-", "began-"
#: Kinds of frames: the head, rows or other entries, the hash. From `_RECENT` on: the last derived records of each
#: output.
_HEAD, _ENTRY, _END, _RECENT = range(4)
#: Kind of a frame, and lengths of key and value; `_NONE`: there is no key or value.
_FRAME: Final = Struct("<BII")
_NONE: Final = (1 << 32) - 1
#: Number of rows written to a store at once.
_ROWS: Final = 10_000

T = TypeVar("T")
_Frame = tuple[int, bytes | None, bytes | None]


# -- any file --------------------------------------------------------------------------------------------------------


def _write(path: Path, of: Mapping[str, Any], head: Mapping[str, Any], frames: Iterable[_Frame]) -> None:
    """Write a file. ``of`` identifies what was audited. A reader must give the same."""
    hashed = blake2b(digest_size=32)
    with atomic_file.written(path) as file:
        for kind, *parts in ((_HEAD, None, orjson.dumps({"version": VERSION, "of": of, **head})), *frames):
            lengths = [_NONE if part is None else len(part) for part in parts]
            frame = _FRAME.pack(kind, *lengths) + b"".join(part or b"" for part in parts)
            hashed.update(frame)
            file.write(frame)
        file.write(_FRAME.pack(_END, _NONE, hashed.digest_size) + hashed.digest())


def _read(
    path: Path,
    of: Mapping[str, Any],
    take: Callable[[Mapping[str, Any], Iterable[_Frame]], T],
    first: str = "from the beginning",
) -> T:
    """Return what ``take`` makes from the head and the frames of a file.

    Raises Unauditable if the file is damaged, belongs to something else, or has a version that cannot be continued.
    ``first`` says, for the message, what an audit does after the file is deleted.
    """
    try:
        with path.open("rb") as file:
            hashed = blake2b(digest_size=32)

            def frames() -> Iterable[_Frame]:
                """Yield all frames but the last one, which must be the hash of the others."""
                while True:
                    frame = file.read(_FRAME.size)
                    kind, *lengths = _FRAME.unpack(frame)
                    key, value = [None if length == _NONE else file.read(length) for length in lengths]
                    if kind == _END:
                        if value != hashed.digest() or file.read(1):
                            raise ValueError("it is damaged")
                        return
                    hashed.update(frame + (key or b"") + (value or b""))
                    yield kind, key, value

            found = iter(frames())
            head = orjson.loads(next(found)[2] or b"")
            if head["version"] != VERSION:
                raise ValueError(f"its format has version {head['version']}, this program reads {VERSION}")
            for name in of:
                if head["of"].get(name) != of[name]:
                    raise ValueError(f"it is of another {name}: {head['of'].get(name)!r}, not {of[name]!r}")
            return take(head, found)
    except OSError as exc:
        raise Unauditable(f"cannot read the checkpoint {path}: {exc.strerror or exc}") from exc
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration, error) as exc:
        raise Unauditable(f"the checkpoint {path} cannot be used: {exc}; delete it to audit {first}") from exc


def _put_back(frames: Iterable[_Frame], rows: RowStore) -> Iterable[_Frame]:
    """Write the rows among frames to a store; yield the other frames."""
    found: dict[bytes, bytes | None] = {}
    for frame in frames:
        kind, key, value = frame
        if kind != _ENTRY:
            yield frame
            continue
        found[key or b""] = value
        if len(found) == _ROWS:
            rows.write(found)
            found = {}
    rows.write(found)


# -- a partition of a worker -----------------------------------------------------------------------------------------


def _taken_before(recorded: Sequence[InForce], applied: int) -> str:
    """Return a hash of a partition's owners before this many applied records. It never changes.

    A worker that was paused may announce the same place after another worker did. The last announcement counts.
    """
    last = {each.applied: each for each in recorded if each.applied < applied}
    said = [[each.claim, each.applied, each.digest] for each in last.values()]
    return blake2b(orjson.dumps(said), digest_size=16).hexdigest()


def write(path: Path, of: Mapping[str, Any], recorded: Sequence[InForce], derivation: Derivation) -> None:
    """Write a checkpoint of a partition.

    ``of``: identifies what was audited: partition, topics and their ids. A reader must give the same.
    ``recorded``: all configurations in force that workers wrote.
    ``derivation``: the progress to go on from.
    """
    applied, skips = fence_of(derivation.rows).applied, derivation.skips
    head = {
        "applied": applied,
        "taken": _taken_before(recorded, applied),
        "checked": asdict(derivation.checked),
        "config": derivation.config.hex(),
        "reached": [*derivation.reached],
        "outputs": [[each.next, each.matched, each.copies] for each in derivation.outputs],
        "headers": [[_texts(each.headers) for each in one.recent] for one in derivation.outputs],
        "skips": [*skips],
    }

    def frames() -> Iterable[_Frame]:
        for topic, one in enumerate(derivation.outputs):
            for each in one.recent:
                yield _RECENT + topic, each.key, each.value
        for key, value in derivation.rows.items():
            yield _ENTRY, key, value

    _write(path, of, head, frames())


def read(path: Path, of: Mapping[str, Any], recorded: Sequence[InForce], rows: RowStore) -> Derivation:
    """Read a checkpoint and put its rows into ``rows``; raises `Unauditable`, see `_read`."""

    def take(head: Mapping[str, Any], frames: Iterable[_Frame]) -> Derivation:
        if _taken_before(recorded, head["applied"]) != head["taken"]:
            raise ValueError("the topic of configurations now names other earlier owners of the partition")
        identify, recent = list(IDENTIFY.values()), [list[Derived]() for _ in IDENTIFY]
        for kind, key, value in _put_back(frames, rows):
            topic = kind - _RECENT
            identity = identify[topic](orjson.loads(value or b""))
            headers = _headers(head["headers"][topic][len(recent[topic])])
            recent[topic].append(Derived(identity, key, value or b"", headers))
        outputs = tuple(
            Settled(following, matched, copies, tuple(last))
            for (following, matched, copies), last in zip(head["outputs"], recent, strict=True)
        )
        reached, config = Reached.of_json(*head["reached"]), bytes.fromhex(head["config"])
        following, skipped = head["skips"]
        skips = Skips(following, tuple((name, number, offset, why) for name, number, offset, why in skipped))
        return Derivation(rows, outputs, reached, config, Checked(**head["checked"]), skips)

    return _read(path, of, take)


def _texts(headers: RecordHeaders) -> list[tuple[str, str | None]]:
    """Return headers as in the JSON, with one character for each byte."""
    return [(name, None if value is None else value.decode("latin-1")) for name, value in headers]


def _headers(texts: Sequence[Sequence[Any]]) -> RecordHeaders:
    return tuple((name, None if value is None else value.encode("latin-1")) for name, value in texts)


# -- files of rows ---------------------------------------------------------------------------------------------------


class RowsFile(NamedTuple):
    """A file of the derived rows of a partition."""

    #: Its path.
    file: Path
    #: The next offset of each input.
    next: tuple[int, int]
    #: The progress in the journal.
    reached: Reached = NOTHING


def write_rows(directory: Path, prefix: str, partition: int, rows: RowStore, reached: Reached = NOTHING) -> RowsFile:
    """Write the rows of a partition to a new file whose name begins with ``prefix``."""
    file = directory / f"{prefix}{partition}-{secrets.token_hex(8)}"
    _write(file, {}, {}, ((_ENTRY, key, value) for key, value in rows.items()))
    first, second = fence_of(rows).next
    return RowsFile(file, (first, second), reached)


def read_rows(path: Path, to: RowStore) -> None:
    """Read the rows of a partition; raises `Unauditable` if they are damaged."""
    _read(path, {}, lambda _, frames: list(_put_back(frames, to)))


# -- from the sources on ---------------------------------------------------------------------------------------------


@dataclass
class AuditProgress:
    """The progress of audits that begin at the sources."""

    #: Id of each source topic; a topic's position here is its number in ``left``.
    ids: dict[str, str] = field(default_factory=dict)
    #: First offset that is not judged yet, by source partition (``topic/partition``).
    sources: dict[str, int] = field(default_factory=dict)
    #: First offset of intake's topics that is not read yet, by label and partition (``forecasts/0``).
    written: dict[str, int] = field(default_factory=dict)
    #: Entries of records whose source record, route or label is not judged yet.
    left: list[tuple[bytes, bytes]] = field(default_factory=list)
    #: The router's derived state, by its partition.
    routers: dict[int, RowsFile] = field(default_factory=dict)
    #: Skipped records that are not judged yet: topic, partition, offset and reason.
    skipped: list[tuple[str, int, int, str]] = field(default_factory=list)


def write_begun(directory: Path, of: Mapping[str, Any], begun: AuditProgress) -> None:
    """Write the file of the sources."""
    head = {
        "ids": list(begun.ids.items()),
        "sources": begun.sources,
        "written": begun.written,
        "routers": [[n, rows.file.name, rows.next, [*rows.reached]] for n, rows in begun.routers.items()],
        "skipped": begun.skipped,
    }
    _write(directory / SOURCES, of, head, ((_ENTRY, key, value) for key, value in begun.left))


def read_begun(directory: Path, of: Mapping[str, Any]) -> AuditProgress:
    """Read the file of the sources; without one, nothing was audited. Raises `Unauditable`, see `_read`."""

    def take(head: Mapping[str, Any], frames: Iterable[_Frame]) -> AuditProgress:
        left = [(key or b"", value or b"") for _, key, value in frames]
        routers = {
            n: RowsFile(directory / name, (first, second), Reached.of_json(*reached))
            for n, name, (first, second), reached in head["routers"]
        }
        skipped = [(topic, number, offset, why) for topic, number, offset, why in head["skipped"]]
        return AuditProgress(dict(head["ids"]), head["sources"], head["written"], left, routers, skipped)

    path = directory / SOURCES
    return _read(path, of, take, "the sources from the beginning") if path.exists() else AuditProgress()


def tidy(directory: Path, begun: AuditProgress) -> None:
    """Remove files of rows that ``begun`` does not name."""
    named = {rows.file.name for rows in begun.routers.values()}
    for path in directory.glob(f"{ROUTER}*"):
        if path.name not in named:
            path.unlink(missing_ok=True)
