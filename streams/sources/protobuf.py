"""Protobuf: values after the id of their schema in a registry, or values of one message that the source gives."""

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final, cast

from google.protobuf import (
    any_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    json_format,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from streams.sources import framing, proto_file
from streams.sources.references import Headers
from streams.sources.refusal import Unfit
from streams.sources.registry import PROTOBUF, Fetched, SchemaId
from streams.sources.schemas import KnownSchemas, Schemas

#: Files that every schema may import without giving them.
_WELL_KNOWN: Final = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
}
#: Errors that Protobuf's library raises for a wrong value, or for a wrong schema that it accepted: a map whose entries
#: have no ``value`` gives a KeyError.
_MALFORMED: Final = (
    DecodeError,
    json_format.Error,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
)
#: Name of a file that has none of its own.
_FILE: Final = "value.proto"


class Protobuf:
    """Protobuf values, as objects by the names of the schema.

    Numbers of 64 bits are text, as in Protobuf's JSON; a Timestamp is text in RFC 3339; fields without presence have
    their defaults.

    Raises ValueError if the schema is invalid, or has no such message.

    ``schema, message``: a FileDescriptorSet in base64, and the full name of the message that all values are; values
      then have no id. None: each value names its own.
    ``header``: name of the header that may hold the id.
    """

    def __init__(self, schema: str | None, message: str | None, schemas: Schemas, header: str) -> None:
        self._header = header
        self._files = KnownSchemas(schemas, PROTOBUF, _Messages)
        self._fixed = None if schema is None else _of_set(schema, message or "")

    def lacking(self, data: bytes, headers: Headers) -> SchemaId | None:
        """Return the id of a schema that has to be loaded before; None if there is none."""
        return None if self._fixed is not None else self._files.lacking(framing.schema_of(data, headers, self._header))

    def decode(self, data: bytes, headers: Headers) -> dict[str, Any]:
        """Return what bytes mean; see `streams.sources.formats.Format`."""
        made, payload = self._fixed, data
        if made is None:
            schema, place, payload = framing.split(data, headers, self._header, placed=True)
            made = self._files[schema].at(place)
        try:
            read = made.FromString(payload)
            if UnknownFieldSet(read):
                _require_known(read)
            return json_format.MessageToDict(
                read, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
        except _MALFORMED as exc:
            raise Unfit("format", f"the value is not of its message: {exc!r}") from None


def _require_known(message: Message) -> None:
    """Raise Unfit if all fields are unknown, which shows that this is another message: it would seem to have defaults.

    A later version of the message may also have unknown fields, but then some field is known.
    """
    known = cast("Descriptor", message.DESCRIPTOR)
    unknown = UnknownFieldSet(message)
    numbers = [unknown[n].field_number for n in range(len(unknown))]
    strange = [known.fields_by_number[number].name for number in numbers if number in known.fields_by_number]
    if strange or not message.ListFields():
        what = f"{strange[0]} is of another type" if strange else "it has none of the fields"
        raise Unfit("schema", f"the value is of another message than {known.full_name}: {what}")


class _Messages:
    """The messages of a schema from a registry; raises ValueError or TypeError if the schema is invalid."""

    def __init__(self, fetched: Fetched) -> None:
        texts = [*fetched.references, (_FILE, fetched.text)]
        try:
            files = [_descriptor(text, name) for name, text in texts]
        except (DecodeError, ValueError):  # the registry gave files as text
            files = proto_file.descriptors(texts)
        self._pool = _pool(_closed(files))
        self._file = next(file for file in files if file.name == _FILE)
        self._classes: dict[tuple[int, ...], type[Message]] = {}

    def at(self, place: tuple[int, ...]) -> type[Message]:
        """Return the class of the message at a place; raises Unfit if there is none."""
        found = self._classes.get(place)
        if found is None:
            try:
                name = ".".join(filter(None, (self._file.package, _named(self._file.message_type, place))))
                found = self._classes[place] = GetMessageClass(self._pool.FindMessageTypeByName(name))
            except (LookupError, TypeError) as exc:
                raise Unfit("schema", f"the value names a message that its schema does not have: {exc}") from None
        return found


def _named(messages: Iterable[DescriptorProto], place: tuple[int, ...]) -> str:
    """Return the name of the message at a place of a file; raises LookupError if there is none."""
    names = []
    for index in place:
        found = list(messages)
        if not 0 <= index < len(found):
            raise LookupError(f"the schema has no message at place {list(place)}")
        names.append(found[index].name)
        messages = found[index].nested_type
    return ".".join(names)


def _descriptor(text: str, name: str) -> FileDescriptorProto:
    """Decode a file's descriptor from base64, and give it the name by which other files refer to it."""
    found = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    found.name = name
    return found


def _closed(files: list[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return files without imports of others, for example of those that only define options."""
    known = {*_WELL_KNOWN, *(file.name for file in files)}
    for file in files:
        there = [name for name in file.dependency if name in known]
        if len(there) < len(file.dependency):
            del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
            file.dependency.extend(there)
    return files


def _of_set(schema: str, message: str) -> type[Message]:
    try:
        files = FileDescriptorSet.FromString(base64.b64decode(schema, validate=True)).file
    except (DecodeError, binascii.Error, ValueError):
        raise ValueError(
            "it is not a FileDescriptorSet: protoc --descriptor_set_out --include_imports makes one"
        ) from None
    try:
        return GetMessageClass(_pool(files).FindMessageTypeByName(message))
    except (LookupError, TypeError) as exc:
        raise ValueError(f"message {message!r}: {exc}") from None


def _pool(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    pool = DescriptorPool()
    for each in _WELL_KNOWN.values():
        pool.AddSerializedFile(each)
    for file in files:
        if file.name not in _WELL_KNOWN:
            pool.AddSerializedFile(file.SerializeToString())
    return pool
