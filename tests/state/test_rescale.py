"""Rows of some partitions, divided anew: nothing of an event is lost, no sum changes, and everything goes on."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from zlib import crc32

import pytest

from state import calibrators, keys, ledger, rescale, rows, routes
from state.calibrators import REGISTRY
from state.events import Calibrated, Forecast, Outcome, Output, Resolved
from state.expiry import CHUNK
from state.fence import FATES, FORECASTS, ISSUED, OUTCOMES, Fence
from state.forecasts import Probs
from state.frames import CorruptFrame
from state.policy import Challenger, Policies, Policy
from state.rescale import NOWHERE, Moved, Plan, RescaleError
from state.routes import Label, Route, Routed, Router
from state.scoring import history
from state.scoring.ages import Ages
from state.scoring.comparison import Comparison
from state.scoring.history import KINDS, WINDOW
from state.scoring.scores import total
from state.segments import Dictionary
from tests.state.histories import POLICIES, SHADOWED, Step, Table, Worker, seeded

#: Long enough for events to be there when the number of partitions changes, and revised after it.
KEPT = 3000


def kept(policies: Policies) -> Policies:
    """Return policies under which rows are there for longer."""
    patterns = [
        (stream, Policy(**{**vars_of(policy), "ttl_ms": KEPT, "revisable_ms": 2 * KEPT}))
        for stream, policy in policies.patterns
    ]
    return Policies(patterns, early_ttl_ms=KEPT)


def vars_of(policy: Policy) -> dict[str, Any]:
    """Return the fields of a policy."""
    return {name: getattr(policy, name) for name in Policy.__dataclass_fields__}


def at(event_id: str, width: int) -> int:
    """Return the partition of an event."""
    return crc32(event_id.encode()) % width


class Group:
    """The partitions of a group, and what came of them."""

    def __init__(self, policies: Policies, tables: Sequence[Table], by_stream: bool = False) -> None:
        self.policies = policies
        self.workers = [Worker(policies, table) for table in tables]
        self.offsets = [worker.partition.fence.next.copy() for worker in self.workers]
        self.outputs: list[Output] = []
        self.by_stream = by_stream

    @property
    def tables(self) -> list[Table]:
        return [worker.table for worker in self.workers]

    def place(self, event_id: str, stream: str) -> int:
        return at(stream if self.by_stream else event_id, len(self.workers))

    def forecast(self, event_id: str, stream: str, raw: Any, ts: int, **more: Any) -> list[Output]:
        n = self.place(event_id, stream)
        event = Forecast(self._next(n, FORECASTS), event_id.encode(), event_id, stream, raw, ts=ts, **more)
        return self._fold(n, event)

    def outcome(self, event_id: str, stream: str, y: float, ts: int, revision: int = 0) -> list[Output]:
        n = self.place(event_id, stream)
        return self._fold(n, Outcome(self._next(n, OUTCOMES), event_id.encode(), event_id, y, ts, None, revision))

    def _next(self, n: int, topic: int) -> int:
        self.offsets[n][topic] += 1
        return self.offsets[n][topic] - 1

    def _fold(self, n: int, event: Any) -> list[Output]:
        made = self.workers[n].fold(event).outputs
        self.outputs += made
        return made

    def rescaled(self, width: int) -> "Group":
        """Return the group with so many partitions."""
        before = len(self.workers)

        def of_event(name: str, stream: str, old: int) -> int:
            key = stream if self.by_stream else name
            if at(key, before) != old:
                raise RescaleError(f"{name} is in partition {old}")
            return at(key, width)

        def of_stream(stream: str) -> rescale.Moves:
            if self.by_stream:
                return frozenset({(at(stream, before), at(stream, width))})
            return frozenset((old, new) for old in range(before) for new in range(width))

        plan = Plan(width, of_event, of_stream, lambda stream: at(stream, width), [[0, 0]] * width)
        tables = [Table(made) for made in rescale.rescaled(self.tables, plan)]
        return Group(self.policies, tables, self.by_stream)


def fed(group: Group, steps: Iterable[Step], now: int = 1000) -> int:
    """Feed a group with the steps of a history, and return the time at their end."""
    said: dict[str, tuple[str, float]] = {}
    for n, step in enumerate(steps):
        now += step.gap
        event_id = f"event-{step.event}"
        stream, p = said.setdefault(event_id, (step.stream, step.p))
        if step.kind == "forecast":
            x = (0.5,) if stream == "ridge" else ()
            segments = tuple(
                ("", "DE", "FR", f"v{(step.event * 7 + k) % 97}")[(n + k) % 4]
                for k, _ in enumerate(named(group.policies, stream).segments)
            )
            group.forecast(event_id, stream, p, now - step.behind, x=x, segments=segments)
        elif step.kind == "outcome":
            y = float(step.answer in {"yes", "drift"})
            group.outcome(event_id, stream, y, now - step.behind, (0, 0, 0, 0, 1, 2)[n % 6])
    return now


def named(policies: Policies, stream: str) -> Policy:
    policy = policies.of(stream)
    assert policy is not None
    return policy


def sums(group: Group) -> dict[str, Any]:
    """Return everything of a group that must be the same before and after, over all partitions."""
    fences = [table.fence for table in group.tables]
    found: dict[str, Any] = {
        "fates": [sum(counts) for counts in zip(*(fence.fates for fence in fences), strict=True)],
        "waits": [sum(getattr(fence, name) for fence in fences) for name in ("pending", "waiting", "early")],
    }
    histories: dict[str, list[history.History]] = defaultdict(list)
    ages: dict[str, Ages] = defaultdict(Ages)
    comparisons: dict[tuple[str, str, str], Comparison] = defaultdict(Comparison)
    vectors: dict[tuple[str, str], list[Any]] = defaultdict(list)
    segments: Counter[tuple[str, str, str, str]] = Counter()
    for table in group.tables:
        for key, row in table.of(keys.SCORES).items():
            histories[key[1:].decode()].append(rows.decode_history(row, table.get(keys.WINDOWS + key[1:])))
        for key, row in table.of(keys.AGES).items():
            ages[key[1:].decode()] += rows.decode_ages(row)
        for key, row in table.of(keys.COMPARISON).items():
            comparisons[keys.of_comparison(key)] += rows.decode_comparison(row)
        for key, row in table.of(keys.VECTORS).items():
            vectors[keys.of_vectors(key)].append(rows.decode_vector_scores(row))
        for key, row in table.of(keys.SEGMENT).items():
            stream, layout, slot = keys.of_segment(key)
            segment = rows.decode_names(table[keys.names(stream, layout)]).segment(slot)
            scores = rows.decode_segment(row)
            off = sum(each.p - each.y for kind in KINDS for each in scores.bands(kind))
            for name in ("issued", "known", "age_ms", "expired", "n"):
                segments[stream, *segment, name] += getattr(scores, name)
            segments[stream, *segment, "off"] += round(off * 2**30)
    found["scores"] = {stream: history.overall(each).encode() for stream, each in histories.items()}
    found["bias"] = {stream: sum_of_bias(each) for stream, each in histories.items()}
    found["ages"] = {stream: each.encode() for stream, each in ages.items()}
    found["comparisons"] = {pair: each.encode() for pair, each in comparisons.items()}
    found["vectors"] = {place: rows.total_vectors(each).encode() for place, each in vectors.items()}
    found["segments"] = {place: n for place, n in segments.items() if n}
    return found


def sum_of_bias(found: Sequence[history.History]) -> bytes:
    added = found[0].bias
    for each in found[1:]:
        added += each.bias
    return added.encode()


def by_value(found: dict[tuple[str, str, str, str], int]) -> dict[tuple[str, str, str], int]:
    """Return the counts of segments with all values of a name added up: values may share a slot that had their own."""
    added: Counter[tuple[str, str, str]] = Counter()
    for (stream, name, _, what), n in found.items():
        added[stream, name, what] += n
    return {place: n for place, n in added.items() if n}


def queued(group: Group) -> Counter[tuple[int, int, int, str]]:
    """Return the entries of all queues whose rows are there, with those of witnesses."""
    found: Counter[tuple[int, int, int, str]] = Counter()
    for table in group.tables:
        for role, ttl_ms, (_, born, event_id) in rescale._entries(table, table.fence):  # noqa: SLF001 - what is tested
            row = table.get(keys.ledger(event_id))
            if row is not None and (role == 2 or ledger.decode(row).born == born):
                found[role, ttl_ms, born, event_id] += 1
    return found


def events(group: Group) -> dict[bytes, Any]:
    """Return what is known of each event, without what tells partitions apart."""
    return {
        key: ledger.decode(row)
        ._replace(window=0, ticket=b"", groups=(), layout=b"", shadows=(), version=0, invalid_outcome=None)
        .encode()
        for table in group.tables
        for key, row in table.of(keys.LEDGER).items()
    }


@pytest.mark.parametrize("policies", [kept(POLICIES), kept(SHADOWED), SHADOWED])
@pytest.mark.parametrize("widths", [(2, 5, 3), (1, 4), (4, 1, 2), (3, 3)])
def test_no_event_and_no_sum_is_lost_and_all_goes_on(policies: Policies, widths: tuple[int, ...]) -> None:
    steps = seeded(2400, seed=len(widths))
    group = Group(policies, [Table() for _ in range(widths[0])])
    share = len(steps) // len(widths)
    now = fed(group, steps[:share])
    for n, width in enumerate(widths[1:], 1):
        before, told, known, entries = sums(group), group.outputs, events(group), queued(group)
        group = group.rescaled(width)
        after = sums(group)
        assert by_value(after.pop("segments")) == by_value(before.pop("segments"))
        assert after == before
        assert events(group) == known
        assert queued(group) == entries
        group.outputs = told
        now = fed(group, steps[n * share : (n + 1) * share], now)
    # Every event's label is learnt once for each time that it changed, wherever its forecast was answered.
    resolved = Counter((each.event_id, each.revision) for each in group.outputs if isinstance(each, Resolved))
    if policies is not SHADOWED:
        assert set(resolved.values()) == {1}
    answers: dict[str, set[Calibrated]] = defaultdict(set)
    for each in group.outputs:
        if isinstance(each, Calibrated):
            answers[each.event_id].add(each)
    if policies is not SHADOWED:
        assert {len(each) for each in answers.values()} == {1}, "an event was answered in two ways"
