"""Values of output records read back, JSON or Avro: whoever reads ``calibrated`` or ``resolved`` reads both.

Which it is, each value says: one in Avro begins with the byte 0, which no JSON does. So a topic may hold both.
"""

import asyncio
import io
from collections.abc import Iterable
from typing import Any, Final

import fastavro
import orjson

from streams.records.output_avro import SCHEMAS, datum, payload, record
from streams.sources import framing
from streams.sources.avro import parse_fetched
from streams.sources.refusal import Unfit
from streams.sources.registry import Registry, RegistryError
from streams.sources.schemas import Schemas

_FRAME: Final = 5


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
        #: By id the schema, or why it is none of trueup's.
        self._parsed: dict[int, Any] = {}

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
        """Return the fields of a record as they stand in JSON; in Avro all that it carries is text.

        Raises
        ------
        ValueError
            If it is no record of trueup's.
        RegistryError
            As `load`.
        """
        number = _named(value)
        if number is None:
            found = orjson.loads(value)
        else:
            schema, data = self._schema(number), io.BytesIO(value[_FRAME:])
            try:
                found = record(fastavro.schemaless_reader(data, schema, None))  # type: ignore[arg-type]
            except Exception as exc:
                raise ValueError(f"the value is not of its Avro schema: {exc!r}") from exc
            if data.read(1):
                raise ValueError("bytes follow the record")
        if not isinstance(found, dict):
            raise ValueError("the value is no object")  # noqa: TRY004 - one kind of error for what is read
        return found

    def json(self, value: bytes) -> bytes:
        """Return a value in JSON, which is as it came if it was that; raises as `fields`."""
        return value if _named(value) is None else orjson.dumps(self.fields(value))

    def same(self, value: bytes | None, derived: bytes) -> bool:
        """Whether a value is, to the last bit, what a worker writes for a record that is given in JSON."""
        number = None if value is None else _named(value)
        if value is None or number is None:
            return value == derived
        try:
            return value[_FRAME:] == payload(self._schema(number), orjson.loads(derived))
        except ValueError:
            return False

    def compared(self, value: bytes | None, derived: bytes) -> dict[str, tuple[Any, Any]]:
        """Return the fields in which a value and a record in JSON differ, and what each has; see `compared`."""
        if _named(value or b"") is None:
            return compared(value, derived)
        try:
            differing = _differing(self.fields(value or b""), record(datum(orjson.loads(derived))))
        except ValueError:
            return {"value": (repr(value), derived.decode())}
        return differing or {"bytes": (repr(value), repr(derived))}

    def bare(self, value: bytes) -> bytes:
        """Return a value in Avro as a worker of this version writes it, but for the schema's id; it begins with a 0.

        Raises
        ------
        ValueError
            If it is not, to the last bit, what a worker writes.
        RegistryError
            As `load`.
        """
        found = self.fields(value)
        if payload(self._schema(int.from_bytes(value[1:_FRAME], "big")), found) != value[_FRAME:]:
            raise ValueError("the value is not as a worker writes it")
        return bare(found)

    def _schema(self, number: int) -> Any:  # noqa: ANN401 - fastavro's
        found = self._parsed.get(number)
        if found is None:
            if self._schemas.lacks(number):
                asyncio.run(self.load([b"\0" + number.to_bytes(4, "big")]))
            try:
                found = self._parsed[number] = _ours(parse_fetched(number, self._schemas.get(number)))
            except Unfit as exc:
                raise ValueError(exc.args[1]) from None
        return found


def bare(answer: dict[str, Any]) -> bytes:
    """Return what `OutputValues.bare` does of an answer that is given as its JSON record."""
    return b"\0" + payload(SCHEMAS["calibrated"], answer)


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


def _ours(schema: Any) -> Any:  # noqa: ANN401 - fastavro's
    """Return a schema if it is one of trueup's, or an older one of fewer fields; raises ValueError if not."""
    name = schema.get("name") if isinstance(schema, dict) else None
    for ours in SCHEMAS.values():
        if ours["name"] == name:
            types = {field["name"]: _bare(field["type"]) for field in ours["fields"]}
            if all(types.get(field["name"]) == _bare(field["type"]) for field in schema["fields"]):
                return schema
    raise ValueError(f"the schema {name} is none of trueup's outputs")


def _bare(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a schema without what it says to people."""
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _bare(value) for name, value in schema.items() if name != "doc"}
