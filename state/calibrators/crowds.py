"""How much an outcome counts if its forecast was one of a crowd, as a share of 1."""

import math
from struct import Struct
from typing import Final

#: Forecasts are a crowd if they were issued within a `CROWD`-th of the information learnt before them, once that
#: reaches `CROWDED`. The error of a crowd, Σ (q - y), counts up to `ROOM` of that information plus `LEAST`. With .2 and
#: 12 an hour of fraud does 2 to 30 times the harm; with .05 and 6 a lasting tenfold rate is learnt later
#: (docs/explanation/calibrators.md).
CROWD: Final = 40.0
CROWDED: Final = 20.0
ROOM: Final = 0.1
LEAST: Final = 6.0
#: Number of crowds that are kept: they span the last fifth of the information, up to all of it.
CROWDS: Final = 64

_STATE: Final = Struct(f"<{CROWDS}H{CROWDS}d")
#: Bytes of a state.
SIZE: Final = _STATE.size


class Crowds:
    """The errors of the crowds that are remembered.

    Notes
    -----
    Forecasts of one hour share what happened in it. If half of them are an attack that the model did not see, they are
    one fact, not many: without bounds they make the scores of the next weeks several times too high. A crowd is the
    forecasts with the same floor(`CROWD` ln i), i the information learnt when they were issued. Its error R = Σ (q - y)
    is kept within bounds. An outcome counts for the share of its own error that moves R within them. So the order of a
    crowd's labels does not matter. All outcomes count in full where q is right on average, or where outcomes are prompt
    (i = information). A crowd's bounds never change: when a wrong batch is corrected, exactly the part that had counted
    is taken back.

    Bytes: the numbers of `CROWDS` crowds (u16), each at its number modulo `CROWDS`, their errors (f64). Little-endian.
    """

    __slots__ = ("_errors", "_numbers")

    def __init__(self) -> None:
        self._numbers, self._errors = [0] * CROWDS, [0.0] * CROWDS

    def part(self, since: float, information: float, g: float, *, revised: bool = False) -> float:
        """Return the share of an outcome that counts, 0 to 1.

        ``since, information``: information learnt when its forecast was issued, and now.
        ``g``: the outcome's error q - y; for a revision the old label minus the new one.
        ``revised``: whether this is a revision. It counts in full if no outcome of its crowd was late, because all did.
        """
        if not CROWDED <= since < information:
            return 1.0
        crowd = int(math.log(since) * CROWD) & 0xFFFF
        place = crowd % CROWDS
        if revised and self._numbers[place] < crowd:
            return 1.0
        before = self._errors[place] if self._numbers[place] == crowd else 0.0
        self._numbers[place] = crowd
        after = self._errors[place] = before + g
        most = ROOM * math.exp(crowd / CROWD) + LEAST
        if -most <= before <= most and -most <= after <= most:
            return 1.0
        return (min(max(after, -most), most) - min(max(before, -most), most)) / g

    def encode(self) -> bytes:
        return _STATE.pack(*self._numbers, *self._errors)

    def decode(self, payload: bytes, at: int) -> None:
        numbers = _STATE.unpack_from(payload, at)
        self._numbers, self._errors = list(numbers[:CROWDS]), list(numbers[CROWDS:])
