"""Long work leaves most of the time to others, unless somebody waits for its end."""

import asyncio
from contextlib import nullcontext

import pytest

from streams.faust.pace import LONGEST, REST, Pace


@pytest.mark.parametrize(("late", "awaited"), [(True, False), (False, True), (False, False)])
async def test_others_have_several_times_as_long_as_a_slice_unless_somebody_waits(
    monkeypatch: pytest.MonkeyPatch, *, late: bool, awaited: bool
) -> None:
    rests, pace = list[float](), Pace(lambda: late)
    clock = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock)

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pace.awaited() if awaited else nullcontext():
        async for slice_seconds in pace.slices([0.02, 0.01, 60.0]):
            clock += slice_seconds
    assert rests == (
        [0.0] * 3 if late or awaited else [pytest.approx(REST * 0.02), pytest.approx(REST * 0.01), LONGEST]
    )
