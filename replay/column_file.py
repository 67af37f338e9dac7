"""Columns of numbers that grow on disk, so that a replay's memory does not grow with what it measures."""

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

#: Numbers of a column held in memory, at most, between two calls of `Tape.spill`.
HELD: Final = 65_536

#: The columns of a partition and their types, as `array` has them. Those of a contender have its number behind the
#: name, those of segments the place of the segment, and losses a number of each.
COLUMNS: Final = {
    # Of all forecasts of probabilities, in the order in which they were answered: the stream's number, how many
    # outcomes had been learnt, what a contender served and drew, and whether that was in its warm-up. The slots of
    # segments are -1 where the stream has fewer; bands, of raw and of what was served, are -1 and the ends of intervals
    # NaN where it has none.
    "issued_ms": "q",
    "stream": "i",
    "version": "q",
    "raw": "d",
    "p": "d",
    "draw": "d",
    "warm": "b",
    "slot": "i",
    "raw_band": "b",
    "band": "b",
    "low": "d",
    "high": "d",
    # How many forecasts its label stands for, where its chance may be known.
    "stands": "d",
    # Numbers of the forecasts whose outcome taught nothing, and its label, once more when that is revised; it is in no
    # other column.
    "untaught": "q",
    "untaught_y": "b",
    # Of those resolved, in the order in which they were: the forecast's number, the label, how long it took, the
    # largest event time of any resolved event up to then, and whether silence gave the label. That time never falls, so
    # partitions can be merged by it. With segments also how many forecasts had been answered.
    "index": "q",
    "y": "b",
    "delay_ms": "q",
    "time": "q",
    "implied": "b",
    "before": "q",
    # Of revisions, in their order: the place of the event among those resolved, its label since, and the time of that.
    "revised": "q",
    "revised_y": "b",
    "revised_ms": "q",
    # Of events of classes and numbers, once more when a label is revised: the stream's number, the event's number in
    # the order of resolution, the time of that, what raw and a contender lose by each of
    # `state.scoring.pair_scores.LOSSES`, NaN beyond them, and whether that answered in its warm-up.
    "vector": "i",
    "vector_serial": "q",
    "vector_ms": "q",
    "was": "d",
    "loss": "d",
    "vector_warm": "b",
    # Of outcomes whose forecast had expired: the stream's number, and how long they took.
    "missed": "i",
    "missed_ms": "q",
}


def type_of(name: str) -> str:
    """Return the type of a column."""
    return COLUMNS[name.rstrip("_0123456789")]


class Tape:
    """The columns of a partition, in one directory.

    ``directory``: where they are kept; made if it does not exist.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._held: dict[str, array[Any]] = {}

    def column(self, name: str) -> Callable[[float], None]:
        """Open one of `COLUMNS`; return its append function."""
        held = self._held[name] = array(type_of(name))
        return held.append

    def spill(self, least: int = HELD) -> None:
        """Write columns that hold at least so many numbers."""
        for name, held in self._held.items():
            if len(held) >= least:
                with (self._directory / name).open("ab") as file:
                    held.tofile(file)
                del held[:]

    def close(self) -> None:
        """Write all columns."""
        self.spill(0)
