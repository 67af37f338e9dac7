"""The producer of what is written once: rows of a state, answers of a replay, claims, dead letters sent again."""

from typing import Any

from aiokafka import AIOKafkaProducer

from streams.config.settings import Settings


def writer(settings: Settings, **options: Any) -> AIOKafkaProducer:  # noqa: ANN401 - as aiokafka takes them
    """Return a producer, to be started, that writes each record once and batches as large as the topics may have."""
    return AIOKafkaProducer(
        bootstrap_servers=",".join(settings.brokers),
        acks="all",
        enable_idempotence=True,
        max_batch_size=settings.batch_bytes,
        max_request_size=settings.batch_bytes + 100_000,
        **settings.security.client_options(),
        **options,
    )
