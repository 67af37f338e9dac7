"""Asks brokers about consumer groups."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaTimeoutError, for_code

from streams.kafka.broker_requests import insisted

#: Longest wait for the coordinator of a group, s. A new cluster first has to make its topic of groups.
COORDINATOR_SECONDS: Final = 30.0

T = TypeVar("T")


async def members(admin: AIOKafkaAdminClient, group: str) -> int:
    """Return how many members a consumer group has; KafkaError if it cannot be described."""

    async def ask() -> int:
        (response,) = await admin.describe_consumer_groups([group])
        code, _, _, _, _, found, *_ = response.groups[0]
        if code:
            raise for_code(code)(f"group {group} cannot be described")
        return len(found)

    return await answered(group, ask, COORDINATOR_SECONDS)


async def answered(group: str, ask: Callable[[], Awaitable[T]], seconds: float | None) -> T:
    """Ask the coordinator of a group until it answers, and return the answer.

    Raises KafkaError if it refuses, or does not answer within ``seconds``; None: wait without end.
    """
    try:
        return await insisted(ask, seconds=seconds)
    except TimeoutError:
        raise KafkaTimeoutError(f"no coordinator of group {group} answered") from None
