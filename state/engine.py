"""The engine: a deterministic fold of events over the rows of one partition.

Workers, audits and replays run it, and all must end in the same bytes. So it reads no clock and no environment, and
keys its draws by the event id. The size of a batch must not matter: the same events in the same order give the same
rows.

The table `state.ledger.LIFE` says what may become of an event. Each of its actions is a method here.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from state import kinds, ledger
from state.banding import marks
from state.effects import Effects
from state.events import Event, Forecast, Outcome, Output, Passed, Rejected
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
    MATURED,
    MATURED_EXPIRY,
    OUTCOME_DEAD,
    OUTCOME_DUPLICATE,
    OUTCOME_ERASED,
    OUTCOME_REVISED,
    OUTCOME_STALE,
    OUTCOMES,
    RESOLVED,
    REVISION,
    WAITING,
    QueueBounds,
)
from state.forecasts import admits
from state.ledger import LedgerRow
from state.policy import DEFAULT_TTL_MS
from state.tickets import Tickets

#: The most events in a batch; and the most batches of a partition in progress, since the outputs of one are
#: acknowledged while the next is folded.
BATCH_LIMIT: Final = 4000
OUTSTANDING: Final = 2

_LEDGER: Final = kinds.LEDGER.letter
#: An action of `LIFE`. Its last argument is the event that the row meets: a forecast, an outcome, or a due entry of a
#: queue.
Action = Callable[[bytes, LedgerRow, Any], None]


class Partition(Tickets):
    """The working copy of one partition's state. Parameters are those of `Tickets`."""

    def reset(self) -> None:
        """Forget everything since the last checkpoint."""
        self._life: list[tuple[Action, ...]] = [
            tuple([getattr(self, "_" + name) for name in ledger.LIFE[status]]) for status in sorted(ledger.LIFE)
        ]
        super().reset()

    def fold(self, events: Iterable[Event]) -> Effects:
        """Apply a whole batch, at most `BATCH_LIMIT` events, and make a checkpoint; raises as `apply`."""
        before = self.fence.next.copy()
        self.begin()
        outputs = self.apply(events)
        effects = self.end()
        effects.outputs = outputs
        if self.fence.next != before:
            self.checkpoint(effects)
        return effects

    def apply(self, events: Iterable[Event]) -> list[Output]:
        """Apply events in order, and return their outputs.

        Raises CorruptFrame if a stored row is damaged.

        ``events``: each topic's events in the order of offsets; at most `BATCH_LIMIT` since `begin`.
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
                self._reject(event)
        return self._outputs

    # What comes.

    def _forecast(self, forecast: Forecast) -> None:
        self._advance(forecast.ts)
        key = _LEDGER + forecast.event_id.encode()
        row = self._row(key)
        self._life[row.status][ledger.FORECAST](key, row, forecast)

    def _outcome(self, outcome: Outcome) -> None:
        met = ledger.OUTCOME
        if outcome.y != outcome.y:  # as `erases`, inline; an erasure has a clock's time, and moves no stream time
            met = ledger.ERASURE
        else:
            self._advance(outcome.ts)
        key = _LEDGER + outcome.event_id.encode()
        row = self._row(key)
        if met == ledger.OUTCOME and row.status != ledger.ERASED and not row.admits(outcome.y):
            self.fence.fates[OUTCOME_DEAD] += 1
            self._reject(_letter(outcome, OUTCOMES, "label"))
            return
        self._life[row.status][met](key, row, outcome)

    def _mature(self, queue: QueueBounds) -> None:
        """Mature the first forecast of a queue: learn it with its outcome, or with the label that silence implies."""
        since, born, event_id = self._expiry.pop(queue)
        key = _LEDGER + event_id.encode()
        row = self._row(key)
        if row.born != born:
            return
        policy = self._policies.of(row.stream)
        ttl_ms = DEFAULT_TTL_MS if policy is None else policy.ttl_ms
        self._expiry.push(MATURED_EXPIRY, max(1, ttl_ms - queue.ttl_ms), self.fence.applied, event_id)
        self._life[row.status][ledger.MATURES](key, row, (since + queue.ttl_ms, event_id, queue.role))

    def _leave_queue(self, queue: QueueBounds) -> None:
        """Remove the row of a queue's first entry, unless the row entered the queue again later."""
        since, named, event_id = self._expiry.pop(queue)
        key = _LEDGER + event_id.encode()
        row = self._row(key)
        if queue.role == MATURED_EXPIRY or row.born == named:
            self._life[row.status][ledger.LEAVES](key, row, (since + queue.ttl_ms, event_id, queue.role))

    # What becomes of an event, see `state.ledger.LIFE`.

    def _stay(self, key: bytes, row: LedgerRow, told: Any) -> None:  # noqa: ANN401 - as `Action` has it
        """Leave the row as it is."""

    def _answer(self, key: bytes, row: LedgerRow, forecast: Forecast) -> None:  # noqa: ARG002 - there is none
        """Answer a forecast."""
        service = self._serving(forecast)
        made = self._issue(service, key, forecast)
        self._effects.belated += self.fence.stream_time - forecast.ts >= service.ttl_ms
        if made.version == 0:  # with a first ticket, the recipe must be stored
            self._touch(service.learner)

    def _join(self, key: bytes, row: LedgerRow, forecast: Forecast) -> None:
        """Answer a forecast, and use the parked outcome if it is valid for this forecast."""
        service = self._serving(forecast)
        made, fates, y = self._issue(service, key, forecast), self.fence.fates, row.y
        self._touch(service.learner)
        if not admits(forecast.raw, y):
            fates[EARLY_UNUSABLE] += 1
            value = json.dumps({"event_id": forecast.event_id, "y": y}).encode()
            letter = Rejected(forecast.offset, forecast.key, value, FORECASTS, "parked_label")
            self._reject(letter)
            return
        waits = made.status == ledger.IMMATURE
        fates[EARLY_WAITING if waits else EARLY_JOINED] += 1
        made.label(ledger.WAITING if waits else ledger.RESOLVED, y, row.resolved_ts, row.as_of, row.number)
        self._labelled(service, made, y, row.resolved_ts)
        if not waits:
            self._learn(service, made, forecast.key, forecast.event_id, forecast.carried)

    def _answer_again(self, key: bytes, row: LedgerRow, forecast: Forecast) -> None:  # noqa: ARG002 - the row stays
        """Answer a repeated forecast again; one with other contents is a dead letter."""
        if row.raw != forecast.raw or row.stream != forecast.stream:
            self.fence.fates[FORECAST_DEAD] += 1
            letter = self._with_forecast(_letter(forecast, FORECASTS, "conflict"), forecast)
            self._reject(letter)
            return
        self.fence.fates[FORECAST_DUPLICATE] += 1
        self._answered(forecast, row, row.calibrator, row.config, marks(row.marks)[4:])

    def _park(self, key: bytes, row: LedgerRow, outcome: Outcome) -> None:  # noqa: ARG002 - there is none
        """Keep an outcome until its forecast comes."""
        applied, ts = self.fence.applied, outcome.ts
        self.fence.fates[EARLY] += 1
        self._enter(EXPIRY, self._policies.early_ttl_ms, outcome.event_id, ts)
        self._rows[key] = LedgerRow(
            ledger.EARLY, applied, resolved_ts=ts, y=outcome.y, as_of=ts, number=outcome.revision
        )
        self._observer.parked(outcome.event_id, ts)

    def _resolve(self, key: bytes, row: LedgerRow, outcome: Outcome) -> None:
        """Learn a forecast's first outcome."""
        _, record_key, event_id, y, ts, _, number, carried = outcome
        self.fence.fates[RESOLVED] += 1
        self._rows[key] = row
        service = self._services.by(row)
        row.label(ledger.RESOLVED, y, ts, ts, number)
        self._labelled(service, row, y, ts)
        self._learn(service, row, record_key, event_id, carried)

    def _keep(self, key: bytes, row: LedgerRow, outcome: Outcome) -> None:
        """Keep the first outcome of a forecast until the forecast matures."""
        y, ts = outcome.y, outcome.ts
        self.fence.fates[WAITING] += 1
        self._rows[key] = row
        row.label(ledger.WAITING, y, ts, ts, outcome.revision)
        self._labelled(self._services.by(row), row, y, ts)

    def _say_again(self, key: bytes, row: LedgerRow, outcome: Outcome) -> None:
        """Handle another outcome of a labelled event. It confirms the label, replaces it, or is too old."""
        _, record_key, event_id, y, ts, _, number, carried = outcome
        fates, newer, was = self.fence.fates, row.newer(ts, number), row.y
        if row.status == ledger.RESOLVED and row.as_of == ledger.UNSAID:  # silence had implied the label
            service = self._services.by(row)
            self._effects.overdue[service.stream] += 1
            self._labelled(service, row, y, ts)
        if y == was:
            fates[OUTCOME_DUPLICATE] += 1
            if newer:
                self._rows[key] = row
                row.as_of, row.number = ts, number
            return
        self._effects.contradicting += (ts, number) == (row.as_of, row.number)
        if not newer or row.revisions >= ledger.MOST_REVISIONS:
            fates[OUTCOME_STALE] += 1
        else:
            fates[OUTCOME_REVISED] += 1
            self._rows[key] = row
            row.label(row.status, y, ts, ts, number)
            if row.status == ledger.RESOLVED:
                row.revisions += 1
                self._revise(row, record_key, event_id, was, carried)

    def _imply(self, key: bytes, row: LedgerRow, told: tuple[int, str, int]) -> None:
        """Mature a forecast without an outcome: learn the label that silence implies, or go on waiting."""
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

    def _redeem(self, key: bytes, row: LedgerRow, told: tuple[int, str, int]) -> None:
        """Mature a forecast with an outcome: learn it."""
        _, event_id, _ = told
        self.fence.fates[MATURED] += 1
        self._rows[key] = row
        row.status = ledger.RESOLVED
        self._learn(self._services.by(row), row, _key_of(row, event_id), event_id)

    def _lapse(self, key: bytes, row: LedgerRow, told: tuple[int, str, int]) -> None:
        """Remove a forecast without an outcome, or an outcome without a forecast."""
        due, event_id, _ = told
        self._effects.lapsed.append(due)
        if row.status == ledger.EARLY:
            self.fence.fates[EXPIRED_OUTCOME] += 1
        else:
            self.fence.fates[EXPIRED_FORECAST] += 1
            self._expired(row, event_id)
            self._services.release(row)
        self._remove(key)

    def _expired(self, row: LedgerRow, event_id: str) -> None:
        """Count a forecast that leaves without a label."""
        service = self._services.by(row)
        self._services.change(service.counts)
        self._observer.expired(service, row, event_id)

    def _leave(self, key: bytes, row: LedgerRow, told: tuple[int, str, int]) -> None:
        """Remove a labelled event, or keep it while its label may be revised."""
        longer = self._revisable(row) if row.status == ledger.RESOLVED else 0
        if not self._stays(row, told, longer):
            self._services.release(row)
            self._remove(key)

    def _revisable(self, row: LedgerRow) -> int:
        """Return for how long after the time to live the label of an event may be revised, ms."""
        policy = self._policies.of(row.stream)
        return 0 if policy is None else policy.kept_ms - policy.ttl_ms

    def _stays(self, row: LedgerRow, told: tuple[int, str, int], longer: int) -> bool:
        """Keep a row for ``longer`` ms after its time to live has passed, but only once; return whether it stays."""
        _, event_id, role = told
        if not longer or role == REVISION:
            return False
        self._expiry.push(REVISION, longer, row.born, event_id)
        return True

    def _erase(self, key: bytes, row: LedgerRow, outcome: Outcome) -> None:
        """Erase everything of an event except its name and its stream. What it has taught stays in the sums.

        Its row expires at the usual time, so that later records find that the event was erased.
        """
        fates, status = self.fence.fates, row.status
        fates[OUTCOME_ERASED] += 1
        if status == ledger.EARLY:
            fates[EXPIRED_OUTCOME] += 1
        else:
            if status == ledger.WAITING:
                fates[MATURED] += 1
            elif status != ledger.RESOLVED:
                fates[EXPIRED_FORECAST] += 1
                self._expired(row, outcome.event_id)
            self._services.release(row)
        self._rows[key] = LedgerRow(ledger.ERASED, row.born, names=ledger.names("00000000", "", row.stream))

    def _erase_unknown(self, key: bytes, row: LedgerRow, outcome: Outcome) -> None:  # noqa: ARG002 - there is none
        """Note that an event without records was erased: its records may still come."""
        fence = self.fence
        fence.fates[OUTCOME_ERASED] += 1
        self._enter(EXPIRY, self._policies.early_ttl_ms, outcome.event_id, fence.stream_time)
        self._rows[key] = LedgerRow(ledger.ERASED, fence.applied)

    def _ignore(self, key: bytes, row: LedgerRow, outcome: Outcome) -> None:  # noqa: ARG002 - the row stays
        """Count an outcome of an erased event. It teaches nothing, and none of it is kept."""
        self.fence.fates[OUTCOME_ERASED] += 1

    def _refuse_erased(self, key: bytes, row: LedgerRow, forecast: Forecast) -> None:  # noqa: ARG002 - the row stays
        """Reject a forecast whose event was erased. The dead letter does not hold the record's contents."""
        self.fence.fates[FORECAST_DEAD] += 1
        letter = _letter(forecast, FORECASTS, "erased")._replace(withheld=True)
        self._reject(self._with_forecast(letter, forecast))

    def _vanish(self, key: bytes, row: LedgerRow, told: tuple[int, str, int]) -> None:
        """Remove the name of an erased event, or keep it while its label could have been revised.

        When an unknown event was erased, stream time may have been far behind. So its name stays for two times to live:
        the second begins with the records that moved stream time.
        """
        longer = self._revisable(row) if row.stream else self._policies.early_ttl_ms
        if not self._stays(row, told, longer):
            self._remove(key)


def _key_of(row: LedgerRow, event_id: str) -> bytes | None:
    """Return the Kafka key of a matured forecast's record."""
    return event_id.encode() if row.key == b"" else row.key


def _letter(event: Forecast | Outcome, topic: int, reason: str) -> Rejected:
    return Rejected(event.offset, event.key, event.value, topic, reason)
