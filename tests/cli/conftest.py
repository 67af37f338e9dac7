"""What tests of this folder share."""

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cli import reading
from streams.kafka import topics, whole_topics
from tests.commands import Trueup, trueup
from tests.streams.fakes import record

__all__ = ["trueup"]

#: Topics that there are: of each partition the keys and values of its records.
Held = dict[str, Mapping[int, Sequence[tuple[bytes | None, bytes | None]]]]


@pytest.fixture
def streams(tmp_path: Path, trueup: Trueup) -> Path:
    """Return the streams file that the settings name; a test writes it."""
    path = tmp_path / "streams.toml"
    trueup.set(STREAMS=path)
    return path


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Return the topics that commands find; a test fills them."""
    found: Held = {}

    async def partitions(_: object, name: str) -> int | None:
        return len(found[name]) if name in found else None

    async def batches(_: object, names: Sequence[str], **__: Any) -> AsyncIterator[tuple[str, list[Any]]]:
        for name in names:
            for n, records in found[name].items():
                yield name, [record(name, n, offset, 5, *each) for offset, each in enumerate(records)]

    monkeypatch.setattr(topics, "partitions", partitions)
    for place in (reading, whole_topics):
        monkeypatch.setattr(place, "batches", batches)
    return found
