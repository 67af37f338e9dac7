"""A worker that cannot start says why and how to tell: in one line each, and with a status."""

import asyncio
import errno
import gc
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@pytest.fixture(autouse=True)
def collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep this process's garbage collector as it is."""
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no broker and no address."""
    monkeypatch.setattr(worker, "START_SECONDS", 0.0)
    monkeypatch.setattr(worker, "START_PAUSE", 0.0)
    monkeypatch.setattr(readers, "LEFT_SECONDS", 0.0)

    async def claim(_: Settings) -> list[str]:
        return []

    monkeypatch.setattr(owners, "claim", claim)


def says(monkeypatch: pytest.MonkeyPatch, *problems: str, failure: Exception | None = None) -> None:
    """Let the check of the topics find problems, or fail."""

    async def check(_: Settings) -> list[str]:
        if failure is not None:
            raise failure
        return list(problems)

    monkeypatch.setattr(topics, "check", check)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert not any(each.exc_info for each in caplog.records)
    return [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]


def test_topics_that_are_not_as_they_must_be_are_all_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    says(monkeypatch, "one is missing", "another has 3 partitions")
    assert worker.run(Settings(data_dir=tmp_path / "data")) == MISCONFIGURED
    assert messages(caplog) == ["one is missing", "another has 3 partitions"]
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("failure", "said"), [(OSError("no route"), "no route"), (TimeoutError(), "TimeoutError")])
def test_brokers_that_cannot_be_asked_are_a_message_and_a_restart_may_find_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, failure: Exception, said: str
) -> None:
    says(monkeypatch, failure=failure)
    assert worker.run(Settings(data_dir=tmp_path)) == FAILED
    assert messages(caplog) == [said]


def test_a_start_asks_again_while_a_broker_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(worker, "START_SECONDS", 60.0)
    answers: list[Exception | list[str]] = [
        NodeNotReadyError("broker 2"),
        topics.TopicsError("no broker", lasting=False),
        ["one is missing"],
    ]

    async def check(_: Settings) -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(topics, "check", check)
    assert worker.run(Settings(data_dir=tmp_path)) == MISCONFIGURED
    assert messages(caplog) == ["one is missing"]


def test_a_start_does_not_wait_for_what_will_not_pass(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(worker, "START_SECONDS", 60.0)
    says(monkeypatch, failure=topics.TopicsError("a wrong password"))
    assert worker.run(Settings(data_dir=tmp_path)) == MISCONFIGURED
    assert messages(caplog) == ["a wrong password"]


def test_a_data_directory_that_cannot_be_made_is_a_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    says(monkeypatch)
    (tmp_path / "file").write_text("")
    assert worker.run(Settings(data_dir=tmp_path / "file" / "data")) == MISCONFIGURED
    assert messages(caplog) == [f"cannot make the data directory {tmp_path}/file/data/trueup: Not a directory"]


def test_a_directory_that_another_worker_uses_is_a_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    says(monkeypatch)
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
    with held(tmp_path / "trueup"):  # whoever is killed lets go
        pass


def test_applications_in_one_directory_are_apart(tmp_path: Path) -> None:
    with held(Settings(data_dir=tmp_path, app_id="a").state_dir), held(Settings(data_dir=tmp_path).state_dir):
        pass


def test_probes_of_a_worker_that_stops_say_that_it_is_alive_and_not_ready(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(readers, "ALIVE_SECONDS", 0.5)
    monkeypatch.setattr(readers, "TELL_SECONDS", 0.01)
    says(monkeypatch)
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


def test_a_process_that_may_not_be_started_is_a_message_and_a_restart_may_start_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    says(monkeypatch)

    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", fork)
    assert worker.run(Settings(data_dir=tmp_path / "data", metrics_port=0)) == FAILED
    (said,) = messages(caplog)
    assert said.endswith("cannot be started: Resource temporarily unavailable")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_metrics_address_that_is_taken_is_a_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, taken: int
) -> None:
    says(monkeypatch)
    assert worker.run(Settings(data_dir=tmp_path / "data", metrics_port=taken)) == MISCONFIGURED
    assert messages(caplog) == [f"cannot listen on 127.0.0.1:{taken}: Address already in use"]


def test_a_certificate_that_cannot_be_loaded_is_a_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    says(monkeypatch)
    settings = Settings(data_dir=tmp_path / "data", metrics_port=0, access=Access(certfile=str(tmp_path / "no.pem")))
    assert worker.run(settings) == MISCONFIGURED
    assert messages(caplog) == [f"cannot load TRUEUP_METRICS_CERTFILE={tmp_path}/no.pem: No such file or directory"]


@pytest.mark.parametrize(
    ("host", "access", "warned"),
    [
        ("127.0.0.1", Access(), False),
        ("0.0.0.0", Access(), True),  # noqa: S104 - what a container does
        ("0.0.0.0", Access(certfile="c.pem", username="a", password="b"), False),  # noqa: S104, S106 - the same
    ],
)
def test_metrics_that_are_open_to_the_network_are_a_warning(
    caplog: pytest.LogCaptureFixture, host: str, access: Access, *, warned: bool
) -> None:
    worker.tell(Settings(metrics_host=host, access=access), 9464)
    assert ("open to whoever reaches" in caplog.text) == warned


@pytest.mark.parametrize(("coin", "lines"), [(b"", 1), (b"0123456789abcdef", 0)])
def test_a_worker_without_a_key_of_the_draws_says_so_once(
    caplog: pytest.LogCaptureFixture, coin: bytes, lines: int
) -> None:
    worker.tell(Settings(policies=Policies(coin=coin)), 9464)
    assert sum("TRUEUP_COIN_KEY" in said for said in caplog.messages) == lines


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
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
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
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == FAILED
    assert ended.stdout == "printed"
    assert "cannot go on" in ended.stderr
