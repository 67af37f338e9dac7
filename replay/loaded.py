"""The first rows of a partition that was loaded from a table, files or a snapshot (`replay.load`, `replay.restore`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson

VERSION: Final = 1
#: What the file is called that a snapshot is, and not a table or records.
SNAPSHOT: Final = "snapshot"


@dataclass(frozen=True)
class Loaded:
    """What a partition began with."""

    #: Name, size and digest of each file.
    files: Mapping[str, Any]
    #: When, ISO 8601; for people.
    at: str
    #: How many.
    rows: int
    #: Next offsets of calibrated and resolved records and of dead letters then.
    since: tuple[int, int, int]

    def encode(self) -> bytes:
        """Return the record."""
        made = {"version": VERSION, "files": self.files, "at": self.at, "rows": self.rows, "since": self.since}
        return orjson.dumps(made, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read a record; raises ValueError, KeyError or TypeError if it is none."""
        made = orjson.loads(value)
        if made.pop("version") != VERSION:
            raise ValueError("it is of another version")
        first, second, third = made.pop("since")
        return cls(**made, since=(first, second, third))

    def __str__(self) -> str:
        named = " and ".join(str(each["name"]) for each in self.files.values())
        command = "trueup state restore" if SNAPSHOT in self.files else "trueup load"
        return f"{self.rows:,} rows that '{command}' made of {named} ({self.at})"
