"""Time that passes when a test says so."""

from dataclasses import dataclass


@dataclass
class Clock:
    """Stands until it is moved, s."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now
