"""Outputs in JSON behind the byte 0 and the id of their JSON Schema; runs once an event, and is compiled."""

from collections.abc import Mapping

from state.events import Calibrated, Resolved
from streams.records.decoding import encode_calibrated, encode_resolved
from streams.records.output_fields import heads


class JsonSchemaValues:
    """Makes values of output records; see `streams.records.output_formats.Values`.

    Parameters
    ----------
    ids
        Of the schemas in the registry, by the labels of the topics.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._heads: dict[str, bytes] = heads(ids)
        self._calibrated: bytes = self._heads.get("calibrated", b"")
        self._resolved: bytes = self._heads.get("resolved", b"")

    def calibrated(self, record: Calibrated) -> bytes:
        """Return the value of a ``calibrated`` record."""
        return self._calibrated + encode_calibrated(record)

    def resolved(self, record: Resolved) -> bytes:
        """Return the value of a ``resolved`` record."""
        return self._resolved + encode_resolved(record)

    def of_json(self, label: str, value: bytes) -> bytes:
        """Return the value of a record that is given as its JSON value."""
        return self._heads[label] + value
