"""Inputs, outputs and rows of the router.

There is a row for each event: the streams in which it was forecast, and its labels, in the order in which they came.
"""

from struct import Struct
from typing import Final, NamedTuple

from state.fence import FORECASTS, OUTCOMES
from state.frames import CorruptFrame
from state.kind import EVENT as EVENT_ID
from state.kind import Form, KeyPart, Kind, Moves, form
from state.quick import new

#: The inputs, in the order of the fence.
ROUTES, LABELS = FORECASTS, OUTCOMES
#: The most streams of an event, and the most labels.
MOST_ROUTES: Final = 64
MOST_LABELS: Final = 100

#: Fates of records and rows, in the fence's order. Each input record has exactly one of the first eleven.
FATES: Final = (
    "routes_opened",
    "routes_added",
    "routes_duplicate",
    "routes_again",
    "routes_dead",
    "labels_routed",
    "labels_early",
    "labels_duplicate",
    "labels_stale",
    "labels_again",
    "labels_dead",
    "early_opened",
    "early_joined",
    "expired_routes",
    "expired_labels",
)
#: Routes: the first of an event; one to another stream; a known one; a source record that came before; a dead one.
OPENED, ADDED, ROUTE_DUPLICATE, ROUTE_AGAIN, ROUTE_DEAD = range(5)
#: Labels: sent; waiting for a route; repeated; too old for every stream; a source record that came before; a dead one.
ROUTED, EARLY, LABEL_DUPLICATE, STALE, LABEL_AGAIN, LABEL_DEAD = range(5, 11)
#: Counts: rows opened by a label; those of them that got a route; rows that expired with a route; and without one.
EARLY_OPENED, EARLY_JOINED, EXPIRED_ROUTES, EXPIRED_LABELS = range(11, 15)
#: How many fates count routes; and how many count records of both topics.
ROUTE_FATES, INPUT_FATES = 5, 11

#: Names and values.
Headers = tuple[tuple[str, bytes | None], ...]

_HEAD: Final = Struct("<QqBB")
_ROUTE: Final = Struct("<BBB")
_LABEL: Final = Struct("<qqdIBB")
_OFFSET: Final = Struct("<q")


class Route(NamedTuple):
    """A forecast of an event was sent to a stream."""

    #: Offset, key and value of the record.
    offset: int
    key: bytes | None
    value: bytes | None
    #: Event and stream of the forecast.
    event_id: str
    stream: str
    #: Key of the forecast's record: the stream, or one of its shards.
    target: str
    #: Kafka timestamp, ms.
    stamp: int
    #: Partition and offset of the source record; None if unknown.
    origin: tuple[str, int] | None


class Label(NamedTuple):
    """What happened, for every stream of the event or for one."""

    #: ``offset``, ``stamp`` and ``origin`` are as in `Route`.
    offset: int
    key: bytes | None
    value: bytes | None
    event_id: str
    #: The stream that gets the label, and the key of that stream's records; both empty: every stream of the event.
    stream: str
    target: str
    #: The label, its event time (ms), and its own revision number; 0 if it has none. `state.events.ERASE` for ``y``
    #: erases the event.
    y: float
    ts: int
    number: int
    stamp: int
    origin: tuple[str, int] | None
    #: Headers of the record. The outputs that it causes at once have them, too.
    headers: Headers = ()


class Routed(NamedTuple):
    """A label for one stream; ``number`` is its revision there, ``stamp`` its Kafka timestamp, ms.

    If ``y`` is `state.events.ERASE`, it erases the event there. ``headers`` are those of the label; a label that has
    waited for its forecast has none, as rows do not keep them.
    """

    target: str
    event_id: str
    stream: str
    y: float
    ts: int
    number: int
    stamp: int
    headers: Headers = ()


class RoutedStream(NamedTuple):
    """A stream in an event's row. ``known``: number of labels that came before it."""

    known: int
    stream: str
    target: str


class Said(NamedTuple):
    """A label in an event's row; see `Label`."""

    stamp: int
    ts: int
    y: float
    number: int
    stream: str
    target: str


class RouteRow:
    """An event's row. It has the applied count when it entered the queue, and its due time, ms."""

    def __init__(self, born: int, due: int, routes: list[RoutedStream], labels: list[Said]) -> None:
        self.born = born
        self.due = due
        self.routes = routes
        self.labels = labels

    def encode(self) -> bytes:
        """Return the payload."""
        parts = [_HEAD.pack(self.born, self.due, len(self.routes), len(self.labels))]
        for known, stream, target in self.routes:
            name, key = stream.encode(), target.encode()
            parts.append(_ROUTE.pack(known, len(name), len(key)) + name + key)
        for stamp, ts, y, number, stream, target in self.labels:
            name, key = stream.encode(), target.encode()
            parts.append(_LABEL.pack(stamp, ts, y, number, len(name), len(key)) + name + key)
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes) -> "RouteRow":
        """Read a payload; raises as `state.kind.Kind.decode` says."""
        born, due, n_routes, n_labels = _HEAD.unpack_from(payload)
        at = _HEAD.size
        routes, labels = [], []
        for _ in range(n_routes):
            known, n_name, n_key = _ROUTE.unpack_from(payload, at)
            at += _ROUTE.size
            middle, end = at + n_name, at + n_name + n_key
            texts = payload[at:middle].decode(), payload[middle:end].decode()
            routes.append(new(RoutedStream, (known, *texts)))
            at = end
        for _ in range(n_labels):
            stamp, ts, y, number, n_name, n_key = _LABEL.unpack_from(payload, at)
            at += _LABEL.size
            middle, end = at + n_name, at + n_name + n_key
            texts = payload[at:middle].decode(), payload[middle:end].decode()
            labels.append(new(Said, (stamp, ts, y, number, *texts)))
            at = end
        if at != len(payload):
            raise CorruptFrame(f"the row of an event has {len(payload)} bytes and says that it has {at}")
        return cls(born, due, routes, labels)

    def erased(self, label: Label) -> list[Routed]:
        """Return the outputs that erase the event in all its streams, or in the named one.

        If in all, its labels are forgotten. A stream may have a label of the event without a forecast: a label that
        named the stream was sent there.
        """
        known = [(each.stream, each.target) for each in self.routes]
        known += [(said.stream, said.target) for said in self.labels if said.stream]
        there = [place for place in dict.fromkeys(known) if label.stream in ("", place[0])]
        if not label.stream:  # otherwise the other streams keep the revision numbers that they have seen
            self.labels = []
            self.routes = [each._replace(known=0) for each in self.routes]
        return [
            Routed(target, label.event_id, stream, label.y, label.ts, label.number, label.stamp)
            for stream, target in there
        ]

    def says(self, said: Said) -> bool:
        """Whether an equal label is in the row, whenever it came."""
        for each in self.labels:  # noqa: SIM110 - compiled, a generator costs more than the loop
            if each[1:] == said[1:]:
                return True
        return False

    def accepted(self, j: int, stream: str) -> bool:
        """Whether the ledger of a stream would accept label ``j`` after the labels before it."""
        taken = False
        last: Said | None = None
        for said in self.labels[: j + 1]:
            if said.stream not in ("", stream):
                taken = False
                continue
            taken = (
                last is None or said.number > last.number or (said.number == last.number == 0 and said.ts >= last.ts)
            )
            if taken:
                last = said
        return taken

    def sent(self, event_id: str, j: int, headers: Headers = ()) -> list[Routed]:
        """Return the outputs that label ``j`` caused when it came; ``headers``: those of its record."""
        said = self.labels[j]
        there: list[Routed] = []
        known = False
        for route in self.routes:
            if route.known <= j and said.stream in ("", route.stream):
                known = True
                if self.accepted(j, route.stream):
                    there.append(self._routed(event_id, j, route.stream, route.target, headers))
        if said.stream and not known and self.accepted(j, said.stream):
            there.append(self._routed(event_id, j, said.stream, said.target, headers))
        return there

    def joined(self, event_id: str, route: RoutedStream) -> list[Routed]:
        """Return the output that a route caused when it came: the label in force, from the first record that had it.

        For an event without a forecast the ledger keeps the last label. This is that label.
        """
        first: int | None = None
        for j in range(route.known):
            said = self.labels[j]
            if not said.stream and self.accepted(j, route.stream) and (first is None or self.labels[first].y != said.y):
                first = j
        return [] if first is None else [self._routed(event_id, first, route.stream, route.target, ())]

    def _routed(self, event_id: str, j: int, stream: str, target: str, headers: Headers) -> Routed:
        said = self.labels[j]
        return new(Routed, (target, event_id, stream, said.y, said.ts, j + 1, said.stamp, headers))


def _offset(payload: bytes) -> int:
    offset: int = _OFFSET.unpack(payload)[0]
    return offset


EVENT: Final = Kind[RouteRow](
    "E",
    "the routes",
    (EVENT_ID,),
    {3: form(RouteRow)},
    Moves.EVENT,
    "of a router one an event that has not expired: the streams that have it, and its labels",
)
ORIGIN: Final = Kind[int](
    "U",
    "the next offset",
    (KeyPart("source partition"),),
    {2: Form(int, _OFFSET.pack, _offset)},
    Moves.ANEW,
    "of a router one a source partition: up to which offset its records were applied",
)
