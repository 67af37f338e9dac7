"""What brokers know of consumer groups."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaTimeoutError, for_code

from streams.kafka.broker_requests import insisted

#: Longest wait for the coordinator of a group, s: a new cluster makes the topic of groups when it is first asked.
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
    """Return the answer of the coordinator of a group, asked until it answers.

    Raises KafkaError if it refuses, or none answers within so many seconds; None: they are waited for.
    """
    try:
        return await insisted(ask, seconds=seconds)
    except TimeoutError:
        raise KafkaTimeoutError(f"no coordinator of group {group} answered") from None
