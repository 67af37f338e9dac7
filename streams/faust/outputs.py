"""Sends outputs as record batches. They are acknowledged before the inputs that they answer."""

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, Final

import orjson
from aiokafka.structs import TopicPartition

from state.events import Output
from streams.config.settings import Settings
from streams.faust.producing import BatchProducer, Produced, RecordBatch
from streams.kafka import whole_topics
from streams.records import output_avro
from streams.records.encoding import EncodedRecord, answered_raw, encoded

log = logging.getLogger("trueup")

#: The output topics by label.
LABELS: Final = ("calibrated", "resolved", "dead-letters")
#: Fields that identify the input record of an output. They are counted, not computed.
_MEANT: Final = {"calibrated": ("event_id", "applied"), "resolved": ("event_id", "resolved_ts", "revision", "y")}


class Outputs:
    """Produces to the three output topics.

    ``producer``: returns the producer; the application makes it when it starts.
    ``produced``: called with the label of a topic and a number of acknowledged records.
    """

    def __init__(
        self,
        settings: Settings,
        producer: Callable[[], BatchProducer],
        produced: Callable[[str, int], None],
    ) -> None:
        self.settings = settings
        self.producer = producer
        self.produced = produced
        #: Dead forecasts answered with their raw score since the process began.
        self.raw_answers = 0
        self.topics = dict(zip(LABELS, settings.outputs, strict=True))

    def batch(self, partition: int, settings: Settings, heard: "Heard | None" = None) -> "OutputBatch":
        """Return an empty batch for the outputs of a partition.

        ``settings``: the settings under which its records were folded.
        ``heard``: outputs that may be in the topics already; these are left out.
        """
        return OutputBatch(self, partition, settings, heard)

    async def send(self, batches: Sequence["OutputBatch"]) -> dict[int, dict[str, int]]:
        """Produce batches of different partitions together.

        Raises as `PackedBatch.send`. Returns the next offset of each topic that was appended to, by partition and by
        the topic's label.
        """
        first, *others = batches
        ends = defaultdict[int, dict[str, int]](dict)
        for (label, partition), end in (await first.send(others)).items():
            ends[partition][label] = end
        self.raw_answers += sum(batch.raw_answers for batch in batches)
        return ends

    async def heard(self, starts: Mapping[int, Sequence[int]]) -> dict[int, "Heard"]:
        """Read the output topics from some offsets on.

        Raises KafkaError if they cannot be read.

        ``starts``: offsets by partition, in the order of the topics.
        """
        labels = {topic: label for label, topic in self.topics.items()}
        found = {partition: Heard(self.settings.inputs) for partition in starts}
        places = {
            TopicPartition(topic, partition): offset
            for partition, offsets in starts.items()
            for topic, offset in zip(labels, offsets, strict=True)
        }
        async for topic, records in whole_topics.batches(self.settings, list(labels), starts=places):
            heard, label = found[records[0].partition], labels[topic]
            heard.said[label] += [(each.key, each.value) for each in records]
            heard.ends[label] = records[-1].offset + 1
        return found

    async def note(self, partition: int, entry: bytes) -> None:
        """Append an entry to the topic of the journal; raises as `PackedBatch.send`."""
        await self.producer().put(self.settings.journal, partition, None, entry)


class Heard:
    """The outputs in a partition's topics, while its records are folded again.

    ``inputs``: the worker's input topics. Dead letters about other topics, and their raw answers, come from
    intake or router.
    """

    def __init__(self, inputs: Sequence[str] = ()) -> None:
        self._inputs = inputs
        #: Key and value of outputs that have not been derived again yet, by their topic's label.
        self.said = defaultdict[str, deque[tuple[bytes | None, bytes | None]]](deque)
        #: Next offset of each topic, by its label.
        self.ends: dict[str, int] = {}
        self._unlike = 0

    def unsaid(self, label: str, records: list[EncodedRecord]) -> list[EncodedRecord]:
        """Return the derived records that are not in a topic yet.

        One worker appended them in order, so after the first missing record all are missing. A later record that looks
        the same is another one: a forecast that is sent again has the same answer. There may be copies in between, from
        a worker that did not know yet that the partition had moved. If another kind of machine computed an output
        differently, that output stays: nobody gets a second, different answer.
        """
        said = self.said[label]
        for n, record in enumerate(records):
            try:
                found = said.index(record[:2])
            except ValueError:
                meant = _meant(label, record[1])
                found = next((i for i, (_, value) in enumerate(said) if meant and _meant(label, value) == meant), -1)
                self._unlike += 1 if found >= 0 else self._own(label)
                if found < 0:
                    said.clear()
                    return records[n:]
            for _ in range(found + 1):
                said.popleft()
        return []

    def _own(self, label: str) -> int:
        """Return how many of a worker's outputs are left in a topic."""
        sources = [_source(label, value) for _, value in self.said[label]]
        return sum(source is None or source in self._inputs for source in sources)

    def compare(self, partition: int) -> int:
        """Count and log a worker's outputs that differ from the derived ones, or are left over at the end."""
        unlike = self._unlike + sum(map(self._own, LABELS))
        if unlike:
            log.error(
                "%d records in the output topics of partition %d differ from what its records give here: "
                "does another kind of machine run in this group? Audit it",
                unlike,
                partition,
            )
        return unlike

    @property
    def offsets(self) -> list[int | None]:
        """Offset of the first record that is left in each topic of `LABELS`; None if none is left."""
        return [self.ends[label] - len(self.said[label]) if self.said[label] else None for label in LABELS]


def _meant(label: str, value: bytes | None) -> tuple[Any, ...]:
    """Return the fields that identify the input record of an output; empty if it has none."""
    found = _fields(label, value)
    names = _MEANT.get(label, ())
    return tuple([found[name] for name in names]) if found.keys() >= set(names) else ()


def _source(label: str, value: bytes | None) -> str | None:
    """Return the topic of the record that a dead letter or its raw answer is about; None for other outputs."""
    found = _fields(label, value)
    letter = found if label == "dead-letters" else found.get("dead_letter")
    return letter.get("topic") if isinstance(letter, dict) else None


def _fields(label: str, value: bytes | None) -> dict[str, Any]:
    """Return an output's fields; empty if it cannot be read."""
    given = value or b""
    try:
        found = output_avro.fields(output_avro.SCHEMAS[label], given[5:]) if given[:1] == b"\0" else orjson.loads(given)
    except (KeyError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class PackedBatch:
    """Records that are packed when they are made, by topic and partition, and sent later.

    ``topics``: names by label.
    ``producer``: returns the producer.
    ``produced``: called with the label of a topic and a number of acknowledged records.
    """

    def __init__(
        self, topics: Mapping[str, str], producer: Callable[[], BatchProducer], produced: Callable[[str, int], None]
    ) -> None:
        self._topics = topics
        self._producer = producer
        self._produced = produced
        #: Record batches by the topic's label and the partition.
        self.packed: dict[tuple[str, int], list[RecordBatch]] = {}

    def pack(self, label: str, partition: int, records: Sequence[Produced]) -> None:
        """Add records of a partition of a topic, in their order.

        Raises ValueError if a record does not fit a record batch.
        """
        packed = self.packed.setdefault((label, partition), [])
        taken = packed[-1].extend(records) if packed else 0
        while taken < len(records):
            batch = self._producer().batch()
            packed.append(batch)
            more = batch.extend(records[taken:])
            if not more:
                size = len(records[taken][1] or b"")
                raise ValueError(f"a record of {size} bytes for {self._topics[label]} does not fit TRUEUP_BATCH_BYTES")
            taken += more

    async def send(self, others: Sequence["PackedBatch"] = ()) -> dict[tuple[str, int], int]:
        """Produce these records and those packed for other partitions. Return when all are acknowledged.

        Raises KafkaError or TimeoutError if one is not acknowledged. Returns the next offset by label and partition.
        """
        every = chain.from_iterable(each.packed.items() for each in (self, *others))
        rounds = zip_longest(*[[(batch, to) for batch in packed] for to, packed in every])
        ends: dict[tuple[str, int], int] = {}
        for together in rounds:  # one batch of each topic-partition after another
            sent = [each for each in together if each is not None]
            to = [(batch, self._topics[label], partition) for batch, (label, partition) in sent]
            for offset, (batch, place) in zip(await self._producer().append(to), sent, strict=True):
                self._produced(place[0], batch.record_count())
                ends[place] = offset + batch.record_count()
        return ends


class OutputBatch(PackedBatch):
    """The outputs of one batch. Each goes to the partition of its input, so an event's records keep their order."""

    def __init__(self, outputs: Outputs, partition: int, settings: Settings, heard: Heard | None) -> None:
        super().__init__(outputs.topics, outputs.producer, outputs.produced)
        #: That partition.
        self.partition = partition

        self._settings = settings
        self._heard = heard
        #: Dead forecasts that are answered with their raw score.
        self.raw_answers = 0

    def add(self, outputs: Sequence[Output]) -> None:
        """Pack outputs, in order. Raises ValueError if an output does not fit a record batch."""
        if self._settings.policies.answering:
            self.raw_answers += sum(answered_raw(output, self._settings) is not None for output in outputs)
        for label, records in encoded(outputs, self._settings, self.partition).items():
            unsaid = records if self._heard is None else self._heard.unsaid(label, records)
            if unsaid:
                self.pack(label, self.partition, unsaid)
