"""Clocks that run ahead: brokers refuse them, a worker waits for others to say the same, and nothing expires early."""

import asyncio
from time import time

import pytest
from aiokafka.errors import InvalidTimestampError

from streams.kafka import topics
from tests.e2e.world import MakeWorld, wait_for
from tests.events import forecast

HOUR = 3_600_000


def test_brokers_refuse_records_of_the_future_and_check_asks_for_it(world: MakeWorld) -> None:
    w = world(partitions=1)
    now = int(time() * 1000)
    assert asyncio.run(topics.check(w.settings)) == []
    with pytest.raises(InvalidTimestampError):
        w.send([forecast("wild", 0.5, now + HOUR // 4)])

    def wrong() -> list[str]:
        return [problem.split(",")[0] for problem in asyncio.run(topics.check(w.settings))]

    # An hour is the default.
    said = f"topic {w.topic('forecasts')} has message.timestamp.after.max.ms={2**63 - 1}"
    w.configure("forecasts", cleanup_policy="delete")
    wait_for("the brokers to know of the change", lambda: wrong() == [said], 20)
    w.configure("forecasts", message_timestamp_type="LogAppendTime")
    wait_for("the brokers to know of the change", lambda: wrong() == [], 20)
