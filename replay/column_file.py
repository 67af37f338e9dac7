"""Columns of numbers that grow on disk, so that a replay's memory does not grow with the history."""

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

#: The most numbers of a column in memory between two calls of `Tape.spill`.
HELD: Final = 65_536

#: The columns of a partition and their types, as `array` names them. A contender's columns have its number after the
#: name; columns of segments have the segment's place, those of losses the loss's number.
COLUMNS: Final = {
    # All forecasts of probabilities, in the order of answers: the stream's number, outcomes learnt by then, what a
    # contender served and drew, and whether that was in its warm-up. Slots are -1 if the stream has fewer segments. If
    # the stream has no bands, they (raw and served) are -1; if it has no intervals, their ends are NaN.
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
    # How many forecasts the label stands for, if a stream may have chances of labels.
    "stands": "d",
    # Forecasts whose outcome taught nothing: number and label, and both again after each revision. No other column has
    # these labels.
    "untaught": "q",
    "untaught_y": "b",
    # Resolved forecasts, in the order of resolution: the forecast's number, the label, its delay, the largest event
    # time of a resolved event so far, and whether silence gave the label. This event time never falls, so partitions
    # can be merged by it. With segments, also the number of forecasts answered by then.
    "index": "q",
    "y": "b",
    "delay_ms": "q",
    "time": "q",
    "implied": "b",
    "before": "q",
    # Revisions, in order: the event's place among resolved ones, the new label, and its time.
    "revised": "q",
    "revised_y": "b",
    "revised_ms": "q",
    # Events of classes and numbers, and again after each revision: the stream's number, the event's number in the order
    # of resolution, the time of resolution, the losses of raw and of a contender (`state.scoring.pair_scores.LOSSES`,
    # NaN beyond them), and whether the contender answered in its warm-up.
    "vector": "i",
    "vector_serial": "q",
    "vector_ms": "q",
    "was": "d",
    "loss": "d",
    "vector_warm": "b",
    # Outcomes whose forecast had expired: the stream's number, and the delay.
    "missed": "i",
    "missed_ms": "q",
}


def type_of(name: str) -> str:
    """Return the type of a column."""
    return COLUMNS[name.rstrip("_0123456789")]


class Tape:
    """The columns of a partition, in one directory.

    ``directory``: where they are stored; made if it does not exist.
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
        """Write the columns that have at least this many numbers in memory."""
        for name, held in self._held.items():
            if len(held) >= least:
                with (self._directory / name).open("ab") as file:
                    held.tofile(file)
                del held[:]

    def close(self) -> None:
        """Write all columns."""
        self.spill(0)
