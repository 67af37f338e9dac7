"""How large a calibrator's state can become: what its options allow, however many outcomes it learns."""

from typing import Any, Final, Protocol, runtime_checkable

from state.calibrators.base import Recalibrator

#: Slots of segments, at most: of eight names and eight pairs.
MOST_SLOTS: Final = 1024


@runtime_checkable
class Growing(Protocol):
    """A calibrator whose state grows with what it sees."""

    def largest(self) -> int:
        """Return the most bytes that `Recalibrator.encode` ever returns."""


def largest(calibrator: Recalibrator[Any, Any], slots: int = MOST_SLOTS) -> int:
    """Return the most bytes the state of a calibrator ever has; of one that does not grow, those it has now.

    Parameters
    ----------
    calibrator
        Any.
    slots
        How many slots its events have in all; one that uses segments grows with them.
    """
    if getattr(calibrator, "grouped", False):
        grouped: Any = calibrator
        return int(grouped.largest(slots))
    return calibrator.largest() if isinstance(calibrator, Growing) else len(calibrator.encode())
