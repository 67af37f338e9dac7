"""Count what the output topics hold, independently of the worker that wrote them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import orjson

from lab.reliability import loss
from lab.scrape import Fates, ScrapedSamples
from state.arrays import Floats
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
    """

    answers: dict[str, bytes] = field(default_factory=dict)
    repeated: int = 0
    disagreeing: set[str] = field(default_factory=set)
    resolved: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    dead: set[tuple[str, int, int]] = field(default_factory=set)

    def calibrated_record(self, value: bytes) -> None:
        """Count a record of ``calibrated``."""
        event_id = orjson.loads(value)["event_id"]
        first = self.answers.setdefault(event_id, value)
        if first is not value:
            if first == value:
                self.repeated += 1
            else:
                self.disagreeing.add(event_id)

    def resolved_record(self, value: bytes) -> None:
        """Count a record of ``resolved``."""
        record = orjson.loads(value)
        event_id, revision = record["event_id"], record["revision"]
        if event_id in self.resolved and revision <= self.revisions.get(event_id, 0):
            return
        self.resolved[event_id] = record["raw"], record["p"], float(record["y"])
        if revision:
            self.revisions[event_id] = revision

    def dead_letter(self, value: bytes) -> None:
        """Count a record of ``dead-letters``."""
        record = orjson.loads(value)
        self.dead.add((record["topic"], record["partition"], record["offset"]))

    def scored(self) -> tuple[Floats, Floats, Floats]:
        """Return raw forecasts, served forecasts and outcomes of the resolved events, [n] each."""
        raw, p, y = np.array(list(self.resolved.values()), dtype=np.float64).reshape(-1, 3).T
        return raw, p, y


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
            note(values.json(record.value))
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


def disagreements(reading: ScrapedSamples, held: TopicCounts, stream: str) -> list[str]:
    """Return the differences between the scores of ``/metrics`` and of the records, one sentence each."""
    raw, p, y = held.scored()
    found = []
    for kind, scores in (("raw", loss(raw, y)), ("calibrated", loss(p, y))):
        for name, value in scores._asdict().items():
            told = reading.score(name, stream, kind)
            if len(y) and not abs(told - value) <= ROUNDING:
                found.append(f"{name} of {kind} forecasts: {told:.6f} by /metrics, {value:.6f} by the records")
    return found
