"""Long work leaves most of the time to others, unless somebody waits for its end."""

import asyncio

import pytest

from streams.faust.pace import REST, Pace


@pytest.mark.parametrize("hurry", [True, False])
def test_others_have_several_times_as_long_as_a_slice_unless_there_is_a_hurry(
    monkeypatch: pytest.MonkeyPatch, *, hurry: bool
) -> None:
    rests = list[float]()

    async def scene() -> None:
        clock = 0.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock)

        async def sleep(seconds: float) -> None:
            rests.append(seconds)

        monkeypatch.setattr(asyncio, "sleep", sleep)
        async for slice_seconds in Pace(lambda: hurry).slices([0.5, 0.25]):
            clock += slice_seconds

    asyncio.run(scene())
    assert rests == ([0, 0] if hurry else [REST * 0.5, REST * 0.25])
