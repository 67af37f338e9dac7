"""Fields of the records in ``calibrated`` and ``resolved``. The reference and the schemas are made from this table.

In JSON a field that does not apply is left out; in Avro it is null. In JSON every kind of forecast has the same name
(``raw`` is a number, a list or an object). In Avro there is a field for each kind.

A new field has a default and stands at the end. No field is ever removed, moved or given another type. So readers with
a newer schema read older records, and readers with an older schema read newer ones.
"""

import json
from typing import Any, Final, NamedTuple

#: Labels of the topics that have a schema, and the names of the schemas.
NAMES: Final = {"calibrated": "Calibrated", "resolved": "Resolved"}
NAMESPACE: Final = "trueup"
#: The field that is null, even in JSON, where it does not apply.
NULLED: Final = "stream"

_TIME: Final = {"type": "long", "logicalType": "timestamp-millis"}
_DOUBLES: Final = {"type": "array", "items": "double"}


def _record(name: str, doc: str, *fields: tuple[str, Any, str]) -> dict[str, Any]:
    """Return the type of a record. Each field has a name, a type and a doc."""
    made = [{"name": field, "type": kind, "doc": said} for field, kind, said in fields]
    return {"type": "record", "name": name, "doc": doc, "fields": made}


_QUANTILES: Final = _record(
    "Quantiles",
    "A law of a number, by some of its quantiles.",
    ("levels", _DOUBLES, "Increasing, in (0, 1)."),
    ("values", _DOUBLES, "One a level, never falling, in units of y."),
)
_NORMAL: Final = _record(
    "Normal",
    "A normal law of a number.",
    ("mean", "double", "In units of y."),
    ("std", "double", "Standard deviation, in units of y; positive."),
)
_PLACE: Final = _record(
    "Place",
    "Where a record stands in Kafka.",
    ("topic", "string", "Topic."),
    ("partition", "int", "Partition."),
    ("offset", "long", "Offset."),
)


class Field(NamedTuple):
    """A field of an output record."""

    #: Its name in Avro.
    name: str
    #: Its Avro type.
    kind: Any
    #: Its meaning, with units and range.
    doc: str
    #: ``required``, ``null`` for an optional one, or ``true``.
    default: str = "null"
    #: Its name in JSON, if that differs.
    json: str = ""


def _forecasts() -> tuple[Field, ...]:
    """Return the fields of forecasts of classes and numbers."""
    what = {"raw": "The forecast as it came", "": "The served forecast", "draw": "The draw"}
    found = []
    for prefix, said in what.items():
        for kind, of, schema in (
            ("probs", "a probability in [0, 1] for each class", _DOUBLES),
            ("quantiles", "a number, by quantiles", _QUANTILES),
            ("normal", "a number, by a normal law", _NORMAL),
        ):
            name = f"{prefix}_{kind}" if prefix else kind
            found.append(Field(name, schema, f"{said}, if it is {of}.", json=prefix or kind))
        if not prefix:
            found += [
                Field("normalised", _DOUBLES, "The same as probs, made to sum to 1 by one shift of the log-odds."),
                Field("argmax", "int", "The class of the highest of probs, from 0."),
            ]
    return tuple(found)


_EVENT: Final = Field("event_id", "string", "Id of the event, as the forecast has it.", "required")
_SCOPE: Final = Field("scope", "string", "Scope of the event, if the forecast has one: ids are unique within it.")
_RAW: Final = Field("raw", "double", "The forecast as it came, a probability in [0, 1].")
_P: Final = Field("p", "double", "The served probability in [0, 1]: decide by it.")
_DRAW: Final = Field(
    "draw", "double", "A random probability near p, in [0, 1], for scores that somebody plays against."
)
_VECTORS: Final = _forecasts()

FIELDS: Final[dict[str, tuple[Field, ...]]] = {
    "calibrated": (
        _EVENT,
        Field("stream", "string", "Stream of the forecast; null only where a raw answer's could not be read."),
        _SCOPE,
        _RAW,
        _P,
        _DRAW,
        Field("calibrator", "string", "Name of the calibrator; null in a raw answer."),
        Field("config", "string", "Hash of its configuration, 8 hex digits; null in a raw answer."),
        Field("version", "long", "Outcomes that the calibrator had learnt; null in a raw answer."),
        Field("ts", _TIME, "When the forecast was made, ms since 1970 (UTC).", "required"),
        Field("applied", "long", "Records that the partition had applied, this one included; null in a raw answer."),
        Field("calibrated", "boolean", "False in a raw answer, which JSON alone says; else true.", "true"),
        Field("reason", "string", "Why a raw answer is raw: the reason of its dead letter."),
        Field("dead_letter", _PLACE, "Where the record of a raw answer stands; its dead letter names the same place."),
        *_VECTORS,
        Field(
            "carried",
            {"type": "map", "values": "string"},
            "What goes on from the forecast: text as it is, all else as JSON text.",
        ),
        Field("band", "string", "Name of the band of p; null where its stream has none, or none that is so low."),
        Field("points", "int", "Points of p, of the stream's scorecard; null where it has none."),
        Field(
            "p_low", "double", "Least that outcomes leave open of p, in [0, p]; null where its stream has no intervals."
        ),
        Field("p_high", "double", "Most that outcomes leave open of p, in [p, 1]; null likewise."),
        Field(
            "why",
            "string",
            "Why p, in words: of how many scores like this which share was 1; null unless it is asked for.",
        ),
    ),
    "resolved": (
        _EVENT,
        Field("stream", "string", "Stream of the forecast.", "required"),
        _SCOPE,
        _RAW,
        _P,
        _DRAW,
        Field("y", "double", "The label: 0 or 1, the number of a class from 0, or a number.", "required"),
        Field("calibrator", "string", "Name of the calibrator that served.", "required"),
        Field("version", "long", "Outcomes that it had learnt when it answered.", "required"),
        Field("issued_ts", _TIME, "When the forecast was made, ms since 1970 (UTC).", "required"),
        Field("resolved_ts", _TIME, "When the outcome was known, ms since 1970 (UTC).", "required"),
        Field("revision", "long", "How often the label has changed: 0, then 1, 2, ...; a record each.", "required"),
        Field("implied", "boolean", "True if no outcome came, and the label is what silence stands for.", "required"),
        *_VECTORS,
    ),
}
_ABOUT: Final = {
    "calibrated": "The answer to a forecast. An event's answers are all the same, but for what is carried.",
    "resolved": "A forecast joined with its label; a label that changes makes another record.",
}


def after(label: str, name: str) -> int:
    """Return the number of fields after one of them."""
    return len(FIELDS[label]) - 1 - [field.name for field in FIELDS[label]].index(name)


def text(label: str) -> str:
    """Return the schema of a topic's values as it is registered, always the same bytes."""
    return json.dumps(avro(label), separators=(",", ":"))


def rows(label: str) -> list[tuple[str, str, str, str]]:
    """Return for each field its names in JSON and Avro, its Avro type (with "?" if it may be null), and its meaning."""
    return [
        (each.json or each.name, each.name, _said(each.kind) + "?" * (each.default == "null"), each.doc)
        for each in FIELDS[label]
    ]


def avro(label: str) -> dict[str, Any]:
    """Return the Avro schema of a topic's values, ``calibrated`` or ``resolved``."""
    named: set[str] = set()
    fields = [_field(each, named) for each in FIELDS[label]]
    head = {"type": "record", "name": NAMES[label], "namespace": NAMESPACE, "doc": _ABOUT[label]}
    return {**head, "fields": fields}


def _said(kind: Any) -> str:  # noqa: ANN401 - JSON
    if isinstance(kind, str):
        return kind
    inner = kind.get("items") or kind.get("values")
    return f"{kind['type']} of {inner}" if inner else str(kind.get("name") or kind.get("logicalType"))


def _field(field: Field, named: set[str]) -> dict[str, Any]:
    kind = field.kind
    if isinstance(kind, dict) and "name" in kind:
        name = kind["name"]
        if name in named:
            kind = name  # a type is defined where it occurs first, and later named
        named.add(name)
    made = {"name": field.name, "type": kind, "doc": field.doc}
    if field.default == "null":
        made |= {"type": ["null", kind], "default": None}
    elif field.default == "true":
        made["default"] = True
    return made
