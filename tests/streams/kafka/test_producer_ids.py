"""Asking the coordinator for a producer id: what is asked, and what its answers mean."""

import asyncio
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors
from aiokafka.client import CoordinationType

from streams.kafka import broker_requests
from streams.kafka.broker_requests import BrokersError
from streams.kafka.producer_ids import InitProducerId, ProducerIdentity, take

ID = "trueup-state-changelog-3"


class Client:
    """Stands for aiokafka's client: gives the answers in their order, an exception by raising it."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, Any]] = []
        self.updates = 0

    async def coordinator_lookup(self, kind: CoordinationType, key: str) -> int:
        assert (kind, key) == (CoordinationType.TRANSACTION, ID)
        if isinstance(self.answers[0], errors.TransactionalIdAuthorizationFailed):
            raise self.answers[0]
        return 2

    async def send(self, node: int, request: Any, *, group: object) -> Any:
        assert group
        self.asked.append((node, request._fields))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(error_code=answer, producer_id=7, producer_epoch=4)

    async def force_metadata_update(self) -> None:
        self.updates += 1


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_requests, "BACKOFF", 0)


def test_the_coordinator_is_asked_with_what_is_held() -> None:
    client = Client(0, 0)
    assert asyncio.run(take(client, ID)) == ProducerIdentity(7, 4)
    assert asyncio.run(take(client, ID, ProducerIdentity(7, 3))) == ProducerIdentity(7, 4)
    assert [fields[2:4] for _, fields in client.asked] == [(-1, -1), (7, 3)]
    assert {node for node, _ in client.asked} == {2}


@pytest.mark.parametrize(
    "passing", [14, 15, 16, 51, errors.NodeNotReadyError(), errors.RequestTimedOutError()], ids=repr
)
def test_what_passes_is_waited_for(passing: int | Exception) -> None:
    client = Client(passing, passing, 0)
    assert asyncio.run(take(client, ID)) == ProducerIdentity(7, 4)
    assert len(client.asked) == 3


GRANT = r"Write and Describe on TransactionalId trueup-state-changelog-, pattern"


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (47, errors.ProducerFenced, "ProducerFenced"),
        (42, errors.KafkaError, "error 42"),
        (53, BrokersError, GRANT),
        (errors.TransactionalIdAuthorizationFailed(), BrokersError, GRANT),
    ],
    ids=repr,
)
def test_what_does_not_pass_is_raised_in_words(answer: int | Exception, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        asyncio.run(take(Client(answer), ID, ProducerIdentity(7, 3)))


def test_the_request_is_as_the_protocol_has_it() -> None:
    request = InitProducerId("id", 10_000, 7, 3, {}).prepare({22: (0, 6)})
    # Kafka's protocol guide, InitProducerId request version 3: compact string, int32, int64, int16, no tags.
    assert request.encode() == b"\x03id" + (10_000).to_bytes(4, "big") + (7).to_bytes(8, "big") + b"\0\3" + b"\0"
    answer = request.RESPONSE_TYPE.decode(BytesIO(bytes(4) + bytes(2) + (9).to_bytes(8, "big") + b"\0\5" + b"\0"))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 9, 5)


def test_a_broker_that_is_too_old_is_said_to_be() -> None:
    with pytest.raises(BrokersError, match=r"needs Apache Kafka 3\.6 or newer"):
        InitProducerId("id", 10_000, 7, 3, {}).prepare({22: (0, 2)})
