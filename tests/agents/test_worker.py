"""A worker that cannot start says why and how to tell: in one line each, and with a status."""

import asyncio
import errno
import gc
import logging
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from aiokafka.errors import NodeNotReadyError

from agents import compiled, readers, worker
from agents.topology import Topology, build
from agents.worker import FAILED, MISCONFIGURED, Stage, held
from lab.scrape import get
from state.policies import Policies
from streams.config.settings import Settings
from streams.kafka import owners, topics
from streams.kafka.security import Access

ROOT = Path(__file__).resolve().parents[2]


Found = list[str] | Exception


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no broker and no address, and keep this process's garbage collector as it is."""
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    monkeypatch.setattr(worker, "START_SECONDS", 0.0)
    monkeypatch.setattr(worker, "START_PAUSE", 0.0)
    monkeypatch.setattr(readers, "LEFT_SECONDS", 0.0)

    async def claim(_: Settings) -> list[str]:
        return []

    monkeypatch.setattr(owners, "claim", claim)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Found]:
    """Return what the check of the topics finds, each time it is asked; in the end nothing."""
    found: list[Found] = []

    async def check(_: Settings) -> list[str]:
        answer = found.pop(0) if found else []
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(topics, "check", check)
    return found


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert not any(each.exc_info for each in caplog.records)
    return [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]


@pytest.mark.parametrize(
    ("found", "changed", "status", "said"),
    [
        (["one is missing", "another has 3"], {}, MISCONFIGURED, ["one is missing", "another has 3"]),
        (OSError("no route"), {}, FAILED, ["no route"]),
        (TimeoutError(), {}, FAILED, ["TimeoutError"]),
        (
            [],
            {"data_dir": Path("/dev/null")},
            MISCONFIGURED,
            ["cannot make the data directory /dev/null/trueup: "],
        ),
        (
            [],
            {"metrics_host": "192.0.2.1"},
            MISCONFIGURED,
            ["cannot listen on 192.0.2.1:0: Cannot assign"],
        ),
        (
            [],
            {"access": Access(certfile="/no.pem")},
            MISCONFIGURED,
            ["cannot load TRUEUP_METRICS_CERTFILE=/no.pem"],
        ),
    ],
)
def test_what_is_in_the_way_of_a_start_is_a_message_and_a_status(
    answers: list[Found],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    found: Found,
    changed: dict[str, Any],
    status: int,
    said: list[str],
) -> None:
    answers.append(found)
    assert worker.run(replace(Settings(data_dir=tmp_path / "data", metrics_port=0), **changed)) == status
    assert [line[: len(start)] for line, start in zip(messages(caplog), said, strict=True)] == said
    assert not (tmp_path / "data").exists()


def test_a_start_asks_again_while_a_broker_is_not_ready_and_does_not_wait_for_what_will_not_pass(
    monkeypatch: pytest.MonkeyPatch, answers: list[Found], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(worker, "START_SECONDS", 60.0)
    passing = [NodeNotReadyError("broker 2"), topics.TopicsError("no broker", lasting=False)]
    answers += [*passing, ["one is missing"], topics.TopicsError("a wrong password")]
    for said in (["one is missing"], ["one is missing", "a wrong password"]):
        assert worker.run(Settings(data_dir=tmp_path)) == MISCONFIGURED
        assert messages(caplog) == said


@pytest.mark.usefixtures("answers")
def test_with_a_full_disk_it_does_not_join_its_group_and_a_restart_may_find_room(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=worker.LEAST_ROOM - 1))
    joined = worker.Stage(build=lambda *_, **__: pytest.fail("it takes partitions from those who can serve them"))
    assert worker.run(Settings(data_dir=tmp_path), stage=joined) == FAILED
    (said,) = messages(caplog)
    assert said.startswith(f"No space left on device in {tmp_path}/trueup: 63 of 64 MiB")
    assert "free some" in said


@pytest.mark.usefixtures("answers")
def test_a_directory_that_another_worker_uses_is_a_message(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    holds = "import sys; from pathlib import Path; from agents.worker import held\n"
    holds += "with held(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holds, str(tmp_path / "trueup")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert worker.run(Settings(data_dir=tmp_path)) == MISCONFIGURED
        other.kill()
    (said,) = messages(caplog)
    assert said.startswith(f"another worker uses the data directory {tmp_path}/trueup: ")
    with held(tmp_path / "trueup"), held(Settings(data_dir=tmp_path, app_id="another").state_dir):
        pass  # whoever is killed lets go, and applications in one directory are apart


@pytest.mark.usefixtures("answers")
def test_probes_of_a_worker_that_stops_say_that_it_is_alive_and_not_ready(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(readers, "ALIVE_SECONDS", 0.5)
    monkeypatch.setattr(readers, "TELL_SECONDS", 0.01)
    probes = dict[str, set[tuple[int, str]]]()

    def wire(*args: Any, **kwargs: Any) -> Topology:
        topology = build(*args, **kwargs)

        async def start() -> None:
            os.kill(os.getpid(), signal.SIGTERM)

        async def stop() -> None:
            port = int(next(said for said in caplog.messages if "metrics on" in said).split(":")[-1].split("/")[0])

            async def asked(path: str) -> tuple[int, str]:
                return await asyncio.to_thread(get, "127.0.0.1", port, path)

            while await asked("/readyz") != (503, "no: it is stopping\n"):  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.01)
            ends = time.monotonic() + 3 * readers.ALIVE_SECONDS  # a broker that is away may hold it up for so long
            while time.monotonic() < ends:
                for path in ("/readyz", "/healthz"):
                    probes.setdefault(path, set()).add(await asked(path))
                await asyncio.sleep(0.05)
            assert 'trueup_ready{app="trueup"} 0.0' in (await asked("/metrics"))[1]

        monkeypatch.setattr(topology.app, "start", start)
        monkeypatch.setattr(topology.app, "stop", stop)
        return topology

    with caplog.at_level(logging.INFO, "trueup"):
        assert worker.run(Settings(data_dir=tmp_path, metrics_port=0), stage=Stage(wire)) == 0
    assert probes == {"/readyz": {(503, "no: it is stopping\n")}, "/healthz": {(200, "yes\n")}}


@pytest.mark.usefixtures("answers")
def test_a_process_that_may_not_be_started_is_a_message_and_a_restart_may_start_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    refused = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    monkeypatch.setattr(os, "fork", Mock(side_effect=refused))
    assert worker.run(Settings(data_dir=tmp_path / "data", metrics_port=0)) == FAILED
    (said,) = messages(caplog)
    assert said.endswith("cannot be started: Resource temporarily unavailable")


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({}, ["TRUEUP_COIN_KEY is not set"]),
        ({"metrics_host": "0.0.0.0"}, ["metrics and pages are open to whoever", "TRUEUP_COIN_KEY is not set"]),  # noqa: S104
        ({"access": Access(certfile="c.pem", username="a", password="b"), "policies": Policies(coin=b"k" * 16)}, []),  # noqa: S106
    ],
)
def test_what_somebody_else_could_read_or_foretell_is_a_warning(
    caplog: pytest.LogCaptureFixture, settings: dict[str, Any], warned: list[str]
) -> None:
    worker.tell(Settings(**settings), 9464, page=True)
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert [line[: len(start)] for line, start in zip(said, warned, strict=True)] == warned
    caplog.clear()
    worker.tell(Settings(**settings), 9464)
    assert "TRUEUP_COIN_KEY" not in caplog.text, "only the worker draws"


def test_the_engine_that_runs_is_told_without_reading_its_sources_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    worker.tell(Settings(), 9464)
    assert caplog.messages[0].startswith("engine: interpreted: ")
    caplog.clear()
    monkeypatch.setattr(compiled, "runs", lambda: True)
    monkeypatch.setattr(compiled, "missing", None)
    worker.tell(Settings(), 9464)
    assert caplog.messages[0] == "engine: compiled"


def test_a_closed_terminal_is_no_stop_where_nohup_has_it_ignored() -> None:
    async def run() -> None:
        stop = worker.stop_asked()
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0)
        assert not stop.is_set()

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        asyncio.run(run())
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_stop_that_hangs_ends_the_process_and_says_where(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def inner() -> None:
        await asyncio.get_running_loop().create_future()

    async def hangs() -> None:
        await inner()

    async def run() -> None:
        ended = asyncio.Event()
        monkeypatch.setattr(worker, "abort", ended.set)
        stop = worker.stop_asked()
        task = asyncio.create_task(hangs())
        await asyncio.sleep(0)
        for signum in readers.STOPS:
            os.kill(os.getpid(), signum)
            await stop.wait()
        await ended.wait()
        task.cancel()

    monkeypatch.setattr(worker, "STOP_SECONDS", 0.01)
    asyncio.run(run())
    (said,) = [each for each in caplog.messages if "not stopped within 0.01 s" in each]
    assert re.search(r"hangs:\d+ > [^;]*inner:\d+", said)


def test_abort_ends_the_process_at_once_with_its_logs_out() -> None:
    program = (
        "import atexit, logging, sys\n"
        "from agents import logs, worker\n"
        "logs.configure()\n"
        "atexit.register(print, 'unwound')\n"
        "print('printed', end='')\n"
        "logging.getLogger('trueup').critical('cannot go on')\n"
        "try:\n"
        "    worker.abort()\n"
        "finally:\n"
        "    print('unwound')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=180, check=False
    )
    assert ended.returncode == FAILED
    assert ended.stdout == "printed"
    assert "cannot go on" in ended.stderr
