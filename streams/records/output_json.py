"""Outputs in JSON; runs once an event, and is compiled."""

import base64
from typing import Any, Final

import orjson

from state.events import Calibrated, Rejected, Resolved
from state.forecasts import Classwise, Normal, Quantiles
from streams.records.limits import SCOPED, Limits

#: Largest whole number that is shown without a point.
_WHOLE: Final = 2**53
_dumps: Final = orjson.dumps


def encode_calibrated(record: Calibrated) -> bytes:
    """Return the JSON value of a ``calibrated`` record."""
    (
        _,
        event_id,
        stream,
        raw,
        p,
        draw,
        calibrator,
        config,
        version,
        ts,
        applied,
        carried,
        band,
        points,
        low,
        high,
        why,
    ) = record
    scope = ""
    if SCOPED in event_id:
        event_id, _, scope = event_id.partition(SCOPED)
    said: dict[str, Any] = {
        "event_id": event_id,
        "stream": stream,
        "raw": raw,
        "p": p,
        "draw": draw,
        "calibrator": calibrator,
        "config": config,
        "version": version,
        "ts": ts,
        "applied": applied,
    }
    if band:
        said["band"] = band
    if points is not None:
        said["points"] = points
    if low is not None:
        said["p_low"], said["p_high"] = low, high
        if why:
            said["why"] = why
    value = _dumps(said if type(p) is float else _shown(said))
    if scope:
        value = _within(scope, value)
    return value if carried is None or not carried.fields else with_fields(carried.fields, value)


def encode_raw(record: Rejected, topic: str, partition: int) -> bytes:
    """Return the JSON value of the ``calibrated`` record that answers a dead letter's forecast with its raw score."""
    forecast = record.forecast
    if forecast is None:
        raise ValueError("the forecast of this dead letter could not be read")
    event_id, _, scope = forecast.event_id.partition(SCOPED)
    said = {
        "event_id": event_id,
        "stream": forecast.stream or None,
        "raw": forecast.raw,
        "p": forecast.raw,
        "calibrated": False,
        "reason": record.reason,
        "ts": forecast.ts,
        "dead_letter": {"topic": topic, "partition": partition, "offset": record.offset},
    }
    value = orjson.dumps(_shown(said))
    if scope:
        value = _within(scope, value)
    carried = forecast.carried
    return with_fields(carried.fields, value) if carried is not None and carried.fields else value


def encode_resolved(record: Resolved) -> bytes:
    """Return the JSON value of a ``resolved`` record."""
    _, event_id, stream, raw, p, draw, y, calibrator, version, issued_ts, resolved_ts, revision, implied, _ = record
    scope = ""
    if SCOPED in event_id:
        event_id, _, scope = event_id.partition(SCOPED)
    said: dict[str, Any] = {
        "event_id": event_id,
        "stream": stream,
        "raw": raw,
        "p": p,
        "draw": draw,
        "y": int(y) if type(p) is float else _whole(y),
        "calibrator": calibrator,
        "version": version,
        "issued_ts": issued_ts,
        "resolved_ts": resolved_ts,
        "revision": revision,
        "implied": implied,
    }
    value = _dumps(said if type(p) is float else _shown(said))
    return _within(scope, value) if scope else value


def _whole(y: float) -> object:  # compiled code would keep a float
    return int(y) if y == int(y) and abs(y) <= _WHOLE else y


def _within(scope: str, value: bytes) -> bytes:
    """Return the value of a record whose event has a scope."""
    return value[:-1] + b',"scope":' + orjson.dumps(scope) + b"}"


def with_fields(fields: bytes, value: bytes) -> bytes:
    """Return the value of a record that carries fields."""
    return value[:-1] + b',"carried":' + fields + b"}"


def event_name(record: dict[str, Any]) -> Any:  # noqa: ANN401 - any value that is not a name
    """Return the name by which the engine knows the event of an output."""
    event_id, scope = record["event_id"], record.get("scope")
    return f"{event_id}{SCOPED}{scope}" if isinstance(event_id, str) and isinstance(scope, str) else event_id


def _shown(said: dict[str, Any]) -> dict[str, Any]:
    """Return fields with forecasts of classes and numbers as JSON; ``p`` gets the name of its kind."""
    shown: dict[str, Any] = {}
    for name, value in said.items():
        if isinstance(value, Quantiles):
            shown["quantiles" if name == "p" else name] = {"levels": value.levels, "values": value.values}
        elif isinstance(value, Normal):
            shown["normal" if name == "p" else name] = {"mean": value.mean, "std": value.std}
        elif isinstance(value, Classwise):
            shown["probs" if name == "p" else name] = list(value)
            if name == "p":
                whole = value.normalised()
                shown["normalised"], shown["argmax"] = list(whole), whole.argmax()
        else:
            shown[name] = value
    return shown


def encode_letter(record: Rejected, topic: str, partition: int, limits: Limits) -> bytes:
    """Return the JSON value of a ``dead-letters`` record; its value is base64, cut at the limit."""
    key, value = record.key, record.value
    letter: dict[str, Any] = {
        "reason": record.reason,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "key": None,
        "value": None,
        "value_bytes": 0 if value is None else len(value),
    }
    if record.withheld:
        letter["withheld"] = True
    else:
        letter["key"] = None if key is None else base64.b64encode(key[: limits.letter_bytes]).decode()
        letter["value"] = None if value is None else base64.b64encode(value[: limits.letter_bytes]).decode()
    return orjson.dumps(letter)
