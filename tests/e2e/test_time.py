"""Clocks that run ahead: brokers refuse them, a worker waits for others to say the same, and nothing expires early."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from time import time

import pytest
from aiokafka.errors import InvalidTimestampError

from streams.kafka import topics
from tests.e2e.test_disks import changed
from tests.e2e.world import World, wait_for
from tests.events import Sent, forecast, outcome

MakeWorld = Callable[..., World]
HOUR = 3_600_000
#: The last millisecond of the year 9999.
LAST = 253_402_300_799_999


def test_brokers_refuse_records_of_the_future_and_check_asks_for_it(world: MakeWorld) -> None:
    w = world(partitions=1)
    broker, now = w.settings.brokers[0], int(time() * 1000)
    assert asyncio.run(topics.check(w.settings)) == []
    with pytest.raises(InvalidTimestampError):
        w.send([forecast("wild", 0.5, now + HOUR // 4)])

    def wrong() -> list[str]:
        return [problem.split(",")[0] for problem in asyncio.run(topics.check(w.settings))]

    # An hour is the default.
    said = f"topic {w.topic('forecasts')} has message.timestamp.after.max.ms={2**63 - 1}"
    asyncio.run(changed(broker, w.topic("forecasts"), cleanup_policy="delete"))
    wait_for("the brokers to know of the change", lambda: wrong() == [said], 20)
    asyncio.run(changed(broker, w.topic("forecasts"), message_timestamp_type="LogAppendTime"))
    wait_for("the brokers to know of the change", lambda: wrong() == [], 20)


def test_a_record_of_the_year_9999_expires_nothing_of_others_and_does_not_stop_expiry(world: MakeWorld) -> None:
    w = world(partitions=1)
    w.send([forecast(f"e{i}", 0.5, 1000 + i) for i in range(50)])
    with w.worker() as worker:
        w.wait_until_applied(50)
        for label in ("forecasts", "outcomes"):  # somebody allows it
            asyncio.run(changed(w.settings.brokers[0], w.topic(label), message_timestamp_after_max_ms=str(2**62)))
        wild = forecast("wild", 0.5, LAST)
        wait_for("the broker to take it", lambda: taken(w, wild), 20)
        value = json.dumps({"event_id": "ahead", "stream": "s", "p": 0.5, "ts": 2000 + 23 * HOUR}).encode()
        w.send([Sent("forecasts", b"k", value, 2000), *(outcome(f"e{i}", i % 2, 2000 + i) for i in range(50))])
        w.wait_until_applied(102)
        assert worker.metric("dead_letters_total", reason="timestamp") == 1
        assert worker.metric("expired_total") == 0
        assert worker.metric("expired_early_total") == 0
        assert worker.metric("records_total", topic="outcomes", fate="resolved") == 50
    w.judge()


def test_a_record_stamped_ahead_in_a_backlog_holds_back_nobodys_label(world: MakeWorld, tmp_path: Path) -> None:
    """Sixty days were sent at once; in both topics one record is of now, and so are the first two outcomes."""
    (tmp_path / "streams.toml").write_text('early_ttl = "1d"\n[streams.s]\nttl = "1d"\n')
    w = world(partitions=1, TRUEUP_STREAMS=str(tmp_path / "streams.toml"), TRUEUP_BATCH_RECORDS="300")
    now, n = int(time() * 1000) - HOUR, 1000
    start, step = now - 60 * 24 * HOUR, 58 * 24 * HOUR // n
    forecasts = [forecast(f"e{i}", 0.5, start + i * step) for i in range(n)]
    outcomes = [outcome(f"e{i}", i % 2, start + i * step + HOUR) for i in range(n)]
    forecasts.insert(n // 3, forecast("alone", 0.5, now))
    outcomes[n // 2 : n // 2] = [outcome("nobody", 1, now)]
    outcomes[:0] = [outcome("nobody", 1, now), outcome("noone", 1, now)]
    w.send([*forecasts, *outcomes])
    for applied in (n // 2, len(forecasts) + len(outcomes)):
        with w.worker() as worker:
            w.wait_until_applied(applied)
            worker.kill()
    assert w.applied()["outcomes_resolved"] == n
    assert w.applied()["expired_forecasts"] <= 1
    w.judge()


def taken(w: World, record: Sent) -> bool:
    """Send a record; whether the broker takes it."""
    try:
        w.send([record])
    except InvalidTimestampError:
        return False
    return True
