"""The examples of docs/how-to/decide.md without brokers: what the page shows of them, and unreadable answers."""

import asyncio
import re
from types import ModuleType

import pytest
from aiokafka.errors import UnsupportedCodecError

from tests.e2e.test_integrate import CLIENTS, PAGE, STREAM, decide
from tests.e2e.world import ROOT

__all__ = ["decide"]


def test_answers_that_cannot_be_read_are_said_in_place_of_a_decision(decide: ModuleType) -> None:
    async def story() -> None:
        decisions = decide.Decisions("127.0.0.1:9", 60.0)

        async def unreadable() -> None:
            await asyncio.sleep(0)
            raise UnsupportedCodecError("Libraries for zstd compression codec not found")

        async def sent(*_: object, **__: object) -> None:
            await asyncio.sleep(0)

        decisions._take, decisions._producer.send = unreadable, sent
        reading = asyncio.create_task(decisions._read())
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"answers cannot be read: .*zstd.* \(pip install 'aiokafka\[all\]'"):
                await decisions.decide("a", STREAM, 0.3)
        await reading
        await decisions._producer.stop()
        await decisions._consumer.stop()

    asyncio.run(story())


def test_what_the_page_shows_of_the_examples_is_in_them() -> None:
    page = PAGE.read_text()
    sources = "\n".join(path.read_text() for path in sorted(CLIENTS.rglob("*")) if path.suffix in (".py", ".java"))
    shown = re.findall(r"```(?:python|java)\n(.*?)```", page, re.DOTALL)
    assert shown
    held = {" ".join(line.split()) for line in sources.splitlines()}
    strange = [
        line for block in shown for line in block.splitlines() if line.strip() and " ".join(line.split()) not in held
    ]
    assert strange == []
    for path in re.findall(r"\(\.\./(deploy/clients/[^)]+)\)", page):
        assert (ROOT / path).exists(), path
