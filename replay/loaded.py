"""The first rows of a partition that a command wrote (`replay.load`, `replay.restore`, `replay.export_state`)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

import orjson

VERSION: Final = 2
#: What the file is called that a snapshot is, and not a table or records.
SNAPSHOT: Final = "snapshot"


@dataclass(frozen=True)
class Loaded:
    """What a partition began with."""

    #: Name, size and digest of each file, or name and offsets of each topic.
    files: Mapping[str, Any]
    #: When, ISO 8601; for people.
    at: str
    #: How many.
    rows: int
    #: Topics of calibrated and resolved records and of dead letters, and their next offsets then.
    outputs: tuple[str, str, str]
    since: tuple[int, int, int]

    def encode(self) -> bytes:
        """Return the record."""
        return orjson.dumps({"version": VERSION, **asdict(self)}, option=orjson.OPT_SORT_KEYS)

    def begins(self, outputs: Sequence[str]) -> tuple[int, int, int]:
        """Return the offsets from which on the group has written its outputs: 0 in a topic that was none of them."""
        known = dict(zip(self.outputs, self.since, strict=True))
        first, second, third = (known.get(name, 0) for name in outputs)
        return first, second, third

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read a record; raises ValueError, KeyError or TypeError if it is none."""
        made = orjson.loads(value)
        if made.pop("version") != VERSION:
            raise ValueError("it is of another version")
        first, second, third = made.pop("since")
        return cls(**made | {"outputs": tuple(made["outputs"])}, since=(first, second, third))

    def __str__(self) -> str:
        named = " and ".join(str(each["name"]) for each in self.files.values())
        command = "trueup load"
        if SNAPSHOT in self.files:
            command = "trueup state restore"
        elif any("offsets" in each for each in self.files.values()):
            command = "trueup replay --write-state"
        return f"{self.rows:,} rows that '{command}' made of {named} ({self.at})"
