"""Times that lie decades from the Kafka timestamp of their record: mostly their number is in another unit."""

from datetime import UTC, datetime

from streams.records.limits import FAR_OFF
from streams.sources.modes import Source
from streams.sources.transforms import UNITS


def date(ts: int) -> str:
    """Return a time of ms since 1970 as people read it."""
    return f"{datetime.fromtimestamp(ts / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def said(ts: int, timestamp: int, source: Source | None) -> str:
    """Return what is to be done about a time; empty, if it does not lie far off.

    ``ts, timestamp``: the time and the record's Kafka timestamp, ms since 1970.
    ``source``: what mapped the record; None: it is one of trueup's own, whose time is in ms.
    """
    if abs(timestamp - ts) <= FAR_OFF:
        return ""
    table = {} if source is None else source.table.get("ts")
    unit = (table.get("unit") if isinstance(table, dict) else None) or "ms"
    of = "" if source is None else f" of source {source.name}"
    lies = f"ts{of} says {date(ts)} ({ts} ms), decades from the Kafka timestamp {date(timestamp)}"
    likely = [each for each in UNITS if abs(ts / UNITS[unit] * UNITS[each] - timestamp) <= FAR_OFF]
    if not likely:
        return f"{lies}; if it is not old history that is sent now, look at ts and its unit"
    if source is None:
        return (
            f'{lies}: it seems to be in {likely[0]}. Write ms, or map the topic by a source with unit = "{likely[0]}"'
        )
    return f'{lies}: set unit = "{likely[0]}" for ts, in place of {unit}'
