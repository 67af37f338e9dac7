"""The settings as they are in effect, without their secrets, and one hash of what all workers must agree on."""

import re
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, Final

import orjson

from state import maps
from state.policy import Policy
from state.policy_checks import ARRIVAL, MATURITY
from streams.config import in_force, variables
from streams.config.settings import Settings

#: Stands in place of a secret that is set.
HIDDEN: Final = "(set)"
#: What may differ between the workers of one group.
_OWN: Final = (
    "BROKERS",
    "INSTANCE_ID",
    "DATA_DIR",
    "LOG_LEVEL",
    "STREAMS",
    "MAPS",
    "METRICS_",
    "SASL_",
    "SSL_",
    "SECURITY_",
    "REGISTRY_",
)


def shown(settings: Settings) -> dict[str, str]:
    """Return every setting by its variable, in the order of the reference; empty for none, `HIDDEN` for a secret."""
    found: dict[str, str] = {}
    for held in (settings, settings.security, settings.access, settings.registry):
        found |= variables.values(held, HIDDEN)
    found["TRUEUP_COIN_KEY"] = HIDDEN if settings.policies.coin else ""
    return found


def policies(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return what each pattern of streams is calibrated by; ``*`` is every stream that no pattern matches."""
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
    """Return why streams have no map, by their pattern; nothing where no maps are written."""
    if settings.maps is None:
        return {}
    return {pattern: why for pattern, policy in _patterns(settings) if (why := maps.why_not(policy))}


def covered(settings: Settings) -> dict[str, str]:
    """Return by each pattern that never applies one before it that matches all that it does."""
    found: dict[str, str] = {}
    before: list[str] = []
    for pattern, _ in settings.policies.patterns:
        # Matched as text it stands for all its streams: only a * matches wildcards of it, a [set] among them as one.
        text = re.sub(r"\[!?\]?[^]]*\]", "?", pattern)
        by = [each for each in before if not ({*"?["} & {*each} and {*"*?"} & {*text})]
        if (first := next((each for each in by if fnmatchcase(text, each)), None)) is not None:
            found[pattern] = first
        before.append(pattern)
    return found


def sources(settings: Settings) -> list[dict[str, str]]:
    """Return of each topic of each source how it is read, and why."""
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
    """Return a hash of what decides answers and state, 8 hex digits: all workers of a group should show the same."""
    common = {name: value for name, value in shown(settings).items() if not name[7:].startswith(_OWN)}
    decided = [common, policies(settings), settings.policies.early_ttl_ms, settings.policies.coin_name]
    if settings.sources:
        decided.append([[each.name, each.role, each.topics, each.table] for each in settings.sources])
    text = orjson.dumps(decided, option=orjson.OPT_SORT_KEYS)
    return blake2b(text, digest_size=4).hexdigest()


def _patterns(settings: Settings) -> list[tuple[str, Policy]]:
    """Return the patterns of the file and, unless it has a ``*`` of its own, the default of all other streams."""
    found, default = [*settings.policies.patterns], settings.policies.default
    if default is not None and all(pattern != "*" for pattern, _ in found):
        found.append(("*", default))
    return found
