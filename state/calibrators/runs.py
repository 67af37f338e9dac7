"""The last run of equal labels, and the maps before it: a map that follows a run seems to foresee it."""

import math
from struct import Struct
from typing import Final

from state.calibrators.guard import Guard
from state.calibrators.line import Line
from state.calibrators.two_scales import TwoScales, itself

#: Surprise of a run, nats, beyond which its late labels are judged by the maps before it; and the probability above
#: which a label counts for none: rare events have long runs of zeros.
RUN: Final = 32.0
LIKELY: Final = 0.7

_STATE: Final = Struct("<8d")
#: Bytes of a state.
SIZE: Final = _STATE.size


class Runs:
    """The run of the last labels; labels are 0 or 1.

    Bytes: the last label (-1: none), surprise of its run, lead, a, d and b of the slow map and a' and b' of the fast
    map before it (f64). Little-endian.
    """

    __slots__ = ("_before", "_last", "_lead", "_surprise")

    def __init__(self) -> None:
        self._last = -1.0
        #: Surprise of the labels, and how far today's maps were ahead of those before the run, nats.
        self._surprise, self._lead = 0.0, 0.0
        self._before = (1.0, 0.0, 0.0, 1.0, 0.0)

    def note(self, y: float, slow: TwoScales, fast: Line) -> None:
        """Note a label, and if it begins a run the maps, which have not learnt it."""
        if y != self._last:
            self._last, self._surprise, self._lead = y, 0.0, 0.0
            self._before = (slow.a, slow.d, slow.b, fast.a, fast.b)

    def before(self, z: float) -> tuple[float, float]:
        """Return what both maps answered before the run, in log-odds."""
        a, d, b, fast_a, fast_b = self._before
        return a * z + d * itself(z) + b, fast_a * z + fast_b

    def judged(self, y: float, q: float, was: float, part: float, guard: Guard) -> float:
        """Return by which answer a late label is judged: today's, q, or that before an unlikely run.

        What the guard had credited today's maps with within a run is taken back once the run is unlikely.

        ``part``: how much the label counts for, in [0, 1].
        """
        if self._surprise <= RUN:
            self._lead += part * math.log(q / was if y > 0.5 else (1.0 - q) / (1.0 - was))
        else:
            guard.correct(-self._lead, 0.0)
            self._lead, q = 0.0, was
        chance = was if y > 0.5 else 1.0 - was
        if chance < LIKELY:
            self._surprise -= math.log(chance)
        return q

    def encode(self) -> bytes:
        return _STATE.pack(self._last, self._surprise, self._lead, *self._before)

    def decode(self, payload: bytes, at: int) -> None:
        self._last, self._surprise, self._lead, *maps = _STATE.unpack_from(payload, at)
        self._before = (maps[0], maps[1], maps[2], maps[3], maps[4])
