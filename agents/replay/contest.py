"""Several configurations on the events of one partition, side by side: what is served, learnt and scored, and no rows.

The engine writes a row for every step of every event, because a worker must survive its death. A comparison need not:
it keeps the tickets in a dictionary, and runs two to three times as fast. What becomes of each record, and what every
calibrator serves, is the engine's to the bit; a test holds both equal over histories with everything in them.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from agents.replay.configuration import Configuration
from agents.replay.tape import Tape
from state import rows
from state.bias import Bias
from state.engine import HELD, SWEEP
from state.events import Event, Forecast, Outcome, Rejected
from state.fence import (
    EARLY,
    EARLY_JOINED,
    EARLY_UNUSABLE,
    EXPIRED_FORECAST,
    EXPIRED_OUTCOME,
    FATES,
    FORECAST_DEAD,
    FORECAST_DUPLICATE,
    FORECASTS,
    ISSUED,
    OUTCOME_DEAD,
    OUTCOME_DUPLICATE,
    OUTCOME_REVISED,
    OUTCOMES,
    RESOLVED,
)
from state.forecasts import PROBABILITY, admits
from state.policy import Policy
from state.rows import Served, VectorScores

#: Outcomes learnt between two looks at a calibrator's error and bound: these many, and a fiftieth of all before.
LOOK = 100

_EARLY, _ISSUED, _RESOLVED = 1, 2, 3


class Look(NamedTuple):
    """A calibrator's error and bound at one moment.

    Attributes
    ----------
    time
        When the outcome before it was resolved, ms; see `Played`.
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
class Played:
    """What a contest on one partition gave; everything that grows with the records is on the tape.

    Columns of all probability forecasts, in the order in which they were answered: ``issued_ms`` (q), ``stream`` (i),
    ``version`` (q), how many outcomes were learnt before, ``raw`` (d), and ``p0``, ``p1`` and so on (d), what each
    contender served, and ``draw0`` and so on (d), what it drew. Columns of those resolved, in the order
    in which they were: ``index`` (q) of the forecast, ``y`` (b), ``delay_ms`` (q), and ``time`` (q), the largest event
    time of any resolved event up to then, ms: it never falls, so that partitions can be merged by it.

    Attributes
    ----------
    directory
        Of the columns.
    streams
        Names, by number.
    fates
        By `state.fence.FATES`.
    records
        Applied.
    dead
        Dead letters, by topic and reason.
    looks
        In time order, a last one of each calibrator at the end.
    biases
        By stream and contender; of streams with features.
    vectors
        Scores of streams of classes and numbers, by stream and contender.
    """

    directory: Path
    streams: list[str] = field(default_factory=list)
    fates: list[int] = field(default_factory=lambda: [0] * len(FATES))
    records: int = 0
    dead: dict[tuple[int, str], int] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    biases: dict[tuple[int, int], Bias] = field(default_factory=dict)
    vectors: dict[tuple[int, int], VectorScores] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Entrants:
    """The calibrators of one stream, one a contender, with everything the hot path asks of them."""

    number: int
    kind: int
    ttl_ms: int
    served: list[Served]
    #: What predicts, and where the served probability and the draw are written down.
    predicts: list[tuple[Callable[..., Any], Callable[[float], None], Callable[[float], None]]]
    updates: list[Callable[[bytes, float], None]]
    biases: list[Bias]
    #: Outcomes learnt, and the sum over them of how many were learnt between forecast and outcome.
    learnt: int = 0
    late: int = 0
    look_at: int = LOOK


#: A row begins with its status, and the applied counts at its birth and its last change. Then, by status:
#: early: None, the outcome, its time;
#: issued: entrants, None, number of the forecast on the tape, outcomes learnt when it was answered, tickets, time, the
#: raw forecast, what was served and the features, the last three None where nothing will ask for them;
#: resolved: entrants, the outcome, the raw forecast where it is not a probability.
_Row = tuple[Any, ...]


class Contest:
    """Plays events of one partition to several configurations that agree in `Configuration.reading`.

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
        self._rows: dict[str, _Row] = {}
        self._now: dict[str, _Entrants] = {}
        self._stream_time = 0
        self._resolved_time = 0
        self._queues: dict[int, deque[tuple[int, int, str]]] = {}
        #: No entry is due before this stream time, ms.
        self._soonest = inf
        self._issued = 0
        tape = self._tape = Tape(directory)
        self._note_issued_ms = tape.column("issued_ms", "q")
        self._note_stream = tape.column("stream", "i")
        self._note_raw: Callable[[Any], None] = tape.column("raw", "d")
        self._note_version = tape.column("version", "q")
        self._answers = [(tape.column(f"p{n}", "d"), tape.column(f"draw{n}", "d")) for n in range(len(configurations))]
        self._note_index = tape.column("index", "q")
        self._note_y = tape.column("y", "b")
        self._note_delay_ms = tape.column("delay_ms", "q")
        self._note_time = tape.column("time", "q")
        self._applied = 0
        self.played = Played(directory)
        self._fates = self.played.fates

    def play(self, events: Iterable[Event]) -> None:
        """Apply events in order, each topic's in the order of its offsets and none twice."""
        forecast, outcome = self._forecast, self._outcome
        for event in events:
            self._applied += 1
            if isinstance(event, Forecast):
                forecast(event)
            elif isinstance(event, Outcome):
                outcome(event)
            else:
                self._reject(event, FORECAST_DEAD if event.topic == FORECASTS else OUTCOME_DEAD)
        self.played.records = self._applied
        self._tape.spill()

    def end(self) -> Played:
        """Look at every calibrator a last time, write the tape, and return what was played."""
        for entrants in self._now.values():
            self._look(entrants)
        self._tape.close()
        return self.played

    def _forecast(self, forecast: Forecast) -> None:
        _, key, event_id, stream, raw, x, ts = forecast
        if ts > self._stream_time:  # noqa: PLR1730 - max() costs three times as much, on every event
            self._stream_time = ts
        if self._stream_time >= self._soonest:
            self._sweep()
        found = self._rows.get(event_id)
        if found is not None and found[0] != _EARLY:
            self._fates[FORECAST_DUPLICATE] += 1
            return
        entrants = self._now.get(stream) or self._open(stream)
        name = event_id.encode()
        answers: list[Any] | None = None
        if entrants.kind == PROBABILITY:
            tickets = []
            if entrants.biases:
                answers = []
            for predict, note, note_draw in entrants.predicts:
                p, draw, ticket = predict(raw, x, name)
                note(p)
                note_draw(draw)
                tickets.append(ticket)
                if answers is not None:
                    answers.append(p)
            self._note_issued_ms(ts)
            self._note_stream(entrants.number)
            self._note_version(entrants.learnt)
            self._note_raw(raw)
            index = self._issued
            self._issued = index + 1
        else:
            made = [predict(raw, x, name) for predict, _, _ in entrants.predicts]
            tickets, answers, index = [each.ticket for each in made], [each.p for each in made], -1
        applied = self._applied
        kept = None if answers is None else (raw, answers, x)
        row = (_ISSUED, applied, applied, entrants, None, index, entrants.learnt, tickets, ts, kept)
        self._push(entrants.ttl_ms, applied, event_id)
        fates = self._fates
        fates[ISSUED] += 1
        self._rows[event_id] = row
        if found is None:
            return
        y = found[4]
        if admits(raw, y):
            fates[EARLY_JOINED] += 1
            self._resolve(event_id, row, y, found[5])
        else:
            fates[EARLY_UNUSABLE] += 1
            value = json.dumps({"event_id": event_id, "y": y}).encode()
            self._reject(Rejected(forecast.offset, key, value, FORECASTS, "parked_label"), None)

    def _outcome(self, outcome: Outcome) -> None:
        offset, key, event_id, y, ts, value, _ = outcome
        if ts > self._stream_time:  # noqa: PLR1730 - max() costs three times as much, on every event
            self._stream_time = ts
        if self._stream_time >= self._soonest:
            self._sweep()
        found = self._rows.get(event_id)
        fates = self._fates
        if found is None:
            fates[EARLY] += 1
            applied = self._applied
            self._push(self._early_ttl_ms, applied, event_id)
            self._rows[event_id] = (_EARLY, applied, applied, None, y, ts)
        elif found[0] != _EARLY and not (
            (y == 1.0 or y == 0.0) if found[3].kind == PROBABILITY else admits(_raw(found), y)  # noqa: PLR1714 - every outcome
        ):
            self._reject(Rejected(offset, key, value, OUTCOMES, "label"), OUTCOME_DEAD)
        elif found[0] == _ISSUED:
            fates[RESOLVED] += 1
            self._resolve(event_id, found, y, ts)
        elif found[4] == y:
            fates[OUTCOME_DUPLICATE] += 1
        else:
            fates[OUTCOME_REVISED] += 1

    def _resolve(self, event_id: str, row: _Row, y: float, ts: int) -> None:
        """Redeem the tickets once."""
        _, born, _, entrants, _, index, version, tickets, issued_ms, kept = row
        for update, ticket in zip(entrants.updates, tickets):  # noqa: B905 - a fifth of a microsecond, and they are made together
            update(ticket, y)
        entrants.late += entrants.learnt - version
        entrants.learnt += 1
        if ts > self._resolved_time or issued_ms > self._resolved_time:
            self._resolved_time = max(ts, issued_ms)
        raw = None
        if entrants.kind == PROBABILITY:
            self._note_index(index)
            self._note_y(int(y))
            self._note_delay_ms(ts - issued_ms)
            self._note_time(self._resolved_time)
            if kept is not None:
                was, answers, x = kept
                for bias, p in zip(entrants.biases, answers, strict=True):
                    bias.observe(x, was, p, y)
        else:
            raw, answers, _ = kept
            self._score(entrants, raw, answers, y, event_id)
        if entrants.learnt >= entrants.look_at:
            self._look(entrants)
        self._rows[event_id] = (_RESOLVED, born, self._applied, entrants, y, raw)

    def _score(self, entrants: _Entrants, raw: Any, answers: list[Any], y: float, event_id: str) -> None:  # noqa: ANN401 - of the entrants' kind
        for n, p in enumerate(answers):
            scores = self.played.vectors.get((entrants.number, n))
            if scores is None:
                scores = self.played.vectors[entrants.number, n] = rows.vector_scores(p)
            rows.observe(scores, raw, p, y, event_id.encode())

    def _sweep(self) -> None:
        """Let go of rows that fell due, as `state.engine.Partition` does."""
        now, applied, fates = self._stream_time, self._applied, self._fates
        swept = 0
        for ttl_ms, queue in self._queues.items():
            while queue and queue[0][0] + ttl_ms <= now:
                _, born, event_id = queue[0]
                row = self._rows.get(event_id)
                if row is not None and row[1] == born:
                    if applied - row[2] <= self._held:
                        break  # the rows behind it wait with it, those of other queues must not
                    if row[0] == _ISSUED:
                        fates[EXPIRED_FORECAST] += 1
                    elif row[0] == _EARLY:
                        fates[EXPIRED_OUTCOME] += 1
                    del self._rows[event_id]
                queue.popleft()
                swept += 1
                if swept == SWEEP:
                    break
            if swept == SWEEP:
                break
        soonest = inf
        for ttl_ms, queue in self._queues.items():
            if queue and queue[0][0] + ttl_ms < soonest:
                soonest = queue[0][0] + ttl_ms
        self._soonest = soonest

    def _push(self, ttl_ms: int, born: int, event_id: str) -> None:
        queue = self._queues.get(ttl_ms)
        if queue is None:
            queue = self._queues[ttl_ms] = deque()
        if not queue:
            self._soonest = min(self._soonest, self._stream_time + ttl_ms)
        queue.append((self._stream_time, born, event_id))

    def _reject(self, letter: Rejected, fate: int | None) -> None:
        if fate is not None:
            self._fates[fate] += 1
        dead = self.played.dead
        dead[letter.topic, letter.reason] = dead.get((letter.topic, letter.reason), 0) + 1
        self._rejected(letter)

    def _open(self, stream: str) -> _Entrants:
        found: list[Policy] = [policy for policies in self._policies if (policy := policies.of(stream))]
        if not found:
            raise LookupError(f"stream {stream!r} has no policy; decoding rejects such records")
        served = [Served.fresh(policy.recipe, stream) for policy in found]
        entrants = _Entrants(
            len(self.played.streams),
            found[0].kind,
            found[0].ttl_ms,
            served,
            [(each.calibrator.predict, *notes) for each, notes in zip(served, self._answers, strict=True)],
            [each.calibrator.update for each in served],
            [],
        )
        if found[0].features and found[0].kind == PROBABILITY:
            entrants.biases = [Bias() for _ in found]
            self.played.biases |= {(entrants.number, n): bias for n, bias in enumerate(entrants.biases)}
        self.played.streams.append(stream)
        self._now[stream] = entrants
        return entrants

    def _look(self, entrants: _Entrants) -> None:
        entrants.look_at = entrants.learnt + max(LOOK, entrants.learnt // 50)
        outstanding = -(-entrants.late // entrants.learnt) if entrants.learnt else 0
        for n, served in enumerate(entrants.served):
            calibrator = served.calibrator
            error, bound = calibrator.error(), calibrator.bound(outstanding)
            self.played.looks.append(Look(self._resolved_time, entrants.number, n, entrants.learnt, error, bound))


def _raw(row: _Row) -> Any:  # noqa: ANN401 - a forecast of any kind but one probability
    """Return the raw forecast of an issued or a resolved row."""
    return row[5] if row[0] == _RESOLVED else row[9][0]
