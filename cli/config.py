"""``trueup config``: the settings in effect, or what is wrong with them."""

import argparse
from collections.abc import Mapping
from typing import Any

from cli.options import DONE, Commands, command, group, print_json, settings
from state.scoring.ages import words
from streams.config import effective_config
from streams.config.settings import SettingsError
from streams.sources import modes
from streams.sources.fields import FORECAST, OUTCOME


def add(commands: Commands) -> None:
    """Add the commands to the command line."""
    actions = group(commands, "config", "show the settings in effect, or what is wrong with them")
    command(
        actions,
        "check",
        "print every setting, secrets hidden; status 78 if one is wrong",
        "cli.config:check",
        says="Reads what a worker would read, certificates and the streams file too. Asks no broker.",
    )


def check(options: argparse.Namespace) -> int:
    """Print the settings and what follows from them; raises SettingsError if one is wrong."""
    of = settings()
    try:
        _ = of.security.context, of.access.context
    except ValueError as exc:
        raise SettingsError(str(exc)) from exc
    found, streams = effective_config.shown(of), effective_config.policies(of)
    hash_, sources = effective_config.fingerprint(of), effective_config.sources(of)
    unmapped, covered = effective_config.unmapped(of), effective_config.covered(of)
    if options.json:
        told = {"settings": found, "streams": streams, "sources": sources, "configuration": hash_, "no_map": unmapped}
        print_json(told | {"covered": covered})
        return DONE
    for name, value in found.items():
        print(f"{name}={value}")
    for pattern, policy in streams.items():
        print(f"# streams {pattern!r}: {_said(policy)}")
    for pattern, why in unmapped.items():
        print(f"# streams {pattern!r}: no map in {of.maps}, because {why}: decide by their raw forecasts")
    for pattern, by in covered.items():
        print(f"# note: streams {pattern!r} never applies: {by!r} stands before it, and the first that matches counts")
    if modes.routed(of.modes, OUTCOME) and not modes.routed(of.modes, FORECAST):
        print(f"# note: outcomes come through intake, but no forecasts do. {modes.UNROUTED}")
    for each in sources:
        print(f"# source {each['name']!r}: {each['topic']} of {each['role']}s is {each['mode']}, for {each['why']}")
    print(f"# configuration {hash_}")
    return DONE


def _said(policy: Mapping[str, Any]) -> str:
    kept = f"kept {words(policy['ttl_ms'])}"
    if policy["matures_ms"]:
        kept += f", labels known after {words(policy['matures_ms'])}"
    if policy["silence"] is not None:
        kept += f", no report means {policy['silence']:g}"
    named = [*policy["segments"], *("*".join(pair) for pair in policy["pairs"])]
    segments = f", segments {', '.join(named)}" if named else ""
    beside = f", challengers {', '.join(policy['challengers'])}" if policy["challengers"] else ""
    answers = f"{policy['calibrator']}, configuration {policy['config']}"
    marks = "".join(
        f", {name} {policy[name]}" for name in ("entity", "label_rate", "weight", "model_version") if policy[name]
    )
    return f"{answers}, {kept}{segments}{marks}{beside}"
