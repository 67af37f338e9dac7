"""The ``[sources.NAME]`` tables of the TOML file: source topics, and how their records are mapped."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from streams.config.variables import bytes_of, text_of
from streams.sources.carrying import TRACE
from streams.sources.fields import CARRIED, FIELDS, FORECAST, MOST_PRECEDENCE, OUTCOME
from streams.sources.formats import FORMATS
from streams.sources.mapping import Mapping as Compiled
from streams.sources.modes import Mode, Source
from streams.sources.specs import known

#: Keys, except fields, that a source of either role may have.
SETTINGS: Final = (
    "topic",
    "topics",
    "role",
    "format",
    "schema",
    "schema_file",
    "message",
    "key_format",
    "cloudevents",
    "when",
    "precedence",
)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
#: The most sources, the most topics of a source, and the longest file of a schema, bytes.
_MOST: Final = 200
_SCHEMA_BYTES: Final = 1 << 20
#: The most schemas of one source. A value without a fingerprint is tried with each.
_MOST_SCHEMAS: Final = 16
#: Settings that are not kept in a source's table.
_APART: Final = ("role", "topic", "topics", "schema_file")


def parse(given: object, headers: Sequence[str] = TRACE) -> tuple[Source, ...]:
    """Read the tables, in the order of the file.

    Raises ValueError if one is not a source; the message names it and says what is allowed.

    ``headers``: headers that a source of forecasts carries if its table does not name any.
    """
    if not isinstance(given, dict):
        raise ValueError("sources must be tables: [sources.NAME]")  # noqa: TRY004 - one kind of error for configuration
    if len(given) > _MOST:
        raise ValueError(f"there are {len(given)} sources; at most {_MOST} are taken")
    found = []
    for name, table in given.items():
        try:
            found.append(_source(name, table, headers))
        except ValueError as exc:
            raise ValueError(f"sources.{name}: {exc}") from exc
    return tuple(found)


def plain(modes: Iterable[Mode]) -> list[tuple[str, dict[str, Any]]]:
    """Return names and tables of sources, in order, each with some topics; a dictionary of them is for `parse`."""
    found: dict[str, dict[str, Any]] = {}
    for source, topic, *_ in modes:
        table = found.setdefault(source.name, {**source.table, "role": source.role, "topics": []})
        table["topics"].append(topic)
    return list(found.items())


def _source(name: str, table: object, headers: Sequence[str]) -> Source:
    if not isinstance(table, dict):
        raise ValueError("must be a table")  # noqa: TRY004 - one kind of error for configuration
    if not _NAME.fullmatch(name):
        raise ValueError("a name has 1 to 100 of the characters a-z, A-Z, 0-9, '.', '_' and '-'")
    role = table.get("role")
    if not isinstance(role, str) or role not in FIELDS:
        raise ValueError(f"role is one of {', '.join(FIELDS)}, got {role!r}")
    allowed = (*SETTINGS, *(CARRIED if role == FORECAST else ()), *FIELDS[role])
    known(table, allowed)
    _check_settings(role, table)
    kept = {setting: value for setting, value in table.items() if setting not in _APART}
    if "schema_file" in table:
        files = table["schema_file"]
        held = [_schema(Path(file), table["format"]) for file in ([files] if isinstance(files, str) else files)]
        kept["schema"] = held[0] if isinstance(files, str) else held
    if role == FORECAST:
        kept.setdefault("carry_headers", list(headers))
    source = Source(name, role, _topics(table), kept)
    Compiled(source)
    return source


def _topics(table: Mapping[str, Any]) -> tuple[str, ...]:
    topics = table.get("topics", [table["topic"]] if "topic" in table else [])
    if ("topic" in table and "topics" in table) or not isinstance(topics, list) or not 0 < len(topics) <= _MOST:
        raise ValueError("give topic, or topics as a list")
    for topic in topics:
        if not (isinstance(topic, str) and _TOPIC.fullmatch(topic)):
            raise ValueError(f"{topic!r} is not allowed as the name of a topic")
    return tuple(topics)


def _check_settings(role: str, table: Mapping[str, Any]) -> None:
    for setting in ("format", "key_format"):
        if table.get(setting, FORMATS[0]) not in FORMATS:
            raise ValueError(f"{setting} is one of {', '.join(FORMATS)}, got {table[setting]!r}")
    _check_schema(table)
    if type(table.get("cloudevents", False)) is not bool:
        raise ValueError(f"cloudevents is true or false, got {table['cloudevents']!r}")
    precedence = table.get("precedence")
    whole = type(precedence) is int and 0 < precedence <= MOST_PRECEDENCE
    if precedence is not None and not (role == OUTCOME and whole):
        raise ValueError(f"precedence, of outcomes, is a whole number from 1 to {MOST_PRECEDENCE}; got {precedence!r}")


def _check_schema(table: Mapping[str, Any]) -> None:
    given = [name for name in ("schema", "schema_file") if name in table]
    if len(given) > 1:
        raise ValueError("schema and schema_file: give one of them")
    form = table.get("format", FORMATS[0])
    for name in (*given, *(["message"] if "message" in table else [])):
        held = table[name]
        several = isinstance(held, list) and form == "avro" and name != "message" and 0 < len(held) <= _MOST_SCHEMAS
        if not all(isinstance(each, str) and each for each in (held if several else [held])):
            lists = f", and of avro a list of at most {_MOST_SCHEMAS}" if name != "message" else ""
            raise ValueError(f"{name} is text{lists}; got {held!r}")
    if given and form == FORMATS[0]:
        raise ValueError(f"{given[0]} is of avro and protobuf; format is {form}")
    if (form == "protobuf" and bool(given)) != ("message" in table):
        raise ValueError("a schema of protobuf and message, the full name of the values' message, belong together")


def _schema(path: Path, form: str) -> str:
    """Return the content of a schema file for the key ``schema``: Avro as text, Protobuf in base64."""
    if form == "protobuf":
        return base64.b64encode(bytes_of("schema_file", path, _SCHEMA_BYTES)).decode()
    return text_of("schema_file", path, _SCHEMA_BYTES)
