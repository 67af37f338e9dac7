"""The result of replaying one partition."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replay.column_file import type_of
from state.arrays import Floats
from state.banding import Thresholds
from state.calibrators.carried import Held
from state.fence import FATES
from state.scoring.bias import Bias
from state.scoring.pair_scores import PairScores
from state.scoring.segment_pairs import SegmentPairScores
from state.scoring.vector_history import VectorHistory
from state.scoring.weighted import Weighted
from state.segments import Dictionary
from streams.metrics.functions import Part

#: Stands in place of a segment's slot, for the figures of all events.
WHOLE: Final = -1
#: Number of losses of an event of classes. An event of a number has fewer.
LOSSES: Final = 2


class Look(NamedTuple):
    """A calibrator's error and bound at one moment."""

    #: When the last outcome before it was resolved, ms.
    time: int
    stream: str
    #: Number of the calibrator.
    contender: int
    #: Outcomes learnt.
    learnt: int
    #: Error and bound, see `state.calibrators.base.Recalibrator`.
    error: float | None
    bound: float | None


@dataclass
class PartitionResult:
    """The result of replaying one partition. Data of single records are in `replay.column_file.COLUMNS`."""

    #: Directory of the columns.
    directory: Path
    #: Names of streams, by their number in the columns.
    streams: list[str] = field(default_factory=list)
    #: Counts of records, by `state.fence.FATES`.
    fates: list[int] = field(default_factory=lambda: [0] * len(FATES))
    #: Forecasts of probabilities that expired, by stream.
    expired: dict[str, int] = field(default_factory=dict)
    #: Records applied.
    records: int = 0
    #: Events whose outcome taught nothing (`state.ledger.UNTAUGHT`).
    untaught: int = 0
    #: Number of forecasts that have not matured at the end.
    immature: int = 0
    #: Dead letters, by topic and reason.
    dead: dict[tuple[int, str], int] = field(default_factory=dict)
    #: In time order. The last look at each calibrator is at the end.
    looks: list[Look] = field(default_factory=list)
    #: By stream: the names of its segments' slots.
    dictionaries: dict[str, Dictionary] = field(default_factory=dict)
    #: By stream and contender: where bands that keep a volume begin at the end.
    thresholds: dict[tuple[str, int], Thresholds] = field(default_factory=dict)
    #: Bias by stream and contender, for streams with features.
    biases: dict[tuple[str, int], Bias] = field(default_factory=dict)
    #: By stream and contender: outcomes learnt, and the biases that the calibrator bounds. Only calibrators that bound
    #: any.
    functions: dict[tuple[str, int], Part] = field(default_factory=dict)
    #: Scores of streams of classes and numbers, by stream and contender.
    vectors: dict[tuple[str, int], VectorHistory] = field(default_factory=dict)
    #: By stream and segment slot: forecasts with an outcome; the summed ages of these when it came, ms; and forecasts
    #: that expired without one.
    labelled: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    #: Scores of classes and numbers, by stream, contender and slot. Their other counts are in ``labelled``.
    segments: dict[tuple[str, int], dict[int, SegmentPairScores]] = field(default_factory=dict)
    #: The same scores by slot and month (UTC) of the forecast.
    months: dict[tuple[str, int], dict[tuple[int, str], PairScores]] = field(default_factory=dict)
    #: By stream: the row of its model's versions, as bytes; and the state that served each version.
    versions: dict[str, tuple[bytes, dict[str, Held]]] = field(default_factory=dict)

    #: Weighted sums by stream and contender, then by segment slot; `WHOLE` stands for all events.
    weighted: dict[tuple[str, int], dict[int, Weighted]] = field(default_factory=dict)

    def column(self, name: str) -> NDArray[Any]:
        """Return one of `replay.column_file.COLUMNS`, mapped from its file."""
        path, kind = self.directory / name, np.dtype(type_of(name))
        if not path.stat().st_size:  # an empty file cannot be mapped
            return np.empty(0, kind)
        return np.memmap(path, dtype=kind, mode="r")

    def has(self, name: str) -> bool:
        """Whether this column exists."""
        return (self.directory / name).exists()

    @property
    def slots(self) -> list[NDArray[Any]]:
        """The slots of all forecasts of probabilities, by segment; without segments one column of zeros."""
        found = [self.column(path.name) for path in sorted(self.directory.glob("slot*"))]
        return found or [np.zeros(len(self.column("stream")), dtype=np.int32)]

    @property
    def labels(self) -> Floats:
        """The last label of each resolved forecast of a probability."""
        labels = self.column("y").astype(np.float64)
        # the last of several revisions of an event counts
        labels[self.column("revised")] = self.column("revised_y")
        return labels
