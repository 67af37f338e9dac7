"""Who may read a worker's metrics and pages: by password, by TLS, and never a secret in the clear."""

import base64
import socket
import ssl
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import pytest
import trustme

from agents import server as servers
from streams.config.settings import Settings, SettingsError
from streams.kafka.security import Access
from tests.agents.serving import HOST, asked, get, serving

PASSWORD = "rd-9Vb4secret:with:colons"  # noqa: S105 - of a server that lives as long as a test
KNOWN = Access(username="prometheus", password=PASSWORD)


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let a wrong password cost nothing, and return what it would have cost."""
    times: list[float] = []
    monkeypatch.setattr(servers, "sleep", times.append)
    return times


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


RIGHT = basic("prometheus", PASSWORD)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Basic",
        "Basic ====",
        "Bearer " + RIGHT.split()[1],
        RIGHT.lower(),
        RIGHT[:-1],
        RIGHT + "A",
        basic("prometheus", ""),
        basic("other", PASSWORD),
        "Basic \xff\xfe",
        "x" * 60_000,
    ],
)
def test_without_the_password_only_the_probes_answer(given: str) -> None:
    with serving(access=KNOWN) as server:
        for path in ("/metrics", "/", "/api/streams", "/nowhere"):
            assert get(server, path, Authorization=given).status == 401
        for path in ("/healthz", "/readyz"):
            assert get(server, path, Authorization=given).status == 200


def test_passwords_are_compared_by_digest_and_the_scheme_may_be_written_in_any_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("hmac.compare_digest", compare)
    for given in ("", RIGHT, "x" * 1000, *(f"{scheme} {RIGHT.split()[1]}" for scheme in ("basic", "BASIC"))):
        assert KNOWN.admits(given) == (len(given) == len(RIGHT))
    assert {len(each) for pair in compared for each in pair} == {32}


def test_metrics_are_served_by_https_and_a_reader_that_says_nothing_holds_up_nobody(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    authority, path, context = trustme.CA(), tmp_path / "server.pem", ssl.create_default_context()
    authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(path)
    authority.configure_trust(context)

    def status(authorization: str, trusting: ssl.SSLContext = context) -> int:
        connection = HTTPSConnection(HOST, server.port, timeout=60, context=trusting)
        return asked(connection, "/metrics", Authorization=authorization).status

    access = Access(certfile=str(path), username="prometheus", password=PASSWORD)
    with serving(access=access) as server, socket.create_connection((HOST, server.port)):  # whose handshake never comes
        assert [status(each) for each in ("", RIGHT)] == [401, 200]
        with pytest.raises(ssl.SSLError):
            status(RIGHT, ssl.create_default_context())
        with pytest.raises(OSError, match=r"reset|without response|timed out"):
            asked(HTTPConnection(HOST, server.port, timeout=60), "/healthz")
    assert capfd.readouterr().err == ""


def test_wrong_passwords_are_counted_slowed_and_logged_now_and_then(
    slept: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(access=KNOWN) as server:
        for given in ("", basic("prometheus", "wrong"), "Bearer x", RIGHT, basic("other", "wrong")):
            get(server, "/metrics", Authorization=given)
        assert server.failed_logins == 3
    assert slept == [servers.WRONG_SECONDS] * 3
    assert caplog.messages == [f"a wrong name or password for the metrics from {HOST}; 1 in all"]


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"USERNAME": "a"}, "belong together"),
        ({"PASSWORD": PASSWORD}, "belong together"),
        ({"USERNAME": "a:b", "PASSWORD": PASSWORD}, "must not hold a colon"),
        ({"KEYFILE": "key.pem"}, "TRUEUP_METRICS_CERTFILE is not"),
        ({"HOST": "0.0.0.0", "USERNAME": "a", "PASSWORD": PASSWORD}, "would go in the clear"),  # noqa: S104 - refused
        ({"PASSWORD": PASSWORD, "PASSWORD_FILE": "/x"}, "set one of them"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(environment: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says) as raised:
        Settings.from_env({f"TRUEUP_METRICS_{name}": value for name, value in environment.items()})
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize(
    ("host", "loopback"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False)]
)
def test_only_loopback_is_loopback(host: str, *, loopback: bool) -> None:
    assert Settings(metrics_host=host).on_loopback == loopback


@pytest.mark.parametrize("content", ["", "\n", "one\ntwo\n", "x" * 17_000])
def test_a_secrets_file_holds_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "password"
    path.write_text(content)
    with pytest.raises(SettingsError, match=r"must hold one line|longer than"):
        Settings.from_env({"TRUEUP_METRICS_USERNAME": "a", "TRUEUP_METRICS_PASSWORD_FILE": str(path)})
    path.write_text("secret\r\n")
    settings = Settings.from_env({"TRUEUP_METRICS_USERNAME": "a", "TRUEUP_METRICS_PASSWORD_FILE": str(path)})
    assert settings.access.password == "secret"  # noqa: S105 - of no system
