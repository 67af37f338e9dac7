"""A session that the brokers do not allow is refused before anything starts."""

import asyncio
from pathlib import Path

from lab.broker import Broker
from streams.kafka import topics
from tests.e2e.world import World


def test_a_session_that_is_too_short_for_the_brokers_is_refused_with_what_they_allow(
    broker: Broker, tmp_path: Path
) -> None:
    one = World(broker.bootstrap, tmp_path, 1, TRUEUP_SESSION_SECONDS="3")
    one.refused(78, "TRUEUP_SESSION_SECONDS=3 is not what the brokers allow: 6 to 1800 s")
    one.environment["TRUEUP_SESSION_SECONDS"] = "6"
    one.reconfigure()
    assert asyncio.run(topics.check(one.settings)) == []
