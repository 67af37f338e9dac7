"""What the contenders consume: forecasts and their outcomes, as a model and the world would have written them."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from streams.config.settings import Settings
from streams.records.limits import Limits

#: Kafka timestamp (ms), partition, key and value.
Record = tuple[int, int, bytes, bytes]

#: Time between forecasts, and the mean of the exponential delay of their outcomes, ms of event time.
STEP_MS = 10
DELAY_MS = 50_000
START_MS = 1_700_000_000_000
#: Largest record batch the topics take, bytes.
BATCH_BYTES = 1_000_000
#: How trueup's inputs and its changelog end, and how far ahead of the broker's clock it lets records of inputs be.
INPUTS, CHANGELOG, AHEAD_MS = ("-forecasts", "-outcomes"), "-state-changelog", str(Limits().ahead_ms)


@dataclass(frozen=True)
class Job:
    """How much of what."""

    #: Each gets an outcome, so there are twice as many events.
    forecasts: int = 100_000
    #: Of every topic; events take turns.
    partitions: int = 4
    #: Names of streams, in turns.
    streams: int = 3
    #: Length of ``x``; 0: there is none.
    features: int = 0
    #: Number of the first event, which is also its place in time.
    first: int = 0

    @property
    def events(self) -> int:
        """Forecasts and outcomes."""
        return 2 * self.forecasts


def forecast(job: Job, i: int, rng: random.Random, ts: int | None = None) -> tuple[bytes, bytes, float]:
    """Return key and value of the i-th forecast, and its p; with ``ts`` None the record's own time is the event's."""
    p = rng.betavariate(1.2, 3.0)
    event: dict[str, object] = {"event_id": f"event-{i:08d}", "stream": f"s{i % job.streams}", "p": round(p, 6)}
    if ts is not None:
        event["ts"] = ts
    if job.features:
        event["x"] = [round(rng.uniform(-1, 1), 3) for _ in range(job.features)]
    return f"event-{i:08d}".encode(), orjson.dumps(event), p


def outcome(i: int, y: int, ts: int | None = None) -> bytes:
    """Return the value of the i-th outcome."""
    return orjson.dumps({"event_id": f"event-{i:08d}", "y": y} | ({} if ts is None else {"ts": ts}))


def backlog(job: Job, seed: int = 7) -> dict[str, list[Record]]:
    """Return the records of both topics, each in the order of time: outcomes overtake each other, as they do."""
    rng = random.Random(seed)
    forecasts, outcomes = [], []
    for i in range(job.first, job.first + job.forecasts):
        ts = START_MS + i * STEP_MS
        key, value, p = forecast(job, i, rng, ts)
        forecasts.append((ts, i % job.partitions, key, value))
        known = ts + 1 + int(rng.expovariate(1 / DELAY_MS))
        # The model is too bold: p is forecast and p * p happens.
        outcomes.append((known, i % job.partitions, key, outcome(i, int(rng.random() < p * p), known)))
    outcomes.sort(key=lambda record: record[0])
    return {"forecasts": forecasts, "outcomes": outcomes}


async def create(
    brokers: str,
    names: Iterable[str],
    partitions: int,
    compacted: Sequence[str] = (),
    *,
    stamped: Sequence[str] | None = None,
) -> None:
    """Make topics; records of those in ``stamped`` (None: what contenders write) carry the time of their append.

    Beside a changelog of trueup's come the topics of its configurations, of its journal, and of who owns what.
    """
    beside = [f"{name.removesuffix(CHANGELOG)}-configurations" for name in compacted if name.endswith(CHANGELOG)]
    owners = ["trueup-owners"] if beside else []
    journals = [f"{name.removesuffix(CHANGELOG)}-journal" for name in compacted if name.endswith(CHANGELOG)]
    made, compacted = [*names, *beside, *journals, *owners], [*compacted, *beside, *owners]
    stamps = [name for name in made if name.endswith(("-calibrated", "-resolved"))] if stamped is None else stamped
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await admin.start()
    try:
        response = await admin.create_topics(
            [
                NewTopic(
                    name,
                    1 if name in owners else partitions,
                    1,
                    topic_configs={
                        "max.message.bytes": str(
                            (Settings().checkpoint_bytes if name.endswith(CHANGELOG) else BATCH_BYTES) + 4096
                        ),
                        **({"cleanup.policy": "compact"} if name in compacted else {}),
                        **({"message.timestamp.after.max.ms": AHEAD_MS} if name.endswith(INPUTS) else {}),
                        **({"message.timestamp.type": "LogAppendTime"} if name in stamps else {}),
                    },
                )
                for name in made
            ]
        )
        for name, code, *message in response.topic_errors:
            if code and name not in owners:  # an earlier run has made it
                raise RuntimeError(f"cannot make topic {name}: {code} {message}")
        async with asyncio.timeout(30):
            while not await _led(admin, made):  # noqa: ASYNC110 - only the broker knows
                await asyncio.sleep(0.05)
    finally:
        await admin.close()


async def _led(admin: AIOKafkaAdminClient, names: list[str]) -> bool:
    """Whether every partition has a leader: before that, producers and consumers wait and complain."""
    described = await admin.describe_topics(names)
    partitions = [partition for topic in described for partition in topic["partitions"]]
    return bool(partitions) and all(partition["leader"] >= 0 for partition in partitions)


async def produce(brokers: str, prefix: str, made: dict[str, list[Record]]) -> None:
    """Append records to ``PREFIX-LABEL``, label by label, each partition's in order."""
    async with AIOKafkaProducer(bootstrap_servers=brokers, max_batch_size=BATCH_BYTES - 100_000) as producer:
        for label, records in made.items():
            topic = f"{prefix}-{label}"
            batches = {n: producer.create_batch() for n in {record[1] for record in records}}
            sent = []
            for ts, n, key, value in records:
                if batches[n].append(key=key, value=value, timestamp=ts) is None:
                    sent.append(await producer.send_batch(batches[n], topic, partition=n))
                    batches[n] = producer.create_batch()
                    batches[n].append(key=key, value=value, timestamp=ts)
            sent += [await producer.send_batch(batch, topic, partition=n) for n, batch in batches.items()]
            await asyncio.gather(*sent)
