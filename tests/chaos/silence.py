"""How long forecasts waited, told by the topics alone: when each was acknowledged, and when its answer was appended.

The load notes its acknowledgements; the brokers note when they append answers (``LogAppendTime``), so no consumer that
an outage could hold up takes part. A partition is silent while a forecast that was acknowledged there waits and nothing
is answered.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import orjson

from tests.chaos.feed import Acknowledged
from tests.e2e.world import Read, World


class Silence(NamedTuple):
    """Nothing was answered in a partition from ``begin`` to ``end``, s since 1970, and a forecast waited."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.end - self.begin


def silences(
    forecasts: Sequence[tuple[int, str]], answers: Sequence[tuple[str, float]], acknowledged: Sequence[Acknowledged]
) -> Iterator[Silence]:
    """Return the silences of a partition, one an answer.

    ``forecasts``: offset and event id of each, in order.
    ``answers``: event id and time of append (s since 1970) of each, in order. Copies say nothing.
    ``acknowledged``: of the forecasts, in order of offsets.
    """
    offsets: dict[str, int] = {}
    for offset, event_id in forecasts:
        offsets.setdefault(event_id, offset)
    last = 0.0
    for event_id, at in answers:
        if event_id not in offsets:
            continue
        offset = offsets.pop(event_id)
        send = bisect_left(acknowledged, offset, key=attrgetter("offset"))
        if send < len(acknowledged):
            yield Silence(min(max(last, acknowledged[send].at), at), at)
        last = at


def measured(world: World, acknowledged: Mapping[int, Sequence[Acknowledged]], least: float = 0.5) -> list[Silence]:
    """Return the silences of all partitions that lasted for some s."""
    found: list[Silence] = []
    for n in range(world.partitions):
        forecasts: list[tuple[int, str]] = []
        answers: list[tuple[str, float]] = []

        def forecast(record: Read, forecasts: list[tuple[int, str]] = forecasts) -> None:
            if (event_id := _event_id(record.value)) is not None:
                forecasts.append((record.offset, event_id))

        def answer(record: Read, answers: list[tuple[str, float]] = answers) -> None:
            if (event_id := _event_id(record.value)) is not None:
                answers.append((event_id, record.timestamp / 1000))

        world.visit("forecasts", forecast, n)
        world.visit("calibrated", answer, n)
        found += [each for each in silences(forecasts, answers, acknowledged[n]) if each.seconds >= least]
    return found


def longest(found: Sequence[Silence], began: float, ended: float) -> float:
    """Return the longest silence within a time, s; what lies before or after it does not count."""
    return max([0.0, *(min(each.end, ended) - max(each.begin, began) for each in found)])


def _event_id(value: bytes | None) -> str | None:
    try:
        record = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return None
    event_id = record.get("event_id") if isinstance(record, dict) else None
    return event_id if isinstance(event_id, str) else None
