"""Reads records of the outputs ``calibrated`` and ``resolved``, in JSON and Avro.

Avro begins with the byte 0, which no JSON does, and the id of its schema. So a topic may hold both.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import orjson

from streams.records.output_avro import SCHEMAS, fields, payload
from streams.sources import avro, framing
from streams.sources.refusal import Unfit
from streams.sources.registry import AVRO, Fetched, Registry, RegistryError
from streams.sources.schemas import KnownSchemas, Schemas

_FRAME: Final = 5


class OutputValues:
    """Reads values of ``calibrated`` and ``resolved``.

    ``registry``: gives the schemas. Each is requested once, and waited for.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._schemas = Schemas(registry)
        self._parsed = KnownSchemas(self._schemas, AVRO, _avro)

    async def load(self, values: Iterable[bytes | None]) -> None:
        """Load the schemas that values name. After that, `fields` and `same` may be called inside an event loop.

        Raises RegistryError if a value names a schema but there is no registry.
        """
        named = {number for value in values if value and (number := _named(value)) is not None}
        lacking = [number for number in named if self._schemas.lacks(number)]
        if lacking:
            if self._registry.url is None:
                raise RegistryError(f"records name the schema {lacking[0]} of a registry: set TRUEUP_REGISTRY_URL")
            await self._schemas.load(lacking)

    def fields(self, value: bytes) -> dict[str, Any]:
        """Return the fields of a record as in JSON. In Avro, all carried values are texts.

        Raises ValueError if it is not one of trueup's records.
        Raises RegistryError as `load`.
        """
        schema = self._schema(value)
        found = orjson.loads(value) if schema is None else fields(schema, value[_FRAME:])
        if not isinstance(found, dict):
            raise ValueError("the value is not an object")  # noqa: TRY004 - one kind of error for unreadable values
        return found

    def json(self, value: bytes) -> bytes:
        """Return a value as JSON, unchanged if it is JSON already; raises as `fields`."""
        return value if _named(value) is None else orjson.dumps(self.fields(value))

    def same(self, value: bytes | None, derived: bytes) -> bool:
        """Whether a value equals, to the last bit, what a worker writes for a given JSON record."""
        if value is None or _named(value) is None:
            return value == derived
        try:
            return value[_FRAME:] == payload(self._schema(value), orjson.loads(derived))
        except ValueError:
            return False

    def compared(self, value: bytes | None, derived: bytes) -> dict[str, tuple[Any, Any]]:
        """Return the fields in which a value and a JSON record differ, with both contents; see `compared`."""
        try:
            schema = self._schema(value or b"")
        except ValueError:
            return {"value": (repr(value), derived.decode())}
        return compared(value, derived, schema)

    def bare(self, value: bytes) -> bytes:
        """Return an answer as a worker of this version writes it, without the id of the schema: the byte 0, the record.

        Raises ValueError if the answer is not, to the last bit, what a worker writes. Raises RegistryError as `load`.
        """
        found, schema = self.fields(value), self._schema(value)
        if schema is None:
            return value
        if payload(schema, found) != value[_FRAME:]:
            raise ValueError("the value is not as a worker writes it")
        return packed(found)

    def _schema(self, value: bytes) -> Any:  # noqa: ANN401 - fastavro's
        """Return the schema of a value; None if it is plain JSON. Raises as `fields`."""
        number = _named(value)
        if number is None:
            return None
        if number not in self._parsed and self._schemas.lacks(number):
            asyncio.run(self.load([value]))
        try:
            return self._parsed[number]
        except Unfit as exc:
            raise ValueError(exc.args[1]) from None


def packed(answer: dict[str, Any]) -> bytes:
    """Return the same as `OutputValues.bare`, for an answer that is given as a JSON record."""
    return b"\0" + payload(SCHEMAS["calibrated"], answer)


def compared(value: bytes | None, derived: bytes, schema: Any = None) -> dict[str, tuple[Any, Any]]:  # noqa: ANN401 - fastavro's
    """Return the fields in which a value and a JSON record differ, with both contents; None for a missing field.

    A value that is not a record counts as one field.

    ``schema``: Avro schema of the value; None: it is JSON.
    """
    given = value or b""
    try:
        other = orjson.loads(derived)
        if schema is None:
            one = orjson.loads(given)
        else:
            one, other = fields(schema, given[_FRAME:]), fields(schema, payload(schema, other))
        names = [*other, *(name for name in one if name not in other)]
        differing = {name: (one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)}
    except (ValueError, TypeError, AttributeError):
        return {"value": (repr(value), derived.decode())}
    return differing or {"bytes": (repr(value), repr(derived))}


def _named(value: bytes) -> int | None:
    """Return the id of the schema that a value names; None if it does not name one."""
    named = framing.schema_of(value, (), "")
    return named if isinstance(named, int) else None


def _avro(fetched: Fetched) -> Any:  # noqa: ANN401 - fastavro's
    return _ours(avro.parsed(fetched.text, fetched.references).schema)


def _ours(schema: Any) -> Any:  # noqa: ANN401 - fastavro's
    """Return an Avro schema if it is trueup's, or an older one with fewer fields; otherwise raise ValueError."""
    name = schema.get("name") if isinstance(schema, dict) else None
    for ours in SCHEMAS.values():
        if ours["name"] == name:
            types = {field["name"]: _bare(field["type"]) for field in ours["fields"]}
            if all(types.get(field["name"]) == _bare(field["type"]) for field in schema["fields"]):
                return schema
    raise ValueError(f"the schema {name} is not a schema of trueup's outputs")


def _bare(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a schema without its documentation."""
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _bare(value) for name, value in schema.items() if name != "doc"}
