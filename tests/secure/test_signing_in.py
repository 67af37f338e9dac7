"""Tokens, and certificates and passwords that are renewed while programs run, on a real broker."""

import asyncio
import shutil
from pathlib import Path

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest

from streams.config.settings import Settings
from streams.faust.client import hasten
from streams.faust.contact import Contact
from streams.kafka import topics
from streams.kafka.sign_in import Tokens
from tests.secure.fortress import OPERATOR, PASSWORDS, WORKER, Fortress


def test_a_connection_is_replaced_once_its_token_is_due(stronghold: Fortress) -> None:
    class Counting(Tokens):
        """Tokens of which the first two are due at once, and the third is not."""

        asked = 0

        async def token(self) -> str:
            self.asked += 1
            return await super().token()

        @property
        def connection_seconds(self) -> float:
            return 0.0 if self.asked < 3 else 3600.0

    async def run() -> list[int]:
        options = Settings.from_env(stronghold.with_token()).security.client_options()
        tokens = Counting(lambda: stronghold.issuer.token(OPERATOR))
        options["sasl_oauth_token_provider"] = tokens
        client = AIOKafkaClient(bootstrap_servers=stronghold.sasl, **options)
        hasten(client, 5.0, Contact(()))
        asked = []
        try:
            await client.bootstrap()
            for _ in range(4):
                await client.send(client.get_random_node(), MetadataRequest([]))
                asked.append(tokens.asked)
        finally:
            await client.close()
        return asked

    assert asyncio.run(run()) == [2, 3, 3, 3]


def test_without_tls_a_user_is_admitted_too_and_a_worker_warns(stronghold: Fortress) -> None:
    of = Settings.from_env(
        {
            "TRUEUP_BROKERS": stronghold.naked,
            "TRUEUP_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "TRUEUP_SASL_MECHANISM": "OAUTHBEARER",
            "TRUEUP_SASL_TOKEN": stronghold.issuer.token(OPERATOR),
        }
    )
    assert all("do not exist" in each for each in asyncio.run(topics.check(of)))
    assert "in the clear, the token too; use SASL_SSL" in of.security.exposed


@pytest.mark.parametrize("what", ["password", "certificate"])
def test_what_is_renewed_is_used_by_the_next_connection_of_the_same_client(
    stronghold: Fortress, tmp_path: Path, what: str
) -> None:
    own = stronghold.certificates
    if what == "password":
        path, stale, fresh = tmp_path / "password", "old-4Lw1secret", PASSWORDS[WORKER]
        path.write_text(stale)
        settings = stronghold.as_user()
        del settings["TRUEUP_SASL_PASSWORD"]
        settings["TRUEUP_SASL_PASSWORD_FILE"] = str(path)
    else:
        path, fresh = tmp_path / "authority.pem", own.authority.read_text()
        shutil.copy(own.stranger, path)
        settings = stronghold.mutual() | {"TRUEUP_SSL_CAFILE": str(path)}

    async def run() -> None:
        security = Settings.from_env(settings).security
        client = AIOKafkaClient(bootstrap_servers=settings["TRUEUP_BROKERS"], **security.client_options())
        hasten(client, 5.0, Contact(()))
        try:
            with pytest.raises(KafkaConnectionError):
                await client.bootstrap()
            path.write_text(fresh)
            await client.bootstrap()
        finally:
            await client.close()

    asyncio.run(run())
