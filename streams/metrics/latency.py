"""A histogram of waiting times that takes a batch at a time."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString


class Latencies:
    """A histogram that takes a batch of observations with one search per edge, not one per observation.

    ``edges``: upper bounds of the buckets, increasing, s. A bucket above all of them is added.

    Examples
    --------
    >>> waited = Latencies((0.1, 1.0))
    >>> waited.observe([50, 7_000, 500, 100])
    >>> [(sample.labels["le"], sample.value) for sample in waited.family("wait_seconds", "Waits").samples[:3]]
    [('0.1', 2), ('1.0', 3), ('+Inf', 4)]
    """

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = edges
        self._counts = [0] * (len(edges) + 1)
        self._sum = 0

    def observe(self, waits: Iterable[int]) -> None:
        """Count waits, ms. A wait below 0, because clocks differ, counts as 0."""
        ordered = sorted(waits)
        below = 0
        for i, edge in enumerate(self._edges):
            reached = bisect_right(ordered, edge * 1000, below)
            self._counts[i] += reached - below
            below = reached
        self._counts[-1] += len(ordered) - below
        self._sum += sum(ordered[bisect_left(ordered, 0) :])

    def family(self, name: str, documentation: str) -> HistogramMetricFamily:
        """Return what a scrape shows, in s. The server's thread calls it."""
        names = [*map(floatToGoString, self._edges), "+Inf"]
        # Uses one copy of the counts, so that the last bucket equals the number of observations.
        return HistogramMetricFamily(
            name,
            documentation,
            buckets=list(zip(names, accumulate(self._counts.copy()), strict=True)),
            sum_value=self._sum / 1000,
        )
