"""Fields of the records in ``calibrated`` and ``resolved``: the reference and all schemas are made of this table.

In JSON a field that does not apply is left out; in Avro it is null, and in Protobuf it is not set. A forecast that is
no single probability has the same name in JSON whatever it is (``raw`` is a number, a list or an object), and in Avro
and Protobuf a field for each kind.

A field that is added has a default and stands at the end, and none is ever taken out, moved or given another type: so
readers with the newer schema read older records, and readers with the older schema newer ones. The number of a field in
Protobuf is its place in the table, from 1, and is never used again.
"""

import json
from typing import Any, Final, NamedTuple

from streams.sources.registry import AVRO, JSON, PROTOBUF

#: Formats of outputs that have a schema, and what the registry calls the kinds of their schemas.
KINDS: Final = {"avro": AVRO, "protobuf": PROTOBUF, "jsonschema": JSON}
#: Labels of the topics that have a schema, and the names of the schemas.
NAMES: Final = {"calibrated": "Calibrated", "resolved": "Resolved"}
NAMESPACE: Final = "trueup"
#: The field that is null in JSON, too, where it does not apply.
NULLED: Final = "stream"

_TIME: Final = {"type": "long", "logicalType": "timestamp-millis"}
_DOUBLES: Final = {"type": "array", "items": "double"}
_QUANTILES: Final = {
    "type": "record",
    "name": "Quantiles",
    "doc": "A law of a number, by some of its quantiles.",
    "fields": [
        {"name": "levels", "type": _DOUBLES, "doc": "Increasing, in (0, 1)."},
        {"name": "values", "type": _DOUBLES, "doc": "One a level, never falling, in units of y."},
    ],
}
_NORMAL: Final = {
    "type": "record",
    "name": "Normal",
    "doc": "A normal law of a number.",
    "fields": [
        {"name": "mean", "type": "double", "doc": "In units of y."},
        {"name": "std", "type": "double", "doc": "Standard deviation, in units of y; positive."},
    ],
}
_PLACE: Final = {
    "type": "record",
    "name": "Place",
    "doc": "Where a record stands in Kafka.",
    "fields": [
        {"name": "topic", "type": "string", "doc": "Topic."},
        {"name": "partition", "type": "int", "doc": "Partition."},
        {"name": "offset", "type": "long", "doc": "Offset."},
    ],
}


class Field(NamedTuple):
    """A field of an output record.

    Attributes
    ----------
    name
        In Avro and Protobuf.
    kind
        Its Avro type.
    doc
        What it is, with units and range.
    default
        ``required``, ``null`` for an optional one, or ``true``.
    json
        Its name in JSON, where that is another.
    """

    name: str
    kind: Any
    doc: str
    default: str = "null"
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
    """Return how many fields follow one of them."""
    return len(FIELDS[label]) - 1 - [field.name for field in FIELDS[label]].index(name)


def text(label: str, form: str) -> str:
    """Return the schema of a topic's values in a format of `KINDS` as it is registered: always the same bytes."""
    if form == "protobuf":
        return protobuf(label)
    return json.dumps(avro(label) if form == "avro" else json_schema(label), separators=(",", ":"))


def shown(label: str, form: str) -> str:
    """Return the same for people to read."""
    given = text(label, form)
    return given.removesuffix("\n") if form == "protobuf" else json.dumps(json.loads(given), indent=2)


def rows(label: str) -> list[tuple[str, str, str, str, str]]:
    """Return what each field is in every format.

    That is its names in JSON and Avro, its type in Avro, with a "?" if it may be null, how Protobuf declares it, and
    what it is.
    """
    return [
        (each.json or each.name, each.name, _said(each.kind) + "?" * (each.default == "null"), str(one), each.doc)
        for each, one in zip(FIELDS[label], declared(label), strict=True)
    ]


# -- Avro ----------------------------------------------------------------------------------------------------------


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
            kind = name  # a type is defined where it stands first, and named after that
        named.add(name)
    made = {"name": field.name, "type": kind, "doc": field.doc}
    if field.default == "null":
        made |= {"type": ["null", kind], "default": None}
    elif field.default == "true":
        made["default"] = True
    return made


# -- Protobuf ------------------------------------------------------------------------------------------------------

#: What kinds are in Protobuf.
_PROTO: Final = {"string": "string", "double": "double", "int": "int32", "long": "int64", "boolean": "bool"}
PROTO_MAP: Final = "map<string, string>"
_NUMBERS: Final = """\
// Times are in ms since 1970 (UTC). A field that is null, by its comment, is not set. The number of a field is its
// place in trueup's table of fields, and is never used again: a field that is added has the next one.
"""


class Declared(NamedTuple):
    """A field of a message.

    Attributes
    ----------
    label
        ``optional``, ``repeated`` or nothing.
    kind
        Its type: a scalar, `PROTO_MAP`, or the name of a message.
    name, number, doc
        As it is named and numbered, and what it is.
    """

    label: str
    kind: str
    name: str
    number: int
    doc: str

    def __str__(self) -> str:
        return f"{self.label} {self.kind} {self.name} = {self.number}".lstrip()


def declared(of: str | dict[str, Any]) -> list[Declared]:
    """Return the fields of a topic's message, or of a kind that is a message, in their order."""
    fields = FIELDS[of] if isinstance(of, str) else [Field(*_parts(each), "required") for each in of["fields"]]
    return [Declared(*_declared(each), each.name, number, each.doc) for number, each in enumerate(fields, 1)]


def nested(label: str) -> list[dict[str, Any]]:
    """Return the kinds of a topic's fields that are messages, each once.

    They stand in the topic's message: two files of one package may not both have a message of the same name.
    """
    found = {
        each.kind["name"]: each.kind for each in FIELDS[label] if isinstance(each.kind, dict) and "name" in each.kind
    }
    return list(found.values())


def protobuf(label: str) -> str:
    """Return the ``.proto`` file of a topic's values, ``calibrated`` or ``resolved``."""
    lines = []
    for kind in nested(label):
        lines += [f"// {kind['doc']}", f"message {kind['name']} {{", *_indented(_lines(declared(kind))), "}", ""]
    lines += _lines(declared(label))
    head = f'syntax = "proto3";\n\npackage {NAMESPACE};\n\n// {_ABOUT[label]}\n//\n{_NUMBERS}'
    return head + "\n".join([f"message {NAMES[label]} {{", *_indented(lines), "}", ""])


def _lines(fields: list[Declared]) -> list[str]:
    return [line for each in fields for line in (f"// {each.doc}", f"{each};")]


def _indented(lines: list[str]) -> list[str]:
    return ["  " + line if line else line for line in lines]


def _parts(field: dict[str, Any]) -> tuple[str, Any, str]:
    return field["name"], field["type"], field["doc"]


def _declared(field: Field) -> tuple[str, str]:
    """Return the label and the type of a field."""
    kind = field.kind
    if isinstance(kind, dict) and kind["type"] == "array":
        return "repeated", _PROTO[kind["items"]]
    if isinstance(kind, dict) and kind["type"] == "map":
        return "", PROTO_MAP
    name = kind if isinstance(kind, str) else kind.get("name", kind["type"])
    return "optional" if field.default == "null" else "", _PROTO.get(name, name)


# -- JSON Schema ---------------------------------------------------------------------------------------------------

#: What kinds are in JSON Schema.
_JSON: Final = {"string": "string", "double": "number", "int": "integer", "long": "integer", "boolean": "boolean"}
_LEFT_OUT: Final = (
    f"A field that is null, by its description, is left out, all but {NULLED}. What is carried is JSON as it came. "
    "A later version may add fields."
)


def json_schema(label: str) -> dict[str, Any]:
    """Return the JSON Schema, draft 7, of a topic's values, ``calibrated`` or ``resolved``: of all JSON records."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for each in FIELDS[label]:
        kind = _json(each.kind)
        if each.name == NULLED and each.default == "null":
            kind["type"] = [kind["type"], "null"]
        kinds.setdefault(each.json or each.name, []).append({"description": each.doc, **kind})
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"{NAMESPACE}.{NAMES[label]}",
        "description": f"{_ABOUT[label]} {_LEFT_OUT}",
        "type": "object",
        "properties": {name: given[0] if len(given) == 1 else {"anyOf": given} for name, given in kinds.items()},
        "required": [each.name for each in FIELDS[label] if each.default == "required" or each.name == NULLED],
        "additionalProperties": True,
    }


def _json(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Return what a kind is in JSON Schema."""
    if isinstance(kind, str):
        return {"type": _JSON[kind]}
    if kind["type"] == "array":
        return {"type": "array", "items": _json(kind["items"])}
    if kind["type"] == "map":
        return {"type": "object"}
    if kind["type"] != "record":
        return _json(kind["type"])
    properties = {each["name"]: {"description": each["doc"], **_json(each["type"])} for each in kind["fields"]}
    return {"type": "object", "properties": properties, "required": list(properties)}
