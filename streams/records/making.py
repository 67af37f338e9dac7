"""Makes intake's records, with their topics, from source records. It runs once a source record, and is compiled."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson
from aiokafka.structs import TopicPartition

from state.events import Carried, Forecast, Outcome, Rejected
from state.fence import FORECASTS, OUTCOMES
from state.policies import Policies
from streams.config.settings import Settings
from streams.kafka import partitioner
from streams.records.decoding import Decoder
from streams.records.encoding import NO_HEADERS, EncodedRecord, headers_of, letter, raw_answer
from streams.records.limits import SCOPED, Limits
from streams.records.output_avro import AvroValues
from streams.records.refused import Refused
from streams.records.routing import Origin, encode_forecast, encode_label, encode_route, place, target_of
from streams.records.skips import PoisonError
from streams.sources import far_off, mapping
from streams.sources.carrying import TRACE
from streams.sources.fields import FORECAST
from streams.sources.formats import asks_registry
from streams.sources.references import Headers
from streams.sources.refusal import PASSED, Refusal
from streams.sources.registry import SchemaId
from streams.sources.schemas import Schemas

#: The records made from a source record, each with the label of its topic: a forecast and then its route, or a label.
Canonical = tuple[tuple[str, EncodedRecord], ...]


class Reader:
    """Turns the records of one source into canonical ones.

    The worker's own decoder reads each record, so only records that the worker accepts are sent.

    ``read``: the mapping of the source.
    ``policies, limits``: those of the worker.
    ``carry_headers``: names of headers that are copied from labels; for forecasts the mapping names them.
    """

    def __init__(
        self, read: mapping.Mapping, policies: Policies, limits: Limits, carry_headers: Sequence[str] = TRACE
    ) -> None:
        self.name, self.role = read.source.name, read.source.role
        self._policies = policies
        self._ahead_ms = limits.ahead_ms
        self._decoder = Decoder(policies, limits, None, carry_headers)
        self._mapping = read
        self._topic = FORECASTS if self.role == FORECAST else OUTCOMES

    def lacking(self, record: Any) -> list[SchemaId]:  # noqa: ANN401 - as below
        """Return the ids of schemas that have to be loaded before a record is read."""
        if isinstance(record.value, Refused):
            return []
        return self._mapping.lacking(record.value, record.key, record.headers)

    def left_out(self, what: str) -> int:
        """Return how many headers or fields were too large to carry; see `Decoder.left_out`."""
        return self._mapping.carrier.left_out[what] if self._topic == FORECASTS else self._decoder.left_out(what)

    @property
    def far_off(self) -> int:
        """How many records have a time that is far off; see `Decoder.far_off`."""
        return self._decoder.far_off[self._topic]

    @property
    def far_off_said(self) -> str:
        """The remedy for the last record whose time was far off."""
        return far_off.said(*self._decoder.far_off_last[self._topic], self._mapping.source)

    def canonical(self, record: Any, topic: str, origin: Origin, now: int) -> Canonical | Rejected | None:  # noqa: ANN401 - aiokafka's
        """Return what a source record becomes; None if it is skipped.

        ``record``: as aiokafka reads it: offset, Kafka timestamp (ms), key, value and headers.
        ``topic, origin``: the place of the record.
        ``now``: the time, ms since 1970: no record may be far ahead of it.
        """
        value, key, stamp = record.value, record.key, max(0, record.timestamp)
        if isinstance(value, Refused):
            return self._rejected(record, value.reason)
        far_ahead = stamp > now + self._ahead_ms
        if far_ahead and not self._policies.answering:
            return self._rejected(record, "far_ahead")
        fields = self._mapping.read(value, key, record.headers, topic, stamp)
        if far_ahead:
            return self._rejected(record, "far_ahead", fields.fields if isinstance(fields, Refusal) else fields)
        if isinstance(fields, Refusal):
            return None if fields.reason == PASSED else self._rejected(record, fields.reason, fields.fields)
        if self._topic == FORECASTS:
            made = self._forecast(fields, stamp, origin)
        else:
            made = self._label(fields, stamp, origin, record.headers)
        return self._rejected(record, made, fields) if isinstance(made, str) else made

    def _rejected(self, record: Any, reason: str, fields: dict[str, Any] | None = None) -> Rejected:  # noqa: ANN401 - aiokafka's
        rejected = Rejected(record.offset, record.key, record.value, self._topic, reason)
        if fields is None or self._topic != FORECASTS or not self._policies.answering:
            return rejected
        if "stream" in fields:
            fields = {**fields, "scope": fields["stream"]}
        forecast = self._decoder.left(record.offset, None, fields, max(0, record.timestamp))
        if forecast is None or not self._policies.answers_raw(forecast.stream):
            return rejected
        event_id = forecast.event_id.partition(SCOPED)[0]
        key = target_of(self._policies, forecast.stream, event_id) if forecast.stream else event_id
        return rejected._replace(forecast=forecast._replace(key=key.encode()))

    def _forecast(self, fields: dict[str, Any], stamp: int, origin: Origin) -> Canonical | str:
        try:
            value = encode_forecast(fields, origin)
        except TypeError:  # the value cannot be written as JSON
            return "not_json"
        event = cast("Forecast | Rejected", self._decoder.forecast(origin[1], None, value, stamp))
        if isinstance(event, Rejected):
            return event.reason
        event_id = event.event_id.partition(SCOPED)[0]
        key = target_of(self._policies, event.stream, event_id)
        route = encode_route(event_id, event.stream, key, origin)
        headers = headers_of(cast("Carried | None", fields.get("carried")))
        return (
            ("forecasts", (key.encode(), value, stamp, headers)),
            ("routes", (event_id.encode(), route, stamp, NO_HEADERS)),
        )

    def _label(self, fields: dict[str, Any], stamp: int, origin: Origin, headers: Headers) -> Canonical | str:
        stream = fields.pop("stream", None)
        try:
            value = orjson.dumps(fields)
            event = cast("Outcome | Rejected", self._decoder.outcome(origin[1], None, value, stamp, headers))
        except TypeError:
            return "not_json"
        if isinstance(event, Rejected):
            return event.reason
        key = ""
        if stream is not None:
            if not isinstance(stream, str) or self._policies.of(stream) is None:
                return "unknown_stream" if isinstance(stream, str) else "stream"
            key = target_of(self._policies, stream, event.event_id)
        value = encode_label(event.event_id, stream or "", key, event.y, event.ts, event.revision, origin)
        return (("labels", (event.event_id.encode(), value, stamp, headers_of(event.carried))),)


#: Records by their topic's label and their partition.
Records = defaultdict[tuple[str, int], list[EncodedRecord]]


@dataclass(eq=False)
class Making:
    """The records that are made from source records."""

    #: Records to send first, and records to send when the first are acknowledged.
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
    """Makes intake's records from source records. It is pure, so schemas that records name must be loaded before."""

    def __init__(self, settings: Settings) -> None:
        self._limits = settings.limits
        #: Schemas that the registry has returned.
        self.schemas = Schemas(settings.registry)
        #: Readers by source topic, in order. For each role, the first reader whose condition holds is used.
        self.readers: dict[str, list[Reader]] = defaultdict(list)
        #: Readers whose records name schemas in a registry.
        self.asking: dict[str, list[Reader]] = defaultdict(list)
        for mode in settings.modes:
            if not mode.direct:
                read = mapping.Mapping(mode.source, self.schemas)
                reader = Reader(read, settings.policies, settings.limits, settings.carry_headers)
                self.readers[mode.topic].append(reader)
                if asks_registry(mode.source.table):
                    self.asking[mode.topic].append(reader)
        #: Names of the topics to send to, by label.
        self.topics: dict[str, str] = {
            "forecasts": settings.forecasts,
            "routes": settings.routes,
            "labels": settings.labels,
            "dead-letters": settings.dead_letters,
            "configurations": settings.configurations,
        }
        if settings.policies.answering:
            self.topics["calibrated"] = settings.calibrated
        #: Their numbers of partitions.
        self.widths: dict[str, int] = {}
        #: Ids of the source topics.
        self.ids: dict[str, str] = {}
        #: Encodes raw answers; None if they are plain JSON.
        self.values: AvroValues | None = None
        #: Readers of a partition, each with the partition's name in its records.
        self._places: dict[TopicPartition, list[tuple[Reader, str]]] = {}

    def know(self, widths: dict[str, int], ids: dict[str, str]) -> None:
        """Take the numbers of partitions and the ids of topics; see the class."""
        self.widths, self.ids = widths, ids
        self._places = {}

    def lacking(self, fetched: Mapping[TopicPartition, Sequence[Any]]) -> dict[SchemaId, str]:
        """Return the schemas that records name but that are not loaded, each with a source that names it.

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
        first: list[tuple[str, EncodedRecord]] = []
        then: list[tuple[str, EncodedRecord]] = []
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
                # A topic has sources of at most two roles. Once a source has read a record, no other source of its role
                # reads it.
                if isinstance(made, Rejected):
                    fates[reader.name, "dead", made.reason] += 1
                    self.reject(making, tp, made)
                else:
                    fates[reader.name, "sent", ""] += 1
                    first.append(made[0])
                    then.extend(made[1:])
                if read:
                    break
                read = reader.role
        self._put(making.first, first)
        self._put(making.then, then)
        return making

    def _placed(self, tp: TopicPartition) -> list[tuple[Reader, str]]:
        return [(reader, place(reader.name, self.ids[tp.topic], tp.partition)) for reader in self.readers[tp.topic]]

    def _put(self, to: Records, made: list[tuple[str, EncodedRecord]]) -> None:
        hashes = partitioner.hashes([record[0] or b"" for _, record in made])
        for i, (topic, record) in enumerate(made):
            to[topic, hashes[i] % self.widths[topic]].append(record)

    def reject(self, making: Making, tp: TopicPartition, rejected: Rejected) -> None:
        """Add a dead letter, and its raw answer if it should have one. Workers never see its forecast."""
        to = "dead-letters", tp.partition % self.widths["dead-letters"]
        making.first[to].append(letter(rejected, tp.topic, tp.partition, self._limits))
        making.rejected.append((tp, rejected.offset, rejected.reason))
        if rejected.forecast is not None:
            key, value, _, headers = raw_answer(rejected, rejected.forecast, tp.topic, tp.partition, self.values)
            partition = partitioner.partition(key or b"", self.widths["calibrated"])
            # It has no time of its own, because the record's time may be wrong.
            making.first["calibrated", partition].append((key, value, None, headers))
            making.raw_answers += 1
