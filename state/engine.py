"""The engine: a deterministic fold of events over the rows of one partition.

Both drivers run it, the live agents and replay, and both must end in the same bytes. So it reads no clock and no
environment, draws its randomness from the event id, and never lets the size of a batch show in what it does: the
same events in the same order give the same rows, however they were cut into batches.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from state import keys, ledger, rows
from state.events import Calibrated, Event, Forecast, Outcome, Output, Rejected, Resolved
from state.expiry import Expiry
from state.fence import (
    EARLY,
    EARLY_JOINED,
    EXPIRED_FORECAST,
    EXPIRED_OUTCOME,
    FATES,
    FORECAST_DEAD,
    FORECAST_DUPLICATE,
    FORECASTS,
    ISSUED,
    OUTCOME_CONFLICTING,
    OUTCOME_DEAD,
    OUTCOME_DUPLICATE,
    OUTCOMES,
    RESOLVED,
    Fence,
)
from state.ledger import Entry
from state.policy import Policies
from state.rows import Served
from state.scores import Scores

#: Most events a batch may hold. A row that changed within as many events is not expired yet: after a crash the
#: outputs of the last batch are made again from its rows. Part of the state's meaning, so not a setting.
BATCH_LIMIT = 1000
#: Most rows the sweep removes before an event. An event adds at most one queue entry, so two catch up.
SWEEP = 2
#: Working copies kept between batches; beyond this they are read again from the table.
CACHED = 4096

#: Reads a stored row by key; None where there is none.
Get = Callable[[bytes], bytes | None]


@dataclass(slots=True)
class Effects:
    """What a batch does, all of it or none.

    Attributes
    ----------
    rows
        Rows to write, by key; None deletes. Empty when every event had been applied before.
    outputs
        Records to produce, in order; those of redelivered events included.
    fates
        How many records and rows met each of `state.fence.FATES` in this batch.
    delays
        Milliseconds from forecast to outcome, for each event resolved in this batch.
    rejected
        Topic and reason of every dead letter that is new.
    again
        How many redelivered events of each topic were answered from the ledger.
    scores, calibrators
        The rows among ``rows`` that changed of each stream's score sums and calibrator, by stream.
    """

    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    fates: list[int] = field(default_factory=lambda: [0] * len(FATES))
    delays: list[int] = field(default_factory=list)
    rejected: list[tuple[int, str]] = field(default_factory=list)
    again: list[int] = field(default_factory=lambda: [0, 0])
    scores: dict[str, bytes] = field(default_factory=dict)
    calibrators: dict[str, bytes] = field(default_factory=dict)


class Partition:
    """The working copy of one partition's state.

    Parameters
    ----------
    policies
        What each stream is configured to do.
    get
        Reads a stored row by key. It must see every row of the effects of earlier batches.
    batch_limit
        Most events a batch may hold; only tests make it small.

    Notes
    -----
    After a batch whose effects were not stored, call `reset`: the working copy is ahead of the table.
    """

    def __init__(self, policies: Policies, get: Get, batch_limit: int = BATCH_LIMIT) -> None:
        self._policies = policies
        self._get = get
        self._batch_limit = batch_limit
        self.reset()

    def reset(self) -> None:
        """Forget the working copy and read the fence again."""
        row = self._get(keys.FENCE)
        self.fence = Fence() if row is None else Fence.decode(row)
        self._expiry = Expiry(self._get, self.fence)
        self._served: dict[bytes, Served] = {}
        self._scores: dict[str, Scores] = {}
        self._begin()

    def _begin(self) -> None:
        self._effects = Effects()
        self._entries: dict[bytes, Entry | None] = {}
        self._changed: dict[bytes, Entry | None] = {}
        self._learnt: dict[bytes, str] = {}
        self._scored: set[str] = set()

    def fold(self, events: Iterable[Event]) -> Effects:
        """Apply events in order.

        Parameters
        ----------
        events
            At most ``batch_limit`` events, each topic's in the order of its offsets.

        Raises
        ------
        CorruptFrame
            If a stored row is damaged.
        """
        self._begin()
        fence, effects, offsets = self.fence, self._effects, self.fence.next
        before = fence.fates.copy()
        applied = fence.applied
        for event in events:
            if isinstance(event, Forecast):
                topic = FORECASTS
            elif isinstance(event, Outcome):
                topic = OUTCOMES
            else:
                topic = event.topic
            if event.offset < offsets[topic]:
                effects.again[topic] += 1
                self._again(event)
                continue
            offsets[topic] = event.offset + 1
            fence.applied += 1
            if isinstance(event, Forecast):
                self._forecast(event)
            elif isinstance(event, Outcome):
                self._outcome(event)
            else:
                fence.fates[FORECAST_DEAD if topic == FORECASTS else OUTCOME_DEAD] += 1
                effects.rejected.append((topic, event.reason))
                effects.outputs.append(event)
        effects.fates = [after - was for after, was in zip(fence.fates, before, strict=True)]
        if fence.applied > applied:
            self._collect()
        return effects

    def _forecast(self, forecast: Forecast) -> None:
        fence = self.fence
        self._advance(forecast.ts)
        key = keys.LEDGER + forecast.event_id.encode()
        found = self._entry(key)
        if found is not None and found.status != ledger.EARLY:
            fence.fates[FORECAST_DUPLICATE] += 1
            self._effects.outputs.append(_calibrated(forecast.key, forecast.event_id, found))
            return
        policy = self._policies.of(forecast.stream)
        if policy is None:
            raise LookupError(f"stream {forecast.stream!r} has no policy; decoding rejects such records")
        calibrator_key = keys.calibrator(forecast.stream, policy.config)
        calibrator = self._serving(calibrator_key, forecast.stream, policy.recipe).calibrator
        p, expected, ticket = calibrator.predict(forecast.p, forecast.x, forecast.event_id.encode())
        entry = Entry(
            ledger.ISSUED,
            fence.applied,
            fence.applied,
            forecast.ts,
            0,
            ledger.NAN,
            forecast.p,
            p,
            expected,
            calibrator.learnt,
            policy.config,
            policy.calibrator,
            forecast.stream,
            ticket,
        )
        self._expiry.push(policy.ttl_ms, fence.applied, forecast.event_id)
        fence.fates[ISSUED] += 1
        self._effects.outputs.append(_calibrated(forecast.key, forecast.event_id, entry))
        if found is None:
            self._put(key, entry)
            if calibrator.learnt == 0:  # tickets must find the recipe that made them
                self._learnt[calibrator_key] = forecast.stream
        else:
            fence.fates[EARLY_JOINED] += 1
            self._resolve(key, forecast.key, forecast.event_id, entry, found.y, found.resolved_ts)

    def _outcome(self, outcome: Outcome) -> None:
        fence = self.fence
        self._advance(outcome.ts)
        key = keys.LEDGER + outcome.event_id.encode()
        found = self._entry(key)
        if found is None:
            fence.fates[EARLY] += 1
            self._expiry.push(self._policies.early_ttl_ms, fence.applied, outcome.event_id)
            self._put(key, ledger.early(fence.applied, outcome.y, outcome.ts))
        elif found.status == ledger.ISSUED:
            fence.fates[RESOLVED] += 1
            self._resolve(key, outcome.key, outcome.event_id, found, outcome.y, outcome.ts)
        elif found.y == outcome.y:
            fence.fates[OUTCOME_DUPLICATE] += 1
        else:
            fence.fates[OUTCOME_CONFLICTING] += 1

    def _resolve(self, key: bytes, record_key: bytes | None, event_id: str, entry: Entry, y: float, ts: int) -> None:
        """Redeem the ticket once: the calibrator learns, the scores count, the row remembers."""
        effects = self._effects
        stream = entry.stream
        calibrator_key = keys.calibrator(stream, entry.config)
        served = self._serving(calibrator_key, stream, None)
        served.late += served.calibrator.learnt - entry.version
        served.calibrator.update(entry.ticket, y)
        self._learnt[calibrator_key] = stream
        self._stream_scores(stream).observe(entry.raw, entry.p, y)
        self._scored.add(stream)
        entry = entry._replace(status=ledger.RESOLVED, touched=self.fence.applied, resolved_ts=ts, y=y)
        self._put(key, entry)
        effects.delays.append(ts - entry.issued_ts)
        effects.outputs.append(_resolved(record_key, event_id, entry))

    def _again(self, event: Event) -> None:
        """Answer a redelivered event from the ledger; its state changes were applied."""
        outputs = self._effects.outputs
        if isinstance(event, Rejected):
            outputs.append(event)
            return
        found = self._entry(keys.LEDGER + event.event_id.encode())
        if found is None or found.status == ledger.EARLY:
            return
        if isinstance(event, Forecast):
            outputs.append(_calibrated(event.key, event.event_id, found))
        if found.status == ledger.RESOLVED:
            outputs.append(_resolved(event.key, event.event_id, found))

    def _advance(self, ts: int) -> None:
        """Move stream time forward and let go of rows that fell due."""
        fence = self.fence
        if ts > fence.stream_time:  # noqa: PLR1730 - max() costs three times as much, on every event
            fence.stream_time = ts
        expiry = self._expiry
        for _ in range(SWEEP):
            queue = expiry.due()
            if queue is None:
                return
            _, born, event_id = expiry.first(queue)
            key = keys.LEDGER + event_id.encode()
            entry = self._entry(key)
            # A row that was entered again later (its forecast came after its outcome) leaves with its later entry.
            if entry is not None and entry.born == born:
                if fence.applied - entry.touched <= self._batch_limit:
                    return
                if entry.status == ledger.ISSUED:
                    fence.fates[EXPIRED_FORECAST] += 1
                elif entry.status == ledger.EARLY:
                    fence.fates[EXPIRED_OUTCOME] += 1
                self._put(key, None)
            expiry.pop(queue)

    def _entry(self, key: bytes) -> Entry | None:
        try:
            return self._entries[key]
        except KeyError:
            row = self._get(key)
            entry = self._entries[key] = None if row is None else ledger.decode(row)
            return entry

    def _put(self, key: bytes, entry: Entry | None) -> None:
        self._entries[key] = self._changed[key] = entry

    def _serving(self, key: bytes, stream: str, recipe: str | None) -> Served:
        served = self._served.get(key)
        if served is None:
            row = self._get(key)
            if row is not None:
                served = rows.decode_calibrator(row, stream)
            elif recipe is not None:
                served = Served.fresh(recipe, stream)
            else:
                raise LookupError(f"stream {stream!r} has tickets of a calibrator that has no row")
            self._served[key] = served
        return served

    def _stream_scores(self, stream: str) -> Scores:
        scores = self._scores.get(stream)
        if scores is None:
            row = self._get(keys.scores(stream))
            scores = Scores() if row is None else rows.decode_scores(row)
            self._scores[stream] = scores
        return scores

    def _collect(self) -> None:
        """Turn what changed into rows."""
        effects = self._effects
        changes = effects.rows
        for key, entry in self._changed.items():
            changes[key] = None if entry is None else entry.encode()
        changes.update(self._expiry.changes())
        for key, stream in self._learnt.items():
            effects.calibrators[stream] = changes[key] = rows.encode_calibrator(self._served[key])
        for stream in self._scored:
            effects.scores[stream] = changes[keys.scores(stream)] = rows.encode_scores(self._scores[stream])
        changes[keys.FENCE] = self.fence.encode()
        if len(self._served) > CACHED:
            self._served.clear()
        if len(self._scores) > CACHED:
            self._scores.clear()


def _calibrated(key: bytes | None, event_id: str, entry: Entry) -> Calibrated:
    return Calibrated(
        key,
        event_id,
        entry.stream,
        entry.raw,
        entry.p,
        entry.expected,
        entry.calibrator,
        entry.config,
        entry.version,
        entry.issued_ts,
    )


def _resolved(key: bytes | None, event_id: str, entry: Entry) -> Resolved:
    return Resolved(
        key,
        event_id,
        entry.stream,
        entry.raw,
        entry.p,
        entry.y,
        entry.calibrator,
        entry.version,
        entry.issued_ts,
        entry.resolved_ts,
    )
