"""Derives every answer of a partition again from its inputs, and compares the result with the outputs.

The engine folds the inputs in the order of the journal, each entry under the configuration that it names. A worker does
the same after a crash; an audit begins with the first record. An entry is in the journal only when its outputs are
acknowledged, so no output may be missing. Records after the last entry are not judged yet. Nor is what the clock has
caused since then: the next checkpoint writes its entry.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from replay.audit.along import Along, FoldedPart, Reached
from replay.audit.output_matcher import Derived, Matcher, Settled
from replay.audit.rows import RowStore, fence_of
from replay.audit.terms import Configurations
from state import kinds
from state.engine import Partition
from state.events import Calibrated, Output, Resolved
from state.fence import FORECAST_FATES, INPUT_FATES, OUTCOME_ERASED
from state.ledger import LIFE, MATURES
from state.quick import new
from streams.config.in_force import InForce
from streams.config.settings import Settings
from streams.records.decoding import Decoder
from streams.records.encoding import answered_raw, letter, raw_answer
from streams.records.merge import KafkaRecord
from streams.records.output_json import encode_calibrated, encode_resolved, event_name
from streams.records.output_values import OutputValues
from streams.records.refused import named

#: The topics of an audit: the inputs, the journal with their order, and the outputs.
LABELS: Final = ("forecasts", "outcomes", "journal", "calibrated", "resolved", "dead-letters")
INPUTS, OUTPUTS = LABELS[:2], LABELS[3:]


@dataclass
class Checked:
    """Counts of compared records."""

    #: Input records folded.
    forecasts: int = 0
    outcomes: int = 0
    #: Records of the outcomes topic that erased an event, and outcomes of erased events.
    erased: int = 0
    #: Output records that equal the derived ones.
    calibrated: int = 0
    resolved: int = 0
    dead_letters: int = 0
    #: Dead forecasts that were answered with their raw score, as derived.
    raw_answers: int = 0
    #: Repeated output records that are the same byte for byte.
    copies: int = 0
    #: Input records after the last journal entry, which are not judged yet.
    waiting: int = 0
    #: Output records at the end that may come from those inputs.
    unsettled: int = 0


class Skips(NamedTuple):
    """Skipped records, from the dead letters up to an offset: topic, partition, offset and reason of each."""

    next: int = 0
    found: tuple[tuple[str, int, int, str], ...] = ()


@dataclass(frozen=True)
class Derivation:
    """The progress of an audit, from which the next can go on."""

    #: The derived state.
    rows: RowStore
    #: Progress in each of `OUTPUTS`.
    outputs: tuple[Settled, ...] = (Settled(0),) * len(OUTPUTS)
    #: Progress in the journal.
    reached: Reached = field(default_factory=Reached)
    #: Hash of the configuration of the last records; empty if there are none.
    config: bytes = b""
    #: Counts of compared records.
    checked: Checked = field(default_factory=Checked)
    #: Records that were skipped.
    skips: Skips = field(default_factory=Skips)

    @property
    def begins(self) -> dict[str, int]:
        """The next offset of each of `LABELS`."""
        offsets = *fence_of(self.rows).next, self.reached.journal, *(each.next for each in self.outputs)
        return dict(zip(LABELS, offsets, strict=True))


class _Joined(NamedTuple):
    """Identity of a ``resolved`` record: an event, and how often its label had changed."""

    event_id: str
    revision: int

    def __str__(self) -> str:
        return f"{self.event_id} (revision {self.revision})" if self.revision else self.event_id


class Rederivation:
    """Derives a partition's answers again and compares them with those in the topics.

    ``topics``: the records of the topics of `LABELS`, each from the end of ``since``.
    ``since``: progress of an earlier audit, or none; its rows are changed.
    """

    def __init__(
        self,
        partition: int,
        configurations: Configurations,
        settings: Settings,
        topics: Sequence[Iterator[KafkaRecord]],
        since: Derivation,
    ) -> None:
        self.checked = replace(since.checked)
        #: The configurations that were in force for the records folded so far, in order.
        self.terms: list[InForce] = []
        #: The progress for the next audit, when all entries are folded.
        self.derivation = since
        self._number = partition
        self._configurations = configurations
        self._since = since
        self._config = since.config
        forecasts, outcomes, journal, *outputs = topics
        place = f"{settings.journal}/{partition}"
        fence = fence_of(since.rows)
        inputs, order = (forecasts, outcomes), since.reached.order
        ends = configurations.ends
        self._along = Along(place, partition, INPUTS, journal, inputs, fence.next, order, fence.applied, ends)
        own, values = settings.inputs, OutputValues(settings.registry)

        def elsewhere(identity: Any) -> bool:  # noqa: ANN401 - of the topic's kind
            return type(identity) is tuple and identity[0] not in own

        self._matchers = {
            label: Matcher(partition, label, records, identify, values, elsewhere, settled)
            for (label, identify), records, settled in zip(IDENTIFY.items(), outputs, since.outputs, strict=True)
        }

    @property
    def unable(self) -> str:
        """Why the audit ended before the last entry of the journal; empty if it did not."""
        return self._configurations.unable

    def run(self) -> Iterator[int]:
        """Fold and compare to the end. Yields how many input records each step has folded.

        Raises Differs with the first difference.
        Raises Unauditable if the topics do not hold what is needed.
        """
        since = self._since
        for part, engine in self._along.folded(since.rows, self._under):
            self._fold(part, engine)
            yield len(part.records)
        self._settle_outputs()
        outputs = tuple(each.settled() for each in self._matchers.values())
        reached = self._along.reached(since.reached.journal)
        checked = replace(self.checked)
        self.derivation = Derivation(since.rows, outputs, reached, self._config, checked, since.skips)
        self._judge_rest()

    def _under(self, config: bytes) -> Partition:
        """Return an engine that goes on under the configuration with this hash."""
        under = self._settings = self._configurations.under(config)
        self._decoder = Decoder(under.policies, under.limits, under.direct, under.carry_headers)
        if config != self._config:
            self.terms.append(self._configurations.taken_up(config, fence_of(self._since.rows)))
        self._config = config
        return Partition(under.policies, self._since.rows.get)

    def _fold(self, part: FoldedPart, engine: Partition) -> None:
        """Fold records as a worker does, and compare the outputs."""
        entry, records, _ = part
        if self._decoder.asks_registry:
            asyncio.run(self._decoder.load(records))
        outputs = engine.tick(entry.tick) if entry.tick else engine.apply(named(self._decoder.events(records)))
        fates = engine.end().fates
        self.checked.forecasts += sum(fates[:FORECAST_FATES])
        self.checked.outcomes += sum(fates[FORECAST_FATES:INPUT_FATES])
        self.checked.erased += fates[OUTCOME_ERASED]
        made: dict[str, list[Derived]] = {label: [] for label in OUTPUTS}
        for output in outputs:
            self._derive(output, made)
        for label, derived in made.items():
            self._matchers[label].meet(derived)

    def _derive(self, output: Output, made: dict[str, list[Derived]]) -> None:
        if isinstance(output, Calibrated):
            headers = () if output.carried is None else tuple(output.carried.headers)
            derived = new(Derived, (output.event_id, output.key, encode_calibrated(output), headers))
            made["calibrated"].append(derived)
        elif isinstance(output, Resolved):
            headers = () if output.carried is None else tuple(output.carried.headers)
            identity = new(_Joined, (output.event_id, output.revision))
            made["resolved"].append(new(Derived, (identity, output.key, encode_resolved(output), headers)))
        else:
            topic = self._settings.inputs[output.topic]
            place = topic, self._number, output.offset
            key, value, *_ = letter(output, topic, self._number, self._settings.limits)
            made["dead-letters"].append(Derived(place, key, value))
            if (forecast := answered_raw(output, self._settings)) is not None:
                key, value, _, carried = raw_answer(output, forecast, topic, self._number, None)
                made["calibrated"].append(Derived(place, key, value, tuple(carried)))
                self.checked.raw_answers += 1

    def _settle_outputs(self) -> None:
        """Update the counts and the progress of the outputs."""
        calibrated, self.checked.resolved, self.checked.dead_letters = (
            each.matched for each in self._matchers.values()
        )
        self.checked.calibrated = calibrated - self.checked.raw_answers
        self.checked.copies = sum(each.copies for each in self._matchers.values())

    def _judge_rest(self) -> None:
        """Count the records after the last entry.

        If no inputs follow that entry, the outputs after it may only be copies, and what the clock has since made due.
        """
        self.checked.waiting = sum(1 for _ in self._along.rest())
        whole = not (self.checked.waiting or self.unable)
        for matcher in self._matchers.values():
            self.checked.unsettled += matcher.rest(whole=whole, due=self._due)
        self._settle_outputs()

    def _due(self, identity: Any) -> bool:  # noqa: ANN401 - of the topic's kind
        """Whether the event of a ``resolved`` record has still to mature: the clock may have come to it since."""
        row = self._since.rows.get(kinds.LEDGER.key(identity.event_id)) if type(identity) is _Joined else None
        return row is not None and LIFE[kinds.LEDGER.decode(row).status][MATURES] != "stay"


def _joined(record: dict[str, Any]) -> _Joined:
    event_id, revision = event_name(record), record["revision"]
    if not isinstance(event_id, str) or type(revision) is not int:
        raise TypeError("a resolved record needs an event_id and a revision")
    return _Joined(event_id, revision)


def _place(letter: dict[str, Any]) -> tuple[str, int, int]:
    return letter["topic"], letter["partition"], letter["offset"]


def _answer(answer: dict[str, Any]) -> Any:  # noqa: ANN401 - an event, or a place
    """Return the event of an answer; for a raw answer, the place of the dead letter that it names."""
    if answer.get("calibrated") is False:
        return _place(answer["dead_letter"])
    event_id = event_name(answer)
    if not isinstance(event_id, str):
        raise TypeError("an answer needs an event_id")
    return event_id


#: Returns the identity of a record, for each of `OUTPUTS`.
IDENTIFY: Final[Mapping[str, Callable[[dict[str, Any]], Any]]] = {
    "calibrated": _answer,
    "resolved": _joined,
    "dead-letters": _place,
}
