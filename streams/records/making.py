"""Intake's records made from source records, and their topics; runs once a source record, and is compiled."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiokafka.structs import TopicPartition

from state.calibrators.answer import new
from state.events import Forecast, Rejected
from streams.config.settings import Settings
from streams.kafka import partitioner
from streams.records.canonical import Canonical, Reader, Sent
from streams.records.encoding import NO_HEADERS
from streams.records.output_avro import AvroValues
from streams.records.output_json import encode_letter, encode_raw
from streams.records.routing import place
from streams.records.skips import PoisonError
from streams.sources import mapping
from streams.sources.formats import asks_registry
from streams.sources.registry import SchemaId
from streams.sources.schemas import Schemas


class Record(NamedTuple):
    """A record to produce; ``stamp`` is its Kafka timestamp, ms."""

    key: bytes | None
    value: bytes
    stamp: int | None
    headers: list[tuple[str, bytes | None]]


#: Records by their topic's label and their partition.
Records = defaultdict[tuple[str, int], list[Record]]


@dataclass(eq=False)
class Making:
    """What source records become."""

    #: Records to send first, and those to send when the first are acknowledged.
    first: Records = field(default_factory=lambda: defaultdict(list))
    then: Records = field(default_factory=lambda: defaultdict(list))
    #: Next offset of each source partition.
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    #: Counts of records by source, fate and reason.
    fates: defaultdict[tuple[str, str, str], int] = field(default_factory=lambda: defaultdict(int))
    #: Source partition, offset and reason of each dead letter.
    rejected: list[tuple[TopicPartition, int, str]] = field(default_factory=list)
    #: Dead forecasts that are answered with their raw score.
    raw_answers: int = 0


class Maker:
    """Makes intake's records from source records. It is pure: schemas that records name must be loaded before."""

    def __init__(self, settings: Settings) -> None:
        self._limits = settings.limits
        #: Schemas that the registry has returned.
        self.schemas = Schemas(settings.registry)
        #: Readers by source topic, in order; of each role the first one is used whose condition holds.
        self.readers: dict[str, list[Reader]] = defaultdict(list)
        #: Readers whose records name schemas of a registry.
        self.asking: dict[str, list[Reader]] = defaultdict(list)
        for mode in settings.modes:
            if not mode.direct:
                read = mapping.Mapping(mode.source, self.schemas)
                reader = Reader(
                    mode.source.name, mode.source.role, read, settings.policies, settings.limits, settings.carry_headers
                )
                self.readers[mode.topic].append(reader)
                if asks_registry(mode.source.table):
                    self.asking[mode.topic].append(reader)
        #: Names of the topics sent to, by their labels.
        self.topics: dict[str, str] = {
            "forecasts": settings.forecasts,
            "routes": settings.routes,
            "labels": settings.labels,
            "dead-letters": settings.dead_letters,
            "configurations": settings.configurations,
        }

        if settings.policies.answering:
            self.topics["calibrated"] = settings.calibrated
        #: How many partitions these have.
        self.widths: dict[str, int] = {}
        #: Ids of the source topics.
        self.ids: dict[str, str] = {}
        #: Makes the values of raw answers; None: they are plain JSON.
        self.values: AvroValues | None = None
        #: Readers of a partition, each with the partition's name in its records.
        self._places: dict[TopicPartition, list[tuple[Reader, str]]] = {}

    def know(self, widths: dict[str, int], ids: dict[str, str]) -> None:
        """Take the numbers of partitions and the ids; see the class."""
        self.widths, self.ids = widths, ids
        self._places = {}

    def lacking(self, fetched: Mapping[TopicPartition, Sequence[Any]]) -> dict[SchemaId, str]:
        """Return the schemas that records name and that are not loaded, each with a source that names it.

        Raises PoisonError if a record cannot be read at all.
        """
        lacking: dict[SchemaId, str] = {}
        for tp, records in fetched.items():
            for reader in self.asking.get(tp.topic, ()):
                for record in records:
                    try:
                        lacking.update(dict.fromkeys(reader.lacking(record), reader.name))
                    except Exception as exc:
                        raise PoisonError(tp.topic, tp.partition, record.offset) from exc
        return lacking

    def make(self, batch: Sequence[tuple[TopicPartition, Any]], now: int) -> Making:
        """Return what source records become.

        ``batch``: records as aiokafka reads them, with their partitions.
        ``now``: the time, ms since 1970: no record may be far ahead of it.
        """
        making = Making()
        first: list[Sent] = []
        then: list[Sent] = []
        ends, fates, places = making.ends, making.fates, self._places
        for tp, record in batch:
            offset: int = record.offset
            ends[tp] = offset + 1
            readers = places.get(tp)
            if readers is None:
                readers = places[tp] = self._placed(tp)
            read = ""
            for reader, name in readers:
                if reader.role == read:
                    continue
                made = reader.canonical(record, tp.topic, (name, offset), now)
                if made is None:
                    fates[reader.name, "passed", ""] += 1
                    continue
                # A topic has sources of at most two roles. Once a source of a role has read a record, no other of that
                # role does.
                if isinstance(made, Canonical):
                    fates[reader.name, "sent", ""] += 1
                    first.append(made.first)
                    if made.then is not None:
                        then.append(made.then)
                else:
                    fates[reader.name, "dead", made.reason] += 1
                    self.reject(making, tp, made)
                if read:
                    break
                read = reader.role
        self._put(making.first, first)
        self._put(making.then, then)
        return making

    def _placed(self, tp: TopicPartition) -> list[tuple[Reader, str]]:
        return [(reader, place(reader.name, self.ids[tp.topic], tp.partition)) for reader in self.readers[tp.topic]]

    def _put(self, to: Records, made: list[Sent]) -> None:
        hashes = partitioner.hashes([sent.key for sent in made])
        for i, (topic, key, value, stamp, headers) in enumerate(made):
            to[topic, hashes[i] % self.widths[topic]].append(new(Record, (key, value, stamp, headers)))

    def reject(self, making: Making, tp: TopicPartition, rejected: Rejected) -> None:
        """Add a dead letter, and its raw answer if it is to have one."""
        value = encode_letter(rejected, tp.topic, tp.partition, self._limits)
        key = rejected.key if len(rejected.key or b"") <= self._limits.letter_bytes else None
        to = "dead-letters", tp.partition % self.widths["dead-letters"]
        making.first[to].append(Record(key, value, None, NO_HEADERS))
        making.rejected.append((tp, rejected.offset, rejected.reason))
        if rejected.forecast is not None:
            self._answer(making, tp, rejected, rejected.forecast)

    def _answer(self, making: Making, tp: TopicPartition, rejected: Rejected, forecast: Forecast) -> None:
        """Answer a dead forecast with its raw score; workers never see it."""
        key = forecast.key or b""
        partition = partitioner.partition(key, self.widths["calibrated"])
        headers = NO_HEADERS if forecast.carried is None else list(forecast.carried.headers)
        value = encode_raw(rejected, tp.topic, tp.partition)
        if self.values is not None:
            value = self.values.of_json("calibrated", value)
        # The error may be in its own time.
        making.first["calibrated", partition].append(Record(key, value, None, headers))
        making.raw_answers += 1
