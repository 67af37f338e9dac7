"""Records that are left out because they end every worker that reads them: rows of the state, by ``trueup skip``.

A row stands in the changelog of the record's partition, so whoever takes the partition up knows of it. The record, or
its whole batch where that cannot be read, is then a dead letter with the reason ``skipped``, whose value names the
offset that was asked for; audits read it there.
"""

import base64
import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from state import frames

#: Letter of the rows, and the version of what they hold.
LETTER: Final = b"K"
VERSION: Final = 1
_SAID: Final = "skipped at "


class PoisonError(RuntimeError):
    """A record ends every worker that reads it; what it was raised from says how."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.place = f"{topic}/{partition}@{offset}"
        super().__init__(f"{self.place} cannot be read or folded")


class Skip(NamedTuple):
    """A record that is left out.

    ``topic`` is `state.fence.FORECASTS` or `state.fence.OUTCOMES`; ``by`` and ``at`` are for people.
    """

    topic: int
    offset: int
    reason: str
    by: str
    at: str


def row(skip: Skip) -> tuple[bytes, bytes]:
    """Return key and value of a skip's row."""
    key = LETTER + bytes((skip.topic,)) + skip.offset.to_bytes(8, "big")
    said = json.dumps({"reason": skip.reason, "by": skip.by, "at": skip.at})
    return key, frames.seal(LETTER[0], VERSION, said.encode())


def read(rows: Iterable[tuple[bytes, bytes]]) -> list[Skip]:
    """Return the skips of rows.

    Raises
    ------
    CorruptFrame
        If a row is damaged.
    """
    found = []
    for key, value in rows:
        payload = frames.unseal(LETTER[0], VERSION, value)
        try:
            said = json.loads(payload)
            found.append(Skip(key[1], int.from_bytes(key[2:10], "big"), said["reason"], said["by"], said["at"]))
        except frames.DAMAGE as exc:
            raise frames.damaged(LETTER[0], exc) from exc
    return found


def why(offset: int, reason: str) -> str:
    """Return what is said in the dead letter of a skipped record."""
    return f"{_SAID}{offset}: {reason}"


def of_dead_letter(value: bytes) -> tuple[str, int, int, str] | None:
    """Return what a dead letter says was left out: topic, partition, the offset that was asked for, and why.

    None if it says nothing of the kind, or is no dead letter.
    """
    if b'"reason":"skipped"' not in value:
        return None
    try:
        letter = json.loads(value)
        text = json.loads(base64.b64decode(letter["value"]))["refused"]
        offset = text.removeprefix(_SAID).partition(":")[0]
        if letter["reason"] != "skipped" or not text.startswith(_SAID) or not offset.isdigit():
            return None
        return letter["topic"], letter["partition"], int(offset), text
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
