"""What brokers know of consumer groups."""

import asyncio
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, KafkaTimeoutError, for_code

#: Longest wait for the coordinator of a group, s: a new cluster makes the topic of groups when it is first asked.
COORDINATOR_SECONDS: Final = 30.0
#: Pause before another attempt, s.
_BACKOFF: Final = 0.2


async def members(admin: AIOKafkaAdminClient, group: str) -> int:
    """Return how many members a consumer group has; KafkaError if it cannot be described."""
    last: KafkaError = KafkaTimeoutError(f"no coordinator of group {group} answered")
    try:
        async with asyncio.timeout(COORDINATOR_SECONDS):
            while True:
                try:
                    return await _members(admin, group)
                except KafkaError as exc:
                    if not exc.retriable:
                        raise
                    last = exc
                await asyncio.sleep(_BACKOFF)
    except TimeoutError:
        raise last from None


async def _members(admin: AIOKafkaAdminClient, group: str) -> int:
    (response,) = await admin.describe_consumer_groups([group])
    code, _, _, _, _, found, *_ = response.groups[0]
    if code:
        raise for_code(code)(f"group {group} cannot be described")
    return len(found)
