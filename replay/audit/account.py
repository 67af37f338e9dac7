"""What an audit has found from the sources on: sums over partitions, and over the groups before a move."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from replay.audit.checkpoint import Begun
from replay.audit.intake_verifier import Followed
from replay.audit.output_matcher import OutputDifference
from replay.audit.router_verifier import Sent


@dataclass
class Account:
    """What was found of one group, or of one partition of it.

    Attributes
    ----------
    sources, router
        What was compared.
    routed
        What became of routes and labels, by `state.routes.FATES`.
    differences, unable
        What differs, and what could not be judged, one sentence each.
    by_source
        As ``sources``, of each source partition.
    left
        What another audit goes on from.
    """

    sources: Followed = field(default_factory=Followed)
    router: Sent = field(default_factory=Sent)
    routed: dict[str, int] = field(default_factory=dict)
    differences: list[OutputDifference] = field(default_factory=list)
    unable: list[str] = field(default_factory=list)
    by_source: dict[str, Followed] = field(default_factory=dict)
    left: Begun = field(default_factory=Begun)

    def add(self, other: "Account") -> None:
        """Add what was found elsewhere."""
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


def total(accounts: Iterable[Account]) -> Account:
    """Return what was found of several groups."""
    whole = Account()
    for each in accounts:
        whole.add(each)
    return whole


def shown(accounts: dict[str, Account], seconds: float) -> dict[str, Any]:
    """Return what was found of groups, by their applications, as JSON has it; the last is the one that is audited."""
    whole = total(accounts.values())
    *earlier, own = accounts
    return {
        "sources": asdict(whole.sources),
        "router": asdict(whole.router),
        "routed": accounts[own].routed,
        "source_partitions": {name: asdict(each) for name, each in whole.by_source.items()},
        "earlier_groups": {
            name: {"sources": asdict(accounts[name].sources), "router": asdict(accounts[name].router)}
            for name in earlier
        },
        "seconds": round(seconds, 3),
        "records_per_second": round(whole.sources.records / seconds) if seconds else 0,
    }


def differences(accounts: dict[str, Account]) -> list[dict[str, Any]]:
    """Return what differs as JSON has it, that of groups before with their application."""
    *earlier, own = accounts
    found = [each._asdict() | {"application": name} for name in earlier for each in accounts[name].differences]
    return found + [each._asdict() for each in accounts[own].differences]


def _add(whole: Any, one: Any) -> None:  # noqa: ANN401 - counts of one kind
    """Add counts to counts."""
    for each in fields(one):
        setattr(whole, each.name, getattr(whole, each.name) + getattr(one, each.name))
