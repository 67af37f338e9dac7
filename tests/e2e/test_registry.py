"""A real schema registry, Apicurio, beside a real broker: sources and outputs in every format, and its absence."""

import asyncio
import io
import json
import struct
import subprocess
import uuid
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import fastavro
import orjson
import pytest

from cli import main, options
from lab.jvm import java
from state.events import Calibrated, Carried
from state.forecasts import Normal, Probs, Quantiles
from streams.config import output_ids
from streams.config.settings import Settings, SettingsError
from streams.records.output_avro import AvroValues
from streams.records.output_json import encode_calibrated
from streams.records.output_schemas import text
from streams.records.output_values import OutputValues
from streams.sources.registry import Registry, RegistryError
from streams.sources.schemas import Schemas
from tests.apicurio import PATH, Apicurio
from tests.e2e.test_intake import START, Hour, Source
from tests.e2e.world import ROOT, MakeWorld, Worker, World, wait_for
from tests.events import Sent, forecast

pytestmark = pytest.mark.skipif(not Apicurio.there(), reason="no registry: `make registry` fetches it")

CLIENT = ROOT / "deploy/clients/java"
MODEL = {"type": "record", "name": "Model", "namespace": "risk", "fields": [{"name": "name", "type": "string"}]}
SCORE = {
    "type": "record",
    "name": "Score",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "model", "type": "risk.Model"},
        {"name": "risk", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
PARTY = 'syntax = "proto3"; package common; message Party { string name = 1; }'
#: Its field `by` comes from another file, and is of a message that others refer to by their own names.
PAYMENT = """
syntax = "proto3";
package risk.v1;
import "common/party.proto";

message Other {}
message Payment {
  message Scored { string id = 1; double risk = 2; optional string model = 3; common.Party by = 4; }
}
"""
JSON_SCHEMA = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'
SOURCES = """
[sources.avro]
topic = "{name}-scores.v3"
role = "forecast"
format = "avro"
event_id = "id"
stream = "model-{{model.name}}"
p = "risk"
ts = "at"

[sources.protobuf]
topic = "{name}-chargebacks"
role = "forecast"
format = "protobuf"
event_id = "id"
stream = "model-{{by.name}}"
p = "risk"

[sources.json]
topic = "{name}-decisions"
role = "forecast"
event_id = "id"
stream = "model-{{model}}"
p = "risk"
"""
DIRECT = """
[sources.scores]
topic = "{name}-scores"
role = "forecast"
format = "avro"
event_id = "id"
stream = "model"
p = "risk"
"""
_names = count()


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    with Apicurio(tmp_path_factory.mktemp("apicurio")) as started:
        yield started


def asked(url: str, path: str, body: object = None, method: str | None = None) -> Any:
    """Ask the registry as a client of somebody else's does."""
    data = None if body is None else orjson.dumps(body)
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with urlopen(Request(f"{url}/{path}", data, headers, method=method), timeout=60) as answer:  # noqa: S310 - our own
        return orjson.loads(answer.read())


def registered(url: str, subject: str, text: object, kind: str = "AVRO", **references: str) -> int:
    """Register a schema, and return its id; references are subjects by name."""
    refers = [{"name": name, "subject": to, "version": 1} for name, to in references.items()]
    body = {"schema": text if isinstance(text, str) else json.dumps(text), "schemaType": kind, "references": refers}
    number: int = asked(url, f"subjects/{subject}/versions", body)["id"]
    return number


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def avro(schemas: list[dict[str, Any]], said: dict[str, Any]) -> bytes:
    """Return a record of the last schema, which may refer to those before it."""
    known: dict[str, Any] = {}
    into = io.BytesIO()
    *_, last = [fastavro.parse_schema(each, known) for each in schemas]
    fastavro.schemaless_writer(into, last, said)
    return into.getvalue()


def protobuf(event: str, risk: float, by: str) -> bytes:
    """Return a Scored, put together by hand: behind the place of message 1, and in it of message 0."""

    def text(field: int, of: bytes) -> bytes:
        return bytes([field << 3 | 2, len(of)]) + of

    return b"\4\2\0" + text(1, event.encode()) + b"\x11" + struct.pack("<d", risk) + text(4, text(1, by.encode()))


def test_records_of_every_format_are_answered_in_avro_and_read_by_a_java_client(
    world: MakeWorld, apicurio: Apicurio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, name = apicurio.url, f"apicurio-{uuid.uuid4().hex[:8]}"
    registered(url, "risk.Model", MODEL)
    score = registered(url, f"{name}-scores-value", SCORE, **{"risk.Model": "risk.Model"})
    registered(url, "common/party.proto".replace("/", "%2F"), PARTY, "PROTOBUF")
    payment = registered(
        url, f"{name}-payments-value", PAYMENT, "PROTOBUF", **{"common/party.proto": "common/party.proto"}
    )
    json_id = registered(url, f"{name}-json-value", JSON_SCHEMA, "JSON")
    records = []
    for i in range(30):
        key, risk = f"e{i}", i / 30
        said = {"id": f"a{i}", "model": {"name": "a"}, "risk": risk, "at": START + i}
        value = {"id": f"j{i}", "model": "j", "risk": risk}
        records += [
            Source("scores.v3", key.encode(), framed(score, avro([MODEL, SCORE], said)), START + i),
            Source("chargebacks", key.encode(), framed(payment, protobuf(f"p{i}", risk, "p")), START + i),
            Source("decisions", key.encode(), framed(json_id, orjson.dumps(value)), START + i),
        ]
    unknown = [
        Source("scores.v3", b"x", framed(2**31 + 5, b"\2x"), START),
        Source("scores.v3", b"x", framed(json_id, b"\2x"), START),
        Source("chargebacks", b"x", framed(score, b"\0\2x"), START),
        Source("scores.v3", b"x", b"\2x", START, (("__value_schema_id", b"\1" + uuid.UUID(int=5).bytes),)),
    ]
    hour = Hour(world, tmp_path, name, SOURCES, TRUEUP_OUTPUT_FORMAT="avro", TRUEUP_REGISTRY_URL=url)
    w = hour.world
    hour.send([*records, *unknown])
    with hour.stages("intake", "worker", "router"):
        w.wait_until_applied(len(records))
        wait_for("the dead letters", lambda: len(w.read("dead-letters")) == len(unknown))
        wait_for("the worker to serve", hour.running[1].ready)
        assert hour.running[0].get("/readyz") == (200, "yes\n")
    letters = w.said("dead-letters")
    assert sorted(letter["reason"] for letter in letters) == ["schema"] * 4

    subjects = set(asked(url, "subjects"))
    assert subjects >= {f"{w.topic(label)}-value" for label in ("calibrated", "resolved")}
    monkeypatch.syspath_prepend(ROOT / "deploy/clients/python")
    import answers  # type: ignore[import-not-found]  # noqa: PLC0415 - as somebody has it who has copied the file

    read = answers.Answers(url)
    found = {said["event_id"]: said for said in (read(record.value) for record in w.read("calibrated"))}
    assert found.keys() == {f"{kind}{i}" for kind in "apj" for i in range(30)}
    assert all(said["raw"] == int(event[1:]) / 30 for event, said in found.items())
    assert {said["stream"] for said in found.values()} == {"model-a", "model-p", "model-j"}

    by_java = {event: (stream, float(p)) for event, stream, p, _ in read_by_java(w, url)}
    assert by_java == {event: (said["stream"], said["p"]) for event, said in found.items()}

    with w.worker(TRUEUP_OUTPUT_REGISTER="no") as worker:
        wait_for("a worker that registers nothing", worker.ready)
    assert asked(url, f"subjects/{w.topic('calibrated')}-value/versions") == [1]


def read_by_java(w: World, url: str) -> list[list[str]]:
    """Return the lines that the Java example prints of ``calibrated``."""
    run = subprocess.run(
        [
            java() or "java",
            *("-cp", f"{CLIENT / 'lib'}/*", str(CLIENT / "Answers.java")),
            *(w.bootstrap, url.removesuffix(PATH), w.topic("calibrated")),
        ],
        capture_output=True,
        check=True,
        timeout=120,
    )
    return [line.split("\t") for line in run.stdout.decode().splitlines()]


def settings(url: str, **changed: str) -> Settings:
    """Return settings of outputs, in Avro if nothing else is said, to topics of their own."""
    n = next(_names)
    own = {"OUTPUT_FORMAT": "avro", "REGISTRY_URL": url, "CALIBRATED": f"c{n}", "RESOLVED": f"r{n}"} | changed
    return Settings.from_env({f"TRUEUP_{name}": value for name, value in own.items()})


def test_schemas_are_registered_looked_up_and_read_back_and_a_wrong_address_is_said(
    apicurio: Apicurio, capsys: pytest.CaptureFixture[str]
) -> None:
    given = settings(apicurio.url)
    found = asyncio.run(output_ids.known(given)).schema_ids
    for label, number in found.items():
        latest = asked(apicurio.url, f"subjects/{output_ids.subject(given, label)}/versions/latest")
        assert (latest["id"], latest.get("schemaType", "AVRO")) == (number, "AVRO")
        assert latest["schema"] == text(label)
    again = settings(apicurio.url, OUTPUT_REGISTER="no")
    with pytest.raises(SettingsError, match=f"subject {again.calibrated}-value, which has no schema"):
        asyncio.run(output_ids.known(again))
    assert main.main(["schema", "calibrated"]) == 0
    number = registered(apicurio.url, f"{again.calibrated}-value", capsys.readouterr().out)
    assert asyncio.run(output_ids.known(again, ["calibrated"])).schema_ids == {"calibrated": number}

    made, reads = AvroValues(found), OutputValues(Registry(apicurio.url))
    carried = Carried((), b'{"customer":"c"}')
    law = Quantiles((0.1, 0.9), (1.0, 2.5))
    for p in (0.25, Probs((0.5, 0.5)), law, Normal(1.0, 2.0)):
        one = Calibrated(b"k", "e", "s", p, p, p, "prudent", "0123abcd", 3, START, 12, carried)
        said, value = encode_calibrated(one), made.calibrated(one)
        assert reads.fields(value) == orjson.loads(said)
        assert reads.same(value, said)

    async def beside() -> None:
        wrong = Registry(apicurio.url.removesuffix(PATH))
        async with wrong.session() as session:
            with pytest.raises(RegistryError, match="is not the address of Confluent's interface"):
                await wrong.fetch(session, 1)
        held = Schemas(Registry(apicurio.url))
        await held.load([2**31 + 7])
        assert held.get(2**31 + 7) is None
        assert not held.lacks(2**31 + 7), "no record of it waits for ever"

    capsys.readouterr()
    asyncio.run(beside())
    assert capsys.readouterr().err == "", "the command that ran has sent the log there"


def test_a_schema_that_does_not_fit_ends_the_start_with_both_named(world: MakeWorld, apicurio: Apicurio) -> None:
    w = world(partitions=1, TRUEUP_REGISTRY_URL=apicurio.url, TRUEUP_OUTPUT_FORMAT="avro")
    subject = f"{w.topic('resolved')}-value"
    registered(apicurio.url, subject, {"type": "record", "name": "Bill", "fields": [{"name": "n", "type": "int"}]})
    asked(apicurio.url, f"config/{subject}", {"compatibility": "FULL"}, "PUT")
    said = f"the schema trueup.Resolved under the subject {subject}, which has Bill as version 1"
    w.refused(options.MISCONFIGURED, said, "answered 409", "Incompatible artifact")


def waiting(worker: Worker, *, said: bool) -> bool:
    """Whether the gauge of how long a process has waited says that it waits, or that it does not."""
    return (worker.metric("registry_waiting_seconds") > 0) is said


def test_while_it_is_away_workers_wait_say_so_to_probes_and_lose_nothing(
    world: MakeWorld, apicurio: Apicurio, tmp_path: Path
) -> None:
    url, name = apicurio.url, f"away-{uuid.uuid4().hex[:8]}"
    plain = {
        "type": "record",
        "name": "Plain",
        "fields": [{"name": each, "type": "string"} for each in ("id", "model")],
    }
    plain["fields"] += [{"name": "risk", "type": "double"}]  # type: ignore[operator]
    wider = plain | {"name": "Wider"}
    first, second = (registered(url, f"{name}-{n}", each) for n, each in enumerate((plain, wider)))
    (tmp_path / "direct.toml").write_text(DIRECT.format(name=name))
    w = world(
        partitions=1,
        TRUEUP_STREAMS=str(tmp_path / "direct.toml"),
        TRUEUP_FORECASTS=f"{name}-scores",
        TRUEUP_REGISTRY_URL=url,
    )
    later = world(partitions=1, TRUEUP_REGISTRY_URL=url, TRUEUP_OUTPUT_FORMAT="avro")
    later.send([forecast(f"l{i}", 0.5, i) for i in range(9)])
    hour = Hour(world, tmp_path, f"{name}-hour", SOURCES, TRUEUP_REGISTRY_URL=url)

    def send(number: int, of: dict[str, Any], *events: str) -> None:
        values = [(each, avro([of], {"id": each, "model": "m", "risk": 0.5})) for each in events]
        w.send([Sent("forecasts", each.encode(), framed(number, value), START) for each, value in values])

    with w.worker() as worker, hour.stages("intake"):
        (intake,) = hour.running
        send(first, plain, "e1", "e2")
        w.wait_until_applied(2)
        wait_for("intake to read", intake.ready)
        apicurio.kill()
        send(first, plain, "e3")
        w.wait_until_applied(3)
        assert worker.get("/readyz") == (200, "yes\n"), "what it knows it does not ask for"
        send(second, wider, "e4", "e5")
        hour.send(
            [Source("scores.v3", b"k", framed(first, avro([plain], {"id": "i", "model": "a", "risk": 0.5})), START)]
        )
        with later.worker() as stopped:
            wait_for("it to wait", partial(waits, stopped))
            assert stopped.stop() == 0
        with later.worker() as starting:
            for each in (worker, intake, starting):
                wait_for("it to say what it waits for", partial(waits, each))
                assert each.get("/healthz") == (200, "yes\n")
                wait_for("its gauges to say so", partial(waiting, each, said=True))
                assert each.metric("ready") == 0
                assert "waiting for the schema registry" in each.printed
            assert worker.metric("lag_records", topic=f"{name}-scores") >= 0
            apicurio.start()
            w.wait_until_applied(5)
            later.wait_until_applied(9)
            for each in (worker, starting, intake):
                wait_for("it to serve", each.ready)
                wait_for("its gauges to say so", partial(waiting, each, said=False))
            assert starting.stop() == worker.stop() == intake.stop() == 0
    answered = sorted(each["event_id"] for each in w.said("calibrated"))
    assert answered == ["e1", "e2", "e3", "e4", "e5"]
    assert w.read("dead-letters") == []
    assert len(later.read("calibrated")) == 9


def waits(worker: Worker) -> bool:
    """Whether a worker says to probes that it is not ready, and why."""
    assert worker.process.poll() is None, worker.printed[-4000:]
    status, said = worker.get("/readyz")
    return status == 503 and said.startswith("no: waiting for the schema registry, for ")
