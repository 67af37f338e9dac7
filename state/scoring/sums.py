"""The base of scores of classes and of numbers: sums that can be added and subtracted."""

import math
from operator import add, sub
from typing import Any, Self


class Sums:
    """Sums over events, of raw and of served forecasts.

    ``shape``: number of classes, or the levels. Only sums of equal shapes can be added.

    Notes
    -----
    A window is a difference, ``later - earlier``. The earlier events must be a subset of the later ones.
    """

    __slots__ = ("shape", "sums")

    def __init__(self, shape: Any, size: int) -> None:  # noqa: ANN401 - whatever can be compared
        self.shape = shape
        self.sums = [0.0] * size

    def zero(self) -> Self:
        """Return the sums of no events, of the same shape."""
        return self._with([0.0] * len(self.sums))

    def __add__(self, other: Self) -> Self:
        """Return the sums over both sets of events; ValueError if the shapes differ."""
        return self._with(list(map(add, self.sums, self._fitting(other))))

    def __sub__(self, other: Self) -> Self:
        """Return the sums over the events of ``self`` without those of ``other``; raises as ``+`` does."""
        return self._with(list(map(sub, self.sums, self._fitting(other))))

    def _with(self, sums: list[float]) -> Self:
        made = type(self).__new__(type(self))
        made.shape, made.sums = self.shape, sums
        return made

    def _fitting(self, other: Self) -> list[float]:
        if type(other) is not type(self) or other.shape != self.shape:
            raise ValueError(f"scores of {self.shape} and of {other.shape} have no sum")
        return other.sums

    def __eq__(self, other: object) -> bool:
        """Whether shape and all sums are equal."""
        return type(other) is type(self) and (self.shape, self.sums) == (other.shape, other.sums)

    __hash__ = None  # type: ignore[assignment]  # sums change


class Paired(Sums):
    """Sums of a stream: n, then those of raw forecasts, as many of served ones, and those of both together."""

    __slots__ = ()

    @property
    def n(self) -> int:
        """Events observed."""
        return int(self.sums[0])

    def _start(self, kind: str) -> int:
        """Return the offset of a kind's sums; at most two sums belong to both kinds together."""
        return 1 if kind == "raw" else len(self.sums) // 2

    def _mean(self, total: float) -> float:
        return total / self.sums[0] if self.sums[0] else math.nan
