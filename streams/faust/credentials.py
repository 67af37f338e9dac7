"""How the worker signs in to the brokers, as Faust asks for it."""

from faust import auth
from faust.types.auth import CredentialsT

from streams.kafka.security import KERBEROS, Security


def credentials(security: Security) -> CredentialsT | None:
    """Return what `Security.client_options` says, as Faust's credentials."""
    context = security.context
    if not security.sasl:
        return auth.SSLCredentials(context=context) if context else None
    if security.tokens is not None:
        return auth.OAuthCredentials(oauth_cb=security.tokens, ssl_context=context)
    if security.mechanism == KERBEROS:
        return auth.GSSAPICredentials(
            kerberos_service_name=security.service,
            kerberos_domain_name=security.kerberos_domain,
            ssl_context=context,
        )
    return auth.SASLCredentials(
        username=security.username, password=security.password, mechanism=security.mechanism, ssl_context=context
    )
