"""Writes outputs in Avro: the byte 0, the id of the schema, the record. It runs once an event, and is compiled.

The record has the fields of the JSON record, see `datum`. Records of one probability, the usual ones, are packed here,
because fastavro takes 25 times as long. It writes all others. Tests require the same bytes from both.
"""

import io
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, cast

import fastavro
import orjson

from state.events import Calibrated, Resolved
from streams.records.limits import SCOPED
from streams.records.output_json import encode_calibrated, encode_resolved
from streams.records.output_schemas import NAMES, NULLED, after, text
from streams.sources.avro import parsed

_NULL, _SOME, _TRUE, _FALSE = b"\0", b"\2", b"\1", b"\0"
_THREE: Final = Struct("<BdBdBd")
_TWO: Final = Struct("<BdBd")
_ONE: Final = Struct("<d")
_LENGTHS: Final = [bytes((2 * n,)) for n in range(64)]
#: The end of a plain answer: it is calibrated, and all later fields are null. Then the same, up to `carried`. Then the
#: end of a joined forecast.
_PLAIN: Final = _TRUE + _NULL * after("calibrated", "calibrated")
_UNCARRIED: Final = _PLAIN[: -1 - after("calibrated", "carried")]
_VECTORS: Final = _NULL * after("resolved", "implied")
#: For forecasts that are not one probability: keys in JSON, and suffixes of the names of their fields.
_LIST, _LEVELS, _MEAN = "probs", "quantiles", "normal"
#: An integer label of at most this size is written without a fraction in JSON.
_WHOLE: Final = 2.0**53
#: The schemas as fastavro takes them, by label.
SCHEMAS: Final[dict[str, Any]] = {label: parsed(text(label), ()).schema for label in NAMES}


class AvroValues:
    """Makes values of output records, each after the byte 0 and the id of its schema (4 bytes, big-endian).

    ``ids``: ids of the schemas in the registry, by label of the topic.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._heads: dict[str, bytes] = {label: b"\0" + number.to_bytes(4, "big") for label, number in ids.items()}
        self._calibrated: bytes = self._heads.get("calibrated", b"")
        self._resolved: bytes = self._heads.get("resolved", b"")

    def calibrated(self, record: Calibrated) -> bytes:
        """Return the value of a ``calibrated`` record."""
        (
            _, event_id, stream, raw, p, draw, calibrator, config, version, ts, applied, carried, band, points,
            low, high, why,
        ) = record  # fmt: skip
        if type(p) is not float:
            return self.of_json("calibrated", encode_calibrated(record))
        name, _, scope = event_id.partition(SCOPED)
        return b"".join(
            (
                self._calibrated,
                _text(name),
                _SOME,
                _text(stream),
                _SOME + _text(scope) if scope else _NULL,
                _THREE.pack(2, cast("float", raw), 2, p, 2, cast("float", draw)),
                _SOME,
                _text(calibrator),
                _SOME,
                _text(config),
                _SOME,
                _long(version),
                _long(ts),
                _SOME,
                _long(applied),
                _PLAIN
                if not (band or points is not None or low is not None or (carried is not None and carried.fields))
                else _UNCARRIED
                + (_map(carried.fields) if carried is not None and carried.fields else _NULL)
                + (_SOME + _text(band) if band else _NULL)
                + (_NULL if points is None else _SOME + _long(points))
                + (_NULL * 2 if low is None else _TWO.pack(2, low, 2, cast("float", high)))
                + (_SOME + _text(why) if why else _NULL),
            )
        )

    def resolved(self, record: Resolved) -> bytes:
        """Return the value of a ``resolved`` record."""
        _, event_id, stream, raw, p, draw, y, calibrator, version, issued_ts, resolved_ts, revision, implied, _ = record
        if type(p) is not float:
            return self.of_json("resolved", encode_resolved(record))
        name, _, scope = event_id.partition(SCOPED)
        return b"".join(
            (
                self._resolved,
                _text(name),
                _text(stream),
                _SOME + _text(scope) if scope else _NULL,
                _THREE.pack(2, cast("float", raw), 2, p, 2, cast("float", draw)),
                _ONE.pack(y),
                _text(calibrator),
                _long(version),
                _long(issued_ts),
                _long(resolved_ts),
                _long(revision),
                _TRUE if implied else _FALSE,
                _VECTORS,
            )
        )

    def of_json(self, label: str, value: bytes) -> bytes:
        """Return the value of a record, given its JSON value."""
        return self._heads[label] + payload(SCHEMAS[label], orjson.loads(value))


def payload(schema: Any, record: dict[str, Any]) -> bytes:  # noqa: ANN401 - fastavro's
    """Return a JSON record as Avro, without byte 0 and id; raises ValueError if it does not fit the schema."""
    into = io.BytesIO()
    try:
        fastavro.schemaless_writer(into, schema, datum(record))
    except Exception as exc:
        raise ValueError(f"the record does not fit its Avro schema: {exc!r}") from exc
    return into.getvalue()


def fields(schema: Any, data: bytes) -> dict[str, Any]:  # noqa: ANN401 - fastavro's
    """Return the JSON record of what `payload` wrote; carried values are texts.

    Raises ValueError if it does not fit the schema.
    """
    source = io.BytesIO(data)
    try:
        found = record(fastavro.schemaless_reader(source, schema, None))  # type: ignore[arg-type]
    except Exception as exc:
        raise ValueError(f"the value does not fit its Avro schema: {exc!r}") from exc
    if source.read(1):
        raise ValueError("bytes follow the record")
    return found


def datum(record: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a JSON record as in Avro. Missing fields are null.

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
    """Return the JSON record of fields that were read as Avro; carried values are texts.

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
    """Return carried values as texts: text unchanged, all else as JSON text."""
    return {name: value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in carried.items()}


def _map(fields: bytes) -> bytes:
    """Return a JSON object as a map of texts, which is not null."""
    found: dict[str, str] = texts(orjson.loads(fields))
    pairs = b"".join([_text(name) + _text(value) for name, value in found.items()])
    return _SOME + (_long(len(found)) + pairs if found else b"") + _NULL


def _text(value: str) -> bytes:
    data = value.encode()
    n = len(data)
    return (_LENGTHS[n] if n < 64 else _long(n)) + data


def _long(value: int) -> bytes:
    """Return an integer as a zigzag varint."""
    return varint(value << 1 if value >= 0 else ((-value) << 1) - 1)


def varint(number: int) -> bytes:
    """Return a number, at least 0, as a varint: groups of seven bits, the lowest first, as in Avro and Protobuf."""
    if number < 128:
        return bytes((number,))
    found = bytearray()
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
