"""Maps the records of a source partition again, with intake's own code."""

import asyncio
from bisect import bisect_right
from typing import NamedTuple

import orjson
from aiokafka import TopicPartition

from replay.audit.output_matcher import Unauditable
from replay.audit.plan import FORECASTS, LETTERS, MADE, AuditPlan, SourceSpan
from replay.audit.rows import digest
from state.events import Rejected
from streams.config.settings import Settings
from streams.records.making import Maker, Making
from streams.records.merge import NEVER, KafkaRecord
from streams.records.output_values import packed


class Made(NamedTuple):
    """A record that a source record becomes."""

    label: int
    partition: int
    key: bytes | None
    value: bytes
    stamp: int | None
    headers: list[tuple[str, bytes | None]]

    @property
    def digest(self) -> bytes:
        """The hash by which an entry knows it."""
        return digest(*self[1:])

    @property
    def packed(self) -> bytes:
        """The same hash for an answer that was written in Avro."""
        return self._replace(value=packed(orjson.loads(self.value))).digest


def made(making: Making) -> list[Made]:
    """Return the records that a batch of source records becomes, in order."""
    return [
        Made(MADE.index(label), partition, *record)
        for part in (making.first, making.then)
        for (label, partition), records in part.items()
        for record in records
    ]


class Mapper:
    """Maps the records of one source partition as intake did, each by intake's configuration at that time.

    Raises Unauditable for a record from before the first configuration that intake has recorded.
    """

    def __init__(self, plan: AuditPlan, span: SourceSpan) -> None:
        known = plan.mapped.get((span.topic, span.partition), [])
        self._since = [since for since, _ in known]
        self._names = [name for _, name in known]
        self._makers = [_maker(plan, plan.files[name]) for name in self._names]
        self._told_in = plan.settings.configurations
        self._place = TopicPartition(span.topic, span.partition)
        #: Labels of the topics whose Kafka timestamps the brokers set.
        self._unstamped = set(range(LETTERS)) - plan.stamped

    def shown(self, offset: int) -> str:
        """Return in words the mapping that applied to the record at an offset."""
        at = self._at(offset)
        return f"mapping {self._names[at][:8]}, in force from offset {self._since[at]} on"

    def make(self, record: KafkaRecord, now: int) -> list[Made]:
        """Return what a record becomes at a time, ms."""
        return self._make(self._at(record.offset), record, now)

    def before(self, record: KafkaRecord) -> list[Made]:
        """Return what a record becomes by the previous mapping; nothing if there was none."""
        at = self._at(record.offset)
        return self._make(at - 1, record, NEVER) if at else []

    def unknown_schema(self, record: KafkaRecord) -> list[Made]:
        """Return the dead letter of a record whose schema the registry does not have."""
        making = Making()
        rejected = Rejected(record.offset, record.key, record.value, FORECASTS, "schema")
        self._makers[self._at(record.offset)].reject(making, self._place, rejected)
        return made(making)

    def _at(self, offset: int) -> int:
        at = bisect_right(self._since, offset) - 1
        if at < 0:
            raise Unauditable(
                f"{self._told_in} does not say by which sources intake mapped {self._place.topic}/"
                f"{self._place.partition}@{offset}: intake writes this down first, so it was deleted. Restore it, or "
                "audit a whole copy"
            )
        return at

    def _make(self, at: int, record: KafkaRecord, now: int) -> list[Made]:
        maker = self._makers[at]
        if lacking := maker.lacking({self._place: [record]}):
            asyncio.run(maker.schemas.load(lacking))
        found = made(maker.make([(self._place, record)], now))
        if not self._unstamped:
            return found
        return [one._replace(stamp=None) if one.label in self._unstamped else one for one in found]


def _maker(plan: AuditPlan, settings: Settings) -> Maker:
    maker = Maker(settings)
    maker.know(dict.fromkeys(MADE, plan.partitions), plan.ids)
    return maker
