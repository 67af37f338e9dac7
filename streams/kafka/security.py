"""TLS, passwords, tokens and tickets for the brokers, and TLS and passwords of the HTTP server.

All of them come from the environment and from files, never from a URL. Files are read again: the next connection uses a
renewed certificate, password or token.
"""

import base64
import hashlib
import hmac
import importlib.util
import ssl
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from streams.config.following_tls import FollowingContext
from streams.config.variables import Secret, now, variable, variable_of
from streams.kafka.sign_in import Tokens

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OAUTH, KERBEROS = "OAUTHBEARER", "GSSAPI"
_PASSWORD, _TOKEN = ("username", "password"), ("token", "token_command", "extensions")
#: The fields of `Security` that each mechanism uses.
MECHANISMS: Final = {
    "PLAIN": _PASSWORD,
    "SCRAM-SHA-256": _PASSWORD,
    "SCRAM-SHA-512": _PASSWORD,
    OAUTH: _TOKEN,
    KERBEROS: ("kerberos_service", "kerberos_domain"),
}


def _either(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


@dataclass(frozen=True)
class Security:
    """Transport security of every connection to the brokers."""

    protocol: str = variable("SECURITY_PROTOCOL", f"{_either(PROTOCOLS)}; PLAINTEXT if not set", "PLAINTEXT")
    mechanism: str = variable(
        "SASL_MECHANISM", f"{_either(tuple(MECHANISMS))}; SCRAM-SHA-512 if not set", "SCRAM-SHA-512"
    )
    username: str | None = variable("SASL_USERNAME", "User name of PLAIN and SCRAM")
    password: str | None = variable("SASL_PASSWORD", "Its password", in_file="its password")
    token: str | None = variable("SASL_TOKEN", "Token of OAUTHBEARER", in_file="this token")
    token_command: str | None = variable(
        "SASL_TOKEN_COMMAND", "Program with arguments that prints a token of OAUTHBEARER; it is run again in time"
    )
    extensions: str | None = variable(
        "SASL_EXTENSIONS", "What brokers want beside a token: name=value, several with commas"
    )
    kerberos_service: str | None = variable(
        "SASL_KERBEROS_SERVICE", "Service of the brokers' principals for GSSAPI; kafka if not set"
    )
    kerberos_domain: str | None = variable(
        "SASL_KERBEROS_DOMAIN", "Host of their principals; each broker's own if not set"
    )
    cafile: str | None = variable("SSL_CAFILE", "Authorities to trust, PEM; the system's if not set")
    certfile: str | None = variable("SSL_CERTFILE", "The client's certificate, PEM, for mutual TLS")
    keyfile: str | None = variable("SSL_KEYFILE", "Its key, PEM")
    key_password: str | None = variable("SSL_KEY_PASSWORD", "The key's password", in_file="the key's password")

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"TRUEUP_SECURITY_PROTOCOL must be one of {', '.join(PROTOCOLS)}, got {self.protocol!r}")
        if self.mechanism not in MECHANISMS:
            raise ValueError(f"TRUEUP_SASL_MECHANISM must be one of {', '.join(MECHANISMS)}, got {self.mechanism!r}")
        self._check_sasl()
        if not self.tls and (self.cafile or self.certfile or self.keyfile or self.key_password):
            raise ValueError(
                f"certificates are set, but TRUEUP_SECURITY_PROTOCOL is {self.protocol}: set it to SSL or SASL_SSL"
            )
        if (self.keyfile or self.key_password) and not self.certfile:
            raise ValueError("a key is set, but TRUEUP_SSL_CERTFILE is not")

    def _check_sasl(self) -> None:
        """Refuse settings that the mechanism does not use, and require those that it needs."""
        used = MECHANISMS[self.mechanism] if self.sasl else ()
        for name in {each: None for fields in MECHANISMS.values() for each in fields}:
            if getattr(self, name) and name not in used:
                unused = f"{variable_of(Security, name)} is set, but"
                if not self.sasl:
                    raise ValueError(f"{unused} TRUEUP_SECURITY_PROTOCOL is {self.protocol}: set it to SASL_SSL")
                raise ValueError(f"{unused} TRUEUP_SASL_MECHANISM={self.mechanism} does not use it")
        if used == _PASSWORD and not (self.username and self.password):
            raise ValueError(f"{self.protocol} needs TRUEUP_SASL_USERNAME and TRUEUP_SASL_PASSWORD (or _FILE)")
        if used == _TOKEN and bool(self.token) == bool(self.token_command):
            raise ValueError(
                "OAUTHBEARER needs a token: set TRUEUP_SASL_TOKEN_FILE (or TRUEUP_SASL_TOKEN), or "
                "TRUEUP_SASL_TOKEN_COMMAND, and only one of them"
            )
        _ = self.tokens
        if self.sasl and self.mechanism == KERBEROS and importlib.util.find_spec("gssapi") is None:
            raise ValueError(
                "TRUEUP_SASL_MECHANISM=GSSAPI needs the Python package gssapi, which is not installed here: "
                "`pip install gssapi`, beside the libraries of MIT Kerberos"
            )

    @property
    def sasl(self) -> bool:
        """Whether the connection uses SASL."""
        return self.protocol.startswith("SASL_")

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def exposed(self) -> str:
        """What others on the network can read, in words; empty unless users sign in without TLS."""
        if self.protocol != "SASL_PLAINTEXT":
            return ""
        secret = {"PLAIN": ", the password too", OAUTH: ", the token too"}.get(self.mechanism, "")
        return (
            f"TRUEUP_SECURITY_PROTOCOL=SASL_PLAINTEXT: everything goes to the brokers in the clear{secret}; use "
            "SASL_SSL unless nobody else can listen on this network"
        )

    @cached_property
    def tokens(self) -> Tokens | None:
        """The source of the clients' tokens; None without OAUTHBEARER."""
        if not self.sasl or self.mechanism != OAUTH:
            return None
        return Tokens(lambda: now(self.token), self.token_command, self._named_extensions)

    @property
    def _named_extensions(self) -> dict[str, str]:
        found = {}
        for each in (self.extensions or "").split(",") if self.extensions else ():
            name, equals, value = each.strip().partition("=")
            if not (name.isalpha() and name.isascii() and equals and value.isprintable()) or name.lower() == "auth":
                raise ValueError(f"TRUEUP_SASL_EXTENSIONS must be name=value, several with commas, got {each!r}")
            found[name] = value
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Leave out TLS context and tokens. They cannot be sent to another process, which makes its own."""
        return {name: value for name, value in self.__dict__.items() if name not in ("context", "tokens")}

    @cached_property
    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context, which verifies names and certificates; None without TLS.

        Raises ValueError if a file cannot be read or has the wrong content.
        """
        if not self.tls:
            return None
        secret = str(self.key_password.path) if isinstance(self.key_password, Secret) else None
        return FollowingContext(self._context, (self.cafile, self.certfile, self.keyfile, secret))

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.cafile)
        except OSError as exc:  # includes ssl.SSLError
            raise ValueError(f"cannot load TRUEUP_SSL_CAFILE={self.cafile}: {_said(exc)}") from exc
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certfile:
            try:
                # Without a function, OpenSSL asks for the password of an encrypted key on the terminal, and waits.
                context.load_cert_chain(self.certfile, self.keyfile, lambda: now(self.key_password) or "")
            except OSError as exc:
                files = f"TRUEUP_SSL_CERTFILE={self.certfile}" + (f" and {self.keyfile}" if self.keyfile else "")
                raise ValueError(
                    f"cannot load {files}: {_said(exc)}; the key may not be that of the certificate, or need another "
                    "TRUEUP_SSL_KEY_PASSWORD (or _FILE)"
                ) from exc
        return context

    def client_options(self) -> dict[str, Any]:
        """Return the options of aiokafka's clients."""
        options: dict[str, Any] = {"security_protocol": self.protocol, "ssl_context": self.context}
        if not self.sasl:
            return options
        options["sasl_mechanism"] = self.mechanism
        if self.mechanism == OAUTH:
            return options | {"sasl_oauth_token_provider": self.tokens}
        if self.mechanism == KERBEROS:
            return options | {
                "sasl_kerberos_service_name": self.service,
                "sasl_kerberos_domain_name": self.kerberos_domain,
            }
        return options | {"sasl_plain_username": self.username, "sasl_plain_password": now(self.password)}

    @property
    def service(self) -> str:
        """The service of the brokers' principals, for Kerberos."""
        return self.kerberos_service or "kafka"


@dataclass(frozen=True)
class Access:
    """Who may read a worker's metrics and pages, and how the worker proves its identity to them. The probes are open.

    The worker's own name, addresses, and names without a dot are always allowed as host names.
    """

    certfile: str | None = variable("METRICS_CERTFILE", "The worker's certificate, PEM: metrics and pages by HTTPS")
    keyfile: str | None = variable("METRICS_KEYFILE", "Its key, PEM, if not in the same file")
    hosts: str | None = variable(
        "METRICS_NAMES", "Names with a dot by which metrics and pages are asked for; others are refused"
    )
    username: str | None = variable("METRICS_USERNAME", "Who may read metrics and pages; the probes are open")
    password: str | None = variable("METRICS_PASSWORD", "The reader's password", in_file="the reader's password")

    def __post_init__(self) -> None:
        if bool(self.username) != bool(self.password):
            raise ValueError("TRUEUP_METRICS_USERNAME and TRUEUP_METRICS_PASSWORD (or _FILE) belong together")
        if ":" in (self.username or ""):
            raise ValueError("TRUEUP_METRICS_USERNAME must not hold a colon: HTTP ends the name there")
        if self.keyfile and not self.certfile:
            raise ValueError("TRUEUP_METRICS_KEYFILE is set, but TRUEUP_METRICS_CERTFILE is not")

    @cached_property
    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context of the server; None for plain HTTP.

        Raises ValueError if a file cannot be read or has the wrong content.
        """
        if self.certfile is None:
            return None
        return FollowingContext(self._context, (self.certfile, self.keyfile))

    def _context(self) -> ssl.SSLContext:
        certfile = str(self.certfile)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(certfile, self.keyfile, lambda: "")
        except OSError as exc:
            raise ValueError(f"cannot load TRUEUP_METRICS_CERTFILE={certfile}: {_said(exc)}") from exc
        return context

    @property
    def names(self) -> frozenset[str]:
        """The names of ``hosts``."""
        return frozenset(name.strip().lower() for name in (self.hosts or "").split(",") if name.strip())

    def admits(self, authorization: str) -> bool:
        """Return whether the value of an ``Authorization`` header is right. It takes constant time."""
        if self.username is None:
            return True
        given = base64.b64encode(f"{self.username}:{now(self.password)}".encode()).decode()
        # Digests have equal lengths, so the time of the comparison does not reveal the password's length.
        scheme, _, shown = authorization.strip().partition(" ")  # the scheme's name may have any case (RFC 9110)
        said = f"{'Basic' if scheme.lower() == 'basic' else scheme} {shown.strip()}"
        return hmac.compare_digest(_digest(f"Basic {given}"), _digest(said))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()


def _said(exc: OSError) -> str:
    """Return what is wrong with a file, from OpenSSL's message, without its source line."""
    if isinstance(exc, ssl.SSLError):
        return (exc.reason or "not PEM").lower().replace("_", " ")
    return exc.strerror or str(exc)
