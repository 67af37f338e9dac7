"""What was in force at each place of a partition: as workers wrote it, or as far as a promotion's audit line tells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from replay.audit.output_matcher import Unauditable
from state.policy import Challenger, Policy
from streams.config import in_force
from streams.config.in_force import InForce, InForceError
from streams.config.settings import Settings

#: Stands for the claim of what no worker has written down.
UNKNOWN: Final = -1


@dataclass(frozen=True, eq=False)
class Terms:
    """What was in force from a place on.

    Attributes
    ----------
    applied
        Records of both inputs that had been applied before.
    next
        Next offset of forecasts and of outcomes then; None if no worker wrote down what was in force.
    claim
        Offset of the worker's claim in the changelog, `UNKNOWN` likewise.
    settings
        What answers were made under.
    owner, at
        Who took the partition up, and when.
    """

    applied: int
    next: tuple[int, int] | None
    claim: int
    settings: Settings
    digest: str = ""
    owner: str = ""
    at: str = ""

    def shown(self) -> dict[str, Any]:
        """Return what people are told: since when, which configuration, and who took the partition up."""
        known = self.digest or in_force.digest(in_force.described(self.settings))
        return {"applied": self.applied, "configuration": known, "owner": self.owner or None, "at": self.at or None}

    def begins(self, topic: int, offset: int) -> bool:
        """Whether a record of an input was applied under these terms, or later ones."""
        return self.next is not None and offset >= self.next[topic]

    def promoted(
        self, stream: str, config: str, promotions: Sequence[Mapping[str, Any]], applied: int
    ) -> "Terms | None":
        """Return the terms under which another calibrator serves a stream, if a promotion has named it.

        Parameters
        ----------
        stream, config
            Which configuration serves it.
        promotions
            Lines of ``FILE.audit.jsonl``.
        applied
            From where on.
        """
        policies = self.settings.policies
        matched = policies.matched(stream)
        if matched is None:
            return None
        pattern, policy = matched
        changed = _served_by(policy, config, [line for line in promotions if line.get("pattern") == pattern])
        if changed is None:
            return None
        patterns = [(each, changed if each == pattern else was) for each, was in policies.patterns]
        made = policies.changed(patterns, policies.default)
        return replace(self, applied=applied, settings=in_force.under(self.settings, made))


def timeline(settings: Settings, recorded: Sequence[InForce], since: Terms | None = None) -> list[Terms]:
    """Return what was in force, in order: ``settings`` up to the first record, then what the records say.

    Takers that changed nothing are left out, and so are those after whom nothing was applied.

    Parameters
    ----------
    settings
        Of the workers.
    recorded
        What they wrote, the oldest first.
    since
        What was in force where an earlier audit stopped; ``recorded`` is then what was written for there and later.

    Raises
    ------
    Unauditable
        If this version cannot read a configuration.
    """
    found = [Terms(0, None, UNKNOWN, settings) if since is None else since]
    for each in recorded:
        if found[-1].digest == each.digest:
            continue
        try:
            known = in_force.restored(each.configuration, settings)
        except InForceError as exc:
            raise Unauditable(str(exc)) from exc
        if found[-1].applied == each.applied:
            found.pop()
        found.append(Terms(each.applied, each.next, each.claim, known, each.digest, each.owner, each.at))
    return found


def _served_by(policy: Policy, config: str, promotions: Sequence[Mapping[str, Any]]) -> Policy | None:
    """Return what a policy was when a configuration that promotions name served: everything else challenged it."""
    known = {each.config: Challenger(each.calibrator, each.options) for each in (policy, *policy.challengers)}
    for line in promotions:
        for side in (line.get("from"), line.get("to")):
            if isinstance(side, Mapping) and side.get("config") == config:
                known.setdefault(config, Challenger(side["calibrator"], side["options"]))
                return _with_champion(policy, config, known)
    return None


def _with_champion(policy: Policy, config: str, known: dict[str, Challenger]) -> Policy | None:
    champion = known.pop(config)
    try:
        made = replace(
            policy,
            calibrator=champion.calibrator,
            options=in_force.values(champion.options),
            shadow=tuple(known.values()),
        )
    except ValueError:
        return None
    return made if made.config == config else None
