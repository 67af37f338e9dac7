"""Readers have a process of their own: it says what its parent is, and ends with it."""

import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from rocksdict import Rdict

from agents import readers
from agents.readers import STOPS, Readers, ReadersError, Vitals
from agents.server import Response, Server
from lab.scrape import get
from streams.config.settings import Settings
from streams.metrics.catalogue import READERS
from streams.metrics.mirror import ChangeSource
from tests.e2e.world import wait_for

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
SETTINGS = Settings(metrics_port=0)


@pytest.fixture
def served() -> Iterator[Readers]:
    with Readers(SETTINGS) as made:
        yield made


def asked(made: Readers, path: str) -> tuple[int, str]:
    return get(HOST, made.port, path)


def test_metrics_are_what_the_parent_says_whenever_it_is_asked(served: Readers) -> None:
    said = [b"first 1\n"]
    served.answer(ChangeSource(lambda: said[0]))
    assert asked(served, "/metrics") == (200, "first 1\n")
    said[0] = b"second 2\n"
    wait_for("the second", lambda: asked(served, "/metrics") == (200, "second 2\n"))


def test_probes_say_how_the_parent_is_and_do_not_ask_it(served: Readers) -> None:
    assert asked(served, "/healthz") == (200, "yes\n")
    assert asked(served, "/readyz") == (503, "no: it is starting\n")
    served.tell("")
    assert asked(served, "/readyz") == (200, "yes\n")
    served.tell("the state is restored", healthy=False)
    assert asked(served, "/readyz") == (503, "no: the state is restored\n")
    assert asked(served, "/healthz") == (503, "no\n")


def test_a_parent_that_stands_still_is_neither_healthy_nor_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "ALIVE_SECONDS", 0.5)
    with Readers(SETTINGS) as made:
        made.tell("")
        wait_for("the time", lambda: asked(made, "/healthz") == (503, "no\n"))
        assert asked(made, "/readyz") == (503, "no: it does not answer\n")

        def is_well() -> bool:
            made.tell("")
            return [asked(made, path) for path in ("/healthz", "/readyz")] == [(200, "yes\n")] * 2

        wait_for("it to be well", is_well)


def test_a_parent_that_does_not_answer_is_told_of_and_heard_again_when_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "PATIENCE", 0.2)
    with Readers(SETTINGS) as made:
        assert asked(made, "/metrics")[0] == 503
        assert asked(made, "/metrics")[0] == 503
        made.answer(ChangeSource(lambda: b"late 1\n"))
        wait_for("the late one", lambda: asked(made, "/metrics") == (200, "late 1\n"))


def test_a_database_that_the_parent_has_left_open_does_not_hang_it(tmp_path: Path) -> None:
    class Left:
        def __init__(self) -> None:
            self.ring, self.database = self, Rdict(str(tmp_path))

    def collect(_: str, __: str) -> Response:
        gc.collect()
        return Response(HTTPStatus.OK, [], b"collected")

    gc.disable()
    try:
        Left()
        with Readers(SETTINGS, pages=lambda *_: collect) as made:
            assert asked(made, "/page") == (200, "collected")
    finally:
        gc.enable()


@pytest.mark.parametrize("defect", [LookupError("no such row"), OSError("no such row")])
def test_a_defect_in_what_is_asked_is_logged_and_later_questions_are_answered(
    served: Readers, caplog: pytest.LogCaptureFixture, defect: Exception
) -> None:
    wrong = [True]

    def text() -> bytes:
        if wrong[0]:
            raise defect
        return b"right 1\n"

    served.answer(ChangeSource(text))
    assert asked(served, "/metrics")[0] == 503
    assert "no such row" in caplog.text
    wrong[0] = False
    wait_for("the right one", lambda: asked(served, "/metrics") == (200, "right 1\n"))


def test_both_processes_are_measured(served: Readers) -> None:
    assert asked(served, "/healthz")[0] == 200
    registry = CollectorRegistry()
    served.measure(registry)
    started = "process_start_time_seconds"
    own, child = (registry.get_sample_value(name) for name in (started, f"{READERS}_{started}"))
    assert own is not None
    assert child is not None
    assert 0 < own < child


def tell_until_it_has_ended(made: Readers) -> None:
    for _ in range(3000):
        made.tell("")
        time.sleep(0.01)


@pytest.mark.parametrize("told", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_process_that_was_killed_is_noticed_also_where_nobody_was_to_be_told_of_children(
    told: signal.Handlers,
) -> None:
    before = signal.signal(signal.SIGCHLD, told)
    try:
        with Readers(SETTINGS) as made:
            os.kill(made._pid, signal.SIGKILL)
            with pytest.raises(ReadersError, match="by signal 9"):
                tell_until_it_has_ended(made)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_process_that_cannot_serve_says_why_and_ends(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def start(_: Server) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Server, "start", start)
    log = logging.getLogger("trueup")
    handler = logging.StreamHandler(sys.stderr)
    log.addHandler(handler)
    try:
        with Readers(SETTINGS) as made, pytest.raises(ReadersError, match="with status 1"):
            tell_until_it_has_ended(made)
    finally:
        log.removeHandler(handler)
    assert "can't start new thread" in capfd.readouterr().err


def test_an_address_that_is_nobodys_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(readers, "sleep", waits.append)
    with pytest.raises(OSError, match="assign requested address"):
        Readers(Settings(metrics_host="192.0.2.1", metrics_port=0))
    assert not waits


def test_a_signal_of_the_terminal_does_not_end_it_and_on_exit_its_port_is_free() -> None:
    with Readers(SETTINGS) as made:
        wait_for("it", lambda: asked(made, "/healthz")[0] == 200)  # it ignores them before it serves
        for each in STOPS:
            os.kill(made._pid, each)
        assert asked(made, "/healthz") == (200, "yes\n")
    with socket.create_server((HOST, made.port)):
        pass


@pytest.mark.parametrize("stopped", [False, True])
def test_it_ends_with_a_parent_that_is_killed_and_whoever_follows_has_its_port(stopped: bool) -> None:  # noqa: FBT001 - of pytest
    program = (
        "import time\n"
        "from agents.readers import Readers\n"
        "from streams.config.settings import Settings\n"
        "with Readers(Settings(metrics_port=0)) as made:\n"
        "    print(made.port, made._pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        port, pid = map(int, parent.stdout.readline().split())
        assert get(HOST, port, "/healthz")[0] == 200
        if stopped:
            os.kill(pid, signal.SIGSTOP)
        parent.kill()
        parent.wait()
        with Readers(Settings(metrics_port=port)) as follows:
            assert follows.port == port
    wait_for("its end", lambda: not alive(pid))


def alive(pid: int) -> bool:
    """Whether a process is there and has not ended: whoever adopts it may not have asked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_who_reads_while_it_is_written_gets_one_writing_or_the_other() -> None:
    vitals, ended = Vitals(), threading.Event()
    texts = ["", "a" * 10, "b" * 900]

    def write() -> None:
        while not ended.is_set():
            for each in texts:
                vitals.tell(each)

    writer = threading.Thread(target=write)
    vitals.tell("")
    writer.start()
    try:
        assert {vitals.unready() for _ in range(5000)} <= set(texts)
    finally:
        ended.set()
        writer.join()
