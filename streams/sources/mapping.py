"""Applies a mapping: from a source record to the fields of a record that trueup knows."""

from collections.abc import Callable
from typing import Any, Final

import orjson

from streams.sources import carrying, formats
from streams.sources.carrying import Carrier
from streams.sources.fields import FIELDS, FORECAST, PRECEDENCE_BITS, PRECEDENCE_SECONDS, Compiler
from streams.sources.modes import Source
from streams.sources.references import Envelope, Headers, Read, text
from streams.sources.refusal import PASSED, Refusal, Unfit, short
from streams.sources.registry import SchemaId
from streams.sources.schemas import Schemas
from streams.sources.shortcuts import TEXT, taken
from streams.sources.specs import Spec, only

_loads: Final = orjson.loads
Passes = Callable[[Any, Envelope], bool]


class Mapping:
    """Reads the records of one source. It is pure: the same record gives the same fields.

    Raises ValueError if the mapping is invalid; the message says which field, and what is allowed.

    ``schemas``: the schemas that records name. They must be loaded before, see `lacking`.
    """

    def __init__(self, source: Source, schemas: Schemas | None = None) -> None:
        schemas = schemas or Schemas()
        table = source.table
        self.source = source
        self._format = formats.made(table, schemas)
        self._decode = self._format.decode
        self._longest: int = formats.LONGEST[table.get("format", "json")]
        self._longest_key: int = formats.LONGEST[table.get("key_format", "json")]
        self._is_json = type(self._format) is formats.Json
        compiler = Compiler()
        self._passes = _filters(table.get("when"), compiler.reference)
        self._fields = compiler.fields(
            source.role, {name: spec for name, spec in table.items() if name in FIELDS[source.role]}
        )
        self._forecasts = source.role == FORECAST
        #: What is copied from its records to their answers.
        self.carrier = carrying.compiled(table, compiler.value) if self._forecasts else Carrier(())
        self._carries = bool(self.carrier.reads)
        self._carries_headers = bool(self.carrier.patterns)
        self._key = formats.of_key(table, schemas)
        if compiler.uses_key and self._key is None:
            raise ValueError(f"a path into the key needs key_format: one of {', '.join(formats.FORMATS)}")
        self._precedence = table.get("precedence", 0) << PRECEDENCE_BITS

    def lacking(self, value: bytes | None, key: bytes | None, headers: Headers) -> list[SchemaId]:
        """Return the ids of schemas that have to be loaded before a record is read."""
        # A value that is too long is not read, not even for its schema.
        found = [] if not value or len(value) > self._longest else [self._format.lacking(value, headers)]
        if key and self._key is not None and len(key) <= self._longest_key:
            found.append(self._key.lacking(key, headers))
        return [schema for schema in found if schema is not None]

    def read(
        self, value: bytes | None, key: bytes | None, headers: Headers, topic: str, timestamp: int
    ) -> dict[str, Any] | Refusal:
        """Return the fields of a record by name, or why it is refused.

        ``carried``: headers and fields for its answer.

        Missing fields are left out, and the decoder reports them. Values have the types of JSON.

        ``value``, ``key``, ``headers``, ``topic`` and ``timestamp``: those of the record; the timestamp is Kafka's, ms.
        """
        envelope: Envelope | None = None
        record: Any = None
        try:
            if value is not None and len(value) > self._longest:
                raise Unfit("oversized", f"the value has {len(value)} bytes, more than {self._longest}")
            try:
                record = _loads(value) if self._is_json and value else self.decoded(value, headers)
            except orjson.JSONDecodeError:  # mostly there is a frame before the value
                record = self.decoded(value, headers)
            if type(record) is not dict:
                raise Unfit("not_object", f"the value is not an object: {short(record)}")
            said: Any = key
            if key is not None and self._key is not None:
                said = self._decoded_key(self._key, key, headers)
            envelope = (said, headers, topic, timestamp)
            if self._passes is not None and not self._passes(record, envelope):
                return _FILTERED
            made: dict[str, Any] = {}
            for name, read, (place, kind, low, width, labels) in self._fields:
                found: Any = record.get(place) if kind else None
                if kind == TEXT and type(found) is str:
                    made[name] = found
                    continue
                found = taken(found, kind, low, width, labels) if kind > TEXT else None
                if found is None:
                    found = read(record, envelope)
                if found is not None:
                    made[name] = found
            self._add(made, record, envelope)
        except Unfit as exc:
            reason, why = exc.args
            return Refusal(reason, why, self._left(record, envelope))
        return made

    def decoded(self, value: bytes | None, headers: Headers) -> Any:  # noqa: ANN401 - whatever it says
        """Decode a value without mapping it; raises Unfit if it is not of the format."""
        if value is None:
            raise Unfit(PASSED, "the record has no value: it is a tombstone")
        if not value:
            raise Unfit("empty", "the value has no bytes")
        return self._decode(value, headers)

    def _decoded_key(self, of: formats.Format, key: bytes, headers: Headers) -> Any:  # noqa: ANN401 - whatever it says
        if len(key) > self._longest_key:
            raise Unfit("oversized", f"the key has {len(key)} bytes, more than {self._longest_key}")
        return of.decode(key, headers)

    def _add(self, made: dict[str, Any], record: dict[str, Any], envelope: Envelope) -> None:
        """Add the revision number that a precedence gives, and what is carried."""
        if self._precedence:
            made["revision"] = self._revision(made.get("revision"), made.get("ts", envelope[3]))
        if self._carries or (envelope[1] and self._carries_headers):
            carried = self.carrier.of(record, envelope)
            if carried is not None:
                made["carried"] = carried

    def _left(self, record: Any, envelope: Envelope | None) -> dict[str, Any] | None:  # noqa: ANN401 - what was decoded
        """Return the readable fields of a forecast in which others are unreadable."""
        if not self._forecasts or envelope is None:
            return None
        made: dict[str, Any] = {}
        for name, read, _ in self._fields:
            try:
                found = read(record, envelope)
            except Unfit:
                continue
            if found is not None:
                made[name] = found
        carried = self.carrier.of(record, envelope)
        if carried is not None:
            made["carried"] = carried
        return made

    def _revision(self, number: Any, ts: int) -> int:  # noqa: ANN401 - whatever stands there
        """Return a revision number. By it, the higher precedence wins, then the record's own number or its second."""
        if number is None:
            number = ts // 1000 - PRECEDENCE_SECONDS
            if not 0 <= number < 1 << PRECEDENCE_BITS:
                raise Unfit("timestamp", f"ts {ts} ms has no place beside a precedence: is its unit another one?")
        if type(number) is not int or not 0 <= number < 1 << PRECEDENCE_BITS:
            raise Unfit("revision", f"revision {short(number)} has no place beside a precedence")
        return int(self._precedence | number)


_FILTERED: Final = Refusal(PASSED, "when does not hold")


def _filters(table: Spec, reference: Callable[[Spec], Read]) -> Passes | None:
    """Return a test, made from ``when``, whether a record belongs to the source; None if all records do.

    Raises ValueError if it is not a table of filters.

    ``table``: what is wanted, by reference: a value, a list of values, or a table of ``not``, ``exists``, ``min``,
      ``max``.
    ``reference``: compiles references.
    """
    if table is None:
        return None
    if not isinstance(table, dict):
        raise ValueError('when is a table such as { type = "score", status = ["final", "settled"] }')  # noqa: TRY004 - one kind of error for configuration
    tests = [(reference(path), _test(path, wanted)) for path, wanted in table.items()]

    def passes(record: Any, envelope: Envelope) -> bool:  # noqa: ANN401 - whatever stands there
        return all(test(read(record, envelope)) for read, test in tests)

    return passes


def _test(path: str, wanted: Spec) -> Callable[[Any], bool]:
    """Return a test whether a value equals one value or one of several, or passes a table of tests."""
    if not isinstance(wanted, dict):
        among = wanted if isinstance(wanted, list) else [wanted]
        if not all(type(one) in (str, int, float, bool) for one in among):
            raise ValueError(f"when: {path} is compared with text, numbers or truth values, got {wanted!r}")
        known = {_compared(one) for one in among}
        return lambda found: _compared(found) in known
    tests = [_named(path, name, given) for name, given in only(wanted, "not", "exists", "min", "max").items()]
    return lambda found: all(test(found) for test in tests)


def _named(path: str, name: str, given: Spec) -> Callable[[Any], bool]:
    if name == "not":
        same = _test(path, given)
        return lambda found: not same(found)
    if name == "exists":
        if type(given) is not bool:
            raise ValueError(f"when: exists of {path} is true or false, got {given!r}")
        return lambda found: (found is not None) is given
    if type(given) not in (int, float):
        raise ValueError(f"when: {name} of {path} is a number, got {given!r}")
    sign = 1 if name == "min" else -1
    return lambda found: type(found) in (int, float) and sign * found >= sign * given


def _compared(value: Any) -> object:  # noqa: ANN401 - whatever stands there
    """Return a value in the form in which it is compared: numbers by value, others by text, so that true is not 1."""
    if type(value) in (int, float):
        return value
    return text(value)
