"""Formats of source records: from bytes to a value of objects, lists, texts and numbers."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, Protocol

import orjson

from streams.sources.references import Headers
from streams.sources.refusal import Unfit, short

#: By name; the first is what a source has that names none.
FORMATS: Final = ("json",)

#: What a schema registry's serializers put before a value: this byte, then the schema's id in 4 bytes.
_MAGIC: Final = 0
_FRAME: Final = 5
#: Header that says what a value is, and how attributes of a CloudEvent are named there.
_CONTENT_TYPE, _ATTRIBUTE, _STRUCTURED = "content-type", "ce_", "application/cloudevents"


class Format(Protocol):
    """Turns the bytes of a value or key into what they say."""

    def decode(self, data: bytes, headers: Headers) -> Any:  # noqa: ANN401 - whatever they say
        """Return what bytes say.

        Raises
        ------
        Unfit
            If they are not of the format.
        """


class Json:
    """JSON, with or without the frame that serializers of JSON Schema put before it. Its schema is not checked."""

    def decode(self, data: bytes, headers: Headers) -> Any:  # noqa: ANN401, ARG002 - whatever they say
        """Return what bytes say; see `Format`."""
        try:
            return orjson.loads(data[_FRAME:] if data[:1] == b"\0" else data)
        except orjson.JSONDecodeError as exc:
            raise Unfit("not_json", f"the value is not JSON: {exc}") from None


class CloudEvents:
    """CloudEvents over another format: an object of the attributes, with what that format says as ``data``.

    In binary mode attributes stand in headers that begin with ``ce_``; in structured mode the value is a JSON envelope
    (CloudEvents 1.0, Kafka protocol binding, sections 3.2 and 3.3).
    """

    def __init__(self, inner: Format) -> None:
        self._inner = inner

    def decode(self, data: bytes, headers: Headers) -> dict[str, Any]:
        """Return attributes and data; see `Format`."""
        given = {name.lower(): value.decode(errors="replace") for name, value in headers if value is not None}
        if given.get(_CONTENT_TYPE, "").lower().startswith(_STRUCTURED):
            return self._structured(data, headers)
        event: dict[str, Any] = {
            name.removeprefix(_ATTRIBUTE): value for name, value in given.items() if name.startswith(_ATTRIBUTE)
        }
        if "specversion" not in event:
            raise Unfit("format", "the record is no CloudEvent: it has neither ce_specversion nor the content type")
        event["data"] = self._inner.decode(data, headers)
        return event

    def _structured(self, data: bytes, headers: Headers) -> dict[str, Any]:
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError as exc:
            raise Unfit("not_json", f"the CloudEvent is not JSON: {exc}") from None
        if not isinstance(event, dict) or "specversion" not in event:
            raise Unfit("format", f"the value is no CloudEvent: {short(event)}")
        packed = event.pop("data_base64", None)
        if packed is not None:
            try:
                event["data"] = self._inner.decode(base64.b64decode(packed, validate=True), headers)
            except (TypeError, ValueError, binascii.Error):
                raise Unfit("format", "data_base64 of the CloudEvent is not base64") from None
        return event


def made(table: Mapping[str, Any]) -> Format:
    """Return the format of a source's values."""
    inner = Json()
    return CloudEvents(inner) if table.get("cloudevents") else inner


def of_key(table: Mapping[str, Any]) -> Format | None:
    """Return the format of a source's keys; None: text."""
    return Json() if table.get("key_format") else None
