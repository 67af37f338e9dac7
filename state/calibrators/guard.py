"""How far an answer that was learnt is trusted beside the one it departs from."""

import math
from struct import Struct
from typing import Final

from state.scoring.ages import BATCH

#: Weight at first of the answer that is departed from, standard errors by which it changes e-fold, and the end of its
#: log-odds.
WEIGHT: Final = 0.9
WILL: Final = 2.0
SURE: Final = 12.0

_ODDS: Final = math.log(WEIGHT) - math.log1p(-WEIGHT)
_STATE: Final = Struct("<3dqQ2dQ3d")
#: Bytes of a state.
SIZE: Final = _STATE.size


class Guard:
    """The weight w of the answer that is departed from, by what both would have lost.

    Attributes
    ----------
    weight
        w, in (0, 1).

    Notes
    -----
    Let δ be its log loss less that of the answer that was learnt, and L = Σ δ. With V = Σ δ² + B,

        w = s(ln 9 - η L),  η = min(1, `WILL` / sqrt(V)),

    is the second-order mixture of both. If outcomes are prompt, then on any sequence

        Σ log loss(mixture) <= Σ log loss(departed from) + .105 max(1, sqrt(V) / 2)  nats,

    because η is at most 1 and only falls: docs/explanation/calibrators.md. η L is kept within ±`SURE`.

    *Batches.* sqrt(V) is the standard error of L if labels are independent. 6,000 labels of 30 teams are 30 facts.
    Nobody says which labels belong together, but those of one record time may. So from `BATCH` labels on, the labels of
    one time are one fact. With D = Σ δ of each of k batches, B is what the variance between batches is more than that
    within,

        B = the largest so far of  Σ D² - (Σ D)² / k - Σ δ² (of batches),  of the first batch  D² - Σ δ².

    So a first batch moves w no further than from .9 to .55, whatever it says, and batches that agree are believed soon.
    The order of labels in a batch does not matter, but for the first `BATCH`, and without batches B is 0.

    Bytes: L, V less B, B (f64 each), the last record time (i64, ms) and how many labels it had (u64), their Σ δ and Σ
    δ² (f64), batches before it (u64), their Σ D, Σ D² and Σ δ² (f64). Little-endian.
    """

    __slots__ = (
        "_at",
        "_batches",
        "_between",
        "_extra",
        "_gain",
        "_labels",
        "_own",
        "_square",
        "_sum",
        "_within",
        "weight",
    )

    def __init__(self) -> None:
        self._gain, self._square, self._extra = 0.0, 0.0, 0.0
        self._at, self._labels = 0, 0
        #: Σ δ and Σ δ² of the last record time.
        self._sum, self._own = 0.0, 0.0
        #: Of the batches before it.
        self._batches = 0
        self._between = [0.0, 0.0]
        self._within = 0.0
        self.weight = 1.0 / (1.0 + math.exp(-_ODDS))  # as `decode` has it, to the last bit

    @property
    def squares(self) -> float:
        """V without B."""
        return self._square

    @property
    def between(self) -> float:
        """B."""
        return self._extra

    def weigh(self, delta: float, more: float, at: int) -> None:
        """Count an outcome.

        Parameters
        ----------
        delta, more
            δ, and by how much Σ δ² grows.
        at
            Record time of the label, ms; 0 if it is of no batch.
        """
        self._square += more
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
        """Count what a revised label changes; Σ δ² may fall."""
        self._square = max(self._square + more, 0.0)
        self._move(delta)

    def _spread(self) -> None:
        """Find B, with the present batch."""
        one, two = self._between[0] + self._sum, self._between[1] + self._sum * self._sum
        if self._batches:
            two -= one * one / (self._batches + 1)
        self._extra = max(self._extra, two - self._within - self._own)

    def _move(self, delta: float) -> None:
        rate = self._rate()
        gain = self._gain = min(max(self._gain + delta, -SURE / rate), SURE / rate)
        self.weight = 1.0 / (1.0 + math.exp(rate * gain - _ODDS))

    def _rate(self) -> float:
        total = self._square + self._extra
        return min(1.0, WILL / math.sqrt(total)) if total > 0.0 else 1.0

    def encode(self) -> bytes:
        batches = (self._batches, *self._between, self._within)
        now = (self._at, self._labels, self._sum, self._own)
        return _STATE.pack(self._gain, self._square, self._extra, *now, *batches)

    def decode(self, payload: bytes, at: int = 0) -> None:
        self._gain, self._square, self._extra, *others = _STATE.unpack_from(payload, at)
        self._at, self._labels, self._sum, self._own, self._batches, one, two, self._within = others
        self._between = [one, two]
        self.weight = 1.0 / (1.0 + math.exp(self._rate() * self._gain - _ODDS))
