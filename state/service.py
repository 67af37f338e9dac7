"""Services: one stream under one configuration, with the calibrators that it uses."""

from dataclasses import dataclass
from typing import Any

from state import ledger
from state.chances import Chances
from state.coverage import Coverage
from state.fence import EXPIRY
from state.kind import Live
from state.marking import Marker
from state.scoring.pair_scores import AnyComparison
from state.segments import Dictionary
from state.served import Served
from state.stream_counts import StreamCounts
from state.versions import Version, Versions


@dataclass(slots=True, eq=False)
class Learner:
    """The calibrator of one stream and configuration in any role: it serves, has served, or challenges."""

    config: str
    key: bytes
    served: Served
    #: The same calibrator before its first outcome; made when it is needed.
    blank: Any = None


@dataclass(slots=True, eq=False)
class ChallengerService:
    """A calibrator that is scored beside one champion, and not served."""

    learner: Learner
    comparison: Live[AnyComparison]


@dataclass(slots=True, eq=False)
class Service:
    """A service: one stream under one configuration, with all that the hot path needs."""

    stream: str
    kind: int
    calibrator: str
    config: str
    #: Names for ledger rows, from `state.ledger.names`.
    names: bytes
    learner: Learner
    #: Which forecasts have a label; None if that does not matter. While most have none, nothing learnt is served.
    coverage: Coverage | None
    #: The counts of the stream.
    counts: Live[StreamCounts]
    #: All calibrators that have challenged it, by configuration; None before the first.
    challengers: dict[str, ChallengerService] | None = None
    #: For an answered forecast: role and duration of its queue, how long its row is kept, and its status.
    role: int = EXPIRY
    due_ms: int = 0
    ttl_ms: int = 0
    status: int = ledger.ISSUED
    #: The present challengers.
    shadows: tuple[ChallengerService, ...] = ()
    #: The slots of the segments that the stream has now; empty and None without segments.
    layout: bytes = b""
    dictionary: Live[Dictionary] | None = None
    #: Which labels teach, given their chances; None without chances.
    chances: Chances | None = None
    #: Whether forecasts that are answered now also count by weight.
    weighed: bool = False
    #: Whether the stream's map is frozen: nothing is learnt.
    frozen: bool = False
    #: Marks bands, points and intervals; None if the stream has none of them.
    marker: Marker | None = None
    #: The model's version that it serves, and all versions of the stream; None without versions.
    version: Version | None = None
    versions: Versions | None = None
    #: Data of an observer.
    seen: Any = None
