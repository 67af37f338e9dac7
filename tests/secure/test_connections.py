"""TLS, client certificates and SCRAM on a real broker: what connects serves, what does not says why."""

import asyncio
import base64
import logging
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import cli.main
from agents.worker import MISCONFIGURED
from streams.config.settings import Settings
from streams.kafka import topics
from streams.kafka.topics import TopicsError
from tests.e2e.world import World
from tests.events import mixed
from tests.forks import ended
from tests.night import by_night
from tests.secure.certificates import KEY_PASSWORD
from tests.secure.fortress import PASSWORDS, WORKER, Fortress

MakeWorld = Callable[..., World]
WRONG = "wr-3Qn6secret"


def assert_keeps_secrets(text: str) -> None:
    """Fail if a secret stands in the text, plain or as base64."""
    for secret in (*PASSWORDS.values(), KEY_PASSWORD, WRONG):
        assert secret not in text
        assert base64.b64encode(secret.encode()).decode().rstrip("=") not in text


# -- what connects -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["SCRAM-SHA-256 by file", "client certificate", "token by command"])
def test_a_worker_serves_from_end_to_end(world: MakeWorld, stronghold: Fortress, tmp_path: Path, way: str) -> None:
    w = world(partitions=2)
    if way == "client certificate":
        settings = stronghold.mutual()
    elif way == "token by command":
        (tmp_path / "token").write_text(stronghold.issuer.token(WORKER))
        settings = stronghold.with_token(TRUEUP_SASL_TOKEN_COMMAND=f"cat {tmp_path / 'token'}")
    else:
        settings = stronghold.as_user(TRUEUP_SASL_MECHANISM=way.split(maxsplit=1)[0])
        secret = tmp_path / "password"
        secret.write_text(settings.pop("TRUEUP_SASL_PASSWORD") + "\n")
        settings["TRUEUP_SASL_PASSWORD_FILE"] = str(secret)
    made = mixed(300)
    w.send(made.sent)
    with w.worker(TRUEUP_LOG_LEVEL="DEBUG", **settings) as worker:
        w.wait_until_applied(len(made.sent))
        metrics = worker.get("/metrics")[1]
        assert worker.stop() == 0
    w.judge()
    assert_keeps_secrets(worker.printed + metrics)
    # The other programs come through the same door, whichever it is.
    for command in (["topics", "check"], ["streams", "list", "--json"]) if by_night() or "token" in way else ():
        ended = run(*command, **{**w.environment, **settings})
        assert ended.returncode == 0, ended.stderr
        assert_keeps_secrets(ended.stdout + ended.stderr)


# -- what does not -------------------------------------------------------------------------------------------------

Case = tuple[str, Callable[[Fortress], dict[str, str]], str]
REFUSED: list[Case] = [
    ("wrong password", lambda f: f.as_user(TRUEUP_SASL_PASSWORD=WRONG), "refuses the user name or the password"),
    ("unknown user", lambda f: f.as_user(TRUEUP_SASL_USERNAME="nobody"), "TRUEUP_SASL_USERNAME=nobody"),
    ("other mechanism", lambda f: f.as_user(TRUEUP_SASL_MECHANISM="PLAIN"), "does not offer TRUEUP_SASL_MECHANISM"),
    (
        "token for others",
        lambda f: f.with_token(TRUEUP_SASL_TOKEN=f.issuer.token(WORKER, aud="others")),
        "refuses the token (subject worker, issuer https://issuer.trueup.test, audience others, ends 2",
    ),
    (
        "token that ended",
        lambda f: f.with_token(TRUEUP_SASL_TOKEN=f.issuer.token(WORKER, -1)),
        "cannot sign in: TRUEUP_SASL_TOKEN (or _FILE) is a token that ended 2",
    ),
    (
        "token that nobody gives",
        lambda f: f.with_token(TRUEUP_SASL_TOKEN_COMMAND="sh -c 'echo no route to the issuer >&2; exit 3'"),  # noqa: S106 - a command
        "TRUEUP_SASL_TOKEN_COMMAND=sh ended with status 3: no route to the issuer",
    ),
    (
        "unknown authority",
        lambda f: f.as_user(TRUEUP_SSL_CAFILE=str(f.certificates.stranger)),
        "a certificate of an unknown authority; trusted are those of TRUEUP_SSL_CAFILE=",
    ),
    ("the system's authorities", lambda f: f.over_tls(f.tls) | {"TRUEUP_SSL_CAFILE": SYSTEM}, "set TRUEUP_SSL_CAFILE"),
    ("no client certificate", lambda f: f.over_tls(f.mtls), "asks for a client's certificate: set TRUEUP_SSL_CERTFILE"),
    ("another host's certificate", lambda f: f.over_tls(f.elsewhere), "certificate is not valid for '127.0.0.1'"),
    ("SASL where there is no TLS", lambda f: f.as_user(TRUEUP_BROKERS=f.naked), "does not speak TLS there"),
    ("SASL where nobody asks", lambda f: f.as_user(TRUEUP_BROKERS=f.tls), "asks for no user name on this port"),
    ("TLS where SASL is wanted", lambda f: f.over_tls(f.sasl), "does it ask for a user? Then set SASL_SSL"),
    ("TLS where there is none", lambda f: f.over_tls(f.open), "does not speak TLS there"),
    (
        "a file that is not there",
        lambda f: f.as_user(TRUEUP_SSL_CAFILE="/no.pem"),
        "TRUEUP_SSL_CAFILE=/no.pem: No such",
    ),
    ("plain text where TLS is", lambda f: {"TRUEUP_BROKERS": f.tls}, "set TRUEUP_SECURITY_PROTOCOL to SSL or SASL_SSL"),
]
#: Stands for no file at all: a mark in a dictionary of texts.
SYSTEM = ""


# aiokafka leaves the socket of a TLS connection that the broker closed to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("settings", "says"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_cannot_connect_says_which_setting_to_change(
    stronghold: Fortress,
    caplog: pytest.LogCaptureFixture,
    settings: Callable[[Fortress], dict[str, str]],
    says: str,
) -> None:
    environment = {name: value for name, value in settings(stronghold).items() if value != SYSTEM}
    with caplog.at_level(logging.DEBUG), pytest.raises(TopicsError) as raised:
        asyncio.run(asyncio.wait_for(topics.check(Settings.from_env(environment)), 30))
    message = str(raised.value)
    assert message.startswith((f"cannot reach {environment['TRUEUP_BROKERS']}: ", "cannot load "))
    assert says in message
    # Not even the client's own debug log, which no setting of trueup turns on, holds a secret.
    assert_keeps_secrets(message + caplog.text)


@pytest.mark.parametrize("password", [None, WRONG])
def test_an_encrypted_key_without_its_password_is_refused_and_nobody_is_asked(
    stronghold: Fortress, password: str | None
) -> None:
    settings = stronghold.mutual()
    del settings["TRUEUP_SSL_KEY_PASSWORD"]
    if password:
        settings["TRUEUP_SSL_KEY_PASSWORD"] = password
    # A process of its own: OpenSSL would ask its terminal.
    ended = run("topics", "check", **settings)
    assert ended.returncode == MISCONFIGURED
    assert "need another TRUEUP_SSL_KEY_PASSWORD" in ended.stderr
    assert "pass phrase" not in ended.stderr
    assert_keeps_secrets(ended.stderr)


@pytest.mark.parametrize("command", ["run worker", "topics check", "topics create", "streams list"])
def test_every_program_ends_with_the_documented_status_and_no_traceback(stronghold: Fortress, command: str) -> None:
    ended = run(*command.split(), **stronghold.as_user(TRUEUP_SASL_PASSWORD=WRONG, TRUEUP_LOG_LEVEL="DEBUG"))
    assert ended.returncode == MISCONFIGURED
    assert "refuses the user name or the password" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert_keeps_secrets(ended.stdout + ended.stderr)


def test_a_broker_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = Settings.from_env({"TRUEUP_BROKERS": at, "TRUEUP_REQUEST_SECONDS": "0.5"})
        with pytest.raises(TopicsError, match=r"it did not answer in 0\.5 s"):
            asyncio.run(asyncio.wait_for(topics.check(settings), 30))


def test_a_repr_of_the_settings_holds_no_secret(stronghold: Fortress) -> None:
    for environment in (stronghold.as_user(), stronghold.mutual()):
        assert_keeps_secrets(repr(Settings.from_env(environment)))


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return ended(cli.main.main, arguments, {**os.environ, **settings})
