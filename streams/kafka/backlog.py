"""A first start waits until the stages before it have handed on what the source topics held.

Intake hands forecasts of its sources to the worker; labels come through intake and router. In a long history, the
worker would first read the forecasts of months, and they would expire before their labels come. A router that begins
while intake still writes cannot know what its partitions will hold, and sends labels out of order.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from streams.config.settings import Settings
from streams.faust import offsets
from streams.kafka import standstill, topics
from streams.kafka.standstill import Standstill

log = logging.getLogger("trueup")

#: Pause between two requests for offsets, s.
PAUSE_SECONDS = 1.0
#: Number of pauses between two log lines.
_LINES: Final = 10


async def awaited(settings: Settings, stop: asyncio.Event) -> None:
    """Return once the stages before this one have handed on what the sources held, or ``stop`` is set.

    Returns at once if no source is for intake, or if the group has ever committed an offset. Returns with a warning if
    nothing is handed on for `standstill.STILL_SECONDS`, or if the brokers do not tell the offsets.
    """
    before = settings.before
    if not before:
        return
    try:
        async with topics.admin_client(settings) as admin:
            if await offsets.committed(admin, settings.app_id):
                return
            consumer = AIOKafkaConsumer(
                isolation_level="read_committed",
                **settings.client_options(),
            )
            async with consumer:
                for group, names in before.items():
                    if not await _handed_on(admin, consumer, group, names, stop):
                        return
    except Exception as exc:  # noqa: BLE001 - after any error the stage may begin
        said = str(exc) or type(exc).__name__
        log.warning(
            "the progress of %s is not known, so this stage does not wait for them: %s", " and ".join(before), said
        )


async def _handed_on(
    admin: AIOKafkaAdminClient, consumer: AIOKafkaConsumer, group: str, names: Iterable[str], stop: asyncio.Event
) -> bool:
    """Wait until a group has committed what topics hold now; return whether it has."""
    existing = set(await admin.list_topics())  # brokers may create a topic when it is asked for by name
    described = await admin.describe_topics(there) if (there := [name for name in names if name in existing]) else []
    places = [TopicPartition(each["topic"], part["partition"]) for each in described for part in each["partitions"]]
    if not places:
        return True
    ends, first = await consumer.end_offsets(places), await consumer.beginning_offsets(places)
    still, asked = Standstill(asyncio.get_running_loop().time), 0
    while not stop.is_set():
        stored = await offsets.reached(admin, group, places)
        left = sum(max(ends[each] - max(stored[each], first[each]), 0) for each in places)
        if not left:
            return True
        if still.at(left):
            log.warning(
                "%s has not read %d records for %g s, so this stage no longer waits for it: of "
                "what sources held before, forecasts may expire before their labels come",
                group,
                left,
                standstill.STILL_SECONDS,
            )
            return False
        if asked % _LINES == 0:
            log.info("first start: waiting until %s has read %d records that were there before", group, left)
        asked += 1
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), PAUSE_SECONDS)
    return False
