"""Histories in files for the tests of replay."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from tests.events import Sent, mixed


def lines(sent: Sequence[Sent], topic: str) -> list[dict[str, Any]]:
    """Return a topic's readable records as a file holds them, with the time of each."""
    found = []
    for record in sent:
        if record.topic == topic:
            try:
                value = orjson.loads(record.value)
            except orjson.JSONDecodeError:
                continue
            if isinstance(value, dict):
                found.append({**value, "timestamp": record.ts, "key": record.key.decode()})
    return found


def written(directory: Path, n: int = 2000, seed: int = 1) -> tuple[Path, Path]:
    """Write a mixed history, and return the two files."""
    sent = mixed(n, seed).sent
    paths = directory / "forecasts.jsonl", directory / "outcomes.jsonl"
    for path in paths:
        path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines(sent, path.stem)))
    return paths
