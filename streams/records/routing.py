"""Records between intake, router and worker: routes, labels, and the outcomes made from labels.

Intake writes routes and labels, keyed by event id, and the router reads them. They are JSON. Each names its source
record, so that repeated records are noticed.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, Final
from zlib import crc32

import orjson

from state.events import ERASE, Rejected, erases
from state.policies import Policies
from state.quick import new
from state.routes import LABELS, ROUTES, Headers, Label, Route, Routed
from streams.records.limits import LAST_REVISION, LATEST

#: Why a record is a dead letter of intake or of the router, in addition to `streams.records.decoding.REASONS`.
REASONS: Final = {
    "route": "a record of the routes or labels is not as intake writes them",
    "routes": "the event was forecast in more streams than a route may have",
    "far_ahead": "the Kafka timestamp lies more than TRUEUP_AHEAD_SECONDS ahead of the clock of intake",
}

#: Stands in place of a source's name in records that `replay.load` wrote. No source has a space in its name.
LOADED: Final = "trueup load"
#: A source record: its partition, as `place` names it, and its offset.
Origin = tuple[str, int]

_loads: Final = orjson.loads

#: Highest event time, ms, and highest offset of an origin. Rows of the router hold the next offset.
_LAST_TIME, _LAST_ORIGIN = 2**63 - 1, 2**63 - 2


def place(source: str, topic_id: str, partition: int) -> str:
    """Return the name of a partition of a source.

    The topic's id is part of the name, because a topic that is recreated begins again at offset 0.
    """
    return f"{source}@{topic_id}/{partition}"


def target(stream: str, event_id: str, shards: int) -> str:
    """Return the key under which the records of an event go to a stream: the stream itself, or one of its shards."""
    return stream if shards == 1 else f"{stream}#{crc32(event_id.encode()) % shards}"


def target_of(policies: Policies, stream: str, event_id: str) -> str:
    """Return the key of an event's records by the stream's policy."""
    policy = policies.of(stream)
    return target(stream, event_id, policy.shards if policy else 1)


def encode_forecast(record: dict[str, Any], origin: Origin) -> bytes:
    """Return the value of a canonical forecast; raises TypeError if JSON cannot hold it.

    The stream is the event's scope, so other streams may use the same id.
    """
    made = record.copy()
    carried = made.pop("carried", None)
    made["origin"] = origin
    if "stream" in record:  # otherwise the record is refused because it has no stream
        made["scope"] = record["stream"]
    if carried is not None and carried.fields:
        made["carried"] = orjson.Fragment(carried.fields)
    return orjson.dumps(made)


def encode_route(event_id: str, stream: str, key: str, origin: Origin) -> bytes:
    """Return the value of a route: the stream of a forecast, and the key under which it was sent."""
    return orjson.dumps({"event_id": event_id, "stream": stream, "target": key, "origin": origin})


def encode_label(event_id: str, stream: str, key: str, y: float, ts: int, number: int, origin: Origin) -> bytes:
    """Return the value of a label; stream and key are empty if it is for every stream of its event."""
    return orjson.dumps(
        {
            "event_id": event_id,
            "stream": stream,
            "target": key,
            "y": y,
            "ts": ts,
            "number": number,
            "origin": origin,
        }
    )


def encode_outcome(routed: Routed) -> bytes:
    """Return the value of an outcome, or of a record that erases the event."""
    _, event_id, stream, y, ts, number, _, _ = routed
    if erases(y):
        return orjson.dumps({"event_id": event_id, "scope": stream, "erase": True, "ts": ts})
    return orjson.dumps({"event_id": event_id, "scope": stream, "y": y, "ts": ts, "revision": number})


class RouteDecoder:
    """Turns the values of routes and labels into events; see `streams.records.decoding.Decoder`."""

    #: Its records are JSON.
    asks_registry: ClassVar[bool] = False

    def events(self, records: Iterable[tuple[int, Any]]) -> list[Route | Label | Rejected]:
        """Decode records of both topics, in their order."""
        found: list[Route | Label | Rejected] = []
        for topic, record in records:
            stamp = max(0, record.timestamp)
            if stamp > LATEST:
                found.append(Rejected(record.offset, record.key, record.value, topic, "route"))
            elif topic == LABELS:
                headers = tuple(record.headers) if record.headers else ()
                found.append(self._label(record.offset, record.key, record.value, stamp, headers))
            else:
                found.append(self._route(record.offset, record.key, record.value, stamp))
        return found

    def _route(self, offset: int, key: bytes | None, value: bytes | None, stamp: int) -> Route | Rejected:
        try:
            read = _loads(value or b"")
            event_id, stream, to = _text(read["event_id"]), _text(read["stream"]), _text(read["target"])
            if event_id and stream and to:
                return new(Route, (offset, key, value, event_id, stream, to, stamp, _origin(read)))
        except (ValueError, TypeError, KeyError):
            pass
        return Rejected(offset, key, value, ROUTES, "route")

    def _label(
        self, offset: int, key: bytes | None, value: bytes | None, stamp: int, headers: Headers
    ) -> Label | Rejected:
        try:
            read = _loads(value or b"")
            event_id, stream, to = _text(read["event_id"]), _text(read["stream"]), _text(read["target"])
            y = ERASE if read.get("erase") is True else read["y"]
            ts, number = _whole(read["ts"], _LAST_TIME), _whole(read["number"], LAST_REVISION)
            if event_id and bool(stream) == bool(to) and (type(y) is float or type(y) is int):
                origin = _origin(read)
                return new(
                    Label, (offset, key, value, event_id, stream, to, float(y), ts, number, stamp, origin, headers)
                )
        except (ValueError, TypeError, KeyError, OverflowError):
            pass
        return Rejected(offset, key, value, LABELS, "route")


def _text(found: Any) -> str:  # noqa: ANN401 - any JSON
    # An ASCII text is as many bytes as characters; only others have to be encoded to be measured.
    if type(found) is not str or len(found) > 255 or not (found.isascii() or len(found.encode()) <= 255):
        raise TypeError
    return found


def _origin(read: dict[str, Any]) -> Origin | None:
    origin = read.get("origin")
    if origin is None:
        return None
    partition, offset = origin
    if type(partition) is not str:
        raise TypeError
    return partition, _whole(offset, _LAST_ORIGIN)


def _whole(found: Any, most: int) -> int:  # noqa: ANN401 - any JSON
    if type(found) is not int or not 0 <= found <= most:
        raise TypeError
    return found
