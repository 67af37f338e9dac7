"""Calibration by internal regret, as Kuleshov & Ermon ran it: exponential weights over swaps."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import Any, ClassVar, Final

from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import require_probability
from state.calibrators.bucketed import Bucketed
from state.draw import BITS
from state.quick import new

_TICKET: Final = Struct("<HH")

#: Log-weight a point loses for each step away from the forecast: a fresh bucket serves the nearest point 4 times in 5.
PRIOR: Final = 2.0


class ExponentialWeights(Bucketed):
    """Draw a grid point, less likely where a neighbour would have scored better; slowest to calibrate, for comparison.

    Options and state: `Bucketed`. No bound is claimed.

    Notes
    -----
    R_ij is the Brier score that serving j whenever i was served would have saved, over the gap δ = |g_j - g_i|, the
    scale of one round: to the right ``2 V_i - δ n_i``, to the left ``-2 V_i - δ n_i``. Weighting each swap by exp(η R)
    and serving the distribution that the weighted swaps leave as it is needs, with swaps between neighbours only, no
    matrix: by detailed balance

        log P(i+1) - log P(i) = η (R_{i,i+1} - R_{i+1,i}) - PRIOR sign(i + 1/2 - c),

    c the point nearest the forecast, η = sqrt(log(2N) / (2t)), t the outcomes in the bucket, 2N swaps whose round is
    within 4. Points more than one step beyond both c and what was played are left out: O(points played) a forecast.
    The answer is not confined to two neighbours, so ``draw`` may lie far from ``p``.

    References
    ----------
    Kuleshov & Ermon 2017, section 6 ("REGMIN") and Table 1; Cesa-Bianchi & Lugosi 2006, section 4.4.

    Examples
    --------
    >>> calibrator = ExponentialWeights(buckets=1, grid=10, spacing="uniform")
    >>> for t in range(2000):
    ...     calibrator.update(calibrator.predict(0.9, key=str(t).encode()).ticket, t % 5 < 2)
    >>> round(calibrator.predict(0.9).p, 1)
    0.4
    """

    name: ClassVar[str] = "exponential_weights"
    order_free: bool = True

    def _start(self) -> None:
        #: By bucket: outcomes, first and last point played. By cell: R to the left; `_field` has R to the right.
        self._span: dict[int, tuple[int, int, int]] = {}
        self._left: dict[int, float] = {}

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        """Serve a grid point drawn by its weight; see `Calibrator.predict`."""
        require_probability(p)
        grid = self._grid
        j = self._buckets.below(p)
        c = grid.nearest(p)
        t, low, high = self._span.get(j, (1, c, c))
        low, high = max(min(low, c) - 1, 0), min(max(high, c) + 1, grid.last)
        eta = math.sqrt(math.log(2.0 * grid.last) / (2.0 * t))
        first = j * (grid.last + 1)
        right, left = self._field.get, self._left.get
        log_weight = most = 0.0
        weights = [0.0]
        for i in range(low, high):
            swaps = right(first + i, 0.0) - left(first + i + 1, 0.0)
            log_weight += eta * swaps + (PRIOR if i < c else -PRIOR)
            weights.append(log_weight)
            most = max(most, log_weight)
        total = mean = 0.0
        for i, log_weight in enumerate(weights):
            weights[i] = weight = math.exp(log_weight - most)
            total += weight
            mean += weight * grid.points[low + i]
        rest = self._draw(key) * total * 0.5**BITS
        i = low
        for weight in weights[:-1]:
            rest -= weight
            if rest < 0.0:
                break
            i += 1
        return new(Answer, (min(mean / total, 1.0), grid.points[i], _TICKET.pack(j, i)))

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """Count an outcome, 0 or 1, in the cell that was played."""
        j, i = _TICKET.unpack(ticket)
        self._weigh(self._count(j, i, y), 1)

    def _refield(self, cell: int, change: float) -> None:
        self._weigh(cell, 0)

    def _weigh(self, cell: int, outcomes: int) -> None:
        """Bring a cell's swaps and its bucket's span up to date with the counts."""
        grid = self._grid
        j, i = divmod(cell, grid.last + 1)
        n, s = self._cells[cell]
        off, k = 2 * (s * grid.denominator - n * grid.numerators[i]), grid.numerators
        if i < grid.last:
            self._field[cell] = (off - n * (k[i + 1] - k[i])) / grid.denominator
        if i > 0:
            self._left[cell] = (-off - n * (k[i] - k[i - 1])) / grid.denominator
        t, low, high = self._span.get(j, (0, i, i))
        self._span[j] = t + outcomes, min(low, i), max(high, i)

    def _take(self, rows: list[tuple[Any, ...]]) -> None:
        super()._take(rows)
        self._field, self._left, self._span = {}, {}, {}
        for cell, (n, _) in self._cells.items():
            self._weigh(cell, n)
