"""What the bytes of an Avro value do not bound: how deep it nests, and how many items of no bytes a list has.

fastavro's reader in C has no guard: a value of a schema that refers to itself ends the process where it nests some
thousand levels, and 16 bytes make two billion nulls.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

#: Most levels of objects and lists of a value; Protobuf allows as many.
LEVELS: Final = 100
_ENDLESS: Final = float("inf")
_RECORDS: Final = ("record", "error")
_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class Bounds:
    """Bounds of values by their schemas, as fastavro parsed them.

    Parameters
    ----------
    named
        Schemas by their full names.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._levels: dict[str, float] = {}
        self._empty: dict[str, bool] = {}

    def levels(self, schema: Any) -> float:  # noqa: ANN401 - fastavro's
        """Return the most levels of objects and lists that a value nests; infinity if it may nest without end."""
        if isinstance(schema, list):
            return max(map(self.levels, schema), default=0)
        if isinstance(schema, str):
            return 0 if schema in _PRIMITIVES else self.levels(self._named[schema])
        if schema["type"] in _RECORDS:
            name = schema["name"]
            if name not in self._levels:
                self._levels[name] = _ENDLESS  # as long as it is not known: who meets it now is within it
                self._levels[name] = 1 + max((self.levels(each["type"]) for each in schema["fields"]), default=0)
            return self._levels[name]
        inner = {"array": "items", "map": "values"}.get(schema["type"])
        return 0 if inner is None else 1 + self.levels(schema[inner])

    def check(self, schema: Any) -> None:  # noqa: ANN401 - as above
        """Raise ValueError if a list may have more items than bytes. Look at each name by itself."""
        if isinstance(schema, list):
            for each in schema:
                self.check(each)
        elif isinstance(schema, dict):
            kind = schema["type"]
            if kind == "array" and self._takes_none(schema["items"]):
                raise ValueError("an array's items may take no bytes, so any number of them fits into a value")
            if kind in _RECORDS:
                for each in schema["fields"]:
                    self.check(each["type"])
            for inner in ("items", "values"):
                if inner in schema:
                    self.check(schema[inner])

    def _takes_none(self, schema: Any) -> bool:  # noqa: ANN401 - as above
        """Whether a value takes no bytes."""
        if isinstance(schema, list):
            return False  # a byte at least says which of them it is
        if isinstance(schema, str):
            return schema == "null" if schema in _PRIMITIVES else self._takes_none(self._named[schema])
        if schema["type"] not in _RECORDS:
            return bool(schema["type"] == "null" or (schema["type"] == "fixed" and schema["size"] < 1))
        name = schema["name"]
        if name not in self._empty:
            self._empty[name] = False  # a record that is within itself has no value at all
            self._empty[name] = all(self._takes_none(each["type"]) for each in schema["fields"])
        return self._empty[name]


def nests(value: Any, levels: int) -> bool:  # noqa: ANN401 - whatever was read
    """Whether objects and lists of a value nest deeper than so many levels."""
    within = [value]
    for _ in range(levels):
        within = [inner for each in within for inner in _items(each)]
        if not within:
            return False
    return any(isinstance(each, dict | list) for each in within)


def _items(value: Any) -> Iterable[Any]:  # noqa: ANN401 - as above
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
