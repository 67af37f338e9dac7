"""The counts of one cell of scores, for `state.calibrators.certified`."""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

#: How far any cell may be off, in events.
ONE: Final = 1.0
#: A cell as it is stored: its number, then its numbers.
ROW: Final = Struct("<B5Q5d")


class Cell:
    """Counts of one cell: events, zeros, ones, D, D', W, Σp, Σp², V, B; and the margin M."""

    __slots__ = ("ahead", "behind", "events", "extra", "margin", "off", "ones", "square", "sum", "variance", "zeros")

    def __init__(self) -> None:
        self.events, self.zeros, self.ones, self.behind, self.ahead = 0, 0, 0, 0, 0
        self.off, self.sum, self.square, self.variance, self.extra = 0.0, 0.0, 0.0, 0.0, 0.0
        self.margin = ONE

    def numbers(self) -> tuple[float, ...]:
        """Return the stored numbers, in the order above."""
        counts = self.events, self.zeros, self.ones, self.behind, self.ahead
        return *counts, self.off, self.sum, self.square, self.variance, self.extra

    def take(self, numbers: Sequence[Any]) -> None:
        """Set the stored numbers, in the order above."""
        self.events, self.zeros, self.ones, self.behind, self.ahead = numbers[:5]
        self.off, self.sum, self.square, self.variance, self.extra = numbers[5:]


#: Stands for every cell without outcomes, so that these take no memory. It is never changed.
NONE: Final = Cell()
