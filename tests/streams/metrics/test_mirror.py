"""A mirror holds what the gauges hold, however rows come and go and wherever an answer breaks off."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import kinds
from state.fence import Fence
from state.kind import Kind
from state.policies import Policies
from state.policy import Policy
from streams.metrics import mirror
from streams.metrics.gauges import Gauges
from streams.metrics.mirror import ChangedRows, ChangeSource, Mirror, Overview
from streams.metrics.snapshot import PartitionSnapshot
from tests.holding import hold, holding

POLICIES = Policies(default=Policy())


class Scene:
    """Gauges of partitions that rows come to and go from, and a mirror of them whose answers may break off."""

    def __init__(self) -> None:
        self.gauges = Gauges(10, "0", lambda: (), POLICIES)
        self.rows = 0
        self._source = ChangeSource(self.gauges.exposition, self.gauges)
        self._left: int | None = None
        self.mirror = Mirror(self._asked, POLICIES)

    def _asked(self, whole: bool) -> Iterator[ChangedRows | Overview]:  # noqa: FBT001 - as a mirror asks
        for each in self._source(whole):
            if self._left == 0:
                raise TimeoutError
            self._left = None if self._left is None else self._left - 1
            self.rows += isinstance(each, ChangedRows)
            yield each

    def refresh(self, breaks_after: int | None = None) -> None:
        self._left = breaks_after
        self.mirror._until = self.mirror._silent = 0.0
        self.mirror.refresh()
        self._left = None

    def alike(self) -> bool:
        return contents(self.mirror.held()) == contents(self.gauges.held())


def contents(held: dict[int, PartitionSnapshot]) -> dict[int, dict[str, object]]:
    return {n: {"fence": each.fence.encode(), **each.rows} for n, each in held.items()}


#: A partition, a stream, a kind, and a row; no row: the stream goes; no kind: the partition is let go of. Then: after
#: how many messages the answer breaks off.
STEPS = st.tuples(
    st.integers(0, 2),
    st.sampled_from("abc"),
    st.sampled_from([kinds.COVERAGE, kinds.AGES, kinds.SCORES, None]),
    st.sampled_from([b"1", b"22", None]),
    st.sampled_from([None, None, 0, 1, 2]),
)


@given(st.lists(STEPS, max_size=30))
def test_a_mirror_holds_what_the_gauges_hold(
    steps: list[tuple[int, str, Kind[Any] | None, bytes | None, int | None]],
) -> None:
    scene = Scene()
    for number, stream, kind, row, breaks_after in steps:
        if kind is None:
            scene.gauges.revoked(number)
        else:
            if number not in scene.gauges.held():
                scene.gauges.assigned(number, PartitionSnapshot(Fence(applied=len(stream))))
            held = scene.gauges.held()[number]
            if row is None:
                held.rows.pop(stream, None)
            else:
                hold(held, kind, bytes(bytearray(row)), stream)  # another object, as of another batch
        try:
            scene.refresh(breaks_after)
        except TimeoutError:
            scene.refresh()
        assert scene.alike()


def test_what_has_not_changed_is_not_handed_over_again() -> None:
    scene = Scene()
    rows = {kinds.SCORES.key("a"): b"1", kinds.SCORES.key("b"): b"2", kinds.AGES.key("a"): b"3"}
    scene.gauges.assigned(0, holding(rows))
    scene.refresh()
    assert scene.rows == 2, "one message a stream"
    scene.refresh()
    assert scene.rows == 2
    hold(scene.gauges.held()[0], kinds.SCORES, b"4", "b")
    scene.refresh()
    assert scene.rows == 3
    assert scene.alike()


def test_a_copy_serves_for_a_while_and_whoever_finds_it_old_waits_for_a_new_one() -> None:
    asked = []

    def ask(whole: bool) -> Iterator[ChangedRows | Overview]:  # noqa: FBT001 - as a mirror asks
        asked.append(whole)
        yield Overview(str(len(asked)).encode(), cost=60.0)

    mirror = Mirror(ask)
    assert [mirror.exposition(), mirror.exposition()] == [b"1", b"1"]
    mirror._until = 0.0
    assert mirror.exposition() == b"2"
    assert asked == [True, False]


def test_a_reader_is_told_that_there_is_no_answer_and_the_next_one_gets_everything() -> None:
    scene = Scene()
    scene.gauges.assigned(0, holding({kinds.SCORES.key("a"): b"1"}))
    with pytest.raises(TimeoutError):
        scene.refresh(breaks_after=1)
    assert scene.mirror.held() == {}, "nothing is shown of a first answer that broke off"
    scene.refresh()
    assert scene.alike()


def test_whoever_waits_behind_a_question_without_an_answer_does_not_wait_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, asked = [100.0], []

    def ask(whole: bool) -> Iterator[ChangedRows | Overview]:  # noqa: FBT001 - as a mirror asks
        asked.append(whole)
        if len(asked) == 1:
            raise TimeoutError
        yield Overview()

    monkeypatch.setattr(mirror, "monotonic", lambda: clock[0])
    made = Mirror(ask)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            made.refresh()
    assert len(asked) == 1
    clock[0] += mirror.SILENT
    made.refresh()
    assert len(asked) == 2
