"""What all tests share: examples that are the same in every run, and the broker of the end-to-end tests."""

import asyncio
import gc
import logging
import os
from collections.abc import Iterator
from inspect import iscoroutinefunction
from typing import Any

import pytest
from hypothesis import settings

from lab.broker import Broker
from tests.night import NIGHT, by_day, pattern_of
from tests.sharing import broker_of, interleaved, run
from tests.state.histories import STEADY, judged_at_once

settings.register_profile("steady", STEADY)
settings.load_profile("steady")

# JVMs of tests live for seconds: what the second compiler makes of their code comes too late to be worth its time.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take in how many processes the tests run."""
    parser.addoption("--processes", type=int, default=0, help="processes that run the tests; 0: this one")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of the night out by day; who names a test runs it."""
    if any("::" in argument for argument in config.args):
        return
    if config.args == config.getini("testpaths"):
        found = {pattern_of(item.nodeid) for item in items}
        gone = [(file, each) for file, patterns in NIGHT.items() for each in patterns if (file, each) not in found]
        if gone:
            raise pytest.UsageError(f"tests/night.py names tests that are not there: {gone}")
    config.hook.pytest_deselected(items=[item for item in items if not by_day(item.nodeid)])
    items[:] = interleaved([item for item in items if by_day(item.nodeid)])


def pytest_collection_finish() -> None:
    """Leave the tests themselves out of every later search for garbage: they stay to the end."""
    gc.collect()
    gc.freeze()


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in several processes, if that was asked for."""
    processes = session.config.getoption("processes")
    if not processes or session.testsfailed or session.config.getoption("collectonly"):
        return None
    run(session, processes)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine: by the fixture ``run``, on whose loop others are, if there is one."""
    if not iscoroutinefunction(test := pyfuncitem.obj):
        return None
    run: Any = pyfuncitem.funcargs.get("run", asyncio.run)
    run(test(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


def pytest_runtest_teardown() -> None:
    """Undo what a command has set in this process: umask, and the log, whose handler writes to a closed file."""
    os.umask(0o022)
    logging.root.handlers[:] = [each for each in logging.root.handlers if type(each) is not logging.StreamHandler]
    logging.root.setLevel(logging.WARNING)
    for each in logging.root.manager.loggerDict.values():
        if isinstance(each, logging.Logger):
            each.setLevel(logging.NOTSET)


@pytest.fixture(scope="class")  # of a function without a class, and hypothesis takes it
def no_warm_up() -> Iterator[None]:
    """Let every outcome count in the scores, as after a warm-up."""
    with judged_at_once():
        yield


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the address of a real Apache Kafka: the cluster of TRUEUP_BROKERS, or a broker for this run of pytest."""
    if brokers := os.environ.get("TRUEUP_BROKERS") or broker_of(request.config):
        yield brokers
    else:
        with Broker() as broker:
            yield broker.bootstrap
