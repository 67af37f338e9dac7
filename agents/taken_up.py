"""The source partitions that an intake has taken up: its offset in each, and checks that topics are still the same."""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from streams.config import in_force
from streams.config.settings import Settings
from streams.faust.inputs import DataLossError, deleted, unread
from streams.faust.state_table import PartitionsError
from streams.faust.unpacking import Read
from streams.kafka import provenance
from streams.kafka.whole_topics import batches
from streams.records import skips
from streams.records.making import Maker

log = logging.getLogger("trueup")

#: Topics whose numbers of partitions are committed with each offset, by label.
_NOTED = ("forecasts", "routes", "labels")


class Noted(NamedTuple):
    """What intake commits beside the next offset of a source partition: nothing if another program committed it."""

    #: Id of the source topic, and the epoch of the partition's leader.
    id: str = ""
    epoch: int = -1
    #: Numbers of partitions of the topics in `_NOTED`.
    partitions: Sequence[int] = ()

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the metadata of an offset."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return cls()

    @property
    def text(self) -> str:
        """The metadata."""
        return json.dumps(self._asdict(), separators=(",", ":"))


class TakenUp:
    """See the module.

    ``maker``: gets the numbers of partitions of the topics that intake sends to, and the ids of the source topics.
    """

    def __init__(self, settings: Settings, maker: Maker) -> None:
        self._settings, self._maker = settings, maker
        self._mapping = in_force.mapping(settings)
        #: For each partition the next offset to buffer, the next to commit, and the committed one.
        self.following: dict[TopicPartition, int] = {}
        self.done: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        #: By partition: the offsets that operators skipped, and why.
        self.skipped: dict[TopicPartition, dict[int, str]] = {}
        #: By partition: how far it was read, and the leader epoch.
        self.read: defaultdict[TopicPartition, Read] = defaultdict(Read)

    def due(self) -> dict[TopicPartition, tuple[int, str]]:
        """Return the offsets that are not committed yet, each with its metadata: topic, epoch and widths."""
        return {tp: (offset, self._noted(tp)) for tp, offset in self.done.items() if self.committed.get(tp) != offset}

    def _noted(self, tp: TopicPartition) -> str:
        widths = [self._maker.widths[label] for label in _NOTED]
        return Noted(self._maker.ids[tp.topic], self.read[tp].epoch, widths).text

    async def begin(
        self,
        assigned: Sequence[TopicPartition],
        stored: dict[TopicPartition, OffsetAndMetadata],
        first: dict[TopicPartition, int],
        producer: AIOKafkaProducer,
    ) -> None:
        """Go on from the committed offsets; return once the topic of configurations has the mapping from there on.

        Raises DataLossError if a source topic was recreated.
        Raises PartitionsError if a topic that intake sends to has another number of partitions than before.

        ``stored``, ``first``: the committed and the first offsets of the partitions.
        """
        for each in (self.following, self.done, self.committed):
            each.clear()
        if not assigned:
            return
        for tp in assigned:
            offset, noted = stored.get(tp, (-1, ""))
            if offset >= 0:
                self._compare(tp, offset, noted)
                self.committed[tp] = offset
            self.following[tp] = offset if offset >= 0 else first[tp]
        self.skipped = await self._left_out()
        await self._announce(assigned, producer)

    async def go_on_behind(self, consumer: AIOKafkaConsumer, positions: dict[TopicPartition, int]) -> None:
        """Go on with the first records that are left, if the settings allow it; otherwise raise DataLossError."""
        first, ends = await consumer.beginning_offsets(list(positions)), await consumer.end_offsets(list(positions))
        for tp, position in positions.items():
            if deleted(tp, position, first[tp], ends[tp]):
                log.error(unread(tp, position, first[tp], self._settings))
                consumer.seek(tp, first[tp])

    async def know(self, client: AIOKafkaClient) -> None:
        """Ask how many partitions the topics that intake sends to have, and the ids of the source topics."""
        self._maker.know(*await self._asked(client))

    async def look(self, client: AIOKafkaClient) -> None:
        """Compare the topics with their former state; raises as `begin`.

        If brokers do not answer, the next call asks again.
        """
        try:
            widths, ids = await self._asked(client)
        except TimeoutError:
            return
        for label, had in self._maker.widths.items():
            self._refuse(label, had, widths[label])
        for topic, before in self._maker.ids.items():
            if ids[topic] != before:
                raise DataLossError(f"{topic} was deleted and recreated while it was read: start again")

    async def _asked(self, client: AIOKafkaClient) -> tuple[dict[str, int], dict[str, str]]:
        maker = self._maker
        async with asyncio.timeout(self._settings.request_seconds):
            there = {label: await provenance.identity(client, name) for label, name in maker.topics.items()}
            ids = {topic: (await provenance.identity(client, topic)).id for topic in maker.readers}
        return {label: each.partitions for label, each in there.items()}, ids

    async def _left_out(self) -> dict[TopicPartition, dict[int, str]]:
        """Return the records of source topics that operators skipped (`trueup state skip`), and why."""
        found: dict[TopicPartition, dict[int, str]] = defaultdict(dict)
        async for _, records in batches(self._settings, [self._settings.configurations]):
            for record in records:
                skip = skips.read_source(record.key, record.value)
                if skip is None or self._maker.ids.get(skip.topic) != skip.topic_id:
                    continue
                tp = TopicPartition(skip.topic, skip.partition)
                if tp in self.following and skip.offset >= self.following[tp]:
                    log.warning("leaving out %s/%d@%d: %s", *tp, skip.offset, skip.reason)
                found[tp][skip.offset] = skips.why(skip.offset, skip.reason)
        return found

    async def _announce(self, assigned: Sequence[TopicPartition], producer: AIOKafkaProducer) -> None:
        """Write from which offsets this mapping is in force. Return when that is acknowledged."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        parts: dict[tuple[bytes, int], bytes] = {}
        taken_up: dict[tuple[bytes, int], bytes] = {}
        for tp in assigned:
            place = tp.topic, self._maker.ids[tp.topic], tp.partition, self.following[tp]
            now = in_force.Mapped(*place, self._mapping, self._settings.owner, at)
            partition = tp.partition % self._maker.widths["configurations"]
            *own, (key, value) = in_force.mapped_records(now, self._settings.batch_bytes // 2)
            parts |= {(part, partition): said for part, said in own}
            taken_up[key, partition] = value
        for written in (parts, taken_up):  # the settings are written before the record that refers to them
            await asyncio.gather(
                *(
                    producer.send_and_wait(self._settings.configurations, value, key, partition)
                    for (key, partition), value in written.items()
                )
            )

    def _compare(self, tp: TopicPartition, offset: int, noted: str) -> None:
        """Refuse to go on if a topic has changed since the offset was committed."""
        topic_id, epoch, widths = Noted.read(noted)
        if not topic_id:
            return
        if offset and topic_id != self._maker.ids[tp.topic]:
            raise DataLossError(
                f"{tp.topic} was read up to offset {offset - 1} of partition {tp.partition}, but that topic was "
                f"deleted and recreated: its id was {topic_id} and is {self._maker.ids[tp.topic]}. Delete the offsets "
                f"of group {self._settings.intake_group} for it to be read from its first record"
            )
        for label, had in zip(_NOTED, widths, strict=True):
            self._refuse(label, had, self._maker.widths[label])
        self.read[tp].on(epoch, offset)

    def _refuse(self, label: str, had: int, has: int) -> None:
        if had != has:
            raise PartitionsError(
                f"{self._maker.topics[label]} has {has} partitions, and had {had} when records were sent to it: what "
                "follows would go to other partitions than what came before. 'trueup state rescale' moves the state to "
                "another number of partitions and another TRUEUP_APP_ID; see docs/how-to/rescale.md"
            )
