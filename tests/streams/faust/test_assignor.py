"""Who serves what and who copies what: laws over groups that come and go, and the messages that the group exchanges."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from faust.assignor.partition_assignor import MemberAssignmentMapping, PartitionAssignor
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from state.formats import ARITHMETIC
from streams.config.settings import Settings
from streams.faust.assignor import Assignor, Share, assign
from tests.streams.brokers import C, F, O
from tests.streams.fakes import wire

WORKERS = "abcdef"
some = st.sets(st.integers(0, 15))
groups = st.dictionaries(st.sampled_from(WORKERS), st.builds(Share, some, some, some), min_size=1)


def settled(partitions: int, before: Mapping[str, Share], copies: int) -> dict[str, Share]:
    """Return a group when all copies that were to be made are whole, and nobody awaits any."""
    now = assign(partitions, before, copies)
    for _ in range(partitions + 1):
        if not any(share.behind for share in now.values()):
            return now
        now = assign(partitions, {name: Share(share.served, share.copied) for name, share in now.items()}, copies)
    raise AssertionError("it does not settle")


def group(partitions: int, copies: int, names: str) -> dict[str, Share]:
    """Return a group as it is when these workers have joined one after another."""
    now: dict[str, Share] = {}
    for name in names:
        now = settled(partitions, now | {name: Share()}, copies)
    return now


def without(group: Mapping[str, Share], *names: str) -> dict[str, Share]:
    return {name: share for name, share in group.items() if name not in names}


def spread(group: Mapping[str, Share]) -> int:
    counts = [len(share.served) for share in group.values()]
    return max(counts) - min(counts)


@given(st.integers(1, 16), groups, st.integers(0, 3))
def test_every_partition_is_served_once_and_copied_elsewhere(
    partitions: int, before: dict[str, Share], copies: int
) -> None:
    after = assign(partitions, before, copies)
    assert sorted(n for share in after.values() for n in share.served) == list(range(partitions))
    for partition in range(partitions):
        holders = [name for name, share in after.items() if partition in share.copied]
        assert len(holders) == min(copies, len(before) - 1)
        assert not any(partition in after[name].served for name in holders)


@given(st.integers(1, 16), groups, st.integers(0, 3))
def test_partitions_are_served_evenly_at_once_or_when_the_copies_are_whole(
    partitions: int, before: dict[str, Share], copies: int
) -> None:
    after = assign(partitions, before, copies)
    assert spread(after) <= 1 or copies
    assert spread(after) <= 1 or any(share.behind for share in after.values()), "somebody is to ask"
    assert spread(settled(partitions, before, copies)) <= 1


@given(st.integers(1, 16), groups, st.integers(1, 3))
def test_with_copies_nothing_that_is_served_moves_where_it_has_none(
    partitions: int, before: dict[str, Share], copies: int
) -> None:
    for name, share in assign(partitions, before, copies).items():
        for partition in share.served - before[name].served - before[name].copied:
            assert not any(partition in each.served | each.copied for each in before.values())


@given(st.integers(1, 16), groups, st.integers(0, 3))
def test_a_group_that_has_settled_keeps_everything(partitions: int, before: dict[str, Share], copies: int) -> None:
    once = settled(partitions, before, copies)
    assert assign(partitions, once, copies) == once


@given(st.integers(1, 16), st.integers(1, 6), st.integers(0, 3))
def test_no_more_partitions_move_than_a_joining_worker_takes(partitions: int, workers: int, copies: int) -> None:
    before = group(partitions, copies, WORKERS[:workers])
    after = settled(partitions, before | {"z": Share()}, copies)
    moved = sum(len(share.served - after[name].served) for name, share in before.items())
    assert moved == len(after["z"].served)


@pytest.mark.parametrize(("partitions", "workers"), [(1, 2), (4, 2), (6, 3), (12, 4), (16, 4), (12, 3), (7, 3)])
def test_what_a_lost_worker_served_goes_to_its_copies_and_evenly(partitions: int, workers: int) -> None:
    names = WORKERS[:workers]
    whole = group(partitions, 1, names)
    for lost in names:
        left = without(whole, lost)
        after = assign(partitions, left, 1)
        for partition in whole[lost].served:
            (owner,) = [name for name, share in after.items() if partition in share.served]
            assert partition in left[owner].copied
        for name, share in left.items():
            assert share.served <= after[name].served, "nothing else moves"
        assert spread(after) <= 1


def test_a_worker_that_comes_back_without_its_disk_is_given_copies_first() -> None:
    """While it had none, its partitions were served by who had copies, and go on there."""
    whole = group(4, 1, "ab")
    left = assign(4, without(whole, "a"), 1)
    assert left["b"].served == {0, 1, 2, 3}
    back = assign(4, left | {"a": Share()}, 1)
    assert back["b"].served == {0, 1, 2, 3}
    assert back["a"] == Share(set(), {0, 1, 2, 3}, {0, 1, 2, 3})
    again = assign(4, {"a": Share(set(), {0, 1, 2, 3}), "b": back["b"]}, 1)
    assert [len(again[name].served) for name in "ab"] == [2, 2]


def test_who_served_a_partition_that_moves_keeps_the_copy() -> None:
    after = group(2, 1, "ab")
    assert after["a"].copied == after["b"].served


# -- the messages of the group -------------------------------------------------------------------------------------


def member(directory: Path, standbys: int, instance_id: str = "") -> Assignor:
    directory.mkdir()
    settings = Settings(data_dir=directory, standbys=standbys, instance_id=instance_id)
    return cast("Assignor", wire(directory, settings=settings).app.faust.assignor)


def decide(
    leader: PartitionAssignor, members: Mapping[str, PartitionAssignor], partitions: int = 4
) -> MemberAssignmentMapping:
    """Let a leader decide for all, tell them, and return what they were told."""
    cluster = cast("Any", SimpleNamespace(partitions_for_topic=lambda _: set(range(partitions))))
    topics = {F, O, C}
    told = leader.assign(cluster, {name: each.metadata(topics) for name, each in members.items()})
    for name, each in members.items():
        each.on_assignment(told[name])
    return told


def settle(leader: PartitionAssignor, members: Mapping[str, PartitionAssignor]) -> None:
    """Decide, and once more when all copies are whole."""
    decide(leader, members)
    for each in members.values():
        if isinstance(each, Assignor):
            each.whole = lambda each=each: each.copied  # type: ignore[misc]
    decide(leader, members)


def served(assignor: PartitionAssignor) -> set[int]:
    parts = [{tp.partition for tp in assignor.assigned_actives() if tp.topic == topic} for topic in (F, O, C)]
    assert parts[0] == parts[1] == parts[2], "the topics of a partition go together"
    return parts[0]


def test_a_group_is_told_what_to_serve_and_what_to_copy(tmp_path: Path) -> None:
    one, two = member(tmp_path / "1", 1), member(tmp_path / "2", 1)
    decide(one, {"one": one})
    decide(one, {"one": one, "two": two})
    assert (served(one), set(two.copied), set(two.awaited)) == ({0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3})
    settle(one, {"one": one, "two": two})
    assert (len(served(one)), len(served(two)), two.awaited) == (2, 2, frozenset())
    assert [set(one.copied), set(two.copied)] == [served(two), served(one)]
    assert not one.assigned_standbys(), "Faust would claim them"
    assert served(one) | served(two) == {0, 1, 2, 3}
    decide(two, {"two": two})
    assert served(two) == {0, 1, 2, 3}
    assert not two.copied


def test_what_a_disk_has_counts_as_a_copy_at_the_start(tmp_path: Path) -> None:
    one, two = member(tmp_path / "1", 0), member(tmp_path / "2", 0)
    decide(one, {"one": one})
    two.whole = lambda: [0, 3]
    decide(one, {"one": one, "two": two})
    assert (served(one), served(two)) == ({1, 2}, {0, 3})


def test_what_a_worker_lost_goes_to_who_has_a_copy_and_comes_back_when_it_has_one(tmp_path: Path) -> None:
    one, two = member(tmp_path / "1", 1), member(tmp_path / "2", 1)
    members = {"one": one, "two": two}
    settle(one, members)
    settle(one, members)
    lost = min(served(one))
    one.lost.add(lost)
    decide(two, members)
    assert served(two) == set(range(4)) - served(one)
    assert lost in served(two)
    one.lost.clear()
    settle(two, members)
    settle(two, members)
    assert (len(served(one)), len(served(two))) == (2, 2)


def test_what_only_another_build_can_take_up_goes_to_it_or_waits_for_it(tmp_path: Path) -> None:
    old, one, two = (member(tmp_path / name, 0) for name in ("old", "one", "two"))
    old.arithmetic = ARITHMETIC - 1
    members = {"one": one, "two": two}
    decide(one, members)
    lost = min(served(one))
    one.needs[lost] = old.arithmetic
    decide(two, members)
    assert served(one) | served(two) == {0, 1, 2, 3} - {lost}, "nobody tries what nobody of the group can do"
    assert one.unserved == two.unserved == {lost}
    one.needs.clear()
    two.needs[lost] = old.arithmetic
    decide(two, members | {"old": old})
    assert lost in served(old)
    assert not one.unserved
    two.needs.clear()
    decide(two, members)
    assert served(one) | served(two) == {0, 1, 2, 3}, "once the other build has left the group"


def test_under_an_instance_id_a_worker_takes_over_on_another_host_what_it_was_told(tmp_path: Path) -> None:
    first, second = (member(tmp_path / host, 0, "worker 1") for host in ("first", "second"))
    cast("Any", second.app).conf.canonical_url = URL("http://second:6066")
    told = decide(first, {"a": first})
    second.on_assignment(told["a"])  # brokers do not ask a group anew whose member comes back in time
    assert served(second) == set(range(4))
