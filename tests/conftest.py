"""What all tests share: examples that are the same in every run, and the broker of the end-to-end tests."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from lab.broker import Broker

# The same examples in every run, and no time limit: a test fails by what the code does, never by luck.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """Yield the address of a real Apache Kafka: the cluster of TRUEUP_BROKERS, or a broker for this run of pytest."""
    if brokers := os.environ.get("TRUEUP_BROKERS"):
        yield brokers
        return
    with Broker() as broker:
        yield broker.bootstrap
