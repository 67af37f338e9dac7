"""Requests to the brokers that aiokafka has no public way to send."""

from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.api import Request


async def ask(admin: AIOKafkaAdminClient, request: Request, node: int | None = None) -> Any:  # noqa: ANN401 - aiokafka's
    """Send a request to one broker, or to any, and return the answer.

    Raises NotImplementedError if the broker is too old to know the request.
    Raises KafkaError if it cannot be asked.
    """
    return await admin._send_request(request, node)  # noqa: SLF001 - no public way to send one's own
