"""The router's engine: every label reaches every stream of its event, whatever crashes and whatever is sent twice."""

import random
from collections import defaultdict
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state import routes
from state.engine import Partition
from state.events import ERASE, Event, Forecast, Outcome, Rejected, Resolved
from state.fence import FENCE, Fence
from state.policies import Policies
from state.policy import Policy
from state.router import Router
from state.routes import EVENT, FATES, LABELS, ROUTES, Headers, Label, Route, Routed, RouteRow
from state.witnesses import SEVERAL, WITNESSES
from tests.state.histories import PLANS, Plan, Table, folded_again

STEADY = settings(max_examples=60, deadline=None)
POLICIES = Policies(
    patterns=[("short", Policy("platt", ttl_ms=500)), ("long", Policy("platt", ttl_ms=3000))],
    default=Policy("platt", ttl_ms=1000),
    early_ttl_ms=700,
)
Record = Route | Label | Rejected


class Run:
    """A router and its table."""

    def __init__(self, table: Table | None = None, policies: Policies = POLICIES) -> None:
        self.table = Table() if table is None else table
        self.router = Router(policies, self.table.get)

    def fold(self, records: Iterable[Record]) -> list[Routed | Rejected]:
        """Apply records as one batch, and make a checkpoint of it."""
        self.router.begin()
        outputs = self.router.apply(records)
        self.router.end()
        self.table.write(self.router.checkpoint().rows)
        return outputs

    def fates(self) -> dict[str, int]:
        """Return what the fence has counted."""
        return dict(zip(FATES, Fence.decode(self.table[FENCE.key()]).fates, strict=False))

    def events(self) -> dict[str, RouteRow]:
        """Return the rows of events."""
        return {key[1:].decode(): EVENT.decode(row) for key, row in self.table.items() if key.startswith(EVENT.letter)}


def route(
    offset: int, event_id: str, stream: str = "s", stamp: int = 0, origin: tuple[str, int] | None = None
) -> Route:
    return Route(offset, event_id.encode(), b"r", event_id, stream, stream, stamp, origin)


def label(
    offset: int,
    event_id: str,
    y: float,
    ts: int = 0,
    *,
    number: int = 0,
    stream: str = "",
    stamp: int | None = None,
    origin: tuple[str, int] | None = None,
    headers: Headers = (),
) -> Label:
    at = ts if stamp is None else stamp
    return Label(offset, event_id.encode(), b"l", event_id, stream, stream, y, ts, number, at, origin, headers)


def made(seed: int, n: int) -> list[Record]:
    """Make records of few events in an order of their own: in several streams, again, late, early, foreign."""
    rng = random.Random(seed)
    offsets, found = [0, 0], list[Record]()
    for t in range(n):
        topic = rng.randrange(2)
        event_id, stamp = f"e{rng.randrange(max(n // 6, 1))}", 20 * t + rng.randrange(-100, 100)
        # Of each source what comes is behind what came, or it comes again.
        origin = (f"a{topic}", t - rng.choice((0, 0, 0, 5))) if rng.random() < 0.8 else None
        if rng.random() < 0.03:
            found.append(Rejected(offsets[topic], b"k", b"?", topic, "route"))
        elif topic == ROUTES:
            found.append(route(offsets[0], event_id, rng.choice(("short", "long", "s")), max(stamp, 0), origin))
        else:
            stream, number = rng.choice(("", "", "", "long")), rng.choice((0, 0, 0, 1, 2))
            y, ts = float(rng.randrange(2)), max(stamp - rng.choice((0, 0, 300)), 0)
            said = label(offsets[1], event_id, y, ts, number=number, stream=stream, stamp=max(stamp, 0), origin=origin)
            found.append(said)
        offsets[topic] += 1
    return found


RECORDS = st.builds(made, st.integers(0, 10_000), st.integers(1, 150))


def test_the_headers_of_a_label_go_with_it_unless_it_has_to_wait() -> None:
    run, headers = Run(), (("traceparent", b"00-1"),)
    came, waits = (label(n, name, 1.0, 5, headers=headers) for n, name in enumerate("ab"))
    sent = run.fold([route(0, "a", "long"), came, waits, route(1, "b", "long", 9)])
    assert [(each.event_id, each.headers) for each in sent if isinstance(each, Routed)] == [("a", headers), ("b", ())]


def test_a_label_that_names_its_stream_goes_there_alone_and_at_once() -> None:
    run = Run()
    assert [each[:3] for each in run.fold([label(0, "a", 1.0, stream="long")])] == [("long", "a", "long")]
    assert run.fold([route(0, "a", "long"), route(1, "a", "short")]) == []  # it has been there; it is not for the other


def test_a_source_record_that_is_sent_twice_is_dropped_however_much_came_between() -> None:
    run = Run()
    first: list[Record] = [
        route(0, "a", origin=("x", 0)),
        label(0, "a", 1.0, 5, origin=("y", 7)),
        label(1, "a", 0.0, 5, origin=("y", 8)),
    ]
    assert len(run.fold(first)) == 2
    again: list[Record] = [
        route(1, "a", origin=("x", 0)),
        label(2, "a", 1.0, 5, origin=("y", 7)),
        label(3, "a", 0.0, 5, origin=("y", 8)),
    ]
    assert Run(run.table).fold(again) == []
    assert (run.fates()["routes_again"], run.fates()["labels_again"]) == (1, 2)


def test_sources_of_the_same_offset_are_not_confused() -> None:
    run = Run()
    sent = run.fold([route(0, "a"), label(0, "a", 1.0, 1, origin=("x", 7)), label(1, "a", 0.0, 2, origin=("y", 7))])
    assert len(sent) == 2


def test_an_event_of_too_many_streams_is_a_dead_letter() -> None:
    run = Run()
    most = routes.MOST_ROUTES
    sent = run.fold([route(i, "a", f"s{i}") for i in range(most + 1)])
    assert [(each.offset, each.reason) for each in sent if isinstance(each, Rejected)] == [(most, "routes")]


def test_labels_of_an_event_are_bounded() -> None:
    run = Run()
    sent = run.fold([route(0, "a"), *(label(i, "a", i % 2, i) for i in range(routes.MOST_LABELS + 5))])
    assert len(sent) == routes.MOST_LABELS
    assert run.fates()["labels_stale"] == 5


def test_rows_leave_when_the_longest_stream_of_their_event_waits_no_longer() -> None:
    run = Run()
    run.fold([route(0, "a", "long", 0), route(1, "a", "short", 10), route(2, "b", "short", 10), label(0, "c", 1.0, 10)])
    run.fold([route(3, "z", "short", 800), route(4, "z", "short", 801)])
    assert set(run.events()) == {"a", "z"}
    run.fold([route(5, "y", "short", 3005), route(6, "y", "short", 3006)])
    assert set(run.events()) == {"y"}
    assert (run.fates()["expired_routes"], run.fates()["expired_labels"]) == (3, 1)


@STEADY
@given(RECORDS, PLANS)
def test_whatever_is_folded_again_rows_and_outputs_are_those_of_one_fold(records: list[Record], plan: Plan) -> None:
    calm = Run()
    wanted = [each for record in records for each in calm.fold([record])]
    assert folded_again(lambda table: Router(POLICIES, table.get), records, plan) == (calm.table, wanted)


@STEADY
@given(RECORDS)
def test_every_record_has_one_fate_and_rows_add_up(records: list[Record]) -> None:
    run = Run()
    for record in records:
        run.fold([record])
    fates = run.fates()
    counted = list(fates.values())
    assert sum(counted[: routes.ROUTE_FATES]) == sum(each.offset >= 0 for each in records if _topic(each) == ROUTES)
    assert sum(counted[routes.ROUTE_FATES : routes.INPUT_FATES]) == sum(_topic(each) == LABELS for each in records)
    rows = run.events().values()
    opened, early, joined = fates["routes_opened"], fates["early_opened"], fates["early_joined"]
    assert sum(bool(row.routes) for row in rows) == opened - fates["expired_routes"]
    assert sum(not row.routes for row in rows) == early - joined - fates["expired_labels"]


def _topic(record: Record) -> int:
    return record.topic if isinstance(record, Rejected) else LABELS if isinstance(record, Label) else ROUTES


# The router and a ledger behind it are as good as the ledger alone.

LONG = Policies(default=Policy("platt", ttl_ms=10**9))


def resolved(events: Iterable[Event]) -> dict[str, list[tuple[float, int, int]]]:
    """Return what a stream's partition says of each event: label, its time, and its revision."""
    table: dict[bytes, bytes] = {}
    partition = Partition(LONG, table.get)
    found = defaultdict[str, list[tuple[float, int, int]]](list)
    for event in events:
        effects = partition.fold([event])
        table.update({key: value for key, value in effects.rows.items() if value is not None})
        for each in effects.outputs:
            if isinstance(each, Resolved) and (each.y, each.resolved_ts, each.revision) not in found[each.event_id]:
                found[each.event_id].append((each.y, each.resolved_ts, each.revision))
    return found


@STEADY
@given(st.integers(0, 10_000), st.integers(2, 80), st.integers(0, 5))
def test_a_ledger_behind_the_router_says_what_it_says_without_whatever_is_sent_twice(
    seed: int, n: int, twice: int
) -> None:
    rng = random.Random(seed)
    run, direct, behind = Run(policies=LONG), list[Event](), list[Event]()
    sent, asked = list[Routed](), set[str]()
    offsets = [0, 0]
    for t in range(n):
        event_id = f"e{rng.randrange(max(n // 8, 1))}"
        if event_id not in asked and rng.random() < 0.5:
            asked.add(event_id)
            forecast = Forecast(offsets[0], None, event_id, "s", rng.random(), (), t)
            direct.append(forecast)
            behind.append(forecast)
            outputs = run.fold([route(offsets[0], event_id)])
            offsets[0] += 1
        else:
            y, ts, number = float(rng.randrange(2)), t - rng.randrange(4), rng.choice((0, 0, 0, 1, 2, 3))
            direct.append(Outcome(offsets[1], None, event_id, y, ts, None, number))
            outputs = run.fold([label(offsets[1], event_id, y, ts, number=number)])
            offsets[1] += 1
        now = [each for each in outputs if isinstance(each, Routed)]
        sent += now
        again = sent[-twice:] if twice and rng.random() < 0.3 else []
        for each in (*now, *again):
            behind.append(Outcome(len(behind), None, each.event_id, each.y, each.ts, None, each.number))
    assert resolved(behind) == resolved(direct)


# -- records stamped ahead -------------------------------------------------------------------------------------------

HOUR = 3_600_000
NOW = 1_700_000_000_000
LONG = Policies(default=Policy("platt", ttl_ms=10 * HOUR), early_ttl_ms=10 * HOUR)


def settled() -> Run:
    """Return a router that knows the time; it has three routes."""
    run = Run(policies=LONG)
    run.fold(route(i, f"clock-{i}", stamp=NOW) for i in range(SEVERAL))
    assert run.router.fence.stream_time == NOW
    return run


@pytest.mark.parametrize("topic", [ROUTES, LABELS])
def test_one_record_ahead_lets_no_event_leave(topic: int) -> None:
    run = settled()
    run.fold([route(3, "a", stamp=NOW), label(0, "b", 1.0, NOW)])
    wild = label(1, "wild", 1.0, NOW + 1000 * HOUR) if topic == LABELS else route(4, "wild", stamp=NOW + 1000 * HOUR)
    run.fold([wild])
    sent = run.fold([label(2, "a", 1.0, NOW + 1), route(5, "b", stamp=NOW + 1)])
    assert [each.event_id for each in sent if isinstance(each, Routed)] == ["a", "b"]
    assert run.fates()["expired_routes"] == run.fates()["expired_labels"] == 0
    assert run.router.fence.stream_time == NOW + 1
    assert WITNESSES.key() in run.table


def test_an_erasure_reaches_a_stream_that_has_a_label_and_no_forecast_of_the_event() -> None:
    run = Run()
    sent = run.fold([label(0, "a", 1.0, stream="s"), label(1, "a", ERASE)])
    assert [each.stream for each in sent if isinstance(each, Routed) and each.y != each.y] == ["s"]
    assert run.events()["a"].labels == []


def test_an_erasure_in_one_stream_leaves_the_numbers_of_the_others() -> None:
    run = Run()
    run.fold([route(0, "a", "s"), route(1, "a", "t"), label(0, "a", 1.0, 1), label(1, "a", 0.0, 2)])
    (erased,) = run.fold([label(2, "a", ERASE, 3, stream="s")])
    assert isinstance(erased, Routed)
    assert erased.stream == "s"
    found = {each.stream: each.number for each in run.fold([label(3, "a", 1.0, 4)]) if isinstance(each, Routed)}
    assert found["t"] == 3
