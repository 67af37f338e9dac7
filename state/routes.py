"""The router's engine: which streams an event was forecast in, so that a label that knows only its event finds them.

A deterministic fold over the rows of one partition, as `state.engine` is, and with the same fence and queues. Its two
inputs are keyed by event: routes, one for each forecast, and labels. A row is one event: the streams it was forecast
in, and the labels that came, in the order in which they came.

A label goes to every stream of its event, or to the one that it names. Its place in the row is its revision number
from then on. So the ledger of the stream takes it once, however often it is sent. A label that the ledger would find
too old by its time or its own number (`state.ledger.newer`) is not sent at all, because its new number would hide that.
"""

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, NamedTuple

from state.calibrators.answer import new
from state.effects import Changes
from state.events import Rejected
from state.fence import EXPIRY, FORECASTS, OUTCOMES, Queue
from state.fold import Fold
from state.frames import CorruptFrame
from state.kind import EVENT as EVENT_ID
from state.kind import PLAIN, Kind, Moves, Part
from state.policy import DEFAULT_TTL_MS, Policies

#: The inputs, in the order of the fence.
ROUTES, LABELS = FORECASTS, OUTCOMES
#: Most streams of an event, and most labels.
MOST_ROUTES: Final = 64
MOST_LABELS: Final = 100
#: What the row of an event is taken to have, bytes.
EVENT_BYTES: Final = 400

#: What became of records and rows, in the order in which the fence counts them. Every record that comes in is in
#: exactly one of the first eleven.
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
#: The first route of an event; one to a further stream; one that its stream has; a source record that came before.
OPENED, ADDED, ROUTE_DUPLICATE, ROUTE_AGAIN, ROUTE_DEAD = range(5)
#: A label that was sent; one that waits for a route; one said again; one that no stream would take for new.
ROUTED, EARLY, LABEL_DUPLICATE, STALE, LABEL_AGAIN, LABEL_DEAD = range(5, 11)
#: Rows that a label opened; those of them that got a route; rows that left with a route, and without.
EARLY_OPENED, EARLY_JOINED, EXPIRED_ROUTES, EXPIRED_LABELS = range(11, 15)
#: How many fates say what became of records: of routes, and of both topics.
ROUTE_FATES, INPUT_FATES = 5, 11

_HEAD: Final = Struct("<QqBB")
_ROUTE: Final = Struct("<BBB")
_LABEL: Final = Struct("<qqdIBB")
_OFFSET: Final = Struct("<q")


def offset_of(row: bytes) -> int:
    """Return the next offset of a source partition, from its row; raises `CorruptFrame` if it is not intact."""
    return int(ORIGIN.open(row, _OFFSET.unpack)[0])


class Route(NamedTuple):
    """A forecast of an event was sent to a stream.

    Attributes
    ----------
    offset, key, value
        Of its record.
    event_id, stream
        Of the forecast.
    target
        Key of the forecast's record: the stream, or one of its shards.
    stamp
        Kafka timestamp, ms.
    origin
        Partition of a source and offset there; None if it came from nowhere that is known.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    event_id: str
    stream: str
    target: str
    stamp: int
    origin: tuple[str, int] | None


class Label(NamedTuple):
    """What happened, for every stream of the event or for one.

    Attributes
    ----------
    stream, target
        The stream it is for, and the key of its records; both empty: every stream of the event.
    y, ts, number
        The label, its event time (ms), and its own revision number; 0 if it has none.
    offset, key, value, event_id, stamp, origin
        As in `Route`.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    event_id: str
    stream: str
    target: str
    y: float
    ts: int
    number: int
    stamp: int
    origin: tuple[str, int] | None


class Routed(NamedTuple):
    """A label on its way to one stream: ``number`` is its revision there, ``stamp`` its Kafka timestamp, ms."""

    target: str
    event_id: str
    stream: str
    y: float
    ts: int
    number: int
    stamp: int


class Known(NamedTuple):
    """A stream in the row of an event: ``known`` labels were there before it."""

    known: int
    stream: str
    target: str


class Said(NamedTuple):
    """A label in the row of an event; see `Label`."""

    stamp: int
    ts: int
    y: float
    number: int
    stream: str
    target: str


class Row:
    """An event: when it entered its queue (applied count), and when it is due, ms."""

    def __init__(self, born: int, due: int, routes: list[Known], labels: list[Said]) -> None:
        self.born = born
        self.due = due
        self.routes = routes
        self.labels = labels

    def encode(self) -> bytes:
        """Return the row."""
        parts = [_HEAD.pack(self.born, self.due, len(self.routes), len(self.labels))]
        for known, stream, target in self.routes:
            name, key = stream.encode(), target.encode()
            parts.append(_ROUTE.pack(known, len(name), len(key)) + name + key)
        for stamp, ts, y, number, stream, target in self.labels:
            name, key = stream.encode(), target.encode()
            parts.append(_LABEL.pack(stamp, ts, y, number, len(name), len(key)) + name + key)
        return EVENT.seal(b"".join(parts))

    @classmethod
    def decode(cls, frame: bytes) -> "Row":
        """Read a row written by `encode`.

        Raises
        ------
        CorruptFrame
            If the frame is not an intact row of this version.
        """
        return EVENT.open(frame, cls._of)

    @classmethod
    def _of(cls, payload: bytes) -> "Row":
        born, due, n_routes, n_labels = _HEAD.unpack_from(payload)
        at = _HEAD.size
        routes, labels = [], []
        for _ in range(n_routes):
            known, n_name, n_key = _ROUTE.unpack_from(payload, at)
            at += _ROUTE.size
            middle, end = at + n_name, at + n_name + n_key
            texts = payload[at:middle].decode(), payload[middle:end].decode()
            routes.append(new(Known, (known, *texts)))
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

    def says(self, said: Said) -> bool:
        """Whether a label is there that says the same, whenever it came."""
        for each in self.labels:  # noqa: SIM110 - compiled, a generator costs more than the loop
            if each[1:] == said[1:]:
                return True
        return False

    def accepted(self, j: int, stream: str) -> bool:
        """Whether the ledger of a stream would take label ``j`` for news, after those before it."""
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

    def sent(self, event_id: str, j: int) -> list[Routed]:
        """Return what label ``j`` was sent as when it came."""
        said = self.labels[j]
        there: list[Routed] = []
        known = False
        for route in self.routes:
            if route.known <= j and said.stream in ("", route.stream):
                known = True
                if self.accepted(j, route.stream):
                    there.append(self._routed(event_id, j, route.stream, route.target))
        if said.stream and not known and self.accepted(j, said.stream):
            there.append(self._routed(event_id, j, said.stream, said.target))
        return there

    def joined(self, event_id: str, route: Known) -> list[Routed]:
        """Return what a route was sent when it came: the label in force, by the first record that said it.

        A ledger parks the last label of an event whose forecast has not come; this is that one.
        """
        first: int | None = None
        for j in range(route.known):
            said = self.labels[j]
            if not said.stream and self.accepted(j, route.stream) and (first is None or self.labels[first].y != said.y):
                first = j
        return [] if first is None else [self._routed(event_id, first, route.stream, route.target)]

    def _routed(self, event_id: str, j: int, stream: str, target: str) -> Routed:
        said = self.labels[j]
        return new(Routed, (target, event_id, stream, said.y, said.ts, j + 1, said.stamp))


EVENT: Final = Kind[Row](
    "E",
    "the routes",
    (EVENT_ID,),
    {3: PLAIN},
    Moves.EVENT,
    "of a router one an event that has not expired: the streams that have it, and its labels",
)
ORIGIN: Final = Kind[int](
    "U",
    "the next offset",
    (Part("source partition"),),
    {2: PLAIN},
    Moves.ANEW,
    "of a router one a source partition: up to which offset its records were applied",
)


class Router(Fold):
    """The working copy of one partition's state.

    Parameters
    ----------
    policies
        Say how long the labels of a stream are waited for.
    get
        Reads a stored row by key. It must see every row of earlier checkpoints.
    """

    def __init__(self, policies: Policies, get: Callable[[bytes], bytes | None]) -> None:
        self._policies = policies
        super().__init__(get)

    def reset(self) -> None:
        """Forget everything since the last checkpoint."""
        #: Next offset of each source partition, as far as they were asked for.
        self._origins: dict[str, int] = {}
        self._clean()
        super().reset()

    def _clean(self) -> None:
        """Note that everything is in rows."""
        #: Rows that were read or changed, by event id; None where there is none.
        self._rows: dict[str, Row | None] = {}
        self._changed: dict[str, None] = {}
        self._moved: dict[str, None] = {}

    def apply(self, records: Iterable[Route | Label | Rejected]) -> list[Routed | Rejected]:
        """Apply records in order, each topic's by its offsets, and return what is to be sent.

        Raises
        ------
        CorruptFrame
            If a stored row is damaged.
        """
        self._outputs: list[Routed | Rejected] = []
        fence, offsets = self.fence, self.fence.next
        for record in records:
            topic = record.topic if isinstance(record, Rejected) else ROUTES if isinstance(record, Route) else LABELS
            offsets[topic] = record.offset + 1
            fence.applied += 1
            if isinstance(record, Rejected):
                fence.fates[ROUTE_DEAD if topic == ROUTES else LABEL_DEAD] += 1
                self._reject(record)
                continue
            self._advance(record.stamp)
            if self._came(record.origin):
                fence.fates[ROUTE_AGAIN if topic == ROUTES else LABEL_AGAIN] += 1
            elif isinstance(record, Route):
                self._route(record)
            else:
                self._label(record)
        return self._outputs

    def freeze(self, changes: Changes | None = None) -> Changes:
        """Return the rows that changed since the last checkpoint; nothing of them is made later."""
        made = Changes() if changes is None else changes
        rows = made.rows
        for event_id in self._changed:
            row = self._rows[event_id]
            rows[EVENT.key(event_id)] = None if row is None else row.encode()
        for place in self._moved:
            rows[ORIGIN.key(place)] = ORIGIN.seal(_OFFSET.pack(self._origins[place]))
        rows.update(self._ordered())
        self._clean()
        return made

    @property
    def weight(self) -> int:
        """About how many bytes of rows have changed since the last checkpoint."""
        return (len(self._changed) + len(self._moved)) * EVENT_BYTES

    @property
    def event_weight(self) -> int:
        """About how many bytes of rows one record may change."""
        return EVENT_BYTES

    def _came(self, origin: tuple[str, int] | None) -> bool:
        """Whether a source record was applied before; if not, note that it is now.

        Records of one source partition are sent in their order. So what comes again lies behind the last that came.
        """
        if origin is None:
            return False
        place, offset = origin
        following = self._origins.get(place)
        if following is None:
            row = self._get(ORIGIN.key(place))
            following = 0 if row is None else offset_of(row)
        self._origins[place] = max(following, offset + 1)
        if offset < following:
            return True
        self._moved[place] = None
        return False

    def _route(self, route: Route) -> None:
        fates, row = self.fence.fates, self._row(route.event_id)
        kept_ms = self._kept_ms(route.stream)
        if row is None:
            fates[OPENED] += 1
            row = self._open(route.event_id, kept_ms, route.stamp)
        elif any(each.stream == route.stream for each in row.routes):
            fates[ROUTE_DUPLICATE] += 1
            return
        elif len(row.routes) == MOST_ROUTES:
            fates[ROUTE_DEAD] += 1
            self._reject(Rejected(route.offset, route.key, route.value, ROUTES, "routes"))
            return
        elif row.routes:
            fates[ADDED] += 1
        else:
            fates[OPENED] += 1
            fates[EARLY_JOINED] += 1
        known = new(Known, (len(row.labels), route.stream, route.target))
        row.routes.append(known)
        self._touch(route.event_id, row, kept_ms, route.stamp)
        self._outputs += row.joined(route.event_id, known)

    def _label(self, label: Label) -> None:
        fates, row = self.fence.fates, self._row(label.event_id)
        said = new(Said, (label.stamp, label.ts, label.y, label.number, label.stream, label.target))
        if row is None:
            fates[EARLY_OPENED] += 1
            row = self._open(label.event_id, self._policies.early_ttl_ms, label.stamp)
        elif row.says(said):
            fates[LABEL_DUPLICATE] += 1
            return
        elif len(row.labels) == MOST_LABELS:
            fates[STALE] += 1
            return
        row.labels.append(said)
        self._touch(label.event_id, row, 0, label.stamp)
        sent = row.sent(label.event_id, len(row.labels) - 1)
        if sent:
            fates[ROUTED] += 1
        elif row.routes:
            fates[STALE] += 1
        else:
            fates[EARLY] += 1
        self._outputs += sent

    def _reject(self, rejected: Rejected) -> None:
        self._effects.rejected.append((rejected.topic, rejected.reason))
        self._outputs.append(rejected)

    def _kept_ms(self, stream: str) -> int:
        """Return how long the labels of a stream are waited for, in stream time since the forecast, ms."""
        policy = self._policies.of(stream)
        return DEFAULT_TTL_MS if policy is None else policy.kept_ms

    def _row(self, event_id: str) -> Row | None:
        if event_id in self._rows:
            return self._rows[event_id]
        found = self._get(EVENT.key(event_id))
        row = self._rows[event_id] = None if found is None else Row.decode(found)
        return row

    def _open(self, event_id: str, ttl_ms: int, stamp: int) -> Row:
        row = self._rows[event_id] = Row(0, 0, [], [])
        self._touch(event_id, row, ttl_ms, stamp)
        return row

    def _touch(self, event_id: str, row: Row, ttl_ms: int, stamp: int) -> None:
        """Note that a row changes; ``ttl_ms`` is how long it is kept from now on, 0: as long as it was to be.

        Its entry waits until stream time has come near its record's ``stamp``, as that of a ledger row does.
        """
        applied, due = self.fence.applied, self.fence.stream_time + ttl_ms
        self._changed[event_id] = None
        if ttl_ms and due > row.due:
            row.born, row.due = applied, due
            self._enter(EXPIRY, ttl_ms, event_id, stamp)

    def _leave_queue(self, queue: Queue) -> None:
        """Remove the row of a queue's first entry, which is due."""
        _, named, event_id = self._expiry.pop(queue)
        row = self._row(event_id)
        if row is not None and row.born == named:
            self.fence.fates[EXPIRED_ROUTES if row.routes else EXPIRED_LABELS] += 1
            self._rows[event_id] = None
            self._changed[event_id] = None
