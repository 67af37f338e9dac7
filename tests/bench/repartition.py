"""Sources of other keys: intake, router and worker beside Kafka Streams doing the same repartition join.

``python -m tests.bench.repartition [--forecasts N] [--repetitions R] [--only NAME] [--threads N]``

The job of ``throughput.py``, from topics that nobody keyed for it: scores keyed by card in 4 partitions, labels keyed
by chargeback in 6, joined by transaction. Both topics are JSON, or both are Avro; a score has 12 fields, of which 5 are
used. trueup runs an intake, a router and a worker, a process each; Kafka Streams is one process with as many threads.
trueup has one calibrator a stream and learns exactly once. Kafka Streams runs in three ways: with calibrators of each
partition, at least once, which is less than trueup's job; with one calibrator a stream, by a second repartition; and
that exactly once.
*co-partitioned* is the job of ``throughput.py`` itself, by one worker: what is missing to it is what the hop costs.

A tenth of the events is done first. Events/s count from the moment the rest begins to be written, as fast as it goes,
until all of it is answered and learnt: stages may overtake each other, so answers alone do not say what is done. CPU
and memory are those of all processes of a contender; *elsewhere* has the one that writes. The last line is one JSON
object.
"""

import io
import json
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import orjson
from aiokafka import AIOKafkaProducer

from lab.broker import Broker
from streams.config.settings import Settings
from streams.kafka import partitioner, topics
from tests.bench import backlog
from tests.bench.backlog import Job, Record
from tests.bench.contenders import KAFKA_STREAMS, Contender, named
from tests.bench.drain import Follower, Together, compared, options_of, started_all
from tests.bench.figures import table
from tests.bench.throughput import shown

#: Partitions of the topics of scores and of labels.
WIDTHS = {"scores": 4, "chargebacks": 6}
FORMATS = ("json", "avro")
#: The schema of a score, and its fields that nobody uses.
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
OTHERS = {
    "channel": "web",
    "amount": 1250,
    "rate": 0.5,
    "device": "d-17",
    "attempt": 1,
    "known": True,
    "shop": "s-4711",
}
#: The share of the events that is done before the clock starts: imports, assignment and JIT are behind, for everyone.
WARM = 0.1
COLUMNS = {
    "events_per_s": "events/s",
    "cpu_us_per_event": "CPU µs/event",
    "broker_us_per_event": "broker µs/event",
    "rss_mb": "RSS MB",
    "elsewhere": "CPUs elsewhere",
}
STAGES = ("intake", "router", "worker")
#: Kafka Streams: where its calibrators are (with the event, or one a stream), and what it guarantees.
RIVALS = {
    "Kafka Streams by partition": ("event", "at_least_once"),
    "Kafka Streams by stream": ("stream", "at_least_once"),
    "Kafka Streams by stream, once": ("stream", "exactly_once_v2"),
}
LABEL_SCHEMA = {
    "type": "record",
    "name": "Chargeback",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "txn", "type": "string"},
        {"name": "status", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "reason", "type": "string"},
        {"name": "amount", "type": "long"},
    ],
}
SOURCES = """
[sources.scores]
topic = "{prefix}-scores"
role = "forecast"
event_id = "id"
stream = "{{model}}-{{country}}"
p = {{ path = "score", scale = [0, 1000] }}
ts = "at"
{scores}

[sources.chargebacks]
topic = "{prefix}-chargebacks"
role = "outcome"
event_id = "txn"
y = {{ path = "status", labels = {{ lost = 1, won = 0 }} }}
ts = "at"
{chargebacks}
"""


class Encoder:
    """Makes values of one format."""

    def __init__(self, form: str) -> None:
        self._schemas = {"scores": SCHEMA, "chargebacks": LABEL_SCHEMA}
        # As their logical types are on the wire, so that nothing is converted here.
        self._parsed = None
        if form == "avro":
            self._parsed = {label: fastavro.parse_schema(_plain(schema)) for label, schema in self._schemas.items()}

    def encode(self, label: str, record: dict[str, Any]) -> bytes:
        """Return the value of a record of a topic."""
        if self._parsed is None:
            return orjson.dumps(record)
        into = io.BytesIO()
        fastavro.schemaless_writer(into, self._parsed[label], record)
        return into.getvalue()

    def source(self, label: str) -> str:
        """Return what the source's table says of the format."""
        if self._parsed is None:
            return ""
        return f"format = \"avro\"\nschema = '{json.dumps(self._schemas[label])}'"


def sources(prefix: str, encoder: Encoder) -> str:
    """Return the TOML of both sources."""
    return SOURCES.format(prefix=prefix, **{label: encoder.source(label) for label in WIDTHS})


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(schema).replace(', "logicalType": "timestamp-millis"', ""))  # type: ignore[no-any-return]


def score(event_id: str, stream: int, p: float, ts: int) -> dict[str, Any]:
    """Return a record of the scores: 12 fields."""
    return {"id": event_id, "model": f"s{stream}", "country": "DE", "score": round(1000 * p, 3), "at": ts, **OTHERS}


def records(job: Job, encoder: Encoder, seed: int = 7) -> dict[str, list[Record]]:
    """Return the records of both source topics, each in the order of time; see `tests.bench.backlog.backlog`."""
    rng = random.Random(seed)
    scores, labels = [], []
    for i in range(job.first, job.first + job.forecasts):
        ts, event_id, p = backlog.START_MS + i * backlog.STEP_MS, f"event-{i:08d}", rng.betavariate(1.2, 3.0)
        card = b"card-%d" % rng.randrange(20_000)
        value = encoder.encode("scores", score(event_id, i % job.streams, p, ts))
        scores.append((ts, partitioner.partition(card, WIDTHS["scores"]), card, value))
        known = ts + 1 + int(rng.expovariate(1 / backlog.DELAY_MS))
        status = "lost" if rng.random() < p * p else "won"  # the model is too bold, as in the backlog
        label = {"id": f"cb-{i:08d}", "txn": event_id, "status": status, "at": known, "reason": "10.4", "amount": 1250}
        key = b"cb-%08d" % i
        value = encoder.encode("chargebacks", label)
        labels.append((known, partitioner.partition(key, WIDTHS["chargebacks"]), key, value))
    labels.sort(key=lambda record: record[0])
    return {"scores": scores, "chargebacks": labels}


class SourceFollower(Follower):
    """Asks in the format of the sources; what is asked goes to the partition that its event is joined in."""

    def __init__(self, contender: Contender, brokers: str, prefix: str, job: Job, encoder: Encoder | None) -> None:
        super().__init__(contender, brokers, prefix, job)
        self._encoder = encoder

    async def _ask(self, producer: AIOKafkaProducer, turn: int) -> None:
        if self._encoder is None:
            await super()._ask(producer, turn)
            return
        ts = backlog.START_MS + self._job.forecasts * backlog.STEP_MS + 100 * backlog.DELAY_MS
        for n in range(self._job.partitions):
            for stream in range(self._job.streams):
                names = (f"probe-{turn}-{n}-{stream}-{salt}" for salt in range(10**6))
                name = next(each for each in names if partitioner.partition(each.encode(), self._job.partitions) == n)
                value = self._encoder.encode("scores", score(name, stream, 0.5, ts))
                await producer.send(f"{self._prefix}-scores", value, b"card", timestamp_ms=ts)


def contenders(form: str, threads: int) -> Iterator[Contender]:
    """Yield who does the job with sources of a format; trueup's command is that of its worker."""
    worker = named("trueup (histogram)")
    yield Contender(f"trueup, {form}", worker.command, worker.guarantees, "histogram")
    streams = ("java", "-cp", f"{KAFKA_STREAMS}/classes:{KAFKA_STREAMS}/lib/*", "Repartition")
    for row, (calibrators, guarantee) in RIVALS.items():
        yield Contender(
            f"{row}, {form}",
            (*streams, "{brokers}", "{prefix}", "{directory}", form, str(threads), calibrators, guarantee),
            f"RocksDB + changelog, {guarantee}",
            per_partition=calibrators == "event",
            needs=KAFKA_STREAMS / "classes" / "Repartition.class",
        )


def stages(contender: Contender, *, behind_intake: bool) -> dict[str, Contender]:
    """Return the processes of a contender, by their names."""
    if contender.calibrator is None or not behind_intake:
        return {STAGES[-1]: contender}
    return {stage: replace(contender, command=(*contender.command[:-1], stage)) for stage in STAGES}


async def run(entry: "Entry", broker: Broker, job: Job) -> dict[str, float]:
    """Measure a contender once, on topics of its own.

    Raises WrongError if it ended, stalled, left a forecast unanswered, or lost a label.
    """
    contender, brokers, prefix = entry.contender, broker.bootstrap, f"b{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="trueup-bench-") as directory:
        environment = _told(entry, brokers, prefix, Path(directory))
        await _create(entry, brokers, prefix, job, environment)
        await backlog.produce(brokers, prefix, entry.warm)
        each = stages(contender, behind_intake=entry.encoder is not None)
        async with started_all(each, brokers, prefix, str(directory), environment) as processes:
            with Together(processes, broker.pid) as watch:
                follower = SourceFollower(contender, brokers, prefix, job, entry.encoder)
                await follower.answered(processes, int(WARM * job.forecasts))
                start = time.time()
                await backlog.produce(brokers, prefix, entry.made)
                await follower.follow(processes)
        _, end = await follower.verified()
        events, seconds = (1 - WARM) * job.events, end - start
        return {
            "events_per_s": events / seconds,
            "cpu_us_per_event": watch.cpu("contender", start, end) / events * 1e6,
            "broker_us_per_event": watch.cpu("broker", start, end) / events * 1e6,
            "rss_mb": watch.rss("contender") / 1e6,
            "elsewhere": watch.elsewhere(start, end),
            "seconds": seconds,
            **{f"{name}_us": watch.cpu(name, start, end) / events * 1e6 for name in watch.names},
        }


async def _create(entry: "Entry", brokers: str, prefix: str, job: Job, environment: Mapping[str, str]) -> None:
    """Make the topics of a run; those of trueup are what its stages ask for."""
    if entry.encoder is not None:
        for label, width in WIDTHS.items():
            await backlog.create(brokers, [f"{prefix}-{label}"], width, stamped=())
    await backlog.create(brokers, [f"{prefix}-calibrated", f"{prefix}-resolved"], job.partitions)
    if entry.contender.calibrator is not None:
        for stage in Settings.from_env(environment).stages:
            await topics.create(stage, partitions=job.partitions)


def _told(entry: "Entry", brokers: str, prefix: str, directory: Path) -> dict[str, str]:
    """Return the variables of all processes of a contender."""
    told = dict(entry.contender.environment(brokers, prefix, str(directory)))
    if told and entry.encoder is not None:
        streams = directory / "streams.toml"
        streams.write_text(sources(prefix, entry.encoder))
        told["TRUEUP_STREAMS"] = str(streams)
    return told


class Entry(NamedTuple):
    """A row of the table: who, in which format (None: co-partitioned), what is written to warm it, and what counts."""

    name: str
    contender: Contender
    encoder: Encoder | None
    warm: dict[str, list[Record]]
    made: dict[str, list[Record]]


def entries(job: Job, threads: int) -> Iterator[Entry]:
    """Yield every row."""
    warm = replace(job, forecasts=int(WARM * job.forecasts))
    rest = replace(job, first=warm.forecasts, forecasts=job.forecasts - warm.forecasts)
    for form in FORMATS:
        encoder = Encoder(form)
        made = records(warm, encoder), records(rest, encoder)
        for one in contenders(form, threads):
            yield Entry(one.name, one, encoder, *made)
    yield Entry("trueup, co-partitioned", named("trueup (histogram)"), None, *map(backlog.backlog, (warm, rest)))


def main() -> None:
    """Measure, print the table and the JSON line."""
    parser = options_of(__doc__)
    parser.add_argument("--threads", type=int, default=len(STAGES), help="of Kafka Streams")
    options = parser.parse_args()
    job = Job(forecasts=options.forecasts)
    every = {each.name: each for each in entries(job, options.threads)}
    wanted = {
        name: each.contender for name, each in every.items() if any(part in name for part in options.only or [""])
    }
    result, failed = compared(wanted, options.repetitions, lambda name, broker: run(every[name], broker, job))
    print(f"\n{job.events:,} events, medians of {options.repetitions} runs")
    rows = [[name, *(shown(key, one[key]) for key in COLUMNS)] for name, one in result.items()]
    print(table(["", *COLUMNS.values()], rows), "\n")
    parts = [
        [name, *(f"{one[f'{stage}_us']:.1f}" for stage in STAGES)] for name, one in result.items() if "intake_us" in one
    ]
    print(table(["CPU µs/event", *STAGES], parts), "\n")
    for form in FORMATS:
        for rival in RIVALS:
            ours, theirs = result.get(f"trueup, {form}"), result.get(f"{rival}, {form}")
            if ours and theirs:
                print(f"{form}: {ours['events_per_s'] / theirs['events_per_s']:.2f} of the events/s of {rival}")
    print(json.dumps({name: {key: round(value, 1) for key, value in one.items()} for name, one in result.items()}))
    sys.exit(failed)


if __name__ == "__main__":
    main()
