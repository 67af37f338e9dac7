"""Declares, by their schemas, requests that aiokafka lacks; and repeats requests to brokers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import ConcurrentTransactions, KafkaError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactString, Schema, TaggedFields

#: Pause before the next attempt, s.
BACKOFF: Final = 0.1

T = TypeVar("T")


class BrokersError(RuntimeError):
    """The brokers are too old, or do not allow this user something that trueup needs."""


#: Parts of the schemas of flexible versions (KIP-482).
TEXT, TAGS = CompactString("utf-8"), ("tags", TaggedFields)


def struct(key: int, version: int, asked: Schema, answered: Schema, *, flexible: bool = True) -> type[Any]:
    """Return one version of a request as aiokafka takes it. Flexible versions have tags."""
    answer = type("Answer", (Response,), {"API_KEY": key, "API_VERSION": version, "SCHEMA": answered})
    of = {"API_KEY": key, "API_VERSION": version, "SCHEMA": asked}
    return type("Asked", (RequestStruct,), {**of, "RESPONSE_TYPE": answer, "FLEXIBLE_VERSION": flexible})


def request(version: type[Any]) -> type[Any]:
    """Return the class of a request that is sent in one version. Its arguments are the fields, in order.

    Sending it raises BrokersError if the broker does not know that version.
    """

    class Made(Request[version]):  # type: ignore[misc]  # aiokafka ships no type hints
        API_KEY = version.API_KEY

        def __init__(self, *fields: Any) -> None:  # noqa: ANN401 - as the schema has them
            self._fields = fields

        def build(self, kind: type[Any]) -> Any:  # noqa: ANN401 - aiokafka's
            return kind(*self._fields)

        def prepare(self, versions: dict[int, tuple[int, int]]) -> Any:  # noqa: ANN401 - aiokafka's
            try:
                return super().prepare(versions)
            except NotImplementedError as exc:
                raise BrokersError("the brokers are too old: trueup needs Apache Kafka 3.6 or newer") from exc

    return Made


async def insisted(
    ask: Callable[[], Awaitable[T]], client: AIOKafkaClient | None = None, seconds: float | None = None
) -> T:
    """Ask brokers until they answer, and return the answer.

    Raises KafkaError if they refuse for a lasting reason, or still refuse after ``seconds`` (None: wait without end).
    Raises TimeoutError if no broker has answered by then.

    ``client``: its list of brokers is updated before each further attempt; None: no list is updated.
    """
    last: Exception = TimeoutError()
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await ask()
                except KafkaError as exc:
                    if not (exc.retriable or isinstance(exc, ConcurrentTransactions)):
                        raise
                    last = exc
                if client is not None:
                    await client.force_metadata_update()
                await asyncio.sleep(BACKOFF)
    except TimeoutError:
        raise last from None
