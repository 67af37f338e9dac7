"""The last run of equal labels, and the maps as they were before it. A map that follows a run seems to foresee it."""

import math
from struct import Struct
from typing import Final

from state.calibrators.guard import Guard
from state.calibrators.line import Line
from state.calibrators.two_scales import TwoScales, itself

#: Surprise of a run, in nats, beyond which its late labels count as one fact.
RUN: Final = 32.0
#: Labels may come from one file if their record times lie within one such span, ms: files are sent within minutes.
SPAN: Final = 300_000

_STATE: Final = Struct("<9d")
#: Bytes of a state.
SIZE: Final = _STATE.size


class Runs:
    """The run of the last labels; labels are 0 or 1. A run ends with the span of record times in which it began.

    Bytes: the last label (-1: none), its span, surprise of its run, lead, a, d and b of the slow map and a' and b' of
    the fast map before it (f64). Little-endian.
    """

    __slots__ = ("_before", "_last", "_lead", "_span", "_surprise")

    def __init__(self) -> None:
        self._last, self._span = -1.0, 0
        #: Surprise of the labels, and how far today's maps are ahead of those before the run, nats.
        self._surprise, self._lead = 0.0, 0.0
        self._before = (1.0, 0.0, 0.0, 1.0, 0.0)

    def note(self, y: float, span: int, slow: TwoScales, fast: Line) -> None:
        """Note a label. If it begins a run, also note the maps, which have not learnt it yet."""
        if y != self._last or span != self._span:
            self._last, self._span, self._surprise, self._lead = y, span, 0.0, 0.0
            self._before = (slow.a, slow.d, slow.b, fast.a, fast.b)

    def before(self, z: float) -> tuple[float, float]:
        """Return what both maps answered before the run, in log-odds."""
        a, d, b, fast_a, fast_b = self._before
        return a * z + d * itself(z) + b, fast_a * z + fast_b

    def judged(self, y: float, q: float, was: float, part: float, guard: Guard) -> float:
        """Return the answer by which a late label is judged: today's, q, or in an unlikely run that before it.

        Once a run is unlikely, the guard takes back the credit that it gave to today's maps within the run.

        ``part``: how much the label counts for, in [0, 1].
        """
        if self._surprise <= RUN:
            self._lead += part * math.log(q / was if y > 0.5 else (1.0 - q) / (1.0 - was))
        else:
            guard.correct(-self._lead, 0.0)
            self._lead, q = 0.0, was
        self._surprise -= math.log(was if y > 0.5 else 1.0 - was)
        return q

    def encode(self) -> bytes:
        return _STATE.pack(self._last, self._span, self._surprise, self._lead, *self._before)

    def decode(self, payload: bytes, at: int) -> None:
        self._last, span, self._surprise, self._lead, *maps = _STATE.unpack_from(payload, at)
        self._span = int(span)
        self._before = (maps[0], maps[1], maps[2], maps[3], maps[4])
