"""The job in Bytewax, as its documentation writes it: Kafka connectors, ``join`` and a ``stateful_flat_map``.

State is kept in memory and a snapshot of what changed is written to the recovery store (SQLite on this disk) every
second; it has no changelog in Kafka. With the default of 10 s a run would end before anything is durable. After a
crash it goes back to the last snapshot: at least once. Keys decide where state lives: events are joined under their
id, calibrators are keyed by the stream.

``python -m tests.bench.rivals.wax BROKERS PREFIX DIRECTORY``, in the rivals' environment.
"""

import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

from tests.bench.rivals import job

Event = dict[str, Any]


def calibrate(counts: job.Counts | None, event: Event) -> tuple[job.Counts, Iterable[Event]]:
    """Answer a forecast, or learn from an outcome that has met its forecast."""
    counts = counts or job.new()
    if "y" not in event:
        return counts, [job.answer(counts, event)]
    job.learn(counts, event["p"], event["y"])
    return counts, []


def _keyed(message: Any) -> tuple[str, Event]:
    event = orjson.loads(message.value)
    return event["event_id"], event


def _met(item: tuple[str, tuple[Event, Event]]) -> tuple[str, Event]:
    forecast, outcome = item[1]
    return forecast["stream"], {"p": forecast["p"], "y": outcome["y"]}


def _message(item: tuple[str, Event]) -> KafkaSinkMessage[bytes, bytes]:
    return KafkaSinkMessage(key=item[1]["event_id"].encode(), value=orjson.dumps(item[1]))


def flow(brokers: str, prefix: str) -> Dataflow:
    """Return the dataflow."""
    made = Dataflow("job")
    inputs = []
    for label in ("forecasts", "outcomes"):
        source = kop.input(f"{label}-in", made, brokers=[brokers], topics=[f"{prefix}-{label}"])
        op.raises(f"{label}-errors", source.errs)
        inputs.append(op.map(f"{label}-keyed", source.oks, _keyed))
    joined = op.join("join", *inputs, emit_mode="complete")
    asked = op.map("asked", inputs[0], lambda item: (item[1]["stream"], item[1]))
    events = op.merge("events", asked, op.map("met", joined, _met))
    answers = op.stateful_flat_map("calibrate", events, calibrate)
    kop.output("out", op.map("message", answers, _message), brokers=[brokers], topic=f"{prefix}-calibrated")
    return made


def main(brokers: str, prefix: str, directory: str) -> None:
    """Run until killed."""
    init_db_dir(Path(directory), 1)
    cli_main(flow(brokers, prefix), epoch_interval=timedelta(seconds=1), recovery_config=RecoveryConfig(directory))


if __name__ == "__main__":
    main(*sys.argv[1:])
