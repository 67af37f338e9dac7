"""Outputs with the schemas of a registry: killed anywhere, audited, read by others; registries that fail."""

import asyncio
import io
import json
import socket
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import fastavro
import orjson
import pytest
from aiokafka import AIOKafkaProducer

from cli import main, options
from replay.audit import auditor
from streams.records.output_schemas import NAMES
from streams.records.output_values import OutputValues
from streams.sources.registry import Registry
from tests.e2e.test_carried import ROUTED, scores
from tests.e2e.test_crashes import KILLED
from tests.e2e.test_intake import START, Hour, Source
from tests.e2e.world import ROOT, World, wait_for
from tests.events import Sent, forecast
from tests.streams.sources.registries import StandIn

MakeWorld = Callable[..., World]
SCORE = {
    "type": "record",
    "name": "Score",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "model", "type": "string"},
        {"name": "risk", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": ["null", "double"], "default": None},
    ],
}
DECISION = {
    "type": "record",
    "name": "Decision",
    "fields": [{"name": "payment", "type": "string"}, {"name": "fraud", "type": "boolean"}],
}
STREAMS = """
on_error = "raw"

[streams."model-*"]
calibrator = "platt+minimax"

[sources.scores]
topic = "{name}-scores"
role = "forecast"
format = "avro"
event_id = "id"
stream = "model"
p = "risk"
ts = "at"
carry = {{ customer = "customer", amount = "amount" }}

[sources.decisions]
topic = "{name}-decisions"
role = "outcome"
format = "avro"
event_id = "payment"
y = "fraud"
"""


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the example of a reader as somebody has it who has copied the file."""
    monkeypatch.syspath_prepend(ROOT / "deploy/clients/python")
    import answers  # type: ignore[import-not-found]  # noqa: PLC0415 - found now

    return answers  # type: ignore[no-any-return]


def framed(number: int, schema: dict[str, Any], said: dict[str, Any]) -> bytes:
    into = io.BytesIO()
    fastavro.schemaless_writer(into, fastavro.parse_schema(schema), said)
    return b"\0" + number.to_bytes(4, "big") + into.getvalue()


def fed(w: World, scores: str, decisions: str, n: int) -> int:
    """Send scores, every tenth of which is no probability, and the decisions on most of them; return how many."""

    async def send() -> int:
        waits = []
        producer = AIOKafkaProducer(bootstrap_servers=w.bootstrap, linger_ms=5)
        async with producer:
            for i in range(n):
                key, at = f"e{i}ü", START + i
                said = {"id": key, "model": f"model-{i % 3}", "risk": i / n, "at": at, "customer": f"c{i % 7}"}
                said["amount"] = None if i % 2 else i / 8
                if i % 10 == 9:
                    said["risk"] = 1.5
                value = framed(1, SCORE, said)
                waits.append(await producer.send(scores, value, key=key.encode(), timestamp_ms=at))
                if i % 4 < 3:
                    value = framed(2, DECISION, {"payment": key, "fraud": i % 8 < 2})
                    waits.append(await producer.send(decisions, value, key=key.encode(), timestamp_ms=at + 50))
            await asyncio.gather(*waits)
        return len(waits)

    return asyncio.run(send())


def test_from_avro_to_avro_whatever_dies_and_everybody_reads_it(
    world: MakeWorld,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    answers: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, streams = f"avro-{uuid.uuid4().hex[:8]}", tmp_path / "avro.toml"
    streams.write_text(STREAMS.format(name=name))
    registry = StandIn(
        {"schemas/ids/1": {"schema": json.dumps(SCORE)}, "schemas/ids/2": {"schema": json.dumps(DECISION)}}
    )
    with registry.apart() as url:
        w = world(
            TRUEUP_STREAMS=str(streams),
            TRUEUP_FORECASTS=f"{name}-scores",
            TRUEUP_OUTCOMES=f"{name}-decisions",
            TRUEUP_BATCH_RECORDS="60",
            TRUEUP_REGISTRY_URL=url,
            TRUEUP_OUTPUT_FORMAT="avro",
        )
        sent = fed(w, f"{name}-scores", f"{name}-decisions", 700)
        for step in (1, 2, 3, 4):
            with w.worker("--kill", str(step), "3") as doomed:
                assert doomed.process.wait(90) == KILLED, doomed.printed[-4000:]
        with w.worker() as worker:
            w.wait_until_applied(sent)
            assert worker.stop() == 0
        assert len(registry.schemas) == 4, "each schema was registered once"
        assert registry.subjects.keys() == {f"{w.topic(label)}-value" for label in NAMES}

        capsys.readouterr()
        assert auditor.run(w.settings, json_output=True) == auditor.AGREE
        checked = orjson.loads(capsys.readouterr().out.splitlines()[-1])["checked"]
        assert (checked["calibrated"], checked["raw_answers"], checked["dead_letters"]) == (630, 0, 70)
        assert checked["copies"] == 0
        assert checked["resolved"] > 450

        values = OutputValues(Registry(url))
        read = answers.Answers(url)
        served: dict[int, float] = {}
        for record in w.read("calibrated"):
            assert (record.value or b"").startswith(b"\0")
            said = read(record.value)
            i = int(said["event_id"].removeprefix("e").removesuffix("ü"))
            assert (said["raw"], said["calibrated"], said["stream"]) == (i / 700, True, f"model-{i % 3}")
            amount = {} if i % 2 else {"amount": json.dumps(i / 8)}
            assert said["carried"] == {"customer": f"c{i % 7}", **amount}
            assert served.setdefault(i, said["p"]) == said["p"]
        for record in w.read("resolved"):
            said, found = read(record.value), values.fields(record.value or b"")
            assert said["p"] == found["p"] == served[int(said["event_id"][1:-1])]
            assert said["resolved_ts"].timestamp() * 1000 == found["resolved_ts"]

        for variable, setting in w.environment.items():
            monkeypatch.setenv(variable, setting)
        assert main.main(["audit", "--certificate", w.topic("resolved"), "--json"]) == 0
        kinds = orjson.loads(capsys.readouterr().out)
        assert sum(each["calibrated"][0] for each in kinds.values()) == checked["resolved"]

        record = w.read("calibrated")[100]
        value = bytearray(record.value or b"")
        p = struct.pack("<d", values.fields(bytes(value))["p"])
        value[value.index(p) + 2] ^= 1  # one bit of a record that comes again
        w.send([Sent("calibrated", record.key or b"", bytes(value), record.ts)])
        assert auditor.run(w.settings, json_output=True) == auditor.DIFFER


def test_intake_answers_in_avro_and_an_audit_follows_it(
    world: MakeWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = StandIn()
    with registry.apart() as url:
        name = f"avro-{uuid.uuid4().hex[:8]}"
        hour = Hour(world, tmp_path, name, ROUTED, TRUEUP_OUTPUT_FORMAT="avro", TRUEUP_REGISTRY_URL=url)
        sent = list(scores(200, seed=3))
        hour.send([Source("scores.v3", s.key.encode(), orjson.dumps(s.value), s.ts, s.headers) for s in sent])
        with hour.stages("intake", "router", "worker"):
            hour.wait()
        assert registry.subjects.keys() == {f"{hour.world.topic(label)}-value" for label in NAMES}
        answered = [record.value or b"" for record in hour.world.read("calibrated")]
        assert all(value.startswith(b"\0") for value in answered)
        capsys.readouterr()
        status = auditor.run(hour.world.settings, json_output=True, sources=True)
        account = orjson.loads(capsys.readouterr().out.splitlines()[-1])
        assert (status, account["differences"], account["unable"]) == (auditor.AGREE, [], [])
        followed = account["followed"]["sources"]
        assert followed["raw_answers"] > 20
        assert account["checked"]["calibrated"] == 200 + len(range(0, 200, 7)), "some were sent twice"


def test_a_registry_that_is_away_is_waited_for_and_not_missed_later(world: MakeWorld) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    registry = StandIn()
    w = world(partitions=1, TRUEUP_REGISTRY_URL=f"http://127.0.0.1:{port}", TRUEUP_OUTPUT_FORMAT="avro")
    w.send([forecast(f"e{i}", 0.5, i) for i in range(9)])
    with w.worker() as worker:
        wait_for("the worker to say what it waits for", lambda: "waiting for the schema registry" in worker.printed)
        assert worker.process.poll() is None
        with registry.apart(port):
            w.wait_until_applied(9)
            assert registry.asked.count(f"subjects/{w.topic('calibrated')}-value/versions") == 1
        w.send([forecast(f"f{i}", 0.5, i) for i in range(9)])
        w.wait_until_applied(18)
        assert worker.stop() == 0
    found = w.read("calibrated")
    assert len(found) == 18
    assert all((record.value or b"").startswith(b"\0\0\0\0\1") for record in found)


def test_an_incompatible_schema_ends_the_start_with_both_named(world: MakeWorld) -> None:
    registry = StandIn()
    with registry.apart() as url:
        w = world(partitions=1, TRUEUP_REGISTRY_URL=url, TRUEUP_OUTPUT_FORMAT="avro")
        subject = f"{w.topic('resolved')}-value"
        registry.schemas["schemas/ids/9"] = {"schema": '{"type": "record", "name": "Bill", "fields": []}'}
        registry.subjects[subject] = [9]
        with w.worker() as worker:
            assert worker.process.wait(60) == options.MISCONFIGURED
        held = "which has Bill as version 1, id 9: "
        assert f"the schema trueup.Resolved under the subject {subject}, {held}" in worker.printed
        del registry.subjects[subject]
        with w.worker(TRUEUP_OUTPUT_REGISTER="no") as worker:
            assert worker.process.wait(60) == options.MISCONFIGURED
        assert f"under the subject {subject}, which has no schema" in worker.printed
        assert "'trueup schema resolved' prints it" in worker.printed
