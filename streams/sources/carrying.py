"""Headers and fields that are carried unchanged from the record of a forecast to its answer.

.. code-block:: toml

    carry_headers = ["traceparent", "tracestate", "x-*"]
    carry = { customer = "payment.customer", channel = "@header.channel" }

Both are bounded. What exceeds a bound is left out and counted. An answer never fails because of this.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from state.events import Carried
from streams.sources.references import Envelope, Headers, Read, text

#: Headers that are carried by default: those of W3C Trace Context.
TRACE: Final = ("traceparent", "tracestate")
#: Stands for every header: for records of intake, which has already chosen the headers.
EVERY: Final = ("*",)
#: The most headers and the most fields of a record; and the most bytes of all headers (names and values) and of the
#: fields as JSON.
MOST: Final = 16
MOST_BYTES: Final = 2048
#: Longest name of a field or header, in characters.
_LONGEST: Final = 100

#: Compiles the place of a value, as the file gives it.
Compile = Callable[[Any], Read]


class Carrier:
    """Takes headers and fields from records, for their answers.

    ``patterns``: names of headers; a name that ends in ``*`` is a prefix.
    ``reads``: name and reader of each field.
    """

    def __init__(self, patterns: Sequence[str] = TRACE, reads: Sequence[tuple[str, Read]] = ()) -> None:
        self.patterns = tuple(patterns)
        self._prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))
        self._names = frozenset(patterns)
        self.reads = tuple(reads)
        #: Headers and fields left out so far, because they exceeded a bound or were not JSON.
        self.left_out = {"header": 0, "field": 0}

    def of(self, record: Any, envelope: Envelope) -> Carried | None:  # noqa: ANN401 - whatever stands there
        """Return what a record of a source carries; None if it carries nothing."""
        fields = {}
        for name, read in self.reads:
            found = read(record, envelope)
            if found is not None:
                fields[name] = found
        return self.carried(envelope[1], fields)

    def carried(self, headers: Headers, fields: Mapping[str, Any]) -> Carried | None:
        """Return the chosen headers and the fields, within the bounds; None if there are none."""
        kept = self._headers(headers) if headers and self.patterns else ()
        said = self._fields(fields) if fields else b""
        return Carried(kept, said) if kept or said else None

    def _headers(self, headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
        kept: list[tuple[str, bytes | None]] = []
        room = MOST_BYTES
        for name, value in headers:
            if name in self._names or (self._prefixes and name.startswith(self._prefixes)):
                size = len(name.encode()) + len(value or b"")
                if size <= room and len(kept) < MOST:
                    kept.append((name, value))
                    room -= size
                else:
                    self.left_out["header"] += 1
        return tuple(kept)

    def _fields(self, fields: Mapping[str, Any]) -> bytes:
        if len(fields) <= MOST:
            try:
                whole = orjson.dumps(fields, default=_plain)
            except TypeError:  # a value that JSON cannot hold
                return self._fitting(fields)
            if len(whole) <= MOST_BYTES:
                return whole
        return self._fitting(fields)

    def _fitting(self, fields: Mapping[str, Any]) -> bytes:
        """Return the fields that are JSON and fit the bounds, in order."""
        kept: list[bytes] = []
        room = MOST_BYTES - 1  # the braces, without the comma of the last field
        for name, value in fields.items():
            try:
                made = orjson.dumps({name: value}, default=_plain)[1:-1]
            except TypeError:  # a value that JSON cannot hold
                made = None
            if made is not None and len(made) + 1 <= room and len(kept) < MOST:
                kept.append(made)
                room -= len(made) + 1
            else:
                self.left_out["field"] += 1
        return b"{%b}" % b",".join(kept) if kept else b""


def headers(given: object) -> tuple[str, ...]:
    """Return the names of headers that a file gives.

    Raises ValueError if it is not a list of names. A name may end in ``*``, and has no other.
    """
    if not isinstance(given, list | tuple) or len(given) > MOST:
        raise ValueError(
            f'carry_headers is a list of at most {MOST} names such as ["traceparent", "x-*"], got {given!r}'
        )
    for name in given:
        if not (isinstance(name, str) and 0 < len(name) <= _LONGEST and "*" not in name[:-1]):
            raise ValueError(
                f"carry_headers: a name has 1 to {_LONGEST} characters, and * at its end or not at all; got {name!r}"
            )
    return tuple(given)


def compiled(table: Mapping[str, Any], compile_: Compile) -> Carrier:
    """Return what the table of a source carries.

    Raises ValueError if the table is not allowed.

    ``table``: may have ``carry`` and ``carry_headers``.
    ``compile_``: compiles the place of a value; raises ValueError if it is not a place.
    """
    given = table.get("carry", {})
    if not isinstance(given, dict) or len(given) > MOST:
        raise ValueError(f'carry is a table of at most {MOST} fields such as {{ customer = "payment.customer" }}')
    reads = []
    for name, spec in sorted(given.items()):  # in a fixed order, so that an audit makes the same bytes
        if not 0 < len(name) <= _LONGEST:
            raise ValueError(f"carry: a name has 1 to {_LONGEST} characters, got {name!r}")
        try:
            reads.append((name, compile_(spec)))
        except ValueError as exc:
            raise ValueError(f"carry.{name}: {exc}") from exc
    return Carrier(headers(table.get("carry_headers", TRACE)), reads)


def shown(carried: Carried) -> dict[str, Any]:
    """Return carried headers and fields for people: headers as text."""
    made: dict[str, Any] = {}
    if carried.fields:
        made["carried"] = orjson.loads(carried.fields)
    if carried.headers:
        made["headers"] = {
            name: None if value is None else value.decode(errors="replace") for name, value in carried.headers
        }
    return made


def _plain(value: object) -> str:
    found = text(value)
    if found is None:
        raise TypeError
    return found
