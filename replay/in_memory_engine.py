"""Replay's engine: several configurations on the events of one partition, side by side, without rows.

There are two engines. That of the workers (`state.engine`) writes a row for every step of every event, because a worker
must survive its death. A replay need not: this one keeps tickets in a dictionary. With `histogram` it takes 5.2 us of
CPU an event, and the workers' engine 11.1 on a dictionary of rows (interpreted, same run: 192,000 and 90,000 a second).

tests/replay/test_agreement.py proves that both agree to the last bit, over generated histories with every option of
labels, every kind of forecast and challengers: on what becomes of each record, on every answer and label, on what each
calibrator has learnt, and on all scores.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any, Final, NamedTuple

from replay.column_file import Tape
from replay.configuration import Configuration
from replay.in_memory_ledger import LOOK, Entrants, Row
from replay.in_memory_queues import Queues, WaitingQueue
from state.banding import Thresholds
from state.banding import place as put
from state.calibrators import Answer, Recalibrator
from state.coverage import Coverage
from state.engine import HELD, RIPE, SWEEP
from state.entities import Entities, place
from state.events import Event, Forecast, Outcome, Passed, Rejected
from state.fence import EARLY as OUTCOME_EARLY
from state.fence import (
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
    MATURED,
    MATURED_EXPIRY,
    MATURITY,
    OUTCOME_DEAD,
    OUTCOME_DUPLICATE,
    OUTCOME_REVISED,
    OUTCOME_STALE,
    OUTCOMES,
    REVISION,
)
from state.fence import ISSUED as FORECAST_ISSUED
from state.fence import RESOLVED as OUTCOME_RESOLVED
from state.fence import WAITING as OUTCOME_WAITING
from state.forecasts import PROBABILITY, Quantiles, admits
from state.ledger import EARLY, IMMATURE, ISSUED, MOST_REVISIONS, RESOLVED, UNSAID, WAITING
from state.policy import Policy
from state.quotas import Quotas
from state.scoring.bias import Bias
from state.scoring.pair_scores import SegmentPairScores, at_levels, losses, observe_segments, revise_segments
from state.scoring.vector_history import VectorHistory
from state.segments import Dictionary
from state.served import Served
from state.witnesses import SLACK, Entry, Witnesses
from streams.metrics import functions
from streams.metrics.functions import Part

#: Losses of an event of classes; one of a number has fewer.
LOSSES: Final = 2
#: Forecasts that expired, of which a partition remembers when they were made: the first ones, some 60 MB.
REMEMBERED: Final = 300_000


class Look(NamedTuple):
    """A calibrator's error and bound at one moment.

    Attributes
    ----------
    time
        When the outcome before it was resolved, ms; see `PartitionResult`.
    stream, contender
        Their numbers.
    learnt
        Outcomes learnt.
    error, bound
        As `state.calibrators.base.Recalibrator` gives them.
    """

    time: int
    stream: int
    contender: int
    learnt: int
    error: float | None
    bound: float | None


@dataclass
class PartitionResult:
    """What replaying one partition gave. Everything that grows with the records is in the column files.

    Columns of all probability forecasts, in the order in which they were answered: ``issued_ms`` (q), ``stream`` (i),
    ``version`` (q), how many outcomes were learnt before, ``raw`` (d), and ``p0``, ``p1`` and so on (d), what each
    contender served, and ``draw0`` and so on (d), what it drew; ``slot0`` and so on (i), the slots of its segments, -1
    where its stream has fewer. Columns of those resolved, in the order in which they were: ``index`` (q) of the
    forecast, ``y`` (b), ``delay_ms`` (q), and ``time`` (q), the largest event time of any resolved event up to then,
    ms: it never falls, so that partitions can be merged by it; and ``implied`` (b), whether silence gave the label.
    ``untaught`` (q): forecasts whose outcome counts nowhere, because their entity had taught.
    With segments ``before`` (q), too: the forecasts that had been answered. With bands ``raw_band0``, ``band0`` and so
    on (b), the bands of the raw forecast and of what each contender served, -1 where its stream has none.
    Columns of revisions, in their order: ``revised`` (q), the place of the event among those resolved, ``revised_y``
    (b) and ``revised_ms`` (q), the label it has since and its time. Columns of events of classes and numbers, once more
    when a label is revised: ``vector`` (i), the stream's number, ``vector_serial`` (q), the event's number in the order
    of resolution, ``vector_ms`` (q), the time of that, and of each contender ``was0_0``, ``loss0_0``, ``was0_1``,
    ``loss0_1`` and so on (d), what raw and it lose by each of `state.scoring.pair_scores.LOSSES`, NaN beyond them, and
    ``vector_warm0`` and so on (b), whether it answered in its warm-up. Columns of outcomes whose forecast had expired:
    ``missed`` (i), its stream, and ``missed_ms`` (q), how long they took.

    Attributes
    ----------
    directory
        Of the columns.
    streams
        Names, by number.
    fates
        By `state.fence.FATES`.
    expired
        Forecasts of probabilities that expired, by stream.
    records
        Applied.
    untaught
        Events whose outcome counts nowhere, because their entity had taught.
    immature
        Forecasts that have not matured at the end.
    dead
        Dead letters, by topic and reason.
    looks
        In time order, a last one of each calibrator at the end.
    dictionaries
        By stream: what the slots of its segments stand for.
    warmed
        By stream and contender: the number of the forecast of a probability that ended its warm-up.
    biases
        By stream and contender; of streams with features.
    functions
        Outcomes learnt, and the biases that the calibrator bounds, by stream and contender; of those that bound any.
    vectors
        Scores of streams of classes and numbers, by stream and contender.
    segments
        Of these by stream, contender and slot; they count as expired what has no outcome at the end.
    """

    directory: Path
    streams: list[str] = field(default_factory=list)
    fates: list[int] = field(default_factory=lambda: [0] * len(FATES))
    expired: dict[int, int] = field(default_factory=dict)
    records: int = 0
    untaught: int = 0
    immature: int = 0
    dead: dict[tuple[int, str], int] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    dictionaries: dict[int, Dictionary] = field(default_factory=dict)
    warmed: dict[tuple[int, int], int] = field(default_factory=dict)
    biases: dict[tuple[int, int], Bias] = field(default_factory=dict)
    functions: dict[tuple[int, int], Part] = field(default_factory=dict)
    vectors: dict[tuple[int, int], VectorHistory] = field(default_factory=dict)
    segments: dict[tuple[int, int], dict[int, SegmentPairScores]] = field(default_factory=dict)


class InMemoryEngine:
    """Plays events of one partition to several configurations that agree in `Configuration.reading`.

    They agree in when labels are learnt, too, so an event has one label at a time for all.

    Parameters
    ----------
    configurations
        At least one.
    directory
        Where the tape is kept.
    rejected
        Called with each dead letter.
    held
        See `state.engine.Partition`; only tests make it small.
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        directory: Path,
        rejected: Callable[[Rejected], None] = lambda _: None,
        held: int = HELD,
    ) -> None:
        self._policies = [each.policies for each in configurations]
        self._rejected = rejected
        self._held = held
        self._early_ttl_ms = self._policies[0].early_ttl_ms
        self._rows: dict[str, Row] = {}
        self._gone: dict[str, tuple[int, int]] = {}
        self._now: dict[str, Entrants] = {}
        self._stream_time = 0
        self._resolved_time = 0
        self._queues = Queues()
        self._witnesses = Witnesses()
        policies = self._policies[0]
        self._quotas = Quotas(policies.quota_of, lambda _: None) if policies.limited else None
        self._entities = Entities(lambda _: None)
        self._issued = self._resolved = 0
        tape = self._tape = Tape(directory)
        self._note_issued_ms = tape.column("issued_ms", "q")
        self._note_stream = tape.column("stream", "i")
        self._note_raw: Callable[[Any], None] = tape.column("raw", "d")
        self._note_version = tape.column("version", "q")
        self._answers = [(tape.column(f"p{n}", "d"), tape.column(f"draw{n}", "d")) for n in range(len(configurations))]
        plans = self._policies[0].default, *(policy for _, policy in self._policies[0].patterns)
        most = max(len(each.segments) + len(each.pairs) if each else 0 for each in plans)
        self._note_slots = [tape.column(f"slot{n}", "i") for n in range(most)]
        banded = any(each.banded for each in configurations)
        #: By contender, where bands are written down; none without.
        self._note_bands = [
            (tape.column(f"raw_band{n}", "b"), tape.column(f"band{n}", "b"))
            for n in range(banded * len(configurations))
        ]
        self._note_index = tape.column("index", "q")
        self._note_untaught = tape.column("untaught", "q")
        self._note_y = tape.column("y", "b")
        self._note_delay_ms = tape.column("delay_ms", "q")
        self._note_time = tape.column("time", "q")
        self._note_implied = tape.column("implied", "b")
        self._note_before = tape.column("before", "q") if most else None
        self._note_revised = tape.column("revised", "q"), tape.column("revised_y", "b"), tape.column("revised_ms", "q")
        self._note_vector = tape.column("vector", "i"), tape.column("vector_serial", "q"), tape.column("vector_ms", "q")
        self._note_losses = [
            [(tape.column(f"was{n}_{k}", "d"), tape.column(f"loss{n}_{k}", "d")) for k in range(LOSSES)]
            for n in range(len(configurations))
        ]
        self._note_vector_warm = [tape.column(f"vector_warm{n}", "b") for n in range(len(configurations))]
        self._serial = 0
        self._note_missed, self._note_missed_ms = tape.column("missed", "i"), tape.column("missed_ms", "q")
        self._applied = 0
        self.played = PartitionResult(directory)
        self._fates = self.played.fates

    def play(self, events: Iterable[Event]) -> None:
        """Apply events in order, each topic's in the order of its offsets and none twice."""
        forecast, outcome = self._forecast, self._outcome
        for event in events:
            if isinstance(event, Passed):
                continue
            self._applied += 1
            if isinstance(event, Forecast):
                forecast(event)
            elif isinstance(event, Outcome):
                outcome(event)
            else:
                fate = FORECAST_DEAD if event.topic == FORECASTS else OUTCOME_DEAD
                self._reject(event, fate, event.stream, event.ts)
        self.played.records = self._applied
        self._tape.spill()

    def run_on(self, now: int) -> None:
        """Let stream time run on to a moment, ms, without a record, and all forecasts mature that are due then."""
        for witness in sorted(self._witnesses.waiting):
            self._stream_time = max(self._stream_time, min(witness.ts, now))
            if witness.entry is not None:
                role, ttl_ms, named, event_id = witness.entry
                self._queues.push(role, ttl_ms, self._stream_time, named, event_id)
        self._witnesses = Witnesses()
        self._stream_time = max(self._stream_time, now)
        for queue in self._queues.due(self._stream_time):
            if queue.role == MATURITY:
                self._mature(queue)
        self._queues.settle()

    def end(self) -> PartitionResult:
        """Look at every calibrator a last time, write the tape, and return what was played."""
        for entrants in self._now.values():
            self._look(entrants)
            for n, served in enumerate(entrants.served):
                if (part := functions.part(served))[1]:
                    self.played.functions[entrants.number, n] = part
        self.played.immature = sum(row.status in (IMMATURE, WAITING) for row in self._rows.values())
        self._tape.close()
        return self.played

    def _forecast(self, forecast: Forecast) -> None:  # noqa: C901, PLR0912, PLR0915 - in parts it costs a call more, on every event
        _, _, event_id, stream, raw, x, ts, _, values, _, entity = forecast
        if ts > self._stream_time:
            if ts - self._stream_time > SLACK or self._witnesses.waiting:
                self._follow(ts)
            else:
                self._stream_time = ts
        if self._stream_time >= self._queues.soonest:
            self._sweep()
        found = self._rows.get(event_id)
        known = found is not None and found.entrants is not None
        if self._quotas is not None and (over := self._quotas.refused(FORECASTS, stream, ts, not known)):
            self._reject(_refused(forecast, FORECASTS, over), FORECAST_DEAD, stream, ts)
            return
        if found is not None and found.entrants is not None:
            self._again(forecast, found.raw, self.played.streams[found.entrants.number])
            return
        entrants = self._now.get(stream) or self._open(stream)
        name = event_id.encode()
        answers: list[Any] | None = None
        if entrants.kind == PROBABILITY:
            tickets = []
            answers = [] if entrants.biases or entrants.warming or self._note_bands else None
            groups = self._groups(entrants.dictionary, values) if self._note_slots else ()
            for predict, note, note_draw in entrants.answering:
                p, draw, ticket = predict(raw, x, name, groups)
                note(p)
                note_draw(draw)
                tickets.append(ticket)
                if answers is not None:
                    answers.append(p)
            if answers is not None and self._note_bands:
                self._band(entrants, raw, answers)
            self._note_issued_ms(ts)
            self._note_stream(entrants.number)
            self._note_version(entrants.learnt)
            self._note_raw(raw)
            index = self._issued
            self._issued = index + 1
        else:
            slots = self._vector_groups(entrants, values)
            made = [predict(raw, x, name, slots) for predict, _, _ in entrants.answering]
            tickets, answers, index, x = [each.ticket for each in made], [each.p for each in made], -1, slots
        applied = self._applied
        if entrants.warming and answers is not None:
            self._warm(entrants, raw, answers, ts)
        scored = answers is not None and (entrants.biases or entrants.kind != PROBABILITY)
        kept = (raw, answers, x) if answers is not None and scored else None
        self._rows[event_id] = row = Row(
            entrants.status, applied, entrants, raw, index, entrants.learnt, tickets, ts, kept, entrants.warming, entity
        )
        if ts > self._stream_time:
            self._witnesses.hold(Entry(entrants.role, entrants.due_ms, applied, event_id))
        else:
            self._queues.push(entrants.role, entrants.due_ms, self._stream_time, applied, event_id)
        self._fates[FORECAST_ISSUED] += 1
        if entrants.coverage is not None:
            entrants.coverage.issue(applied)
        if found is not None:
            self._join(forecast, row, found)

    def _band(self, entrants: Entrants, raw: Any, answers: Sequence[float]) -> None:  # noqa: ANN401 - a probability
        """Note the bands of a forecast, as `state.marking.Marker` counts them."""
        for (bands, thresholds), p, (note_raw, note) in zip(entrants.bands, answers, self._note_bands, strict=True):
            before, now = (-1, -1) if bands is None else put(bands, thresholds, raw, p)
            note_raw(before)
            note(now)

    def _warm(self, entrants: Entrants, raw: Any, answers: Sequence[Any], ts: int) -> None:  # noqa: ANN401 - of the stream's kind
        """Find which contenders answered in their warm-up, as `state.engine.Partition` does."""
        covered = entrants.coverage is None or entrants.coverage.covered
        left = tuple([n for n in entrants.warming if entrants.served[n].warms(raw, answers[n], ts, covered)])
        if entrants.kind == PROBABILITY:
            for n in entrants.warming:
                if n not in left:
                    self.played.warmed[entrants.number, n] = self._issued - 1
        entrants.warming = left

    def _groups(self, dictionary: Dictionary | None, values: tuple[str, ...]) -> tuple[int, ...]:
        """Return the slots of an event's segments, and note them."""
        groups = () if dictionary is None else dictionary.groups(values)
        for n, note in enumerate(self._note_slots):
            note(groups[n] if n < len(groups) else -1)
        return groups

    def _vector_groups(self, entrants: Entrants, values: tuple[str, ...]) -> tuple[int, ...]:
        """Return the slots of an event of classes or numbers, and count its forecast in each."""
        if entrants.dictionary is None:
            return ()
        groups = entrants.dictionary.groups(values)
        for n in range(len(entrants.served)):
            for segment in self._segments_of(entrants, n, groups):
                segment.issued += 1
                segment.expired += 1
        return groups

    def _again(self, forecast: Forecast, raw: Any, stream: str) -> None:  # noqa: ANN401 - of the stream's kind
        """Count a forecast of an event that was answered: a duplicate, or a dead letter if it says something else."""
        offset, key, value = forecast.offset, forecast.key, forecast.value
        if forecast.raw == raw and forecast.stream == stream:
            self._fates[FORECAST_DUPLICATE] += 1
        else:
            letter = Rejected(offset, key, value, FORECASTS, "conflict")
            self._reject(letter, FORECAST_DEAD, forecast.stream, forecast.ts)

    def _join(self, forecast: Forecast, row: Row, parked: Row) -> None:
        """Give a forecast the outcome that was parked for it, if that is one it can have."""
        fates, y = self._fates, parked.y
        if not admits(forecast.raw, y):
            fates[EARLY_UNUSABLE] += 1
            value = json.dumps({"event_id": forecast.event_id, "y": y}).encode()
            letter = Rejected(forecast.offset, forecast.key, value, FORECASTS, "parked_label")
            self._reject(letter, None, forecast.stream, forecast.ts)
            return
        waits = row.status == IMMATURE
        row.label(WAITING if waits else row.status, self._applied, parked.ts, y, parked.as_of, parked.number)
        fates[EARLY_WAITING if waits else EARLY_JOINED] += 1
        _labelled(row)
        if not waits:
            self._resolve(forecast.event_id, row)

    def _outcome(self, outcome: Outcome) -> None:
        _, _, event_id, y, ts, _, number = outcome
        if ts > self._stream_time:
            if ts - self._stream_time > SLACK or self._witnesses.waiting:
                self._follow(ts)
            else:
                self._stream_time = ts
        if self._stream_time >= self._queues.soonest:
            self._sweep()
        row = self._rows.get(event_id)
        if self._quotas is not None and self._over(self._quotas, outcome, row):
            return
        fates, applied = self._fates, self._applied
        if row is None:
            fates[OUTCOME_EARLY] += 1
            self._miss(event_id, ts)
            if ts > self._stream_time:
                self._witnesses.hold(Entry(EXPIRY, self._early_ttl_ms, applied, event_id))
            else:
                self._queues.push(EXPIRY, self._early_ttl_ms, self._stream_time, applied, event_id)
            self._rows[event_id] = row = Row(EARLY, applied)
            row.label(EARLY, applied, ts, y, ts, number)
        elif not row.admits(y):
            letter = Rejected(outcome.offset, outcome.key, outcome.value, OUTCOMES, "label")
            self._reject(letter, OUTCOME_DEAD, self._stream(row), ts)
        elif row.status == ISSUED:
            fates[OUTCOME_RESOLVED] += 1
            row.label(ISSUED, applied, ts, y, ts, number)
            _labelled(row)
            self._resolve(event_id, row)
        elif row.status == IMMATURE:
            fates[OUTCOME_WAITING] += 1
            row.label(WAITING, applied, ts, y, ts, number)
            _labelled(row)
        else:
            self._said_again(outcome, row)

    def _said_again(self, outcome: Outcome, row: Row) -> None:
        """Take a further outcome of an event that has a label: it confirms the label, replaces it, or is too old."""
        _, _, event_id, y, ts, _, number = outcome
        fates, newer = self._fates, row.newer(ts, number)
        if y == row.y:
            fates[OUTCOME_DUPLICATE] += 1
            if newer:
                row.as_of, row.number = ts, number
        elif not newer or row.revisions >= MOST_REVISIONS:
            fates[OUTCOME_STALE] += 1
        elif row.status == EARLY:
            fates[OUTCOME_REVISED] += 1
            row.label(EARLY, row.born, ts, y, ts, number)
        elif row.status == WAITING:
            fates[OUTCOME_REVISED] += 1
            row.label(WAITING, self._applied, ts, y, ts, number)
        else:
            fates[OUTCOME_REVISED] += 1
            was = row.y
            row.label(RESOLVED, self._applied, ts, y, ts, number)
            row.revisions += 1
            self._revise(event_id, row, was)

    def _resolve(self, event_id: str, row: Row) -> None:
        """Redeem the tickets once, by the row's label."""
        entrants, y, ts, issued_ms = row.entrants, row.y, row.ts, row.issued_ms
        if entrants is None:
            raise LookupError(f"event {event_id!r} has no forecast to resolve")
        if row.entity and self._untaught(entrants, row):
            return
        at = 0 if row.as_of == UNSAID else ts
        for learn, ticket in zip(entrants.learns, row.tickets):  # noqa: B905 - a fifth of a microsecond, and they are made together
            learn(ticket, y, at)
        entrants.late += entrants.learnt - row.version
        entrants.learnt += 1
        if ts > self._resolved_time or issued_ms > self._resolved_time:
            self._resolved_time = max(ts, issued_ms)
        if entrants.kind == PROBABILITY:
            self._note_index(row.index)
            self._note_y(int(y))
            self._note_delay_ms(ts - issued_ms)
            self._note_time(self._resolved_time)
            self._note_implied(row.as_of == UNSAID)
            if self._note_before is not None:
                self._note_before(self._issued)
            row.place = self._resolved
            self._resolved += 1
            if row.kept is not None:
                was, answers, x = row.kept
                for n, bias in enumerate(entrants.biases):
                    if n not in row.warm:
                        bias.observe(x, was, answers[n], y)
        else:
            self._score_vectors(event_id, entrants, row, y)
            row.index = self._serial
            self._serial += 1
            self._count_losses(entrants, row)
            if entrants.dictionary is not None:
                self._age(entrants, row)
        if entrants.learnt >= entrants.look_at:
            self._look(entrants)
        row.status, row.touched = RESOLVED, self._applied

    def _untaught(self, entrants: Entrants, row: Row) -> bool:
        """Whether the outcome of an entity teaches nothing and counts nowhere, as in `state.engine.Partition`."""
        policy, z = entrants.policy, place(row.raw, entrants.kind)
        stream = self.played.streams[entrants.number]
        if self._entities.teaches(stream, policy.config, row.entity, z, self._stream_time, policy.ttl_ms):
            return False
        row.untaught, row.status, row.touched = True, RESOLVED, self._applied
        self.played.untaught += 1
        if row.index >= 0:
            self._note_untaught(row.index)
        return True

    def _score_vectors(self, event_id: str, entrants: Entrants, row: Row, y: float) -> None:
        """Count an event of classes or numbers in the scores of every contender."""
        forecast, made, groups = self._kept(entrants, row)
        places = []
        for n, history in enumerate(self._vectors_of(entrants, made)):
            places.append(history.windows)
            if n in row.warm:
                history.warm_up.observe(forecast, y)
                continue
            history.observe(forecast, made[n], y, event_id.encode())
            if groups:
                segments = self._segments_of(entrants, n, groups)
                found = [each for each in segments if each.warm_up.admits(row.born, self._applied)]
                observe_segments(found, forecast, made[n], y, places[n])
        row.places = places

    def _revise(self, event_id: str, row: Row, was: float) -> None:
        """Replace a label that was learnt, wherever it counts."""
        entrants, y = row.entrants, row.y
        if entrants is None:
            raise LookupError(f"event {event_id!r} has no forecast to revise")
        if row.untaught:
            return
        for revise, ticket in zip(entrants.revises, row.tickets, strict=True):
            revise(ticket, was, y)
        if entrants.kind == PROBABILITY:
            for note, value in zip(self._note_revised, (row.place, int(y), row.ts), strict=True):
                note(value)
            if row.kept is not None:
                raw, answers, x = row.kept
                for n, bias in enumerate(entrants.biases):
                    if n not in row.warm:
                        bias.observe(x, raw, answers[n], was, -1)
                        bias.observe(x, raw, answers[n], y)
        else:
            forecast, made, groups = self._kept(entrants, row)
            for n, history in enumerate(self._vectors_of(entrants, made)):
                if n in row.warm:
                    history.warm_up.observe(forecast, was, -1)
                    history.warm_up.observe(forecast, y)
                    continue
                history.revise(forecast, made[n], was, y, event_id.encode(), row.places[n])
                if groups:
                    segments = self._segments_of(entrants, n, groups)
                    found = [each for each in segments if each.warm_up.admitted(row.born)]
                    revise_segments(found, forecast, made[n], was, y, row.places[n])
            self._count_losses(entrants, row)

    @staticmethod
    def _kept(entrants: Entrants, row: Row) -> tuple[Any, Sequence[Any], Any]:
        """Return an event's forecast of classes or numbers, what each contender answered, and its slots."""
        if row.kept is None:
            raise LookupError(f"event {row.index} of stream {entrants.number} has no forecast to score")
        return row.kept

    def _count_losses(self, entrants: Entrants, row: Row) -> None:
        """Note what an event of classes or numbers with this label costs raw and each contender."""
        for note, value in zip(self._note_vector, (entrants.number, row.index, self._resolved_time), strict=True):
            note(value)
        raw, answers, _ = self._kept(entrants, row)
        for n, note_warm in enumerate(self._note_vector_warm):
            note_warm(n in row.warm)
        for p, notes in zip(answers, self._note_losses, strict=True):
            before = at_levels(raw, p) if isinstance(p, Quantiles) else raw
            found = losses(before, p, row.y)
            for k, (note_raw, note) in enumerate(notes):
                note_raw(found[3 * k] if 3 * k < len(found) else nan)
                note(found[3 * k + 1] if 3 * k < len(found) else nan)

    def _age(self, entrants: Entrants, row: Row) -> None:
        """Note in its segments that an event of classes or numbers has an outcome, and how old its forecast was."""
        age_ms = max(row.ts - row.issued_ms, 0)
        for n in range(len(entrants.served)):
            for segment in self._segments_of(entrants, n, row.kept[2] if row.kept else ()):
                segment.expired -= 1
                if row.as_of != UNSAID:
                    segment.known += 1
                    segment.age_ms += age_ms

    def _segments_of(self, entrants: Entrants, contender: int, groups: tuple[int, ...]) -> list[SegmentPairScores]:
        """Return a contender's scores of slots of a stream of classes or numbers."""
        held = self.played.segments.setdefault((entrants.number, contender), {})
        return [held.setdefault(slot, SegmentPairScores()) for slot in groups]

    def _vectors_of(self, entrants: Entrants, answers: Sequence[Any]) -> Iterator[VectorHistory]:
        """Yield each contender's scores of classes or numbers, by what it served."""
        for n, p in enumerate(answers):
            history = self.played.vectors.get((entrants.number, n))
            if history is None:
                history = self.played.vectors[entrants.number, n] = VectorHistory.of(p)
            yield history

    def _follow(self, ts: int) -> None:
        """Move stream time by a record that is far ahead, or follows some which are, as the engine does."""
        if ts - self._stream_time > SLACK:
            self._witnesses.add(ts, self._applied)
        else:
            self._stream_time = ts
        for now, entry in self._witnesses.settled(self._stream_time, self._applied):
            self._stream_time = now
            if entry is not None:
                self._queues.push(entry.role, entry.ttl_ms, now, entry.named, entry.event_id)

    def _sweep(self) -> None:
        """Let forecasts mature and let go of rows that fell due, as `state.engine.Partition` does."""
        swept = ripe = 0
        for queue in self._queues.due(self._stream_time):
            if queue.role == MATURITY:
                self._mature(queue)
                ripe += 1
                if ripe == RIPE:
                    break
            elif self._leaves(queue):
                swept += 1
                if swept == SWEEP:
                    break
        self._queues.settle()

    def _mature(self, queue: WaitingQueue) -> None:
        since, born, event_id = self._queues.pop(queue)
        row = self._rows.get(event_id)
        if row is None or row.born != born or row.entrants is None:
            return
        fates, applied, policy = self._fates, self._applied, row.entrants.policy
        self._queues.push(MATURED_EXPIRY, max(1, policy.ttl_ms - queue.ttl_ms), self._stream_time, applied, event_id)
        if row.status == WAITING:
            fates[MATURED] += 1
            self._resolve(event_id, row)
        elif row.status != RESOLVED and policy.silence is not None and row.admits(policy.silence):
            fates[IMPLIED] += 1
            row.label(WAITING, applied, since + queue.ttl_ms, policy.silence, UNSAID, 0)
            self._resolve(event_id, row)
        elif row.status == IMMATURE:
            row.status, row.touched = ISSUED, applied

    def _leaves(self, queue: WaitingQueue) -> bool:
        """Remove the row of a queue's first entry, which is due; False if it has to stay for now."""
        _, named, event_id = queue.entries[0]
        row = self._rows.get(event_id)
        if row is not None and (queue.role == MATURED_EXPIRY or row.born == named):
            if self._applied - row.touched <= self._held:
                return False  # the rows behind it wait with it, those of other queues must not
            longer = 0
            if row.status == RESOLVED and queue.role != REVISION and row.entrants is not None:
                longer = row.entrants.policy.kept_ms - row.entrants.policy.ttl_ms
            if longer:
                self._queues.pop(queue)
                self._queues.push(REVISION, longer, self._stream_time, row.born, event_id)
                return True
            if row.status in (ISSUED, IMMATURE):
                self._fates[EXPIRED_FORECAST] += 1
                self._expire(event_id, row)
            elif row.status == EARLY:
                self._fates[EXPIRED_OUTCOME] += 1
            del self._rows[event_id]
        self._queues.pop(queue)
        return True

    def _expire(self, event_id: str, row: Row) -> None:
        """Count a forecast of a probability that expires, and remember it for an outcome that comes after all."""
        if row.entrants is not None and row.entrants.kind == PROBABILITY:
            number = row.entrants.number
            self.played.expired[number] = self.played.expired.get(number, 0) + 1
            if len(self._gone) < REMEMBERED:
                self._gone[event_id] = number, row.issued_ms

    def _miss(self, event_id: str, ts: int) -> None:
        """Note how late an outcome is whose forecast has expired."""
        if event_id in self._gone:
            stream, issued_ms = self._gone.pop(event_id)
            self._note_missed(stream)
            self._note_missed_ms(ts - issued_ms)

    def _stream(self, row: Row) -> str:
        return "" if row.entrants is None else self.played.streams[row.entrants.number]

    def _over(self, quotas: Quotas, outcome: Outcome, row: Row | None) -> bool:
        """Refuse an outcome that is beyond a quota, as `state.engine.Partition` does; the first one never is."""
        ts = outcome.ts
        if row is not None and (row.status in (ISSUED, IMMATURE) or (row.status != EARLY and row.as_of == UNSAID)):
            quotas.move(OUTCOMES, ts)
            return False
        stream = "" if row is None else self._stream(row)
        over = quotas.refused(OUTCOMES, stream, ts, row is None)
        if over:
            self._reject(_refused(outcome, OUTCOMES, over), OUTCOME_DEAD, stream, ts)
        return bool(over)

    def _reject(self, letter: Rejected, fate: int | None, stream: str, ts: int) -> None:
        if fate is not None:
            self._fates[fate] += 1
        if self._quotas is not None and self._quotas.withheld(letter.topic, stream, ts, letter.reason):
            letter = letter._replace(withheld=True)
        dead = self.played.dead
        dead[letter.topic, letter.reason] = dead.get((letter.topic, letter.reason), 0) + 1
        self._rejected(letter)

    def _open(self, stream: str) -> Entrants:
        found: list[Policy] = [policy for policies in self._policies if (policy := policies.of(stream))]
        if not found:
            raise LookupError(f"stream {stream!r} has no policy; decoding rejects such records")
        coin = self._policies[0].coin
        served, policy = [Served.fresh(each.recipe, stream, coin) for each in found], found[0]
        entrants = Entrants(
            len(self.played.streams),
            found[0].kind,
            found[0],
            served,
            [(each.calibrator.predict, *notes) for each, notes in zip(served, self._answers, strict=True)],
            [each.calibrator.learn for each in served],
            [each.calibrator.revise for each in served],
            [],
            IMMATURE if policy.waits else ISSUED,
            MATURITY if policy.matures_ms else EXPIRY,
            policy.matures_ms or policy.ttl_ms,
        )
        entrants.warming = tuple(range(len(served)))
        if policy.guarded:
            blank = [Served.fresh(each.recipe, stream, coin).calibrator for each in found]
            entrants.coverage = Coverage()
            entrants.unlearnt = [
                (_unlearnt(each.calibrator, before), note, note_draw)
                for each, before, (_, note, note_draw) in zip(served, blank, entrants.predicts, strict=True)
            ]
        if policy.segments:
            entrants.dictionary = Dictionary(policy.segments, policy.pairs)
            self.played.dictionaries[entrants.number] = entrants.dictionary
        each_of = [each.bands for each in found]
        entrants.bands = [(each, Thresholds.of(each) if each and each.moving else None) for each in each_of]
        if found[0].features and found[0].kind == PROBABILITY:
            entrants.biases = [Bias() for _ in found]
            self.played.biases |= {(entrants.number, n): bias for n, bias in enumerate(entrants.biases)}
        self.played.streams.append(stream)
        self._now[stream] = entrants
        return entrants

    def _look(self, entrants: Entrants) -> None:
        entrants.look_at = entrants.learnt + max(LOOK, entrants.learnt // 50)
        outstanding = -(-entrants.late // entrants.learnt) if entrants.learnt else 0
        for n, served in enumerate(entrants.served):
            calibrator = served.calibrator
            error, bound = calibrator.error(), calibrator.bound(outstanding)
            self.played.looks.append(Look(self._resolved_time, entrants.number, n, entrants.learnt, error, bound))


def _labelled(row: Row) -> None:
    """Note that the forecast of a row has its first outcome."""
    coverage = None if row.entrants is None else row.entrants.coverage
    if coverage is not None:
        coverage.label(row.born)


def _unlearnt(learning: Recalibrator, blank: Recalibrator) -> Callable[..., Any]:
    """Return what answers as a calibrator did before its first outcome, with the ticket by which it learns."""

    def predict(*asked: Any) -> Answer[Any]:  # noqa: ANN401 - as a calibrator takes it
        p, draw, _ = blank.predict(*asked)
        return Answer(p, draw, learning.unserved(learning.predict(*asked).ticket))

    return predict


def _refused(event: Forecast | Outcome, topic: int, reason: str) -> Rejected:
    return Rejected(event.offset, event.key, event.value, topic, reason)
