"""What adds up over workers: sums that the state holds, so that they survive restarts and move with their partition.

A ratio of one worker cannot be averaged with another's: of two workers whose errors point to opposite sides the pooled
error is smaller than either's. The recording rules in ``deploy/prometheus`` add these sums up and divide last.
"""

from collections.abc import Iterator, Sequence

from state.rows import Served
from state.scoring.scores import Scores

#: Metric name, label values, value.
Sample = tuple[str, tuple[str, ...], float]


def binned(label: str, scores: Scores, partitions: int) -> Iterator[Sample]:
    """Yield the sums of a stream's bins, those that are not empty, and over how many partitions they are."""
    yield "scored_partitions", (label,), partitions
    for kind in scores.kinds:
        for i, each in enumerate(scores.bins(kind)):
            if each.n:
                labels = label, kind, str(i)
                yield "resolved_bin_events", labels, each.n
                yield "resolved_bin_forecasts", labels, each.p
                yield "resolved_bin_outcomes", labels, each.y


def learnt(label: str, made: Sequence[Served]) -> Iterator[Sample]:
    """Yield the weight of a stream's calibration error: the outcomes its calibrators have learnt."""
    yield "learnt_outcomes", (label,), sum(served.calibrator.learnt for served in made)
