"""Forecasts of classes, recalibrated one class against the rest."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from struct import Struct
from typing import ClassVar

from state.calibrators.answer import Answer, new
from state.calibrators.base import MOST_SLOTS, Calibrator, Recalibrator, require_head
from state.calibrators.options import Option, integer, text
from state.forecasts import Classwise, Probs

#: What recalibrates each class if nothing else is set, as of probabilities: it leaves right forecasts as they are
#: (`docs/explanation/classes-and-numbers.md`).
EACH = "prudent+certified"
#: Classes if their number is not set.
CLASSES = 3
#: Most classes: the default's state takes up to 13 kB a class without segments, and Kafka's records at most 1 MB.
MOST = 100


class Multiclass(Recalibrator):
    """Serve K probabilities, each by a calibrator of its own that learns whether its class came.

    Served unnormalised, as K forecasts that need not sum to 1. `Classwise.normalised` and `Classwise.argmax` stand
    beside in the record. They are for those who must have a distribution or one class: it couples the classes, and no
    class keeps its guarantee. The order of classes is that of what is served.

    Parameters
    ----------
    parts
        One calibrator a class, whose draws are keyed apart: ``make("multiclass", classes=3, each="platt+minimax")``.
        Options of the parts are given beside these two.

    Notes
    -----
    The paper's grid over the simplex has a size exponential in K; one against the rest is the way out it names. What is
    calibrated is each class by itself, not the vector.

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
        """Serve each class what its calibrator makes of its probability; ValueError if there are not K.

        ``groups`` are the event's slots, for calibrators that use segments; each class learns its own corrections.
        """
        parts = self._parts
        if len(p) != len(parts):
            raise ValueError(f"probs must be of {len(parts)} classes, got {len(p)}")
        served, drawn, tickets = zip(
            *(part.predict(one, x, key, groups) for part, one in zip(parts, p, strict=True)), strict=True
        )
        return new(Answer, (Classwise(served), Classwise(drawn), self._joined(tickets)))

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """Let each class learn whether it came; ValueError unless ``y`` is one of 0..K-1."""
        self._require_class(y)
        for k, (part, own) in enumerate(self._own(ticket)):
            part.update(own, float(k == y), at)
        self.learnt = self._parts[0].learnt

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Let the class that was thought to have come and the one that did revise; ValueError as `update` raises it."""
        self._require_class(y)
        for k, (part, own) in enumerate(self._own(ticket)):
            if (k == was) != (k == y):
                part.revise(own, float(k == was), float(k == y))

    def unserved(self, ticket: bytes) -> bytes:
        """Return the ticket of an answer that was not served: that of each class, see `Recalibrator.unserved`."""
        return self._joined([part.unserved(own) for part, own in self._own(ticket)])

    def regrouped(self, ticket: bytes, slots: Mapping[int, int]) -> bytes:
        """Return a ticket whose event has other slots: that of each class, as `Prudent.regrouped` does."""
        return self._joined([part.regrouped(own, slots) for part, own in self._own(ticket)])

    def _require_class(self, y: float) -> None:
        """Raise ValueError unless an outcome is one of 0..K-1."""
        if not (0 <= y < len(self._parts) and y == int(y)):
            raise ValueError(f"a class must be one of 0 to {len(self._parts) - 1}, got {y!r}")

    def _own(self, ticket: bytes) -> list[tuple[Calibrator, bytes]]:
        """Return the calibrator of each class with its ticket."""
        ends = accumulate(self._ticket.unpack_from(ticket), initial=self._ticket.size)
        return [(part, ticket[start:end]) for part, (start, end) in zip(self._parts, pairwise(ends), strict=True)]

    def _joined(self, tickets: Sequence[bytes]) -> bytes:
        """Return the ticket of the classes' tickets."""
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
        """Return the mean over the classes of their errors, the classwise error; None where a class has none."""
        return _mean([part.error() for part in self._parts])

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the mean of the classes' bounds; None where a class has none."""
        return _mean([part.bound(outstanding) for part in self._parts])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
