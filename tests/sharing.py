"""How the processes of one run of pytest share the tests, and one broker.

Tests that need a broker wait for most of their time: each is handed out by itself, so that several overlap, and between
them whole files of those that compute.
"""

import time
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

from lab.broker import Broker, answers
from lab.jvm import START_SECONDS

#: Below these directories each test is handed out by itself,
ALONE: Final = ("tests/e2e/",)
#: but for files whose tests share what takes long to start, and directories of which the same is true.
TOGETHER: Final = (
    "tests/e2e/test_cluster.py",
    "tests/e2e/test_prometheus.py",
    "tests/e2e/test_registry.py",
    "tests/secure",
)
_BROKER: Final = pytest.StashKey[Broker]()


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no type hints
    """Hands out tests by what `unit` says, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def unit(test: str) -> str:
    """Return by what a test is handed out: all tests of which this is the same run in one process."""
    file = test.partition("::")[0]
    if together := next((each for each in TOGETHER if file.startswith(each)), None):
        return together
    return test if file.startswith(ALONE) else file


def interleaved(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return tests in an order in which those that wait and those that compute take turns, the largest units first."""
    units: dict[str, list[pytest.Item]] = {}
    for item in items:
        units.setdefault(unit(item.nodeid), []).append(item)
    waiting = sorted((each for name, each in units.items() if "::" in name or name in TOGETHER), key=len, reverse=True)
    computing = [each for name, each in units.items() if not ("::" in name or name in TOGETHER)]
    some = len(computing) / max(len(waiting), 1)
    ordered: list[pytest.Item] = []
    for n, each in enumerate(waiting or [[]]):
        ordered += each
        ordered += (item for part in computing[round(n * some) : round((n + 1) * some)] for item in part)
    return ordered


def one_broker(node: Any) -> None:
    """Tell a process that xdist is about to start the broker of this run; the first time it is launched."""
    stash = node.config.stash
    if _BROKER not in stash:
        stash[_BROKER] = broker = Broker()
        node.config.add_cleanup(broker.stop)
        broker.launch()
    node.workerinput["brokers"] = stash[_BROKER].bootstrap


def broker_of(config: pytest.Config) -> str | None:
    """Return the address of that broker, once it answers; None where this process was not started by xdist."""
    brokers: str | None = getattr(config, "workerinput", {}).get("brokers")
    end = time.monotonic() + START_SECONDS
    while brokers and not answers(int(brokers.partition(":")[2])):
        assert time.monotonic() < end, "the broker of this run does not answer"
        time.sleep(0.05)
    return brokers
