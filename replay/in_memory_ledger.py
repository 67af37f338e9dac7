"""What replay's engine keeps of an event and of a stream: as the ledger's row and the calibrators' rows, unpacked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from state.banding import Thresholds
from state.bands import Bands
from state.coverage import Coverage
from state.forecasts import PROBABILITY, admits
from state.policy import Policy
from state.scoring.bias import Bias
from state.segments import Dictionary
from state.served import Served

#: What predicts, and where the served probability and the draw are written down.
Predicts = tuple[Callable[..., Any], Callable[[float], None], Callable[[float], None]]
#: Outcomes learnt between two looks at a calibrator's error and bound: these many, and a fiftieth of all before.
LOOK = 100


@dataclass(slots=True, eq=False)
class Entrants:
    """The calibrators of one stream, one a contender, with everything the hot path asks of them."""

    number: int
    kind: int
    policy: Policy
    served: list[Served]
    #: What predicts once something was learnt.
    predicts: list[Predicts]
    learns: list[Callable[[bytes, float, int], None]]
    revises: list[Callable[[bytes, float, float], None]]
    biases: list[Bias]
    #: Status of the row of an answered forecast, and role and duration of its queue.
    status: int
    role: int
    due_ms: int
    #: Which forecasts have a label, and what answers while most have none; None and () where that does not matter.
    coverage: Coverage | None = None
    unlearnt: Sequence[Predicts] = ()
    #: Slots of the stream's segments; None without.
    dictionary: Dictionary | None = None
    #: Outcomes learnt, and the sum over them of how many were learnt between forecast and outcome.
    learnt: int = 0
    late: int = 0
    look_at: int = LOOK
    #: The contenders in their warm-up.
    warming: tuple[int, ...] = ()
    #: The bands of each contender, and where thresholds move these.
    bands: Sequence[tuple[Bands | None, Thresholds | None]] = ()

    @property
    def answering(self) -> Sequence[Predicts]:
        """What predicts now."""
        return self.unlearnt if self.coverage is not None and self.coverage.uncovered else self.predicts


class Row:
    """An event, as `state.ledger.Entry` has it.

    Attributes
    ----------
    entrants, raw
        Of the stream, None while early; and the raw forecast.
    index, place
        Numbers of the forecast, and of the resolved event, on the tape; of classes and numbers ``index`` is that of the
        resolved event.
    places
        Of classes and numbers the window in which it counts, by contender.
    version
        Outcomes learnt when it was answered.
    warm
        The contenders in whose warm-up it was answered.
    entity, untaught
        What the forecast is about, 0 for nothing known; and whether its outcome counts nowhere, because that had
        taught.
    kept
        The raw forecast, what was served and the features, of classes and numbers the slots of segments in their place;
        None where nothing will ask for them.
    y, ts, as_of, number
        Of the label; not set before there is one, because a row is made for every forecast and each costs.
    """

    __slots__ = (
        "as_of", "born", "entity", "entrants", "index", "issued_ms", "kept", "number", "place", "places", "raw",
        "revisions", "status", "tickets", "touched", "ts", "untaught", "version", "warm", "y",
    )  # fmt: skip

    def __init__(
        self,
        status: int,
        born: int,
        entrants: Entrants | None = None,
        raw: Any = None,  # noqa: ANN401 - of the stream's kind
        index: int = -1,
        version: int = 0,
        tickets: Sequence[bytes] = (),
        issued_ms: int = 0,
        kept: tuple[Any, list[Any], Any] | None = None,
        warm: Sequence[int] = (),
        entity: int = 0,
    ) -> None:
        self.status = status
        self.born = self.touched = born
        self.entrants = entrants
        self.raw = raw
        self.index = index
        self.version = version
        self.tickets = tickets
        self.issued_ms = issued_ms
        self.kept = kept
        self.warm = warm
        self.entity = entity
        self.untaught = False
        self.place = -1
        self.places: Sequence[int] = ()
        self.revisions = 0

    def newer(self, ts: int, number: int) -> bool:
        """Whether an outcome counts more than the one the label is from, as `state.ledger.newer` has it."""
        return number > self.number or (number == self.number == 0 and ts >= self.as_of)

    def label(self, status: int, applied: int, ts: int, y: float, as_of: int, number: int) -> None:
        """Give it a label and another status."""
        self.status = status
        self.touched = applied
        self.ts = ts
        self.y = y
        self.as_of = as_of
        self.number = number

    def admits(self, y: float) -> bool:
        """Whether its forecast can have this outcome."""
        if self.entrants is None:
            return True
        if self.entrants.kind == PROBABILITY:
            return y in (0.0, 1.0)
        return self.kept is not None and admits(self.kept[0], y)
