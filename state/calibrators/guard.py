"""The weight of the baseline answer against a learnt answer that departs from it."""

import math
from struct import Struct
from typing import Final

from state.odds import log_odds
from state.scoring.ages import BATCH

#: The first weight of the baseline; the most that one standard error moves it; and how far it may move from the first
#: in all. Moves are in log-odds.
WEIGHT: Final = 0.9
WILL: Final = 2.0
SURE: Final = 12.0

_STATE: Final = Struct("<3dqQ2dQ3d")
#: Bytes of a state.
SIZE: Final = _STATE.size


class Guard:
    """The weight w of the baseline answer, from the log losses of both answers.

    ``weight``: w before the first outcome, in (0, 1).

    Notes
    -----
    Let δ be the log loss of the baseline minus that of the learnt answer, and L = Σ δ. With V = Σ δ² + B,

        w = s(ln(ρ / (1 - ρ)) - η L),  η = min(1, `WILL` / sqrt(V)),

    with the first weight ρ, is the second-order mixture of both. With prompt outcomes, on any sequence,

        Σ log loss(mixture) <= Σ log loss(baseline) + ln(1 / ρ) max(1, sqrt(V) / 2) nats,

    because η is at most 1 and only falls: docs/explanation/calibrators.md. η L is kept within ±`SURE`.

    *Batches.* sqrt(V) is the standard error of L if labels are independent. 6,000 labels of 30 teams are only 30 facts.
    Records do not say which labels belong together, but those of one record time may. So `BATCH` or more labels of one
    time count as one fact. With D = Σ δ of each of k batches, B is the excess of the variance between batches over that
    within,

        B = the largest so far of  Σ D² - (Σ D)² / k - Σ δ² (of batches),  of the first batch  D² - Σ δ².

    So a first batch moves w at most from .9 to .55, and batches that agree are soon believed. After the first `BATCH`,
    the order of labels in a batch does not matter. Without batches B is 0.

    Bytes: L, V less B, B (f64 each), the last record time (i64, ms) and how many labels it had (u64), their Σ δ and Σ
    δ² (f64), batches before it (u64), their Σ D, Σ D² and Σ δ² (f64). Little-endian.
    """

    __slots__ = (
        "_at",
        "_batches",
        "_between",
        "_gain",
        "_labels",
        "_odds",
        "_own",
        "_sum",
        "_within",
        "excess",
        "squares",
        "weight",
    )

    def __init__(self, weight: float = WEIGHT) -> None:
        self._odds = log_odds(weight)
        self._gain = 0.0
        #: Σ δ² and B, whose sum is V.
        self.squares, self.excess = 0.0, 0.0
        self._at, self._labels = 0, 0
        #: Σ δ and Σ δ² over the labels of the last record time.
        self._sum, self._own = 0.0, 0.0
        #: Sums over the batches before that time.
        self._batches = 0
        self._between = [0.0, 0.0]
        self._within = 0.0
        #: w, in (0, 1).
        self.weight = 1.0 / (1.0 + math.exp(-self._odds))  # the same expression as in `decode`, to the last bit

    def weigh(self, delta: float, more: float, at: int) -> None:
        """Count an outcome.

        ``delta, more``: δ, and the growth of Σ δ².
        ``at``: record time of the label, ms; 0: no batch.
        """
        self.squares += more
        if at == 0 or at != self._at:
            if self._labels >= BATCH:
                self._batches += 1
                self._between[0] += self._sum
                self._between[1] += self._sum * self._sum
                self._within += self._own
            self._at, self._labels, self._sum, self._own = at, 0, 0.0, 0.0
        if at:
            self._labels += 1
            self._sum += delta
            self._own += more
            if self._labels >= BATCH:
                self._spread()
        self._move(delta)

    def correct(self, delta: float, more: float) -> None:
        """Apply a revised label: changes of Σ δ and of Σ δ², which may be negative."""
        self.squares = max(self.squares + more, 0.0)
        self._move(delta)

    def _spread(self) -> None:
        """Update B with the present batch."""
        one, two = self._between[0] + self._sum, self._between[1] + self._sum * self._sum
        if self._batches:
            two -= one * one / (self._batches + 1)
        self.excess = max(self.excess, two - self._within - self._own)

    def _move(self, delta: float) -> None:
        rate = self._rate()
        gain = self._gain = min(max(self._gain + delta, -SURE / rate), SURE / rate)
        self.weight = 1.0 / (1.0 + math.exp(rate * gain - self._odds))

    def _rate(self) -> float:
        total = self.squares + self.excess
        return min(1.0, WILL / math.sqrt(total)) if total > 0.0 else 1.0

    def encode(self) -> bytes:
        batches = (self._batches, *self._between, self._within)
        now = (self._at, self._labels, self._sum, self._own)
        return _STATE.pack(self._gain, self.squares, self.excess, *now, *batches)

    def decode(self, payload: bytes, at: int = 0) -> None:
        self._gain, self.squares, self.excess, *others = _STATE.unpack_from(payload, at)
        self._at, self._labels, self._sum, self._own, self._batches, one, two, self._within = others
        self._between = [one, two]
        self.weight = 1.0 / (1.0 + math.exp(self._rate() * self._gain - self._odds))


def corrected(g: float, q: float, baseline: float) -> float:
    """Return how a revision changes δ, the log loss of the baseline minus that of q; ``g``: old label minus new."""
    return -g * (math.log(q / baseline) - math.log((1.0 - q) / (1.0 - baseline)))
