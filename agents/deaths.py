"""How often a worker has died of the same record: kept beside its state, so that it can say what helps."""

import logging
from pathlib import Path
from typing import Final

import orjson

from streams.atomic_file import written
from streams.config.settings import SettingsError

log = logging.getLogger("trueup")

#: From how many deaths on a restart is no remedy.
MANY: Final = 3
NAME: Final = "deaths.json"


def counted(directory: Path, place: str) -> int:
    """Count a death of a record, ``TOPIC/PARTITION@OFFSET``, and return how many there were of it in a row."""
    path = directory / NAME
    try:
        known = orjson.loads(path.read_bytes())
        times = int(known["times"]) + 1 if known["place"] == place else 1
    except (OSError, ValueError, KeyError, TypeError):
        times = 1
    try:
        with written(path) as file:
            file.write(orjson.dumps({"place": place, "times": times}))
    except (OSError, SettingsError) as exc:
        log.warning("cannot count what the worker died of: %s", exc)
    return times


def told(directory: Path, place: str) -> str:
    """Count a death of a record, and return what is to be said of it."""
    times = counted(directory, place)
    if times < MANY:
        return f"it died of {place}; death {times} of it in a row"
    return (
        f"it has died of {place} {times} times, and restarts do not help: to go on without it, run "
        f"trueup skip {place} --reason '...'"
    )
