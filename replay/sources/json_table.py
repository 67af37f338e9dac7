"""A table of JSON lines: each row is an object, and paths such as ``payment.score[1]`` name its values."""

import json
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from replay.sources.column import Column, quoted, shown
from replay.sources.files import lines, parsed
from replay.sources.record import TableError
from replay.sources.text_table import Text
from streams.sources.references import Read, reader

_NO_ENVELOPE: Final = (None, (), "", 0)
#: The most paths that a message lists.
_LISTED: Final = 200


def read(path: Path, named: Mapping[str, str]) -> Text:
    """Read columns of a table. Missing values and null are empty. NaN is read as it is written.

    Raises SettingsError if the file cannot be read. Raises TableError if a line is not an object, if no row has a value
    at a path, or if a row has a list or an object there.

    ``named``: paths, or names of fields, by the option that gives each.
    """
    rows = array("q")
    cells: dict[str, list[str]] = {name: [] for name in named.values()}
    first: dict[str, Any] = {}
    number = 0
    reads = {name: _reader(name) for name in cells}
    for found, _ in parsed(path):
        for each, line in found:
            number += 1
            row = _lenient(line) if each is None else each
            if not isinstance(row, dict):
                raise TableError(
                    f"{path}: record {number} is {quoted(line.decode(errors='replace'))}, not a JSON object on a line"
                    f"{_fault(line)}: correct it; where objects have several lines, jq -c . {path} > rows.jsonl puts "
                    "each on one"
                )
            first = first or row
            rows.append(number)
            for name, column in cells.items():
                value = _value(row, name, reads[name])
                if isinstance(value, float) and abs(value) >= 2**63:  # needs more than 64 bits, so orjson rounds it
                    value = _value(json.loads(line), name, reads[name])
                if isinstance(value, list | dict):
                    option = next(option for option in named if named[option] == name)
                    raise _nested(option.partition(" ")[0], name, number, value)
                column.append(value if isinstance(value, str) else "" if value is None else str(value))
    for option, name in named.items():
        if not any(cells[name]) and name not in first:
            if number == 1 and (lists := dict(_lists(first))):
                longest = max(lists, key=lambda each: len(lists[each]))
                raise TableError(f"{path} is one object, with its rows in it: {lines(lists[longest], longest, path)}")
            listed = ", ".join(shown(each) for each in list(_paths(first))[:_LISTED])
            raise TableError(f"{option.split()[0]} {shown(name)}: {path} has no such field; there are: {listed}")
    return Text({option: Column(option.split()[0], name, cells[name], rows) for option, name in named.items()}, [])


def _reader(name: str) -> Read:
    """Return a function that reads a path, or a plain name such as ``@timestamp``."""
    with suppress(ValueError):
        if name[:1] != "@":
            return reader(name)
    return lambda _, __: None


def _value(row: dict[str, Any], name: str, read: Read) -> Any:  # noqa: ANN401 - whatever stands there
    """Return the value of the field with this name, or otherwise the value at this path."""
    return row[name] if name in row else read(row, _NO_ENVELOPE)


def _lenient(line: bytes) -> Any:  # noqa: ANN401 - whatever stands there
    """Parse a line of JSON that may hold NaN and Infinity; None if it is something else."""
    with suppress(ValueError, RecursionError):
        return json.loads(line)
    return None


def _lists(value: dict[str, Any], path: str = ".") -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists of objects or of lists inside an object, by their paths in jq's notation."""
    for name, inner in value.items():
        step = f"{path}[{json.dumps(name, ensure_ascii=False)}]"
        if isinstance(inner, dict):
            yield from _lists(inner, step)
        elif isinstance(inner, list) and inner and isinstance(inner[0], list | dict):
            yield step, inner


def _fault(line: bytes) -> str:
    """Say from where on a line is not JSON; empty if it is JSON."""
    try:
        json.loads(line)
    except json.JSONDecodeError as exc:
        return f", from {quoted(exc.doc[exc.pos :])} on (column {exc.colno})"
    except (ValueError, RecursionError):
        pass
    return ""


def _nested(option: str, name: str, number: int, value: object) -> TableError:
    if isinstance(value, dict) and list(value)[:2] in (["0"], ["0", "1"]):
        return TableError(
            f"{option} {shown(name)}: row {number} holds a whole column, as pandas writes it; write a row a line, with "
            "to_json(path, orient='records', lines=True)"
        )
    inner = next(_paths(value, name))
    return TableError(
        f"{option} {shown(name)}: row {number} holds {quoted(value)}; name a value inside, such as '{inner}'"
    )


def _paths(value: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 - whatever stands there
    """Yield the paths to the values inside a value. For a list, only the last path: of two classes, that of class 1."""
    if isinstance(value, dict):
        for name, inner in value.items():
            step = name if name.replace("_", "").isalnum() or not path else json.dumps(name, ensure_ascii=False)
            yield from _paths(inner, f"{path}.{step}" if path else step)
    elif isinstance(value, list) and value:
        yield from _paths(value[-1], f"{path}[{len(value) - 1}]")
    else:
        yield path
