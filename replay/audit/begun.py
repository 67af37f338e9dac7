"""Where the next audit from the sources on begins.

Of intake these are offsets, and what was found of records that it had not committed: intake has no state. Of the router
these are its derived rows, too. One file is a line of JSON and a hash of it; it names the files of rows, with a hash of
each. To replace it is the commit point, and what it does not name is removed.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from struct import Struct, error
from typing import Any, Final, NamedTuple

import orjson

from replay.audit.along import Reached
from replay.audit.checkpoint import require_same
from replay.audit.output_matcher import Unauditable
from replay.audit.partition_verifier import RowStore, fence_of
from streams import atomic_file

VERSION: Final = 4
#: Its name in the directory of checkpoints.
NAME: Final = "sources"
#: How the names of files of rows begin.
_ROUTER: Final = "router-"
_FRAME: Final = Struct("<II")
#: Rows that are put back at once.
_AT_ONCE: Final = 10_000
_NOTHING: Final = Reached()


@dataclass
class Begun:
    """How far earlier audits have come.

    Attributes
    ----------
    ids
        By source topic its id; a topic's place here is its number in ``left``.
    sources
        By source partition (``topic/partition``) the first offset that is not judged.
    written
        By label and partition (``forecasts/0``) of what intake writes, the first offset that was not read.
    left
        Entries of records whose source record, route or label is not judged.
    routers
        By partition of the router its derived state.
    skipped
        What an operator left out and is not judged: topic, partition, offset and why.
    """

    ids: dict[str, str] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    left: list[tuple[bytes, bytes]] = field(default_factory=list)
    routers: dict[str, "Rows"] = field(default_factory=dict)
    skipped: list[tuple[str, int, int, str]] = field(default_factory=list)


class Rows(NamedTuple):
    """Derived rows of a router's partition.

    Attributes
    ----------
    file, digest
        Their file, and its hash.
    routes, labels
        The next offsets of routes and of labels.
    reached
        How far the journal was followed.
    """

    file: str
    digest: str
    routes: int
    labels: int
    reached: Reached = _NOTHING


def write_rows(
    directory: Path, partition: int, rows: RowStore, prefix: str = _ROUTER, reached: Reached = _NOTHING
) -> Rows:
    """Write the rows of a partition, and return where they are; ``prefix`` is how the file's name begins."""
    name = f"{prefix}{partition}-{secrets.token_hex(8)}"
    hashed = blake2b(digest_size=32)
    with atomic_file.written(directory / name) as file:
        for key, value in rows.items():
            for part in (_FRAME.pack(len(key), len(value)), key, value):
                hashed.update(part)
                file.write(part)
    fence = fence_of(rows)
    return Rows(name, hashed.hexdigest(), fence.next[0], fence.next[1], reached)


def read_rows(directory: Path, rows: Rows, to: RowStore) -> None:
    """Read the rows of a partition; raises `Unauditable` if they are damaged."""
    hashed = blake2b(digest_size=32)
    found: dict[bytes, bytes | None] = {}
    try:
        with (directory / rows.file).open("rb") as file:
            while head := file.read(_FRAME.size):
                longest, length = _FRAME.unpack(head)
                key, value = file.read(longest), file.read(length)
                hashed.update(head + key + value)
                found[key] = value
                if len(found) == _AT_ONCE:
                    to.write(found)
                    found = {}
        to.write(found)
    except (OSError, error) as exc:
        raise Unauditable(f"cannot read the checkpoint {directory / rows.file}: {exc}") from exc
    if hashed.hexdigest() != rows.digest:
        raise Unauditable(f"the checkpoint {directory / rows.file} is damaged; delete {directory / NAME} to begin anew")


def tidy(directory: Path, begun: Begun) -> None:
    """Remove files of rows that nothing names."""
    named = {each.file for each in begun.routers.values()}
    for path in directory.glob(f"{_ROUTER}*"):
        if path.name not in named:
            path.unlink(missing_ok=True)


def write(directory: Path, what: Mapping[str, Any], begun: Begun) -> None:
    """Write the file; ``what`` says what it is of."""
    left = [[key.hex(), value.hex()] for key, value in begun.left]
    head = {
        "version": VERSION,
        "of": what,
        "ids": list(begun.ids.items()),
        "sources": begun.sources,
        "written": begun.written,
        "left": left,
        "routers": {name: [*each[:-1], list(each.reached)] for name, each in begun.routers.items()},
        "skipped": begun.skipped,
    }
    said = orjson.dumps(head)
    with atomic_file.written(directory / NAME) as file:
        file.write(said + b"\n" + blake2b(said, digest_size=32).hexdigest().encode() + b"\n")


def read(directory: Path, what: Mapping[str, Any]) -> Begun:
    """Read the file; where there is none, nothing was audited.

    Raises
    ------
    Unauditable
        If it is damaged, or of something else.
    """
    path = directory / NAME
    try:
        said, _, rest = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return Begun()
    except OSError as exc:
        raise Unauditable(f"cannot read the checkpoint {path}: {exc.strerror or exc}") from exc
    try:
        if rest.strip().decode() != blake2b(said, digest_size=32).hexdigest():
            raise ValueError("its hash does not fit")
        head = orjson.loads(said)
        require_same(head, VERSION, what)
        left = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in head["left"]]
        routers = {
            name: Rows(file, digest, routes, labels, Reached.of_json(*reached))
            for name, (file, digest, routes, labels, reached) in head["routers"].items()
        }
        skipped = [(topic, number, offset, why) for topic, number, offset, why in head["skipped"]]
        return Begun(dict(head["ids"]), dict(head["sources"]), dict(head["written"]), left, routers, skipped)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise Unauditable(
            f"the checkpoint {path} cannot be used: {exc}; delete it to audit the sources from the beginning"
        ) from exc
