"""Decoding of the input topics: bytes to events.

Decoding never raises because of a record's contents. A record that cannot be used becomes `Rejected`, with a reason
from `REASONS`. The whole record goes to the dead letters.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import orjson

from state import forecasts
from state.entities import number
from state.events import ERASE, Carried, Event, Forecast, Outcome, Passed, Rejected
from state.fence import FORECASTS, OUTCOMES
from state.forecasts import LARGEST, PROBABILITY
from state.policies import REMEMBERED, Policies, thin
from state.policy import Policy
from state.quick import new
from streams.records.fields import (
    ALTERNATIVES,
    Unusable,
    at,
    only_kind,
    read_distribution,
    read_features,
    read_forecast,
    read_segments,
    read_weights,
    rounded,
)
from streams.records.limits import FAR_OFF, LAST_REVISION, LATEST, LONGEST_NAME, SCOPED, Limits
from streams.records.plain import COMPILED, ENTITY, PlainDecoder
from streams.sources.carrying import EVERY, TRACE, Carrier
from streams.sources.direct import Direct, TopicMapping
from streams.sources.references import Headers
from streams.sources.refusal import PASSED, Refusal
from streams.sources.registry import SchemaId
from streams.sources.schemas import Schemas

#: Why a record is a dead letter, and what it means.
REASONS: Final = {
    "empty": "the value has no bytes; a record without a value, a tombstone, is passed over",
    "batch": "the batch it came in expands beyond TRUEUP_UNPACKED_BYTES, or cannot be unpacked, or read to its end",
    "skipped": "an operator left the record out with trueup state skip",
    "oversized": "the value is longer than the limit, or the key than eight ids",
    "not_json": "the value is not JSON (NaN and Infinity are not JSON)",
    "not_object": "the value is JSON, but not an object",
    "format": "the value is not of the format that its source has",
    "schema": "the registry has no such schema, or it is of another format; or no schema_file fits the value",
    "event_id": "event_id is missing, not text, empty, too long, or holds control characters",
    "scope": "scope is not text like event_id, or both together are longer than 254 bytes",
    "stream": "stream is missing, not text, empty, too long, or holds control characters",
    "unknown_stream": "no pattern matches the stream, and streams are closed",
    "forecast": "none, or more than one, of p, probs, quantiles and normal",
    "unsupported": "a kind of forecast that the stream's calibrator does not take",
    "probability": "p is not a number in [0, 1]",
    "features": "x is missing, misnamed, of the wrong length, or out of [-1, 1]",
    "entity": "entity is not text like event_id, nor a whole number",
    "label_rate": "the chance of a label is missing where the stream's configuration says it stands, or is not a "
    "number above 0 and at most 1",
    "weight": "the weight is missing where the stream's configuration says it stands, or is not a number from 0 to 1e9",
    "model_version": "the stream has a calibrator a version, and model_version is missing, or not text like event_id",
    "segments": "segments has no usable value of each name that the stream's configuration requires",
    "probs": "probs is not as many numbers in [0, 1] as the stream has classes, adding up to 1",
    "quantiles": "quantiles has no increasing levels in (0, 1) with as many values that do not fall",
    "normal": "normal has no finite mean, or no positive std",
    "label": "y is not a number, or not one the event's forecast can have: 0 or 1, or the number of a class",
    "erased": "the event was erased; the letter does not hold what the record holds",
    "conflict": "an earlier forecast of this event_id has another stream or another forecast, and was answered",
    "revision": "revision is not a whole number from 1 to 4294967295",
    "parked_label": "the outcome that was parked for this forecast, here the value, is not one it can have",
    "timestamp": "ts is not a whole number of ms (for other numbers a source has `unit`), before 1970, or "
    "TRUEUP_AHEAD_SECONDS ahead of the record's Kafka timestamp; or that lies after 9999",
}


#: Longest Kafka key, as a multiple of the longest id.
KEY_IDS: Final = 8

#: Fields of a forecast with a meaning of their own. A stream may still name one of them as its entity.
OWN: Final = frozenset({"event_id", "scope", "stream", *ALTERNATIVES, "ts", "carried", "origin"})

#: A record in which nothing could be read.
_NOTHING: Final[dict[str, Any]] = {}

_loads: Final = orjson.loads


class Decoder:
    """Turns the values of the two input topics into events.

    ``direct``: sources that are one of the two topics; their records are mapped first. None: all records have trueup's
    own form.
    ``carry_headers``: names of headers that are carried from forecasts to answers, where no source maps them.
    """

    def __init__(
        self, policies: Policies, limits: Limits, direct: Direct | None = None, carry_headers: Sequence[str] = TRACE
    ) -> None:
        self._policies = policies
        self._record_bytes = limits.record_bytes
        self._key_bytes = KEY_IDS * limits.id_bytes
        self._id_bytes = limits.id_bytes
        self._ahead_ms = limits.ahead_ms
        #: Policies of valid stream names, as a cache: most records name a known stream.
        self._known: dict[str, Policy] = {}
        #: Schemas that the registry has returned.
        self.schemas = Schemas() if direct is None else Schemas(direct.registry)
        self._mappings = (None, None) if direct is None else direct.mappings(self.schemas)
        mapping = self._mappings[FORECASTS]
        #: Carriers of headers: one for records of trueup's producers, one for those of intake.
        self._carrier, self._of_intake = Carrier(carry_headers), Carrier(EVERY)
        #: Decodes most records much faster, where this is compiled and no source maps them.
        self.plain: PlainDecoder | None = None
        if COMPILED and direct is None:
            self.plain = PlainDecoder(limits, self._carrier, self._of_intake, self._key_bytes)
        self._carriers = [self._carrier, self._of_intake, *([] if mapping is None else mapping.carriers)]
        #: For forecasts and outcomes: how many records have a time that is far off, and the last such time with its
        #: Kafka timestamp, ms. These records are used nevertheless, because they may be old history.
        self.far_off = [0, 0]
        self.far_off_last = [(0, 0), (0, 0)]
        #: Whether `load` has to be awaited before records can be decoded.
        self.asks_registry = direct is not None and direct.asks_registry

    async def load(self, records: Iterable[tuple[int, Any]]) -> None:
        """Load the schemas that records name; wait while the registry is not available. Records are as in `events`."""
        if lacking := self.lacking(records):
            await self.schemas.load(lacking)

    def lacking(self, records: Iterable[tuple[int, Any]]) -> dict[SchemaId, str]:
        """Return the schemas that `load` would ask for, each with the source that names it."""
        lacking: dict[SchemaId, str] = {}
        for topic, record in records:
            mapping = self._mappings[topic]
            if mapping is not None:
                lacking.update(dict.fromkeys(mapping.lacking(record.value, record.key, record.headers), mapping.names))
        return lacking

    def events(self, records: Iterable[tuple[int, Any]]) -> list[Event]:
        """Decode records of both topics, in their order.

        ``records``: pairs of a topic, `FORECASTS` or `OUTCOMES`, and a record with ``offset``, ``key``, ``value``,
        ``headers`` and ``timestamp``, ms.
        """
        found: list[Event] = []
        for topic, record in records:
            timestamp: int = record.timestamp
            timestamp = max(timestamp, 0)
            if topic == FORECASTS:
                found.append(self.forecast(record.offset, record.key, record.value, timestamp, record.headers))
            else:
                found.append(self.outcome(record.offset, record.key, record.value, timestamp, record.headers))
        return found

    def forecast(
        self, offset: int, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()
    ) -> Forecast | Rejected | Passed:
        """Decode one record of ``forecasts``. ``timestamp`` is the Kafka timestamp, ms."""
        if self.plain is not None and (made := self.plain.forecast(offset, key, value, timestamp, headers)) is not None:
            return made
        policy: Policy | None = None
        stream: Any = ""
        record: dict[str, Any] = _NOTHING
        try:
            record = self._object(key, value, headers, timestamp, self._mappings[FORECASTS])
            event_id = self._event(record)
            stream = record.get("stream")
            policy = self._known.get(stream) if type(stream) is str else None
            if policy is None:
                stream = self._name(record, "stream")
                policy = self._policy(stream)
            raw: forecasts.ForecastValue
            if policy.kind == PROBABILITY:
                p = record.get("p")
                if p is None or "probs" in record or "quantiles" in record or "normal" in record:
                    only_kind(record, "p")
                raw = float(p) if (type(p) is float or type(p) is int) and 0 <= p <= 1 else rounded(p, "probability")
            else:
                raw = read_distribution(record, policy)
            x = read_features(record.get("x"), policy) if policy.features else ()
            segments = read_segments(record.get("segments"), policy) if policy.segments else ()
            path = policy.entity
            entity = self._entity(record, path) if path or "entity" in record else 0
            weight = chance = 1.0
            if policy.weighed:
                weight, chance = read_weights(record, policy)
            ts = self._time(record, timestamp)
            if ts < timestamp - FAR_OFF:
                self._far(FORECASTS, ts, timestamp)
            carried = self._carried(record, headers) if headers or "carried" in record else None
            version = self._version(record, policy.model_version) if policy.model_version else ""
            said = segments, carried, entity, weight, chance, version
            return new(Forecast, (offset, key, event_id, stream, raw, x, ts, value, *said))
        except Unusable as unusable:
            reason = unusable.args[0]
            if reason == PASSED:
                return Passed(offset, FORECASTS)
            left = None
            if self._policies.answering:
                readable = unusable.args[1] if len(unusable.args) > 1 else record
                left = self.left(offset, key, readable, timestamp, headers)
            return Rejected(offset, key, value, FORECASTS, reason, forecast=left)

    def outcome(
        self, offset: int, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()
    ) -> Outcome | Rejected | Passed:
        """Decode one record of ``outcomes``. ``timestamp`` is the Kafka timestamp, ms."""
        if self.plain is not None and (made := self.plain.outcome(offset, key, value, timestamp, headers)) is not None:
            return made
        try:
            record = self._object(key, value, headers, timestamp, self._mappings[OUTCOMES])
            event_id = self._event(record)
            y = record.get("y")
            if type(y) is not int and type(y) is not bool and type(y) is not float:
                if y is not None or record.get("erase") is not True:
                    raise Unusable("label")
                y = ERASE
            elif y not in (0, 1) and (self._policies.binary or not -LARGEST <= y <= LARGEST):
                raise Unusable("label")
            revision = record.get("revision")
            if revision is None:
                revision = 0
            elif type(revision) is not int or not 0 < revision <= LAST_REVISION:
                raise Unusable("revision")
            ts = self._time(record, timestamp)
            if ts < timestamp - FAR_OFF:
                self._far(OUTCOMES, ts, timestamp)
            carried = self._carrier.carried(headers, _NOTHING) if headers else None
            return new(Outcome, (offset, key, event_id, float(y), ts, value, revision, carried))
        except Unusable as unusable:
            reason = unusable.args[0]
            if reason == PASSED:
                return Passed(offset, OUTCOMES)
            return Rejected(offset, key, value, OUTCOMES, reason)

    def _policy(self, stream: str) -> Policy:
        policy = self._policies.of(stream)
        if policy is None:
            raise Unusable("unknown_stream")
        if len(self._known) >= REMEMBERED:
            for name in thin(self._known):
                if self.plain is not None:
                    self.plain.streams.pop(name, None)
        self._known[stream] = policy
        asks = policy.features, policy.segments, policy.weighed, policy.model_version
        if self.plain is not None and policy.kind == PROBABILITY and not any(asks):
            field = policy.entity or ENTITY
            if field.isidentifier() and field not in OWN:
                self.plain.streams[stream] = stream, field.encode()
        return policy

    def _object(
        self, key: bytes | None, value: bytes | None, headers: Headers, timestamp: int, mapping: TopicMapping | None
    ) -> dict[str, Any]:
        if not value:
            raise Unusable(PASSED if value is None else "empty")
        if len(value) > self._record_bytes or (key is not None and len(key) > self._key_bytes):
            raise Unusable("oversized")
        if mapping is not None:
            mapped = mapping.read(value, key, headers, mapping.topic, timestamp)
            if isinstance(mapped, Refusal):
                raise Unusable(mapped.reason, mapped.fields or _NOTHING)
            return mapped
        try:
            record = _loads(value)
        except orjson.JSONDecodeError:
            raise Unusable("not_json") from None
        if type(record) is not dict:
            raise Unusable("not_object")
        return record

    def _carried(self, record: dict[str, Any], headers: Headers) -> Carried | None:
        """Return what is carried from a forecast to its answer."""
        found = record.get("carried", _NOTHING)
        if type(found) is Carried or self._mappings[FORECASTS] is not None:  # the mapping has already chosen
            return found if type(found) is Carried else None
        carrier = self._of_intake if "origin" in record else self._carrier
        if type(found) is not dict:
            carrier.left_out["field"] += found is not None
            found = _NOTHING
        return carrier.carried(headers, found)

    def left(
        self, offset: int, key: bytes | None, record: dict[str, Any], timestamp: int, headers: Headers = ()
    ) -> Forecast | None:
        """Return the readable part of a dead forecast; None if it is not enough for an answer.

        An answer needs the event and the forecast itself. An unreadable stream becomes empty, and an unreadable time
        becomes the Kafka timestamp.
        """
        try:
            event_id = self._event(record)
            kind = only_kind(record, *ALTERNATIVES)
            raw = read_forecast(record[kind], kind, None)
            if timestamp > LATEST:
                return None
        except Unusable:
            return None
        stream, ts = "", timestamp
        with suppress(Unusable):
            stream = self._name(record, "stream")
        with suppress(Unusable):
            ts = self._time(record, timestamp)
        return Forecast(offset, key, event_id, stream, raw, (), ts, None, (), self._carried(record, headers))

    def left_out(self, what: str) -> int:
        """Return how many headers or fields (``header``, ``field``) were too large to carry to answers."""
        return sum(carrier.left_out[what] for carrier in self._carriers)

    def _name(self, record: dict[str, Any], field: str) -> str:
        return self._named(record.get(field), field)

    def _named(self, name: object, field: str) -> str:
        # An ASCII name has as many bytes as characters, so only other names must be encoded to be measured.
        if (
            type(name) is str
            and 0 < len(name) <= self._id_bytes
            and name.isprintable()
            and (name.isascii() or len(name.encode()) <= self._id_bytes)
        ):
            return name
        raise Unusable(field)

    def _entity(self, record: dict[str, Any], path: str) -> int:
        """Return the number of a forecast's entity, read at a path or in ``entity``; 0 if there is none."""
        found = at(record, path, "entity")
        return 0 if found is None else number(self._text(found, "entity").encode())

    def _version(self, record: dict[str, Any], path: str) -> str:
        """Return the model's version, read at a path or in ``model_version``."""
        return self._text(at(record, path, "model_version"), "model_version")

    def _text(self, found: object, field: str) -> str:
        """Return a text that is a name; an integer becomes one."""
        return self._named(str(found) if type(found) is int else found, field)

    def _event(self, record: dict[str, Any]) -> str:
        """Return the engine's name of an event: its id and its scope."""
        event_id = self._named(record.get("event_id"), "event_id")
        if "scope" not in record:
            return event_id
        name = f"{event_id}{SCOPED}{self._name(record, 'scope')}"
        if len(name.encode()) > LONGEST_NAME:
            raise Unusable("scope")
        return name

    def _time(self, record: dict[str, Any], timestamp: int) -> int:
        if timestamp > LATEST:
            raise Unusable("timestamp")
        ts = record.get("ts")
        if ts is None:
            return timestamp
        if type(ts) is not int or not 0 <= ts <= timestamp + self._ahead_ms:
            raise Unusable("timestamp")
        return ts

    def _far(self, topic: int, ts: int, timestamp: int) -> None:
        self.far_off[topic] += 1
        self.far_off_last[topic] = ts, timestamp
