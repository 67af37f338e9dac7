"""How events are ranked within windows, as sums over windows."""

import math
from operator import add
from typing import Final, Self

from state.scoring.ranking import NONE, VOLUMES, Estimate, Ranking, binomial
from state.scoring.scores import SCORED, Kind, Scores

#: Sums shared by all kinds: pairs of unlike outcomes, ones, events. Then for each kind: pairs ranked correctly, Σ
#: pairs² times the variance of the window's AUC, Σ pairs times KS, and the ones found at each of the volumes.
_SHARED: Final = 3
_EACH: Final = 3 + len(VOLUMES)


class Order:
    """Ranking measures of a stream in which only events of one window are compared with each other.

    Served scores change their scale over the life of a stream: raw at first, then calibrated by a changing map. An AUC
    over all events would compare different scales. It would fall although no two events of one moment were reordered.
    So only pairs within a window count, and the sums of windows are added.

    Notes
    -----
    With U_w the correctly ranked pairs of window w, ties counted half, and P_w all its pairs of unlike outcomes, AUC =
    Σ U_w / Σ P_w. Its standard error is that of independent windows. Recall at a volume is the share of all ones that
    are among the highest forecasts of each window, which have that share of its events. KS is the mean over windows,
    weighted by P_w. A label that is revised after its window closed changes nothing here.
    """

    __slots__ = ("_sums",)

    def __init__(self) -> None:
        self._sums = [0.0] * (_SHARED + _EACH * len(SCORED))

    @classmethod
    def of(cls, window: Scores) -> Self:
        """Return the sums of one window."""
        order = cls()
        sums = order._sums
        first = window.ranking("raw")
        sums[:_SHARED] = [float(first.n * first.m), float(first.m), float(first.n + first.m)]
        for i, kind in enumerate(SCORED):
            ranking = window.ranking(kind)
            at = _SHARED + i * _EACH
            pairs, *sums[at : at + 2] = within(ranking)
            if pairs:
                sums[at + 2] = pairs * ranking.ks()
            if first.m:
                sums[at + 3 : at + _EACH] = [ranking.at(volume)[0].value * first.m for volume in VOLUMES]
        return order

    def __add__(self, other: Self) -> Self:
        """Return the sums of the windows of both."""
        total = type(self)()
        total._sums = list(map(add, self._sums, other._sums))
        return total

    def ranking(self, kind: Kind) -> "Within":
        """Return how one kind of forecast ranks."""
        at = _SHARED + SCORED.index(kind) * _EACH
        return Within(self._sums[:_SHARED], self._sums[at : at + _EACH])


class Within:
    """How one kind of forecast ranks events within windows; same interface as `state.scoring.ranking.Ranking`."""

    __slots__ = ("_events", "_hits", "_ks", "_ones", "_pairs", "_right", "_spread")

    def __init__(self, shared: list[float], own: list[float]) -> None:
        self._pairs, self._ones, self._events = shared
        self._right, self._spread, self._ks, *self._hits = own

    def auc(self) -> Estimate:
        """Return the chance that an event with outcome 1 was ranked above one with outcome 0 of the same window."""
        if not self._pairs:
            return NONE
        return Estimate(self._right / self._pairs, math.sqrt(self._spread) / self._pairs)

    def ks(self) -> float:
        """Return the mean over windows of the largest difference between the distributions of the two outcomes."""
        return self._ks / self._pairs if self._pairs else math.nan

    def at(self, volume: float) -> tuple[Estimate, Estimate]:
        """Return recall and precision among the highest forecasts of each window, a share that is one of `VOLUMES`."""
        hits = self._hits[VOLUMES.index(volume)]
        return binomial(hits, self._ones), binomial(hits, volume * self._events)


def within(ranking: Ranking) -> list[float]:
    """Return the sums of a window from which AUC follows: pairs of unlike outcomes, those ranked correctly, the spread.

    The spread is pairs² times the variance of the window's AUC, 0 if that is unknown.
    """
    pairs, area = float(ranking.n * ranking.m), ranking.auc()
    if not pairs:
        return [0.0, 0.0, 0.0]
    spread = 0.0 if math.isnan(area.error) else area.error * area.error
    return [pairs, pairs * area.value, pairs * pairs * spread]
