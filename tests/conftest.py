"""The broker that end-to-end tests share."""

import os
from collections.abc import Iterator

import pytest

from agents.broker import Broker


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """Yield the address of a real Apache Kafka: the cluster of TRUEUP_BROKERS, or a broker for this run of pytest."""
    if brokers := os.environ.get("TRUEUP_BROKERS"):
        yield brokers
        return
    with Broker() as broker:
        yield broker.bootstrap
