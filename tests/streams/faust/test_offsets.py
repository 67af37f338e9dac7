"""Who asks for committed offsets is told of a coordinator that has moved, and never that there are none."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors
from aiokafka.protocol.commit import OffsetFetchResponse_v3
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from streams.faust import offsets
from streams.kafka import broker_requests

ONE, TWO = TopicPartition("scores", 0), TopicPartition("scores", 1)
OFFSETS = [("scores", [(0, 7, "noted", 0), (1, -1, "", 0)])]


class Client:
    """Answers in turn; asks who the coordinator is again for each."""

    def __init__(self, *answers: OffsetFetchResponse_v3) -> None:
        self.answers, self.looked_up = list(answers), 0

    async def coordinator_lookup(self, *_: Any) -> int:
        self.looked_up += 1
        return self.looked_up

    async def send(self, node: int, request: Any, *, group: object) -> OffsetFetchResponse_v3:  # noqa: ARG002
        assert node == self.looked_up
        return self.answers.pop(0)


def answer(error: type[errors.KafkaError] = errors.NoError, topics: Any = ()) -> OffsetFetchResponse_v3:
    return OffsetFetchResponse_v3(0, list(topics), error.errno)


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Client], dict[TopicPartition, OffsetAndMetadata]]:
    monkeypatch.setattr(broker_requests, "BACKOFF", 0.0)
    return lambda client: asyncio.run(offsets.committed(SimpleNamespace(_client=client), "intake", [ONE, TWO]))


@pytest.mark.parametrize(
    "error",
    [errors.NotCoordinatorForGroupError, errors.GroupLoadInProgressError, errors.GroupCoordinatorNotAvailableError],
)
def test_a_coordinator_that_cannot_know_is_not_believed(error: type[errors.KafkaError], committed: Any) -> None:
    client = Client(answer(error), answer(error), answer(topics=OFFSETS))
    assert committed(client) == {ONE: OffsetAndMetadata(7, "noted")}
    assert client.looked_up == 3


def test_what_may_not_be_read_is_an_error(committed: Any) -> None:
    with pytest.raises(errors.GroupAuthorizationFailedError, match="offsets of group intake cannot be read"):
        committed(Client(answer(errors.GroupAuthorizationFailedError)))
    with pytest.raises(errors.TopicAuthorizationFailedError):
        committed(Client(answer(topics=[("scores", [(0, -1, "", errors.TopicAuthorizationFailedError.errno)])])))
