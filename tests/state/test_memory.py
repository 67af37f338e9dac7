"""What a partition keeps of its streams in memory stays within what it may have, and changes no answer."""

import gc
import tracemalloc
from random import Random

import pytest

from state import kinds
from state.engine import Partition
from state.events import Event, Forecast, Outcome
from state.policies import Policies
from state.policy import Policy

MEMORY = 1_000_000
START = 1_700_000_000_000
WIDE = Policy("calibrated_regression", features=32)


def history(policy: Policy, streams: int, events: int) -> list[Event]:
    """Return forecasts with their outcomes, of streams that take turns."""
    rng, made = Random(7), list[Event]()
    for n in range(streams * events):
        p, ts, name = rng.betavariate(1.2, 3.0), START + n, f"e{n}"
        x = tuple(rng.uniform(-1.0, 1.0) for _ in range(int(policy.n_features)))
        made.append(Forecast(n, b"k", name, f"stream-{n % streams}", p, x, ts))
        made.append(Outcome(n, b"k", name, float(rng.random() < p), ts))
    return made


@pytest.mark.parametrize(("policy", "streams"), [(Policy("histogram"), 200), (Policy(), 80), (WIDE, 24)])
@pytest.mark.parametrize("events", [1, 5])
def test_streams_stay_within_the_memory_and_use_it(policy: Policy, streams: int, events: int) -> None:
    made, rows = history(policy, streams, events), dict[bytes, bytes | None]()
    tracemalloc.start()
    try:
        one = Partition(Policies(default=policy), rows.get, memory=lambda: MEMORY)
        for at in range(0, len(made), 50):
            changes = one.fold(made[at : at + 50])
            rows.update(changes.rows)
        del changes
        one.fold([])
        held = tracemalloc.get_traced_memory()[0]
        one.reset()
        gc.collect()
        held -= tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert MEMORY / 5 < held < MEMORY


def test_what_is_let_go_is_read_again_and_nothing_else_changes() -> None:
    made = history(Policy(), 40, 4)

    def run(memory: int) -> tuple[dict[bytes, bytes | None], list[object], int]:
        rows, outputs, read = dict[bytes, bytes | None](), list[object](), [0]

        def get(key: bytes) -> bytes | None:
            read[0] += key.startswith(kinds.CALIBRATOR.letter)
            return rows.get(key)

        one = Partition(Policies(default=Policy()), get, memory=lambda: memory)
        for at in range(0, len(made), 50):
            effects = one.fold(made[at : at + 50])
            outputs += effects.outputs
            rows.update(effects.rows)
        return rows, outputs, read[0]

    little, much = run(1), run(1 << 30)
    assert little[:2] == much[:2]
    assert much[2] == 40 < little[2]


def test_a_partition_is_full_when_its_changes_take_half_of_the_memory() -> None:
    rows = dict[bytes, bytes | None]()
    one = Partition(Policies(default=Policy("histogram")), rows.get, memory=lambda: MEMORY)
    full = []
    for event in history(Policy(), 100, 1):
        one.begin()
        one.apply([event])
        full.append(one.full)
    assert sorted(full) == full, "once full, until there is a checkpoint"
    assert full[-1]
    one.freeze()
    assert not one.full


def test_rows_of_entities_count_in_the_memory() -> None:
    rows = dict[bytes, bytes | None]()
    one = Partition(Policies(default=Policy("histogram")), rows.get, memory=lambda: MEMORY)
    events = history(Policy(), 1, 4000)
    tracemalloc.start()
    try:
        for n, event in enumerate(events):
            one.begin()
            one.apply([event._replace(entity=n // 2 + 1) if isinstance(event, Forecast) else event])
            if one.full:
                break
        held = tracemalloc.get_traced_memory()[0]
        weight = one.weight
        one.freeze()
        gc.collect()
    finally:
        tracemalloc.stop()
    assert n < len(events) - 1, "many entities of one stream fill the memory, too"
    assert held > MEMORY / 4
    assert weight > MEMORY / 2
    assert not one.full
