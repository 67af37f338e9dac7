"""How long forecasts waited for their answers, counted a batch at a time."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString


class Latencies:
    """A histogram that takes a batch of observations for one search an edge, not one an observation.

    Parameters
    ----------
    edges
        Upper bounds of the buckets, increasing, s; one above all of them is added.

    Examples
    --------
    >>> waited = Latencies((0.1, 1.0))
    >>> waited.observe([0.05, 0.1, 0.5, 7.0])
    >>> [(sample.labels["le"], sample.value) for sample in waited.family("wait_seconds", "Waits").samples[:3]]
    [('0.1', 2), ('1.0', 3), ('+Inf', 4)]
    """

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = edges
        self._counts = [0] * (len(edges) + 1)
        self._sum = 0.0

    def observe(self, waits: Sequence[float]) -> None:
        """Count waits, s, in increasing order."""
        below = 0
        for i, edge in enumerate(self._edges):
            reached = bisect_right(waits, edge, below)
            self._counts[i] += reached - below
            below = reached
        self._counts[-1] += len(waits) - below
        self._sum += math.fsum(waits)

    def family(self, name: str, documentation: str) -> HistogramMetricFamily:
        """Return what a scrape shows; called by the server's thread."""
        names = [*map(floatToGoString, self._edges), "+Inf"]
        # Made of one copy of the counts: the last bucket and the number of observations never contradict each other.
        return HistogramMetricFamily(
            name,
            documentation,
            buckets=list(zip(names, accumulate(self._counts.copy()), strict=True)),
            sum_value=self._sum,
        )
