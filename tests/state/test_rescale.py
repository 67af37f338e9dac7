"""Rows of some partitions, divided anew: nothing of an event is lost, no sum changes, and everything goes on."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any
from zlib import crc32

import pytest

from state import calibrators, kinds, ledger, rescale, routes
from state.calibrators import REGISTRY
from state.events import Calibrated, Forecast, Outcome, Output, Resolved
from state.fence import FATES, FORECASTS, OUTCOMES, Fence
from state.forecasts import Normal, Probs
from state.kind import kind_of
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Policy
from state.rescale import Plan, RescaleError
from state.rescale_parts import Moves
from state.router import Router
from state.routes import Label, Route, Routed
from state.scoring import history, vector_history, windows
from state.scoring.ages import Ages
from state.scoring.band_counts import BandCounts
from state.scoring.comparison import Comparison
from state.scoring.distribution import Distribution
from state.scoring.recent import Recent
from state.scoring.scores import total
from state.scoring.segment_scores import SegmentScores
from state.scoring.weighted import Weighted
from state.scoring.windows import KINDS
from tests.state.histories import (
    POLICIES,
    SHADOWED,
    WEIGHED,
    Step,
    Table,
    Worker,
    altered,
    compared,
    seeded,
)

pytestmark = pytest.mark.usefixtures("no_warm_up")

#: Long enough for events to be there when the number of partitions changes, and revised after it.
KEPT = 3000


def kept(policies: Policies) -> Policies:
    """Return policies under which rows are there for longer."""
    patterns = [(stream, replace(policy, ttl_ms=KEPT, revisable_ms=2 * KEPT)) for stream, policy in policies.patterns]
    return Policies(patterns, early_ttl_ms=KEPT)


def at(event_id: str, width: int) -> int:
    """Return the partition of an event."""
    return crc32(event_id.encode()) % width


LEVELS = (0.1, 0.5, 0.9)


class Group:
    """The partitions of a group, and what came of them."""

    def __init__(self, policies: Policies, tables: Sequence[Table], *, by_stream: bool = False) -> None:
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
        n, more = self.place(event_id, stream), {"x": (), **more}
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
            key = (stream or name.partition("/")[0]) if self.by_stream else name
            if at(key, before) != old:
                raise RescaleError(f"{name} is in partition {old}")
            return at(key, width)

        def of_stream(stream: str) -> Moves:
            if self.by_stream:
                return frozenset({(at(stream, before), at(stream, width))})
            return frozenset((old, new) for old in range(before) for new in range(width))

        plan = Plan(width, of_event, of_stream, lambda stream: at(stream, width), [[0, 0]] * width)
        tables = [Table(made) for made in rescale.rescaled(self.tables, plan)]
        return Group(self.policies, tables, by_stream=self.by_stream)


def fed(group: Group, steps: Iterable[Step], now: int = 1000) -> int:
    """Feed a group with the steps of a history, and return the time at their end."""
    said: dict[str, tuple[str, float]] = {}
    for n, step in enumerate(steps):
        now += step.gap
        event_id = f"event-{step.event}"
        stream, p = said.setdefault(event_id, (step.stream, step.p))
        event_id = f"{stream}/{event_id}"
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


def names_of(group: Group, table: Table, stream: str, scored: bytes) -> bytes:
    """Return the row of the slots of a stream whose scores of segments have this hash in their keys."""
    row = table.get(kinds.NAMES.key(stream, scored))  # of probabilities it is the layout
    return table[kinds.NAMES.key(stream, named(group.policies, stream).layout)] if row is None else row


def weighted(group: Group) -> dict[tuple[str, ...], tuple[float, ...]]:
    """Return the weighted sums of the streams and segments of a group, over all partitions."""
    found: dict[tuple[str, ...], Weighted] = defaultdict(Weighted)
    for table in group.tables:
        for key, row in table.of(kinds.WEIGHTED.letter).items():
            stream, layout, slot = kinds.WEIGHTED.of(key)
            whole = (layout, slot) == kinds.WHOLE
            segment = () if whole else kinds.NAMES.decode(names_of(group, table, stream, layout)).segment(slot)
            found[stream, *segment] += kinds.WEIGHTED.decode(row)
    return {
        place: (each.n, each.weight, *(round(value, 6) for value in (each.happened, *map(each.expected, KINDS))))
        for place, each in found.items()
    }


def sums(group: Group) -> dict[str, Any]:
    """Return everything of a group that must be the same before and after, over all partitions."""
    fences = [table.fence for table in group.tables]
    found: dict[str, Any] = {
        "fates": [sum(counts) for counts in zip(*(fence.fates for fence in fences), strict=True)],
        "waits": [sum(getattr(fence, name) for fence in fences) for name in ("pending", "waiting", "early")],
    }
    histories: dict[str, list[history.History]] = defaultdict(list)
    ages: dict[str, Ages] = defaultdict(Ages)
    distributions: dict[str, Distribution] = defaultdict(Distribution)
    comparisons: dict[tuple[str, str, str], Any] = {}
    vectors: dict[tuple[str, str], list[Any]] = defaultdict(list)
    segments: Counter[tuple[str, str, str, str]] = Counter()
    banded: dict[str, BandCounts] = {}
    for table in group.tables:
        for key, row in table.of(kinds.SCORES.letter).items():
            histories[key[1:].decode()].append(kinds.history(row, table.get(kinds.WINDOWS.letter + key[1:])))
        for key, row in table.of(kinds.AGES.letter).items():
            ages[key[1:].decode()] += kinds.AGES.decode(row)
        for key, row in table.of(kinds.DISTRIBUTION.letter).items():
            distributions[key[1:].decode()] += kinds.DISTRIBUTION.decode(row)
        for key, row in table.of(kinds.COMPARISON.letter).items():
            pair, compared = kinds.COMPARISON.of(key), kinds.COMPARISON.decode(row)
            comparisons[pair] = comparisons[pair] + compared if pair in comparisons else compared
        for key, row in table.of(kinds.VECTORS.letter).items():
            vectors[kinds.VECTORS.of(key)].append(kinds.VECTORS.decode(row))
        for key, row in table.of(kinds.SEGMENT.letter).items():
            stream, scored, slot = kinds.SEGMENT.of(key)
            segment = kinds.NAMES.decode(names_of(group, table, stream, scored)).segment(slot)
            scores = kinds.SEGMENT.decode(row)
            bands = [scores.bands(kind) for kind in KINDS] if isinstance(scores, SegmentScores) else []
            off = sum(each.p - each.y for each in chain(*bands))
            for name in ("issued", "known", "age_ms", "expired", "n"):
                segments[stream, *segment, name] += getattr(scores, name)
            segments[stream, *segment, "off"] += round(off * 2**30)
        for key, row in table.of(kinds.BAND_COUNTS.letter).items():
            stream, _, layout, slot = kinds.BAND_COUNTS.of(key)
            counts = kinds.BAND_COUNTS.decode(row)
            if (layout, slot) == kinds.WHOLE:
                banded[stream] = banded[stream] + counts if stream in banded else counts
                continue
            segment = kinds.NAMES.decode(names_of(group, table, stream, layout)).segment(slot)
            for n, count in enumerate(counts.sums):
                segments[stream, *segment, f"band {n}"] += count
    found["weighted"] = weighted(group)
    found["bands"] = {stream: each.encode() for stream, each in banded.items()}
    found["scores"] = {stream: windows.overall(each).encode() for stream, each in histories.items()}
    found["bias"] = {stream: sum_of_bias(each) for stream, each in histories.items()}
    found["distributions"] = {stream: each.encode() for stream, each in distributions.items()}
    found["ages"] = {stream: each.encode() for stream, each in ages.items()}
    # Of numbers, one sum has the rounding errors that its order brings.
    found["comparisons"] = {
        pair: each.encode() if isinstance(each, Comparison) else (each.tally, [round(n, 9) for n in each.sums])
        for pair, each in comparisons.items()
    }
    found["vectors"] = {place: [round(n, 9) for n in windows.overall(each).sums] for place, each in vectors.items()}
    found["orders"] = {
        place: [round(sum(sums), 6) for sums in zip(*(one.ordered() for one in each), strict=True)]
        for place, each in vectors.items()
    }
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
        for role, ttl_ms, (_, born, event_id) in rescale._entries(table, table.fence):
            row = table.get(kinds.LEDGER.key(event_id))
            if row is not None and (role == 2 or kinds.LEDGER.decode(row).born == born):
                found[role, ttl_ms, born, event_id] += 1
    return found


def of_streams(group: Group) -> set[str]:
    """Return the names of the kinds of rows that streams have."""
    return {kind_of(key).name for table in group.tables for key in table if kind_of(key).of_stream}


def events(group: Group) -> dict[bytes, Any]:
    """Return what is known of each event, without what tells partitions apart."""
    return {
        key: altered(
            kinds.LEDGER.decode(row), window=0, ticket=b"", groups=(), layout=b"", shadows=(), version=0
        ).encode()
        for table in group.tables
        for key, row in table.of(kinds.LEDGER.letter).items()
    }


@pytest.mark.parametrize("policies", [kept(POLICIES), kept(SHADOWED), SHADOWED, kept(WEIGHED)])
@pytest.mark.parametrize("widths", [(2, 5, 3), (1, 4), (4, 1, 2), (3, 3)])
def test_no_event_and_no_sum_is_lost_and_all_goes_on(policies: Policies, widths: tuple[int, ...]) -> None:
    steps = seeded(1200, seed=len(widths))
    group = Group(policies, [Table() for _ in range(widths[0])])
    share = len(steps) // len(widths)
    now = fed(group, steps[:share])
    for n, width in enumerate(widths[1:], 1):
        before, told, known, entries = sums(group), group.outputs, events(group), queued(group)
        held = of_streams(group)
        group = group.rescaled(width)
        reopened = {kinds.WINDOWS.name}  # a new partition may not have closed one yet
        assert of_streams(group) | reopened == held | reopened, "a kind that is DIVIDED needs code in rescale_stream"
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


# -- calibrators -----------------------------------------------------------------------------------------------------

SPECS = (*REGISTRY, "platt+minimax", DEFAULT_CALIBRATOR, "prudent+histogram", "platt+regret_matching")
OPTIONS: dict[str, dict[str, Any]] = {"histogram": {"halflife": 50}, "calibrated_regression": {}}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("widths", [(3, 2), (2, 5)])
def test_every_calibrator_redeems_and_revises_what_another_partition_served(spec: str, widths: tuple[int, int]) -> None:
    features = 2 if "features" in calibrators.options_of(spec, {}) else 0
    segments = ("country",) if calibrators.grouped(spec, {}) else ()
    policy = Policy(spec, OPTIONS.get(spec, {}), features=features, segments=segments, ttl_ms=10**9)
    group = Group(Policies([("s", policy)]), [Table() for _ in range(widths[0])])
    rng = random.Random(1)
    asked = 400

    def forecast(i: int, raw: float) -> None:
        x = tuple(rng.uniform(-1, 1) for _ in range(features))
        group.forecast(f"{i}", "s", raw, 1000 + i, x=x, segments=(f"c{rng.randrange(5)}",) if segments else ())

    labels = {}
    for i in range(asked):
        raw = rng.random()
        forecast(i, raw)
        labels[i] = float(rng.random() < raw**2)
        if i >= 100 and i % 5:
            group.outcome(f"{i - 100}", "s", labels[i - 100], 1000 + i)
    before = sums(group)
    group = group.rescaled(widths[1])
    after = sums(group)
    assert after == before
    for i, y in labels.items():
        group.outcome(f"{i}", "s", y, 3000 + i)
    for i, y in labels.items():
        group.outcome(f"{i}", "s", 1.0 - y, 6000 + i)
    forecast(asked, 0.5)
    fates = [sum(counts) for counts in zip(*(table.fence.fates for table in group.tables), strict=True)]
    assert fates[FATES.index("outcomes_revised")] == asked
    assert total(each.total for each in histories_of(group, "s")).n == asked
    for table in group.tables:
        served = table.served("s", group.policies)
        assert served.late >= 0
        assert served.calibrator.learnt >= sum(each.status == ledger.RESOLVED for each in table.entries())


def histories_of(group: Group, stream: str) -> list[history.History]:
    return [
        kinds.history(table[kinds.SCORES.key(stream)], table.get(kinds.WINDOWS.key(stream)))
        for table in group.tables
        if kinds.SCORES.key(stream) in table
    ]


def vector_alarms(group: Group) -> list[float]:
    found: dict[bytes, list[vector_history.VectorHistory]] = defaultdict(list)
    for table in group.tables:
        for key, row in table.of(kinds.VECTORS.letter).items():
            found[key].append(kinds.VECTORS.decode(row))
    return [windows.log_alarm(found[key], kind) for key in sorted(found) for kind in KINDS]


def pairs(group: Group) -> dict[Any, Any]:
    """Return of each segment of classes and numbers its scores over all partitions, sums but for rounding."""
    found: dict[Any, Any] = {}
    for table in group.tables:
        for key, row in table.of(kinds.SEGMENT.letter).items():
            stream, scored, slot = kinds.SEGMENT.of(key)
            place = stream, kinds.NAMES.decode(names_of(group, table, stream, scored)).segment(slot)
            scores = kinds.SEGMENT.decode(row)
            found[place] = found[place] + scores if place in found else scores
    return {
        place: (each.issued, each.known, each.age_ms, each.n, each.tally, [round(n, 9) for n in each.sums])
        for place, each in found.items()
        if each.issued
    }


def recent_of(group: Group, stream: str) -> list[Recent]:
    """Return the recent windows of a stream's segments, of the configuration that serves it."""
    prefix = kinds.SEGMENT.letter + named(group.policies, stream).scored
    found = [kinds.SEGMENT.decode(row).recent for table in group.tables for row in table.of(prefix).values()]
    return [recent for recent in found if recent is not None]


def test_classes_and_numbers_move_too() -> None:
    classes = compared("multiclass", {"classes": 3, "each": "prudent"}, {"each": "platt"})
    policies = Policies([("classes", classes), ("numbers", compared("quantile", {"levels": LEVELS}, {"rate": 0.2}))])
    group = Group(policies, [Table() for _ in range(3)])
    rng = random.Random(2)

    def play(start: int, n: int) -> None:
        for i in range(start, start + n):
            a = rng.random() / 2
            country = (("DE", "FR", "")[i % 3],)
            group.forecast(f"c{i}", "classes", Probs((a, 0.5, 0.5 - a)), 1000 + i, segments=country)
            group.forecast(f"n{i}", "numbers", Normal(a, 1.0), 1000 + i, segments=country)
            if i % 4:
                group.outcome(f"c{i}", "classes", float(rng.randrange(3)), 1000 + i)
                group.outcome(f"n{i}", "numbers", rng.gauss(0, 1), 1000 + i)

    play(0, 300)
    before, apart = sums(group), pairs(group)
    assert len(apart) == 6
    group = group.rescaled(4)
    after = sums(group)
    assert after.pop("segments").keys() >= before.pop("segments").keys()
    assert after == before
    assert pairs(group) == apart
    play(300, 300)
    for i in range(300):
        group.outcome(f"c{i}", "classes", 2.0, 9000)
        group.outcome(f"n{i}", "numbers", 0.25, 9000)
    before, alarms, apart = sums(group), vector_alarms(group), pairs(group)
    group = group.rescaled(1)
    after = sums(group)
    assert after.pop("segments").keys() <= before.pop("segments").keys()
    assert after == before
    assert pairs(group) == apart
    for stream, marks in (("classes", 1 + 3), ("numbers", len(LEVELS))):
        recent = recent_of(group, stream)
        assert sum(each.stretches()[-1].n for each in recent) == 300 + 225, "events whose rows are left count again"
        assert {each.marks for each in recent} == {marks}
    assert all(now >= was - 1e-9 for was, now in zip(alarms, vector_alarms(group), strict=True))


def test_a_partition_goes_on_with_the_calibrator_that_has_learnt_most_and_learns_the_others_events() -> None:
    policies = Policies([("s", Policy("minimax", {"buckets": 2, "grid": 4}, ttl_ms=10**9))])
    group = Group(policies, [Table() for _ in range(2)])
    names = [f"e{i}" for i in range(100)]
    for name in names:
        group.forecast(name, "s", 0.3, 1000)
        if at(name, 2) == 0 or at(name, 3) == 1:
            group.outcome(name, "s", 1.0, 1000)
    counts = [table.served("s", policies).calibrator.learnt for table in group.tables]
    assert counts[0] > counts[1]
    group = group.rescaled(3)
    for n, table in enumerate(group.tables):
        others = sum(at(name, 2) == 1 and at(name, 3) == n == 1 for name in names)
        assert table.served("s", policies).calibrator.learnt == counts[0] + others


@pytest.mark.parametrize("widths", [(3, 1), (2, 5)])
def test_what_entities_have_taught_goes_with_the_calibrator_that_they_taught(widths: tuple[int, int]) -> None:
    policy = Policy("prudent", ttl_ms=10**9, unlabelled="alike")
    policies, config = Policies([("s", policy)]), policy.config
    group = Group(policies, [Table() for _ in range(widths[0])])
    for i in range(600):
        group.forecast(f"e{i}", "s", 0.3, 1000, entity=1 + i % 10)
        if i < 400:
            group.outcome(f"e{i}", "s", float(i % 10 < 3), 1000)

    def counted() -> int:
        return sum(
            kinds.history(table[kinds.SCORES.key("s")], table.get(kinds.WINDOWS.key("s"))).n
            for table in group.tables
            if kinds.SCORES.key("s") in table
        )

    assert counted() == 10 * widths[0], "each partition learns apart"
    before = sums(group)
    group = group.rescaled(widths[1])
    assert sums(group) == before
    assert all(
        key in table for table in group.tables for key in [kinds.ENTITIES.key("s", config, n) for n in range(1, 11)]
    )
    for i in range(600):
        group.outcome(f"e{i}", "s", float(i % 10 < 3), 1001)
    assert counted() == 10 * widths[0]
    assert sum(isinstance(each, Resolved) for each in group.outputs) == 200


def test_a_stream_in_one_partition_moves_as_it_is() -> None:
    group = Group(kept(SHADOWED), [Table() for _ in range(3)], by_stream=True)
    now = fed(group, seeded(1500, seed=3))
    before = group.tables
    group = group.rescaled(5)
    for stream in ("counts", "regret", "guarded", "ridge"):
        there, here = before[at(stream, 3)], group.tables[at(stream, 5)]
        of_stream = [key for key in there if (kind := kind_of(key)).of_stream and kind.stream(key) == stream]
        assert of_stream
        assert {key: here[key] for key in of_stream} == {key: there[key] for key in of_stream}
        mine = [each for each in there.entries() if each.stream == stream]
        assert Counter(each.encode() for each in mine) == Counter(
            each.encode() for each in here.entries() if each.stream == stream
        )
    fed(group, seeded(800, seed=3), now)


# -- scores ----------------------------------------------------------------------------------------------------------


def test_windows_alarms_and_ranking_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "WINDOW", 500)
    policies = Policies([("s", Policy("identity", ttl_ms=400))])
    group = Group(policies, [Table() for _ in range(2)])
    rng = random.Random(3)
    for i in range(1600):
        raw = rng.random()
        group.forecast(f"{i}", "s", raw, 1000 + i)
        group.outcome(f"{i}", "s", float(rng.random() < raw * 0.8), 1000 + i)
    before = histories_of(group, "s")
    assert sum(each.windows for each in before) >= 2
    expired = 1600 - sum(len(table.of(kinds.LEDGER.letter)) for table in group.tables)
    assert expired > 0
    group = group.rescaled(3)
    after = histories_of(group, "s")
    assert windows.overall(after).encode() == windows.overall(before).encode()
    for kind in KINDS:
        assert windows.log_alarm(after, kind) == pytest.approx(windows.log_alarm(before, kind))
        assert windows.log_alarm(after, kind) > math.log(1000)
        worst = windows.worst(after, kind)
        assert worst is not None
        assert worst.scores == windows.worst(before, kind).scores  # type: ignore[union-attr]
    # Every label that is still there can be revised, and leaves no trace of the one before.
    n = windows.overall(after).n
    for table in group.tables:
        for key in list(table.of(kinds.LEDGER.letter)):
            group.outcome(key[1:].decode(), "s", 1.0, 10**6)
    assert windows.overall(histories_of(group, "s")).n == n


@pytest.mark.parametrize("everywhere", [True, False])
def test_alarms_that_had_not_begun_anew_in_each_partition_do_so_in_the_new_ones(*, everywhere: bool) -> None:
    def told(group: Group, names: Iterable[int], now: int) -> None:
        for i in names:
            group.forecast(f"{now}-{i}", "s", 0.9, now)
            group.outcome(f"{now}-{i}", "s", 0.0, now)

    group = Group(Policies([("s", Policy("identity", ttl_ms=10**9))]), [Table() for _ in range(2)])
    told(group, range(60), 1000)
    policies = Policies([("s", Policy("identity", ttl_ms=10**9, alarms_since_ms=2000))])
    group = Group(policies, group.tables)
    told(group, [i for i in range(20) if everywhere or group.place(f"2000-{i}", "s") == 0], 2000)
    group = group.rescaled(3)
    assert [kinds.ALARMS.key("s") in table for table in group.tables] == [everywhere] * 3
    told(group, range(20), 3000)
    assert all(kinds.ALARMS.decode(table[kinds.ALARMS.key("s")]).ms == 2000 for table in group.tables)
    fresh = Group(policies, [Table() for _ in range(3)])
    told(fresh, range(20), 3000)
    now, later = (windows.log_alarm(histories_of(each, "s"), "calibrated") for each in (group, fresh))
    assert (now == pytest.approx(later)) is not everywhere


def test_values_without_a_free_slot_share_one() -> None:
    policies = Policies([("s", Policy(segments=("shop", "day"), pairs=(("shop", "day"),), ttl_ms=10**9))])
    group = Group(policies, [Table() for _ in range(2)])
    for i in range(400):
        shop = f"shop-{at(f'{i}', 2)}-{i % 50}"  # 50 in each partition, 62 fit one
        group.forecast(f"{i}", "s", 0.4, 1000 + i, segments=(shop, "" if i % 3 else "monday"))
        group.outcome(f"{i}", "s", float(i % 2), 1000 + i)
    before = sums(group)
    group = group.rescaled(3)
    after = sums(group)
    assert by_value(after["segments"]) == by_value(before["segments"])
    others = [
        n for (_, name, value, what), n in after["segments"].items() if (name, value, what) == ("shop", "(other)", "n")
    ]
    assert sum(others) > 0
    for i in range(400):
        group.outcome(f"{i}", "s", float(1 - i % 2), 5000 + i)
        group.forecast(f"again-{i}", "s", 0.4, 6000 + i, segments=(f"shop-0-{i % 50}", "monday"))


# -- what is refused -------------------------------------------------------------------------------------------------


def test_two_events_of_one_name_are_refused() -> None:
    group = Group(kept(POLICIES), [Table() for _ in range(4)], by_stream=True)
    for stream in ("counts", "regret", "guarded"):
        group.forecast("same", stream, 0.5, 1000, segments=("DE", "web") if stream == "counts" else ())
    assert len({at(stream, 4) for stream in ("counts", "regret", "guarded")}) > 1
    with pytest.raises(RescaleError, match="'same' has a row in partition"):
        group.rescaled(1)


def test_an_event_in_a_wrong_partition_is_refused() -> None:
    group = Group(kept(POLICIES), [Table() for _ in range(2)], by_stream=True)
    for i in range(9):
        group.forecast(f"{i}", "regret", 0.5, 1000)
    group.by_stream = False
    with pytest.raises(RescaleError, match="is in partition"):
        group.rescaled(3)


# -- the router ------------------------------------------------------------------------------------------------------


def test_the_router_goes_on_where_it_was() -> None:
    policies = Policies([("s*", Policy("identity", ttl_ms=5000))], early_ttl_ms=3000)
    rng = random.Random(4)
    records: list[tuple[int, str, int]] = []
    for i in range(400):
        ts = 1000 + 10 * i
        records += [(ts, f"route {i % 3}", i)] * (i % 7 > 0)
        records += [(ts + rng.randrange(-50, 900), "label", i)] * (i % 5 > 0)
    records.sort()

    def play(widths: Sequence[int]) -> tuple[Counter[Routed], list[Table]]:
        tables = [Table() for _ in range(widths[0])]
        sent: Counter[Routed] = Counter()
        for part, width in enumerate(widths):
            if part:
                before = len(tables)
                counted = waiting(tables)

                def of_event(name: str, _: str, old: int, before: int = before, width: int = width) -> int:
                    assert at(name, before) == old
                    return at(name, width)

                plan = Plan(width, of_event, lambda _: frozenset(), lambda _: 0, [[0, 0]] * width)
                tables = [Table(rows) for rows in rescale.rescaled_routes(tables, plan)]
                assert waiting(tables) == counted
            engines = [Router(policies, table.get) for table in tables]
            offsets = [[0, 0] for _ in tables]
            share = len(records) // len(widths)
            again = 20 if part else 0  # intake sends some once more
            end = None if part == len(widths) - 1 else (part + 1) * share
            for n, (ts, what, i) in enumerate(records[part * share - again : end], part * share - again):
                name = f"event-{i}"
                p = at(name, width)
                topic = int(what == "label")
                offset = offsets[p][topic]
                offsets[p][topic] += 1
                origin = ("source@0/0", n)
                record = (
                    Label(offset, None, b"", name, "", "", float(i % 2), ts, 0, ts, origin)
                    if topic
                    else Route(offset, None, b"", name, f"s{what[-1]}", f"s{what[-1]}", ts, origin)
                )
                engines[p].begin()
                sent.update(each for each in engines[p].apply([record]) if isinstance(each, Routed))
                engines[p].end()
                tables[p].write(engines[p].checkpoint().rows)
        return sent, tables

    def waiting(tables: Sequence[Table]) -> list[int]:
        fates = [Fence.decode(table[kinds.FENCE.key()]).fates for table in tables]
        summed = [sum(counts) for counts in zip(*fates, strict=True)]
        held = [
            routes.EVENT.decode(row) for table in tables for key, row in table.items() if key[:1] == routes.EVENT.letter
        ]
        for table in tables:
            own = Fence.decode(table[kinds.FENCE.key()]).fates
            events = [routes.EVENT.decode(row) for key, row in table.items() if key[:1] == routes.EVENT.letter]
            assert own[routes.OPENED] - own[routes.EXPIRED_ROUTES] == sum(bool(each.routes) for each in events)
        return [*summed, len(held)]

    alone, _ = play([1])
    moved, _ = play([2, 5, 3])
    assert moved == alone
