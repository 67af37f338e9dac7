"""Records made to harm: they become dead letters, nothing of them runs, and the worker goes on."""

import asyncio
import base64
import json
import os
import pickle
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiokafka import AIOKafkaProducer

from tests import attackers
from tests.e2e.world import MakeWorld, World, wait_for
from tests.events import Sent, forecast, mixed, outcome


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
    large = [b'{"event_id":"a","stream":"s","p":0.5,"x":"' + b"y" * 70_000 + b'"}', bytes(1_500_000)]  # beyond a fetch
    numbers = [
        b'{"event_id":"a","stream":"s","p":1e999}',
        b'{"event_id":"a","stream":"s","p":0.5,"ts":' + b"9" * 5000 + b"}",
        b'{"event_id":"a","stream":"s","p":' + b"9" * 60_000 + b"}",
    ]
    # rocksdict and Faust have codecs that unpickle: no record chooses its codec, neither by its key nor by its headers.
    hostile = [*bombs, *deep, *large, *numbers]
    sent = [Sent(topic, value[:500], value, 1000) for topic in ("forecasts", "outcomes") for value in hostile]
    w.send([*sent, forecast("good", 0.3, 2000)], max_request_size=2_000_000)
    w.serve()
    assert not went_off.exists()
    letters = w.said("dead-letters")
    assert len(letters) == len(sent)
    assert max(len(json.dumps(letter)) for letter in letters) < 30_000
    reasons = {"not_json", "not_object", "oversized", "probability", "timestamp", "event_id", "label"}
    assert {letter["reason"] for letter in letters} <= reasons
    assert len(w.read("calibrated")) == 1
    w.judge()


def test_a_batch_that_expands_beyond_the_bound_is_one_dead_letter_and_the_fence_goes_on(world: MakeWorld) -> None:
    w, codec = world(partitions=1, TRUEUP_UNPACKED_BYTES=str(2 << 20)), "zstd"
    w.send([forecast("before", 0.3, 1000)])
    for label in ("forecasts", "outcomes"):
        send_at_once(w, label, codec, [b"{}", bytes(20 << 20), b"{}"])
    w.send([forecast("after", 0.3, 2000), outcome("before", 1, 2001)])
    with w.worker() as worker:
        w.wait_until_applied(9)  # what is committed is behind the three records of each batch
        assert worker.metric("dead_letters_total", reason="batch") == 2
        assert worker.metric("dead_letters_total") == 2
        assert worker.stop() == 0
    letters = w.said("dead-letters")
    assert {(letter["topic"], letter["partition"], letter["offset"], letter["reason"]) for letter in letters} == {
        (w.topic("forecasts"), 0, 3, "batch"),
        (w.topic("outcomes"), 0, 2, "batch"),
    }
    said = [json.loads(base64.b64decode(letter["value"])) for letter in letters]
    assert sorted(each["offsets"] for each in said) == [[0, 2], [1, 3]]
    assert {each["refused"] for each in said} == {f"{codec} that expands beyond {2 << 20} bytes"}
    assert len(w.read("calibrated")) == 2
    assert len(w.read("resolved")) == 1
    w.judge()
    w.agree()


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


def test_what_a_producer_took_back_is_not_answered_and_what_it_has_not_confirmed_is_not_waited_for(
    world: MakeWorld,
) -> None:
    w = world(partitions=1, TRUEUP_PATIENCE_SECONDS="3600")

    async def send() -> None:
        taken_back = AIOKafkaProducer(bootstrap_servers=w.settings.brokers[0], transactional_id=f"{w.name}-a")
        unconfirmed = AIOKafkaProducer(bootstrap_servers=w.settings.brokers[0], transactional_id=f"{w.name}-b")
        async with taken_back, unconfirmed:
            await taken_back.begin_transaction()
            for record in (forecast("back", 0.3, 2000), outcome("kept", 0, 2001)):
                await taken_back.send_and_wait(w.topic(record.topic), record.value, key=record.key)
            await taken_back.abort_transaction()
            async with taken_back.transaction():
                record = forecast("confirmed", 0.3, 3000)
                await taken_back.send_and_wait(w.topic(record.topic), record.value, key=record.key)
            await unconfirmed.begin_transaction()
            record = outcome("confirmed", 1, 4000)
            await unconfirmed.send_and_wait(w.topic(record.topic), record.value, key=record.key)
            with w.worker() as worker:
                await asyncio.to_thread(wait_for, "both answers", lambda: len(w.read("calibrated")) == 2)
                assert await asyncio.to_thread(w.read, "resolved") == []
                assert worker.metric("lag_records") == 0
                await unconfirmed.commit_transaction()
                await asyncio.to_thread(wait_for, "the outcome", lambda: len(w.read("resolved")) == 1)
                assert worker.stop() == 0

    w.send([forecast("kept", 0.3, 1000)])
    asyncio.run(send())
    assert [each["event_id"] for each in w.said("calibrated")] == ["kept", "confirmed"]
    applied = w.applied()
    assert (applied["forecasts_issued"], applied["outcomes_resolved"], applied["outcomes_early"]) == (2, 1, 0)
    w.agree()
