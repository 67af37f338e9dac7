"""Schemas of Avro whose values have no bound: they nest without end, or lists have items of no bytes.

fastavro's reader in C has no guard: a value of a schema that refers to itself ends the process where it nests some
thousand levels, and 16 bytes make two billion nulls.
"""

from collections.abc import Mapping
from typing import Any, Final

#: Most levels of objects and lists of a value; a value of Protobuf may have as many.
LEVELS: Final = 100
_ENDLESS: Final = float("inf")
_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def check(schema: Any, named: Mapping[str, Any]) -> None:  # noqa: ANN401 - fastavro's
    """Raise ValueError if values may nest deeper than `LEVELS`, or a list may have more items than bytes.

    ``schema`` and ``named``: a schema as fastavro parsed it, and all schemas by their full names.
    """
    levels, _ = _measured(schema, named, {})
    if levels > LEVELS:
        raise ValueError(f"its values may nest deeper than {LEVELS} levels")


def _measured(schema: Any, named: Mapping[str, Any], known: dict[str, tuple[float, bool]]) -> tuple[float, bool]:  # noqa: ANN401 - as above
    """Return how many levels of objects and lists a value may nest, and whether it takes no bytes."""
    if isinstance(schema, str):
        return (0, schema == "null") if schema in _PRIMITIVES else _measured(named[schema], named, known)
    if isinstance(schema, list):  # a byte at least says which of them a value is of
        return max((_measured(each, named, known)[0] for each in schema), default=0), False
    kind = schema["type"]
    if kind in ("record", "error"):
        name = schema["name"]
        if name not in known:
            known[name] = _ENDLESS, False  # as long as it is not known: who meets it now is within it
            fields = [_measured(each["type"], named, known) for each in schema["fields"]]
            known[name] = 1 + max((levels for levels, _ in fields), default=0), all(empty for _, empty in fields)
        return known[name]
    if kind in ("array", "map"):
        levels, empty = _measured(schema["items" if kind == "array" else "values"], named, known)
        if empty and kind == "array":
            raise ValueError("an array's items may take no bytes, so any number of them fits into a value")
        return 1 + levels, False
    return 0, kind == "null" or (kind == "fixed" and schema["size"] < 1)
