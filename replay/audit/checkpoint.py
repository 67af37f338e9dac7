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

from replay.audit.output_matcher import Derived, Read, RecordHeaders, Unauditable, Unsettled
from replay.audit.partition_verifier import Checked, Derivation, RowStore, fence_of
from replay.audit.terms import Terms
from streams.config import in_force
from streams.config.in_force import InForce, InForceError
from streams.config.settings import Settings

VERSION: Final = 2
#: Kinds of frames: the head, rows, ledger rows that left last, outputs without a counterpart and recent ones, the hash.
_HEAD, _ROW, _GONE, _PENDING, _AHEAD, _RECENT, _END = range(7)
#: Kind, output topic (0 to 2, of `_MATCHED`), and the lengths of key and value; `_NONE` for none.
_FRAME: Final = Struct("<BBII")
_NONE: Final = (1 << 32) - 1
_MATCHED: Final = ("joined", "letters", "raws")
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

    matched = [getattr(derivation, name) for name in _MATCHED]
    terms = derivation.terms
    head = {
        "version": VERSION,
        "of": what,
        "applied": applied,
        "taken": _taken_before(recorded, applied),
        "checked": asdict(derivation.checked),
        "issued": derivation.issued,
        "next_answer": derivation.next_answer,
        "matched": [[each.next, each.matched, each.copies] for each in matched],
        "causes": [[[each.cause, _texts(each.headers)] for each in one.pending] for one in matched],
        "ahead": [[[each.offset, each.timestamp, _texts(each.headers)] for each in one.ahead] for one in matched],
        "terms": [terms.applied, terms.next, terms.claim, terms.digest, terms.owner, terms.at],
        "skips": [skips.next, [[*place, *each] for place, found in skips.found.items() for each in found.items()]],
    }
    put(_HEAD, 0, in_force.described(terms.settings), orjson.dumps(head))
    for topic, one in enumerate(matched):
        for derived in one.pending:
            put(_PENDING, topic, derived.key, derived.value)
        for record in one.ahead:
            put(_AHEAD, topic, record.key, record.value)
        for value in one.recent:
            put(_RECENT, topic, None, value)
    for key, value in derivation.gone.items():
        put(_GONE, 0, key, value)
    for key, value in derivation.rows.items():
        put(_ROW, 0, key, value)
    file.write(_FRAME.pack(_END, 0, _NONE, hashed.digest_size) + hashed.digest())


def read(
    path: Path, what: Mapping[str, Any], settings: Settings, recorded: Sequence[InForce], rows: RowStore
) -> Checkpoint:
    """Read a checkpoint, and put its rows into ``rows``.

    Raises
    ------
    Unauditable
        If the file is damaged, is of something else, or is of a version this one cannot go on from.
    """
    try:
        with path.open("rb") as file:
            return _read(file, what, settings, recorded, rows)
    except OSError as exc:
        raise Unauditable(f"cannot read the checkpoint {path}: {exc.strerror or exc}") from exc
    except (ValueError, KeyError, TypeError, IndexError, error, InForceError) as exc:
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


def _read(
    file: IO[bytes], what: Mapping[str, Any], settings: Settings, recorded: Sequence[InForce], rows: RowStore
) -> Checkpoint:
    frames = _frames(file)
    _, _, configuration, value = next(frames)
    head = orjson.loads(value or b"")
    require_same(head, VERSION, what)
    if _taken_before(recorded, head["applied"]) != head["taken"]:
        raise ValueError("the topic of configurations says otherwise who had taken the partition up before")
    pending: list[list[Derived]] = [[] for _ in _MATCHED]
    ahead: list[list[Read]] = [[] for _ in _MATCHED]
    recent: list[list[bytes]] = [[] for _ in _MATCHED]
    gone: dict[bytes, bytes] = {}
    found: dict[bytes, bytes | None] = {}
    for kind, topic, key, value in frames:
        if kind == _ROW:
            found[key or b""] = value
            if len(found) == _ROWS:
                rows.write(found)
                found = {}
        elif kind == _GONE:
            gone[key or b""] = value or b""
        elif kind == _PENDING:
            (first, second), headers = head["causes"][topic][len(pending[topic])]
            pending[topic].append(Derived(key, value or b"", (first, second), _headers(headers)))
        elif kind == _AHEAD:
            offset, timestamp, headers = head["ahead"][topic][len(ahead[topic])]
            ahead[topic].append(Read(offset, key, value, timestamp, _headers(headers)))
        else:
            recent[topic].append(value or b"")
    rows.write(found)
    matched = [
        Unsettled(following, same, copies, pending[n], ahead[n], recent[n])
        for n, (following, same, copies) in enumerate(head["matched"])
    ]
    applied, following, claim, *named = head["terms"]
    of_then = in_force.restored(configuration or b"", settings)
    terms = Terms(applied, following and (following[0], following[1]), claim, of_then, *named)
    joined, letters, raws = matched
    checked = Checked(**head["checked"])
    derivation = Derivation(terms, checked, head["issued"], head["next_answer"], joined, letters, raws, gone, rows)
    skipped: dict[tuple[str, int], dict[int, str]] = {}
    for name, partition, offset, why in head["skips"][1]:
        skipped.setdefault((name, partition), {})[offset] = why
    return Checkpoint(derivation, Skips(head["skips"][0], skipped))


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
