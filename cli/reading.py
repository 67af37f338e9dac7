"""Requests of commands to brokers. If one fails, the command ends with a sentence."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from streams.config.settings import Settings
from streams.kafka import topics
from streams.kafka.topics import TopicsError
from streams.kafka.whole_topics import batches
from streams.records.skips import PoisonError


@contextmanager
def asked(failed: str, remedy: str = "") -> Iterator[None]:
    """Raise a TopicsError if the brokers refuse a request or do not answer in time.

    ``failed``: what could not be done, in words.
    ``remedy``: text after the reason.
    """
    try:
        yield
    except (KafkaError, PoisonError, TimeoutError) as exc:
        raise TopicsError(f"{failed}: {str(exc) or type(exc).__name__}{remedy}") from exc


async def width(settings: Settings, topic: str, remedy: str = "") -> int:
    """Return how many partitions a topic has; raises TopicsError if there is none, or it cannot be asked."""
    if (found := await topics.partitions(settings, topic)) is None:
        raise TopicsError(f"there is no topic {topic}{remedy}")
    return found


async def records(
    settings: Settings,
    names: Sequence[str],
    **which: Any,  # noqa: ANN401 - as `batches` takes it
) -> AsyncIterator[ConsumerRecord[bytes, bytes]]:
    """Yield the records that topics hold now, as `streams.kafka.whole_topics.batches` does.

    Raises TopicsError if they cannot be read.
    """
    with asked(f"cannot read {', '.join(names)} from {', '.join(settings.brokers)}"):
        async for _, read in batches(settings, names, **which):
            for record in read:
                yield record
