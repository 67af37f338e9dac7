"""A checkpoint: what an audit has derived of a partition, in a file from which the next audit goes on.

The file is a sequence of frames, and the last one is a hash of all before it. The first is a JSON object that says what
the file is of, so that one that does not fit is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from struct import Struct, error
from typing import IO, Any, Final, NamedTuple

import orjson

from replay.audit.along import Reached
from replay.audit.output_matcher import Derived, RecordHeaders, Settled, Unauditable
from replay.audit.partition_verifier import IDENTIFY, Checked, Derivation, RowStore, fence_of
from streams.config.in_force import InForce

VERSION: Final = 3
#: Kinds of frames: the head, rows, what was derived last of each output, the hash.
_HEAD, _ROW, _RECENT, _END = range(4)
#: Kind, output topic (its place in `IDENTIFY`), and the lengths of key and value; `_NONE` for none.
_FRAME: Final = Struct("<BBII")
_NONE: Final = (1 << 32) - 1
#: Rows that are put back at once.
_ROWS: Final = 10_000


class Skips(NamedTuple):
    """What dead letters said was left out, up to an offset: by topic and partition, then offset."""

    next: int
    found: dict[tuple[str, int], dict[int, str]]


class Checkpoint(NamedTuple):
    """What a file gave."""

    derivation: Derivation
    skips: Skips


def _taken_before(recorded: Sequence[InForce], applied: int) -> str:
    """Return a hash of who had taken a partition up before a place; it never changes."""
    said = [[each.claim, each.applied, each.digest] for each in recorded if each.applied < applied]
    return blake2b(orjson.dumps(said), digest_size=16).hexdigest()


def write(
    file: IO[bytes], what: Mapping[str, Any], recorded: Sequence[InForce], skips: Skips, derivation: Derivation
) -> None:
    """Write a checkpoint.

    Parameters
    ----------
    what
        What it is of: partition, topics and their ids. Read back, it must be the same.
    recorded
        All that workers wrote of what is in force.
    skips, derivation
        What to go on from.
    """
    applied = fence_of(derivation.rows).applied
    hashed = blake2b(digest_size=32)

    def put(kind: int, topic: int, key: bytes | None, value: bytes | None) -> None:
        lengths = (_NONE if part is None else len(part) for part in (key, value))
        frame = _FRAME.pack(kind, topic, *lengths) + (key or b"") + (value or b"")
        hashed.update(frame)
        file.write(frame)

    reached = derivation.reached
    head = {
        "version": VERSION,
        "of": what,
        "applied": applied,
        "taken": _taken_before(recorded, applied),
        "checked": asdict(derivation.checked),
        "config": derivation.config.hex(),
        "reached": [reached.journal, reached.order],
        "outputs": [[each.next, each.matched, each.copies] for each in derivation.outputs],
        "headers": [[_texts(each.headers) for each in one.recent] for one in derivation.outputs],
        "skips": [skips.next, [[*place, *each] for place, found in skips.found.items() for each in found.items()]],
    }
    put(_HEAD, 0, None, orjson.dumps(head))
    for topic, one in enumerate(derivation.outputs):
        for each in one.recent:
            put(_RECENT, topic, each.key, each.value)
    for key, value in derivation.rows.items():
        put(_ROW, 0, key, value)
    file.write(_FRAME.pack(_END, 0, _NONE, hashed.digest_size) + hashed.digest())


def read(path: Path, what: Mapping[str, Any], recorded: Sequence[InForce], rows: RowStore) -> Checkpoint:
    """Read a checkpoint, and put its rows into ``rows``.

    Raises
    ------
    Unauditable
        If the file is damaged, is of something else, or is of a version this one cannot go on from.
    """
    try:
        with path.open("rb") as file:
            return _read(file, what, recorded, rows)
    except OSError as exc:
        raise Unauditable(f"cannot read the checkpoint {path}: {exc.strerror or exc}") from exc
    except (ValueError, KeyError, TypeError, IndexError, error) as exc:
        raise Unauditable(
            f"the checkpoint {path} cannot be used: {exc}; delete it to audit from the beginning"
        ) from exc


def require_same(head: Mapping[str, Any], version: int, what: Mapping[str, Any]) -> None:
    """See that the head of a file is of this version and of the same things; raises ValueError if not."""
    if head["version"] != version:
        raise ValueError(f"it is of version {head['version']}, this reads {version}")
    differing = [name for name in what if head["of"].get(name) != what[name]]
    if differing:
        name = differing[0]
        raise ValueError(f"it is of another {name}: {head['of'].get(name)!r}, not {what[name]!r}")


def _read(file: IO[bytes], what: Mapping[str, Any], recorded: Sequence[InForce], rows: RowStore) -> Checkpoint:
    frames = _frames(file)
    _, _, _, value = next(frames)
    head = orjson.loads(value or b"")
    require_same(head, VERSION, what)
    if _taken_before(recorded, head["applied"]) != head["taken"]:
        raise ValueError("the topic of configurations says otherwise who had taken the partition up before")
    identify, recent = list(IDENTIFY.values()), [list[Derived]() for _ in IDENTIFY]
    found: dict[bytes, bytes | None] = {}
    for kind, topic, key, value in frames:
        if kind == _ROW:
            found[key or b""] = value
            if len(found) == _ROWS:
                rows.write(found)
                found = {}
        else:
            identity = identify[topic](orjson.loads(value or b""))
            headers = _headers(head["headers"][topic][len(recent[topic])])
            recent[topic].append(Derived(identity, key, value or b"", headers))
    rows.write(found)
    outputs = tuple(
        Settled(following, matched, copies, tuple(last))
        for (following, matched, copies), last in zip(head["outputs"], recent, strict=True)
    )
    reached = Reached.of_json(*head["reached"])
    config, checked = bytes.fromhex(head["config"]), Checked(**head["checked"])
    skipped: dict[tuple[str, int], dict[int, str]] = {}
    for name, partition, offset, why in head["skips"][1]:
        skipped.setdefault((name, partition), {})[offset] = why
    return Checkpoint(Derivation(rows, outputs, reached, config, checked), Skips(head["skips"][0], skipped))


def _texts(headers: RecordHeaders) -> list[tuple[str, str | None]]:
    """Return headers as JSON has them: a byte is a character."""
    return [(name, None if value is None else value.decode("latin-1")) for name, value in headers]


def _headers(texts: Sequence[Sequence[Any]]) -> RecordHeaders:
    return tuple((name, None if value is None else value.encode("latin-1")) for name, value in texts)


def _frames(file: IO[bytes]) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    """Yield the frames but for the last, which must be the hash of the others; raises ValueError unless it is."""
    hashed = blake2b(digest_size=32)
    while True:
        head = file.read(_FRAME.size)
        kind, topic, *lengths = _FRAME.unpack(head)
        key, value = [None if length == _NONE else file.read(length) for length in lengths]
        if kind == _END:
            if value != hashed.digest() or file.read(1):
                raise ValueError("it is damaged")
            return
        hashed.update(head + (key or b"") + (value or b""))
        yield kind, topic, key, value
