"""The formats of outputs whose schemas are in the registry: who makes values in each."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from state.events import Calibrated, Resolved
from streams.records.output_avro import AvroValues
from streams.records.output_jsonschema import JsonSchemaValues
from streams.records.output_protobuf import ProtobufValues


class Values(Protocol):
    """Makes values of output records, each behind the byte 0 and the id of its schema."""

    def calibrated(self, record: Calibrated) -> bytes:
        """Return the value of a ``calibrated`` record."""

    def resolved(self, record: Resolved) -> bytes:
        """Return the value of a ``resolved`` record."""

    def of_json(self, label: str, value: bytes) -> bytes:
        """Return the value of a record that is given as its JSON value."""


_MAKERS: Final[dict[str, Callable[[Mapping[str, int]], Any]]] = {
    "avro": AvroValues,
    "protobuf": ProtobufValues,
    "jsonschema": JsonSchemaValues,
}


def values(form: str, ids: Mapping[str, int]) -> Values | None:
    """Return who makes values in a format; None if they are plain JSON.

    Parameters
    ----------
    form
        A format of `streams.config.settings.OUTPUT_FORMATS`.
    ids
        Of the schemas in the registry, by the labels of the topics; empty: values are plain JSON.
    """
    if not ids:
        return None
    made: Values = _MAKERS[form](ids)
    return made
