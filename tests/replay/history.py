"""Histories in files for the tests of replay, and the results of replaying them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from replay.configuration import configurations
from replay.result import Result
from replay.run import Request, replay
from replay.sources.files import FileSource
from streams.config.settings import Settings
from tests.events import Sent, mixed

Records = Iterable[Mapping[str, Any]]


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


def saved(directory: Path, forecasts: Records, outcomes: Records) -> tuple[Path, Path]:
    """Write records as JSON lines, and return the two files."""
    paths = directory / "forecasts.jsonl", directory / "outcomes.jsonl"
    for path, records in zip(paths, (forecasts, outcomes), strict=True):
        path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    return paths


def written(directory: Path, n: int = 2000, seed: int = 1) -> tuple[Path, Path]:
    """Write a mixed history, and return the two files."""
    sent = mixed(n, seed).sent
    return saved(directory, lines(sent, "forecasts"), lines(sent, "outcomes"))


def replayed(
    directory: Path,
    forecasts: Records,
    outcomes: Records,
    plans: Mapping[str, str] | None = None,
    calibrators: Sequence[str] = (),
    partitions: int = 1,
    **options: Any,
) -> Result:
    """Replay records in files below a directory.

    ``plans``: by name, what a streams file says; None: the present plan.
    ``calibrators``: as `replay.configuration.configurations` takes them.
    ``options``: of `Request`.
    """
    source = FileSource(*saved(directory, forecasts, outcomes), partitions)
    files = [directory / f"{name}.toml" for name in plans or {}]
    for path, text in zip(files, (plans or {}).values(), strict=True):
        path.write_text(text)
    wanted = configurations(Settings.from_env({}), calibrators, files)
    return replay(Request(source, wanted, **options), {})[0]
