"""The calibrator that serves the raw forecast unchanged."""

from collections.abc import Sequence
from struct import Struct
from typing import ClassVar

from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import Calibrator, require_probability
from state.calibrators.options import Option


class Identity(Calibrator):
    """Serve the raw forecast; no theorem. It is the control of every comparison.

    Notes
    -----
    Ticket: empty. Bytes: outcomes learnt (u64, little-endian).

    Examples
    --------
    >>> Identity().predict(0.25).p
    0.25
    """

    name: ClassVar[str] = "identity"
    order_free: bool = True
    serves_raw: bool = True
    options: ClassVar[dict[str, Option]] = {}
    remembered: ClassVar[tuple[str, ...]] = ("learnt",)
    layout: ClassVar[Struct] = Struct("<Q")

    def __init__(self) -> None:
        self.learnt = 0

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        require_probability(p)
        return Answer(p, p, b"")

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """Count an outcome in [0, 1]."""
        require_probability(y)
        self.learnt += 1

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        require_probability(y)
