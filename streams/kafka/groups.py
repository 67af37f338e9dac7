"""What brokers know of consumer groups."""

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code


async def members(admin: AIOKafkaAdminClient, group: str) -> int:
    """Return how many members a consumer group has; KafkaError if it cannot be described."""
    (response,) = await admin.describe_consumer_groups([group])
    code, _, _, _, _, found, *_ = response.groups[0]
    if code:
        raise for_code(code)(f"group {group} cannot be described")
    return len(found)
