"""Writes outputs as JSON. It runs once an event, and is compiled."""

import base64
from typing import Any, Final

import orjson

from state.events import Calibrated, Carried, Forecast, Rejected, Resolved
from state.forecasts import Classwise, Normal, Quantiles
from streams.records.limits import SCOPED, Limits

#: Largest integer that is written without a point.
_WHOLE: Final = 2**53
_dumps: Final = orjson.dumps


def encode_calibrated(record: Calibrated) -> bytes:
    """Return the JSON value of a ``calibrated`` record."""
    (
        _, event_id, stream, raw, p, draw, calibrator, config, version, ts, applied, carried, band, points,
        low, high, why,
    ) = record  # fmt: skip
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
    return _encoded(said, event_id, p, carried)


def encode_raw(record: Rejected, forecast: Forecast, topic: str, partition: int) -> bytes:
    """Return the JSON value of the ``calibrated`` record that answers a dead letter's forecast with its raw score."""
    said = {
        "event_id": forecast.event_id,
        "stream": forecast.stream or None,
        "raw": forecast.raw,
        "p": forecast.raw,
        "calibrated": False,
        "reason": record.reason,
        "ts": forecast.ts,
        "dead_letter": {"topic": topic, "partition": partition, "offset": record.offset},
    }
    return _encoded(said, forecast.event_id, forecast.raw, forecast.carried)


def encode_resolved(record: Resolved) -> bytes:
    """Return the JSON value of a ``resolved`` record."""
    _, event_id, stream, raw, p, draw, y, calibrator, version, issued_ts, resolved_ts, revision, implied, _ = record
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
    return _encoded(said, event_id, p, None)


def _whole(y: float) -> object:  # compiled code would keep the float
    return int(y) if y == int(y) and abs(y) <= _WHOLE else y


def _encoded(said: dict[str, Any], name: str, p: object, carried: Carried | None) -> bytes:
    """Return a record as JSON, with its scope and what it carries.

    ``name``: the engine's name of the event.
    ``p``: the served forecast.
    """
    scope = ""
    if SCOPED in name:
        said["event_id"], _, scope = name.partition(SCOPED)
    if type(p) is not float:
        said = _shown(said)
    if scope:
        said["scope"] = scope
    if carried is not None and carried.fields:
        said["carried"] = orjson.Fragment(carried.fields)
    return _dumps(said)


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
    """Return the JSON value of a ``dead-letters`` record. The record's value is in base64, cut at the limit."""
    letter: dict[str, Any] = {
        "reason": record.reason,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "key": _base64(record.key, limits.letter_bytes),
        "value": _base64(record.value, limits.letter_bytes),
        "value_bytes": len(record.value or b""),
    }
    if record.withheld:
        letter |= {"key": None, "value": None, "withheld": True}
    return _dumps(letter)


def _base64(data: bytes | None, most: int) -> str | None:
    return None if data is None else base64.b64encode(data[:most]).decode()
