"""Explains why a broker cannot be used, in one sentence that names the setting to change and contains no secret.

aiokafka says only that it could not bootstrap. So after that error this module asks each broker again, step by step.
"""

import asyncio
import ssl
from typing import Final, NamedTuple

from aiokafka.conn import create_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from streams.config.settings import Settings
from streams.kafka.security import Security
from streams.kafka.sign_in import SignInError

#: Longest wait for the alert after a TLS handshake, s.
ALERT_SECONDS: Final = 2.0
#: OpenSSL's error numbers for a certificate (X509_V_ERR_*): unknown authority, wrong host, not valid now.
_ISSUER, _NAME, _TIME = (2, 18, 19, 20, 21, 24, 27), (62, 64), (9, 10)
#: Errors that trying again does not remove.
_LASTING = (
    ssl.SSLCertVerificationError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
    IllegalSaslStateError,
)


class Reason(NamedTuple):
    """Why brokers cannot be used. ``lasting``: a setting has to change."""

    said: str
    lasting: bool


async def reasons(settings: Settings) -> Reason:
    """Return why brokers cannot be used. Those that can be used are left out."""
    found = [each for each in await asyncio.gather(*(_reason(settings, each) for each in settings.brokers)) if each]
    if found:
        return Reason("; ".join(each.said for each in found), any(each.lasting for each in found))
    brokers = ", ".join(settings.brokers)
    said = f"cannot reach a cluster by {brokers}: they answer, but name no broker; are they starting?"
    return Reason(said, lasting=False)


async def _reason(settings: Settings, broker: str) -> Reason | None:
    host, _, port = broker.rpartition(":")
    try:
        async with asyncio.timeout(settings.request_seconds):
            connection = await create_conn(host.strip("[]"), int(port), **settings.security.client_options())
            try:
                await connection.send(MetadataRequest([]))
            finally:
                connection.close()
    except TimeoutError:
        return Reason(f"cannot reach {broker}: it did not answer in {settings.request_seconds:g} s", lasting=False)
    except (OSError, KafkaError) as exc:
        said = await _said(settings.security, host.strip("[]"), int(port), exc)
        return Reason(f"cannot reach {broker}: {said}", isinstance(exc, _LASTING))
    return None


async def _said(security: Security, host: str, port: int, exc: Exception) -> str:
    match exc:
        case ssl.SSLCertVerificationError():
            said = _untrusted(security, exc)
        case SaslAuthenticationFailed():
            said = _not_admitted(security)
        case SignInError():
            said = f"cannot sign in: {exc.args[0]}"
        case UnsupportedSaslMechanismError():
            said = f"it does not offer TRUEUP_SASL_MECHANISM={security.mechanism}"
        case IllegalSaslStateError():
            said = "it asks for no user name on this port: is it the one for SASL?"
        case KafkaError() | ssl.SSLError() | ConnectionAbortedError() | ConnectionResetError() | BrokenPipeError():
            said = await _closed(security, host, port)
        case OSError():
            said = exc.strerror or str(exc) or type(exc).__name__
        case _:
            said = str(exc)
    return said


def _not_admitted(security: Security) -> str:
    if security.tokens is None:
        given = f"TRUEUP_SASL_USERNAME={security.username}"
        return f"it refuses the user name or the password: check {given} and TRUEUP_SASL_PASSWORD (or _FILE)"
    of = f" ({told})" if (told := security.tokens.told) else ""
    given = "TRUEUP_SASL_TOKEN_COMMAND" if security.token_command else "TRUEUP_SASL_TOKEN (or _FILE)"
    return f"it refuses the token{of}: check {given}, and issuer and audience that the brokers expect"


def _untrusted(security: Security, exc: ssl.SSLCertVerificationError) -> str:
    if exc.verify_code in _ISSUER:
        trusted = f"TRUEUP_SSL_CAFILE={security.cafile}" if security.cafile else "the system's: set TRUEUP_SSL_CAFILE"
        return f"it shows a certificate of an unknown authority; trusted are those of {trusted}"
    if exc.verify_code in _NAME:
        return f"it shows a certificate of another host: {exc.verify_message}"
    if exc.verify_code in _TIME:
        return f"it shows a certificate that is not valid now: {exc.verify_message}"
    return f"it shows a certificate that cannot be trusted: {exc.verify_message}"


async def _closed(security: Security, host: str, port: int) -> str:
    """Return why a broker may have closed a connection.

    In TLS 1.3 the reason comes after the handshake, so only a client that reads on sees it.
    """
    if security.context is None:
        return "it closed the connection: does it speak TLS there? Then set TRUEUP_SECURITY_PROTOCOL to SSL or SASL_SSL"
    try:
        async with asyncio.timeout(ALERT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, ssl=security.context)
            try:
                await reader.read(1)
            finally:
                writer.transport.abort()
    except TimeoutError:
        pass
    except ssl.SSLError as exc:
        if "CERTIFICATE" in (exc.reason or ""):
            wanted = "refuses the certificate of" if security.certfile else "asks for a client's certificate: set"
            return f"it {wanted} TRUEUP_SSL_CERTFILE ({(exc.reason or '').lower().replace('_', ' ')})"
        return f"it does not speak TLS as this client does: {(exc.reason or str(exc)).lower().replace('_', ' ')}"
    except OSError:
        return f"it does not speak TLS there: is TRUEUP_SECURITY_PROTOCOL={security.protocol} that of this port?"
    if security.protocol == "SSL":
        return (
            "it closed the connection after the handshake: does it ask for a user? Then set SASL_SSL and TRUEUP_SASL_*"
        )
    return "it closed the connection after the handshake"
