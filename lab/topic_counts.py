"""Count what the output topics hold, independently of the worker that wrote them."""

import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import orjson

from lab.reliability import loss
from lab.scrape import Fates, ScrapedSamples
from state.arrays import Floats
from state.coverage import FEWEST, LEAST
from state.scoring.warm_up import LONGEST, OF_SEGMENT, differs
from streams.config.settings import Settings
from streams.kafka.whole_topics import batches
from streams.records.output_values import OutputValues

#: The worker adds up its scores in another order, so they may differ in the last digits of a float.
ROUNDING: Final = 1e-6


@dataclass
class TopicCounts:
    """The content of the output topics.

    Attributes
    ----------
    answers
        The first ``calibrated`` record of each event.
    repeated
        Number of further ``calibrated`` records that equal the first one, byte for byte.
    disagreeing
        Events whose ``calibrated`` records differ.
    resolved
        For each event raw and served forecast and the last label, from the ``resolved`` record of its last revision.
    revisions
        For each event whose label has changed, the number of changes.
    dead
        Number of dead letters, each input record counted once.
    learnt
        For each resolved event its partition, how many outcomes that had learnt before the answer, and how many with
        the event's own.
    """

    answers: dict[str, bytes] = field(default_factory=dict)
    repeated: int = 0
    disagreeing: set[str] = field(default_factory=set)
    resolved: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    dead: set[tuple[str, int, int]] = field(default_factory=set)
    learnt: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    _answered: dict[int, list[str]] = field(default_factory=dict)
    _outcomes: Counter[int] = field(default_factory=Counter)

    def calibrated_record(self, value: bytes, partition: int = 0) -> None:
        """Count a record of ``calibrated``."""
        record = orjson.loads(value)
        event_id = record["event_id"]
        first = self.answers.setdefault(event_id, value)
        if first is not value:
            if first == value:
                self.repeated += 1
            else:
                self.disagreeing.add(event_id)
        else:
            self._answered.setdefault(partition, []).append(event_id)

    def resolved_record(self, value: bytes, partition: int = 0) -> None:
        """Count a record of ``resolved``."""
        record = orjson.loads(value)
        event_id, revision = record["event_id"], record["revision"]
        if event_id in self.resolved and revision <= self.revisions.get(event_id, 0):
            return
        if event_id not in self.resolved:
            self._outcomes[partition] += 1
            self.learnt[event_id] = partition, record["version"], self._outcomes[partition]
        self.resolved[event_id] = record["raw"], record["p"], float(record["y"])
        if revision:
            self.revisions[event_id] = revision

    def dead_letter(self, value: bytes, _: int = 0) -> None:
        """Count a record of ``dead-letters``."""
        record = orjson.loads(value)
        self.dead.add((record["topic"], record["partition"], record["offset"]))

    def scored(self, but: Container[str] = ()) -> tuple[Floats, Floats, Floats]:
        """Return raw forecasts, served forecasts and outcomes of the resolved events but for some, [n] each."""
        found = [each for event, each in self.resolved.items() if event not in but]
        raw, p, y = np.array(found, dtype=np.float64).reshape(-1, 3).T
        return raw, p, y

    def warm_up(self, *, matures: bool = False) -> set[str]:
        """Return the events answered in the warm-up of their partition, see `state.served.Served.warms`.

        Most forecasts must get an outcome. ``matures`` says that silence counts as one; else the warm-up lasts at least
        until `state.coverage` has the labels to say so.
        """
        found = set[str]()
        for partition, events in self._answered.items():
            later = set(events[LEAST:])
            labels = [own for event, (of, _, own) in self.learnt.items() if of == partition and event in later]
            covered = 0.0 if matures else labels[FEWEST - 1] if len(labels) >= FEWEST else math.inf
            for event in events:
                record = orjson.loads(self.answers[event])
                version = record["version"]
                other = version > 0 and differs(record["raw"], record["p"])
                if record["calibrator"] == "identity" or (version >= covered and (other or version >= LONGEST)):
                    break
                found.add(event)
        return found

    def counts(self, events: Iterable[str], warm_up: Container[str]) -> bool:
        """Whether one of a segment's events counts in its scores, see `state.scoring.warm_up.SegmentWarmUp`.

        ``events`` are resolved, in the order of ``resolved``; ``warm_up`` are those of the stream's.
        """
        warming = Counter[int]()
        since: dict[int, int] = {}
        for event in events:
            if event in warm_up:
                continue
            partition, before, own = self.learnt[event]
            if partition in since:
                if before >= since[partition]:
                    return True
                continue
            warming[partition] += 1
            if warming[partition] == OF_SEGMENT:
                since[partition] = own
        return False


async def read(settings: Settings) -> TopicCounts:
    """Read the three output topics from their first record to their last.

    Raises
    ------
    RuntimeError
        If records were deleted before they could be counted.
    """
    held = TopicCounts()
    noted = {
        settings.calibrated: held.calibrated_record,
        settings.resolved: held.resolved_record,
        settings.dead_letters: held.dead_letter,
    }
    values = OutputValues(settings.registry)
    async for topic, records in batches(settings, list(noted), whole=True):
        note = noted[topic]
        await values.load(record.value for record in records)
        for record in records:
            note(values.json(record.value), record.partition)
    return held


def problems(
    fates: Fates, sent: Mapping[str, int], held: TopicCounts, flights: Mapping[str, tuple[float, float]]
) -> list[str]:
    """Return the counts that do not agree, one sentence each; an empty list if all agree.

    Parameters
    ----------
    fates
        Counts of the worker's metrics.
    sent
        Messages of ``forecasts`` and ``outcomes`` that were acknowledged to the player.
    held
        Content of the output topics.
    flights
        For each event played, the forecast and the outcome, NaN for none.
    """
    strange = sum(event not in flights or flights[event] != (raw, y) for event, (raw, _, y) in held.resolved.items())
    left = fates.resolved + fates.pending + fates.expired_forecast
    equal: list[tuple[str, int, str, int]] = [
        ("forecasts sent", sent["forecasts"], "issued, duplicate or dead", fates.forecasts),
        ("outcomes sent", sent["outcomes"], "known by what became of them", fates.outcomes),
        ("issued", fates.issued, "resolved, pending or expired", left),
        ("issued", fates.issued, "events in the topic of answers", len(held.answers)),
        ("resolved", fates.resolved, "events in the topic of resolved events", len(held.resolved)),
        ("dead", fates.forecast_dead + fates.outcome_dead, "dead letters", len(held.dead)),
        ("events with answers that disagree", len(held.disagreeing), "expected", 0),
        ("events played and not answered", len(flights.keys() - held.answers.keys()), "expected", 0),
        ("events joined with another's outcome", strange, "expected", 0),
    ]  # fmt: skip
    return [f"{what}: {n:,}, but {other}: {m:,}" for what, n, other, m in equal if n != m]


def disagreements(reading: ScrapedSamples, held: TopicCounts, stream: str, *, matures: bool = False) -> list[str]:
    """Return the differences between the scores of ``/metrics`` and of the records, one sentence each.

    Events of the warm-up are in no score; they are counted apart.
    """
    raw, p, y = held.scored(but=held.warm_up(matures=matures))
    found = []
    for name, n in (("resolved", len(y)), ("warm_up_events", len(held.resolved) - len(y))):
        if (shown := reading.value(name, {"stream": stream})) != n and held.resolved:
            found.append(f"{name}: {shown:,.0f} by /metrics, {n:,} by the records")
    for kind, scores in (("raw", loss(raw, y)), ("calibrated", loss(p, y))):
        for name, value in scores._asdict().items():
            told = reading.score(name, stream, kind)
            if len(y) and not abs(told - value) <= ROUNDING:
                found.append(f"{name} of {kind} forecasts: {told:.6f} by /metrics, {value:.6f} by the records")
    return found
