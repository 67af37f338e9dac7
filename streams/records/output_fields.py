"""Fields of output records where a format has a field for each kind of forecast; runs once an event, and is compiled.

`streams.records.output_schemas` says how they differ from those in JSON.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from streams.records.output_schemas import NULLED

#: Forecasts that are no single probability: their keys in JSON, and what the names of their fields end in.
_LIST, _LEVELS, _MEAN = "probs", "quantiles", "normal"
#: Largest whole number that a label is written as one in JSON.
_WHOLE: Final = 2.0**53


def heads(ids: Mapping[str, int]) -> dict[str, bytes]:
    """Return what stands before the values of each topic: the byte 0 and the id of their schema, 4 bytes big-endian.

    Parameters
    ----------
    ids
        Of the schemas in the registry, by the labels of the topics.
    """
    return {label: b"\0" + number.to_bytes(4, "big") for label, number in ids.items()}


def datum(record: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a JSON record as they stand in Avro and Protobuf; what is not there is null.

    Examples
    --------
    >>> datum({"event_id": "e", "raw": [0.5, 0.5], "carried": {"lane": "a", "n": 1}})
    {'event_id': 'e', 'carried': {'lane': 'a', 'n': '1'}, 'raw_probs': [0.5, 0.5]}
    """
    made = dict(record)
    for name in ("raw", "draw"):
        value = made.get(name)
        if isinstance(value, list):
            made[f"{name}_{_LIST}"] = made.pop(name)
        elif isinstance(value, dict):
            made[f"{name}_{_LEVELS if 'levels' in value else _MEAN}"] = made.pop(name)
    carried = made.get("carried")
    if carried is not None:
        made["carried"] = texts(carried)
    return made


def record(datum: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON record of what was read as Avro or Protobuf, what it carries as texts.

    Examples
    --------
    >>> record({"event_id": "e", "raw": None, "raw_probs": [0.5, 0.5], "p": None, "y": 1.0, "calibrated": True})
    {'event_id': 'e', 'y': 1, 'raw': [0.5, 0.5]}
    """
    made = {name: value for name, value in datum.items() if value is not None or name == NULLED}
    for name in ("raw", "draw"):
        for kind in (_LIST, _LEVELS, _MEAN):
            if f"{name}_{kind}" in made:
                made[name] = made.pop(f"{name}_{kind}")
    if made.get("calibrated") is True:
        del made["calibrated"]
    y = made.get("y")
    if type(y) is float and abs(y) <= _WHOLE and y == int(y):
        made["y"] = int(y)
    return made


def texts(carried: dict[str, Any]) -> dict[str, str]:
    """Return what is carried as texts: text as it is, all else as JSON text."""
    return {name: value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in carried.items()}
