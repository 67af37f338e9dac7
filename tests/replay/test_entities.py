"""Replay teaches and counts of each entity what the workers' engine does."""

import random
from pathlib import Path

from state import kinds
from state.entities import number
from state.events import Event, Forecast, Outcome
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Policy
from tests.replay.engines import agreeing
from tests.state.histories import Table, Worker

PLAN = Policies(default=Policy(DEFAULT_CALIBRATOR, ttl_ms=400, unlabelled="alike"))


def accounts(seed: int) -> list[Event]:
    """Return 40 accounts of which each has 30 forecasts, labels that come together, and some that are taken back."""
    rng = random.Random(seed)
    made: list[tuple[int, int, str, float, str]] = []
    for account in range(40):
        start, y = rng.randrange(600), float(rng.random() < 0.4)
        for day in range(30):
            name = f"{account}-{day}"
            made.append((start + day, 0, name, rng.random(), f"a{account % 25}"))
            made.append((start + 35, 1, name, y, ""))
            if day % 7 == 0:
                made.append((start + 60, 1, name, 1.0 - y, ""))
    events: list[Event] = []
    offsets = [0, 0]
    for ts, topic, name, value, entity in sorted(made):
        offset = offsets[topic]
        offsets[topic] += 1
        if topic:
            events.append(Outcome(offset, None, name, value, ts))
        else:
            events.append(Forecast(offset, None, name, "s", value, (), ts, entity=number(entity)))
    return events


def test_both_engines_agree_on_what_entities_teach(tmp_path: Path) -> None:
    events = accounts(1)
    _, made, calibrator = agreeing(PLAN, events, tmp_path)
    learnt, forecasts = calibrator.learnt, sum(isinstance(each, Forecast) for each in events)
    assert learnt == len(made.column("index")) == len(events) - forecasts - 40 * 5 - made.untaught
    assert 40 < learnt <= 3 * 40


def test_the_size_of_a_batch_does_not_show() -> None:
    events, tables = accounts(2), []
    for size in (1, 7, 2000):
        worker = Worker(PLAN, Table())
        for at in range(0, len(events), size):
            worker.fold(*events[at : at + size])
        tables.append(dict(worker.table))
    assert tables[0] == tables[1] == tables[2]
    assert any(key[:1] == kinds.ENTITIES.letter for key in tables[0])
