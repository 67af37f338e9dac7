"""The floor: the same job as a plain aiokafka loop, without fences, scores, metrics, limits or rebalances.

It joins by event id through RocksDB, appends every changed row to a changelog in one batch, and writes one JSON
record a forecast. Changelog and answers are sent together and both are acknowledged before offsets are committed, so
a crash repeats a batch, and learns it twice; nothing is ever restored. It says what the machine can do in Python.

``python -m tests.bench.rivals.plain BROKERS PREFIX DIRECTORY [all]``

With ``all`` it writes what trueup does: records with as many fields, one for each outcome, too, packed by zstd.
"""

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from struct import Struct

import orjson
import rocksdict
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import ConsumerRecord, TopicPartition

from tests.bench.rivals import job

_COUNTS = Struct(f"<{2 * job.BINS}I")
#: What is remembered of an event: y, or `WAITING`; p, or -1 while only the outcome has come; then the stream.
_EVENT = Struct("<bd")
WAITING = -1
Record = tuple[bytes, bytes]


class Partition:
    """The state of one partition."""

    def __init__(self, path: Path, *, whole: bool) -> None:
        self._whole = whole
        self._store = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
        self._counts: dict[str, job.Counts] = {}

    def fold(
        self, records: Iterable[ConsumerRecord[bytes, bytes]], *, forecasts: bool
    ) -> tuple[list[Record], list[Record]]:
        """Return the changed rows and what is written for a batch of one topic."""
        rows: dict[bytes, bytes] = {}
        learnt: set[str] = set()
        written: list[Record] = []
        for record in records:
            event = orjson.loads(record.value)
            key = event["event_id"].encode()
            row = rows.get(key) or self._store.get(key)
            if forecasts:
                stream, p, y = event["stream"], event["p"], _EVENT.unpack_from(row)[0] if row else WAITING
                answer = job.answer(self._calibrator(stream), event)
                written.append((key, orjson.dumps(job.whole(answer, record) if self._whole else answer)))
            else:
                _, p = _EVENT.unpack_from(row) if row else (WAITING, -1.0)
                stream, y = row[_EVENT.size :].decode() if row else "", event["y"]
            rows[key] = _EVENT.pack(y, p) + stream.encode()
            if p >= 0 and y != WAITING:
                job.learn(self._calibrator(stream), p, y)
                learnt.add(stream)
                if self._whole:
                    written.append((key, orjson.dumps(job.resolved(event["event_id"], stream, p, y, record))))
        for stream in learnt:
            rows[b"\0" + stream.encode()] = _COUNTS.pack(*self._counts[stream])
        return list(rows.items()), written

    def write(self, rows: Iterable[Record]) -> None:
        """Write rows at once."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, row in rows:
            batch.put(key, row)
        self._store.write(batch)

    def _calibrator(self, stream: str) -> job.Counts:
        counts = self._counts.get(stream)
        if counts is None:
            row = self._store.get(b"\0" + stream.encode())
            counts = self._counts[stream] = list(_COUNTS.unpack(row)) if row else job.new()
        return counts


async def main(brokers: str, prefix: str, directory: str, written: str = "") -> None:
    """Run until killed."""
    whole = bool(written)
    consumer = AIOKafkaConsumer(
        f"{prefix}-forecasts",
        f"{prefix}-outcomes",
        bootstrap_servers=brokers,
        group_id=prefix,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=1 << 20,
    )
    codec = "zstd" if whole else None
    producer = AIOKafkaProducer(bootstrap_servers=brokers, acks="all", max_batch_size=900_000, compression_type=codec)
    partitions: dict[int, Partition] = {}
    async with consumer, producer:
        while True:
            sent: list[asyncio.Future[object]] = []
            fetched: dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]
            fetched = await consumer.getmany(timeout_ms=1000, max_records=8000)
            for tp, records in fetched.items():
                if tp.partition not in partitions:
                    partitions[tp.partition] = Partition(Path(directory) / str(tp.partition), whole=whole)
                partition, forecasts = partitions[tp.partition], tp.topic.endswith("forecasts")
                rows, out = partition.fold(records, forecasts=forecasts)
                topic = f"{prefix}-calibrated" if forecasts else f"{prefix}-resolved"
                sent += await _send(producer, f"{prefix}-changelog", tp.partition, rows)
                sent += await _send(producer, topic, tp.partition, out)
                partition.write(rows)
            if sent:
                await asyncio.gather(*sent)
                await consumer.commit()


async def _send(
    producer: AIOKafkaProducer, topic: str, partition: int, records: Iterable[Record]
) -> list["asyncio.Future[object]"]:
    sent = []
    batch = producer.create_batch()
    for key, value in records:
        if batch.append(key=key, value=value, timestamp=None) is None:
            sent.append(await producer.send_batch(batch, topic, partition=partition))
            batch = producer.create_batch()
            batch.append(key=key, value=value, timestamp=None)
    if batch.record_count():
        sent.append(await producer.send_batch(batch, topic, partition=partition))
    return sent


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
