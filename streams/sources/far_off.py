"""Times that are decades from their record's Kafka timestamp. Mostly the number is in another unit."""

from datetime import UTC, datetime

from streams.records.limits import FAR_OFF
from streams.sources.modes import Source
from streams.sources.transforms import UNITS


def date(ts: int) -> str:
    """Return a time, ms since 1970, as date and time of day in UTC."""
    return f"{datetime.fromtimestamp(ts / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def said(ts: int, timestamp: int, source: Source | None) -> str:
    """Return the remedy for a time; empty if the time is not far off.

    ``ts, timestamp``: the time and the record's Kafka timestamp, ms since 1970.
    ``source``: the source that mapped the record; None if the record has trueup's own form, with times in ms.
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
