"""The fence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import kinds
from state.fence import (
    EARLY,
    EARLY_JOINED,
    EARLY_UNUSABLE,
    EARLY_WAITING,
    EXPIRED_FORECAST,
    EXPIRED_OUTCOME,
    EXPIRY,
    FATES,
    IMPLIED,
    ISSUED,
    MATURED,
    RESOLVED,
    WAITING,
    Fence,
    Queue,
)
from state.frames import CorruptFrame, seal
from tests.state.histories import STEADY

COUNT = st.integers(0, 2**64 - 1)
TIME = st.integers(-(2**63), 2**63 - 1)
QUEUES = st.lists(
    st.builds(Queue, st.integers(0, 3), COUNT, COUNT, COUNT, TIME),
    unique_by=lambda queue: (queue.role, queue.ttl_ms),
    max_size=5,
)
FENCES = st.builds(
    Fence,
    st.lists(st.integers(0, 2**63 - 1), min_size=2, max_size=2),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.lists(COUNT, min_size=len(FATES), max_size=len(FATES)),
    QUEUES.map(lambda queues: {(queue.role, queue.ttl_ms): queue for queue in queues}),
)


@STEADY
@given(FENCES)
def test_decoded_fence_is_the_encoded_one(fence: Fence) -> None:
    again = Fence.decode(fence.encode())
    assert again == fence
    assert list(again.queues) == list(fence.queues)
    assert again.encode() == fence.encode()


def test_size_is_the_documented_one() -> None:
    assert len(Fence().encode()) == 6 + 170
    assert len(Fence(queues={(0, 1): Queue(0, 1), (1, 1): Queue(1, 1)}).encode()) == 6 + 170 + 2 * 33


def test_new_fence_starts_at_the_first_record() -> None:
    fence = Fence()
    assert (fence.next, fence.stream_time, fence.applied, sum(fence.fates), fence.queues) == ([0, 0], 0, 0, 0, {})
    assert (fence.pending, fence.waiting, fence.early) == (0, 0, 0)


def test_what_waits_is_what_entered_less_what_left() -> None:
    fence = Fence()
    fence.fates[ISSUED], fence.fates[RESOLVED], fence.fates[EARLY_JOINED], fence.fates[EXPIRED_FORECAST] = 20, 9, 3, 2
    fence.fates[EARLY], fence.fates[EARLY_UNUSABLE], fence.fates[EXPIRED_OUTCOME] = 7, 2, 1
    fence.fates[WAITING], fence.fates[EARLY_WAITING], fence.fates[MATURED], fence.fates[IMPLIED] = 4, 1, 2, 1
    assert fence.pending == 20 - 9 - 3 - 2 - 4 - 1 - 1
    assert fence.early == 7 - 3 - 2 - 1 - 1
    assert fence.waiting == 4 + 1 - 2


def test_stored_order_of_the_fates_is_part_of_the_format() -> None:
    assert FATES == (
        "forecasts_issued",
        "forecasts_duplicate",
        "forecasts_dead",
        "outcomes_resolved",
        "outcomes_waiting",
        "outcomes_early",
        "outcomes_duplicate",
        "outcomes_revised",
        "outcomes_stale",
        "outcomes_dead",
        "early_joined",
        "early_waiting",
        "early_unusable",
        "matured",
        "implied",
        "expired_forecasts",
        "expired_outcomes",
    )


@STEADY
@given(FENCES, st.data())
def test_cut_or_changed_fence_is_refused(fence: Fence, data: st.DataObject) -> None:
    frame = fence.encode()
    at = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(CorruptFrame):
        Fence.decode(frame[:at])
    with pytest.raises(CorruptFrame):
        Fence.decode(frame[:at] + bytes((frame[at] ^ 1,)) + frame[at + 1 :])


def test_fence_of_another_version_or_kind_is_refused() -> None:
    payload = Fence().encode()[2:-4]
    with pytest.raises(CorruptFrame, match="format version 3, this build reads version 2"):
        Fence.decode(seal(ord("F"), kinds.FENCE.version + 1, payload))
    with pytest.raises(CorruptFrame, match="found a 'L' row where a 'F' row belongs"):
        Fence.decode(seal(ord("L"), kinds.FENCE.version, payload))


def test_fences_do_not_share_their_lists() -> None:
    one, other = Fence(), Fence()
    one.next[0] = one.fates[0] = 1
    one.queues[EXPIRY, 1] = Queue(EXPIRY, 1)
    assert other == Fence()
