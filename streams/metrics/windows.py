"""Windows and alarms of a stream as in the JSON, for any kind of forecast."""

import math
from collections.abc import Mapping
from typing import Any

from state.scoring.alarm import ALPHA
from state.scoring.windows import Alarmed, Window, Windows, last, log_alarm, log_recent, worst


def alarm(found: Mapping[int, Windows[Any]], kind: Alarmed, since_ms: int | None = None) -> dict[str, Any]:
    """Return the evidence against calibration, over the whole life and the last windows, and whether it is enough.

    ``found``: histories of partitions, at least one; ``since_ms``: the time from which they count, if not over the
    whole life.
    """
    several, level = list(found.values()), -math.log10(ALPHA)
    log10, recent = (log(several, kind) / math.log(10.0) for log in (log_alarm, log_recent))
    return {
        "log10": log10,
        "sounds": log10 >= level,
        "recent_log10": recent,
        "recent_sounds": recent >= level,
        "since_ms": since_ms,
    }


def describe(
    found: Mapping[int, Windows[Any]],
    kind: Any,  # noqa: ANN401 - a kind of which the worst window is kept
    error: str,
    noise: str,
) -> tuple[dict[str, Any], Any, Window | None]:
    """Return the last window of all partitions and the worst window of any; empty before one is complete.

    ``partition`` and ``window`` identify the worst window. ``error, noise``: names of these figures. It also returns
    the sums of the last window, and the worst window; None before one is complete.
    """
    newest, off = last(found.values()), worst(found.values(), kind)
    if newest is None or off is None:
        return {}, None, None
    place = {"partition": next(n for n, each in found.items() if each.worst(kind) is off), "window": off.number}
    described = {
        "last_window": {"n": newest.n, error: newest.error(kind), noise: newest.noise(kind)},
        "worst_window": place | {error: off.scores.error(kind), noise: off.scores.noise(kind)},
    }
    return described, newest, off
