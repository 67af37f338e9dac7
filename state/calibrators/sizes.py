"""How large a calibrator's state can become: what its options allow, however many outcomes it learns."""

from typing import Any, Protocol, runtime_checkable

from state.calibrators.base import Recalibrator


@runtime_checkable
class Growing(Protocol):
    """A calibrator whose state grows with what it sees."""

    def largest(self) -> int:
        """Return the most bytes that `Recalibrator.encode` ever returns."""


def largest(calibrator: Recalibrator[Any, Any]) -> int:
    """Return the most bytes the state of a calibrator ever has; of one that does not grow, those it has now."""
    return calibrator.largest() if isinstance(calibrator, Growing) else len(calibrator.encode())
