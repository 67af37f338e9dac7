"""The `trueup` command of an environment: it refuses one that other packages share with it.

trueup is an application. Its packages have plain names (`agents`, `state`, `streams`), which other distributions have,
too: whichever is installed later overwrites files of the other, and neither pip nor uv says so. This module imports
nothing of trueup before it has looked, because it may be another's.
"""

import sys
from pathlib import Path
from typing import Final

PACKAGES: Final = ("agents", "cli", "lab", "replay", "state", "streams")
#: sysexits.h: EX_CONFIG, as for settings that are wrong.
_MISCONFIGURED: Final = 78


def shared() -> str:
    """Return who else has packages of trueup's names in this environment, and what to do; empty if nobody."""
    from importlib.metadata import packages_distributions  # noqa: PLC0415 - slow, and no checkout needs it

    owners = packages_distributions()
    others = {name: sorted({each for each in owners.get(name, ()) if each != "trueup"}) for name in PACKAGES}
    found = [f"{name} ({', '.join(by)})" for name, by in others.items() if by]
    if not found:
        return ""
    return (
        f"other packages of {sys.prefix} have modules of trueup's names, and one has overwritten the other: "
        f"{', '.join(found)}. Install trueup into an environment of its own: `pipx install` or `uv tool install`, or "
        "pip in a new venv"
    )


def main() -> int:
    """Run the command line, unless this environment is shared; a checkout has an environment of its own."""
    if not Path(__file__).resolve().with_name("pyproject.toml").exists() and (said := shared()):
        print(said, file=sys.stderr)
        return _MISCONFIGURED
    try:
        from cli.main import main as run  # noqa: PLC0415 - what it imports may be another's

        return run()
    except KeyboardInterrupt:  # while it imports, which takes half a second
        return 130
