"""Outputs in Protobuf, behind the byte 0, their schema's id, and the place of the message in its file.

What is written is always the JSON record in other bytes: `streams.records.output_fields.datum` says how. An empty list
or map is what none is. The messages are made of the table of fields and not of the text that is registered; a test
holds the two to the same. All is written by the library, the entries of maps in order.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from state.events import Calibrated, Resolved
from streams.records.decoding import SCOPED, encode_calibrated, encode_resolved
from streams.records.output_fields import datum, heads, record, texts
from streams.records.output_schemas import FIELDS, NAMES, NAMESPACE, PROTO_MAP, Declared, declared, nested

#: The place of the first message of a file, the only one.
_FIRST: Final = b"\0"


def descriptor(label: str) -> FileDescriptorProto:
    """Return the file of a topic's message, ``calibrated`` or ``resolved``, as protoc makes it of the schema."""
    file = FileDescriptorProto(name=f"{NAMESPACE}/{label}.proto", package=NAMESPACE, syntax="proto3")
    message = file.message_type.add(name=NAMES[label])
    for kind in nested(label):
        _add(message.nested_type.add(name=kind["name"]), declared(kind))
    _add(message, declared(label))
    return file


def _add(message: DescriptorProto, fields: Iterable[Declared]) -> None:
    """Add fields to a message, then what optional fields and maps stand for."""
    optional = []
    for each in fields:
        field = message.field.add(name=each.name, number=each.number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        if each.label == "repeated":
            field.label = FieldDescriptorProto.LABEL_REPEATED
        elif each.label == "optional":
            optional.append(field)
        if each.kind == PROTO_MAP:
            entry = message.nested_type.add(name=f"{each.name.title()}Entry")
            entry.options.map_entry = True
            for number, name in enumerate(("key", "value"), 1):
                entry.field.add(
                    name=name,
                    number=number,
                    label=FieldDescriptorProto.LABEL_OPTIONAL,
                    type=FieldDescriptorProto.TYPE_STRING,
                )
            field.label, field.type_name = FieldDescriptorProto.LABEL_REPEATED, entry.name
        elif each.kind[0].isupper():
            field.type_name = each.kind
        else:
            field.type = FieldDescriptorProto.Type.Value(f"TYPE_{each.kind.upper()}")
    for field in optional:  # each is alone in a oneof
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _classes() -> dict[str, Any]:
    found = {}
    pool = DescriptorPool()
    for label, name in NAMES.items():
        pool.AddSerializedFile(descriptor(label).SerializeToString())
        found[label] = GetMessageClass(pool.FindMessageTypeByName(f"{NAMESPACE}.{name}"))
    return found


#: Classes of the messages, by label.
CLASSES: Final = _classes()
_CALIBRATED: Final = CLASSES["calibrated"]
_RESOLVED: Final = CLASSES["resolved"]
#: Fields of each message that every record has, by its name.
_REQUIRED: Final = {
    NAMES[label]: [field.name for field in fields if field.default == "required"] for label, fields in FIELDS.items()
}
#: Fields that JSON leaves out where they are true.
_TRUE: Final = {field.name: True for fields in FIELDS.values() for field in fields if field.default == "true"}


class ProtobufValues:
    """Makes values of output records; see `streams.records.output_formats.Values`.

    Parameters
    ----------
    ids
        Of the schemas in the registry, by the labels of the topics.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._heads = heads(ids)
        self._calibrated = self._heads.get("calibrated", b"") + _FIRST
        self._resolved = self._heads.get("resolved", b"") + _FIRST

    def calibrated(self, record: Calibrated) -> bytes:
        """Return the value of a ``calibrated`` record."""
        _, event_id, stream, raw, p, draw, calibrator, config, version, ts, applied, carried, band, points = record
        if type(p) is not float:
            return self.of_json("calibrated", encode_calibrated(record))
        name, _, scope = event_id.partition(SCOPED)
        made = _CALIBRATED(
            event_id=name,
            stream=stream,
            raw=raw,
            p=p,
            draw=draw,
            calibrator=calibrator,
            config=config,
            version=version,
            ts=ts,
            applied=applied,
            calibrated=True,
        )
        if scope:
            made.scope = scope
        if carried is not None and carried.fields:
            made.carried.update(texts(orjson.loads(carried.fields)))
        if band:
            made.band = band
        if points is not None:
            made.points = points
        return self._calibrated + _bytes(made)

    def resolved(self, record: Resolved) -> bytes:
        """Return the value of a ``resolved`` record."""
        _, event_id, stream, raw, p, draw, y, calibrator, version, issued_ts, resolved_ts, revision, implied = record
        if type(p) is not float:
            return self.of_json("resolved", encode_resolved(record))
        name, _, scope = event_id.partition(SCOPED)
        made = _RESOLVED(
            event_id=name,
            stream=stream,
            raw=raw,
            p=p,
            draw=draw,
            y=y,
            calibrator=calibrator,
            version=version,
            issued_ts=issued_ts,
            resolved_ts=resolved_ts,
            revision=revision,
            implied=implied,
        )
        if scope:
            made.scope = scope
        return self._resolved + _bytes(made)

    def of_json(self, label: str, value: bytes) -> bytes:
        """Return the value of a record that is given as its JSON value."""
        return self._heads[label] + payload(CLASSES[label], orjson.loads(value))


def payload(made: type[Message], record: dict[str, Any]) -> bytes:
    """Return a JSON record as Protobuf, behind the place of its message; fields that the message has not are left out.

    Raises
    ------
    ValueError
        If the record is not of the message.
    """
    known = made.DESCRIPTOR.fields_by_name
    try:
        said = _TRUE | datum(record)
        lacking = [name for name in _REQUIRED[made.DESCRIPTOR.name] if said.get(name) is None]
        message = made(**{name: value for name, value in said.items() if name in known})
    except Exception as exc:
        raise ValueError(f"the record is not of its Protobuf message: {exc!r}") from exc
    if lacking:
        raise ValueError(f"the record is not of its Protobuf message: it has no {lacking[0]}")
    return _FIRST + _bytes(message)


def fields(made: type[Message], data: bytes) -> dict[str, Any]:
    """Return the JSON record of what `payload` wrote, what it carries as texts.

    Raises
    ------
    ValueError
        If it is not of the message.
    """
    if data[:1] != _FIRST:
        raise ValueError("the value is not of the first message of its schema")
    try:
        message = made.FromString(data[1:])
    except Exception as exc:
        raise ValueError(f"the value is not of its Protobuf message: {exc!r}") from exc
    return record({name: _said(message, name) for name in message.DESCRIPTOR.fields_by_name})


def _said(message: Message, name: str) -> Any:  # noqa: ANN401 - of the field's kind
    """Return the value of a field; None if it is not set, or is an empty list or map."""
    field, value = message.DESCRIPTOR.fields_by_name[name], getattr(message, name)
    if not field.is_repeated:
        if field.has_presence and not message.HasField(name):
            return None
        return value if field.message_type is None else _law(value)
    return (list(value) if field.message_type is None else dict(value)) or None


def _law(message: Message) -> dict[str, Any]:
    """Return a message of a field, which has all of its own."""
    found = {}
    for name, field in message.DESCRIPTOR.fields_by_name.items():
        value = getattr(message, name)
        found[name] = list(value) if field.is_repeated else value
    return found


def ours(made: type[Message]) -> bool:
    """Whether a message is one of trueup's, or an older one of fewer fields."""
    return any(
        made.DESCRIPTOR.full_name == each.DESCRIPTOR.full_name and _within(made.DESCRIPTOR, each.DESCRIPTOR)
        for each in CLASSES.values()
    )


def _within(descriptor: Any, whole: Any) -> bool:  # noqa: ANN401 - the library's
    """Whether each field of a message is there in another, of the same number and kind."""
    for field in descriptor.fields:
        other = whole.fields_by_name.get(field.name)
        if other is None or _kind(field) != _kind(other):
            return False
        if field.message_type is not None and not _within(field.message_type, other.message_type):
            return False
    return True


def _kind(field: Any) -> tuple[Any, ...]:  # noqa: ANN401 - the library's
    return field.number, field.type, field.is_repeated, field.has_presence, field.message_type is None


def _bytes(message: Any) -> bytes:  # noqa: ANN401 - the library's
    made: bytes = message.SerializeToString(deterministic=True)
    return made
