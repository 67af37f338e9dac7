"""The fence."""

from hypothesis import given
from hypothesis import strategies as st

from state.fence import (
    EARLY,
    EARLY_JOINED,
    EARLY_UNUSABLE,
    EARLY_WAITING,
    EXPIRED_FORECAST,
    EXPIRED_OUTCOME,
    FATES,
    IMPLIED,
    ISSUED,
    MATURED,
    RESOLVED,
    WAITING,
    Fence,
    Queue,
)
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


def test_what_waits_is_what_entered_less_what_left() -> None:
    fence = Fence()
    fence.fates[ISSUED], fence.fates[RESOLVED], fence.fates[EARLY_JOINED], fence.fates[EXPIRED_FORECAST] = 20, 9, 3, 2
    fence.fates[EARLY], fence.fates[EARLY_UNUSABLE], fence.fates[EXPIRED_OUTCOME] = 7, 2, 1
    fence.fates[WAITING], fence.fates[EARLY_WAITING], fence.fates[MATURED], fence.fates[IMPLIED] = 4, 1, 2, 1
    assert fence.pending == 20 - 9 - 3 - 2 - 4 - 1 - 1
    assert fence.early == 7 - 3 - 2 - 1 - 1
    assert fence.waiting == 4 + 1 - 2
