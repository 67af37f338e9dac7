"""What a mapping costs: decoding of records as the reference says, of mapped JSON, and of mapped Avro.

``python -m tests.bench.mapped``

Each record holds a score and its time, and says the same. That of Avro has 12 fields, of which 5 are used, and so has
one of JSON; the other of JSON has no field more than it needs. What is carried is two fields and a trace. Each figure
is the least of 15 runs, in us of processor time a record, decoded in parts as a worker does. The last line is one JSON
object.
"""

import io
import json
import tomllib
from datetime import UTC, datetime
from time import process_time

import fastavro
import orjson

from agents import compiled
from agents.applying import PART
from state.fence import FORECASTS
from state.policies import Policies
from state.policy import Policy
from streams.records.decoding import Decoder
from streams.records.limits import Limits
from streams.records.merge import Merged
from streams.sources import config
from streams.sources.direct import Direct
from streams.sources.registry import Registry
from tests.bench.figures import table
from tests.streams.fakes import record

RECORDS, RUNS = 20_000, 15
NOW = 1_700_000_000_000
SCHEMA = {
    "type": "record",
    "name": "Score",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "model", "type": "string"},
        {"name": "country", "type": "string"},
        {"name": "score", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "channel", "type": "string"},
        {"name": "amount", "type": "long"},
        {"name": "rate", "type": "double"},
        {"name": "device", "type": ["null", "string"]},
        {"name": "attempt", "type": "int"},
        {"name": "known", "type": "boolean"},
        {"name": "shop", "type": "string"},
    ],
}
SOURCE = """
[sources.scores]
topic = "forecasts"
role = "forecast"
event_id = "id"
p = { path = "score", scale = [0, 1000] }
ts = "at"
"""
STREAM = {
    "fixed": "",
    "json": 'stream = "stream"',
    "json, 12 fields": 'stream = "{model}-{country}"',
    "json, 12 fields, 2 carried": 'stream = "{model}-{country}"\ncarry = { shop = "shop", device = "device" }',
}
#: Headers of the records that carry some: those of a trace.
TRACE = [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("tracestate", b"vendor=1")]
OTHERS = {
    "channel": "web",
    "amount": 1250,
    "rate": 0.5,
    "device": "d-17",
    "attempt": 1,
    "known": True,
    "shop": "s-4711",
}


def values(kind: str) -> list[bytes]:
    """Return records of a kind."""
    made = []
    schema = fastavro.parse_schema(SCHEMA)
    for i in range(RECORDS):
        event_id, score, ts = f"event-{i:08d}", float(i % 1000), NOW + i
        wide = {"id": event_id, "model": "cards", "country": "DE", "score": score, "at": ts, **OTHERS}
        if kind == "fixed":
            made.append(orjson.dumps({"event_id": event_id, "stream": "cards-DE", "p": score / 1000, "ts": ts}))
        elif kind == "json":
            made.append(orjson.dumps({"id": event_id, "stream": "cards-DE", "score": score, "at": ts}))
        elif kind == "avro, 12 fields":
            into = io.BytesIO()
            fastavro.schemaless_writer(into, schema, wide | {"at": datetime.fromtimestamp(ts / 1000, UTC)})
            made.append(into.getvalue())
        else:
            made.append(orjson.dumps(wide))
    return made


def decoder(kind: str) -> Decoder:
    """Return what decodes records of a kind."""
    policies, limits = Policies(default=Policy()), Limits()
    if kind == "fixed":
        return Decoder(policies, limits)
    text = SOURCE + STREAM.get(kind, STREAM["json, 12 fields"])
    if kind == "avro, 12 fields":
        text += f"\nformat = \"avro\"\nschema = '{json.dumps(SCHEMA)}'"
    sources = config.parse(tomllib.loads(text)["sources"])
    return Decoder(policies, limits, Direct(("forecasts", "outcomes"), (sources, ()), Registry()))


def main() -> None:
    """Measure, and print the table and the JSON line."""
    kinds = ("fixed", "json", "json, 12 fields", "json, 12 fields, 2 carried", "avro, 12 fields")
    merged: dict[str, list[Merged]] = {
        kind: [(FORECASTS, record("forecasts", 0, i, NOW + i, b"k", value)) for i, value in enumerate(values(kind))]
        for kind in kinds
    }
    for _, each in merged["json, 12 fields, 2 carried"]:
        each.headers = TRACE  # type: ignore[misc]  # of a record that was made for this
    decoders = {kind: decoder(kind) for kind in kinds}
    best = dict.fromkeys(kinds, float("inf"))
    for _ in range(RUNS):
        for kind in kinds:  # one after another, so that what else runs here meets all alike
            began = process_time()
            for at in range(0, RECORDS, PART):
                decoders[kind].events(merged[kind][at : at + PART])
            best[kind] = min(best[kind], (process_time() - began) / RECORDS * 1e6)
    fixed = best["fixed"]
    print(f"engine: {'compiled' if compiled.runs() else 'interpreted'}")
    print(table(["records", "us", "times"], [[kind, f"{us:.2f}", f"{us / fixed:.2f}"] for kind, us in best.items()]))
    print(json.dumps({"us": best, "times": {kind: us / fixed for kind, us in best.items()}}))


if __name__ == "__main__":
    main()
