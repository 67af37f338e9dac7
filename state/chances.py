"""Decides which labels teach when forecasts were chosen for labelling with known chances. This is called thinning.

Where investigators or rules choose most labels, labelled forecasts differ from unlabelled ones of the same score. The
random sample shows by how much. So labels are thinned: a label that stands for few forecasts seldom teaches. A label
that teaches is learnt and counted once, like any other, so nothing else has to know of chances: no calibrator, score,
window, alarm, certificate or interval.
"""

import math
from struct import Struct
from typing import Final, Self

from state.draw import BITS, Draw
from state.kind import STREAM, Kind, Moves, form

#: The most forecasts that a label stands for. So at least one label in `MOST` of a band teaches.
MOST: Final = 50.0
#: Labels of a band after which an earlier one counts half in m.
HALF: Final = 10_000.0
#: Number of bands on either side of a score of one half. A band is a unit of log-odds wide.
SIDE: Final = 14

_DRAW: Final = Draw("chance")
_KEEP: Final = math.exp(-math.log(2.0) / HALF)
_ALL: Final = 1 << BITS
_BAND: Final = Struct("<b2d")


def weight(chance: float) -> float:
    """Return how many forecasts a label of a chance in (0, 1] stands for: 1 / chance, at most `MOST`."""
    return min(1.0 / chance, MOST)


class Chances:
    """The numbers of forecasts that a stream's labels stand for, by band of score, and which labels teach.

    Notes
    -----
    A label of chance q stands for w = min(1 / q, `MOST`) forecasts. In its band of scores, a unit of log-odds wide, it
    teaches with probability

        min(1, w / m),  m = Σ w² / Σ w  over the labels of the band.

    *Equal chances.* Where all labels of a band have the same chance, m = w and all teach. This holds for labels chosen
    by the score alone, and for a random sample of one rate.

    *Variance.* On average Σ w / m = (Σ w)² / Σ w² labels teach. This is Kish's effective number of labels: a weighted
    mean of the labels has the variance of a plain mean of so many. No label counts for more than one, and since m <=
    `MOST` at least one in `MOST` teaches.

    *Bias.* Labels that stand for m forecasts or fewer teach in proportion to that number. Those that stand for more
    always teach, at m / w of the right rate. With 5 % labelled at a chance of 1 and the others at .02, that is .95.

    An early label counts less and less in m, so that m follows chances that change. The draw is keyed by the event's id
    (`state.draw`), so it is the same in any order, after any crash, and in an audit.

    Bytes, little-endian, of each band in ascending order: its number (i8), Σ w and Σ w² (f64 each).

    References
    ----------
    Kish 1965, *Survey Sampling*, section 11.7.
    """

    __slots__ = ("_bands",)

    def __init__(self) -> None:
        #: Σ w and Σ w², by the number of the band.
        self._bands: dict[int, list[float]] = {}

    def teaches(self, z: float, chance: float, key: bytes) -> bool:
        """Return whether a label teaches, and count it.

        ``z``: log-odds of its score, see `state.entities.place`.
        ``chance``: the chance that the forecast had of a label, in (0, 1].
        """
        number = min(max(math.floor(z), -SIDE), SIDE - 1)
        sums = self._bands.get(number)
        if sums is None:
            sums = self._bands[number] = [0.0, 0.0]
        stands = weight(chance)
        sums[0] = _KEEP * sums[0] + stands
        sums[1] = _KEEP * sums[1] + stands * stands
        return _DRAW(key) * sums[1] < _ALL * stands * sums[0]

    def __add__(self, other: Self) -> Self:
        """Return the sums of both."""
        made = type(self)()
        for part in (self, other):
            for number, sums in part._bands.items():
                before = made._bands.get(number, [0.0, 0.0])
                made._bands[number] = [before[0] + sums[0], before[1] + sums[1]]
        return made

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        return b"".join([_BAND.pack(number, *sums) for number, sums in sorted(self._bands.items())])

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote; raises `struct.error` if it is cut."""
        made = cls()
        for number, w, w2 in _BAND.iter_unpack(payload):
            made._bands[number] = [w, w2]
        return made


CHANCES: Final = Kind[Chances](
    "q",
    "the chances of labels",
    (STREAM,),
    {1: form(Chances)},
    Moves.SHARED,
    "one a stream with `label_rate`: what labels stand for, by band of their scores",
    part=True,
)
