"""TLS and passwords for the brokers and for the HTTP server, read from the environment and files, never from a URL."""

import base64
import hashlib
import hmac
import ssl
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import faust
from faust.types.auth import CredentialsT

from streams.config.variables import variable

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Security:
    """Transport security of every connection to the brokers.

    SASL without TLS is not offered: it would send the password in clear text.
    """

    protocol: str = variable("SECURITY_PROTOCOL", "PLAINTEXT, SSL or SASL_SSL; PLAINTEXT if not set", "PLAINTEXT")
    mechanism: str = variable(
        "SASL_MECHANISM", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; SCRAM-SHA-512 if not set", "SCRAM-SHA-512"
    )
    username: str | None = variable("SASL_USERNAME", "User name for SASL_SSL")
    password: str | None = variable("SASL_PASSWORD", "Its password", in_file="its password")
    cafile: str | None = variable("SSL_CAFILE", "Authorities to trust, PEM; the system's if not set")
    certfile: str | None = variable("SSL_CERTFILE", "The client's certificate, PEM, for mutual TLS")
    keyfile: str | None = variable("SSL_KEYFILE", "Its key, PEM")
    key_password: str | None = variable("SSL_KEY_PASSWORD", "The key's password", in_file="the key's password")

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"TRUEUP_SECURITY_PROTOCOL must be one of {', '.join(PROTOCOLS)}, got {self.protocol!r}")
        if self.mechanism not in MECHANISMS:
            raise ValueError(f"TRUEUP_SASL_MECHANISM must be one of {', '.join(MECHANISMS)}, got {self.mechanism!r}")
        if self.protocol == "SASL_SSL" and not (self.username and self.password):
            raise ValueError("SASL_SSL needs TRUEUP_SASL_USERNAME and TRUEUP_SASL_PASSWORD (or _FILE)")
        if self.protocol != "SASL_SSL" and (self.username or self.password):
            raise ValueError(
                f"a user name or a password is set, but TRUEUP_SECURITY_PROTOCOL is {self.protocol}: set it to SASL_SSL"
            )
        if self.protocol == "PLAINTEXT" and (self.cafile or self.certfile or self.keyfile or self.key_password):
            raise ValueError(
                "certificates are set, but TRUEUP_SECURITY_PROTOCOL is PLAINTEXT: set it to SSL or SASL_SSL"
            )
        if (self.keyfile or self.key_password) and not self.certfile:
            raise ValueError("a key is set, but TRUEUP_SSL_CERTFILE is not")

    def __getstate__(self) -> dict[str, Any]:
        """Leave the TLS context out: no other process can be given one, and makes its own."""
        return {name: value for name, value in self.__dict__.items() if name != "context"}

    @cached_property
    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context, which verifies names and certificates; None without TLS.

        Raises
        ------
        ValueError
            If a file cannot be read or is not what it should be.
        """
        if self.protocol == "PLAINTEXT":
            return None
        try:
            context = ssl.create_default_context(cafile=self.cafile)
        except OSError as exc:  # ssl.SSLError is one
            raise ValueError(f"cannot load TRUEUP_SSL_CAFILE={self.cafile}: {_said(exc)}") from exc
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certfile:
            try:
                # Without a function, OpenSSL asks for the password of an encrypted key on the terminal, and waits.
                context.load_cert_chain(self.certfile, self.keyfile, lambda: self.key_password or "")
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
        if self.protocol == "SASL_SSL":
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        return options

    def credentials(self) -> CredentialsT | None:
        """Return the same as Faust's credentials."""
        if self.protocol == "SASL_SSL":
            return faust.SASLCredentials(
                username=self.username,
                password=self.password,
                mechanism=self.mechanism,
                ssl_context=self.context,
            )
        return faust.SSLCredentials(context=self.context) if self.context else None


@dataclass(frozen=True)
class Access:
    """Who may read a worker's metrics and pages, and how the worker proves itself to them. The probes are open.

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

        Raises
        ------
        ValueError
            If a file cannot be read or is not what it should be.
        """
        if self.certfile is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certfile, self.keyfile, lambda: "")
        except OSError as exc:
            raise ValueError(f"cannot load TRUEUP_METRICS_CERTFILE={self.certfile}: {_said(exc)}") from exc
        return context

    @property
    def names(self) -> frozenset[str]:
        """The names of ``hosts``."""
        return frozenset(name.strip().lower() for name in (self.hosts or "").split(",") if name.strip())

    def admits(self, authorization: str) -> bool:
        """Return whether the value of an ``Authorization`` header is right, in constant time."""
        if self.username is None:
            return True
        given = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        # Digests have equal lengths, so the time of the comparison does not show the password's length.
        scheme, _, shown = authorization.strip().partition(" ")  # the scheme's name may have any case (RFC 9110)
        said = f"{'Basic' if scheme.lower() == 'basic' else scheme} {shown.strip()}"
        return hmac.compare_digest(_digest(f"Basic {given}"), _digest(said))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()


def _said(exc: OSError) -> str:
    """Return what is wrong with a file, without the place in OpenSSL's source that OpenSSL names."""
    if isinstance(exc, ssl.SSLError):
        return (exc.reason or "not PEM").lower().replace("_", " ")
    return exc.strerror or str(exc)
