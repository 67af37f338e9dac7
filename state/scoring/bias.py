"""Bias of a stream's forecasts along its features, as sums."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import Final, Self

from state.quick import floats
from state.scoring.cells import grain
from state.scoring.equal import Encoded
from state.scoring.scores import Kind

_COUNT: Final = Struct("<H")
_SUMS: Final = 4
#: The sums of streams without features. They never change.
_NONE: Final[list[list[float]]] = []


class Bias(Encoded):
    """Sums over events with features x_1..x_d: n, and for each feature Σx, Σx², Σx(raw - y), Σx(p - y).

    A forecast that is calibrated given x has no bias along any feature. The ticket keeps the features until the outcome
    comes. Streams whose calibrator takes no features have no sums here.

    Bytes, little-endian: d (u16). If d > 0, n and then the four sums of each feature follow (f64). 2 bytes without
    features, 2,058 with 64.
    """

    __slots__ = ("_n", "_sums")

    def __init__(self) -> None:
        self._n = 0.0
        self._sums = _NONE

    def observe(self, x: Sequence[float], raw: float, p: float, y: float, sign: int = 1) -> None:
        """Add an event, or with ``sign = -1`` take out one that was added.

        If the number of features changes, the sums start again, and events from before can no longer be taken out. Sums
        are exact for features in [-2e6, 2e6], see `cells.grain`.
        """
        if not x:
            return
        if len(x) != len(self._sums):
            if sign < 0:
                return
            self._n, self._sums = 0.0, [[0.0] * _SUMS for _ in x]
        self._n += sign
        was, now = raw - y, p - y
        for sums, value in zip(self._sums, x, strict=True):
            sums[0] += sign * grain(value)
            sums[1] += sign * grain(value * value)
            sums[2] += sign * grain(value * was)
            sums[3] += sign * grain(value * now)

    def __add__(self, other: Self) -> Self:
        """Return the sums of both; ValueError if both have features and not the same number."""
        if not self._sums or not other._sums:
            return other if other._sums else self
        if len(self._sums) != len(other._sums):
            raise ValueError(f"bias of {len(self._sums)} features cannot be added to that of {len(other._sums)}")
        both = type(self)()
        both._n = self._n + other._n
        both._sums = [
            [a + b for a, b in zip(one, two, strict=True)] for one, two in zip(self._sums, other._sums, strict=True)
        ]
        return both

    def __sub__(self, other: Self) -> Self:
        """Return the sums of the events of ``self`` that are not in ``other``; raises as ``+`` does."""
        negative = type(self)()
        negative._n = -other._n
        negative._sums = [[-each for each in sums] for sums in other._sums]
        return self + negative

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        head = _COUNT.pack(len(self._sums))
        if not self._sums:
            return head
        values = [self._n, *(value for sums in self._sums for value in sums)]
        return head + floats(len(values)).pack(*values)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote; ValueError if it has another length."""
        d = _COUNT.unpack_from(payload)[0] if len(payload) >= _COUNT.size else -1
        length = _COUNT.size + 8 * (1 + _SUMS * d if d else 0)
        if len(payload) != length:
            raise ValueError(f"bias of {d} features has {length} bytes, got {len(payload)}")
        bias = cls()
        if d:
            bias._n, *values = floats(1 + _SUMS * d).unpack_from(payload, _COUNT.size)
            bias._sums = [values[i : i + _SUMS] for i in range(0, len(values), _SUMS)]
        return bias

    def along(self, kind: Kind) -> list[float]:
        """Return the bias of one kind along each feature, Σx(p - y) / sqrt(n Σx²), in [-1, 1]; 0 if all x are 0."""
        which = 2 if kind == "raw" else 3
        return [sums[which] / math.sqrt(self._n * sums[1]) if sums[1] else 0.0 for sums in self._sums]
