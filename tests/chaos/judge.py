"""The judge: from what the topics hold alone, says what was lost, what was doubled, and which answers differ.

Two ways, which share no code: the pure engine folds the inputs in the order of the journal, and its bytes must be
those of the topics; and sets of event ids and counts must agree, which needs no engine.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import orjson

from state import kinds
from state.engine import BATCH_LIMIT
from state.events import Forecast
from state.fence import (
    EARLY_JOINED,
    FORECAST_DUPLICATE,
    FORECAST_FATES,
    IMPLIED,
    INPUT_FATES,
    ISSUED,
    MATURED,
    RESOLVED,
    Fence,
)
from state.journal import Entry
from streams.config.settings import Settings
from streams.records.decoding import Decoder
from tests.e2e.world import BESIDE, Read, World, folded, identity, journaled

OUTPUTS = ("calibrated", "resolved", "dead-letters")


@dataclass
class Recorded:
    """What the topics hold of a partition.

    Attributes
    ----------
    inputs
        Forecasts and outcomes, in order.
    entries
        The journal, in order.
    rows
        The state as the changelog holds it.
    outputs
        Values by topic label and identity: every distinct one, and how many copies there are of it.
    """

    partition: int
    inputs: tuple[list[Read], list[Read]] = field(default_factory=lambda: ([], []))
    entries: list[Entry] = field(default_factory=list)
    rows: dict[bytes, bytes] = field(default_factory=dict)
    outputs: dict[str, dict[str, dict[bytes, int]]] = field(default_factory=lambda: {label: {} for label in OUTPUTS})

    @classmethod
    def of(cls, world: World, partition: int) -> Self:
        """Read it."""
        found, inputs = cls(partition), (world.settings.forecasts, world.settings.outcomes)
        world.visit("forecasts", found.inputs[0].append, partition)
        world.visit("outcomes", found.inputs[1].append, partition)
        world.visit("changelog", found._take, partition)
        for label in OUTPUTS:

            def take(record: Read, label: str = label) -> None:
                assert record.value is not None
                if label == "dead-letters" and orjson.loads(record.value)["topic"] not in inputs:
                    return  # of an intake or a router
                copies = found.outputs[label].setdefault(identity(label, record.value), {})
                copies[record.value] = copies.get(record.value, 0) + 1

            world.visit(label, take, partition)
        return found

    def _take(self, record: Read) -> None:
        assert record.key is not None
        self.entries += journaled([record]).get(self.partition, [])
        if record.key[:1] in BESIDE:
            return
        if record.value is None:
            self.rows.pop(record.key, None)
        else:
            self.rows[record.key] = record.value

    @property
    def fence(self) -> Fence:
        """What the rows say that was applied."""
        row = self.rows.get(kinds.FENCE.key())
        return Fence() if row is None else Fence.decode(row)


@dataclass
class Verdict:
    """What was found; verdicts of partitions add up.

    Attributes
    ----------
    records, events
        Input records, and forecasts among them that were issued.
    lost
        Records without the effect, the answer or the row they should have had.
    doubled
        Effects, answers or rows that should not be there.
    differing_answers
        Events that were answered in two ways, or in another than the engine's.
    copies
        Records of the outputs that were sent once more after a crash, alike: allowed.
    findings
        A sentence for each of the first of what is wrong.
    """

    records: int = 0
    events: int = 0
    lost: int = 0
    doubled: int = 0
    differing_answers: int = 0
    copies: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing was lost or doubled and no answer differs."""
        return not (self.lost or self.doubled or self.differing_answers)

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(
            self.records + other.records,
            self.events + other.events,
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.differing_answers + other.differing_answers,
            self.copies + other.copies,
            self.findings + other.findings,
        )


class _Findings:
    """Sets of what is wrong, so that nothing found in two ways counts twice."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self.lost: set[object] = set()
        self.doubled: set[object] = set()
        self.differing: set[object] = set()
        self.told: list[str] = []

    def add(self, place: set[object], name: object, sentence: str) -> None:
        if name not in place:
            place.add(name)
            if len(self.told) < 10:
                self.told.append(f"partition {self._partition}: {sentence}")


def judge(recorded: Recorded, settings: Settings) -> Verdict:
    """Judge what the topics hold of a partition."""
    found = _Findings(recorded.partition)
    _compare_entries(recorded, found)
    _compare_with_the_engine(recorded, settings, found)
    _count(recorded, settings, found)
    fence = recorded.fence
    given = sum(sum(values.values()) - 1 for each in recorded.outputs.values() for values in each.values())
    copies = given - fence.fates[FORECAST_DUPLICATE]  # those were asked for
    return Verdict(
        sum(map(len, recorded.inputs)),
        fence.fates[ISSUED],
        len(found.lost),
        len(found.doubled),
        len(found.differing),
        copies,
        found.told,
    )


def judge_all(world: World) -> Verdict:
    """Judge every partition, one after another: only one is in memory."""
    total = Verdict()
    for partition in range(world.partitions):
        total += judge(Recorded.of(world, partition), world.settings)
        print(f"judged partition {partition}", file=sys.stderr, flush=True)
    return total


def _compare_entries(recorded: Recorded, found: _Findings) -> None:
    """Every batch must go on where the one before it ended; a zombie's does not."""
    ends = 0, 0
    for entry in recorded.entries:
        spans = [end - at for end, at in zip(entry.ends, entry.begins, strict=True)]
        if entry.begins != ends:
            said = f"entry {entry.number} begins at {entry.begins}, the one before ends at {ends}: a second writer"
            found.add(found.doubled, ("entry", entry.number), said)
        elif spans != [entry.topics.count(0), entry.topics.count(1)] or not 0 < sum(spans) <= BATCH_LIMIT:
            found.add(found.lost, ("entry", entry.number), f"entry {entry.number} has {len(entry.topics)} of {spans}")
        ends = entry.ends
    if ends != tuple(recorded.fence.next):
        found.add(found.lost, "entries", f"the journal ends at {ends}, the rows at {recorded.fence.next}")


def _compare_with_the_engine(recorded: Recorded, settings: Settings, found: _Findings) -> None:
    following = [
        entry
        for entry, before in zip(recorded.entries, [None, *recorded.entries], strict=False)
        if before is None or entry.begins == before.ends
    ]
    wanted_rows, wanted = folded(lambda _: settings, recorded.partition, recorded.inputs, following)
    for key in wanted_rows.keys() | recorded.rows.keys():
        if recorded.rows.get(key) == wanted_rows.get(key):
            continue
        if key not in recorded.rows:
            found.add(found.lost, key, f"row {key!r} is missing")
        else:
            found.add(found.doubled, key, f"row {key!r} is not the engine's")
    for label, held in recorded.outputs.items():
        values = wanted.get(label, {})
        for name in values.keys() | held.keys():
            if name not in held:
                found.add(found.lost, (label, name), f"nothing in {label} for {name}")
            elif name not in values:
                found.add(found.doubled, (label, name), f"{label} has {name}, which nobody asked for")
            elif held[name].keys() != {values[name]}:
                found.add(found.differing, (label, name), f"{label} says {list(held[name])[:2]} of {name}")


def _count(recorded: Recorded, settings: Settings, found: _Findings) -> None:
    """Find what sets and sums alone can tell."""
    fence = recorded.fence
    for topic, label in enumerate(("forecasts", "outcomes")):
        for record in recorded.inputs[topic][fence.next[topic] :]:
            found.add(found.lost, (topic, record.offset), f"offset {record.offset} of {label} was never applied")
    of_forecasts, of_outcomes = fence.fates[:FORECAST_FATES], fence.fates[FORECAST_FATES:INPUT_FATES]
    for label, fates, applied in (("forecasts", of_forecasts, 0), ("outcomes", of_outcomes, 1)):
        if sum(fates) != fence.next[applied]:
            found.add(found.lost, ("fates", label), f"the fates of {label} are {sum(fates)} of {fence.next[applied]}")
    for name in _readable(recorded, settings):
        if name not in recorded.outputs["calibrated"]:
            found.add(found.lost, ("calibrated", name), f"forecast {name} has no answer")
    for label in ("calibrated", "resolved"):
        for name, values in recorded.outputs[label].items():
            if len(values) > 1:
                found.add(found.differing, (label, name), f"{label} has {len(values)} versions of {name}")
    # Every label counted once: in the fates, in the scores or the warm-up, and one event each in the topic, its
    # revisions apart.
    told = sum(name.endswith(" 0") for name in recorded.outputs["resolved"])
    learnt = sum([fence.fates[fate] for fate in (RESOLVED, EARLY_JOINED, MATURED, IMPLIED)])
    counts = {"the fates": learnt, "the scores and the warm-up": sum(_scored(recorded))}
    for place, counted in counts.items():
        for n in range(abs(counted - told)):
            place_found = found.doubled if counted > told else found.lost
            found.add(place_found, (place, n), f"{place} count {counted} outcomes, the topic has {told}")


def _readable(recorded: Recorded, settings: Settings) -> Iterator[str]:
    decoder = Decoder(settings.policies, settings.limits)
    for record in recorded.inputs[0]:
        event = decoder.forecast(record.offset, record.key, record.value, record.ts)
        if isinstance(event, Forecast):
            yield event.event_id


def _scored(recorded: Recorded) -> Iterator[int]:
    for key, row in recorded.rows.items():
        if key.startswith(kinds.SCORES.letter):
            windows = recorded.rows.get(kinds.WINDOWS.key(key[len(kinds.SCORES.letter) :].decode()))
            history = kinds.history(row, windows)
            yield history.total.n + history.warm_up.n
