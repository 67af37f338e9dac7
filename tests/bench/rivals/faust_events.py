"""The job in Faust as its documentation writes it: an agent that takes one event after another, a RocksDB table.

Rows are JSON in the table and in its changelog, at least once by intent (Faust commits offsets whether or not the
changelog was acknowledged). RocksDB comes by rocksdict, as in trueup. All settings are defaults.

``python -m tests.bench.rivals.faust_events BROKERS PREFIX DIRECTORY``, in the rivals' environment.
"""

import sys
from typing import Any

import faust

from tests.bench.rivals import job


def build(brokers: str, prefix: str, directory: str) -> faust.App:
    """Return the application."""
    app = faust.App(
        prefix,
        broker=f"aiokafka://{brokers}",
        store="rocksdb://",
        datadir=directory,
        topic_partitions=4,
        topic_disable_leader=True,
        web_enabled=False,
    )
    inputs = app.topic(f"{prefix}-forecasts", f"{prefix}-outcomes", key_type=bytes)
    calibrated = app.topic(f"{prefix}-calibrated", key_type=bytes)
    events: Any = app.Table("events", options={"driver": "rocksdict"})

    @app.agent(inputs)
    async def calibrate(stream: faust.StreamT[Any]) -> None:
        async for event in stream:
            key = event["event_id"]
            row = events.get(key) or {}
            name = f"stream:{event['stream'] if 'p' in event else row.get('stream')}"
            if "p" in event:
                await calibrated.send(key=key.encode(), value=job.answer(events.get(name) or job.new(), event))
            # A row is assigned, not changed in place: only assignment reaches the table.
            row = {**row, **{field: event[field] for field in ("p", "stream", "y") if field in event}}
            events[key] = row
            if "p" in row and "y" in row:
                counts = events.get(name) or job.new()
                job.learn(counts, row["p"], row["y"])
                events[name] = counts

    return app


def main(brokers: str, prefix: str, directory: str) -> None:
    """Run until killed."""
    app = build(brokers, prefix, directory)
    sys.argv[1:] = []
    faust.Worker(app, loglevel="WARNING").execute_from_commandline()


if __name__ == "__main__":
    main(*sys.argv[1:])
