"""Canonical records: what intake makes of source records and sends on."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import orjson

from state.calibrators.answer import new
from state.events import Carried, Forecast, Outcome, Rejected
from state.fence import FORECASTS, OUTCOMES
from state.policies import Policies
from streams.records.decoding import SCOPED, Decoder
from streams.records.encoding import NO_HEADERS
from streams.records.limits import Limits
from streams.records.output_json import with_fields
from streams.records.refused import Refused
from streams.records.routing import Origin, encode_forecast, encode_label, encode_route, target
from streams.sources import far_off
from streams.sources.carrying import TRACE
from streams.sources.mapping import Mapping
from streams.sources.references import Headers
from streams.sources.refusal import PASSED, Refusal
from streams.sources.registry import SchemaId


class Sent(NamedTuple):
    """A canonical record: its topic's label, its key, its value, its Kafka timestamp (ms) and its headers."""

    topic: str
    key: bytes
    value: bytes
    stamp: int
    headers: list[tuple[str, bytes | None]]


class Canonical(NamedTuple):
    """A source record's canonical records: a forecast and its route, which is sent after it; or a label."""

    first: Sent
    then: Sent | None = None


class Reader:
    """Turns the records of one source into canonical ones.

    The worker's own decoder reads each record, so only records that the worker accepts are sent.

    ``name, role``: name and role of the source; the role is ``forecast`` or ``outcome``.
    ``policies, limits``: as the worker's.
    ``carry_headers``: names of headers that go on from labels; those of forecasts are the mapping's.
    """

    def __init__(
        self,
        name: str,
        role: str,
        mapping: Mapping,
        policies: Policies,
        limits: Limits,
        carry_headers: Sequence[str] = TRACE,
    ) -> None:
        self.name, self.role = name, role
        self._policies = policies
        self._ahead_ms = limits.ahead_ms
        self._decoder = Decoder(policies, limits, None, carry_headers)
        self._mapping = mapping
        self._topic = FORECASTS if role == "forecast" else OUTCOMES
        self._made = self._forecast if role == "forecast" else self._label

    def lacking(self, record: Any) -> list[SchemaId]:  # noqa: ANN401 - as below
        """Return the ids of schemas that have to be loaded before a record is read."""
        return (
            [] if isinstance(record.value, Refused) else self._mapping.lacking(record.value, record.key, record.headers)
        )

    def left_out(self, what: str) -> int:
        """Return how many headers or fields were too large to carry; see `Decoder.left_out`."""
        return self._mapping.carrier.left_out[what] if self._topic == FORECASTS else self._decoder.left_out(what)

    @property
    def far_off(self) -> int:
        """Number of records with a time far off; see `Decoder.far_off`."""
        return self._decoder.far_off[self._topic]

    @property
    def far_off_said(self) -> str:
        """What to do about the time of the last of them."""
        return far_off.said(*self._decoder.far_off_last[self._topic], self._mapping.source)

    def canonical(self, record: Any, topic: str, origin: Origin, now: int) -> Canonical | Rejected | None:  # noqa: ANN401 - aiokafka's
        """Return what a source record becomes; None if it is passed over.

        ``record``: as aiokafka reads it: offset, Kafka timestamp (ms), key, value and headers.
        ``topic, origin``: where it stands.
        ``now``: the time, ms since 1970: no record may be far ahead of it.
        """
        value, key, stamp = record.value, record.key, max(0, record.timestamp)
        if isinstance(value, Refused):
            return self._rejected(record, value.reason)
        far_ahead = stamp > now + self._ahead_ms
        if far_ahead and not self._policies.answering:
            return self._rejected(record, "far_ahead")
        fields = self._mapping.read(value, key, record.headers, topic, stamp)
        if far_ahead:
            return self._rejected(record, "far_ahead", fields.fields if isinstance(fields, Refusal) else fields)
        if isinstance(fields, Refusal):
            return None if fields.reason == PASSED else self._rejected(record, fields.reason, fields.fields)
        made = self._made(fields, stamp, origin, record.headers)
        return self._rejected(record, made, fields) if isinstance(made, str) else made

    def _rejected(self, record: Any, reason: str, fields: dict[str, Any] | None = None) -> Rejected:  # noqa: ANN401 - aiokafka's
        rejected = Rejected(record.offset, record.key, record.value, self._topic, reason)
        if fields is None or self._topic != FORECASTS or not self._policies.answering:
            return rejected
        if "stream" in fields:
            fields = {**fields, "scope": fields["stream"]}
        forecast = self._decoder.left(record.offset, None, fields, max(0, record.timestamp))
        if forecast is None or not self._policies.answers_raw(forecast.stream):
            return rejected
        event_id = forecast.event_id.partition(SCOPED)[0]
        key = self._target(forecast.stream, event_id) if forecast.stream else event_id
        return rejected._replace(forecast=forecast._replace(key=key.encode()))

    def _forecast(self, fields: dict[str, Any], stamp: int, origin: Origin, _: Headers) -> Canonical | str:
        carried = cast("Carried | None", fields.get("carried"))
        try:
            value = encode_forecast(fields, origin)
        except TypeError:  # the value is nothing that JSON has
            return "not_json"
        headers = NO_HEADERS
        if carried is not None:
            headers = list(carried.headers)
            value = with_fields(carried.fields, value) if carried.fields else value
        event = cast("Forecast | Rejected", self._decoder.forecast(origin[1], None, value, stamp))
        if isinstance(event, Rejected):
            return event.reason
        event_id = event.event_id.partition(SCOPED)[0]
        key = self._target(event.stream, event_id)
        route = encode_route(event_id, event.stream, key, origin)
        return new(
            Canonical,
            (
                new(Sent, ("forecasts", key.encode(), value, stamp, headers)),
                new(Sent, ("routes", event_id.encode(), route, stamp, NO_HEADERS)),
            ),
        )

    def _label(self, fields: dict[str, Any], stamp: int, origin: Origin, headers: Headers) -> Canonical | str:
        stream = fields.pop("stream", None)
        try:
            value = orjson.dumps(fields)
            event = cast("Outcome | Rejected", self._decoder.outcome(origin[1], None, value, stamp, headers))
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
        kept = NO_HEADERS if event.carried is None else list(event.carried.headers)
        return new(Canonical, (new(Sent, ("labels", event.event_id.encode(), value, stamp, kept)), None))

    def _target(self, stream: str, event_id: str) -> str:
        policy = self._policies.of(stream)
        return target(stream, event_id, 1 if policy is None else policy.shards)
