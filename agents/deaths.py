"""Counts how often a process died of the same record. After some deaths the log names the command that helps."""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from streams.atomic_file import written
from streams.config.settings import SettingsError

log = logging.getLogger("trueup")

#: From this many deaths on, no restart will help.
MANY: Final = 3
NAME: Final = "deaths.json"


def told(directory: Path, place: str) -> str:
    """Count a death caused by a record, ``TOPIC/PARTITION@OFFSET``; return the line for the log."""
    path = directory / NAME
    with suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)  # an intake writes no other file
    try:
        known = orjson.loads(path.read_bytes())
        times = int(known["times"]) + 1 if known["place"] == place else 1
    except (OSError, ValueError, KeyError, TypeError):
        times = 1
    try:
        with written(path) as file:
            file.write(orjson.dumps({"place": place, "times": times}))
    except (OSError, SettingsError) as exc:
        log.warning("cannot count this death: %s", exc)
    if times < MANY:
        return f"it died of {place}; death {times} of it in a row"
    return (
        f"it has died of {place} {times} times, and restarts do not help: to go on without it, run "
        f"trueup state skip {place} --reason '...'"
    )
