"""What replaying one partition gave."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from state.fence import FATES
from state.scoring.bias import Bias
from state.scoring.segment_pairs import SegmentPairScores
from state.scoring.vector_history import VectorHistory
from state.segments import Dictionary
from streams.metrics.functions import Part

#: Losses of an event of classes; one of a number has fewer.
LOSSES: Final = 2


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
    on (b), the bands of the raw forecast and of what each contender served, -1 where its stream has none. With
    intervals ``low`` and ``high`` (d) of what serves, NaN likewise.
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
