"""The interface of an observer of events: a worker counts them, a replay writes them down."""

from collections.abc import Sequence
from typing import Protocol

from state.ledger import LedgerRow
from state.service import Service


class Observer(Protocol):
    """An observer is told what happens to events. It changes nothing that is served. ``now_ms`` is stream time."""

    def opened(self, service: Service) -> None:
        """A service was made."""

    def issued(self, service: Service, row: LedgerRow, x: Sequence[float], stream_time: int) -> None:
        """A forecast was answered; ``x`` are its features."""

    def parked(self, event_id: str, ts: int) -> None:
        """An outcome without a forecast has come."""

    def labelled(self, service: Service, row: LedgerRow, y: float, ts: int) -> None:
        """A forecast has its first outcome: y, with event time ``ts``, ms."""

    def resolved(self, service: Service, row: LedgerRow, event_id: str, applied: int, now_ms: int) -> int:
        """An event was learnt, or taught nothing (`state.ledger.UNTAUGHT`); return the window in which it counts."""

    def revised(self, service: Service, row: LedgerRow, event_id: str, was: float, now_ms: int) -> None:
        """The label of a learnt event has changed from ``was``."""

    def expired(self, service: Service, row: LedgerRow, event_id: str) -> None:
        """A forecast leaves without a label."""
