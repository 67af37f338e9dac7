"""Records made to harm: they become dead letters, nothing of them runs, and the worker goes on."""

import asyncio
import base64
import json
import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiokafka import AIOKafkaProducer

from tests import attackers
from tests.e2e.world import MakeWorld, World, wait_for
from tests.events import Sent, forecast, mixed, outcome
from tests.streams.faust.fetches import misread


class Bomb:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self._path,)


def test_no_record_is_unpickled_and_none_nests_or_grows_without_end_nor_takes_others_along(
    world: MakeWorld, tmp_path: Path
) -> None:
    w, codec = world(partitions=1, TRUEUP_UNPACKED_BYTES=str(2 << 20)), "zstd"
    went_off = tmp_path / "went-off"
    bombs = [pickle.dumps(Bomb(went_off), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    deep = [b"[" * 60_000, b'{"a":' * 10_000, b'{"event_id":"a","stream":"s","p":' + b"[" * 50_000]
    large = [b'{"event_id":"a","stream":"s","p":0.5,"x":"' + b"y" * 70_000 + b'"}', bytes(1_500_000)]  # beyond a fetch
    numbers = [
        b'{"event_id":"a","stream":"s","p":1e999}',
        b'{"event_id":"a","stream":"s","p":0.5,"ts":' + b"9" * 5000 + b"}",
        b'{"event_id":"a","stream":"s","p":' + b"9" * 60_000 + b"}",
    ]
    # rocksdict and Faust have codecs that unpickle: no record chooses its codec, neither by its key nor by its headers.
    hostile = [*bombs, *deep, *large, *numbers]
    sent = [Sent(topic, value[:500], value, 1000) for topic in ("forecasts", "outcomes") for value in hostile]
    w.send([*sent, forecast("before", 0.3, 2000)], max_request_size=2_000_000)
    expand = {label: len(w.read(label)) for label in ("forecasts", "outcomes")}
    for label in expand:
        send_at_once(w, label, codec, [b"{}", bytes(20 << 20), b"{}"])
    asyncio.run(send_misread(w))
    good = [forecast(name, 0.3, 3000) for name in ("a", "b", "c")]  # to be passed over by who misreads the offset
    w.send([*good, outcome("before", 1, 3001)])
    for _ in range(2):
        with w.worker() as worker:
            wait_for("the worker", worker.ready)
            w.wait_until_applied(w.sent + 2 * 3 + 2)  # what is committed is behind all records of each batch
            assert worker.stop() == 0
    assert not went_off.exists()
    letters = w.said("dead-letters")
    assert max(len(json.dumps(letter)) for letter in letters) < 30_000
    reasons = Counter(letter["reason"] for letter in letters)
    assert reasons.pop("batch") == 3
    assert reasons.keys() <= {"not_json", "not_object", "oversized", "probability", "timestamp", "event_id", "label"}
    assert reasons.total() == len(sent)
    refused = [json.loads(base64.b64decode(each["value"])) for each in letters if each["reason"] == "batch"]
    expanding = [each for each in refused if each["refused"] == f"{codec} that expands beyond {2 << 20} bytes"]
    assert sorted(each["offsets"] for each in expanding) == sorted([n, n + 2] for n in expand.values())
    assert {each["event_id"] for each in w.said("calibrated")} == {"before", "a", "b", "c"}
    assert len(w.read("resolved")) == 1
    w.judge()
    w.agree()


async def send_misread(w: World) -> None:
    """Send a batch whose offset aiokafka misreads."""
    async with AIOKafkaProducer(bootstrap_servers=w.bootstrap) as producer:
        made = producer.create_batch()
        made.append(key=None, value=b"", timestamp=1000)
        made.append(key=None, value=b"", timestamp=1000)
        made.close()
        made._build = lambda: bytearray(misread(1000, 0))
        await (await producer.send_batch(made, w.topic("forecasts"), partition=0))


def test_no_record_of_a_source_ends_intake_by_how_it_is_made(world: MakeWorld, tmp_path: Path) -> None:
    texts = f"texts-{uuid4().hex[:8]}"
    streams = tmp_path / "streams.toml"
    streams.write_text(SCORES.format(name="texts", topic=texts))
    w = world(partitions=1, TRUEUP_STREAMS=str(streams))
    w.make({texts: 1})
    asyncio.run(attackers.send_misnamed(w.bootstrap, texts, [scored("a"), DEEP, scored("b"), scored("c")], 3))
    with w.worker("--stage", "intake") as intake:
        wait_for("all to be sent on", lambda: len(w.read("forecasts")) == 2 and len(w.read("dead-letters")) == 2)
        assert intake.stop() == 0
    letters = w.said("dead-letters")
    assert {(each["topic"], each["offset"], each["reason"]) for each in letters} == {
        (texts, 1, "probability"),
        (texts, 3, "batch"),
    }


def scored(event: str) -> bytes:
    """Return a record of a source."""
    return json.dumps({"id": event, "risk": 0.3}).encode()


DEEP = b'{"id":"deep","risk":' + b"[" * 1005 + b"]" * 1005 + b"}"
SCORES = """
[sources.{name}]
topic = "{topic}"
role = "forecast"
event_id = "id"
stream = {{ constant = "m" }}
p = "risk"
"""


def send_at_once(w: World, label: str, codec: str, values: list[bytes]) -> None:
    """Produce records as one batch, packed by a codec, however far they would expand."""
    asyncio.run(attackers.send_at_once(w.settings.brokers[0], w.topic(label), codec, values))


def test_readers_connections_that_drip_and_a_bomb_together_take_nothing_from_a_worker(world: MakeWorld) -> None:
    w = world(partitions=1)
    first, second = mixed(600, seed=1, streams=40), mixed(600, seed=2, streams=40, start=2_000_000)
    w.send(first.sent)
    with w.worker() as worker:
        w.wait_until_applied()
        port, health = worker.port() or 0, list[tuple[str, int, float]]()
        with attackers.dripping(port, 32), attackers.reading(port, 12, 0.2) as read:
            wait_for("readers and drippers", lambda: len(read) >= 24)
            send_at_once(w, "forecasts", "zstd", [bytes(200 << 20)])
            w.send(second.sent)
            while not health or worker.metric("records_total") < len(first.sent) + len(second.sent) + 1:
                health += [attackers.asked(port, path) for path in ("/healthz", "/readyz")]
        assert {status for _, status, _ in health} == {200}
        assert {path for path, status, _ in read if status == 200} == set(attackers.PAGES)
        assert {status for _, status, _ in read} <= {200, 503}, "a reader is served, or told to come again"
        # Counted once it is produced, and metrics are shared for a while.
        wait_for("the bomb's dead letter", lambda: worker.metric("dead_letters_total", reason="batch") == 1)
        assert worker.stop() == 0
    applied = w.applied()
    sums = {fate: n + second.fates[fate] for fate, n in first.fates.items()}
    # Whether an outcome is read before its forecast depends on when records came: it is resolved either way.
    for fates in (applied, sums):
        fates["outcomes_resolved"] += fates.pop("early_joined")
        assert fates.pop("outcomes_early") >= 0
    assert {fate: applied[fate] for fate in sums} == sums | {"forecasts_dead": sums["forecasts_dead"] + 1}
    bombs = [letter for letter in w.said("dead-letters") if letter["reason"] == "batch"]
    assert [(letter["topic"], letter["reason"]) for letter in bombs] == [(w.topic("forecasts"), "batch")]
    w.judge()
    w.agree()
