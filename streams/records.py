"""Records as they stand in the topics: bytes to events, and outputs to bytes.

Decoding never raises on what a record holds: anything that cannot be used comes back as `Rejected` with a reason
from `REASONS`, and goes to the dead letters whole.
"""

import base64
import math
from dataclasses import dataclass
from typing import Any, Final

import orjson

from state.calibrators.base import new
from state.events import Calibrated, Forecast, Outcome, Rejected, Resolved
from state.fence import FORECASTS, OUTCOMES
from state.policy import Policies, Policy

#: Why a record is a dead letter, and what it means.
REASONS: Final = {
    "empty": "the record has no value",
    "oversized": "the value is longer than the limit, or the key than eight ids",
    "not_json": "the value is not JSON (NaN and Infinity are not JSON)",
    "not_object": "the value is JSON, but not an object",
    "event_id": "event_id is missing, not text, empty, too long, or holds control characters",
    "stream": "stream is missing, not text, empty, too long, or holds control characters",
    "unknown_stream": "no pattern matches the stream, and streams are closed",
    "forecast": "none, or more than one, of p, probs, quantiles and normal",
    "unsupported": "a kind of forecast that the stream's calibrator does not take",
    "probability": "p is not a number in [0, 1]",
    "features": "x is missing, misnamed, of the wrong length, or out of [-1, 1]",
    "label": "y is not 0, 1, true or false",
    "timestamp": "ts is not a whole number of ms, before 1970, after 9999, or too far ahead of the record's own time",
}


@dataclass(frozen=True)
class Limits:
    """What a record may be, at most.

    Attributes
    ----------
    record_bytes
        Longest value, bytes.
    id_bytes
        Longest event id and stream name, bytes in UTF-8; at most 255, for the state's rows.
    ahead_ms
        How far ``ts`` may lie ahead of the Kafka timestamp, ms. One record from a clock that runs wild would
        otherwise move stream time forward and expire every row.
    letter_bytes
        How much of a dead letter's value is kept.
    """

    record_bytes: int = 65_536
    id_bytes: int = 128
    ahead_ms: int = 24 * 3600 * 1000
    letter_bytes: int = 16_384


class _Unusable(Exception):  # noqa: N818 - carries a reason from the decoder's parts to its door
    pass


_ALTERNATIVES = ("p", "probs", "quantiles", "normal")
#: Longest Kafka key, in longest ids.
KEY_IDS = 8
#: Latest time a record may have, ms: the end of the year 9999. Beyond it a due time would not fit its field.
LATEST = 253_402_300_799_999

_loads = orjson.loads


class Decoder:
    """Turns the values of the two input topics into events.

    Parameters
    ----------
    policies
        Say which streams there are and which features each takes.
    limits
        What a record may be, at most.
    """

    def __init__(self, policies: Policies, limits: Limits) -> None:
        self._policies = policies
        self._record_bytes = limits.record_bytes
        self._key_bytes = KEY_IDS * limits.id_bytes
        self._id_bytes = limits.id_bytes
        self._ahead_ms = limits.ahead_ms

    def forecast(self, offset: int, key: bytes | None, value: bytes | None, timestamp: int) -> Forecast | Rejected:
        """Decode one record of ``forecasts``; ``timestamp`` is the Kafka timestamp, ms."""
        try:
            record = self._object(key, value)
            event_id = self._name(record, "event_id")
            stream = self._name(record, "stream")
            policy = self._policies.of(stream)
            if policy is None:
                raise _Unusable("unknown_stream")
            p = record.get("p")
            if p is None or "probs" in record or "quantiles" in record or "normal" in record:
                _require_probability_forecast(record)
            if (type(p) is not float and type(p) is not int) or not 0 <= p <= 1:
                raise _Unusable("probability")
            x = _features(record.get("x"), policy) if policy.features else ()
            ts = self._time(record, timestamp)
            return new(Forecast, (offset, key, event_id, stream, float(p), x, ts))
        except _Unusable as unusable:
            return Rejected(offset, key, value, FORECASTS, unusable.args[0])

    def outcome(self, offset: int, key: bytes | None, value: bytes | None, timestamp: int) -> Outcome | Rejected:
        """Decode one record of ``outcomes``; ``timestamp`` is the Kafka timestamp, ms."""
        try:
            record = self._object(key, value)
            event_id = self._name(record, "event_id")
            y = record.get("y")
            if (type(y) is not int and type(y) is not bool and type(y) is not float) or y not in (0, 1):
                raise _Unusable("label")
            return new(Outcome, (offset, key, event_id, float(y), self._time(record, timestamp)))
        except _Unusable as unusable:
            return Rejected(offset, key, value, OUTCOMES, unusable.args[0])

    def _object(self, key: bytes | None, value: bytes | None) -> dict[str, Any]:
        if not value:
            raise _Unusable("empty")
        if len(value) > self._record_bytes or (key is not None and len(key) > self._key_bytes):
            raise _Unusable("oversized")
        try:
            record = _loads(value)
        except orjson.JSONDecodeError:
            raise _Unusable("not_json") from None
        if type(record) is not dict:
            raise _Unusable("not_object")
        return record

    def _name(self, record: dict[str, Any], field: str) -> str:
        name = record.get(field)
        # An ASCII name is as many bytes as characters; only others have to be encoded to be measured.
        if (
            type(name) is str
            and 0 < len(name) <= self._id_bytes
            and name.isprintable()
            and (name.isascii() or len(name.encode()) <= self._id_bytes)
        ):
            return name
        raise _Unusable(field)

    def _time(self, record: dict[str, Any], timestamp: int) -> int:
        if timestamp > LATEST:
            raise _Unusable("timestamp")
        ts = record.get("ts")
        if ts is None:
            return timestamp
        if type(ts) is not int or not 0 <= ts <= timestamp + self._ahead_ms:
            raise _Unusable("timestamp")
        return ts


def _require_probability_forecast(record: dict[str, Any]) -> None:
    """Raise unless the record forecasts by ``p`` alone."""
    kinds = [kind for kind in _ALTERNATIVES if record.get(kind) is not None]
    if len(kinds) != 1:
        raise _Unusable("forecast")
    if kinds != ["p"]:
        raise _Unusable("unsupported")


def _features(x: object, policy: Policy) -> tuple[float, ...]:
    """Return the features in the policy's order, each in [-1, 1]."""
    if isinstance(policy.features, tuple):
        if type(x) is not dict:
            raise _Unusable("features")
        values = [x.get(name) for name in policy.features]
    else:
        if type(x) is not list or len(x) != policy.features:
            raise _Unusable("features")
        values = x
    for value in values:
        if type(value) not in (float, int) or not -1 <= value <= 1:  # type: ignore[operator]
            raise _Unusable("features")
    return tuple(map(float, values))  # type: ignore[arg-type]


def encode_calibrated(record: Calibrated) -> bytes:
    """Return the JSON value of a ``calibrated`` record."""
    _, event_id, stream, raw, p, expected, calibrator, config, version, ts = record
    return orjson.dumps(
        {
            "event_id": event_id,
            "stream": stream,
            "raw": raw,
            "p": p,
            "expected": expected,
            "calibrator": calibrator,
            "config": config,
            "version": version,
            "ts": ts,
        }
    )


def encode_resolved(record: Resolved) -> bytes:
    """Return the JSON value of a ``resolved`` record."""
    _, event_id, stream, raw, p, y, calibrator, version, issued_ts, resolved_ts = record
    return orjson.dumps(
        {
            "event_id": event_id,
            "stream": stream,
            "raw": raw,
            "p": p,
            "y": int(y) if math.isfinite(y) and y == int(y) else y,
            "calibrator": calibrator,
            "version": version,
            "issued_ts": issued_ts,
            "resolved_ts": resolved_ts,
        }
    )


def encode_letter(record: Rejected, topic: str, partition: int, limits: Limits) -> bytes:
    """Return the JSON value of a ``dead-letters`` record; its value is base64, cut at the limit."""
    value = record.value
    return orjson.dumps(
        {
            "reason": record.reason,
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "key": None if record.key is None else base64.b64encode(record.key[: limits.letter_bytes]).decode(),
            "value": None if value is None else base64.b64encode(value[: limits.letter_bytes]).decode(),
            "value_bytes": 0 if value is None else len(value),
        }
    )
