"""How the processes of one run of pytest share the tests, and one broker.

One process collects the tests, then forks those that run them: each has what was imported, and takes the next tests
that nobody has taken. Tests that need a broker wait for most of their time: each is taken by itself, so that several
overlap, and between them whole files of those that compute.
"""

import os
import signal
import time
from collections.abc import Sequence
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

from lab.broker import Broker, answers
from lab.jvm import START_SECONDS

#: Below these directories each test is taken by itself,
ALONE: Final = ("tests/e2e/",)
#: but for files whose tests share what takes long to start, and directories of which the same is true.
TOGETHER: Final = (
    "tests/e2e/broker",
    "tests/e2e/test_registry.py",
    "tests/replay/report",
    "tests/secure",
)
#: Of a number of tests in the pipe that holds them, bytes.
_WIDTH: Final = 4
_BROKER: Final = pytest.StashKey[Broker]()


def unit(test: str) -> str:
    """Return by what a test is taken: all tests of which this is the same run in one process."""
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


def run(session: pytest.Session, processes: int) -> None:
    """Run the collected tests in processes that are forked from this one, and report here what becomes of them."""
    config = session.config
    if any("kafka" in getattr(item, "fixturenames", ()) for item in session.items):
        _launch(config)
    config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one directory for all of them
    parts = [list(part) for _, part in groupby(session.items, lambda item: unit(item.nodeid))]
    # Who reads a number from the pipe has taken these tests. When it is empty, all are taken.
    numbers, end = os.pipe()
    os.write(end, b"".join(n.to_bytes(_WIDTH, "big") for n in range(len(parts))))
    os.close(end)
    children: dict[Connection, int] = {}
    for _ in range(processes):
        heard, told = Pipe(duplex=False)
        if (pid := os.fork()) == 0:
            _become(session, parts, numbers, told)
        told.close()
        children[heard] = pid
    try:
        _listen(session, children, numbers)
    finally:
        for pid in children.values():  # whatever ended this: what they have started, they end
            os.kill(pid, signal.SIGINT)
            os.waitpid(pid, 0)
        os.close(numbers)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)


def _become(session: pytest.Session, parts: Sequence[list[pytest.Item]], numbers: int, told: Connection) -> None:
    """Run tests in this process, a child, and end it."""
    status = 1
    try:
        plugins = session.config.pluginmanager
        capturing: Any = plugins.getplugin("capturemanager")
        capturing.stop_global_capturing()  # into a file that the processes would share
        capturing.start_global_capturing()
        plugins.register(_Teller(told))
        while number := os.read(numbers, _WIDTH):
            part = parts[int.from_bytes(number, "big")]
            for item, following in zip(part, [*part[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        status = 0
    finally:
        os._exit(status)


class _Teller:
    """Tells the process that collected which test begins, by id and place, and what becomes of it."""

    def __init__(self, told: Connection) -> None:
        self._told = told

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test; its reports go to the other process, and nothing is printed in this one."""
        self._told.send((item.nodeid, item.location))
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            self._told.send(item.config.hook.pytest_report_to_serializable(config=item.config, report=report))
        return True


def _listen(session: pytest.Session, children: dict[Connection, int], numbers: int) -> None:
    """Report what the children tell until all have ended; of a test whose process died, that it did."""
    config = session.config
    running: dict[Connection, tuple[str, Any]] = {}
    while children:
        for heard in wait(list(children)):
            assert isinstance(heard, Connection)
            try:
                said = heard.recv()
            except EOFError:
                _, status = os.waitpid(children.pop(heard), 0)
                if status and heard not in running:
                    raise RuntimeError(f"a process of tests ended with {os.waitstatus_to_exitcode(status)}") from None
                if heard in running:
                    _died(session, *running.pop(heard), os.waitstatus_to_exitcode(status))
                continue
            if isinstance(said, tuple):
                running[heard] = said
                continue
            report = config.hook.pytest_report_from_serializable(config=config, data=said)
            config.hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                nodeid, location = running.pop(heard)
                config.hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
            if session.shouldfail or session.shouldstop:
                os.read(numbers, _WIDTH * len(session.items))  # no more tests are taken


def _died(session: pytest.Session, nodeid: str, location: Any, status: int) -> None:
    text = f"the process that ran it ended with {status}"
    report = pytest.TestReport(nodeid, location, {}, "failed", text, "call")
    session.config.hook.pytest_runtest_logreport(report=report)


def _launch(config: pytest.Config) -> None:
    """Start the broker of this run, without waiting."""
    config.stash[_BROKER] = broker = Broker()
    config.add_cleanup(broker.stop)
    broker.launch()


def broker_of(config: pytest.Config) -> str | None:
    """Return the address of that broker, once it answers; None where one process runs all tests."""
    if _BROKER not in config.stash:
        return None
    brokers = config.stash[_BROKER].bootstrap
    end = time.monotonic() + START_SECONDS
    while not answers(int(brokers.partition(":")[2])):
        assert time.monotonic() < end, "the broker of this run does not answer"
        time.sleep(0.05)
    return brokers
