"""The steps of an event: a forecast is answered, its tickets are redeemed, its label is revised.

`state.ledger.LIFE` says when each step happens, see `state.engine`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from state import events, kinds, ledger
from state.calibrators.carried import CarriedOver
from state.counting import Counting
from state.effects import LEDGER_BYTES, Changes
from state.entities import Entities, place
from state.events import Calibrated, Forecast, Rejected, Resolved
from state.fence import ISSUED, MATURITY
from state.fold import Fold
from state.kind import Get, Live
from state.ledger import LedgerRow
from state.marking import UNMARKED, Said
from state.observer import Observer
from state.policies import Policies
from state.quick import new
from state.segments import Dictionary
from state.service import Learner, Service
from state.services import VALUE, VALUE_OF_ROW, Services
from state.versions import Version

#: Default memory for values of streams and rows of entities, bytes.
MEMORY = 512 << 20
#: Assumed size of a stream's row before the first checkpoint, bytes.
STREAM_BYTES: Final = 4000
#: The most rows of its stream that one event may change.
STREAM_ROWS: Final = 8

#: What a calibrator answers: p, draw and ticket.
Answer = tuple[Any, Any, bytes]
#: The row of an event that has none.
_ABSENT: Final = LedgerRow(ledger.NONE, 0)


class Tickets(Fold):
    """The working copy of one partition's state, and the steps that change it.

    ``get``: reads a row by key, as the checkpoints so far have stored it. None: rows stay in memory until they leave.
    ``observer``: gets all events; None: the counts of a worker.
    ``beside``: as in `state.services.Services`.
    ``memory``: returns how many bytes it may have for values of streams and rows of entities; None: `MEMORY`.
    """

    def __init__(
        self,
        policies: Policies,
        get: Get | None,
        observer: Observer | None = None,
        beside: Sequence[Policies] = (),
        memory: Callable[[], int] | None = None,
    ) -> None:
        self._policies = policies
        self._memory = memory
        self._stored = get is not None
        self._given = observer
        self._beside = beside
        largest = max([policy.row_bytes for policy in policies.all], default=0)
        #: Average size in bytes of a ledger row, and of a stream's row, at the last checkpoint.
        self._ledger_bytes, self._stream_bytes = LEDGER_BYTES, max(STREAM_BYTES, largest // STREAM_ROWS)
        #: Bytes that a value of a stream takes in memory. It follows from the average row at the last checkpoint.
        self._value_bytes = VALUE + VALUE_OF_ROW * max(STREAM_BYTES, largest // 2)
        #: Bytes of queues and of the fence in the last checkpoint.
        self._queued = 0
        super().__init__(_nothing if get is None else get)

    def reset(self) -> None:
        """Forget everything since the last checkpoint."""
        self._entities = Entities(self._get)
        self._services = Services(self._policies, self._get, self._opened, self._beside)
        #: `Counting` is compiled, so it is called without a look-up.
        self._observer: Counting | Observer = (
            Counting(self._policies, self._services) if self._given is None else self._given
        )
        #: Ledger rows that changed since the last checkpoint, by key; None for a row that left.
        self._rows: dict[bytes, LedgerRow | None] = {}
        super().reset()

    def _opened(self, service: Service) -> None:
        self._observer.opened(service)

    @property
    def services(self) -> Services:
        """The services of the streams."""
        return self._services

    @property
    def rows(self) -> dict[bytes, LedgerRow | None]:
        """Ledger rows that changed since the last checkpoint, by key; all of them if nothing is stored."""
        return self._rows

    def begin(self) -> None:
        """Begin a batch, as `Fold.begin` does. Drop values that take more memory than allowed."""
        super().begin()
        if self._stored:
            self._services.trim(max(self._bytes - self._entities.held, 0) // self._value_bytes)

    @property
    def _bytes(self) -> int:
        """How many bytes values of streams and rows of entities may take in memory."""
        return MEMORY if self._memory is None else self._memory()

    @property
    def full(self) -> bool:
        """Whether changes since the last checkpoint take half of the memory.

        The other half is for changes of the last checkpoint.
        """
        changed = len(self._services.touched) * self._value_bytes + self._entities.changed
        return changed > self._bytes // 2

    def freeze(self, changes: Changes | None = None) -> Changes:
        """Return what `checkpoint` does, but with most rows still to be packed; see `Fold.freeze`."""
        events, size, values, of_streams = self._services.frozen.sizes
        if events:
            self._ledger_bytes = max(size // events, LEDGER_BYTES)
        if values:
            self._stream_bytes = max((of_streams + self._queued) // values, 1)
            self._value_bytes = VALUE + VALUE_OF_ROW * of_streams // values
        made = Changes() if changes is None else changes
        rows = made.rows
        rows.update(self._ordered())
        self._queued = _size(rows.values())
        rows.update(self._entities.changes())
        made.ledger, self._rows = self._rows, {}
        self._services.freeze(made)
        return made

    @property
    def weight(self) -> int:
        """Approximate bytes of rows that changed since the last checkpoint."""
        rows = len(self._rows) * self._ledger_bytes + len(self._services.touched) * self._stream_bytes
        return rows + self._entities.changed

    @property
    def event_weight(self) -> int:
        """Approximate bytes of rows that one event may change."""
        return self._ledger_bytes + STREAM_ROWS * self._stream_bytes

    def _row(self, key: bytes) -> LedgerRow:
        """Return the row of an event, or `_ABSENT`. A caller that changes it adds it to the changed rows."""
        if key in self._rows:
            return self._rows[key] or _ABSENT
        frame = self._get(key) if self._stored else None
        return _ABSENT if frame is None else kinds.LEDGER.open(frame, LedgerRow.decode)

    def _remove(self, key: bytes) -> None:
        if self._stored:
            self._rows[key] = None
        else:
            self._rows.pop(key, None)

    def _touch(self, learner: Learner) -> None:
        self._services.touched[learner.key] = learner.served

    def _issue(self, service: Service, key: bytes, forecast: Forecast) -> LedgerRow:
        """Answer a forecast, and return its row."""
        _, record_key, event_id, _, raw, x, ts, _, values, _, entity, weight, chance, _ = forecast
        fence, name, learner = self.fence, event_id.encode(), service.learner
        groups = () if service.dictionary is None else self._groups(service.dictionary, values)
        if service.version is not None:
            self._count(service, service.version, cast("float", raw), ts)
        calibrator = learner.served.calibrator
        answer: Answer = calibrator.predict(raw, x, name, groups)
        p, draw, ticket = answer
        coverage = service.coverage
        if coverage is not None and coverage.uncovered:
            p, draw, ticket = self._unlearnt(service, learner, ticket, raw, x, name, groups)
        row = LedgerRow(service.status, fence.applied, service.kind, ts)
        row.raw, row.p, row.draw, row.version = raw, p, draw, calibrator.learnt
        row.names, row.ticket, row.entity = service.names, ticket, entity
        row.weighed, row.weight, row.chance = service.weighed, weight, chance
        if not learner.served.warmed_ms and self._warms(service, learner, raw, p, ts):
            row.window = ledger.NO_WINDOW
        if service.role == MATURITY and record_key != name:
            row.key = record_key
        if groups:
            row.layout, row.groups = service.layout, groups
        said = UNMARKED
        if service.marker is not None:
            withheld = coverage is not None and coverage.uncovered
            touched = self._services.touched
            said = service.marker.issue(
                raw, p, row.layout, groups, values, fence.stream_time, touched, withheld=withheld
            )
        row.marks, band, points, low, high, why = said
        if service.shadows:
            row.shadows = self._ask(service, raw, x, ts, name, groups)
        if coverage is not None:
            coverage.issue(fence.applied, place(raw, service.kind))
        self._enter(service.role, service.due_ms, event_id, ts)
        fence.fates[ISSUED] += 1
        self._services.touched[service.counts.key] = service.counts.value
        self._observer.issued(service, row, x, fence.stream_time)
        self._rows[key] = row
        self._answered(forecast, row, service.calibrator, service.config, (band, points, low, high, why))
        return row

    def _answered(self, forecast: Forecast, row: LedgerRow, calibrator: str, config: str, said: Said) -> None:
        """Answer a forecast from its row; a repeated one gets the same answer."""
        band, points, low, high, why = said
        served = (
            forecast.key, forecast.event_id, forecast.stream, row.raw, row.p, row.draw, calibrator, config, row.version,
            row.issued_ts, row.born, forecast.carried, band, points, low, high, why,
        )  # fmt: skip
        self._outputs.append(new(Calibrated, served))
        self._effects.answered[forecast.stream] += 1

    def _serving(self, forecast: Forecast) -> Service:
        """Return the service that answers a forecast."""
        if forecast.version:
            return self._services.of_version(forecast.stream, forecast.version, self.fence.stream_time)
        return self._services.of(forecast.stream)

    def _count(self, service: Service, version: Version, raw: float, ts: int) -> None:
        """Count a forecast of a version. Carry the map of the previous version over when that is due."""
        version.observe(raw, self.fence.stream_time)
        served = service.learner.served
        carried = cast("CarriedOver", served.calibrator)
        if carried.due(version.forecasts):
            self._services.carry(service)
            if carried.line.seen and not served.warmed_ms:  # from here on, something learnt is served
                served.warmed_ms = max(ts, 1)

    def _groups(self, dictionary: Live[Dictionary], values: tuple[str, ...]) -> tuple[int, ...]:
        """Return the slots of an event's segments."""
        taken = dictionary.value.taken
        groups = dictionary.value.groups(values)
        if dictionary.value.taken > taken:
            self._services.change(dictionary)
        return groups

    def _warms(
        self,
        service: Service,
        learner: Learner,
        raw: Any,  # noqa: ANN401 - of the stream's kind
        p: Any,  # noqa: ANN401 - of the stream's kind
        ts: int,
    ) -> bool:
        """Whether a forecast belongs to a calibrator's warm-up, see `state.served.Served.warms`."""
        if learner.served.warms(raw, p, ts, service.coverage is None or service.coverage.covered):
            return True
        self._touch(learner)
        return False

    def _ask(
        self,
        service: Service,
        raw: Any,  # noqa: ANN401 - as predict takes it
        x: Any,  # noqa: ANN401 - as predict takes it
        ts: int,
        name: bytes,
        groups: tuple[int, ...],
    ) -> list[ledger.Shadow]:
        """Ask every challenger for an answer; return the tickets."""
        tickets: list[ledger.Shadow] = []
        coverage = service.coverage
        for challenger in service.shadows:
            learner = challenger.learner
            calibrator = learner.served.calibrator
            answer: Answer = calibrator.predict(raw, x, name, groups)
            p, draw, ticket = answer
            if coverage is not None and coverage.uncovered:
                p, draw, ticket = self._unlearnt(service, learner, ticket, raw, x, name, groups)
            warm = not learner.served.warmed_ms and self._warms(service, learner, raw, p, ts)
            version = calibrator.learnt
            tickets.append(new(ledger.Shadow, (learner.config, version, p, draw, ticket, warm)))
            if version == 0:
                self._touch(learner)
        return tickets

    def _unlearnt(
        self,
        service: Service,
        learner: Learner,
        ticket: bytes,
        raw: Any,  # noqa: ANN401 - as predict takes it
        x: Any,  # noqa: ANN401 - as predict takes it
        name: bytes,
        groups: tuple[int, ...],
    ) -> tuple[Any, Any, bytes]:
        """Return a calibrator's answer as before its first outcome, with a ticket from which it learns as usual."""
        p, draw, _ = self._services.blank(service, learner).predict(raw, x, name, groups)
        return p, draw, learner.served.calibrator.unserved(ticket)

    def _labelled(self, service: Service, row: LedgerRow, y: float, ts: int) -> None:
        """Note the first outcome of a row's forecast."""
        if service.coverage is not None:
            changed = service.coverage.label(row.born, place(row.raw, row.kind), self.fence.stream_time)
            if changed and service.learner.served.warmed_ms:
                self._effects.withheld[service.stream] = service.coverage.uncovered
        self._services.touched[service.counts.key] = service.counts.value
        self._observer.labelled(service, row, y, ts)

    def _learn(
        self,
        service: Service,
        row: LedgerRow,
        record_key: bytes | None,
        event_id: str,
        carried: events.Carried | None = None,
    ) -> None:
        """Redeem a row's tickets once, with its label: the champion and the challengers learn."""
        y, ts, effects, stream, touched = row.y, row.resolved_ts, self._effects, service.stream, self._services.touched
        implied = row.as_of == ledger.UNSAID
        if (row.entity or service.chances is not None) and not self._teaches(service, row, event_id):
            row.window = ledger.UNTAUGHT
            effects.untaught[stream] += 1
        else:
            at = 0 if implied else ts
            if service.marker is not None and service.marker.wide:
                service.marker.learn(row, touched)
            row.frozen = service.frozen
            if not row.frozen:
                self._redeem_ticket(service.learner, row.version, row.ticket, y, at)
            for shadow in row.shadows:
                learner = self._services.challenger(service, shadow.config).learner
                self._redeem_ticket(learner, shadow.version, shadow.ticket, y, at)
        touched[service.counts.key] = service.counts.value
        row.window = self._observer.resolved(service, row, event_id, self.fence.applied, self.fence.stream_time)
        if row.marks and (row.window != ledger.UNTAUGHT or service.chances is not None):
            self._services.marker(service).resolve(row, 1, int(y), self.fence.stream_time, touched)
        if service.version is not None and row.window != ledger.UNTAUGHT:
            service.version.resolve(row.raw, row.p, y)
        if not implied:
            effects.delays.append(ts - row.issued_ts)
        effects.resolved[stream] += 1
        joined = (
            record_key, event_id, stream, row.raw, row.p, row.draw, y, service.calibrator, row.version, row.issued_ts,
            ts, 0, implied, carried,
        )  # fmt: skip
        self._outputs.append(new(Resolved, joined))

    def _redeem_ticket(self, learner: Learner, version: int, ticket: bytes, y: float, at: int) -> None:
        served = learner.served
        served.late += served.calibrator.learnt - version
        served.calibrator.update(ticket, y, at)
        self._services.touched[learner.key] = served

    def _revise(
        self, row: LedgerRow, record_key: bytes | None, event_id: str, was: float, carried: events.Carried | None
    ) -> None:
        """Replace, in all counts, a label that was learnt; output the change."""
        service, y, touched = self._services.by(row), row.y, self._services.touched
        said = (
            record_key, event_id, service.stream, row.raw, row.p, row.draw, y, service.calibrator, row.version,
            row.issued_ts, row.resolved_ts, row.revisions, False, carried,
        )  # fmt: skip
        self._outputs.append(new(Resolved, said))
        if row.marks and (row.window != ledger.UNTAUGHT or service.chances is not None):
            self._services.marker(service).resolve(row, 0, int(y - was), self.fence.stream_time, touched)
        if row.window != ledger.UNTAUGHT:
            if service.marker is not None and service.marker.wide:
                service.marker.revise(row, y - was, touched)
            if service.version is not None:
                service.version.revise(row.raw, row.p, was, y)
            row.frozen = row.frozen or service.frozen  # a label that was not learnt cannot be revised later
            if not row.frozen:
                service.learner.served.calibrator.revise(row.ticket, was, y)
                self._touch(service.learner)
            for shadow in row.shadows:
                learner = self._services.challenger(service, shadow.config).learner
                learner.served.calibrator.revise(shadow.ticket, was, y)
                self._touch(learner)
        self._services.change(service.counts)
        self._observer.revised(service, row, event_id, was, self.fence.stream_time)

    def _teaches(self, service: Service, row: LedgerRow, event_id: str) -> bool:
        """Whether an outcome teaches, see `state.chances` and `state.entities`."""
        z, now, chances = place(row.raw, service.kind), self.fence.stream_time, service.chances
        if chances is not None and not chances.teaches(z, row.chance, event_id.encode()):
            return False
        if not row.entity:
            return True
        return self._entities.teaches(service.stream, service.names[:4], row.entity, z, now, service.ttl_ms)

    def _reject(self, rejected: Rejected) -> None:
        """Add a dead letter."""
        self._effects.rejected.append((rejected.topic, rejected.reason))
        self._outputs.append(rejected)

    def _with_forecast(self, letter: Rejected, forecast: Forecast) -> Rejected:
        """Return a dead letter with its forecast, if any stream answers dead forecasts with raw scores."""
        return letter._replace(forecast=forecast) if self._policies.answering else letter


def _nothing(_: bytes) -> None:
    """Return None for every key."""


def _size(rows: Iterable[bytes | None]) -> int:
    return sum([len(row) for row in rows if row is not None])
