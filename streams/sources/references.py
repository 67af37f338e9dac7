"""References of a mapping: where a value is in a source record.

=====================  ===============================================================================================
``a.b[0].c``           a path into the value; a name with other characters stands in double quotes: ``"a.b".c``
``@key``, ``@key.a``   the record's key, or a path into it
``@header.NAME``       the last header of that name, as text
``@topic``             the topic's name
``@timestamp``         the Kafka timestamp, ms
``"{model}-{land}"``   a template: text with references in braces; ``{{`` and ``}}`` are braces
=====================  ===============================================================================================

A missing value is None, and so is null. A template is None if a part of it is None.
"""

import re
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

Headers = Sequence[tuple[str, bytes | None]]


#: What comes with a value: the decoded key, headers, topic, and Kafka timestamp, ms. A plain tuple takes a tenth of the
#: time of a named one.
Envelope = tuple[Any, Headers, str, int]


class KafkaTime(int):
    """A Kafka timestamp. It is always in ms, whatever the unit of other times is."""


#: Reads something from a decoded value and its envelope.
Read = Callable[[Any, Envelope], Any]

_STEP: Final = re.compile(r'(?:^|\.)(?:"((?:[^"\\]|\\.)*)"|([^.\[\]{}"@\s][^.\[\]{}"]*))|\[(\d{1,6})\]')
#: Matches a brace of a template, a reference in braces, or an error: a brace that closes nothing, or is not closed.
_BRACES: Final = re.compile(r"(\{\{|\}\}|\{[^}]*\}?|\})")
_KEY, _HEADER, _TOPIC, _TIMESTAMP = "@key", "@header.", "@topic", "@timestamp"
_EXAMPLE: Final = "a path such as a.b[0].c, or @key, @header.NAME, @topic, @timestamp"


def reader(reference: str) -> Read:
    """Compile a reference or a template. Raises ValueError if it is neither."""
    return _template(reference) if "{" in reference or "}" in reference else _reference(reference)


def plain(reference: str) -> str | None:
    """Return the name if a reference is only a name, as most are; otherwise None."""
    if "{" in reference or reference.startswith("@"):
        return None
    path = steps(reference)
    return path[0] if len(path) == 1 and isinstance(path[0], str) else None


def uses_key(reference: str) -> bool:
    """Whether a reference or template reads a part of the key."""
    return "@key." in reference or "@key[" in reference


def steps(path: str) -> tuple[str | int, ...]:
    """Return the names and indices of a path.

    Raises ValueError if it is not a path.

    >>> steps('a.b[0]."c.d"')
    ('a', 'b', 0, 'c.d')
    """
    found: list[str | int] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or (match[3] is not None and not found):
            break
        quoted, bare, index = match.groups()
        if index is not None:
            found.append(int(index))
        else:
            found.append(bare.strip() if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = match.end()
    if at < len(path) or not path:
        raise ValueError(f"{path!r} is not {_EXAMPLE}")
    return tuple(found)


def _reference(reference: str) -> Read:
    if not reference.startswith("@"):
        return _path(steps(reference))
    if reference == _TOPIC:
        return lambda _, envelope: envelope[2]
    if reference == _TIMESTAMP:
        return lambda _, envelope: KafkaTime(envelope[3])
    if reference == _KEY:
        return lambda _, envelope: envelope[0]
    if reference.startswith(_HEADER) and len(reference) > len(_HEADER):
        return _header(reference.removeprefix(_HEADER))
    if uses_key(reference):
        inner = _path(steps(f"key{reference.removeprefix(_KEY)}"))
        return lambda _, envelope: inner({"key": envelope[0]}, envelope)
    raise ValueError(f"{reference!r} is not {_EXAMPLE}")


def _path(path: tuple[str | int, ...]) -> Read:
    if len(path) == 1:
        name = path[0]
        return lambda record, _: record.get(name)

    def read(found: Any, _: Envelope) -> Any:  # noqa: ANN401 - whatever stands there
        for step in path:
            if type(step) is int:  # a text has items, too: its letters
                found = found[step] if isinstance(found, list | tuple) and step < len(found) else None
            else:
                found = found.get(step) if isinstance(found, dict) else None
        return found

    return read


def _header(name: str) -> Read:
    def read(_: Any, envelope: Envelope) -> str | None:  # noqa: ANN401 - the value is not read
        for given, value in reversed(envelope[1]):
            if given == name:
                return None if value is None else value.decode(errors="replace")
        return None

    return read


def _template(template: str) -> Read:
    reads: list[Read] = []
    shape = ""
    for part in _BRACES.split(template):
        if part in ("{{", "}}"):
            shape += part[0]
        elif part == "}":
            raise ValueError(f"{template!r}: a }} closes nothing; }}}} is a brace")
        elif not part.startswith("{"):
            shape += part.replace("%", "%%")
        elif part.endswith("}"):
            reads.append(_reference(part[1:-1].strip()))
            shape += "%s"
        else:
            raise ValueError(f"{template!r}: a {{ is not closed; {{{{ is a brace")
    if not reads:
        raise ValueError(f"{template!r} refers to nothing: write {{ constant = ... }} for what is always the same")

    def read(record: Any, envelope: Envelope) -> str | None:  # noqa: ANN401 - whatever stands there
        parts = []
        for each in reads:
            part = text(each(record, envelope))
            if part is None:
                return None
            parts.append(part)
        return shape % tuple(parts)

    return read


def text(value: object) -> str | None:
    """Return a text, integer, truth value, date, UUID, or UTF-8 bytes as text; None for anything else.

    A number with a fraction has no unique text: 0.1 and 1e-1 are the same.
    """
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, int | UUID | Decimal) else None
