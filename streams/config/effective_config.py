"""The settings in effect, without secrets, and the hash of those on which all workers must agree."""

import re
from fnmatch import fnmatchcase
from typing import Any, Final

from state import maps
from state.policy import Policy
from state.policy_checks import ARRIVAL, MATURITY
from streams.config import in_force, variables
from streams.config.settings import Settings

#: Is shown in place of a secret.
HIDDEN: Final = "(set)"


def shown(settings: Settings) -> dict[str, str]:
    """Return every setting by its variable, in the order of the reference; empty if not set, `HIDDEN` for a secret."""
    found: dict[str, str] = {}
    for held in (settings, settings.security, settings.access, settings.registry):
        found |= variables.values(held, HIDDEN)
    found["TRUEUP_COIN_KEY"] = HIDDEN if settings.policies.coin else ""
    return found


def policies(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the calibrator for each pattern of streams; ``*`` stands for all streams that match no other pattern."""
    return {
        pattern: {
            **in_force.plain(policy),
            "config": policy.config,
            "learn": MATURITY if policy.waits else ARRIVAL,
            "revisable_ms": policy.kept_ms,
            "challengers": [f"{each.calibrator} ({each.config})" for each in policy.challengers],
        }
        for pattern, policy in _patterns(settings)
    }


def unmapped(settings: Settings) -> dict[str, str]:
    """Return why streams have no map, by pattern; empty if no maps are written."""
    if settings.maps is None:
        return {}
    return {pattern: why for pattern, policy in _patterns(settings) if (why := maps.why_not(policy))}


def covered(settings: Settings) -> dict[str, str]:
    """Return each pattern that never applies, with the earlier pattern that matches the same streams."""
    found: dict[str, str] = {}
    before: list[str] = []
    for pattern, _ in settings.policies.patterns:
        # The later pattern is matched as if it were a name: only a * of the earlier one matches its wildcards.
        text = re.sub(r"\[!?\]?[^]]*\]", "?", pattern)
        by = [each for each in before if not ({*"?["} & {*each} and {*"*?"} & {*text})]
        if (first := next((each for each in by if fnmatchcase(text, each)), None)) is not None:
            found[pattern] = first
        before.append(pattern)
    return found


def sources(settings: Settings) -> list[dict[str, str]]:
    """Return how each topic of each source is read, and why."""
    return [
        {
            "name": mode.source.name,
            "topic": mode.topic,
            "role": mode.source.role,
            "mode": "direct" if mode.direct else "for the intake",
            "why": mode.why,
        }
        for mode in settings.modes
    ]


def fingerprint(settings: Settings) -> str:
    """Return the hash of the configuration that decides answers, as journal and audit name it.

    All workers of a group should show it.

    It is 8 hex digits. With intake, a hyphen and 8 digits of the hash of intake's mapping follow.
    """
    made = [in_force.described(settings), *([in_force.mapping(settings)] if settings.has_intake else [])]
    return "-".join(in_force.digest(each)[:8] for each in made)


def _patterns(settings: Settings) -> list[tuple[str, Policy]]:
    """Return the patterns of the file; unless it has ``*``, also the default for all other streams."""
    found, default = [*settings.policies.patterns], settings.policies.default
    if default is not None and all(pattern != "*" for pattern, _ in found):
        found.append(("*", default))
    return found
