"""Skips: records that ``trueup state skip`` leaves out because they crash every process that reads them.

For a worker or a router a skip is a row in the changelog of the record's partition. Intake has no state, so for a
source it is a record in the compacted topic of configurations. So the next owner of the partition also finds it. The
record (or its whole batch if that is damaged) becomes a dead letter with the reason ``skipped``. The letter's value has
the offset that the operator gave; audits read it there.
"""

import base64
import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from state.kind import PLAIN, KeyPart, Kind, Moves

_SAID: Final = "skipped at "
#: Key prefix of records that skip a source record.
_SOURCE: Final = b"skipped/"


class PoisonError(RuntimeError):
    """A record ends every worker that reads it. The cause of this error says how."""

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


SKIP: Final = Kind[Skip](
    "K",
    "a record that is left out",
    (KeyPart("topic, 0 forecasts, 1 outcomes", "B"), KeyPart("offset", "Q")),
    {1: PLAIN},
    Moves.LEFT,
    "one a record that an operator left out",
)


def row(skip: Skip) -> tuple[bytes, bytes]:
    """Return the key and value of a skip's row."""
    said = json.dumps({"reason": skip.reason, "by": skip.by, "at": skip.at})
    return SKIP.key(skip.topic, skip.offset), SKIP.seal(said.encode())


def read(rows: Iterable[tuple[bytes, bytes]]) -> list[Skip]:
    """Return the skips of rows; CorruptFrame if a row is damaged."""
    found = []
    for key, value in rows:
        topic, offset = SKIP.of(key)
        found.append(Skip(topic, offset, *SKIP.open(value, _said)))
    return found


def _said(payload: bytes) -> tuple[str, str, str]:
    said = json.loads(payload)
    return said["reason"], said["by"], said["at"]


class SourceSkip(NamedTuple):
    """A skipped record of a source. ``topic_id`` is as the brokers give it; ``by`` and ``at`` are for people."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    reason: str
    by: str
    at: str


def source_record(skip: SourceSkip) -> tuple[bytes, bytes]:
    """Return the key and value of the record that skips a source record."""
    key = b"%b%b/%d/%020d" % (_SOURCE, skip.topic_id.encode(), skip.partition, skip.offset)
    return key, json.dumps(skip._asdict()).encode()


def read_source(key: bytes | None, value: bytes | None) -> SourceSkip | None:
    """Return the skip that a record holds; None if it holds something else. Raises ValueError if it is damaged."""
    if value is None or not (key or b"").startswith(_SOURCE):
        return None
    try:
        return SourceSkip(**json.loads(value))
    except (ValueError, TypeError) as exc:
        raise ValueError(f"record {key!r} of the topic of configurations cannot be read: {exc!r}") from exc


def why(offset: int, reason: str) -> str:
    """Return the reason in the dead letter of a skipped record."""
    return f"{_SAID}{offset}: {reason}"


def of_dead_letter(value: bytes) -> tuple[str, int, int, str] | None:
    """Return the skip that a dead letter names: topic, partition, the offset that the operator gave, and why.

    None if it names no skip, or is no dead letter.
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
