"""What a worker tells of challengers: each beside the champion it challenges now, over the same events."""

import math
from collections.abc import Iterable, Iterator

from state import rows
from state.scoring.comparison import LOSSES, SIDES, Comparison
from streams.metrics.snapshot import Place
from streams.metrics.sums import Sample


def series(found: Iterable[tuple[Place, bytes]]) -> Iterator[Sample]:
    """Yield the samples of comparisons of several partitions, added up."""
    totals: dict[Place, Comparison] = {}
    for place, row in found:
        comparison = rows.decode_comparison(row)
        totals[place] = totals[place] + comparison if place in totals else comparison
    for place, comparison in totals.items():
        yield from _samples(place, comparison)


def _samples(place: Place, comparison: Comparison) -> Iterator[Sample]:
    """Yield the figures of both sides, and of their difference."""
    scores = comparison.scores
    yield "shadow_events", place, comparison.n
    if not comparison.n:
        return
    for side, kind in SIDES:
        yield "shadow_ece", (*place, side), scores.ece(kind)
        yield "shadow_brier", (*place, side), scores.brier(kind)
        yield "shadow_log_loss", (*place, side), scores.log_loss(kind)
        area = scores.ranking(kind).auc().value
        if not math.isnan(area):
            yield "shadow_auc", (*place, side), area
    for loss in LOSSES:
        mean, error = comparison.difference(loss)
        yield "shadow_difference", (*place, loss), mean
        if not math.isnan(error):
            yield "shadow_difference_error", (*place, loss), error
