"""Every answer of one partition, derived again from its inputs by the pure engine.

The engine's answers depend on the order in which records of two topics were folded. Each topic's own order is that of
its offsets; what is missing is how the two interleave, and every answer says it: ``applied`` is how many records of
both topics had been applied at the answer, so the outcomes before it are ``applied`` less the forecasts up to it.
Between two answers that follow each other stand outcomes in their own order, and forecasts that were answered before or
could not be read. Nothing says where those lie among the outcomes, so record time decides, as in a worker. They
teach nothing and are answered from the ledger. So their place changes no answer, unless a row falls due just there.

What answers carry from their records is derived, too, headers included. A copy of an answer does not say which record
it answers, one that came again or another of the same event, so what copies carry is not compared.
"""

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Final, NamedTuple, Protocol, TypeGuard

import orjson

from replay.audit.output_matcher import Derived, Differs, Matcher, OutputDifference, Unauditable, Unsettled
from replay.audit.refusing import Refusing
from replay.audit.terms import Terms
from state import keys, ledger
from state.engine import BATCH_LIMIT, HELD, Effects, Partition
from state.events import Calibrated, Event, Forecast, Outcome, Output, Passed, Rejected, Resolved
from state.fence import FORECAST_FATES, FORECASTS, INPUT_FATES, OUTCOMES, Fence
from streams.records.decoding import Decoder, event_name
from streams.records.encoding import encode, key_of, raw_answer
from streams.records.merge import KafkaRecord
from streams.records.output_values import OutputValues
from streams.records.refused import named

#: Unanswered forecasts that may stand before an answered one; they are held in memory while it is looked for.
LOOKAHEAD: Final = 200_000
#: Outputs that may not be written yet while a worker runs.
UNSETTLED: Final = HELD
LABELS: Final = ("forecasts", "outcomes", "calibrated", "resolved", "dead-letters")


class RowStore(Protocol):
    """Where the derived state is kept."""

    def get(self, key: bytes, /) -> bytes | None:
        """Return a row."""

    def write(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Write rows; None deletes."""

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return all rows."""


class Memory(dict[bytes, bytes]):
    """Rows in a dictionary."""

    def write(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Write rows; None deletes."""
        for key, value in rows.items():
            if value is None:
                self.pop(key, None)
            else:
                self[key] = value


def fence_of(rows: RowStore) -> Fence:
    """Return how far the inputs were applied."""
    row = rows.get(keys.FENCE)
    return Fence() if row is None else Fence.decode(row)


@dataclass
class Checked:
    """What an audit has compared.

    Attributes
    ----------
    forecasts, outcomes
        Input records folded.
    calibrated, resolved, dead_letters
        Output records that are what was derived.
    raw_answers
        Dead forecasts answered with their raw score, as derived.
    copies
        Further output records, the same byte for byte; of answers, but for what they carry.
    by_time
        Input records whose place among those of the other topic no answer tells, so that record time had to.
    waiting
        Forecasts at the end that have no answer yet and need none: their offsets are not committed.
    unsettled
        Outputs at the end that were derived or read, and whose counterpart is not there yet, for the same reason.
    """

    forecasts: int = 0
    outcomes: int = 0
    calibrated: int = 0
    resolved: int = 0
    dead_letters: int = 0
    raw_answers: int = 0
    copies: int = 0
    by_time: int = 0
    waiting: int = 0
    unsettled: int = 0


@dataclass
class Derivation:
    """How far an audit has come, for another to go on from.

    Attributes
    ----------
    terms
        What was in force at the last answer.
    checked
        What was compared.
    issued
        The ``applied`` of the last answer.
    next_answer
        Next offset of ``calibrated``.
    joined, letters, raws
        What of ``resolved``, of ``dead-letters`` and of raw answers has no counterpart yet.
    gone
        Ledger rows that left last.
    rows
        The derived state.
    """

    terms: Terms
    checked: Checked
    issued: int
    next_answer: int
    joined: Unsettled
    letters: Unsettled
    raws: Unsettled
    gone: dict[bytes, bytes]
    rows: RowStore


class _Joined(NamedTuple):
    """What a ``resolved`` record speaks of: an event, and how often its label had changed."""

    event_id: str
    revision: int

    def __str__(self) -> str:
        return f"{self.event_id} (revision {self.revision})" if self.revision else self.event_id


class _Answer(NamedTuple):
    """An answer as it was served."""

    record: KafkaRecord
    event_id: str
    applied: int
    stream: object
    config: object


class _Input(NamedTuple):
    """A decoded record of an input; both topics are merged by ``rank``: the claim, and then the record time.

    A forecast may have been ``refused`` by a quota.
    """

    rank: tuple[int, int]
    event: Event
    refused: bool = False


class Rederivation:
    """Derives a partition's answers again and compares them with those in the topics.

    Parameters
    ----------
    partition
        Its number.
    terms
        What was in force, in order. What no worker wrote down may be corrected by ``promotions``.
    topics
        The records of the topics of `LABELS`, each from its very first.
    committed
        Next offsets of forecasts and of outcomes the workers have committed: what lies before was acknowledged, so
        its outputs must be there.
    rows
        Where the derived state is kept; empty.
    promotions
        Lines of ``FILE.audit.jsonl``: which calibrators have served where no worker wrote down what was in force.
    since
        An earlier audit to go on from, whose rows are in ``rows``; ``topics`` then begin where it stopped.
    settled
        Called once with what another audit can go on from: after the last answer, and before what follows it is put
        in an order that later answers may tell better.
    """

    def __init__(
        self,
        partition: int,
        terms: Sequence[Terms],
        topics: Sequence[Iterator[KafkaRecord]],
        committed: tuple[int, int] = (0, 0),
        rows: RowStore | None = None,
        promotions: Sequence[Mapping[str, Any]] = (),
        since: "Derivation | None" = None,
        settled: Callable[["Derivation"], None] = lambda _: None,
    ) -> None:
        self.checked = Checked()
        self._number = partition
        #: What was in force, in order, and the place there of what is ordered now and of what is folded now.
        self.terms = list(terms)
        self._ordering = self._folding = 0
        self._promotions = promotions
        #: What is known of it before any answer is read, and the place there of what is read of each input now.
        self._recorded = list(self.terms)
        under = [each.settings for each in self._recorded]
        self._decoders = [Decoder(each.policies, each.limits, each.direct, each.carry_headers) for each in under]
        self._reading = [0, 0]
        forecasts, outcomes, self._calibrated, resolved, letters = topics
        self._forecasts, self._outcomes = self._inputs(forecasts, FORECASTS), self._inputs(outcomes, OUTCOMES)
        self._committed = committed
        self._rows = Memory() if rows is None else rows
        self._engine = Partition(self.terms[0].settings.policies, self._rows.get)
        self._gone: dict[bytes, bytes] = {}
        #: Answers from the ledger, as a worker does after a crash; rows that left lately may have been read there.
        self._ledger = Partition(self.terms[0].settings.policies, self._kept)
        self._refusing = Refusing(self._rows.get)
        self._unanswered: deque[_Input] = deque()
        self._served: deque[_Answer] = deque()
        self._batch: dict[int, bytes] = {}
        self._issued = 0
        self._stopped: Exception | None = None
        self._settled = settled
        self._next_answer_at = 0
        self._values = OutputValues(self.terms[0].settings.registry)
        self._joined = Matcher(partition, "resolved", resolved, _joined, self._values, self._resolved_again)
        own = self.terms[0].settings.forecasts, self.terms[0].settings.outcomes

        def elsewhere(place: tuple[str, int, int]) -> bool:
            return place[0] not in own

        self._letters = Matcher(partition, "dead-letters", letters, _place, self._values, elsewhere=elsewhere)
        #: Raw answers stand among the others, and are handed over when they are read.
        self._raws = Matcher(partition, "calibrated", iter(()), _raw_place, self._values, elsewhere=elsewhere)
        if since is not None:
            self.checked = replace(since.checked)
            self._gone |= since.gone
            self._issued = since.issued
            self._next_answer_at = since.next_answer
            self._joined.resume(since.joined)
            self._letters.resume(since.letters)
            self._raws.resume(since.raws)

    def run(self) -> Iterator[int]:
        """Fold and compare to the end; yields how many input records each step folded.

        Raises
        ------
        Differs
            With the first difference.
        Unauditable
            If the topics do not hold what is needed.
        """
        order = self._order()
        while events := list(islice(order, BATCH_LIMIT)):
            self._fold(events)
            self._refusing.folded()
            yield len(events)
        if self._stopped is not None:
            raise self._stopped
        self._settled(self._derivation())
        for step in self._tail():
            self._fold(step)
            yield len(step)
        self._settle()

    def _fold(self, events: Sequence[Event]) -> None:
        """Fold events in order, each under what was in force at its place."""
        self._gone.clear()
        while self._folding + 1 < len(self.terms):
            following = self.terms[self._folding + 1]
            here = following.applied - self._engine.fence.applied
            if here >= len(events):
                break
            if here > 0:
                self._fold_under(events[:here])
                events = events[here:]
            self._require_place(following)
            self._folding += 1
            self._engine = Partition(following.settings.policies, self._rows.get)
        self._fold_under(events)

    def _require_place(self, terms: Terms) -> None:
        """See that a worker took the partition up where the answers say that it stood."""
        fence = self._engine.fence
        if terms.next is not None and (fence.applied, tuple(fence.next)) != (terms.applied, terms.next):
            what = f"{terms.owner} took the partition up after other records than the answers say"
            fields = {"applied": (terms.applied, fence.applied), "next": (list(terms.next), fence.next)}
            raise Differs(OutputDifference(self._number, "configurations", None, None, what, fields))

    # -- the order ---------------------------------------------------------------------------------------------------

    def _order(self) -> Iterator[Event]:
        """Yield the events up to the last answered forecast, in the order in which they were folded."""
        place = self._engine.fence.applied
        try:
            while (answer := self._next_answer(place)) is not None:
                room = answer.applied - 1 - place
                between = self._before(answer, room)
                if between:
                    yield from self._merged(between, room - len(between))
                else:
                    for _ in range(room):
                        yield self._outcome(answer)
                self._served.append(answer)
                self._refusing.answered(answer.event_id)
                self._batch[answer.applied] = answer.record.value or b""
                yield self._unanswered.popleft().event
                place = answer.applied
        except (Differs, Unauditable) as exc:
            self._stopped = exc  # what was ordered before it is compared first

    def _next_answer(self, place: int) -> _Answer | None:
        """Return the next answer that is the first of its forecast; those before it must be copies."""
        for record in self._calibrated:
            self._next_answer_at = record.offset + 1
            answer = self._parsed(record)
            if answer is None:
                continue
            if answer.applied > place:
                self._require_configuration(answer)
                return answer
            self._check_copy(answer)
        return None

    def _parsed(self, record: KafkaRecord) -> _Answer | None:
        """Return an answer, or None for a raw one, which is matched with its dead letter."""
        try:
            value = self._values.fields(record.value or b"")
            if value.get("calibrated") is False:
                self._raws.take(record)
                return None
            event_id, stream, config = event_name(value), value["stream"], value["config"]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Differs(self._difference(record, None, "a record no worker writes")) from None
        applied = value.get("applied")
        if applied is None:
            raise Unauditable(
                f"calibrated/{self._number} offset {record.offset} has no field 'applied': an earlier version wrote "
                "it, and the order in which it was made is not known"
            )
        if type(applied) is not int or not isinstance(event_id, str):
            raise Differs(self._difference(record, None, "a record no worker writes"))
        return _Answer(record, event_id, applied, stream, config)

    def _require_configuration(self, answer: _Answer) -> None:
        """See that an answer is under the configuration that was in force, as far as that is known."""
        place = answer.applied - 1
        while self._ordering + 1 < len(self.terms) and self.terms[self._ordering + 1].applied <= place:
            self._ordering += 1
        terms, stream, config = self.terms[self._ordering], answer.stream, answer.config
        policy = terms.settings.policies.of(stream) if isinstance(stream, str) else None
        if policy is not None and policy.config == config:
            return
        if terms.next is not None:
            fields = {"config": (config, policy and policy.config)}
            what = f"answered under another configuration than {terms.owner} had taken the partition up with"
            raise Differs(self._difference(answer.record, answer.event_id, what, fields))
        promoted = None
        if isinstance(stream, str) and isinstance(config, str):
            promoted = terms.promoted(stream, config, self._promotions, place)
        if promoted is None:
            given = "no configuration" if policy is None else f"configuration {policy.config}"
            raise Unauditable(
                f"calibrated/{self._number} offset {answer.record.offset} (event {answer.event_id!r}) was answered "
                f"under configuration {config} of stream {stream!r}. TRUEUP_STREAMS gives it {given}, and neither the "
                "configurations topic nor FILE.audit.jsonl says what was in force: audit with the file that was; if "
                "it never changed, the record was altered"
            )
        insort(self.terms, promoted, key=lambda each: each.applied)
        self._ordering += 1

    def _check_copy(self, answer: _Answer) -> None:
        """Compare an answer that came again with the first, or with what the ledger says; rows of no fold are read."""
        value = self._batch.get(answer.applied)
        if value is None:
            told = self._again(answer.event_id)
            if told is None:
                what = "an answer to an event that is not in the ledger"
                raise Differs(self._difference(answer.record, answer.event_id, what))
            value = self._encoded(told)
        again, said = (b"", b"") if answer.record.value == value else self._alone(answer.record.value, value)
        if again != said:
            fields = self._values.compared(again, said)
            raise Differs(
                self._difference(answer.record, answer.event_id, "a copy that differs from the answer", fields)
            )
        self.checked.copies += 1

    def _before(self, answer: _Answer, room: int) -> list[_Input]:
        """Return the forecasts that stand before an answered one, which is then the first that waits."""
        waiting, found = self._unanswered, 0
        while True:
            while len(waiting) <= found:
                forecast = next(self._forecasts, None)
                if forecast is None or found > room:
                    what = f"no forecast of this event stands where 'applied' says, after {found} others at most {room}"
                    raise Differs(self._difference(answer.record, answer.event_id, what))
                if found >= LOOKAHEAD:
                    raise Unauditable(
                        f"forecasts/{self._number} has more than {LOOKAHEAD:,} unanswered records before offset "
                        f"{forecast.event.offset}"
                    )
                waiting.append(forecast)
            event = waiting[found].event
            if isinstance(event, Forecast) and event.event_id == answer.event_id and not waiting[found].refused:
                break
            found += 1
        if found > room:
            what = f"'applied' leaves room for {room} records since the answer before, {found} forecasts stand there"
            raise Differs(self._difference(answer.record, answer.event_id, what))
        return [waiting.popleft() for _ in range(found)]

    def _merged(self, forecasts: Sequence[_Input], outcomes: int) -> Iterator[Event]:
        """Yield forecasts and the next outcomes by rank, a forecast first."""
        at = 0
        if forecasts and outcomes > 0:
            self.checked.by_time += len(forecasts) + outcomes
        for _ in range(outcomes):
            outcome = next(self._outcomes, None)
            if outcome is None:
                break  # the answer that follows is at another place than it says
            while at < len(forecasts) and forecasts[at].rank <= outcome.rank:
                yield forecasts[at].event
                at += 1
            yield outcome.event
        for each in forecasts[at:]:
            yield each.event

    def _outcome(self, answer: _Answer) -> Event:
        outcome = next(self._outcomes, None)
        if outcome is None:
            raise Differs(
                self._difference(answer.record, answer.event_id, "'applied' counts more outcomes than there are")
            )
        return outcome.event

    def _tail(self) -> Iterator[list[Event]]:
        """Yield what follows the last answer, by record time: all but forecasts that wait for their answer."""
        forecasts, outcomes = self._open_forecasts(), self._outcomes
        forecast, outcome = next(forecasts, None), next(outcomes, None)
        events: list[Event] = []
        while forecast is not None or outcome is not None:
            if outcome is None or (forecast is not None and forecast.rank <= outcome.rank):
                assert forecast is not None  # noqa: S101 - for the type checker
                events.append(forecast.event)
                forecast = next(forecasts, None)
            elif self._beyond(outcome.event):
                break
            else:
                events.append(outcome.event)
                outcome = next(outcomes, None)
            if len(events) == BATCH_LIMIT:
                yield events
                events = []
        if events:
            yield events

    def _open_forecasts(self) -> Iterator[_Input]:
        """Yield what follows the last answered forecast, up to the first that waits for its answer."""
        unanswered = list(self._unanswered)
        self._unanswered.clear()
        for forecast in chain(unanswered, self._forecasts):
            event = forecast.event
            if not forecast.refused and self._needs_answer(event):
                if event.offset < self._committed[FORECASTS]:
                    what = f"offset {event.offset} of forecasts was acknowledged and has no answer"
                    raise Differs(OutputDifference(self._number, "calibrated", None, event.event_id, what))
                self.checked.waiting += 1
            elif not self.checked.waiting:
                yield forecast

    def _beyond(self, outcome: Event) -> bool:
        """Whether the workers are not known to have come as far as this outcome."""
        return bool(self.checked.waiting and self._joined.ended and outcome.offset >= self._committed[OUTCOMES])

    def _needs_answer(self, event: Event) -> TypeGuard[Forecast]:
        if not isinstance(event, Forecast):
            return False
        row = self._rows.get(keys.ledger(event.event_id))
        return row is None or ledger.decode(row).status == ledger.EARLY

    # -- the fold ----------------------------------------------------------------------------------------------------

    def _fold_under(self, events: Sequence[Event]) -> None:
        outputs, effects = self._applied(events)
        self._gone |= {
            key: row
            for key, value in effects.rows.items()
            if value is None and key[:1] == keys.LEDGER and (row := self._rows.get(key)) is not None
        }
        self._rows.write(effects.rows)
        self._batch.clear()
        for cause, output in outputs:
            if isinstance(output, Calibrated):
                if output.applied > self._issued:  # else it is a forecast's that came again
                    self._issued = output.applied
                    self._compare(output)
            elif isinstance(output, Resolved):
                identity = _Joined(output.event_id, output.revision)
                self._joined.derive(identity, Derived(output.key, self._encoded(output), cause))
            else:
                value, key = self._encoded(output), key_of(output, self.terms[self._folding].settings)
                self._letters.derive(self._letters.identity(value), Derived(key, value, (output.topic, output.offset)))
                self._derive_raw(output)
        if self._served and self._served[0].applied <= self._engine.fence.applied:
            answer = self._served[0]
            again = self._again(answer.event_id)
            raise Differs(self._answered_otherwise(answer, again))
        self._joined.read()
        self._letters.read()
        self.checked.forecasts += sum(effects.fates[:FORECAST_FATES])
        self.checked.outcomes += sum(effects.fates[FORECAST_FATES:INPUT_FATES])

    def _derive_raw(self, output: Rejected) -> None:
        answer = raw_answer(output, self.terms[self._folding].settings, self._number)
        if answer is not None:
            key, value, _, headers = answer
            derived = Derived(key, value, (output.topic, output.offset), tuple(headers))
            self._raws.derive(self._raws.identity(value), derived)

    def _applied(self, events: Sequence[Event]) -> tuple[list[tuple[tuple[int, int], Output]], Effects]:
        """Fold events, and return each output with the record that led to it: what matures belongs to no other."""
        self._engine.begin()
        made = [((_topic(event), event.offset), output) for event in events for output in self._engine.apply([event])]
        effects = self._engine.end()
        self._engine.checkpoint(effects)
        return made, effects

    def _compare(self, output: Calibrated) -> None:
        if not self._served or self._served[0].applied > output.applied:
            what = "the engine answers this forecast, and there is no answer"
            raise Differs(OutputDifference(self._number, "calibrated", None, output.event_id, what))
        answer = self._served.popleft()
        derived = self._encoded(output)
        if not self._values.same(answer.record.value, derived):
            if answer.applied != output.applied:
                raise Differs(self._answered_otherwise(answer, output))
            fields = self._values.compared(answer.record.value, derived)
            raise Differs(self._difference(answer.record, answer.event_id, "served and derived differ", fields))
        if answer.record.key != output.key:
            fields = {"key": (repr(answer.record.key), repr(output.key))}
            raise Differs(self._difference(answer.record, answer.event_id, "served under another key", fields))
        headers = () if output.carried is None else output.carried.headers
        if tuple(answer.record.headers) != headers:
            fields = {"headers": (repr(answer.record.headers), repr(headers))}
            raise Differs(self._difference(answer.record, answer.event_id, "served with other headers", fields))
        self.checked.calibrated += 1

    def _answered_otherwise(self, answer: _Answer, derived: Output | None) -> OutputDifference:
        fields = {} if derived is None else self._values.compared(answer.record.value, self._encoded(derived))
        what = "the engine makes no such answer at this place"
        return self._difference(answer.record, answer.event_id, what, fields)

    def _derivation(self) -> "Derivation":
        return Derivation(
            self.terms[self._folding],
            replace(self.checked),
            self._issued,
            self._next_answer_at,
            self._joined.unsettled(),
            self._letters.unsettled(),
            self._raws.unsettled(),
            self._gone,
            self._rows,
        )

    # -- the end -----------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Judge what has no counterpart: while workers run, what is on its way may not be written yet."""
        checked = self.checked
        for matcher in (self._joined, self._letters, self._raws):
            for identity, derived in matcher.pending.items():
                topic, offset = derived.cause
                if offset < self._committed[topic]:
                    raise Differs(matcher.missing(identity))
                checked.unsettled += 1
            for record in matcher.rest():
                difference = matcher.undone(record)
                if difference.fields or not checked.waiting or checked.unsettled >= UNSETTLED:
                    raise Differs(difference)
                checked.unsettled += 1
            checked.copies += matcher.copies
        checked.resolved, checked.dead_letters = self._joined.matched, self._letters.matched
        checked.raw_answers = self._raws.matched

    # -- records -----------------------------------------------------------------------------------------------------

    def _inputs(self, records: Iterator[KafkaRecord], topic: int) -> Iterator[_Input]:
        """Decode records as they are asked for, but for those that their source says to pass over."""
        for record in records:
            found = self._input(record, topic)
            if not isinstance(found.event, Passed):
                yield found

    def _input(self, record: KafkaRecord, topic: int) -> _Input:
        """Decode a record under what was in force when it was applied."""
        at, terms = self._reading[topic], self._recorded
        while at + 1 < len(terms) and terms[at + 1].begins(topic, record.offset):
            at = self._reading[topic] = at + 1
        decoder = self._decoders[at]
        if decoder.asks_registry:
            asyncio.run(decoder.load([(topic, record)]))
        decode = decoder.outcome if topic else decoder.forecast
        (event,) = named([decode(record.offset, record.key, record.value, max(record.timestamp, 0), record.headers)])
        refused = isinstance(event, Forecast) and self._refusing.refuses(event, terms[at].settings.policies)
        return _Input((terms[at].claim, record.timestamp), event, refused)

    def _encoded(self, output: Output) -> bytes:
        return encode(output, self.terms[self._folding].settings, self._number)[2]

    def _kept(self, key: bytes) -> bytes | None:
        row = self._rows.get(key)
        return self._gone.get(key) if row is None else row

    def _again(self, event_id: str) -> Calibrated | None:
        """Return the ledger's answer to an event."""
        return next((output for output in self._ledger.told(event_id) if isinstance(output, Calibrated)), None)

    def _resolved_again(self, joined: _Joined) -> bytes | None:
        for output in self._ledger.told(joined.event_id):
            if isinstance(output, Resolved) and output.revision == joined.revision:
                return self._encoded(output)
        return None

    def _alone(self, *values: bytes | None) -> list[bytes]:
        """Return two answers in JSON without what they carry, which is their records'; in order if one has a schema."""
        option = orjson.OPT_SORT_KEYS if any(value and value[0] == 0 for value in values) else 0
        alone = []
        for value in values:
            try:
                answer = self._values.fields(value or b"")
                answer.pop("carried", None)
                alone.append(orjson.dumps(answer, option=option))
            except (ValueError, TypeError, AttributeError):
                alone.append(value or b"")
        return alone

    def _difference(
        self, record: KafkaRecord, event_id: str | None, what: str, fields: dict[str, tuple[Any, Any]] | None = None
    ) -> OutputDifference:
        return OutputDifference(self._number, "calibrated", record.offset, event_id, what, fields or {})


def _topic(event: Event) -> int:
    if isinstance(event, Forecast):
        return FORECASTS
    return OUTCOMES if isinstance(event, Outcome) else event.topic


def _joined(record: dict[str, Any]) -> _Joined:
    event_id, revision = event_name(record), record["revision"]
    if not isinstance(event_id, str) or type(revision) is not int:
        raise TypeError("a resolved record has an event_id and a revision")
    return _Joined(event_id, revision)


def _place(letter: dict[str, Any]) -> tuple[str, int, int]:
    return letter["topic"], letter["partition"], letter["offset"]


def _raw_place(answer: dict[str, Any]) -> tuple[str, int, int]:
    """Return the place of the dead letter that a raw answer names."""
    return _place(answer["dead_letter"])
