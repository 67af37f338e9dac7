"""A group that began with rows of another: the same rows are made of the same ones, and any other row is named."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from replay import moves
from replay.audit import checkpoint, groups
from replay.audit.checkpoint import Rows
from replay.audit.groups import Given
from replay.audit.output_matcher import Unauditable
from replay.audit.rows import Memory
from replay.moves import EVENT, LABELS, Move, MoveError, Upstream
from state import kinds, ledger
from state.events import Forecast, Outcome
from state.fence import Fence
from state.policies import Policies
from state.policy import Policy
from state.rescale import rescaled
from streams.config.settings import Settings
from streams.kafka.partitioner import partition
from tests.state.histories import Worker, altered

POLICIES = Policies([("*", Policy("platt"))], early_ttl_ms=86_400_000)
SETTINGS = Settings(app_id="new")


def ended() -> list[dict[bytes, bytes]]:
    """Return the rows of two partitions.

    Forty forecasts, thirty outcomes, one of them early, and one forecast twice.
    """
    workers = [Worker(POLICIES), Worker(POLICIES)]
    offsets = [[0, 0], [0, 0]]

    def place(event_id: str, topic: int) -> tuple[Worker, int]:
        n = partition(event_id.encode(), 2)
        offsets[n][topic] += 1
        return workers[n], offsets[n][topic] - 1

    def forecast(event_id: str, ts: int) -> None:
        worker, offset = place(event_id, 0)
        worker.fold(Forecast(offset, event_id.encode(), event_id, "s", 0.3, ts=ts, x=()))

    def outcome(event_id: str, ts: int) -> None:
        worker, offset = place(event_id, 1)
        worker.fold(Outcome(offset, event_id.encode(), event_id, float(ts % 3 == 0), ts))

    for i in range(40):
        forecast(f"e{i}", 1000 + i)
    same = [name for i in range(40) if partition((name := f"e{i}").encode(), 2) == 0]
    forecast(same[0], 2000)
    outcome(same[-1], 2000)
    for i in range(30):
        if f"e{i}" != same[-1]:
            outcome(f"e{i}", 3000 + i)
    outcome("nobody", 4000)
    return [dict(sorted(worker.table.items())) for worker in workers]


def told(parts: Sequence[dict[bytes, bytes]]) -> list[Move]:
    """Return what a rescale to three partitions writes down of these rows."""
    fences = [Fence.decode(part[kinds.FENCE.key()]) for part in parts]
    move = Move(
        "old",
        "c0",
        (7, 8),
        EVENT,
        {label: (label, f"id-{label}") for label in LABELS},
        tuple((fence.applied, fence.next[0], fence.next[1]) for fence in fences),
        ((20, 15, 0), (20, 15, 0)),
        {},
        False,  # noqa: FBT003 - as its fields stand
        ((0, 0),) * 3,
        ((5, 6, 7),) * 3,
        {},
    )
    return [replace(move, digests=moves.digests(made)) for made in rescaled(parts, move.plan())]


def left(parts: Sequence[dict[bytes, bytes]], directory: Path) -> list[Rows]:
    return [checkpoint.write_rows(directory, checkpoint.ENDED, n, Memory(part)) for n, part in enumerate(parts)]


def changelog(given: Given) -> dict[bytes, bytes]:
    rows = Memory()
    checkpoint.read_rows(given.rows, rows)
    return dict(rows.items())


def test_what_was_written_down_is_read_as_it_was() -> None:
    (move, *_) = told(ended())
    assert Move.decode(move.encode()) == move
    assert b'"upstream":null' in move.encode()
    earlier = move.encode().replace(b',"upstream":null', b"")
    assert Move.decode(earlier) == move
    upstream = Upstream(
        {"routes": ("old-routes", "r0"), "labels": ("old-labels", "l0")},
        ((9, 4, 5), (8, 4, 4)),
        ((4, 5), (4, 4)),
        ((0, 0),) * 3,
        (("scores", 0, 12, "s0"), ("scores", 1, 7, "s0")),
    )
    followed = replace(move, upstream=upstream)
    assert Move.decode(followed.encode()) == followed
    with pytest.raises(MoveError, match="the same of all partitions of the router"):
        Move.decode(replace(move, upstream=replace(upstream, ends=((4, 5),))).encode())
    for value in (b"{}", b"nothing", move.encode().replace(b'"version":2', b'"version":1')):
        with pytest.raises(MoveError, match="cannot be read by this version"):
            Move.decode(value)
    with pytest.raises(MoveError, match="does not say the same of all partitions"):
        Move.decode(replace(move, outputs=move.outputs[:1]).encode())


def test_a_partition_begins_with_what_the_old_rows_become(tmp_path: Path) -> None:
    parts = ended()
    given = groups.divided(told(parts), left(parts, tmp_path), tmp_path)
    assert not any(each.unlike for each in given.values())
    events = set()
    for n, each in given.items():
        rows = Memory()
        log = [(at, key, row) for at, (key, row) in enumerate(changelog(each).items())]
        since = groups.begin(SETTINGS, n, each, rows, log)
        assert dict(rows.items()) == changelog(each)
        assert [each.next for each in since.outputs] == [5, 6, 7]
        assert Fence.decode(rows[kinds.FENCE.key()]).applied > 0
        events |= {key[1:].decode() for key in rows if key[:1] == kinds.LEDGER.letter}
    assert events == {"nobody", *(f"e{i}" for i in range(40))}


def test_a_row_that_is_not_what_the_old_rows_become_is_named(tmp_path: Path) -> None:
    parts = ended()
    given = groups.divided(told(parts), left(parts, tmp_path), tmp_path)[1]
    log = changelog(given)
    rows = {key: kinds.LEDGER.decode(row) for key, row in log.items() if key[:1] == kinds.LEDGER.letter}
    key = next(key for key, row in rows.items() if row.status == ledger.ISSUED)
    name = key[1:].decode()
    wrong = {
        "p": kinds.LEDGER.encode(altered(rows[key], p=0.31)),
        "born": kinds.LEDGER.encode(altered(rows[key], born=1)),
        "a byte": log[key][:-1] + bytes([log[key][-1] ^ 1]),
        "no row": None,
    }
    for what, row in wrong.items():
        records = [(3, key, row)] if what != "no row" else [(2, key, log[key]), (3, key, None)]
        with pytest.raises(Unauditable, match=rf"the row of event '{name}' is not what the old rows become \(offset 3"):
            groups.begin(SETTINGS, 1, given, Memory(), records)
    with pytest.raises(Unauditable, match=r"the row of event 'more' is of nothing that was moved \(offset 9"):
        groups.begin(SETTINGS, 1, given, Memory(), [(9, kinds.LEDGER.key("more"), log[key])])
    # What was overwritten is no longer there, and the rest is no row of an engine.
    groups.begin(SETTINGS, 1, given, Memory(), [(0, key, b"early"), (1, key, log[key]), (2, kinds.CLAIM.key(), b"any")])


def test_other_rows_than_were_written_down_are_refused_by_their_kind(tmp_path: Path) -> None:
    parts = ended()
    said = told(parts)
    rows, ages = kinds.apart(parts[0]), kinds.AGES.key("s")
    parts[0] = kinds.together({key: row for key, row in rows.items() if key != ages})
    given = groups.divided(said, left(parts, tmp_path), tmp_path)
    assert {kind for each in given.values() for kind in each.unlike} == {"s"}
    n = next(n for n, each in given.items() if each.unlike)
    with pytest.raises(Unauditable, match=f"partition {n} of new: 'trueup state rescale' has made other rows of old"):
        groups.begin(SETTINGS, n, given[n], Memory(), [])


def test_a_partition_must_end_where_it_was_divided(tmp_path: Path) -> None:
    parts = ended()
    with pytest.raises(Unauditable, match="partition 1 of old was divided when"):
        groups.divided(told(parts), left([parts[0], parts[0]], tmp_path), tmp_path)
