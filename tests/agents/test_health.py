"""The image's health check: alive when the worker says so, in HTTP or HTTPS, and not alive otherwise."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pytest
import trustme

from agents import health
from streams.config.settings import Settings
from streams.kafka.security import Access
from tests.agents.serving import serving


@contextmanager
def probed(*, alive: bool, access: Access | None = None) -> Iterator[dict[str, str]]:
    """Serve a worker's probes, and yield the environment that says where."""
    with serving(bytes, lambda: alive, lambda: "busy", access=access) as server:
        yield {"TRUEUP_METRICS_HOST": "0.0.0.0", "TRUEUP_METRICS_PORT": str(server.port)}  # noqa: S104 - as in the image


def test_a_worker_that_serves_https_for_another_name_is_alive(tmp_path: Path) -> None:
    certificate = tmp_path / "worker.pem"
    trustme.CA().issue_cert("worker-0.trueup").private_key_and_cert_chain_pem.write_to_path(certificate)
    access = Access(certfile=str(certificate), username="reader", password="secret of this test")  # noqa: S106 - made up
    with probed(alive=True, access=access) as environment:
        assert health.status({**environment, "TRUEUP_METRICS_CERTFILE": str(certificate)}) == (True, "yes")


def test_where_nothing_listens_or_speaks_something_else_nothing_is_alive() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    alive, said = health.status({"TRUEUP_METRICS_PORT": str(port)})
    assert not alive
    assert "refused" in said
    with probed(alive=True) as environment:
        assert not health.status({**environment, "TRUEUP_METRICS_CERTFILE": "one that the server has not"})[0]


def test_status_is_what_the_shell_sees_and_several_are_well_if_each_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with probed(alive=True) as one, probed(alive=False) as dead:
        for environment, status, said in ((one, 0, "yes\n"), (dead, 1, "no\n")):
            with monkeypatch.context() as patch:
                for name, value in environment.items():
                    patch.setenv(name, value)
                assert (health.main(), capsys.readouterr().out) == (status, said)
        first, second = (each["TRUEUP_METRICS_PORT"] for each in (one, dead))
        assert health.main(["/healthz", first, first]) == 0
        assert health.main(["/healthz", first, second]) == 1
        assert capsys.readouterr().out == "yes\nyes\nyes\nno\n"
        assert health.main(["/readyz", first]) == 1
        assert capsys.readouterr().out == "no: busy\n"


def test_it_looks_where_a_worker_listens_that_was_told_nothing() -> None:
    defaults = {field.name: field.default for field in fields(Settings)}
    assert (defaults["metrics_host"], defaults["metrics_port"]) == (health.HOST, health.PORT)
