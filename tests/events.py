"""Streams of events for tests: what producers send, made from a seed."""

import random
from typing import Any, NamedTuple

import orjson


class Sent(NamedTuple):
    """A record as a producer sends it; ``topic`` is ``forecasts`` or ``outcomes``."""

    topic: str
    key: bytes
    value: bytes
    ts: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


def forecast(event_id: str, p: float, ts: int, stream: str = "s", **fields: Any) -> Sent:
    """Return a forecast record keyed by its event."""
    value = orjson.dumps({"event_id": event_id, "stream": stream, "p": p, **fields})
    return Sent("forecasts", event_id.encode(), value, ts)


def outcome(event_id: str, y: object, ts: int, **fields: Any) -> Sent:
    """Return an outcome record keyed by its event."""
    return Sent("outcomes", event_id.encode(), orjson.dumps({"event_id": event_id, "y": y, **fields}), ts)


class Made(NamedTuple):
    """A made stream, in time order, and how many records of each fate it holds."""

    sent: list[Sent]
    fates: dict[str, int]


def mixed(n: int, seed: int = 1, streams: int = 3, start: int = 1_000_000, step: int = 100) -> Made:
    """Make ``n`` events with everything that happens to events, in time order.

    Of 100 events, about 80 resolve after a random delay, 5 before their forecast, 15 never. Some records come twice,
    some forecasts reuse an id, some outcomes contradict an earlier one, and some records cannot be read. Ids start with
    the seed, so that two streams may follow each other.
    """
    rng = random.Random(seed)
    timed: list[tuple[int, int, Sent]] = []
    fates = dict.fromkeys(
        (
            "forecasts_issued",
            "forecasts_duplicate",
            "forecasts_dead",
            "outcomes_resolved",
            "outcomes_early",
            "outcomes_duplicate",
            "outcomes_revised",
            "outcomes_dead",
            "early_joined",
        ),
        0,
    )

    def at(ts: int, sent: Sent, fate: str) -> None:
        timed.append((ts, len(timed), sent._replace(ts=ts)))
        fates[fate] += 1

    for i in range(n):
        ts = start + i * step
        event_id = f"{seed}-{i}"
        p = rng.random()
        y = int(rng.random() < p**2)
        at(ts, forecast(event_id, p, ts, f"stream-{i % streams}"), "forecasts_issued")
        if rng.random() < 0.05:
            at(ts + step * 3, forecast(event_id, p, ts, f"stream-{i % streams}"), "forecasts_duplicate")
        if rng.random() < 0.02:
            at(ts + step * 4, forecast(event_id, rng.random(), ts, "another"), "forecasts_dead")
        if rng.random() < 0.02:
            junk = rng.choice([b"not json", b"[]", b'{"event_id": 1}', b'{"event_id":"a","stream":"s","p":1.5}', b""])
            at(ts + 1, Sent("forecasts", event_id.encode(), junk, ts), "forecasts_dead")
        fate = rng.random()
        if fate < 0.80:
            when = ts + rng.randrange(1, step * 50)
            at(when, outcome(event_id, y, when), "outcomes_resolved")
        elif fate < 0.85:
            when = ts - rng.randrange(1, step * 5)
            at(when, outcome(event_id, y, when), "outcomes_early")
            fates["early_joined"] += 1
        else:
            continue
        if rng.random() < 0.05:
            at(when + step * 60, outcome(event_id, y, when), "outcomes_duplicate")
        if rng.random() < 0.03:
            at(when + step * 70, outcome(event_id, 1 - y, when), "outcomes_revised")
        if rng.random() < 0.02:
            at(when + 1, Sent("outcomes", event_id.encode(), b'{"event_id":"a","y":0.5}', when), "outcomes_dead")
    return Made([sent for _, _, sent in sorted(timed, key=lambda item: item[:2])], fates)
