"""A real Apache Kafka with a listener for every way to prove oneself, and an authorizer that denies by default."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest

from lab.broker import Broker
from lab.jvm import HOST, free_port
from streams.kafka.permissions import OPERATIONS
from tests.secure.certificates import KEY_PASSWORD, Certificates
from tests.secure.issuer import AUDIENCE, ISSUER, Issuer
from tests.secure.realm import REALM, Realm

#: The first may do everything; the others what they are granted.
OPERATOR, WORKER, OTHER = "operator", "worker", "other"
#: Long and odd, so that a search for them in logs finds them and nothing else.
PASSWORDS: Final = {OPERATOR: "op-7Kj2secret", WORKER: "wk-5Xv9secret", OTHER: "ot-1Tf4secret"}

#: As the protocol numbers them.
_KINDS: Final = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5}
_OPERATIONS: Final = {**OPERATIONS, "Create": 5}
_LITERAL, _PREFIXED, _ALLOW = 3, 4, 3

LISTENERS: Final = {
    "TLS": "SSL",
    "MTLS": "SSL",
    "ELSEWHERE": "SSL",
    "SASL": "SASL_SSL",
    "NAKED": "SASL_PLAINTEXT",
}


@dataclass(frozen=True)
class Fortress:
    """Where the listeners are, ``host:port`` each; ``open`` asks for nothing and may do everything."""

    open: str
    tls: str
    mtls: str
    elsewhere: str
    sasl: str
    naked: str
    certificates: Certificates
    issuer: Issuer
    #: Where a listener takes tickets, too; None: Kerberos is not installed.
    realm: Realm | None

    def grant(self, kind: str, name: str, operation: str, *, prefixed: bool = False, user: str = WORKER) -> None:
        """Let the user do something; brokers follow in a moment."""
        self._acl(CreateAclsRequest, kind, name, operation, prefixed=prefixed, user=user)

    def revoke(self, kind: str, name: str, operation: str, *, prefixed: bool = False, user: str = WORKER) -> None:
        """Take a grant back; brokers follow in a moment."""
        self._acl(DeleteAclsRequest, kind, name, operation, prefixed=prefixed, user=user)

    def _acl(self, request: Any, kind: str, name: str, operation: str, *, prefixed: bool, user: str) -> None:
        acl = request(
            _KINDS[kind], name, _PREFIXED if prefixed else _LITERAL, f"User:{user}", "*", _OPERATIONS[operation], _ALLOW
        )

        async def run() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.open)
            await admin.start()
            try:
                return await admin._send_request(acl)
            finally:
                await admin.close()

        response = asyncio.run(run())
        results = response.to_object().get("creation_responses") or response.to_object()["filter_responses"]
        assert all(not result["error_code"] for result in results), results

    def over_tls(self, at: str, protocol: str = "SSL", **settings: str) -> dict[str, str]:
        """Return the settings of a program that trusts the authority, at a listener."""
        return {
            "TRUEUP_BROKERS": at,
            "TRUEUP_SECURITY_PROTOCOL": protocol,
            "TRUEUP_SSL_CAFILE": str(self.certificates.authority),
            **settings,
        }

    def mutual(self, **settings: str) -> dict[str, str]:
        """Return the settings of a program that shows a client's certificate."""
        own = {
            "TRUEUP_SSL_CERTFILE": str(self.certificates.client),
            "TRUEUP_SSL_KEYFILE": str(self.certificates.client_key),
            "TRUEUP_SSL_KEY_PASSWORD": KEY_PASSWORD,
        }
        return self.over_tls(self.mtls, **own, **settings)

    def as_user(self, user: str = WORKER, **settings: str) -> dict[str, str]:
        """Return the settings of a program that logs in over TLS."""
        own = {"TRUEUP_SASL_USERNAME": user, "TRUEUP_SASL_PASSWORD": PASSWORDS[user]}
        return self.over_tls(self.sasl, "SASL_SSL", **own | settings)

    def with_token(self, user: str = WORKER, **settings: str) -> dict[str, str]:
        """Return the settings of a program that shows a token over TLS; it takes one of ``TRUEUP_SASL_TOKEN…``."""
        token = settings or {"TRUEUP_SASL_TOKEN": self.issuer.token(user)}
        return self.over_tls(self.sasl, "SASL_SSL", TRUEUP_SASL_MECHANISM="OAUTHBEARER", **token)


def build(certificates: Certificates, directory: Path, realm: Realm | None = None) -> tuple[Broker, Fortress]:
    """Return a broker that is not started, and where its listeners will be."""
    main, *others = _free_ports(1 + len(LISTENERS))
    ports = dict(zip(LISTENERS, others, strict=True))
    directory.mkdir(parents=True)
    issuer = Issuer(directory / "jwks.json")
    keys = issuer.jwks.as_uri()
    java = [f"-D{_ALLOWED}={keys}", *([f"-Djava.security.krb5.conf={realm.config}"] if realm else [])]
    broker = Broker(directory, main, users=PASSWORDS, java=java)
    properties = [*_properties(certificates, ports, main, broker._controller), *_tokens(keys)]
    broker._properties = "\n".join(
        [*properties, *(_tickets(realm) if realm else ["sasl.enabled.mechanisms=" + _MECHANISMS])]
    )
    at = {name.lower(): f"{HOST}:{port}" for name, port in ports.items()}
    return broker, Fortress(open=broker.bootstrap, certificates=certificates, issuer=issuer, realm=realm, **at)


def _free_ports(n: int) -> list[int]:
    ports: set[int] = set()
    while len(ports) < n:
        ports.add(free_port())
    return list(ports)


def _properties(certificates: Certificates, ports: dict[str, int], main: int, controller: int) -> Iterable[str]:
    clients = f"PLAINTEXT://{HOST}:{main}," + ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
    protocols = ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items())
    yield f"listeners={clients},CONTROLLER://{HOST}:{controller}"
    yield f"advertised.listeners={clients}"
    yield f"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{protocols}"
    for name in LISTENERS:
        chain = certificates.elsewhere if name == "ELSEWHERE" else certificates.server
        prefix = f"listener.name.{name.lower()}"
        yield f"{prefix}.ssl.keystore.type=PEM"
        yield f"{prefix}.ssl.keystore.location={chain}"
        yield f"{prefix}.ssl.truststore.type=PEM"
        yield f"{prefix}.ssl.truststore.location={certificates.authority}"
        for mechanism in ("scram-sha-512", "scram-sha-256"):
            yield f"{prefix}.{mechanism}.sasl.jaas.config={_JAAS}"
    yield "listener.name.mtls.ssl.client.auth=required"
    yield "listener.name.mtls.ssl.principal.mapping.rules=RULE:^.*?CN=([^,]+).*$/$1/,DEFAULT"
    yield "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    yield f"super.users=User:ANONYMOUS;User:{OPERATOR}"


def _tokens(keys: str) -> Iterable[str]:
    """Take tokens where users sign in; a session ends with its token, as clusters in the cloud have it."""
    for name in ("sasl", "naked"):
        prefix = f"listener.name.{name}.oauthbearer"
        yield f"{prefix}.sasl.jaas.config={_OAUTH}.OAuthBearerLoginModule required;"
        yield f"{prefix}.sasl.server.callback.handler.class={_OAUTH}.OAuthBearerValidatorCallbackHandler"
        yield f"{prefix}.connections.max.reauth.ms=3600000"
    yield f"sasl.oauthbearer.jwks.endpoint.url={keys}"
    yield f"sasl.oauthbearer.expected.audience={AUDIENCE}"
    yield f"sasl.oauthbearer.expected.issuer={ISSUER}"


def _tickets(realm: Realm) -> Iterable[str]:
    """Take Kerberos tickets where users sign in."""
    yield f"sasl.enabled.mechanisms={_MECHANISMS},GSSAPI"
    yield "sasl.kerberos.service.name=kafka"
    for name in ("sasl", "naked"):
        yield (
            f"listener.name.{name}.gssapi.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required "
            f'useKeyTab=true storeKey=true isInitiator=false keyTab="{realm.keytab("kafka")}" '
            f'principal="kafka/{HOST}@{REALM}";'
        )


_MECHANISMS: Final = "SCRAM-SHA-512,SCRAM-SHA-256,OAUTHBEARER"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
#: Kafka reads keys only from where this property of its JVM allows.
_ALLOWED: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_JAAS: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
