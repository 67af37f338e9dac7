"""A record that ends every worker which reads it: it is named, and an operator can go on without it."""

import asyncio
import base64
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from agents import logs
from agents.worker import FAILED, MISCONFIGURED
from cli import main, skip
from replay.audit import auditor, event_path
from streams.config.settings import SettingsError
from streams.records import skips
from tests.e2e.test_intake import Hour, Source, expected, made, resolved
from tests.e2e.world import World, wait_for
from tests.events import Sent, forecast, outcome
from tests.streams.faust.fetches import misread

MakeWorld = Callable[..., World]
Audited = Callable[..., tuple[int, dict[str, Any]]]
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


def test_an_intake_goes_on_without_records_of_sources_that_end_it(
    world: MakeWorld,
    tmp_path: Path,
    audited: Audited,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hour = Hour(world, tmp_path, "skipped")
    w, sent, topic = hour.world, made(60, seed=7), hour.topics["scores.v3"]

    def score(event: str, key: bytes = b"card-1") -> Source:
        fields = {"transaction": {"id": event}, "model": "a", "riskScore": 300, "scoredAt": "2023-11-14T22:13:30Z"}
        return Source("scores.v3", key, orjson.dumps(fields), sent[-1].ts)

    hour.send([*sent, score("defect", b"bad")])
    held = hour.read(topic, 3)
    (defect,) = [each for each in held if each.key == b"bad"]
    hour.send([score("between"), score("second", b"bad")])
    second = max((each for each in hour.read(topic, 3) if each.key == b"bad"), key=lambda each: each.offset)
    places = {f"{topic}/{each.partition}@{each.offset}" for each in (defect, second)}
    skipped = set()
    with hour.stages("router", "worker"):
        for _ in places:
            with w.worker("--stage", "intake", *POISON) as intake:
                assert intake.process.wait(60) == FAILED
                (place,) = set(re.findall(r"([\w./@-]+) cannot be read or folded", intake.printed))
            assert f"{place} is left out from now on: ticket 7. Intakes" in skip.run(w.settings, place, "ticket 7")
            skipped.add(place)
        assert skipped == places
        with w.worker("--stage", "intake", *POISON) as intake:
            hour.wait()
            assert all(f"leaving out {place}: ticket 7" in intake.printed for place in places)
            assert intake.stop() == 0
    letters = [json.loads(record.value or b"") for record in w.read("dead-letters")]
    left_out = {
        f"{said['topic']}/{said['partition']}@{said['offset']}" for said in letters if said["reason"] == "skipped"
    }
    assert left_out == places
    answers = {json.loads(record.value or b"")["event_id"] for record in w.read("calibrated")}
    assert answers & {"between", "defect", "second"} == {"between"}
    assert resolved(w) == expected(sent)
    for _ in range(2):  # the second goes on where the first has ended
        status, account = audited(w, sources=True, checkpoint=tmp_path / "audits")
        assert (status, account["differences"], account["unable"]) == (auditor.AGREE, [], [])
    assert set(audited(w, sources=True)[1]["skipped"]) == {f"{place}: ticket 7" for place in places}
    capsys.readouterr()
    assert event_path.run(w.settings, "between", json_output=True) == event_path.FOUND
    steps = orjson.loads(capsys.readouterr().out.splitlines()[-1])["steps"]
    assert [step["stage"] for step in steps] == ["source", "forecasts", "routes", "calibrated"]
    with pytest.raises(SettingsError, match=f"offset {defect.offset} is not to be applied: the next of {topic}"):
        skip.run(w.settings, f"{topic}/{defect.partition}@{defect.offset}", "too late")


def test_only_records_that_are_still_to_be_applied_can_be_left_out(
    world: MakeWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = world(partitions=1)
    w.send([forecast("a", 0.3, 1000), forecast("b", 0.3, 1001)])
    for worker_settings in ({"TRUEUP_CHECKPOINT_SECONDS": "60"}, {}):  # killed, they are in the journal alone
        with w.worker(**worker_settings) as worker:
            wait_for("answers", lambda: len(w.read("calibrated")) == 2)
            if not worker_settings:
                w.wait_until_applied(2)
                assert worker.stop() == 0
        for offset in (0, 1, 2, 10**9):
            with pytest.raises(SettingsError, match=f"offset {offset} is not to be applied: the next .*/0 is 2, and"):
                skip.run(w.settings, f"{w.topic('forecasts')}/0@{offset}", "no reason")
    monkeypatch.setattr(logs, "configure", lambda *_: None)  # it would stay for the tests that follow
    for name, value in w.environment.items():
        monkeypatch.setenv(name, value)
    for place in ("nonsense", f"{w.topic('calibrated')}/0@1", f"{w.topic('forecasts')}/7@1", "a/b@c"):
        assert main.main(["state", "skip", place, "--reason", "why"]) == MISCONFIGURED
    assert main.main(["state", "skip", f"{w.topic('forecasts')}/0@2", "--reason", " "]) == MISCONFIGURED
    assert sum(line.startswith("trueup: ") for line in capsys.readouterr().err.splitlines()) == 5
    assert not [record for record in w.read("changelog") if (record.key or b"").startswith(skips.SKIP.letter)]
    w.judge()
