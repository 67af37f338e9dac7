"""Reads the output topics of a run: the answer to each event, and its last label."""

from dataclasses import dataclass, field

import numpy as np
import orjson

from state.arrays import Floats
from streams.config.settings import Settings
from streams.kafka.whole_topics import batches
from streams.records.output_values import OutputValues


@dataclass
class OutputRecords:
    """The content of ``calibrated`` and ``resolved``."""

    #: The answer to each event.
    served: dict[str, float] = field(default_factory=dict)
    #: Name of the calibrator that answered first.
    calibrator: str | None = None
    #: For each event, the raw forecast, the served forecast and the last label, from the ``resolved`` record of its
    #: last revision.
    resolved: dict[str, tuple[float, float, float]] = field(default_factory=dict)

    _revisions: dict[str, int] = field(default_factory=dict)

    def calibrated_record(self, value: bytes) -> None:
        """Read a record of ``calibrated``."""
        record = orjson.loads(value)
        self.served.setdefault(record["event_id"], record["p"])
        self.calibrator = self.calibrator or record["calibrator"]

    def resolved_record(self, value: bytes) -> None:
        """Read a record of ``resolved``."""
        record = orjson.loads(value)
        event_id, revision = record["event_id"], record["revision"]
        if revision >= self._revisions.get(event_id, 0):
            self.resolved[event_id] = record["raw"], record["p"], float(record["y"])
            self._revisions[event_id] = revision

    def scored(self) -> tuple[Floats, Floats, Floats]:
        """Return the raw forecasts, served forecasts and outcomes of the resolved events, [n] each."""
        raw, p, y = np.array(list(self.resolved.values()), dtype=np.float64).reshape(-1, 3).T
        return raw, p, y


async def read(settings: Settings) -> OutputRecords:
    """Read both topics from their first record to their last.

    Raises RuntimeError if records were deleted before they could be read.
    """
    held = OutputRecords()
    noted = {settings.calibrated: held.calibrated_record, settings.resolved: held.resolved_record}
    values = OutputValues(settings.registry)
    async for topic, records in batches(settings, list(noted), whole=True):
        await values.load(record.value for record in records)
        for record in records:
            noted[topic](values.json(record.value))
    return held
