"""The engine of the router. It knows in which streams an event was forecast, so a label needs only the event's id.

It is a deterministic fold like `state.engine`, with the same fence and queues. Its two inputs are keyed by event:
routes, one for each forecast, and labels (`state.routes`).

A label goes to every stream of its event, or to the one that it names. The label's place in the event's row becomes its
revision number, so the stream's ledger takes it once, however often it is sent. This number hides the label's own time
and number (`state.ledger.newer`). So a label that the ledger would find too old is not sent.
"""

from collections.abc import Callable, Iterable
from typing import Final

from state import routes
from state.effects import Changes
from state.events import Rejected, erases
from state.fence import EXPIRY, QueueBounds
from state.fold import Fold
from state.policies import Policies
from state.policy import DEFAULT_TTL_MS
from state.quick import new

#: Assumed size of an event's row, bytes.
EVENT_BYTES: Final = 400


class Router(Fold):
    """The working copy of one partition's state.

    ``policies``: say how long each stream waits for labels.
    ``get``: reads a stored row by key. It must see every row of earlier checkpoints.
    """

    def __init__(self, policies: Policies, get: Callable[[bytes], bytes | None]) -> None:
        self._policies = policies
        super().__init__(get)

    def reset(self) -> None:
        """Forget everything since the last checkpoint."""
        #: Next offset of each source partition that was asked for.
        self._origins: dict[str, int] = {}
        self._clean()
        super().reset()

    def _clean(self) -> None:
        """Mark everything as stored in rows."""
        #: Rows that were read or changed, by event id; None if there is none.
        self._rows: dict[str, routes.RouteRow | None] = {}
        self._changed: dict[str, None] = {}
        self._moved: dict[str, None] = {}

    def apply(self, records: Iterable[routes.Route | routes.Label | Rejected]) -> list[routes.Routed | Rejected]:
        """Apply records in order, each topic's in the order of offsets; return the outputs.

        Raises CorruptFrame if a stored row is damaged.
        """
        self._outputs: list[routes.Routed | Rejected] = []
        fence, offsets = self.fence, self.fence.next
        for record in records:
            of = routes.ROUTES if isinstance(record, routes.Route) else routes.LABELS
            topic = record.topic if isinstance(record, Rejected) else of
            offsets[topic] = record.offset + 1
            fence.applied += 1
            if isinstance(record, Rejected):
                fence.fates[routes.ROUTE_DEAD if topic == routes.ROUTES else routes.LABEL_DEAD] += 1
                self._reject(record)
                continue
            if isinstance(record, routes.Label) and erases(record.y):  # an erasure moves no stream time
                self._erase(record)
                continue
            self._advance(record.stamp)
            if self._came(record.origin):
                fence.fates[routes.ROUTE_AGAIN if topic == routes.ROUTES else routes.LABEL_AGAIN] += 1
            elif isinstance(record, routes.Route):
                self._route(record)
            else:
                self._label(record)
        return self._outputs

    def freeze(self, changes: Changes | None = None) -> Changes:
        """Return the rows that changed since the last checkpoint; all are packed at once."""
        made = Changes() if changes is None else changes
        rows = made.rows
        for event_id in self._changed:
            row = self._rows[event_id]
            rows[routes.EVENT.key(event_id)] = None if row is None else routes.EVENT.encode(row)
        for place in self._moved:
            rows[routes.ORIGIN.key(place)] = routes.ORIGIN.encode(self._origins[place])
        rows.update(self._ordered())
        self._clean()
        return made

    @property
    def weight(self) -> int:
        """Approximate bytes of rows that changed since the last checkpoint."""
        return (len(self._changed) + len(self._moved)) * EVENT_BYTES

    @property
    def event_weight(self) -> int:
        """Approximate bytes of rows that one record may change."""
        return EVENT_BYTES

    def _came(self, origin: tuple[str, int] | None) -> bool:
        """Return whether a source record was applied before; note it if not.

        Records of one source partition are sent in order, so a repeated one has at most the offset of the last.
        """
        if origin is None:
            return False
        place, offset = origin
        following = self._origins.get(place)
        if following is None:
            row = self._get(routes.ORIGIN.key(place))
            following = 0 if row is None else routes.ORIGIN.decode(row)
        self._origins[place] = max(following, offset + 1)
        if offset < following:
            return True
        self._moved[place] = None
        return False

    def _route(self, route: routes.Route) -> None:
        fates, row = self.fence.fates, self._row(route.event_id)
        kept_ms = self._kept_ms(route.stream)
        if row is None:
            fates[routes.OPENED] += 1
            row = self._open(route.event_id, kept_ms, route.stamp)
        elif any(each.stream == route.stream for each in row.routes):
            fates[routes.ROUTE_DUPLICATE] += 1
            return
        elif len(row.routes) == routes.MOST_ROUTES:
            fates[routes.ROUTE_DEAD] += 1
            self._reject(Rejected(route.offset, route.key, route.value, routes.ROUTES, "routes"))
            return
        elif row.routes:
            fates[routes.ADDED] += 1
        else:
            fates[routes.OPENED] += 1
            fates[routes.EARLY_JOINED] += 1
        known = new(routes.RoutedStream, (len(row.labels), route.stream, route.target))
        row.routes.append(known)
        self._touch(route.event_id, row, kept_ms, route.stamp)
        self._outputs += row.joined(route.event_id, known)

    def _label(self, label: routes.Label) -> None:
        fates, row = self.fence.fates, self._row(label.event_id)
        said = new(routes.Said, (label.stamp, label.ts, label.y, label.number, label.stream, label.target))
        if row is None:
            fates[routes.EARLY_OPENED] += 1
            row = self._open(label.event_id, self._policies.early_ttl_ms, label.stamp)
        elif row.says(said):
            fates[routes.LABEL_DUPLICATE] += 1
            return
        elif len(row.labels) == routes.MOST_LABELS:
            fates[routes.STALE] += 1
            return
        row.labels.append(said)
        self._touch(label.event_id, row, 0, label.stamp)
        sent = row.sent(label.event_id, len(row.labels) - 1, label.headers)
        if sent:
            fates[routes.ROUTED] += 1
        elif row.routes:
            fates[routes.STALE] += 1
        else:
            fates[routes.EARLY] += 1
        self._outputs += sent

    def _erase(self, label: routes.Label) -> None:
        """Forget the labels of an event, and send the erasure on to its streams."""
        row = self._row(label.event_id)
        sent = [] if row is None else row.erased(label)
        if row is not None:
            self._changed[label.event_id] = None
        self.fence.fates[routes.ROUTED if sent else routes.STALE] += 1
        self._outputs += sent

    def _reject(self, rejected: Rejected) -> None:
        self._effects.rejected.append((rejected.topic, rejected.reason))
        self._outputs.append(rejected)

    def _kept_ms(self, stream: str) -> int:
        """Return how long a stream waits for labels, in stream time since the forecast, ms."""
        policy = self._policies.of(stream)
        return DEFAULT_TTL_MS if policy is None else policy.kept_ms

    def _row(self, event_id: str) -> routes.RouteRow | None:
        if event_id in self._rows:
            return self._rows[event_id]
        found = self._get(routes.EVENT.key(event_id))
        row = self._rows[event_id] = None if found is None else routes.EVENT.decode(found)
        return row

    def _open(self, event_id: str, ttl_ms: int, stamp: int) -> routes.RouteRow:
        row = self._rows[event_id] = routes.RouteRow(0, 0, [], [])
        self._touch(event_id, row, ttl_ms, stamp)
        return row

    def _touch(self, event_id: str, row: routes.RouteRow, ttl_ms: int, stamp: int) -> None:
        """Note that a row changes. ``ttl_ms``: how long it is kept from now on; 0: as before.

        Its entry waits until stream time is near the record's ``stamp``, as for a ledger row.
        """
        applied, due = self.fence.applied, self.fence.stream_time + ttl_ms
        self._changed[event_id] = None
        if ttl_ms and due > row.due:
            row.born, row.due = applied, due
            self._enter(EXPIRY, ttl_ms, event_id, stamp)

    def _leave_queue(self, queue: QueueBounds) -> None:
        """Remove the row of a queue's first entry, which is due."""
        _, named, event_id = self._expiry.pop(queue)
        row = self._row(event_id)
        if row is not None and row.born == named:
            self.fence.fates[routes.EXPIRED_ROUTES if row.routes else routes.EXPIRED_LABELS] += 1
            self._rows[event_id] = None
            self._changed[event_id] = None
