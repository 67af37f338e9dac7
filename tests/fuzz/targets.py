"""What is fuzzed: each target takes any bytes and raises only when something that must hold does not.

The same targets run under hypothesis in every test run (`test_targets.py`) and under atheris, which follows coverage,
in `make fuzz`. What either finds becomes a file in ``corpus/``, so it is tried first for ever after.
"""

import base64
import io
import json
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import orjson
from aiokafka.record.util import calc_crc32c

from agents import logs, worker
from cli import main, show
from lab import broker, demo
from replay.audit import auditor
from state import calibrators, forecasts, kinds
from state.engine import Partition
from state.events import Calibrated, Event, Forecast, Outcome, Rejected
from state.forecasts import Normal, Probs
from state.frames import CorruptFrame, seal
from state.policy import Policy
from state.served import Served
from streams.config import stream_config
from streams.config.settings import Settings, SettingsError
from streams.faust.producing import RecordBatch
from streams.kafka import remarks, topics
from streams.records.decoding import REASONS, Decoder
from streams.records.encoding import answered_raw, encoded
from streams.records.limits import LATEST, Limits
from streams.records.skips import PoisonError
from streams.sources import config as sources
from streams.sources import proto_file
from streams.sources.mapping import Mapping
from streams.sources.refusal import Refusal
from streams.sources.registry import AVRO, PROTOBUF, Fetched
from streams.sources.schemas import Schemas
from tests.state.golden import Row, golden
from tests.streams.faust.fetches import LIMIT, fetched, handed_over

CORPUS: Final = Path(__file__).with_name("corpus")
#: Statuses the command line may end with.
STATUSES: Final = {0, 1, 2, 64, 78}

PLAN: Final = b"""
early_ttl = "7d"
on_error = "raw"
carry_headers = ["traceparent", "x-*"]
[streams.classes]
calibrator = "multiclass"
options = { classes = 3 }
[streams.numbers]
calibrator = "quantile"
options = { levels = [0.1, 0.9] }
[streams.named]
calibrator = "calibrated_regression"
features = ["a", "b"]
[streams."*"]
ttl = "9s"
shadow = ["platt", { calibrator = "minimax", options = { grid = 9 } }]
"""


class Target(NamedTuple):
    """Something to fuzz: what checks an input, and inputs to begin with."""

    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


# -- records ---------------------------------------------------------------------------------------------------------


def _decoder() -> tuple[Decoder, Settings]:
    policies = stream_config.parse(PLAN.decode(), "platt+regret_matching")
    return Decoder(policies, Limits()), Settings(policies=policies)


_DECODER, _SETTINGS = _decoder()


def record(data: bytes) -> None:
    """Any value of either topic is an event the engine can fold, or is rejected with a reason there is."""
    when, data = (data[0], data[1:]) if data else (0, data)
    timestamp = (0, 1_700_000_000_000, LATEST, 2**62)[when % 4]
    first = _DECODER.forecast(0, b"k", data, timestamp, (("traceparent", data[:60]), ("x", None)))
    second = _DECODER.outcome(0, b"k", data, timestamp)
    for event in (first, second):
        assert not isinstance(event, Rejected) or event.reason in REASONS, event
    events: list[Event] = [first, second]
    if isinstance(first, Forecast):
        events += [Outcome(1, b"k", first.event_id, y, timestamp) for y in (0.0, 1.0)]
    table: dict[bytes, bytes | None] = {}
    effects = Partition(_SETTINGS.policies, table.get).fold(events if when % 8 < 4 else events[1:] + events[:1])
    answers = sum(
        isinstance(output, Calibrated) or answered_raw(output, _SETTINGS) is not None for output in effects.outputs
    )
    assert len(encoded(effects.outputs, _SETTINGS, 0)["calibrated"]) == answers
    for key, row in effects.rows.items():
        if key[:1] == kinds.LEDGER.letter and row is not None:
            kinds.LEDGER.decode(row)


def batch(data: bytes) -> None:
    """Any batch of a fetch is read to its end, or is a PoisonError: damaged ones with a true checksum too."""
    how, body = (data[0], data[1:]) if data else (0, data)
    head = struct.pack(">qiib", 0, 9 + len(body), 0, 2)
    reading = fetched(head + struct.pack(">I", calc_crc32c(body)) + body, None if how & 1 else LIMIT)
    if how & 2:
        reading._records.skips = {0: "skipped", 2: "skipped"}
    with suppress(PoisonError):
        handed_over(reading)


# -- records of sources ------------------------------------------------------------------------------------------------

SOURCES: Final = """
[sources.plain]
topic = "a"
role = "forecast"
when = { type = ["score", "x"], "n.a" = { min = 1 } }
event_id = "{id}-{@key}"
stream = "{model}"
p = { path = "risk", scale = "percent" }
ts = { path = "at", zone = "Europe/Berlin" }
x = { a = { path = "n.a", default = 0 }, b = "l[0]" }
segments = { c = "country" }
carry = { n = "n", h = "@header.h" }
[sources.cloud]
topic = "a"
role = "outcome"
cloudevents = true
precedence = 2
event_id = "data.id"
y = { path = "data.y", labels = { lost = 1, won = 0, "*" = "skip" } }
revision = "data.r"
[sources.numbers]
topic = "a"
role = "forecast"
key_format = "json"
event_id = ["@key.id", "id"]
stream = "@topic"
quantiles = { levels = "levels", values = "values" }
ts = { path = "at", unit = "us" }
[sources.avro]
topic = "a"
role = "forecast"
format = "avro"
event_id = "id"
stream = { constant = "s" }
p = "risk"
x = { a = "amount" }
ts = "at"
carry = { day = "day", more = "more", kind = "kind" }
[sources.protobuf]
topic = "a"
role = "forecast"
format = "protobuf"
event_id = "id"
stream = { constant = "s" }
probs = "probs"
ts = { path = "at", unit = "ms" }
carry = { more = "more", kind = "kind", inner = "inner" }
"""
_SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "n.R",
        "fields": [
            {"name": "id", "type": ["null", "string", {"type": "string", "logicalType": "uuid"}]},
            {"name": "risk", "type": "double"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "more", "type": {"type": "map", "values": {"type": "array", "items": ["n.R", "float"]}}},
            {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}},
            {"name": "hash", "type": {"type": "fixed", "name": "F", "size": 3}},
        ],
    }
)
_PROTO: Final = """syntax = "proto3"; package p; message A { string id = 1; repeated double probs = 2; int64 at = 3;
 oneof o { A inner = 4; bytes raw = 5; } map<string, A> more = 6; enum K { X = 0; Y = 1; } K kind = 7; }"""
#: Between the parts of an input.
APART: Final = b"\n--\n"


def _mappings(text: str, fetched: Fetched | None) -> list[Mapping]:
    held = Schemas()
    held._keep(7, fetched)
    return [Mapping(found, held) for found in sources.parse(stream_config.loaded(text).get("sources", {}))]


def _read(mapping: Mapping, value: bytes, key: bytes, header: bytes) -> None:
    """A record is fields that the decoder takes or rejects, or is refused with a reason there is."""
    headers = (("h", header), ("content-type", b"application/cloudevents+json" if header[:1] == b"c" else header))
    mapping.lacking(value, key, headers)
    found = mapping.read(value, key, headers, "a", 1_700_000_000_000)
    if isinstance(found, Refusal):
        assert found.passed or found.reason in REASONS, found
        if found.fields is not None:
            _DECODER.left(0, key, found.fields, 1_700_000_000_000, headers)
        return
    carried = found.pop("carried", None)
    assert carried is None or isinstance(orjson.loads(carried.fields or b"{}"), dict)
    value = orjson.dumps(found)
    for decode in (_DECODER.forecast, _DECODER.outcome):
        event = decode(0, b"k", value, 1_700_000_000_000)
        assert not isinstance(event, Rejected) or event.reason in REASONS, event


_MAPPINGS: Final = [
    *_mappings(SOURCES.rpartition("[")[0], Fetched(AVRO, _SCHEMA, ())),
    *_mappings("[" + SOURCES.rpartition("[")[2], Fetched(PROTOBUF, _PROTO, ())),
]
_AVRO, _PROTOBUF = (text for text in SOURCES.split("[sources.") if "format = " in text and "key" not in text)


def _parts(data: bytes, most: int) -> list[bytes]:
    """Return the parts of an input, as many as asked for."""
    parts = data.split(APART, most - 1)
    return parts + [b""] * (most - len(parts))


def source(data: bytes) -> None:
    """Any record of a source, its key and header: JSON, Avro and Protobuf, in CloudEvents and without."""
    which, data = (data[0], data[1:]) if data else (0, data)
    value, key, header = _parts(data, 3)
    _read(_MAPPINGS[which % len(_MAPPINGS)], value, key, header)


def avro_schema(data: bytes) -> None:
    """Any Avro schema that a registry may hold, and any record that names it."""
    schema, value = _parts(data, 2)
    (mapping,) = _mappings(f"[sources.{_AVRO}", Fetched(AVRO, schema.decode(errors="replace"), ()))
    _read(mapping, b"\0\0\0\0\7" + value, b"", b"")


def protobuf_schema(data: bytes) -> None:
    """Any Protobuf schema that a registry may hold, as text and as descriptor, and any record that names it."""
    schema, value = _parts(data, 2)
    for text in (schema.decode(errors="replace"), base64.b64encode(schema).decode()):
        (mapping,) = _mappings(f"[sources.{_PROTOBUF}", Fetched(PROTOBUF, text, ()))
        _read(mapping, b"\0\0\0\0\7" + value, b"", b"")


def sources_file(data: bytes) -> None:
    """Any tables of sources are mappings that read any record, or a ValueError that says what is wrong."""
    text, value, key = _parts(data, 3)
    try:
        mappings = _mappings(text.decode(errors="replace"), None)
    except ValueError:
        return
    for mapping in mappings:
        _read(mapping, value, key, b"")


# -- configuration ---------------------------------------------------------------------------------------------------


def streams_file(data: bytes) -> None:
    """Any text is a plan whose calibrators can be built, or a ValueError that says what is wrong."""
    try:
        policies = stream_config.parse(data.decode(errors="replace"), "identity")
    except ValueError:
        return
    for pattern, policy in policies.patterns:
        assert policies.of(pattern) is not None or policies.default is None
        assert len(policy.config) == 8


def environment(data: bytes) -> None:
    """Any environment is a set of settings, or a SettingsError that says what is wrong."""
    lines = (line.partition("=") for line in data.decode(errors="replace").split("\n"))
    # Files are for the test of the streams file; a device would wait for ever.
    given = {f"TRUEUP_{name}": value for name, _, value in lines if not value.startswith(("/", "."))}
    try:
        settings = Settings.from_env(given)
    except SettingsError:
        return
    assert settings.limits.id_bytes <= 255
    assert settings.brokers


async def _nothing(*_: object, **__: object) -> list[str]:
    return []


def _zero(*_: object, **__: object) -> int:
    return 0


def arguments(data: bytes) -> None:
    """Any arguments end with a status of ours, and with a message unless that is 0; never with a traceback."""
    given = [argument.replace("\0", "") for argument in data.decode("utf-8", "surrogateescape").split("\n")]
    out, err = io.StringIO(), io.StringIO()
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ))
        for place, name, stub in (
            (worker, "run", _zero),
            (auditor, "run", _zero),
            (show, "run", _zero),
            (demo, "run", _zero),
            (demo, "export", _zero),
            (broker, "serve", _zero),
            (topics, "create", _nothing),
            (topics, "check", _nothing),
            (remarks, "of", _nothing),
            (logs, "configure", _zero),
        ):
            stack.enter_context(patch.object(place, name, stub))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        try:
            status = main.main(given)
        except SystemExit as exc:
            status = exc.code  # type: ignore[assignment]  # what is no number is not among the statuses
    assert status in STATUSES, (given, status)
    assert status == 0 or err.getvalue(), given
    assert "Traceback" not in err.getvalue(), err.getvalue()


# -- stored rows -----------------------------------------------------------------------------------------------------


def _stored() -> dict[str, Target]:
    """Return a target for each kind of row: bytes as they are and well sealed are read, or are a CorruptFrame.

    What was read is written, and read and written the same again.
    """
    kept: dict[Callable[[bytes], bytes], list[Row]] = {}
    for row in golden():
        kept.setdefault(row.recode, []).append(row)
    return {rows[0].name.partition("-")[0] if rows[1:] else rows[0].name: _of_rows(rows) for rows in kept.values()}


def _of_rows(rows: list[Row]) -> Target:
    recode, heads = rows[0].recode, sorted({row.frame[:2] for row in rows})

    def check(data: bytes) -> None:
        for frame in (data, *(seal(head[0], head[1], data) for head in heads)):
            try:
                written = recode(frame)
            except CorruptFrame:
                continue
            assert recode(written) == written

    return Target(check, lambda: [each for row in rows for each in (row.frame, row.frame[2:-4])])


def _recipes() -> list[str]:
    options: dict[str, dict[str, Any]] = {
        "multiclass": {"classes": 3, "each": "histogram"},
        "quantile": {"levels": (0.1, 0.9)},
    }
    names = [*calibrators.REGISTRY, *calibrators.VECTORS, "platt+minimax", "platt+regret_matching"]
    return [Policy(name, options.get(name, {})).recipe for name in dict.fromkeys(names)]


_RECIPES = _recipes()


def calibrator(data: bytes) -> None:
    """Any state of any calibrator is refused as corrupt, or serves a forecast and is written again as it is read."""
    which, state = (data[0], data[1:]) if data else (0, data)
    recipe = _RECIPES[which % len(_RECIPES)]
    head = len(recipe).to_bytes(2, "little") + bytes(16)
    try:
        served = kinds.CALIBRATOR.decode(kinds.CALIBRATOR.seal(head + recipe.encode() + state), "s")
    except CorruptFrame:
        return
    written = kinds.CALIBRATOR.encode(served)
    assert kinds.CALIBRATOR.encode(kinds.CALIBRATOR.decode(written, "s")) == written


def forecast(data: bytes) -> None:
    """Any bytes are a forecast, or a ValueError."""
    try:
        found = forecasts.decode(data)
    except ValueError:
        return
    assert forecasts.decode(forecasts.encode(found)) == found


# -- what to begin with ----------------------------------------------------------------------------------------------


def _corpus(name: str) -> Iterator[bytes]:
    for path in sorted((CORPUS / name).glob("*")):
        yield path.read_bytes()


def _states() -> Iterator[bytes]:
    """Yield a state of each calibrator: as new, and after an outcome."""
    for which, recipe in enumerate(_RECIPES):
        served = Served.fresh(recipe, "s")
        made: Any = served.calibrator
        yield bytes((which,)) + made.encode()
        asked: Any = {"multiclass": Probs((0.2, 0.3, 0.5)), "quantile": Normal(0, 1)}
        raw = asked.get(made.name, 0.3)
        made.update(made.predict(raw, (), b"e").ticket, 1.0)
        yield bytes((which,)) + made.encode()


def _batches() -> Iterator[bytes]:
    """Yield batches from their attributes on, plain and packed, some with a header name that is not UTF-8."""
    for codec in range(5):
        made = RecordBatch(10_000, codec)
        made.extend([(b"k", b"v", 1000, [("name", b"x"), ("none", None)]), (None, None, 1001, [])])
        yield bytes((codec & 3,)) + bytes(made.sealed(7, 1, 0)[21:])
        plain = RecordBatch(10_000, 0)
        plain.extend([(b"k", b"v", 1000, []), (b"k", b"v", 1001, [("NAME", b"x"), ("none", None)])])
        yield bytes((codec & 3,)) + bytes(plain.sealed(7, 1, 0)[21:]).replace(b"NAME", b"\xe4\xf6\xfc\xdf")


def _protos() -> Iterator[bytes]:
    """Yield a Protobuf schema as text and as descriptor."""
    yield _PROTO.encode()
    yield proto_file.descriptors([("a.proto", _PROTO)])[-1].SerializeToString()


_VALUES: Final = (
    b'\0{"event_id":"a","stream":"s","p":0.3,"ts":5}',
    b'\1{"event_id":"a","stream":"classes","probs":[0.2,0.3,0.5],"y":2}',
    b'\2{"event_id":"a","stream":"numbers","quantiles":{"levels":[0.1,0.9],"values":[1,2]},"y":1.5}',
    b'\5{"event_id":"a","stream":"numbers","normal":{"mean":0,"std":1e-300},"y":1e300}',
    b'\1{"event_id":"a","stream":"named","p":1,"x":{"a":-1,"b":0.5},"y":true}',
    b'\1{"event_id":"a","stream":"named","p":1,"carried":{"a":[-1,{"b":null}]},"origin":["p",0]}',
)
#: What the two schemas say: the id a, and others.
_RECORD: Final = (
    b"\2\2a" + struct.pack("<d", 0.5) + b"\x80\x80\xec\xd5\xf8\xe8\xa4\6\4\0\x96\x88\xc0\2\2\2k\2\2\0\0\xc0?\0\0\0abc"
)
_MESSAGE: Final = (
    b"\x0a\1a\x12\x10"
    + struct.pack("<2d", 0.3, 0.7)
    + b"\x18\x80\xe0\xe5\x8a\xc1\x33\x22\3\x0a\1b\x32\5\x0a\1k\x12\0\x38\1"
)
_AT: Final = b'"id":"a","model":"m","risk":3,"at":"2026-01-31 12:00","n":{"a":1},"l":[2],"country":"DE"'
_SOURCES: Final = (
    APART.join((b'\0{"type":"score",%b}' % _AT, b"k", b"v")),
    APART.join((b'\1{"specversion":"1.0","data":{"id":"a","y":"lost","r":1}}', b"k", b"c")),
    APART.join((b'\1{"specversion":"1.0","data_base64":"eyJpZCI6MX0="}', b"k", b"c")),
    APART.join((b'\2{"id":"a","levels":[0.1,0.9],"values":[1,2],"at":1700000000000000}', b'{"id":7}', b"")),
    b"\3\0\0\0\0\7" + _RECORD,
    b"\4\0\0\0\0\7\0" + _MESSAGE,
)
_AVRO_SEEDS: Final = (
    _SCHEMA.encode() + APART + _RECORD,
    b'["null",{"type":"array","items":"int"}]' + APART + b"\2\4\2\4\0",
    b'{"type":"map","values":["null","bytes"],"logicalType":"x"}' + APART + b"\2\2k\2\2v\0",
)
_ARGUMENTS: Final = (
    b"run\nworker",
    b"audit\n--json\n--disk",
    b"topics\ncreate\n--partitions\n4\n--retention\n30d",
    b"topics\ncheck",
    b"streams\nshow\nfraud\n--json",
    b"dev\ndemo\n--rows\n9\n--out\nx.png",
    b"dev\nbroker\n--port\n9092",
    b"--help",
    b"--version",
)
_ENVIRONMENTS: Final = (
    b"BROKERS=a:1,b:2\nAPP_ID=x\nID_BYTES=128",
    b"LETTER_BYTES=0\nBATCH_BYTES=10000\nLOG_LEVEL=debug\nDATA_LOSS=continue\nAHEAD_SECONDS=nan",
    b"SECURITY_PROTOCOL=SASL_SSL\nSASL_USERNAME=u\nSASL_PASSWORD=p\nSASL_MECHANISM=PLAIN",
    b"DEFAULT_CALIBRATOR=platt+minimax\nREQUEST_SECONDS=1\nSESSION_SECONDS=2",
)

TARGETS: Final = {
    "record": Target(record, lambda: list(_VALUES)),
    "batch": Target(batch, lambda: list(_batches())),
    "source": Target(source, lambda: list(_SOURCES)),
    "avro-schema": Target(avro_schema, lambda: list(_AVRO_SEEDS)),
    "protobuf-schema": Target(protobuf_schema, lambda: [text + APART + b"\0" + _MESSAGE for text in _protos()]),
    "sources-file": Target(sources_file, lambda: [SOURCES.encode() + APART + _SOURCES[0][1:]]),
    "plan": Target(streams_file, lambda: [PLAN]),
    "environment": Target(environment, lambda: list(_ENVIRONMENTS)),
    "arguments": Target(arguments, lambda: list(_ARGUMENTS)),
    **_stored(),
    "calibrator-state": Target(calibrator, lambda: list(_states())),
    "forecast": Target(forecast, lambda: [forecasts.encode(Normal(0, 1)), forecasts.encode(Probs((0.5, 0.5)))]),
}


def inputs(name: str) -> list[bytes]:
    """Return what a target begins with: seeds, and what was found before."""
    return [*TARGETS[name].seeds(), *_corpus(name)]
