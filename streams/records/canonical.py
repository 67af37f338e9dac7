"""Source records as the records that trueup knows: what intake sends on, and where to."""

from typing import Any, NamedTuple, cast

import orjson

from state.events import Forecast, Outcome, Rejected
from state.fence import FORECASTS, OUTCOMES
from state.policy import Policies
from streams.records.decoding import SCOPED, Decoder
from streams.records.limits import Limits
from streams.records.refused import Refused
from streams.records.routing import Origin, encode_forecast, encode_label, encode_route, target
from streams.sources.mapping import Mapping
from streams.sources.refusal import PASSED, Refusal
from streams.sources.registry import SchemaId


class Sent(NamedTuple):
    """A canonical record: its topic's label, its key and its value."""

    topic: str
    key: bytes
    value: bytes


class Canonical(NamedTuple):
    """What a source record becomes: a forecast and its route, which follows when the forecast is there; or a label."""

    first: Sent
    then: Sent | None = None


class Reader:
    """Turns the records of one source into canonical ones.

    A record is sent on only if the worker will take it: it is read by the worker's own decoder.

    Parameters
    ----------
    name, role
        Of the source; the role is ``forecast`` or ``outcome``.
    mapping
        Reads its records.
    policies, limits
        As the worker's.
    """

    def __init__(self, name: str, role: str, mapping: Mapping, policies: Policies, limits: Limits) -> None:
        self.name, self.role = name, role
        self._policies = policies
        self._ahead_ms = limits.ahead_ms
        self._decoder = Decoder(policies, limits)
        self._mapping = mapping
        self._topic = FORECASTS if role == "forecast" else OUTCOMES
        self._made = self._forecast if role == "forecast" else self._label

    def lacking(self, record: Any) -> list[SchemaId]:  # noqa: ANN401 - as below
        """Return the ids of schemas that have to be loaded before a record is read."""
        return (
            [] if isinstance(record.value, Refused) else self._mapping.lacking(record.value, record.key, record.headers)
        )

    def canonical(self, record: Any, origin: Origin, now: int) -> Canonical | Rejected | None:  # noqa: ANN401 - aiokafka's
        """Return what a source record becomes; None if it is passed over.

        Parameters
        ----------
        record
            As aiokafka hands it over.
        origin
            Where it stands.
        now
            The time, ms since 1970: no record may be far ahead of it.
        """
        value, key, stamp = record.value, record.key, max(0, record.timestamp)
        if isinstance(value, Refused):
            return self._rejected(record, value.reason)
        if stamp > now + self._ahead_ms:
            return self._rejected(record, "far_ahead")
        fields = self._mapping.read(value, key, record.headers, record.topic, stamp)
        if isinstance(fields, Refusal):
            return None if fields.reason == PASSED else self._rejected(record, fields.reason)
        made = self._made(fields, stamp, origin)
        return self._rejected(record, made) if isinstance(made, str) else made

    def _rejected(self, record: Any, reason: str) -> Rejected:  # noqa: ANN401 - aiokafka's
        return Rejected(record.offset, record.key, record.value, self._topic, reason)

    def _forecast(self, fields: dict[str, Any], stamp: int, origin: Origin) -> Canonical | str:
        try:
            value = encode_forecast(fields, origin)
        except TypeError:  # what stands there is nothing that JSON has
            return "not_json"
        event = cast("Forecast | Rejected", self._decoder.forecast(origin[1], None, value, stamp))
        if isinstance(event, Rejected):
            return event.reason
        event_id = event.event_id.partition(SCOPED)[0]
        key = self._target(event.stream, event_id)
        route = Sent("routes", event_id.encode(), encode_route(event_id, event.stream, key, origin))
        return Canonical(Sent("forecasts", key.encode(), value), route)

    def _label(self, fields: dict[str, Any], stamp: int, origin: Origin) -> Canonical | str:
        stream = fields.pop("stream", None)
        try:
            event = cast("Outcome | Rejected", self._decoder.outcome(origin[1], None, orjson.dumps(fields), stamp))
        except TypeError:
            return "not_json"
        if isinstance(event, Rejected):
            return event.reason
        key = ""
        if stream is not None:
            if not isinstance(stream, str) or self._policies.of(stream) is None:
                return "unknown_stream" if isinstance(stream, str) else "stream"
            key = self._target(stream, event.event_id)
        value = encode_label(event.event_id, stream or "", key, event.y, event.ts, event.revision, origin)
        return Canonical(Sent("labels", event.event_id.encode(), value))

    def _target(self, stream: str, event_id: str) -> str:
        policy = self._policies.of(stream)
        return target(stream, event_id, 1 if policy is None else policy.shards)
