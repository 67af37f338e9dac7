"""Counts of an audit that begins at the sources, added up over partitions and groups."""

from dataclasses import asdict, dataclass, field
from typing import Any

from replay.audit.checkpoint import AuditProgress
from replay.audit.output_matcher import OutputDifference
from replay.audit.plan import NAMED


@dataclass
class Followed:
    """Counts of compared records that come from sources."""

    #: Source records that intake has committed.
    records: int = 0
    #: Source records that became a forecast or label, a dead letter, or nothing.
    sent: int = 0
    dead: int = 0
    passed: int = 0
    #: Records that equal what the mapping makes, each in its place.
    forecasts: int = 0
    routes: int = 0
    labels: int = 0
    dead_letters: int = 0
    raw_answers: int = 0
    #: Repeated records: they change nothing after intake.
    copies: int = 0
    #: Dead letters whose reason depends on when the record was read. The rest of the letter is right.
    of_the_moment: int = 0
    #: Records made from source records that an operator skipped, by an intake that did not know that yet.
    unaware: int = 0
    #: Source records that are not committed yet.
    waiting: int = 0
    #: Source records that have been deleted: not judged.
    gone: int = 0
    #: Records made from deleted source topics, and dead letters of other readers: not judged.
    unread: int = 0
    #: Routes that `replay.load` wrote. They come from no source and are not judged.
    loaded: int = 0
    #: Labels that erase an event. `trueup forget` wrote them; they come from no source.
    erased: int = 0

    differences: int = 0


@dataclass
class RouterCounts:
    """Counts of compared records of a router."""

    #: Input records folded.
    routes: int = 0
    labels: int = 0
    #: Records that equal the derived ones, each in its place.
    outcomes: int = 0
    dead_letters: int = 0
    #: Repeated records, which the ledger ignores.
    copies: int = 0
    #: Labels that wait for a forecast, and records after the last journal entry.
    waiting: int = 0

    differences: int = 0


@dataclass
class Account:
    """The findings about one group, or one partition of it."""

    #: Counts of compared records.
    sources: Followed = field(default_factory=Followed)
    router: RouterCounts = field(default_factory=RouterCounts)
    #: Fates of routes and labels, by `state.routes.FATES`.
    routed: dict[str, int] = field(default_factory=dict)
    #: Differences; and records that could not be judged, one sentence each.
    differences: list[OutputDifference] = field(default_factory=list)
    unable: list[str] = field(default_factory=list)
    #: The same as ``sources``, for each source partition.
    by_source: dict[str, Followed] = field(default_factory=dict)
    #: The progress from which the next audit goes on.
    left: AuditProgress = field(default_factory=AuditProgress)

    def differ(self, counts: Followed | RouterCounts, difference: OutputDifference) -> None:
        """Count a difference. Only the first ones of a partition get a sentence."""
        counts.differences += 1
        if counts.differences <= NAMED:
            self.differences.append(difference)

    def add(self, other: "Account") -> None:
        """Add the findings of another account."""
        _add(self.sources, other.sources)
        _add(self.router, other.router)
        self.routed |= {name: self.routed.get(name, 0) + n for name, n in other.routed.items()}
        self.differences += other.differences
        self.unable += other.unable
        for name, each in other.by_source.items():
            _add(self.by_source.setdefault(name, Followed()), each)
        self.left.sources |= other.left.sources
        self.left.routers |= other.left.routers
        self.left.left += other.left.left
        self.left.skipped += other.left.skipped


def shown(whole: Account, seconds: float) -> dict[str, Any]:
    """Return the findings as JSON has them."""
    return {
        "sources": asdict(whole.sources),
        "router": asdict(whole.router),
        "routed": whole.routed,
        "source_partitions": {name: asdict(each) for name, each in whole.by_source.items()},
        "seconds": round(seconds, 3),
        "records_per_second": round(whole.sources.records / seconds) if seconds else 0,
    }


def _add(whole: Followed | RouterCounts, one: Followed | RouterCounts) -> None:
    for name, n in vars(one).items():
        setattr(whole, name, getattr(whole, name) + n)
