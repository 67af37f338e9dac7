"""When a token is asked for again, and what is said if there is none."""

import asyncio
import base64
import importlib.util
import json
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from aiokafka import conn

from streams.config.settings import Settings, SettingsError
from streams.kafka.sign_in import SignInError, Tokens, told


def jwt(seconds: float, **claims: object) -> str:
    body = json.dumps({"exp": time.time() + seconds, **claims}).encode()
    return f"e30.{base64.urlsafe_b64encode(body).decode().rstrip('=')}.c2ln"


def counted(path: Path, token: str) -> str:
    """Return a command that prints a token and counts in a file how often it ran."""
    return f"sh -c 'echo once >> {path}; echo {token}'"


@pytest.mark.parametrize(("seconds", "runs"), [(3600, 1), (60, 2), (None, 2)])
def test_a_command_is_run_again_only_when_four_fifths_of_the_life_of_its_token_are_over(
    tmp_path: Path, seconds: float | None, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "opaque" if seconds is None else jwt(seconds)
    tokens = Tokens(lambda: None, counted(tmp_path / "runs", token))
    now = time.monotonic()
    for later in (0, 40, 62):  # a token that does not say when it ends is asked for again after a minute
        monkeypatch.setattr("streams.kafka.sign_in.monotonic", lambda at=now + later: at)
        assert asyncio.run(tokens.token()) == token
    assert (tmp_path / "runs").read_text().count("once") == runs


def test_a_file_is_read_for_each_connection(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    security = Settings.from_env(
        {
            "TRUEUP_SECURITY_PROTOCOL": "SASL_SSL",
            "TRUEUP_SASL_MECHANISM": "OAUTHBEARER",
            "TRUEUP_SASL_TOKEN_FILE": str(path),
            "TRUEUP_SASL_EXTENSIONS": "logicalCluster=lkc-1, identityPoolId=pool-2",
        }
    ).security
    tokens = security.client_options()["sasl_oauth_token_provider"]
    assert asyncio.run(tokens.token()) == "first"
    path.write_text("second\n")
    assert asyncio.run(tokens.token()) == "second"
    path.unlink()
    assert asyncio.run(tokens.token()) == "second"
    assert tokens.extensions() == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("false", "TRUEUP_SASL_TOKEN_COMMAND=false ended with status 1"),
        ("/no/such/program --now", "=/no/such/program cannot be run: No such file or directory"),
        ("echo two words", "is not a token: it must be one line"),
        ("true", "is not a token: it must be one line"),
    ],
)
def test_no_token_says_which_command_to_look_at(command: str, says: str) -> None:
    with pytest.raises(SignInError) as raised:
        asyncio.run(Tokens(lambda: None, command).token())
    assert says in str(raised.value)


def test_odd_claims_of_a_token_are_told_or_left_out() -> None:
    def token(payload: str) -> str:
        return f"h.{base64.urlsafe_b64encode(payload.encode()).decode().rstrip('=')}.s"

    assert told(token('{"aud": [1, "kafka"]}')) == "audience 1, kafka"
    assert told(token("[" * 9000)) == ""


OAUTH = {"SASL_MECHANISM": "OAUTHBEARER"}
SCRAM = {"SASL_USERNAME": "worker", "SASL_PASSWORD": "pw-3Qn6secret"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (OAUTH, "OAUTHBEARER needs a token: set TRUEUP_SASL_TOKEN_FILE"),
        ({**OAUTH, "SASL_TOKEN": "a", "SASL_TOKEN_COMMAND": "b"}, "and only one of them"),
        ({**OAUTH, "SASL_TOKEN": "a", "SASL_EXTENSIONS": "auth=x"}, "TRUEUP_SASL_EXTENSIONS must be name=value"),
        ({**OAUTH, "SASL_TOKEN_COMMAND": "   "}, "TRUEUP_SASL_TOKEN_COMMAND names no program"),
        ({**OAUTH, "SASL_TOKEN_COMMAND": "print 'a"}, "TRUEUP_SASL_TOKEN_COMMAND cannot be read as a command: No clos"),
        ({"SASL_MECHANISM": "GSSAPI"}, "TRUEUP_SASL_MECHANISM=GSSAPI needs the Python package gssapi"),
        ({**SCRAM, **OAUTH}, "TRUEUP_SASL_USERNAME is set, but TRUEUP_SASL_MECHANISM=OAUTHBEARER does not use"),
        (
            {**SCRAM, "SASL_TOKEN": "a.b.c"},
            "TRUEUP_SASL_TOKEN is set, but TRUEUP_SASL_MECHANISM=SCRAM-SHA-512 does not",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_and_name_no_secret(
    given: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    environment = {"SECURITY_PROTOCOL": "SASL_SSL", **given}
    with pytest.raises(SettingsError) as raised:
        Settings.from_env({f"TRUEUP_{name}": value for name, value in environment.items()})
    assert says in str(raised.value)
    assert SCRAM["SASL_PASSWORD"] not in str(raised.value)


def test_without_a_ticket_the_message_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class GSSError(Exception):
        pass

    def refuse(*_: object, **__: object) -> None:
        raise GSSError("No Kerberos credentials available")

    # The library needs a compiler and Kerberos' headers; this stands for it as far as a missing ticket goes.
    library = SimpleNamespace(Name=refuse, NameType=MagicMock(), exceptions=SimpleNamespace(GSSError=GSSError))
    monkeypatch.setattr(conn, "gssapi", library)

    async def run() -> None:
        await conn.SaslGSSAPIAuthenticator(loop=asyncio.get_running_loop(), principal="kafka@broker").step(None)

    with pytest.raises(SignInError, match=r"No Kerberos credentials available; run kinit, or set KRB5_CLIENT_KTNAME"):
        asyncio.run(run())
