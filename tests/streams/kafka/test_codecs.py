"""Which codecs are here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from aiokafka import codec

from streams.config.settings import Settings
from streams.kafka import codecs, permissions, topics


def test_every_codec_is_here() -> None:
    assert codecs.lacking() == []


def test_a_codec_that_is_missing_is_a_problem_of_every_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def admin(_: Settings) -> AsyncIterator[SimpleNamespace]:
        yield SimpleNamespace()

    async def none(*_: object) -> dict[str, frozenset[str]]:
        return {}

    monkeypatch.setattr(topics, "admin_client", admin)
    monkeypatch.setattr(permissions, "of_topics", none)
    monkeypatch.setattr(codec, "cramjam", None)
    assert codecs.lacking() == ["snappy", "lz4", "zstd"]
    problems = asyncio.run(topics.check(Settings(), as_worker=False))
    assert [problem for problem in problems if "zstd cannot be read here" in problem]
