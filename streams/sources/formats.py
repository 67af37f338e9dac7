"""Formats of source records: from bytes to a value of objects, lists, texts and numbers."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

import orjson

from streams.sources.avro import Avro
from streams.sources.references import Headers
from streams.sources.refusal import Unfit, short
from streams.sources.registry import SchemaId
from streams.sources.schemas import Schemas

#: Formats by name. The first is the default. With the others, values name a schema in a registry, or the source has
#: a schema.
FORMATS: Final = ("json", "avro", "protobuf")
#: Longest value and key of each format, in bytes. In memory JSON may take 30 times as much, the others 240 times.
LONGEST: Final = {"json": 8 << 20, "avro": 1 << 20, "protobuf": 1 << 20}
#: Headers that may hold the id of the schema of a value or of a key.
_VALUE, _KEY = "__value_schema_id", "__key_schema_id"

#: What serializers of JSON Schema write before a value: the byte 0, then the schema's id in 4 bytes.
_FRAME: Final = 5
#: The header with a value's content type, and the prefix of headers with attributes of a CloudEvent.
_CONTENT_TYPE, _ATTRIBUTE, _STRUCTURED = "content-type", "ce_", "application/cloudevents"


class Format(Protocol):
    """Decodes the bytes of a value or key."""

    def decode(self, data: bytes, headers: Headers) -> Any:  # noqa: ANN401 - whatever they say
        """Decode bytes. Raises Unfit if they do not have the format."""

    def lacking(self, data: bytes, headers: Headers) -> SchemaId | None:
        """Return the id of a schema that has to be loaded before `decode`; None if there is none."""


class Json:
    """JSON, with or without the frame that serializers of JSON Schema write before it. Its schema is not checked."""

    def decode(self, data: bytes, headers: Headers) -> Any:  # noqa: ANN401, ARG002 - whatever they say
        """Return what bytes mean; see `Format`."""
        framed = data[:1] == b"\0"
        try:
            return orjson.loads(data[_FRAME:] if framed else data)
        except orjson.JSONDecodeError as exc:
            other = '; it begins as Avro or Protobuf of a registry does: set format = "avro" or "protobuf"' * framed
            raise Unfit("not_json", f"the value is not JSON: {exc}{other}") from None

    def lacking(self, data: bytes, headers: Headers) -> None:
        """Return None."""


class CloudEvents:
    """CloudEvents around another format: an object with the attributes, and the decoded payload as ``data``.

    In binary mode, attributes are in headers that begin with ``ce_``. In structured mode, the value is a JSON envelope
    (CloudEvents 1.0, Kafka protocol binding, sections 3.2 and 3.3).
    """

    def __init__(self, inner: Format) -> None:
        self._inner = inner

    def decode(self, data: bytes, headers: Headers) -> dict[str, Any]:
        """Return attributes and data; see `Format`."""
        given = _texts(headers)
        if _is_structured(given):
            event, packed = _opened(data)
            if packed is not None:
                event["data"] = self._inner.decode(packed, headers)
            return event
        event = {name.removeprefix(_ATTRIBUTE): value for name, value in given.items() if name.startswith(_ATTRIBUTE)}
        if "specversion" not in event:
            raise Unfit("format", "the record is not a CloudEvent: it has neither ce_specversion nor the content type")
        event["data"] = self._inner.decode(data, headers)
        return event

    def lacking(self, data: bytes, headers: Headers) -> SchemaId | None:
        """Return the id of a schema that has to be loaded before; see `Format`."""
        if type(self._inner) is Json:
            return None
        packed: bytes | None = data
        if headers and _is_structured(_texts(headers)):
            try:
                _, packed = _opened(data)
            except Unfit:  # `decode` reports it
                return None
        return None if packed is None else self._inner.lacking(packed, headers)


def _texts(headers: Headers) -> dict[str, Any]:
    """Return headers as text, by their names in lower case."""
    return {name.lower(): value.decode(errors="replace") for name, value in headers if value is not None}


def _is_structured(given: Mapping[str, str]) -> bool:
    """Whether headers say that the value is an envelope."""
    return given.get(_CONTENT_TYPE, "").lower().startswith(_STRUCTURED)


def _opened(data: bytes) -> tuple[dict[str, Any], bytes | None]:
    """Return the attributes of an envelope, and its base64 content; raises Unfit if it is not an envelope."""
    try:
        event = orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        raise Unfit("not_json", f"the CloudEvent is not JSON: {exc}") from None
    if not isinstance(event, dict) or "specversion" not in event:
        raise Unfit("format", f"the value is not a CloudEvent: {short(event)}")
    packed = event.pop("data_base64", None)
    try:
        return event, None if packed is None else base64.b64decode(packed, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise Unfit("format", "data_base64 of the CloudEvent is not base64") from None


def made(table: Mapping[str, Any], schemas: Schemas) -> Format:
    """Return the format of a source's values; raises ValueError if its schema is invalid."""
    inner = _named(table.get("format"), table.get("schema"), table.get("message"), schemas, _VALUE)
    return CloudEvents(inner) if table.get("cloudevents") else inner


def of_key(table: Mapping[str, Any], schemas: Schemas) -> Format | None:
    """Return the format of a source's keys; None: text."""
    return _named(table["key_format"], None, None, schemas, _KEY) if "key_format" in table else None


def asks_registry(table: Mapping[str, Any]) -> bool:
    """Whether records of a source name schemas of a registry."""
    named = table.get("format", "json") != "json" and "schema" not in table
    return named or table.get("key_format", "json") != "json"


def _named(
    name: str | None, schema: str | list[str] | None, message: str | None, schemas: Schemas, header: str
) -> Format:
    if name == "avro":
        return Avro(schema, schemas, header)
    if name == "protobuf":
        from streams.sources.protobuf import Protobuf  # noqa: PLC0415 - its library and protoc are large, and few need them

        return Protobuf(cast("str | None", schema), message, schemas, header)
    return Json()
