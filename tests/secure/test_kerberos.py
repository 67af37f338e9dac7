"""Kerberos tickets, in a realm of this machine."""

import asyncio
from pathlib import Path

import pytest
from aiokafka.errors import KafkaConnectionError

from streams.config.settings import Settings
from streams.kafka import topics
from streams.kafka.topics import TopicsError
from tests.e2e.world import World
from tests.events import mixed
from tests.secure.conftest import MakeWorld
from tests.secure.fortress import WORKER, Fortress
from tests.secure.realm import Realm, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def signed_in(stronghold: Fortress) -> tuple[dict[str, str], Realm]:
    """Return the settings of a program that shows a ticket over TLS, and the realm that gives it."""
    assert stronghold.realm is not None
    return stronghold.over_tls(stronghold.sasl, "SASL_SSL", TRUEUP_SASL_MECHANISM="GSSAPI"), stronghold.realm


def test_a_worker_with_a_keytab_serves_from_end_to_end(
    world: MakeWorld, stronghold: Fortress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, realm = signed_in(stronghold)
    for name, value in realm.client(WORKER, tmp_path / "tickets").items():
        monkeypatch.setenv(name, value)
    w: World = world(partitions=2)
    made = mixed(300)
    w.send(made.sent)
    with w.worker(**settings) as worker:
        w.wait_until_applied(len(made.sent))
        assert worker.stop() == 0
    w.judge()
    assert b"127.0.0.1" in (tmp_path / "tickets").read_bytes()


def test_without_a_ticket_the_message_says_what_to_do(
    stronghold: Fortress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, realm = signed_in(stronghold)
    for name, value in (realm.client(WORKER, tmp_path / "none") | {"KRB5_CLIENT_KTNAME": "/no.keytab"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises((TopicsError, KafkaConnectionError), match=r"run kinit, or set KRB5_CLIENT_KTNAME"):
        asyncio.run(topics.check(Settings.from_env(settings)))
