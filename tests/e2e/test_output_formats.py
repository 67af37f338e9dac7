"""Outputs with the schemas of a registry: killed anywhere, audited, read by others; registries that fail."""

import socket
from collections.abc import Callable

from tests.e2e.world import World, wait_for
from tests.events import forecast
from tests.streams.sources.registries import StandIn

MakeWorld = Callable[..., World]


def test_a_registry_that_is_away_is_waited_for_and_not_missed_later(world: MakeWorld) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    registry = StandIn()
    w = world(partitions=1, TRUEUP_REGISTRY_URL=f"http://127.0.0.1:{port}", TRUEUP_OUTPUT_FORMAT="avro")
    w.send([forecast(f"e{i}", 0.5, i) for i in range(9)])
    with w.worker() as worker:
        wait_for("the worker to say what it waits for", lambda: "waiting for the schema registry" in worker.printed)
        assert worker.process.poll() is None
        with registry.apart(port):
            w.wait_until_applied(9)
            assert registry.asked.count(f"subjects/{w.topic('calibrated')}-value/versions") == 1
        w.send([forecast(f"f{i}", 0.5, i) for i in range(9)])
        w.wait_until_applied(18)
        assert worker.stop() == 0
    found = w.read("calibrated")
    assert len(found) == 18
    assert all((record.value or b"").startswith(b"\0\0\0\0\1") for record in found)
