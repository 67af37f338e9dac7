"""A record that ends every worker which reads it: it is named, and an operator can go on without it."""

import asyncio
import base64
import json
import shutil
from collections.abc import Callable

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from agents import logs
from agents.worker import FAILED
from cli import main
from replay.audit import auditor
from streams.records import skips
from tests.e2e.world import World, wait_for
from tests.events import Sent, forecast, outcome
from tests.streams.faust.fetches import misread

MakeWorld = Callable[..., World]
POISON = "--poison", "bad"


@pytest.mark.parametrize("label", ["forecasts", "outcomes"])
def test_a_worker_that_dies_of_a_record_names_it_and_goes_on_without_it(
    world: MakeWorld, label: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = world(partitions=1)
    bad = Sent(label, b"bad", b"{}", 1002)
    w.send([forecast("a", 0.3, 1000), outcome("a", 1, 1001), bad, forecast("b", 0.4, 1003), outcome("b", 0, 1004)])
    place = f"{w.topic(label)}/0@1"
    for times in (1, 2, 3):
        with w.worker(*POISON) as worker:
            assert worker.process.wait(60) == FAILED
            assert f"{place} cannot be read or folded" in worker.printed
            assert (f"trueup state skip {place} --reason" in worker.printed) == (times == 3)
    monkeypatch.setattr(logs, "configure", lambda *_: None)  # it would stay for the tests that follow
    for name, value in w.environment.items():
        monkeypatch.setenv(name, value)
    assert main.main(["state", "skip", place, "--reason", "a defect, ticket 7"]) == 0
    assert f"{place} is left out from now on: a defect, ticket 7" in capsys.readouterr().out
    for _ in range(2):  # as well from an empty disk
        with w.worker(*POISON) as worker:
            wait_for("the worker", worker.ready)
            w.wait_until_applied(5)
            assert f"leaving out {place}: a defect, ticket 7" in worker.printed
            assert worker.stop() == 0
        shutil.rmtree(w.directory / "data")
    letters = [json.loads(record.value or b"") for record in w.read("dead-letters")]
    assert {(letter["topic"], letter["offset"], letter["reason"]) for letter in letters} == {
        (w.topic(label), 1, "skipped")
    }
    said = json.loads(base64.b64decode(letters[0]["value"]))
    assert (said["offsets"], said["refused"]) == ([1, 1], "skipped at 1: a defect, ticket 7")
    assert len(w.read("calibrated")) == 2
    w.skips = {w.topic(label): {1: skips.why(1, "a defect, ticket 7")}}
    w.judge()
    capsys.readouterr()
    assert auditor.run(w.settings, json_output=True) == auditor.AGREE
    assert orjson.loads(capsys.readouterr().out.splitlines()[-1])["skipped"] == [
        f"{place}: a defect, ticket 7".replace("@1:", "@1:")
    ]


def test_a_record_whose_offset_aiokafka_misreads_takes_no_event_from_others(world: MakeWorld) -> None:
    w = world(partitions=1)

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=w.bootstrap) as producer:
            made = producer.create_batch()
            made.append(key=None, value=b"", timestamp=1000)
            made.append(key=None, value=b"", timestamp=1000)
            made.close()
            made._build = lambda: bytearray(misread(1000, 0))
            await (await producer.send_batch(made, w.topic("forecasts"), partition=0))

    asyncio.run(send())
    w.send([forecast(name, 0.3, 1000) for name in "abc"])
    for _ in range(2):
        with w.worker() as worker:
            wait_for("the worker", worker.ready)
            w.wait_until_applied(5)
            assert worker.stop() == 0
    assert {json.loads(record.value or b"")["event_id"] for record in w.read("calibrated")} == set("abc")
    assert [json.loads(each.value or b"")["reason"] for each in w.read("dead-letters")] == ["batch"]
