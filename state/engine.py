"""The engine: a deterministic fold of events over the rows of one partition.

Both drivers run it, the live agents and replay, and both must end in the same bytes. So it reads no clock and no
environment, draws its randomness from the event id, and never lets the size of a batch show in what it does: the
same events in the same order give the same rows, however they were cut into batches.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar, cast

from state import calibrators, kinds, ledger
from state.banding import marks
from state.calibrators.answer import new
from state.coverage import Coverage
from state.entities import Entities, place
from state.events import Calibrated, Carried, Event, Forecast, Outcome, Output, Passed, Rejected, Resolved
from state.expiry import Expiry
from state.fence import (
    EARLY,
    EARLY_JOINED,
    EARLY_UNUSABLE,
    EARLY_WAITING,
    EXPIRED_FORECAST,
    EXPIRED_OUTCOME,
    EXPIRY,
    FATES,
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
    Fence,
    Queue,
)
from state.forecasts import KINDS, PROBABILITY, QUANTILES, admits
from state.kind import Kind, kind_of
from state.marking import UNMARKED, Marker
from state.policy import DEFAULT_TTL_MS, Policies, Policy, scored_of
from state.quotas import Quotas
from state.scoring.ages import Ages
from state.scoring.distribution import Distribution
from state.scoring.history import History
from state.scoring.pair_scores import (
    AnyComparison,
    AnySegmentScores,
    compare,
    observe_segments,
    of_challenger,
    of_segment,
    revise_segments,
)
from state.scoring.segment_scores import observe, revise
from state.scoring.vector_history import VectorHistory
from state.scoring.warm_up import WarmUp
from state.segments import Dictionary
from state.served import Served
from state.witnesses import SLACK, Entry, Witnesses

#: Most events a batch may hold, and batches of a partition that may be on their way at a time: the outputs of one
#: are acknowledged while the next is folded.
BATCH_LIMIT: Final = 4000
OUTSTANDING: Final = 2
#: A row that changed within so many applied events is not expired yet. Part of the state's meaning, so not a setting.
HELD: Final = OUTSTANDING * BATCH_LIMIT
#: Most rows the sweep removes before an event. An event adds at most one queue entry, so two catch up.
SWEEP: Final = 2
#: Most forecasts that mature before an event. More fall due at once only where stream time jumps. The bound keeps what
#: one event changes within one batch of the changelog.
RIPE: Final = 64
#: Streams whose working copies are kept; beyond this those that were used least recently are read again from the table.
CACHED = 8192
#: The same of scores of segments.
CACHED_SEGMENTS = 4 * CACHED

#: What a row of the ledger and one of a stream are taken to have before the first checkpoint, bytes.
LEDGER_BYTES, STREAM_BYTES = 200, 4000
#: How many rows of its stream one event may change.
STREAM_ROWS: Final = 8

_LEDGER: Final = kinds.LEDGER.letter
_FENCE: Final = kinds.FENCE.key()

#: Reads an event's features from its ticket.
Features = Callable[[bytes], Sequence[float]]
#: What a row of a stream holds.
Value = TypeVar("Value")
#: Reads a stored row by key; None where there is none.
Get = Callable[[bytes], bytes | None]


@dataclass(slots=True)
class Changes:
    """Rows that changed since the last checkpoint.

    Attributes
    ----------
    rows
        Rows to write, by key; None deletes. They are written all at once, or not at all.
    of_streams
        Those among ``rows`` that belong to a stream and say something of it.
    """

    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    of_streams: dict[bytes, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Effects(Changes):
    """What a batch did; the rows it changed are here only if `Partition.fold` made a checkpoint of it.

    Attributes
    ----------
    outputs
        Records to produce, in order. Of a whole batch: parts return their own.
    fates
        How many records and rows met each of `state.fence.FATES` in this batch.
    delays
        Milliseconds from forecast to outcome, for each event resolved in this batch by an outcome.
    rejected
        Topic and reason of every dead letter.
    withheld
        How many of these say only where their record stands.
    refused
        How many records of each stream its quota refused; without a stream those of unknown events.
    overdue
        How many events of each stream got their first outcome after silence had labelled them.
    belated
        How many forecasts were as old as their stream's ttl when they came: the row of an earlier copy is gone.
    untaught
        How many events of each stream taught nothing, because their entity had taught.
    passed
        How many records of each topic were passed over.
    answered, resolved
        How many forecasts of each stream were answered, duplicates included, and how many of its events resolved.
    lapsed
        When the forecasts and outcomes that expired in this batch without a partner were due, and the forecasts that
        silence labelled: stream time, ms.
    """

    outputs: list[Output] = field(default_factory=list)
    fates: list[int] = field(default_factory=lambda: [0] * len(FATES))
    delays: list[int] = field(default_factory=list)
    lapsed: list[int] = field(default_factory=list)
    rejected: list[tuple[int, str]] = field(default_factory=list)
    withheld: int = 0
    refused: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    overdue: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    belated: int = 0
    untaught: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    passed: list[int] = field(default_factory=lambda: [0, 0])
    answered: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    resolved: dict[str, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(slots=True, eq=False)
class _Learner:
    """The calibrator of one stream and configuration, whatever its part is: it serves, has served, or challenges."""

    stream: str
    config: str
    key: bytes
    served: Served
    #: The same calibrator before its first outcome, once it is asked for.
    blank: Any = None


@dataclass(slots=True, eq=False)
class _Challenger:
    """A calibrator that is scored beside one champion, and not served."""

    learner: _Learner
    champion: str
    config: bytes
    key: bytes
    comparison: AnyComparison


@dataclass(slots=True, eq=False)
class _Segments:
    """The scores of a stream's segments under one `Policy.scored`, by slot, with the keys of their rows."""

    scores: dict[int, AnySegmentScores]
    keys: dict[int, bytes]


@dataclass(slots=True, eq=False)
class _Service:
    """What serves a stream under one configuration, with everything the hot path asks of it."""

    stream: str
    kind: int
    calibrator: str
    config: str
    #: Role and duration of the queue an answered forecast enters, how long its row is kept, and the row's status.
    role: int
    due_ms: int
    ttl_ms: int
    status: int
    names: bytes
    key: bytes
    learner: _Learner
    served: Served
    features: Features | None
    history: History | None
    #: Keys of its scores, of its closed windows, and of the rows that count its forecasts and the ages of outcomes.
    scores_key: bytes
    windows_key: bytes
    ages_key: bytes
    coverage_key: bytes
    distribution_key: bytes
    #: What challenges it now, and by configuration whatever has since its tickets were issued.
    shadows: tuple[_Challenger, ...]
    challengers: dict[str, _Challenger]
    #: Slots of the segments that the stream has now; None without segments.
    layout: bytes
    dictionary: Dictionary | None
    #: Which forecasts have a label; None where that does not matter. While most have none, nothing that was learnt is
    #: served.
    coverage: Coverage | None
    #: What gives forecasts their bands and points; None where the stream has neither.
    marker: Marker | None = None


class Partition:
    """The working copy of one partition's state.

    Parameters
    ----------
    policies
        What each stream is configured to do.
    get
        Reads a stored row by key. It must see every row of earlier checkpoints.
    held
        Applied events for which a changed row is kept in any case; only tests make it small.

    Notes
    -----
    What changed is kept in the working copy until `checkpoint` makes rows of it. Events that were folded since the last
    checkpoint are to be folded again after a crash, in the same order.
    """

    def __init__(self, policies: Policies, get: Get, held: int = HELD) -> None:
        self._policies = policies
        self._get = get
        self._held = held
        default = [] if policies.default is None else [policies.default]
        largest = max([policy.row_bytes for policy in (*default, *dict(policies.patterns).values())], default=0)
        #: What a row of the ledger and one of a stream had on average at the last checkpoint, bytes.
        self._ledger_bytes, self._stream_bytes = LEDGER_BYTES, max(STREAM_BYTES, largest // STREAM_ROWS)
        self.reset()

    def reset(self) -> None:
        """Forget everything since the last checkpoint."""
        row = self._get(_FENCE)
        self.fence = Fence() if row is None else Fence.decode(row)
        self._expiry = Expiry(self._get, self.fence)
        self._witnesses = Witnesses(self._get(kinds.WITNESSES.key()))
        self._quotas = Quotas(self._policies.quota_of, self._get) if self._policies.limited else None
        self._entities = Entities(self._get)
        #: What serves a stream now, by its name; and what served it when a ticket was issued, by the ticket's names.
        self._active: dict[str, _Service] = {}
        self._by_ticket: dict[bytes, _Service] = {}
        #: By the row's key. The one live copy of each: a promoted challenger still learns from tickets it had before.
        self._learners: dict[bytes, _Learner] = {}
        #: By stream and key, what other rows of streams hold.
        self._values: dict[str, dict[bytes, Any]] = {}
        self._segments: dict[tuple[str, bytes], _Segments] = {}
        self._held_segments = 0
        #: Streams with working copies, those that were used least recently first.
        self._used: dict[str, None] = {}
        self._clean()
        self.begin()

    def _clean(self) -> None:
        """Note that everything is in rows."""
        #: Payloads of the ledger rows that changed, by key.
        self._changed: dict[bytes, bytes | None] = {}
        #: What the rows of streams hold that changed, by key.
        self._touched: dict[bytes, Any] = {}

    def begin(self) -> None:
        """Begin a batch, whose events `apply` takes in one part or in several."""
        self._effects = Effects()
        self._outputs: list[Output] = []
        self._fates = self.fence.fates.copy()
        #: Payloads of the ledger rows that were read, by key.
        self._read: dict[bytes, bytes] = {}

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

    def tick(self, now: int) -> list[Output]:
        """Move stream time on to a clock's time, ms, and return what matures by then; a batch of its own.

        At most `RIPE` forecasts mature; the rest with the next tick or the next records. A tick that does not move
        stream time changes nothing.
        """
        self._outputs = []
        fence = self.fence
        if now <= fence.stream_time:
            return self._outputs
        fence.stream_time = now
        self._witnesses.settle(fence, self._expiry)
        for ripe, queue in enumerate(self._expiry.due()):
            if queue.role != MATURITY or ripe == RIPE:
                break
            self._mature(queue)
        return self._outputs

    @property
    def ripens(self) -> float:
        """The first forecast that waits matures at this stream time, ms; infinite if none does."""
        return self._expiry.ripens

    def end(self) -> Effects:
        """Return the effects of the batch, but for the outputs and the rows."""
        effects = self._effects
        effects.fates = [after - was for after, was in zip(self.fence.fates, self._fates, strict=True)]
        return effects

    def checkpoint(self, changes: Changes | None = None) -> Changes:
        """Return the rows that changed since the last checkpoint, in ``changes`` if that is given."""
        made = Changes() if changes is None else changes
        self._collect(made)
        streams = {kind_of(key).stream(key) for key in self._touched}
        streams.update([stream for stream in self._active if stream not in self._used])  # forecasts of numbers alone
        for stream in streams:
            self._used.pop(stream, None)
            self._used[stream] = None
        self._clean()
        while len(self._used) > CACHED or (self._used and self._held_segments > CACHED_SEGMENTS):
            self._forget_some()
        return made

    def _forget_some(self) -> None:
        """Forget the working copies of an eighth of the streams, those that were used least recently."""
        gone = set(islice(self._used, len(self._used) // 8 + 1))
        for stream in gone:
            del self._used[stream]
            self._active.pop(stream, None)
            self._values.pop(stream, None)
        for names in [names for names, each in self._by_ticket.items() if each.stream in gone]:
            del self._by_ticket[names]
        for key in [key for key, each in self._learners.items() if each.stream in gone]:
            del self._learners[key]
        for named in [named for named in self._segments if named[0] in gone]:
            self._held_segments -= len(self._segments.pop(named).scores)

    @property
    def weight(self) -> int:
        """About how many bytes of rows have changed since the last checkpoint."""
        return len(self._changed) * self._ledger_bytes + len(self._touched) * self._stream_bytes

    @property
    def event_weight(self) -> int:
        """About how many bytes of rows one event may change."""
        return self._ledger_bytes + STREAM_ROWS * self._stream_bytes

    def _forecast(self, forecast: Forecast) -> None:
        _, record_key, event_id, stream, raw, x, ts, _, values, carried, entity = forecast
        fence = self.fence
        self._advance(ts)
        name = event_id.encode()
        key = _LEDGER + name
        found = self._payload(key)
        known = found is not None and found[0] != ledger.EARLY
        if self._quotas is not None and (over := self._quotas.refused(FORECASTS, stream, ts, not known)):
            self._refuse(self._with_forecast(_refused(forecast, FORECASTS, over), forecast), stream, ts)
            return
        if found is not None and known:
            self._forecast_again(forecast, found)
            return
        service = self._active.get(stream) or self._open(stream)
        calibrator = service.served.calibrator
        kind = service.kind
        groups = () if service.dictionary is None else self._groups(service, service.dictionary, values)
        p, draw, ticket = calibrator.predict(raw, x, name, groups)
        coverage = service.coverage
        if coverage is not None and coverage.uncovered:
            p, draw, ticket = self._unlearnt(service.learner, ticket, raw, x, name, groups)
        warm = not service.served.warmed_ms and self._warms(service.learner, coverage, raw, p, ts)
        version = calibrator.learnt
        status, names, parts = service.status, service.names, b""
        if service.role == MATURITY and record_key != name:
            kind, parts = kind | ledger.KEYED, ledger.keyed(record_key)
        if service.dictionary is not None:
            kind, parts = kind | ledger.GROUPED, parts + ledger.grouped(service.layout, groups)
        marker, now = service.marker, fence.stream_time
        marked, band, points = UNMARKED if marker is None else marker.issue(raw, p, service.layout, groups, now)
        kind, parts = kind | ledger.BANDED if marked else kind, parts + marked
        if service.shadows:
            kind |= ledger.SHADOWED
            parts += ledger.shadowed(self._ask(service, raw, x, ts, name, groups))
        payload = ledger.issued(
            fence.applied, ts, raw, p, draw, version, names, ticket, kind, status, warm, entity, parts
        )
        if coverage is not None:
            coverage.issue(fence.applied)
            self._touched[service.coverage_key] = coverage
        self._enter(service.role, service.due_ms, event_id, ts)
        fence.fates[ISSUED] += 1
        self._note(service, raw)
        made, config, applied = service.calibrator, service.config, fence.applied
        served = record_key, event_id, stream, raw, p, draw, made, config, version, ts, applied, carried, band, points
        self._outputs.append(new(Calibrated, served))
        self._effects.answered[stream] += 1
        if found is None:
            self._changed[key] = payload
            self._effects.belated += fence.stream_time - ts >= service.ttl_ms
            if version == 0:  # tickets must find the recipe that made them
                self._touched[service.key] = service.served
        else:
            self._join(forecast, key, payload, service, ledger.parse(found))

    def _warms(
        self,
        learner: _Learner,
        coverage: Coverage | None,
        raw: Any,  # noqa: ANN401 - of the stream's kind
        p: Any,  # noqa: ANN401 - of the stream's kind
        ts: int,
    ) -> bool:
        """Whether a forecast belongs to the warm-up of a calibrator that is in it, see `state.served.Served.warms`."""
        if learner.served.warms(raw, p, ts, coverage is None or coverage.covered):
            return True
        self._touched[learner.key] = learner.served
        return False

    def _enter(self, role: int, ttl_ms: int, event_id: str, ts: int) -> None:
        """Put a new row into the queue of a role; it waits until stream time has come near its record's."""
        fence = self.fence
        if ts > fence.stream_time:
            self._witnesses.hold(Entry(role, ttl_ms, fence.applied, event_id))
        else:
            self._expiry.push(role, ttl_ms, fence.applied, event_id)

    def _forecast_again(self, forecast: Forecast, found: bytes) -> None:
        """Answer a forecast of an event that was answered; one that says something else is a dead letter."""
        fates = self.fence.fates
        if not ledger.repeats(found, forecast.stream, forecast.raw):
            fates[FORECAST_DEAD] += 1
            letter = self._with_forecast(_conflicting(forecast), forecast)
            self._reject(letter, forecast.stream, forecast.ts)
            return
        fates[FORECAST_DUPLICATE] += 1
        answer = _calibrated(forecast.key, forecast.event_id, found, forecast.carried)
        self._outputs.append(answer)
        self._effects.answered[answer.stream] += 1

    def _groups(self, service: _Service, dictionary: Dictionary, values: tuple[str, ...]) -> tuple[int, ...]:
        """Return the slots of an event's segments, and count its forecast in each."""
        taken = dictionary.taken
        groups = dictionary.groups(values)
        if dictionary.taken > taken:
            self._touched[kinds.NAMES.key(service.stream, service.layout)] = dictionary
        for scores in self._scores_of(service.stream, service.layout, groups, service.kind, service.config):
            scores.issued += 1
        return groups

    def _scores_of(self, stream: str, layout: bytes, groups: tuple[int, ...], kind: int, config: str) -> list[Any]:
        """Return the scores of slots, which are about to change; of the kind of forecast that has the layout."""
        scored = layout if kind == PROBABILITY else scored_of(layout, kind, config)
        place = stream, scored
        segments = self._segments.get(place)
        if segments is None:
            segments = self._segments[place] = _Segments({}, {})
        found = []
        for slot in groups:
            scores = segments.scores.get(slot)
            if scores is None:
                key = segments.keys[slot] = kinds.SEGMENT.key(stream, scored, slot)
                row = self._get(key)
                scores = segments.scores[slot] = of_segment(kind) if row is None else kinds.SEGMENT.decode(row)
                self._held_segments += 1
            self._touched[segments.keys[slot]] = scores
            found.append(scores)
        return found

    def _segments_in(self, stream: str, config: str, payload: bytes) -> list[Any]:
        """Return the scores of the segments of a row, which are about to change."""
        if not payload[1] & ledger.GROUPED:
            return []
        return self._scores_of(stream, *ledger.groups(payload), payload[1] & ~ledger.FLAGS, config)

    def _ask(
        self,
        service: _Service,
        raw: Any,  # noqa: ANN401 - as predict takes it
        x: Any,  # noqa: ANN401 - as predict takes it
        ts: int,
        name: bytes,
        groups: tuple[int, ...],
    ) -> bytes:
        """Ask every challenger, and return their tickets for the ledger."""
        block = b""
        coverage = service.coverage
        for challenger in service.shadows:
            learner = challenger.learner
            calibrator = learner.served.calibrator
            p, draw, ticket = calibrator.predict(raw, x, name, groups)
            if coverage is not None and coverage.uncovered:
                p, draw, ticket = self._unlearnt(learner, ticket, raw, x, name, groups)
            warm = not learner.served.warmed_ms and self._warms(learner, coverage, raw, p, ts)
            version = calibrator.learnt
            block += ledger.shadow(challenger.config, version, p, draw, ticket, warm)
            if version == 0:
                self._touched[learner.key] = learner.served
        return block

    def _unlearnt(
        self,
        learner: _Learner,
        ticket: bytes,
        raw: Any,  # noqa: ANN401 - as predict takes it
        x: Any,  # noqa: ANN401 - as predict takes it
        name: bytes,
        groups: tuple[int, ...],
    ) -> tuple[Any, Any, bytes]:
        """Return what a calibrator answers before its first outcome, and the ticket by which it learns all the same."""
        if learner.blank is None:
            learner.blank = Served.fresh(learner.served.recipe, learner.stream, self._policies.coin).calibrator
        p, draw, _ = learner.blank.predict(raw, x, name, groups)
        return p, draw, learner.served.calibrator.unserved(ticket)

    def _join(self, forecast: Forecast, key: bytes, issued: bytes, service: _Service, parked: ledger.Entry) -> None:
        """Give a forecast the outcome that was parked for it, if that is one it can have."""
        y, ts = parked.y, parked.resolved_ts
        if admits(forecast.raw, y):
            label = y, ts, parked.as_of, parked.number
            if service.status == ledger.IMMATURE:
                self.fence.fates[EARLY_WAITING] += 1
                self._age(service, self._segments_in(service.stream, service.config, issued), issued, ts, y)
                self._changed[key] = ledger.labelled(issued, ledger.WAITING, self.fence.applied, *label)
                self._touched[service.key] = service.served
            else:
                self.fence.fates[EARLY_JOINED] += 1
                self._resolve(key, forecast.key, forecast.event_id, issued, *label, new_outcome=True)
            return
        self.fence.fates[EARLY_UNUSABLE] += 1
        self._changed[key] = issued
        self._touched[service.key] = service.served
        self._reject(_parked(forecast, y), forecast.stream, forecast.ts)

    def _reject(self, rejected: Rejected, stream: str, ts: int) -> None:
        """Write a dead letter; its stream is empty where none is known."""
        topic, reason = rejected.topic, rejected.reason
        self._effects.rejected.append((topic, reason))
        if self._quotas is not None and self._quotas.withheld(topic, stream, ts, reason):
            rejected = rejected._replace(withheld=True)
            self._effects.withheld += 1
        self._outputs.append(rejected)

    def _with_forecast(self, letter: Rejected, event: Forecast | Outcome) -> Rejected:
        """Return a dead letter with its forecast, if any stream has its raw score answered."""
        if self._policies.answering and isinstance(event, Forecast):
            return letter._replace(forecast=event)
        return letter

    def _refuse(self, refused: Rejected, stream: str, ts: int) -> None:
        """Leave out a record that is beyond its stream's quota."""
        self.fence.fates[FORECAST_DEAD if refused.topic == FORECASTS else OUTCOME_DEAD] += 1
        self._effects.refused[stream] += 1
        self._reject(refused, stream, ts)

    def _outcome(self, outcome: Outcome) -> None:
        _, record_key, event_id, y, ts, _, number = outcome
        fence = self.fence
        self._advance(ts)
        key = _LEDGER + event_id.encode()
        found = self._payload(key)
        if self._quotas is not None and self._over(self._quotas, outcome, found):
            return
        if found is None:
            fence.fates[EARLY] += 1
            self._enter(EXPIRY, self._policies.early_ttl_ms, event_id, ts)
            self._changed[key] = ledger.early(fence.applied, y, ts, number)
            return
        status = found[0]
        if status != ledger.EARLY and not _admits(found, y):
            fence.fates[OUTCOME_DEAD] += 1
            self._reject(_unusable(outcome), ledger.parse(found).stream, ts)
        elif status == ledger.ISSUED:
            fence.fates[RESOLVED] += 1
            self._resolve(key, record_key, event_id, found, y, ts, ts, number, new_outcome=True)
        elif status == ledger.IMMATURE:
            fence.fates[WAITING] += 1
            service = self._served(found)
            self._age(service, self._segments_in(service.stream, service.config, found), found, ts, y)
            self._changed[key] = ledger.labelled(found, ledger.WAITING, fence.applied, y, ts, ts, number)
        else:
            self._said_again(outcome, key, found)

    def _over(self, quotas: Quotas, outcome: Outcome, found: bytes | None) -> bool:
        """Refuse an outcome that is beyond a quota.

        The first outcome of a forecast never is. There are no more of them than forecasts, and a label that is lost is
        lost for good.
        """
        ts = outcome.ts
        early = found is None or found[0] == ledger.EARLY
        if found is not None and not early and (found[0] in (ledger.ISSUED, ledger.IMMATURE) or ledger.unsaid(found)):
            quotas.move(OUTCOMES, ts)
            return False
        stream = "" if found is None or early else ledger.parse(found).stream
        over = quotas.refused(OUTCOMES, stream, ts, found is None)
        if over:
            self._refuse(_refused(outcome, OUTCOMES, over), stream, ts)
        return bool(over)

    def _said_again(self, outcome: Outcome, key: bytes, found: bytes) -> None:
        """Take a further outcome of an event that has a label: it confirms the label, replaces it, or is too old."""
        _, record_key, event_id, y, ts, _, number = outcome
        fates, status, label = self.fence.fates, found[0], ledger.label(found)
        newer = ledger.newer(found, ts, number)
        if status == ledger.RESOLVED and ledger.unsaid(found):  # the first outcome of an event that silence labelled
            service = self._served(found)
            self._effects.overdue[service.stream] += 1
            self._age(service, self._segments_in(service.stream, service.config, found), found, ts, y)
        if y == label:
            fates[OUTCOME_DUPLICATE] += 1
            if newer:
                self._changed[key] = ledger.confirmed(found, ts, number)
        elif not newer or ledger.revisions(found) >= ledger.MOST_REVISIONS:
            fates[OUTCOME_STALE] += 1
        elif status == ledger.EARLY:
            fates[OUTCOME_REVISED] += 1
            self._changed[key] = ledger.early(ledger.born(found), y, ts, number)
        elif status == ledger.WAITING:
            fates[OUTCOME_REVISED] += 1
            self._changed[key] = ledger.labelled(found, status, self.fence.applied, y, ts, ts, number)
        else:
            fates[OUTCOME_REVISED] += 1
            self._revise(key, record_key, event_id, found, ledger.revised(found, self.fence.applied, ts, y, number))

    def _age(self, service: _Service, segments: Sequence[Any], issued: bytes, ts: int, y: float) -> None:
        """Note that the forecast of a row has its first outcome, and how old it was."""
        ages = self._touched[service.ages_key] = self._value(service.stream, kinds.AGES, service.ages_key, Ages)
        issued_ts = ledger.issued_ts(issued)
        age_ms = ts - issued_ts if ts > issued_ts else 0
        at = 0 if ledger.entity(issued) else ts  # whose labels belong together is known
        ages.observe(age_ms, int(y) if service.kind != QUANTILES else 0, at)
        for scores in segments:
            scores.known += 1
            scores.age_ms += age_ms
        coverage = service.coverage
        if coverage is not None:
            coverage.label(ledger.born(issued))
            self._touched[service.coverage_key] = coverage

    def _value(self, stream: str, kind: Kind[Value], key: bytes, new: Callable[[], Value]) -> Value:
        """Return the one live copy of what a row of a stream holds; what is new without a row."""
        values = self._values.get(stream)
        if values is None:
            values = self._values[stream] = {}
        value: Value | None = values.get(key)
        if value is None:
            row = self._get(key)
            value = values[key] = new() if row is None else kind.read(key, row, self._get)
        return value

    def _touch(self, key: bytes, value: object) -> None:
        """Note that what a row of a stream holds is about to change."""
        self._touched[key] = value

    def _label(self, service: _Service, row: bytes, at: int, known: int, ones: float) -> None:
        """Count the label of a forecast that has a band, see `state.marking.Marker.resolve`."""
        marker = service.marker or Marker(service.stream, None, self._value, self._touch)
        marker.resolve(row, at, known, int(ones), self.fence.stream_time)

    def _note(self, service: _Service, raw: Any) -> None:  # noqa: ANN401 - of the service's kind
        """Count a raw forecast in the distribution of its stream: of classes the highest probability, no numbers."""
        if service.kind == QUANTILES:
            return
        key = service.distribution_key
        found = self._touched[key] = self._value(service.stream, kinds.DISTRIBUTION, key, Distribution)
        found.observe(raw if service.kind == PROBABILITY else max(raw), self.fence.stream_time)

    def _served(self, payload: bytes) -> _Service:
        """Return what answered the forecast of a row."""
        names = ledger.who(payload)
        return self._by_ticket.get(names) or self._reopen(payload, names)

    def _resolve(
        self,
        key: bytes,
        record_key: bytes | None,
        event_id: str,
        issued: bytes,
        y: float,
        ts: int,
        as_of: int,
        number: int,
        *,
        new_outcome: bool = False,
    ) -> None:
        """Redeem a ticket once: the calibrator learns, the scores count, the row remembers.

        ``as_of`` and ``number`` say how the label compares with a later outcome, see `state.ledger.Entry`. The age of a
        new outcome counts; that of one which waited has counted already.
        """
        kind, issued_ts, raw, p, draw, version, window, entity, names, end = ledger.answered(issued)
        service = self._by_ticket.get(names) or self._reopen(issued, names)
        served = service.served
        segments = self._segments_in(service.stream, service.config, issued) if kind & ledger.GROUPED else []
        if new_outcome:
            self._age(service, segments, issued, ts, y)
        implied = as_of == ledger.UNSAID
        ticket = issued[end:]
        if kind == ledger.BANDED:  # nothing stands before the marks, nor between them and the ticket
            ticket = issued[end + 1 + issued[end] :]
        elif kind != PROBABILITY:
            raw, p, draw, ticket = ledger.answer(issued)
        if entity and not self._teaches(service, entity, raw):
            window = ledger.UNTAUGHT
        elif kind & ledger.SHADOWED:
            self._challenge(service, issued, p, y, window, 0 if implied else ts)
        if window == ledger.UNTAUGHT:
            self._effects.untaught[service.stream] += 1
        elif window == ledger.NO_WINDOW:
            self._warm_up(service, p).observe(raw, y)
        else:
            if segments:
                born, now = ledger.born(issued), self.fence.applied
                segments = [each for each in segments if each.warm_up.admits(born, now)]
            window = self._score(service, segments, raw, p, draw, y, ticket, event_id)
        if kind & ledger.BANDED and window != ledger.UNTAUGHT:
            self._label(service, issued, end if kind == ledger.BANDED else ledger.marks_at(issued), 1, y)
        self._changed[key] = ledger.resolved(issued, self.fence.applied, y, ts, as_of, number, window)
        if window != ledger.UNTAUGHT:
            served.late += served.calibrator.learnt - version
            served.calibrator.learn(ticket, y, 0 if implied else ts)
            self._touched[service.key] = service.served
        effects = self._effects
        if not implied:
            effects.delays.append(ts - issued_ts)
        effects.resolved[service.stream] += 1
        made = service.calibrator
        joined = record_key, event_id, service.stream, raw, p, draw, y, made, version, issued_ts, ts, 0, implied
        self._outputs.append(new(Resolved, joined))

    def _teaches(self, service: _Service, entity: int, raw: Any) -> bool:  # noqa: ANN401 - of the service's kind
        """Whether an outcome of an entity teaches, and counts: see `state.entities`."""
        policy = self._policies.of(service.stream)
        memory_ms = DEFAULT_TTL_MS if policy is None else policy.ttl_ms
        z, now = place(raw, service.kind), self.fence.stream_time
        return self._entities.teaches(service.stream, service.config, entity, z, now, memory_ms)

    def _warm_up(self, service: _Service, p: Any) -> WarmUp:  # noqa: ANN401 - of the service's kind
        """Return what became of the warm-up of a service, which is about to change."""
        history = service.history
        if history is None:
            return self._of_vectors(service, p).warm_up
        self._touched[service.scores_key] = history
        return history.warm_up

    def _score(
        self,
        service: _Service,
        segments: Sequence[Any],
        raw: Any,  # noqa: ANN401 - of the service's kind
        p: Any,  # noqa: ANN401 - of the service's kind
        draw: Any,  # noqa: ANN401 - of the service's kind
        y: float,
        ticket: bytes,
        event_id: str,
    ) -> int:
        """Count a resolved event in the scores of its stream and of segments; return its window."""
        history = service.history
        if history is None:
            vectors = self._of_vectors(service, p)
            window = vectors.windows
            vectors.observe(raw, p, y, event_id.encode())
            if segments:
                observe_segments(segments, raw, p, y, window)
            return window
        window = history.windows
        if service.features:
            history.bias.observe(service.features(ticket), raw, p, y)
        if history.observe(raw, p, y, draw):
            self._touched[service.windows_key] = history
        self._touched[service.scores_key] = history
        if segments:
            observe(segments, raw, p, y, window)
        return window

    def _revise(self, key: bytes, record_key: bytes | None, event_id: str, found: bytes, revised: bytes) -> None:
        """Replace a label that was learnt, wherever it counts, and say so."""
        service = self._served(found)
        history = service.history
        was, y = ledger.label(found), ledger.label(revised)
        self._changed[key] = revised
        entry = ledger.parse(revised)
        raw, p, draw, ticket = ledger.answer(revised)
        ts, resolved_ts, n = entry.issued_ts, entry.resolved_ts, entry.revisions
        made, version = entry.calibrator, entry.version
        said = record_key, event_id, entry.stream, raw, p, draw, y, made, version, ts, resolved_ts, n, False
        self._outputs.append(new(Resolved, said))
        if entry.window == ledger.UNTAUGHT:
            return
        if entry.marks:
            self._label(service, found, ledger.marks_at(found), 0, y - was)
        service.served.calibrator.revise(ticket, was, y)
        self._touched[service.key] = service.served
        for config, _, forecast, drawn, own, warm in entry.shadows:
            challenger = service.challengers.get(config) or self._challenger(service, config, None)
            challenger.learner.served.calibrator.revise(own, was, y)
            self._touched[challenger.learner.key] = challenger.learner.served
            if not warm and entry.window != ledger.NO_WINDOW:
                compare(challenger.comparison, p, forecast, was, drawn, -1)
                compare(challenger.comparison, p, forecast, y, drawn)
                self._touched[challenger.key] = challenger.comparison
        if entry.window == ledger.NO_WINDOW:
            warm_up = self._warm_up(service, p)
            warm_up.observe(raw, was, -1)
            warm_up.observe(raw, y)
        elif history is None:
            vectors = self._of_vectors(service, p)
            vectors.revise(cast("Any", raw), cast("Any", p), was, y, event_id.encode(), entry.window)
            if segments := self._counting(service, found, entry.born):
                revise_segments(segments, cast("Any", raw), cast("Any", p), was, y, entry.window)
        else:
            one, other, third = cast("float", raw), cast("float", p), cast("float", draw)
            if service.features:
                x = service.features(ticket)
                history.bias.observe(x, one, other, was, -1)
                history.bias.observe(x, one, other, y)
            if history.revise(one, other, third, was, y, entry.window):
                self._touched[service.windows_key] = history
            self._touched[service.scores_key] = history
            if segments := self._counting(service, found, entry.born):
                revise(segments, one, other, was, y, entry.window)

    def _counting(self, service: _Service, found: bytes, born: int) -> list[Any]:
        """Return the scores of the segments of a row in which its event has counted; they are about to change."""
        segments = self._segments_in(service.stream, service.config, found)
        return [each for each in segments if each.warm_up.admitted(born)]

    def _challenge(self, service: _Service, issued: bytes, p: Any, y: float, window: int, at: int) -> None:  # noqa: ANN401 - of the service's kind
        """Redeem the challengers' tickets: each learns, and is compared with what was served, but for warm-ups."""
        for config, version, forecast, draw, ticket, warm in ledger.shadows(issued):
            challenger = service.challengers.get(config) or self._challenger(service, config, None)
            learner = challenger.learner
            served = learner.served
            served.late += served.calibrator.learnt - version
            served.calibrator.learn(ticket, y, at)
            self._touched[learner.key] = learner.served
            if not warm and window != ledger.NO_WINDOW:
                compare(challenger.comparison, p, forecast, y, draw)
                self._touched[challenger.key] = challenger.comparison

    def _of_vectors(self, service: _Service, served: Any) -> VectorHistory:  # noqa: ANN401 - of the service's kind
        """Return the scores of a stream of classes or numbers, which are about to change."""
        history = self._value(service.stream, kinds.VECTORS, service.scores_key, lambda: VectorHistory.of(served))
        self._touched[service.scores_key] = history
        return history

    def _advance(self, ts: int) -> None:
        """Move stream time forward, let forecasts mature, and let go of rows that fell due."""
        fence, expiry = self.fence, self._expiry
        if ts > fence.stream_time:
            if ts - fence.stream_time > SLACK or self._witnesses.waiting:
                self._witnesses.follow(ts, fence, expiry)
            else:
                fence.stream_time = ts
        if fence.stream_time < expiry.soonest:
            return
        swept = ripe = 0
        for queue in expiry.due():
            if queue.role == MATURITY:
                self._mature(queue)
                ripe += 1
                if ripe == RIPE:
                    return
            elif self._leaves(queue):
                swept += 1
                if swept == SWEEP:
                    return

    def _mature(self, queue: Queue) -> None:
        """Let the first forecast of a queue mature: it is learnt with the outcome it has, or with what silence says."""
        fence = self.fence
        since, born, event_id = self._expiry.first(queue)
        self._expiry.pop(queue)
        name = event_id.encode()
        key = _LEDGER + name
        payload = self._payload(key)
        if payload is None or ledger.born(payload) != born:
            return
        service = self._served(payload)
        policy = self._policies.of(service.stream)
        ttl_ms = DEFAULT_TTL_MS if policy is None else policy.ttl_ms
        self._expiry.push(MATURED_EXPIRY, max(1, ttl_ms - queue.ttl_ms), fence.applied, event_id)
        status = payload[0]
        silence = None if policy is None else policy.silence
        if status == ledger.WAITING:
            fence.fates[MATURED] += 1
            self._resolve(key, ledger.key_of(payload, name), event_id, payload, *ledger.said(payload))
        elif status != ledger.RESOLVED and silence is not None and _admits(payload, silence):
            fence.fates[IMPLIED] += 1
            due = since + queue.ttl_ms
            self._effects.lapsed.append(due)
            self._resolve(key, ledger.key_of(payload, name), event_id, payload, silence, due, ledger.UNSAID, 0)
        elif status == ledger.IMMATURE:
            self._changed[key] = ledger.ripe(payload, fence.applied)

    def _leaves(self, queue: Queue) -> bool:
        """Remove the row of a queue's first entry, which is due; False if it has to stay for now."""
        fence, expiry = self.fence, self._expiry
        since, named, event_id = expiry.first(queue)
        key = _LEDGER + event_id.encode()
        payload = self._payload(key)
        # A row that was entered again later (its forecast came after its outcome) leaves with its later entry.
        if payload is not None and (queue.role == MATURED_EXPIRY or ledger.born(payload) == named):
            entry = ledger.parse(payload)
            if fence.applied - entry.touched <= self._held:
                return False  # the rows behind it wait with it, those of other queues must not
            longer = 0
            if entry.status == ledger.RESOLVED and queue.role != REVISION:
                policy = self._policies.of(entry.stream)
                longer = 0 if policy is None else policy.kept_ms - policy.ttl_ms
            if longer:
                expiry.pop(queue)
                expiry.push(REVISION, longer, entry.born, event_id)
                return True
            if entry.status in (ledger.ISSUED, ledger.IMMATURE):
                fence.fates[EXPIRED_FORECAST] += 1
                self._effects.lapsed.append(since + queue.ttl_ms)
                key_of_ages = kinds.AGES.key(entry.stream)
                ages = self._touched[key_of_ages] = self._value(entry.stream, kinds.AGES, key_of_ages, Ages)
                ages.expire()
                for scores in self._segments_in(entry.stream, entry.config, payload):
                    scores.expired += 1
            elif entry.status == ledger.EARLY:
                fence.fates[EXPIRED_OUTCOME] += 1
                self._effects.lapsed.append(since + queue.ttl_ms)
            self._changed[key] = None
        expiry.pop(queue)
        return True

    def _payload(self, key: bytes) -> bytes | None:
        if key in self._changed:
            return self._changed[key]
        found = self._read.get(key)
        if found is None:
            row = self._get(key)
            if row is not None:
                found = self._read[key] = ledger.unsealed(row)
        return found

    def _open(self, stream: str) -> _Service:
        """Return what serves a stream now."""
        policy = self._policies.of(stream)
        if policy is None:
            raise LookupError(f"stream {stream!r} has no policy; decoding rejects such records")
        names = ledger.names(policy.config, policy.calibrator, stream)
        service = self._by_ticket.get(names) or self._service(stream, policy.calibrator, policy.config, names, policy)
        matures = policy.matures_ms > 0
        service.role, service.due_ms = (MATURITY, policy.matures_ms) if matures else (EXPIRY, policy.ttl_ms)
        service.ttl_ms = policy.ttl_ms
        service.status = ledger.IMMATURE if policy.waits else ledger.ISSUED
        marked = policy.bands is not None or policy.points is not None
        service.marker = Marker(stream, policy, self._value, self._touch) if marked else None
        service.shadows = tuple([self._challenger(service, each.config, each) for each in policy.challengers])
        if policy.segments:
            row = self._get(kinds.NAMES.key(stream, policy.layout))
            made = Dictionary(policy.segments, policy.pairs) if row is None else kinds.NAMES.decode(row)
            service.layout, service.dictionary = policy.layout, made
            if row is None:  # also where no event ever has a value
                self._touched[kinds.NAMES.key(stream, policy.layout)] = made
        self._active[stream] = service
        return service

    def _reopen(self, payload: bytes, names: bytes) -> _Service:
        """Return what served a stream when a ticket was issued, from the row it left."""
        entry = ledger.parse(payload)
        return self._service(entry.stream, entry.calibrator, entry.config, names, None)

    def _service(self, stream: str, calibrator: str, config: str, names: bytes, policy: Policy | None) -> _Service:
        learner = self._learner(stream, config, policy)
        served = learner.served
        kind = KINDS.index(calibrators.kind(calibrator))
        scores_key = kinds.VECTORS.key(stream, config) if kind != PROBABILITY else kinds.SCORES.key(stream)
        history = self._value(stream, kinds.SCORES, scores_key, History) if kind == PROBABILITY else None
        # Tickets of an earlier configuration hold other features.
        keeps = served.calibrator.keeps_features and self._present(stream, config)
        features = served.calibrator.features_in if keeps else None
        service = _Service(
            stream,
            kind,
            calibrator,
            config,
            EXPIRY,
            0,
            0,
            ledger.ISSUED,
            names,
            learner.key,
            learner,
            served,
            features,
            history,
            scores_key,
            kinds.WINDOWS.key(stream),
            kinds.AGES.key(stream),
            kinds.COVERAGE.key(stream),
            kinds.DISTRIBUTION.key(stream),
            (),
            {},
            b"",
            None,
            self._coverage(stream),
        )
        self._by_ticket[names] = service
        return service

    def _present(self, stream: str, config: str) -> bool:
        """Whether a stream has this configuration now."""
        policy = self._policies.of(stream)
        return policy is not None and policy.config == config

    def _learner(self, stream: str, config: str, policy: Policy | None) -> _Learner:
        """Return the calibrator of a stream and configuration; without a row it is new, and needs its policy."""
        key = kinds.CALIBRATOR.key(stream, config)
        learner = self._learners.get(key)
        if learner is None:
            row = self._get(key)
            if row is not None:
                served = kinds.CALIBRATOR.decode(row, stream, self._policies.coin)
            elif policy is not None:
                served = Served.fresh(policy.recipe, stream, self._policies.coin)
            else:
                raise LookupError(f"stream {stream!r} has tickets of configuration {config} but no calibrator row")
            learner = self._learners[key] = _Learner(stream, config, key, served)
        return learner

    def _challenger(self, service: _Service, config: str, policy: Policy | None) -> _Challenger:
        """Return the challenger of a service; its policy is None when it is asked for by a ticket."""
        challenger = service.challengers.get(config)
        if challenger is None:
            learner = self._learner(service.stream, config, policy)
            key = kinds.COMPARISON.key(service.stream, service.config, config)
            row = self._get(key)
            comparison = of_challenger(service.kind) if row is None else kinds.COMPARISON.decode(row)
            challenger = _Challenger(learner, service.config, bytes.fromhex(config), key, comparison)
            service.challengers[config] = challenger
        return challenger

    def _coverage(self, stream: str) -> Coverage | None:
        """Return which forecasts of a stream have a label; None where that does not matter."""
        policy = self._policies.of(stream)
        if policy is None or not policy.guarded:
            return None
        return self._value(stream, kinds.COVERAGE, kinds.COVERAGE.key(stream), Coverage)

    def _guards(self) -> dict[bytes, bytes | None]:
        """Return the rows that changed of what holds back: witnesses, quotas and entities."""
        changed = self._witnesses.changes() | self._entities.changes()
        return changed if self._quotas is None else changed | self._quotas.changes()

    def _collect(self, effects: Changes) -> None:
        """Turn what changed into rows."""
        changes = effects.rows = self._changed
        for key, payload in changes.items():
            if payload is not None:
                changes[key] = ledger.sealed(payload)
        if changes:
            of_events = sum([len(row) for row in changes.values() if row is not None])
            self._ledger_bytes = max(of_events // len(changes), LEDGER_BYTES)
        queues = self._expiry.changes()
        changes.update(queues)
        of_streams = effects.of_streams = {key: kind_of(key).encode(value) for key, value in self._touched.items()}
        changes.update(of_streams)
        if of_streams:
            others = sum([len(row) for row in (*queues.values(), *of_streams.values()) if row is not None])
            self._stream_bytes = max(others // len(of_streams), 1)
        changes.update(self._guards())
        changes[_FENCE] = self.fence.encode()


def _admits(payload: bytes, y: float) -> bool:
    """Whether the forecast of a row can have this outcome."""
    kind = payload[1] & ~ledger.FLAGS
    return y in (0.0, 1.0) if kind == PROBABILITY else admits(ledger.parse(payload).raw, y)


def _refused(event: Forecast | Outcome, topic: int, reason: str) -> Rejected:
    """Return the dead letter of a record that is beyond its stream's quota."""
    return Rejected(event.offset, event.key, event.value, topic, reason)


def _unusable(outcome: Outcome) -> Rejected:
    return Rejected(outcome.offset, outcome.key, outcome.value, OUTCOMES, "label")


def _conflicting(forecast: Forecast) -> Rejected:
    """Return the dead letter of a forecast whose event was answered for another stream or another forecast."""
    return Rejected(forecast.offset, forecast.key, forecast.value, FORECASTS, "conflict")


def _parked(forecast: Forecast, y: float) -> Rejected:
    """Return the dead letter of a parked outcome its forecast cannot have; it stands in the forecast's place."""
    value = json.dumps({"event_id": forecast.event_id, "y": y}).encode()
    return Rejected(forecast.offset, forecast.key, value, FORECASTS, "parked_label")


def _calibrated(key: bytes | None, event_id: str, payload: bytes, carried: Carried | None = None) -> Calibrated:
    entry = ledger.parse(payload)
    marked = marks(entry.marks) if entry.marks else None
    return Calibrated(
        key,
        event_id,
        entry.stream,
        entry.raw,
        entry.p,
        entry.draw,
        entry.calibrator,
        entry.config,
        entry.version,
        entry.issued_ts,
        entry.born,
        carried,
        marked.band if marked else "",
        marked.points if marked else None,
    )
