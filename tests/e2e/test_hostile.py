"""Records made to harm: they become dead letters, nothing of them runs, and the worker goes on."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.world import World
from tests.events import Sent, forecast

MakeWorld = Callable[..., World]


class Bomb:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self._path,)


def test_no_record_is_unpickled_and_none_nests_or_grows_without_end(world: MakeWorld, tmp_path: Path) -> None:
    w = world(partitions=1)
    went_off = tmp_path / "went-off"
    bombs = [pickle.dumps(Bomb(went_off), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    deep = [b"[" * 60_000, b'{"a":' * 10_000, b'{"event_id":"a","stream":"s","p":' + b"[" * 50_000]
    large = [b'{"event_id":"a","stream":"s","p":0.5,"x":"' + b"y" * 70_000 + b'"}']
    numbers = [
        b'{"event_id":"a","stream":"s","p":1e999}',
        b'{"event_id":"a","stream":"s","p":0.5,"ts":' + b"9" * 5000 + b"}",
        b'{"event_id":"a","stream":"s","p":' + b"9" * 60_000 + b"}",
    ]
    # rocksdict and Faust have codecs that unpickle: no record chooses its codec, neither by its key nor by its headers.
    hostile = [*bombs, *deep, *large, *numbers]
    sent = [Sent(topic, value[:500], value, 1000) for topic in ("forecasts", "outcomes") for value in hostile]
    w.send([*sent, forecast("good", 0.3, 2000)])
    with w.worker() as worker:
        w.wait_until_applied(len(sent) + 1)
        assert worker.stop() == 0
    assert not went_off.exists()
    letters = [json.loads(record.value or b"") for record in w.read("dead-letters")]
    assert len(letters) == len(sent)
    reasons = {"not_json", "not_object", "oversized", "probability", "timestamp", "event_id", "label"}
    assert {letter["reason"] for letter in letters} <= reasons
    assert len(w.read("calibrated")) == 1
    w.judge()
