"""The engine: a deterministic fold of events over the rows of one partition.

Workers, audits and replays run it, and all must end in the same bytes. So it reads no clock and no environment, draws
its randomness from the event id, and never lets the size of a batch show in what it does: the same events in the same
order give the same rows, however they were cut into batches.

What may become of an event is a table, `state.ledger.LIFE`: a method here for each thing that a row of a status meets.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from state import kinds, ledger
from state.banding import UNMARKED, marks
from state.calibrators.answer import new
from state.counting import Counting
from state.effects import LEDGER_BYTES, Changes, Effects
from state.entities import Entities, place
from state.events import Calibrated, Event, Forecast, Outcome, Output, Passed, Rejected, Resolved
from state.fence import (
    EARLY,
    EARLY_JOINED,
    EARLY_UNUSABLE,
    EARLY_WAITING,
    EXPIRED_FORECAST,
    EXPIRED_OUTCOME,
    EXPIRY,
    FORECAST_DEAD,
    FORECAST_DUPLICATE,
    FORECASTS,
    IMPLIED,
    ISSUED,
    MATURED,
    MATURED_EXPIRY,
    MATURITY,
    OUTCOME_DEAD,
    OUTCOME_DUPLICATE,
    OUTCOME_REVISED,
    OUTCOME_STALE,
    OUTCOMES,
    RESOLVED,
    REVISION,
    WAITING,
    Queue,
)
from state.fold import Fold
from state.forecasts import admits
from state.kind import Get
from state.ledger import Row
from state.observer import Observer
from state.policy import DEFAULT_TTL_MS, Policies
from state.quotas import Quotas
from state.segments import Dictionary
from state.services import Learner, Service, Services

#: Most events a batch may hold, and batches of a partition that may be on their way at a time: the outputs of one
#: are acknowledged while the next is folded.
BATCH_LIMIT: Final = 4000
OUTSTANDING: Final = 2
#: What a row of a stream is taken to have before the first checkpoint, bytes.
STREAM_BYTES: Final = 4000
#: How many rows of its stream one event may change.
STREAM_ROWS: Final = 8

_LEDGER: Final = kinds.LEDGER.letter
#: What is done with a row by what it meets: a forecast, an outcome, or the queue's entry that fell due.
Action = Callable[[bytes, Row, Any], None]
#: Stands for the row of an event that has none.
_ABSENT: Final = Row(ledger.NONE, 0)


class Partition(Fold):
    """The working copy of one partition's state.

    Parameters
    ----------
    policies
        What each stream is configured to do.
    get
        Reads a stored row by key. It must see every row of earlier checkpoints. None: nothing is ever stored, and rows
        stay in memory until they leave.
    observer
        Is told what becomes of events; None: what workers count.
    beside
        As `state.services.Services` takes it.

    """

    def __init__(
        self,
        policies: Policies,
        get: Get | None,
        observer: Observer | None = None,
        beside: Sequence[Policies] = (),
    ) -> None:
        self._policies = policies
        self._stored = get is not None
        self._given = observer
        self._beside = beside
        self._life: list[tuple[Action, ...]] = [
            tuple([getattr(self, "_" + name) for name in ledger.LIFE[status]]) for status in sorted(ledger.LIFE)
        ]
        default = [] if policies.default is None else [policies.default]
        largest = max([policy.row_bytes for policy in (*default, *dict(policies.patterns).values())], default=0)
        #: What a row of the ledger and one of a stream had on average at the last checkpoint, bytes.
        self._ledger_bytes, self._stream_bytes = LEDGER_BYTES, max(STREAM_BYTES, largest // STREAM_ROWS)
        #: Bytes of queues and fence in the last checkpoint.
        self._queued = 0
        super().__init__(_nothing if get is None else get)

    def reset(self) -> None:
        """Forget everything since the last checkpoint."""
        self._quotas = Quotas(self._policies.quota_of, self._get) if self._policies.limited else None
        self._entities = Entities(self._get)
        self._services = Services(self._policies, self._get, self._opened, self._beside)
        self._observer = Counting(self._policies, self._services) if self._given is None else self._given
        #: The ledger's rows that changed since the last checkpoint, by key; None where one left.
        self._rows: dict[bytes, Row | None] = {}
        super().reset()

    def _opened(self, service: Service) -> None:
        self._observer.opened(service)

    def fold(self, events: Iterable[Event]) -> Effects:
        """Apply a whole batch, at most `BATCH_LIMIT` events, and make a checkpoint of it; raises as `apply`."""
        before = self.fence.next.copy()
        self.begin()
        outputs = self.apply(events)
        effects = self.end()
        effects.outputs = outputs
        if self.fence.next != before:
            self.checkpoint(effects)
        return effects

    def apply(self, events: Iterable[Event]) -> list[Output]:
        """Apply events in order, and return what they are answered with.

        Parameters
        ----------
        events
            Each topic's in the order of its offsets; with those before them since `begin`, at most `BATCH_LIMIT`.

        Raises
        ------
        CorruptFrame
            If a stored row is damaged.
        """
        self._outputs = []
        fence, effects, offsets = self.fence, self._effects, self.fence.next
        for event in events:
            if isinstance(event, Forecast):
                offsets[FORECASTS] = event.offset + 1
                fence.applied += 1
                self._forecast(event)
            elif isinstance(event, Outcome):
                offsets[OUTCOMES] = event.offset + 1
                fence.applied += 1
                self._outcome(event)
            elif isinstance(event, Passed):
                offsets[event.topic] = event.offset + 1
                effects.passed[event.topic] += 1
            else:
                offsets[event.topic] = event.offset + 1
                fence.applied += 1
                fence.fates[FORECAST_DEAD if event.topic == FORECASTS else OUTCOME_DEAD] += 1
                self._reject(event, event.stream, event.ts)
        return self._outputs

    @property
    def services(self) -> Services:
        """What serves the streams."""
        return self._services

    @property
    def rows(self) -> dict[bytes, Row | None]:
        """The ledger's rows that changed since the last checkpoint, by key; where nothing is stored, all of them."""
        return self._rows

    def freeze(self, changes: Changes | None = None) -> Changes:
        """Return what `checkpoint` does, with most of the rows still to be made; those before are to be made by now."""
        events, size, values, of_streams = self._services.frozen.sizes
        if events:
            self._ledger_bytes = max(size // events, LEDGER_BYTES)
        if values:
            self._stream_bytes = max((of_streams + self._queued) // values, 1)
        made = Changes() if changes is None else changes
        rows = made.rows
        rows.update(self._ordered())
        self._queued = _size(rows.values())
        rows.update(self._entities.changes())
        if self._quotas is not None:
            rows.update(self._quotas.changes())
        made.ledger, self._rows = self._rows, {}
        self._services.freeze(made)
        return made

    @property
    def weight(self) -> int:
        """About how many bytes of rows have changed since the last checkpoint."""
        return len(self._rows) * self._ledger_bytes + len(self._services.touched) * self._stream_bytes

    @property
    def event_weight(self) -> int:
        """About how many bytes of rows one event may change."""
        return self._ledger_bytes + STREAM_ROWS * self._stream_bytes

    # What comes.

    def _forecast(self, forecast: Forecast) -> None:
        self._advance(forecast.ts)
        key = _LEDGER + forecast.event_id.encode()
        row = self._row(key)
        if self._quotas is not None:
            over = self._quotas.refused(FORECASTS, forecast.stream, forecast.ts, row.status <= ledger.EARLY)
            if over:
                letter = self._with_forecast(_letter(forecast, FORECASTS, over), forecast)
                self._refuse(letter, forecast.stream, forecast.ts)
                return
        self._life[row.status][ledger.FORECAST](key, row, forecast)

    def _outcome(self, outcome: Outcome) -> None:
        ts = outcome.ts
        self._advance(ts)
        key = _LEDGER + outcome.event_id.encode()
        row = self._row(key)
        if self._quotas is not None and self._over(self._quotas, outcome, row):
            return
        if not row.admits(outcome.y):
            self.fence.fates[OUTCOME_DEAD] += 1
            self._reject(_letter(outcome, OUTCOMES, "label"), row.stream, ts)
            return
        self._life[row.status][ledger.OUTCOME](key, row, outcome)

    def _over(self, quotas: Quotas, outcome: Outcome, row: Row) -> bool:
        """Refuse an outcome that is beyond a quota.

        The first outcome of a forecast never is. There are no more of them than forecasts, and a label that is lost is
        lost for good.
        """
        ts = outcome.ts
        if row.status in (ledger.ISSUED, ledger.IMMATURE) or row.as_of == ledger.UNSAID:
            quotas.move(OUTCOMES, ts)
            return False
        stream = row.stream
        over = quotas.refused(OUTCOMES, stream, ts, row.status == ledger.NONE)
        if over:
            self._refuse(_letter(outcome, OUTCOMES, over), stream, ts)
        return bool(over)

    def _mature(self, queue: Queue) -> None:
        """Let the first forecast of a queue mature: it is learnt with the outcome it has, or with what silence says."""
        since, born, event_id = self._expiry.pop(queue)
        key = _LEDGER + event_id.encode()
        row = self._row(key)
        if row.born != born:
            return
        policy = self._policies.of(row.stream)
        ttl_ms = DEFAULT_TTL_MS if policy is None else policy.ttl_ms
        self._expiry.push(MATURED_EXPIRY, max(1, ttl_ms - queue.ttl_ms), self.fence.applied, event_id)
        self._life[row.status][ledger.MATURES](key, row, (since + queue.ttl_ms, event_id, queue.role))

    def _leave_queue(self, queue: Queue) -> None:
        """Let the row of a queue's first entry leave; one that was entered again later leaves with its later entry."""
        since, named, event_id = self._expiry.pop(queue)
        key = _LEDGER + event_id.encode()
        row = self._row(key)
        if queue.role == MATURED_EXPIRY or row.born == named:
            self._life[row.status][ledger.LEAVES](key, row, (since + queue.ttl_ms, event_id, queue.role))

    # What becomes of an event, see `state.ledger.LIFE`.

    def _stay(self, key: bytes, row: Row, told: Any) -> None:  # noqa: ANN401 - as `Action` has it
        """Leave the row as it is."""

    def _answer(self, key: bytes, row: Row, forecast: Forecast) -> None:  # noqa: ARG002 - there is none
        """Answer a forecast."""
        service = self._services.of(forecast.stream)
        made = self._issue(service, key, forecast)
        self._effects.belated += self.fence.stream_time - forecast.ts >= service.ttl_ms
        if made.version == 0:  # tickets must find the recipe that made them
            self._touch(service.learner)

    def _join(self, key: bytes, row: Row, forecast: Forecast) -> None:
        """Answer a forecast, and give it the outcome that was parked for it, if that is one it can have."""
        service = self._services.of(forecast.stream)
        made, fates, y = self._issue(service, key, forecast), self.fence.fates, row.y
        self._touch(service.learner)
        if not admits(forecast.raw, y):
            fates[EARLY_UNUSABLE] += 1
            value = json.dumps({"event_id": forecast.event_id, "y": y}).encode()
            letter = Rejected(forecast.offset, forecast.key, value, FORECASTS, "parked_label")
            self._reject(letter, forecast.stream, forecast.ts)
            return
        waits = made.status == ledger.IMMATURE
        fates[EARLY_WAITING if waits else EARLY_JOINED] += 1
        made.label(ledger.WAITING if waits else ledger.RESOLVED, y, row.resolved_ts, row.as_of, row.number)
        self._labelled(service, made, y, row.resolved_ts)
        if not waits:
            self._learn(service, made, forecast.key, forecast.event_id)

    def _answer_again(self, key: bytes, row: Row, forecast: Forecast) -> None:  # noqa: ARG002 - the row stays
        """Answer a forecast of an event that was answered; one that says something else is a dead letter."""
        if row.raw != forecast.raw or row.stream != forecast.stream:
            self.fence.fates[FORECAST_DEAD] += 1
            letter = self._with_forecast(_letter(forecast, FORECASTS, "conflict"), forecast)
            self._reject(letter, forecast.stream, forecast.ts)
            return
        self.fence.fates[FORECAST_DUPLICATE] += 1
        said = marks(row.marks) if row.marks else UNMARKED
        served = (
            forecast.key, forecast.event_id, forecast.stream, row.raw, row.p, row.draw, row.calibrator, row.config,
            row.version, row.issued_ts, row.born, forecast.carried, said.band, said.points, said.low, said.high,
            said.why,
        )  # fmt: skip
        self._outputs.append(new(Calibrated, served))
        self._effects.answered[forecast.stream] += 1

    def _park(self, key: bytes, row: Row, outcome: Outcome) -> None:  # noqa: ARG002 - there is none
        """Keep an outcome whose forecast has not come."""
        applied, ts = self.fence.applied, outcome.ts
        self.fence.fates[EARLY] += 1
        self._enter(EXPIRY, self._policies.early_ttl_ms, outcome.event_id, ts)
        self._rows[key] = Row(ledger.EARLY, applied, resolved_ts=ts, y=outcome.y, as_of=ts, number=outcome.revision)
        self._observer.parked(outcome.event_id, ts)

    def _resolve(self, key: bytes, row: Row, outcome: Outcome) -> None:
        """Learn a forecast's first outcome."""
        _, record_key, event_id, y, ts, _, number = outcome
        self.fence.fates[RESOLVED] += 1
        self._rows[key] = row
        service = self._services.by(row)
        row.label(ledger.RESOLVED, y, ts, ts, number)
        self._labelled(service, row, y, ts)
        self._learn(service, row, record_key, event_id)

    def _keep(self, key: bytes, row: Row, outcome: Outcome) -> None:
        """Keep the first outcome of a forecast that has not matured."""
        y, ts = outcome.y, outcome.ts
        self.fence.fates[WAITING] += 1
        self._rows[key] = row
        row.label(ledger.WAITING, y, ts, ts, outcome.revision)
        self._labelled(self._services.by(row), row, y, ts)

    def _say_again(self, key: bytes, row: Row, outcome: Outcome) -> None:
        """Take a further outcome of an event that has a label: it confirms the label, replaces it, or is too old."""
        _, record_key, event_id, y, ts, _, number = outcome
        fates, newer, was = self.fence.fates, row.newer(ts, number), row.y
        if row.status == ledger.RESOLVED and row.as_of == ledger.UNSAID:  # the first after silence labelled the event
            service = self._services.by(row)
            self._effects.overdue[service.stream] += 1
            self._labelled(service, row, y, ts)
        if y == was:
            fates[OUTCOME_DUPLICATE] += 1
            if newer:
                self._rows[key] = row
                row.as_of, row.number = ts, number
        elif not newer or row.revisions >= ledger.MOST_REVISIONS:
            fates[OUTCOME_STALE] += 1
        else:
            fates[OUTCOME_REVISED] += 1
            self._rows[key] = row
            row.label(row.status, y, ts, ts, number)
            if row.status == ledger.RESOLVED:
                row.revisions += 1
                self._revise(row, record_key, event_id, was)

    def _imply(self, key: bytes, row: Row, told: tuple[int, str, int]) -> None:
        """Let a forecast without an outcome mature: learn what silence says, or wait on."""
        due, event_id, _ = told
        policy = self._policies.of(row.stream)
        silence = None if policy is None else policy.silence
        if silence is not None and row.admits(silence):
            self.fence.fates[IMPLIED] += 1
            self._effects.lapsed.append(due)
            self._rows[key] = row
            row.label(ledger.RESOLVED, silence, due, ledger.UNSAID, 0)
            self._learn(self._services.by(row), row, _key_of(row, event_id), event_id)
        elif row.status == ledger.IMMATURE:
            self._rows[key] = row
            row.status = ledger.ISSUED

    def _redeem(self, key: bytes, row: Row, told: tuple[int, str, int]) -> None:
        """Let a forecast with an outcome mature: it is learnt."""
        _, event_id, _ = told
        self.fence.fates[MATURED] += 1
        self._rows[key] = row
        row.status = ledger.RESOLVED
        self._learn(self._services.by(row), row, _key_of(row, event_id), event_id)

    def _lapse(self, key: bytes, row: Row, told: tuple[int, str, int]) -> None:
        """Remove a forecast without an outcome, or an outcome without a forecast."""
        due, event_id, _ = told
        self._effects.lapsed.append(due)
        if row.status == ledger.EARLY:
            self.fence.fates[EXPIRED_OUTCOME] += 1
        else:
            self.fence.fates[EXPIRED_FORECAST] += 1
            self._observer.expired(self._services.by(row), row, event_id)
        self._remove(key)

    def _leave(self, key: bytes, row: Row, told: tuple[int, str, int]) -> None:
        """Remove an event that has a label, or keep it for as long as its label may be revised."""
        _, event_id, role = told
        longer = 0
        if row.status == ledger.RESOLVED and role != REVISION:
            policy = self._policies.of(row.stream)
            longer = 0 if policy is None else policy.kept_ms - policy.ttl_ms
        if longer:
            self._expiry.push(REVISION, longer, row.born, event_id)
        else:
            self._remove(key)

    # How it is done.

    def _row(self, key: bytes) -> Row:
        """Return the row of an event, `_ABSENT` without one; who changes it puts it among those that changed."""
        if key in self._rows:
            return self._rows[key] or _ABSENT
        frame = self._get(key) if self._stored else None
        return _ABSENT if frame is None else kinds.LEDGER.open(frame, Row.decode)

    def _remove(self, key: bytes) -> None:
        if self._stored:
            self._rows[key] = None
        else:
            self._rows.pop(key, None)

    def _touch(self, learner: Learner) -> None:
        self._services.touched[learner.key] = learner.served

    def _issue(self, service: Service, key: bytes, forecast: Forecast) -> Row:
        """Answer a forecast, and return its row."""
        _, record_key, event_id, stream, raw, x, ts, _, values, carried, entity = forecast
        fence, name, learner = self.fence, event_id.encode(), service.learner
        groups = () if service.dictionary is None else self._groups(service, service.dictionary, values)
        calibrator = learner.served.calibrator
        p, draw, ticket = calibrator.predict(raw, x, name, groups)
        coverage = service.coverage
        if coverage is not None and coverage.uncovered:
            p, draw, ticket = self._unlearnt(service, learner, ticket, raw, x, name, groups)
        row = Row(service.status, fence.applied, service.kind, ts)
        row.raw, row.p, row.draw, row.version = raw, p, draw, calibrator.learnt
        row.names, row.ticket, row.entity = service.names, ticket, entity
        if not learner.served.warmed_ms and self._warms(service, learner, raw, p, ts):
            row.window = ledger.NO_WINDOW
        if service.role == MATURITY and record_key != name:
            row.key = record_key
        if groups:
            row.layout, row.groups = service.layout, groups
        said = UNMARKED
        if service.marker is not None:
            withheld = coverage is not None and coverage.uncovered
            row.marks, said = service.marker.issue(
                raw, p, row.layout, groups, values, fence.stream_time, withheld=withheld
            )
        if service.shadows:
            row.shadows = self._ask(service, raw, x, ts, name, groups)
        if coverage is not None:
            coverage.issue(fence.applied)
            self._services.touched[service.coverage_key] = coverage
        self._enter(service.role, service.due_ms, event_id, ts)
        fence.fates[ISSUED] += 1
        self._observer.issued(service, row, x, fence.stream_time)
        self._rows[key] = row
        served = (
            record_key, event_id, stream, raw, p, draw, service.calibrator, service.config, row.version, ts,
            fence.applied, carried, said.band, said.points, said.low, said.high, said.why,
        )  # fmt: skip
        self._outputs.append(new(Calibrated, served))
        self._effects.answered[stream] += 1
        return row

    def _groups(self, service: Service, dictionary: Dictionary, values: tuple[str, ...]) -> tuple[int, ...]:
        """Return the slots of an event's segments."""
        taken = dictionary.taken
        groups = dictionary.groups(values)
        if dictionary.taken > taken:
            self._services.touched[kinds.NAMES.key(service.stream, service.layout)] = dictionary
        return groups

    def _warms(
        self,
        service: Service,
        learner: Learner,
        raw: Any,  # noqa: ANN401 - of the stream's kind
        p: Any,  # noqa: ANN401 - of the stream's kind
        ts: int,
    ) -> bool:
        """Whether a forecast belongs to the warm-up of a calibrator that is in it, see `state.served.Served.warms`."""
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
        """Ask every challenger, and return their tickets."""
        tickets: list[ledger.Shadow] = []
        coverage = service.coverage
        for challenger in service.shadows:
            learner = challenger.learner
            calibrator = learner.served.calibrator
            p, draw, ticket = calibrator.predict(raw, x, name, groups)
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
        """Return what a calibrator answers before its first outcome, and the ticket by which it learns all the same."""
        p, draw, _ = self._services.blank(service, learner).predict(raw, x, name, groups)
        return p, draw, learner.served.calibrator.unserved(ticket)

    def _labelled(self, service: Service, row: Row, y: float, ts: int) -> None:
        """Note that the forecast of a row has its first outcome."""
        if service.coverage is not None:
            service.coverage.label(row.born)
            self._services.touched[service.coverage_key] = service.coverage
        self._observer.labelled(service, row, y, ts)

    def _learn(self, service: Service, row: Row, record_key: bytes | None, event_id: str) -> None:
        """Redeem the tickets of a row once, by its label: what served learns, and what challenged."""
        y, ts, effects, stream = row.y, row.resolved_ts, self._effects, service.stream
        implied = row.as_of == ledger.UNSAID
        if row.entity and not self._teaches(service, row):
            row.window = ledger.UNTAUGHT
            effects.untaught[stream] += 1
        else:
            at = 0 if implied else ts
            if service.marker is not None and service.marker.wide:
                service.marker.learn(row)
            row.frozen = service.frozen
            if not row.frozen:
                self._redeem_ticket(service.learner, row.version, row.ticket, y, at)
            for shadow in row.shadows:
                learner = self._services.challenger(service, shadow.config).learner
                self._redeem_ticket(learner, shadow.version, shadow.ticket, y, at)
        row.window = self._observer.resolved(service, row, event_id, self.fence.applied, self.fence.stream_time)
        if row.marks and row.window != ledger.UNTAUGHT:
            self._services.marker(service).resolve(row, 1, int(y), self.fence.stream_time)
        if not implied:
            effects.delays.append(ts - row.issued_ts)
        effects.resolved[stream] += 1
        joined = (
            record_key, event_id, stream, row.raw, row.p, row.draw, y, service.calibrator, row.version, row.issued_ts,
            ts, 0, implied,
        )  # fmt: skip
        self._outputs.append(new(Resolved, joined))

    def _redeem_ticket(self, learner: Learner, version: int, ticket: bytes, y: float, at: int) -> None:
        served = learner.served
        served.late += served.calibrator.learnt - version
        served.calibrator.learn(ticket, y, at)
        self._services.touched[learner.key] = served

    def _revise(self, row: Row, record_key: bytes | None, event_id: str, was: float) -> None:
        """Replace a label that was learnt, wherever it counts, and say so."""
        service, y = self._services.by(row), row.y
        said = (
            record_key, event_id, service.stream, row.raw, row.p, row.draw, y, service.calibrator, row.version,
            row.issued_ts, row.resolved_ts, row.revisions, False,
        )  # fmt: skip
        self._outputs.append(new(Resolved, said))
        if row.window != ledger.UNTAUGHT:
            if row.marks:
                self._services.marker(service).resolve(row, 0, int(y - was), self.fence.stream_time)
            if service.marker is not None and service.marker.wide:
                service.marker.revise(row, y - was)
            row.frozen = row.frozen or service.frozen  # what was not learnt is not revised later
            if not row.frozen:
                service.learner.served.calibrator.revise(row.ticket, was, y)
                self._touch(service.learner)
            for shadow in row.shadows:
                learner = self._services.challenger(service, shadow.config).learner
                learner.served.calibrator.revise(shadow.ticket, was, y)
                self._touch(learner)
        self._observer.revised(service, row, event_id, was, self.fence.stream_time)

    def _teaches(self, service: Service, row: Row) -> bool:
        """Whether an outcome of an entity teaches, and counts: see `state.entities`."""
        policy = self._policies.of(service.stream)
        memory_ms = DEFAULT_TTL_MS if policy is None else policy.ttl_ms
        z, now = place(row.raw, service.kind), self.fence.stream_time
        return self._entities.teaches(service.stream, service.config, row.entity, z, now, memory_ms)

    def _reject(self, rejected: Rejected, stream: str, ts: int) -> None:
        """Write a dead letter; its stream is empty where none is known."""
        topic, reason = rejected.topic, rejected.reason
        self._effects.rejected.append((topic, reason))
        if self._quotas is not None and self._quotas.withheld(topic, stream, ts, reason):
            rejected = rejected._replace(withheld=True)
            self._effects.withheld += 1
        self._outputs.append(rejected)

    def _with_forecast(self, letter: Rejected, forecast: Forecast) -> Rejected:
        """Return a dead letter with its forecast, if any stream has its raw score answered."""
        return letter._replace(forecast=forecast) if self._policies.answering else letter

    def _refuse(self, refused: Rejected, stream: str, ts: int) -> None:
        """Leave out a record that is beyond its stream's quota."""
        self.fence.fates[FORECAST_DEAD if refused.topic == FORECASTS else OUTCOME_DEAD] += 1
        self._effects.refused[stream] += 1
        self._reject(refused, stream, ts)


def _nothing(_: bytes) -> None:
    """Read nothing."""


def _size(rows: Iterable[bytes | None]) -> int:
    return sum([len(row) for row in rows if row is not None])


def _key_of(row: Row, event_id: str) -> bytes | None:
    """Return the Kafka key of a matured forecast."""
    return event_id.encode() if row.key == b"" else row.key


def _letter(event: Forecast | Outcome, topic: int, reason: str) -> Rejected:
    return Rejected(event.offset, event.key, event.value, topic, reason)
