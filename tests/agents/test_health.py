"""The image's health check: alive when the worker says so, in HTTP or HTTPS, and not alive otherwise."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pytest
import trustme

from agents import health
from agents.server import Server
from streams.config.settings import Settings
from streams.kafka.security import Access


@contextmanager
def serving(*, alive: bool, access: Access | None = None) -> Iterator[dict[str, str]]:
    """Serve a worker's probes, and yield the environment that says where."""
    server = Server("127.0.0.1", 0, bytes, lambda: alive, lambda: "busy", access=access)
    server.start()
    try:
        yield {"TRUEUP_METRICS_HOST": "0.0.0.0", "TRUEUP_METRICS_PORT": str(server.port)}  # noqa: S104 - as in the image
    finally:
        server.stop()


@pytest.mark.parametrize("alive", [True, False])
def test_it_says_what_the_worker_says(alive: bool) -> None:  # noqa: FBT001 - a parameter of the test
    with serving(alive=alive) as environment:
        assert health.status(environment) == (alive, "yes" if alive else "no")


def test_a_worker_that_serves_https_for_another_name_is_alive(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = tmp_path / "worker.pem"
    authority.issue_cert("worker-0.trueup").private_key_and_cert_chain_pem.write_to_path(certificate)
    access = Access(certfile=str(certificate), username="reader", password="secret of this test")  # noqa: S106 - made up
    with serving(alive=True, access=access) as environment:
        assert health.status({**environment, "TRUEUP_METRICS_CERTFILE": str(certificate)}) == (True, "yes")


def test_where_nothing_listens_nothing_is_alive() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    alive, said = health.status({"TRUEUP_METRICS_PORT": str(port)})
    assert not alive
    assert "refused" in said


def test_what_listens_and_speaks_something_else_is_not_alive() -> None:
    with serving(alive=True) as environment:
        alive, _ = health.status({**environment, "TRUEUP_METRICS_CERTFILE": "a certificate that the server has not"})
    assert not alive


def test_status_is_what_the_shell_sees(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for alive in (True, False):
        with serving(alive=alive) as environment:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            assert health.main() == (0 if alive else 1)
            assert capsys.readouterr().out == ("yes\n" if alive else "no\n")


def test_several_are_well_if_each_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("TRUEUP_METRICS_PORT", raising=False)
    with serving(alive=True) as one, serving(alive=True) as two, serving(alive=False) as dead:
        first, second, third = (each["TRUEUP_METRICS_PORT"] for each in (one, two, dead))
        assert health.main(["/healthz", first, second]) == 0
        assert health.main(["/healthz", first, third]) == 1
        assert capsys.readouterr().out == "yes\nyes\nyes\nno\n"
        assert health.main(["/readyz", first]) == 1
        assert capsys.readouterr().out == "no: busy\n"


def test_it_looks_where_a_worker_listens_that_was_told_nothing() -> None:
    defaults = {field.name: field.default for field in fields(Settings)}
    assert (defaults["metrics_host"], defaults["metrics_port"]) == (health.HOST, health.PORT)
