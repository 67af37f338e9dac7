"""Where the next audit of the sources begins: offsets, and what was found of records that intake had not committed.

The file is one line of JSON and a hash of it. Intake has no state, so this is all that another audit needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import orjson

from replay.audit.output_matcher import Unauditable
from streams import atomic_file

VERSION: Final = 1
#: Its name in the directory of checkpoints.
NAME: Final = "sources"


@dataclass
class Begun:
    """How far earlier audits have come.

    Attributes
    ----------
    sources
        By source partition (``topic/partition``) the first offset that is not judged.
    written
        By label and partition (``forecasts/0``) of what intake writes, the first offset that was not read.
    left
        Entries of records of source records that are not judged.
    """

    sources: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    left: list[tuple[bytes, bytes]] = field(default_factory=list)


def write(directory: Path, what: Mapping[str, Any], begun: Begun) -> None:
    """Write the file; ``what`` says what it is of."""
    left = [[key.hex(), value.hex()] for key, value in begun.left]
    head = {"version": VERSION, "of": what, "sources": begun.sources, "written": begun.written, "left": left}
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
        if head["version"] != VERSION:
            raise ValueError(f"it is of version {head['version']}, this reads {VERSION}")
        differing = [name for name in what if head["of"].get(name) != what[name]]
        if differing:
            name = differing[0]
            raise ValueError(f"it is of another {name}: {head['of'].get(name)!r}, not {what[name]!r}")
        left = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in head["left"]]
        return Begun(dict(head["sources"]), dict(head["written"]), left)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise Unauditable(
            f"the checkpoint {path} cannot be used: {exc}; delete it to audit the sources from the beginning"
        ) from exc
