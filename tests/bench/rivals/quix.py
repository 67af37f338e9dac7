"""The job in Quix Streams, as its documentation writes it: ``concat``, stateful functions, ``group_by``.

State belongs to the message key there, so events are joined under their own key, and what is known of a stream needs
the stream as the key: ``group_by`` sends forecasts and met outcomes through a repartition topic. State is kept in
RocksDB with changelog topics; at least once, offsets committed every 5 s, all defaults.

``python -m tests.bench.rivals.quix BROKERS PREFIX DIRECTORY``, in the rivals' environment.
"""

import logging
import sys
from typing import Any

from quixstreams import Application, State
from quixstreams.models import TopicConfig

from tests.bench.rivals import job


def meet(event: dict[str, Any], state: State) -> list[dict[str, Any]]:
    """Return what the stream's calibrator must see: a forecast to answer, an outcome with its forecast, or nothing."""
    if "p" in event:
        y = state.get("y")
        state.set("forecast", {"p": event["p"], "stream": event["stream"]})
        met = [] if y is None else [{"p": event["p"], "stream": event["stream"], "y": y}]
        return [event, *met]
    state.set("y", event["y"])
    forecast = state.get("forecast")
    return [] if forecast is None else [{**forecast, "y": event["y"]}]


def calibrate(event: dict[str, Any], state: State) -> dict[str, Any] | None:
    """Answer a forecast, or learn from an outcome."""
    counts = state.get("counts") or job.new()
    if "y" not in event:
        return job.answer(counts, event)
    job.learn(counts, event["p"], event["y"])
    state.set("counts", counts)
    return None


def main(brokers: str, prefix: str, directory: str) -> None:
    """Run until killed."""
    app = Application(
        broker_address=brokers,
        consumer_group=prefix,
        auto_offset_reset="earliest",
        state_dir=directory,
        loglevel=logging.WARNING,
        topic_create_timeout=30,
    )
    existing = TopicConfig(num_partitions=4, replication_factor=1)
    forecasts = app.topic(f"{prefix}-forecasts", config=existing)
    outcomes = app.topic(f"{prefix}-outcomes", config=existing)
    calibrated = app.topic(f"{prefix}-calibrated", config=existing)
    events = app.dataframe(forecasts).concat(app.dataframe(outcomes))
    events = events.apply(meet, stateful=True, expand=True).group_by("stream")
    answers = events.apply(calibrate, stateful=True).filter(lambda answer: answer is not None)
    answers.to_topic(calibrated, key=lambda answer: answer["event_id"])
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
