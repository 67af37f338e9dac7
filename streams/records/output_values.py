"""Values of output records read back, in every format: whoever reads ``calibrated`` or ``resolved`` reads them all.

Which it is, each value says: all but plain JSON begin with the byte 0, which no JSON does, and the id of a schema, of
which the registry says the kind. So a topic may hold all formats.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from streams.records import output_avro, output_protobuf
from streams.records.output_avro import SCHEMAS
from streams.records.output_protobuf import CLASSES
from streams.records.output_schemas import NAMES, json_schema
from streams.sources import avro, framing, protobuf
from streams.sources.refusal import Unfit
from streams.sources.registry import JSON, PROTOBUF, Fetched, Registry, RegistryError
from streams.sources.schemas import Schemas

_FRAME: Final = 5
#: What Avro and JSON Schema say to people.
_SAID: Final = ("doc", "description")


class _Form(NamedTuple):
    """How the values of one schema are read and written, without what stands before them.

    Attributes
    ----------
    fields
        Returns the fields of a value as they stand in JSON; raises ValueError if it is not of the schema.
    written
        Returns the value that a worker writes for a record in JSON; raises ValueError if it is not of the schema.
    bare
        Returns the same of an answer's fields under this version's schema, behind a 0; None: a value is JSON.
    """

    fields: Callable[[bytes], Any]
    written: Callable[[bytes], bytes]
    bare: Callable[[dict[str, Any]], bytes] | None = None


class OutputValues:
    """Reads values of ``calibrated`` and ``resolved``.

    Parameters
    ----------
    registry
        Where schemas are asked for; each once, and waited for.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._schemas = Schemas(registry)
        self._forms: dict[int, _Form] = {}

    async def load(self, values: Iterable[bytes | None]) -> None:
        """Load the schemas that values name, for `fields` and `same` to be called where a loop runs.

        Raises
        ------
        RegistryError
            If one names a schema, and there is no registry.
        """
        named = {number for value in values if value and (number := _named(value)) is not None}
        lacking = [number for number in named if self._schemas.lacks(number)]
        if lacking:
            if self._registry.url is None:
                raise RegistryError(f"records name the schema {lacking[0]} of a registry: set TRUEUP_REGISTRY_URL")
            await self._schemas.load(lacking)

    def fields(self, value: bytes) -> dict[str, Any]:
        """Return the fields of a record as they stand in JSON; in Avro and Protobuf all that it carries is text.

        Raises
        ------
        ValueError
            If it is no record of trueup's.
        RegistryError
            As `load`.
        """
        form = self._form(value)
        found = orjson.loads(value) if form is None else form.fields(value[_FRAME:])
        if not isinstance(found, dict):
            raise ValueError("the value is no object")  # noqa: TRY004 - one kind of error for what is read
        return found

    def json(self, value: bytes) -> bytes:
        """Return a value in JSON, which is as it came if it was that; raises as `fields`."""
        return value if _named(value) is None else orjson.dumps(self.fields(value))

    def same(self, value: bytes | None, derived: bytes) -> bool:
        """Whether a value is, to the last bit, what a worker writes for a record that is given in JSON."""
        if value is None or _named(value) is None:
            return value == derived
        try:
            form = self._form(value)
            return form is not None and value[_FRAME:] == form.written(derived)
        except ValueError:
            return False

    def compared(self, value: bytes | None, derived: bytes) -> dict[str, tuple[Any, Any]]:
        """Return the fields in which a value and a record in JSON differ, and what each has; see `compared`."""
        given = value or b""
        try:
            form = self._form(given)
            if form is None:
                return compared(value, derived)
            differing = _differing(self.fields(given), form.fields(form.written(derived)))
        except ValueError:
            return {"value": (repr(value), derived.decode())}
        return differing or {"bytes": (repr(value), repr(derived))}

    def bare(self, value: bytes) -> bytes:
        """Return an answer with a schema as a worker of this version writes it, but for the schema's id.

        In Avro and Protobuf it begins with a 0; behind the id of a JSON Schema stands what plain JSON is.

        Raises
        ------
        ValueError
            If it is not, to the last bit, what a worker writes.
        RegistryError
            As `load`.
        """
        found, form = self.fields(value), self._form(value)
        if form is None or form.bare is None:
            return value if form is None else value[_FRAME:]
        if form.written(orjson.dumps(found)) != value[_FRAME:]:
            raise ValueError("the value is not as a worker writes it")
        return form.bare(found)

    def _form(self, value: bytes) -> _Form | None:
        """Return the form of a value; None if it is plain JSON. Raises as `fields`."""
        number = _named(value)
        if number is None:
            return None
        found = self._forms.get(number)
        if found is None:
            if self._schemas.lacks(number):
                asyncio.run(self.load([value]))
            try:
                found = self._forms[number] = _form(number, self._schemas.get(number))
            except Unfit as exc:
                raise ValueError(exc.args[1]) from None
        return found


def packed(answer: dict[str, Any]) -> list[bytes]:
    """Return what `OutputValues.bare` does of an answer that is given as its JSON record, in Avro and in Protobuf."""
    return [_bare_avro(answer), _bare_protobuf(answer)]


def _bare_avro(answer: dict[str, Any]) -> bytes:
    return b"\0" + output_avro.payload(SCHEMAS["calibrated"], answer)


def _bare_protobuf(answer: dict[str, Any]) -> bytes:
    return b"\0" + output_protobuf.payload(CLASSES["calibrated"], answer)


def compared(value: bytes | None, derived: bytes) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which two values in JSON differ, and what each has; None for a field that is not there.

    A value that is not a JSON object counts as one field.
    """
    try:
        differing = _differing(orjson.loads(value or b""), orjson.loads(derived))
    except (ValueError, TypeError, AttributeError):
        return {"value": (repr(value), derived.decode())}
    return differing or {"bytes": (repr(value), repr(derived))}


def _differing(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = [*other, *(name for name in one if name not in other)]
    return {name: (one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)}


def _named(value: bytes) -> int | None:
    """Return the id of the schema that a value names; None if it names none."""
    named = framing.schema_of(value, (), "")
    return named if isinstance(named, int) else None


def _form(number: int, fetched: Fetched | None) -> _Form:
    """Return how values of a schema are read and written.

    Raises
    ------
    ValueError
        If the schema is neither one of trueup's nor an older one of fewer fields.
    Unfit
        If there is none, or it cannot be read.
    """
    if fetched is not None and fetched.kind == JSON:
        _check_json(fetched.text)
        return _Form(orjson.loads, bytes)
    if fetched is not None and fetched.kind == PROTOBUF:
        made = protobuf.parse_fetched(number, fetched, (0,))
        if not output_protobuf.ours(made):
            raise _none_of_ours(made.DESCRIPTOR.full_name)
        read, write, bare = output_protobuf.fields, output_protobuf.payload, _bare_protobuf
        return _Form(partial(read, made), lambda derived: write(made, orjson.loads(derived)), bare)
    schema = _ours(avro.parse_fetched(number, fetched).schema)
    return _Form(
        partial(output_avro.fields, schema),
        lambda derived: output_avro.payload(schema, orjson.loads(derived)),
        _bare_avro,
    )


def _none_of_ours(name: object) -> ValueError:
    return ValueError(f"the schema {name} is none of trueup's outputs")


def _ours(schema: Any) -> Any:  # noqa: ANN401 - fastavro's
    """Return an Avro schema if it is one of trueup's, or an older one of fewer fields; raises ValueError if not."""
    name = schema.get("name") if isinstance(schema, dict) else None
    for ours in SCHEMAS.values():
        if ours["name"] == name:
            types = {field["name"]: _bare(field["type"]) for field in ours["fields"]}
            if all(types.get(field["name"]) == _bare(field["type"]) for field in schema["fields"]):
                return schema
    raise _none_of_ours(name)


def _check_json(text: str) -> None:
    """Raise ValueError unless a JSON Schema is one of trueup's, or an older one of fewer fields."""
    schema = json.loads(text)
    name = schema.get("title") if isinstance(schema, dict) else None
    for ours in map(json_schema, NAMES):
        types = {field: _bare(kind) for field, kind in ours["properties"].items()}
        if ours["title"] == name and all(
            types.get(field) == _bare(kind) for field, kind in schema.get("properties", {}).items()
        ):
            return
    raise _none_of_ours(name)


def _bare(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a schema without what it says to people."""
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _bare(value) for name, value in schema.items() if name not in _SAID}
