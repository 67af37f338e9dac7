"""Forecasts of classes, recalibrated one class against the rest."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from struct import Struct
from typing import ClassVar

from state.calibrators.answer import Answer
from state.calibrators.base import MOST_SLOTS, Calibrator, Recalibrator, require_head
from state.calibrators.options import Option, integer, text
from state.forecasts import Classwise, Probs
from state.quick import new

#: Default calibrator of each class: it leaves forecasts that are right as they are
#: (`docs/explanation/classes-and-numbers.md`).
EACH = "prudent+certified"
#: Default number of classes.
CLASSES = 3
#: The most classes: the default's state takes up to 13 kB per class without segments, and a Kafka record at most 1 MB.
MOST = 100


class Multiclass(Recalibrator):
    """Serve K probabilities. Each has its own calibrator, which learns whether its class occurred.

    The K probabilities need not sum to 1. The record also has `Classwise.normalised` and `Classwise.argmax`, for users
    who need a distribution or one class. Normalising couples the classes, so no class keeps its guarantee. The order of
    classes is that of the served probabilities.

    ``parts``: one calibrator per class, each with its own key for draws: ``make("multiclass", classes=3,
    each="platt+minimax")``. Further arguments are options of the parts.

    Notes
    -----
    The paper's grid over the simplex is exponential in K, so the paper itself suggests one class against the rest. Each
    class is calibrated by itself, not the vector.

    Ticket: K lengths (u16 each), the parts' tickets. Bytes: K (u32), K lengths (u32 each), the parts' states.
    Little-endian.

    References
    ----------
    Kuleshov & Ermon 2017, *Multiclass prediction*; Zadrozny & Elkan 2002.

    Examples
    --------
    >>> from state.calibrators import make
    >>> calibrator = make("multiclass", classes=3, each="platt")
    >>> for t in range(6000):
    ...     calibrator.update(calibrator.predict(Probs((0.8, 0.1, 0.1))).ticket, t % 3)
    >>> [round(p, 1) for p in calibrator.predict(Probs((0.8, 0.1, 0.1))).p]
    [0.3, 0.3, 0.3]
    """

    name: ClassVar[str] = "multiclass"
    kind: ClassVar[str] = "probs"
    options: ClassVar[dict[str, Option]] = {
        "classes": integer(CLASSES, 2, MOST, "K, the number of classes; outcomes are 0..K-1"),
        "each": text(EACH, "the calibrator of each class, whose options stand beside these"),
    }

    def __init__(self, parts: Sequence[Calibrator]) -> None:
        if len(parts) < 2:
            raise ValueError(f"there must be at least 2 classes, got {len(parts)}")
        self.order_free = all(part.order_free for part in parts)
        self.grouped = any(part.grouped for part in parts)
        self.serves_raw = all(part.serves_raw for part in parts)
        self._parts = tuple(parts)
        self._ticket = Struct(f"<{len(parts)}H")
        self._state = Struct(f"<{len(parts) + 1}I")

    def predict(
        self, p: Probs, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()
    ) -> Answer[Classwise]:
        """Serve each class its calibrator's answer; ValueError unless there are K probabilities.

        ``groups`` are the event's slots. Each class learns its own corrections from them.
        """
        parts = self._parts
        if len(p) != len(parts):
            raise ValueError(f"probs must be of {len(parts)} classes, got {len(p)}")
        served, drawn, tickets = zip(
            *(part.predict(one, x, key, groups) for part, one in zip(parts, p, strict=True)), strict=True
        )
        return new(Answer, (Classwise(served), Classwise(drawn), self._joined(tickets)))

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """Let each class learn whether it occurred; ValueError unless ``y`` is one of 0..K-1."""
        self._require_class(y)
        for k, (part, own) in enumerate(self._own(ticket)):
            part.update(own, float(k == y), at)
        self.learnt = self._parts[0].learnt

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Revise the old class and the new one; ValueError unless ``y`` is one of 0..K-1."""
        self._require_class(y)
        for k, (part, own) in enumerate(self._own(ticket)):
            if (k == was) != (k == y):
                part.revise(own, float(k == was), float(k == y))

    def unserved(self, ticket: bytes) -> bytes:
        return self._joined([part.unserved(own) for part, own in self._own(ticket)])

    def regrouped(self, ticket: bytes, slots: Mapping[int, int]) -> bytes:
        return self._joined([part.regrouped(own, slots) for part, own in self._own(ticket)])

    def _require_class(self, y: float) -> None:
        if not (0 <= y < len(self._parts) and y == int(y)):
            raise ValueError(f"a class must be one of 0 to {len(self._parts) - 1}, got {y!r}")

    def _own(self, ticket: bytes) -> list[tuple[Calibrator, bytes]]:
        """Return each class's calibrator and ticket."""
        ends = accumulate(self._ticket.unpack_from(ticket), initial=self._ticket.size)
        return [(part, ticket[start:end]) for part, (start, end) in zip(self._parts, pairwise(ends), strict=True)]

    def _joined(self, tickets: Sequence[bytes]) -> bytes:
        return self._ticket.pack(*map(len, tickets)) + b"".join(tickets)

    def encode(self) -> bytes:
        states = [part.encode() for part in self._parts]
        return self._state.pack(len(states), *map(len, states)) + b"".join(states)

    def largest(self, slots: int = MOST_SLOTS) -> int:
        return self._state.size + sum(part.largest(slots) for part in self._parts)

    def decode(self, payload: bytes) -> None:
        size = self._state.size
        require_head(payload, size)
        classes, *lengths = self._state.unpack_from(payload)
        if classes != len(lengths) or size + sum(lengths) != len(payload):
            raise ValueError(
                f"a state of {classes} classes and {len(payload)} bytes does not fit {len(lengths)} classes"
            )
        ends = accumulate(lengths, initial=size)
        for part, (start, end) in zip(self._parts, pairwise(ends), strict=True):
            part.decode(payload[start:end])
        self.learnt = self._parts[0].learnt

    def error(self) -> float | None:
        """Return the mean of the classes' errors, the classwise error; None if a class has none."""
        return _mean([part.error() for part in self._parts])

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the mean of the classes' bounds; None if a class has none."""
        return _mean([part.bound(outstanding) for part in self._parts])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
