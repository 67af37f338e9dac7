"""Avro: values after the id of their schema in a registry, or values of one schema that the source gives.

fastavro's reader in C has no guard. A value of a schema that refers to itself ends the process if it nests some
thousand levels, and 16 bytes can stand for two billion nulls. So `_check` refuses schemas whose values have no bound.
"""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from streams.sources import flat, framing
from streams.sources.references import Headers
from streams.sources.refusal import Unfit
from streams.sources.registry import AVRO, SchemaId
from streams.sources.schemas import KnownSchemas, Schemas

#: The most levels of objects and lists in a value. The same holds for Protobuf.
LEVELS: Final = 100
_ENDLESS: Final = float("inf")
_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
#: First bytes of a single-object encoding, and the length of its head (Avro 1.11, *Single-object encoding*).
_SINGLE, _HEAD = b"\xc3\x01", 10
#: First bytes of an object container file (Avro 1.11, *Object Container Files*).
_CONTAINER: Final = b"Obj\x01"
_BytesIO: Final = io.BytesIO
#: A schema that is not a record is read as a record with one field of this name, which has the same bytes.
_WHOLE: Final = "trueup.Whole"


class Parsed(NamedTuple):
    """A schema as fastavro takes it, and the reader of its values, whose last argument is None.

    ``fields``: its fields, if `streams.sources.flat` can read its values.
    """

    read: Callable[[io.BytesIO, Any, None], Any]
    schema: Any
    fields: flat.Flat | None = None


class Avro:
    """Avro values.

    A ``timestamp-millis`` becomes a number of ms. Other logical types become what fastavro makes of them: datetime,
    Decimal, UUID.

    Raises ValueError if a schema is invalid.

    ``schema``: JSON of the schema of all values, or of several, of which each value has one; values then have no id.
      None: each value names its own. In the single-object encoding, the fingerprint (CRC-64-AVRO of the parsing
      canonical form) tells the schema of a value. For any other value, exactly one schema must fit all bytes.
    ``header``: name of the header that may hold the id.
    """

    def __init__(self, schema: str | Sequence[str] | None, schemas: Schemas, header: str) -> None:
        self._header = header
        self._parsed = KnownSchemas(schemas, AVRO, lambda fetched: parsed(fetched.text, fetched.references))
        #: The schemas that the source gives, by their fingerprints.
        self._fixed = None if schema is None else _by_fingerprint([schema] if isinstance(schema, str) else schema)

    def lacking(self, data: bytes, headers: Headers) -> SchemaId | None:
        """Return the id of a schema that has to be loaded before; None if there is none."""
        return None if self._fixed is not None else self._parsed.lacking(framing.schema_of(data, headers, self._header))

    def decode(self, data: bytes, headers: Headers) -> Any:  # noqa: ANN401 - whatever it says
        """Return what bytes mean; see `streams.sources.formats.Format`."""
        if self._fixed is not None:
            return _of_files(self._fixed, data)
        if headers or data[:1] != b"\0" or len(data) < 5:
            named, _, payload = framing.split(data, headers, self._header, placed=False)
        else:
            named, payload = int.from_bytes(data[1:5], "big"), data[5:]
        return _read(self._parsed[named], payload)


def _by_fingerprint(schemas: Sequence[str]) -> dict[bytes, Parsed]:
    found = {}
    for text in schemas:
        made = parsed(text, ())
        found[bytes.fromhex(fingerprint(to_parsing_canonical_form(json.loads(text)), "CRC-64-AVRO"))] = made
    return found


def _read(made: Parsed, payload: bytes, misfit: str = "format") -> Any:  # noqa: ANN401 - whatever it says
    """Decode a payload. Raises Unfit, with the reason, unless the schema fits the whole payload."""
    if made.fields is not None and (said := flat.read(made.fields, payload)) is not None:
        return said
    source = _BytesIO(payload)
    try:
        found = made.read(source, made.schema, None)
    except Exception as exc:  # noqa: BLE001 - fastavro may raise any error
        why = "its bytes end before it does" if isinstance(exc, EOFError) else str(exc) or type(exc).__name__
        raise Unfit(misfit, f"the value is not of its Avro schema: {why}") from None
    if left := len(payload) - source.tell():
        raise Unfit(misfit, f"the value is not of its Avro schema: {left} of its {len(payload)} bytes are left over")
    return found


def _of_files(schemas: Mapping[bytes, Parsed], data: bytes) -> Any:  # noqa: ANN401 - whatever it says
    """Decode a value by the schemas of the source's files; raises Unfit unless exactly one fits."""
    if data.startswith(_SINGLE) and len(data) >= _HEAD:
        # A plain record may also begin with these bytes: one in 65,536 whose first field is a double. It becomes a dead
        # letter: read as plain, a record of another schema could be taken for one.
        made = schemas.get(data[2:_HEAD])
        if made is None:
            known = ", ".join(each.hex() for each in schemas)
            raise Unfit(
                "schema",
                f"the value names its schema by the fingerprint {data[2:_HEAD].hex()}, and schema_file has {known}: "
                'add the file of that schema, as in schema_file = ["v1.avsc", "v2.avsc"]',
            )
        return _read(made, data[_HEAD:])
    found: list[Any] = []
    misfit = Unfit("schema", "")
    for made in schemas.values():
        try:
            said = _read(made, data, "schema")
        except Unfit as exc:
            misfit = exc
        else:
            found += [] if said in found else [said]
    if len(found) == 1:
        return found[0]
    if found:
        raise Unfit(
            "schema",
            f"{len(found)} schemas of schema_file fit the value, and each reads it in another way: write records "
            "in the single-object encoding or with a schema registry, or leave one file out",
        )
    if data.startswith(_CONTAINER):
        raise Unfit(
            "format", "the value is an Avro object container file, which holds many records: give one record of it"
        )
    raise Unfit(
        "schema",
        f"{misfit.args[1]}. If it was written by another schema, add that file, as in "
        'schema_file = ["v1.avsc", "v2.avsc"]',
    )


def parsed(text: str, references: tuple[tuple[str, str], ...]) -> Parsed:
    """Return a schema. Raises ValueError if the text is not a schema, or if its values would have no bound."""
    named: dict[str, Any] = {}
    try:
        for _, each in references:
            fastavro.parse_schema(_plain(json.loads(each)), named)
        schema = fastavro.parse_schema(_plain(json.loads(text)), named)
        _check(schema, named)
        if references and not (isinstance(schema, dict) and "fields" in schema):
            field = {"name": "value", "type": schema}
            whole = fastavro.parse_schema({"type": "record", "name": _WHOLE, "fields": [field]}, named)
            return Parsed(_read_whole, whole)
    except Exception as exc:
        raise ValueError(f"it is not an Avro schema: {exc!r}") from exc
    return Parsed(fastavro.schemaless_reader, schema, flat.flat(schema) if flat.COMPILED else None)


def _read_whole(source: io.BytesIO, schema: Any, none: None) -> Any:  # noqa: ANN401 - whatever it says
    """Read a value as the only field of a record: in a plain union, fastavro loses the named types."""
    return fastavro.schemaless_reader(source, schema, none)["value"]  # type: ignore[call-overload,index]


def _plain(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a schema whose times in ms are plain numbers. A logical type takes fastavro 2 us a value."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = ("type", "fields", "items", "values")
    kept = {name: _plain(value) if name in inner else value for name, value in schema.items()}
    if kept.get("logicalType") == "timestamp-millis":
        del kept["logicalType"]
    return kept


def _check(schema: Any, named: Mapping[str, Any]) -> None:  # noqa: ANN401 - fastavro's
    """Raise ValueError if values may nest deeper than `LEVELS`, or a list may have more items than bytes.

    ``schema`` and ``named``: a schema as fastavro parsed it, and all schemas by their full names.
    """
    levels, _ = _measured(schema, named, {})
    if levels > LEVELS:
        raise ValueError(f"its values may nest deeper than {LEVELS} levels")


def _measured(schema: Any, named: Mapping[str, Any], known: dict[str, tuple[float, bool]]) -> tuple[float, bool]:  # noqa: ANN401 - as above
    """Return the deepest nesting of objects and lists in a schema's values, and whether values may take no bytes."""
    if isinstance(schema, str):
        return (0, schema == "null") if schema in _PRIMITIVES else _measured(named[schema], named, known)
    if isinstance(schema, list):  # at least one byte says which branch a value has
        return max((_measured(each, named, known)[0] for each in schema), default=0), False
    kind = schema["type"]
    if kind in ("record", "error"):
        name = schema["name"]
        if name not in known:
            known[name] = _ENDLESS, False  # until it is known: a type that meets itself now is recursive
            fields = [_measured(each["type"], named, known) for each in schema["fields"]]
            known[name] = 1 + max((levels for levels, _ in fields), default=0), all(empty for _, empty in fields)
        return known[name]
    if kind in ("array", "map"):
        levels, empty = _measured(schema["items" if kind == "array" else "values"], named, known)
        if empty and kind == "array":
            raise ValueError("an array's items may take no bytes, so any number of them fits into a value")
        return 1 + levels, False
    return 0, kind == "null" or (kind == "fixed" and schema["size"] < 1)
