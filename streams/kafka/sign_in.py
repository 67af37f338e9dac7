"""SASL mechanisms without a password: tokens (OAUTHBEARER, RFC 7628) and Kerberos tickets (GSSAPI).

A token is given directly, read from a file, or printed by a command. Each new connection gets a valid token.
"""

import asyncio
import base64
import binascii
import json
import re
import shlex
import subprocess
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf
from time import monotonic, time
from typing import Any, Final, cast

from aiokafka import conn
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

#: Syntax of a token (RFC 6750, b64token).
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
#: Longest wait for a command, s.
COMMAND_SECONDS: Final = 10.0
#: Assumed life of a token that does not say when it expires, s. After it, a connection asks for a new token.
OPAQUE_SECONDS: Final = 60.0
#: Shortest life of a connection, s.
RETRY_SECONDS: Final = 1.0
#: Share of its life after which a token is replaced, as by Kafka's own clients (sasl.login.refresh.window.factor).
REFRESH: Final = 0.8


class SignInError(KafkaError):  # type: ignore[misc]  # aiokafka ships no type hints
    """There is no token or no ticket; the message says what to do."""


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka ships no type hints
    """Gives aiokafka's clients a token for each connection, in any thread.

    Raises ValueError if ``command`` cannot be read, or names no program.

    ``given``: returns the present token; None: use ``command``.
    ``command``: prints the token. It runs now and after 4/5 of the token's life, without a shell, and may take
    `COMMAND_SECONDS` at most.
    ``extensions``: SASL extensions that are sent with the token.
    """

    def __init__(
        self, given: Callable[[], str | None], command: str | None = None, extensions: dict[str, str] | None = None
    ) -> None:
        self._given = given
        try:
            self._command = shlex.split(command or "")
        except ValueError as exc:
            raise ValueError(f"TRUEUP_SASL_TOKEN_COMMAND cannot be read as a command: {exc}") from None
        if command and not self._command:
            raise ValueError("TRUEUP_SASL_TOKEN_COMMAND names no program")
        self._extensions = dict(extensions or {})
        self._lock = threading.Lock()
        self._kept, self._until = "", 0.0

    async def token(self) -> str:
        """Return a token. Raises SignInError if there is none."""
        return await asyncio.to_thread(self._now)

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions by name."""
        return self._extensions

    @property
    def connection_seconds(self) -> float:
        """How long a connection may last with the present token before it is replaced, s.

        Brokers may end a connection with its token, even during a request (KIP-368). If a file still has a token that
        should have been replaced, the connection lasts for half of the token's remaining life.
        """
        end = _end(self._kept)
        return inf if end is None else max(self._until - monotonic(), (end - time()) / 2, RETRY_SECONDS)

    @property
    def told(self) -> str:
        """The claims of the last token, for people; empty if it is not a JWT."""
        return told(self._kept)

    def _now(self) -> str:
        with self._lock:
            if (given := self._given()) is not None:
                self._keep(given, "TRUEUP_SASL_TOKEN (or _FILE)")
            elif monotonic() >= self._until:
                self._keep(self._asked(), "the output of TRUEUP_SASL_TOKEN_COMMAND")
            return self._kept

    def _keep(self, token: str, origin: str) -> None:
        if not _TOKEN.fullmatch(token):
            raise SignInError(f"{origin} is not a token: it must be one line of letters, digits and -._~+/=")
        end = _end(token)
        if end is not None and end <= time():
            # Brokers would accept it for a few more seconds, and then end the connection at once.
            raise SignInError(f"{origin} is a token that {_when(end)}: renew it, or set the clock of this machine")
        if token != self._kept:
            fresh = OPAQUE_SECONDS if end is None else (end - time()) * REFRESH
            self._kept, self._until = token, monotonic() + fresh

    def _asked(self) -> str:
        name = f"TRUEUP_SASL_TOKEN_COMMAND={self._command[0]}"
        try:
            ended = subprocess.run(  # noqa: S603 - the operator's own command, without a shell
                self._command, capture_output=True, stdin=subprocess.DEVNULL, timeout=COMMAND_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise SignInError(f"{name} did not end in {COMMAND_SECONDS:g} s") from None
        except OSError as exc:
            raise SignInError(f"{name} cannot be run: {exc.strerror}") from None
        if ended.returncode:
            said = ended.stderr.decode(errors="replace").strip().splitlines()
            raise SignInError(f"{name} ended with status {ended.returncode}" + (f": {said[-1][:200]}" if said else ""))
        return ended.stdout.decode(errors="replace").strip()


class TokenExchange(conn.OAuthAuthenticator):  # type: ignore[misc]  # aiokafka ships no type hints
    """One sign-in by a token.

    A broker refuses a token with a message. Sign-in fails only after the client has answered (RFC 7628, 3.2.3).
    aiokafka takes the message for success, and then its requests get no answer.
    """

    async def step(self, said: bytes | None) -> tuple[bytes, bool] | None:
        """Return the next bytes to send and whether they get an answer; None at the end."""
        return (b"\x01", True) if said else cast("tuple[bytes, bool] | None", await super().step(said))


class TicketExchange(conn.SaslGSSAPIAuthenticator):  # type: ignore[misc]  # as above
    """One sign-in by a Kerberos ticket. An error of Kerberos counts as a connection error, which is tried again."""

    async def step(self, said: bytes | None) -> tuple[bytes, bool] | None:
        """Return the next bytes to send and whether they get an answer; None at the end."""
        try:
            return cast("tuple[bytes, bool] | None", await super().step(said))
        except conn.gssapi.exceptions.GSSError as exc:
            raise SignInError(
                f"no Kerberos ticket for the brokers: {exc}; run kinit, or set KRB5_CLIENT_KTNAME to a keytab, and "
                "check TRUEUP_SASL_KERBEROS_SERVICE and TRUEUP_SASL_KERBEROS_DOMAIN"
            ) from exc


conn.OAuthAuthenticator, conn.SaslGSSAPIAuthenticator = TokenExchange, TicketExchange


def claims(token: str) -> dict[str, Any]:
    """Return the claims of a JWT (RFC 7519), without verifying them; empty if it is not a JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def told(token: str) -> str:
    """Return a token's subject, audience and expiry, for people; empty if it is not a JWT."""
    found = claims(token)
    said = [f"{name} {found[claim]}" for name, claim in (("subject", "sub"), ("issuer", "iss")) if found.get(claim)]
    if audience := found.get("aud"):
        said.append(f"audience {', '.join(map(str, audience)) if isinstance(audience, list) else audience}")
    if (end := _end(token)) is not None:
        said.append(_when(end))
    return ", ".join(said)


def _end(token: str) -> float | None:
    """Return when a JWT expires, s since 1970; None if it does not say, or says a time after the year 9999."""
    value = claims(token).get("exp")
    return float(value) if isinstance(value, int | float) and 0 <= value < 253_402_300_800 else None


def _when(end: float) -> str:
    return f"{'ended' if end <= time() else 'ends'} {datetime.fromtimestamp(end, UTC):%Y-%m-%dT%H:%M:%SZ}"
