"""The floor: the same job as a plain aiokafka loop, without fences, ledger cases, scores, metrics or rebalances.

It joins by event id through RocksDB, appends every changed row to a changelog in one batch, keeps a histogram
calibrator, and writes one JSON record a forecast. A crash loses or doubles events; it is here to say what the
machine can do at most.
"""

import asyncio
import sys
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory

import orjson
import rocksdict
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

_ROW = Struct("<dH")
BINS = 20


async def main(brokers: str, prefix: str, directory: str) -> None:
    """Run until killed."""
    consumer = AIOKafkaConsumer(
        f"{prefix}-forecasts",
        f"{prefix}-outcomes",
        bootstrap_servers=brokers,
        group_id=prefix,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=1 << 20,
    )
    producer = AIOKafkaProducer(bootstrap_servers=brokers, acks="all", max_batch_size=900_000)
    stores: dict[int, rocksdict.Rdict] = {}
    counts = [[0, 0] for _ in range(BINS)]
    async with consumer, producer:
        while True:
            acknowledgements = []
            for tp, records in (await consumer.getmany(timeout_ms=1000, max_records=8000)).items():
                store = stores.get(tp.partition)
                if store is None:
                    path = str(Path(directory) / str(tp.partition))
                    store = stores[tp.partition] = rocksdict.Rdict(path, rocksdict.Options(raw_mode=True))
                rows: dict[bytes, bytes] = {}
                answers: list[tuple[bytes, bytes]] = []
                for record in records:
                    event = orjson.loads(record.value)
                    key = event["event_id"].encode()
                    if tp.topic.endswith("forecasts"):
                        p = event["p"]
                        j = min(int(p * BINS), BINS - 1)
                        n, hits = counts[j]
                        rows[key] = _ROW.pack(p, j)
                        answer = {"event_id": event["event_id"], "stream": event["stream"], "raw": p}
                        answer["p"] = hits / n if n else p
                        answers.append((key, orjson.dumps(answer)))
                    else:
                        row = rows.get(key) or store.get(key)
                        if row is not None:
                            _, j = _ROW.unpack(row)
                            counts[j][0] += 1
                            counts[j][1] += event["y"]
                            rows[key] = row
                write = rocksdict.WriteBatch(raw_mode=True)
                for key, row in rows.items():
                    write.put(key, row)
                acknowledgements += await _send(producer, f"{prefix}-changelog", tp.partition, rows.items())
                acknowledgements += await _send(producer, f"{prefix}-calibrated", tp.partition, answers)
                store.write(write)
            await asyncio.gather(*acknowledgements)
            if acknowledgements:
                await consumer.commit()


async def _send(
    producer: AIOKafkaProducer, topic: str, partition: int, records: object
) -> list["asyncio.Future[object]"]:
    sent = []
    batch = producer.create_batch()
    for key, value in records:  # type: ignore[attr-defined]
        if batch.append(key=key, value=value, timestamp=None) is None:
            sent.append(await producer.send_batch(batch, topic, partition=partition))
            batch = producer.create_batch()
            batch.append(key=key, value=value, timestamp=None)
    if batch.record_count():
        sent.append(await producer.send_batch(batch, topic, partition=partition))
    return sent


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        asyncio.run(main(sys.argv[1], sys.argv[2], temporary))
