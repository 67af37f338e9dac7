"""First pass of an audit that begins at the sources: turns what intake and router have written into sorted entries.

An entry keeps the place of a record, its origin, and a hash.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from replay.audit import intake_verifier, router_verifier
from replay.audit.account import Account
from replay.audit.output_matcher import OutputDifference
from replay.audit.plan import ANSWERS, LABELS, LETTERS, OUTCOMES, ROUTES, WRITTEN, AuditPlan
from replay.audit.rows import FoundRecord, digest
from streams.kafka import partitioner
from streams.records import skips
from streams.records.merge import KafkaRecord
from streams.records.output_values import OutputValues
from streams.records.routing import LOADED


class Gatherer:
    """Turns what intake and router have written to one partition of each topic into entries."""

    def __init__(self, plan: AuditPlan, partition: int) -> None:
        #: Records that no source explains; and records of sources, routes and labels that an operator skipped.
        self.found = Account()

        self._plan = plan
        self._partition = partition
        self._numbers = {span.topic: span.number for span in plan.sources}
        #: The topic for each id.
        self._named = {topic_id: topic for topic, topic_id in plan.ids.items()}
        self._places: dict[str, tuple[str, int] | None] = {}
        self._routed = {plan.settings.routes: 0, plan.settings.labels: 1}
        self._own = set(plan.settings.inputs)
        self._values = OutputValues(plan.settings.registry)

    def of(self, label: int, records: Iterable[KafkaRecord]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of one topic."""
        for record in records:
            try:
                made = self._outcome(record) if label == OUTCOMES else self._made(label, record)
            except (ValueError, KeyError, TypeError):
                made = None
                if label in self._plan.strict:
                    self._foreign(label, record)
            if made is not None:
                yield made

    def _made(self, label: int, record: KafkaRecord) -> tuple[bytes, bytes] | None:
        value = record.value or b""
        if label == ANSWERS:
            found = self._raw_answer(value)
            if found is None:
                return None
            read, value = found
        else:
            read = orjson.loads(value)
        if label in (LETTERS, ANSWERS):
            letter = read if label == LETTERS else read["dead_letter"]
            topic, number, offset = letter["topic"], letter["partition"], letter["offset"]
            left_out = skips.of_dead_letter(value) if label == LETTERS and topic not in self._own else None
            if left_out is not None:
                self.found.left.skipped.append(left_out)
            if label == LETTERS and topic in self._routed and _is_offset(offset):
                said = digest(self._partition, record.key, value, None, record.headers)
                name = router_verifier.letter_name(self._routed[topic], offset)
                sent = FoundRecord(LETTERS, self._partition, record.offset, said, name)
                return sent.entry(router_verifier.prefix(self._partition))
            place = (topic, number) if topic in self._numbers else None
            if place is None:
                self.found.sources.unread += topic not in self._own
            stamp = None
        else:
            if self._of_command(label, read):
                return None
            name, offset = read["origin"]
            place, stamp = self._source(name), self._stamp(label, record)
            if place is None:
                self.found.sources.unread += 1
        if place is None:
            return None
        if not _is_offset(offset) or type(place[1]) is not int:
            raise ValueError(offset)
        said = digest(self._partition, record.key, value, stamp, record.headers)
        made = FoundRecord(label, self._partition, record.offset, said)
        return made.entry(intake_verifier.prefix_of(self._numbers[place[0]], place[1], offset))

    def _of_command(self, label: int, read: dict[str, Any]) -> bool:
        """Return whether a command wrote this record, not intake: a route that was loaded, or a label that erases."""
        loaded = label == ROUTES and str(read["origin"][0]).startswith(f"{LOADED}@")
        erases = label == LABELS and read.get("erase") is True and "origin" not in read
        self.found.sources.loaded += loaded
        self.found.sources.erased += erases
        return loaded or erases

    def _raw_answer(self, value: bytes) -> tuple[dict[str, Any], bytes] | None:
        """Return a raw answer, and its value without the schema's id; None if the answer is not raw."""
        if value[:1] != b"\0":
            return (orjson.loads(value), value) if b'"calibrated":false' in value else None
        read = self._values.fields(value)
        return (read, self._values.bare(value)) if read.get("calibrated") is False else None

    def _stamp(self, label: int, record: KafkaRecord) -> int | None:
        """Return the Kafka timestamp of a record if it is the timestamp of its origin."""
        return max(0, record.timestamp) if label in self._plan.stamped else None

    def _source(self, name: str) -> tuple[str, int] | None:
        """Return the topic and partition that an origin names; None if the topic no longer exists."""
        if name not in self._places:
            _, _, rest = name.rpartition("@")
            topic_id, _, partition = rest.partition("/")
            topic = self._named.get(topic_id)
            self._places[name] = None if topic is None else (topic, int(partition))
        return self._places[name]

    def _outcome(self, record: KafkaRecord) -> tuple[bytes, bytes] | None:
        if OUTCOMES not in self._plan.strict:
            return None
        value = record.value or b""
        read = orjson.loads(value)
        event_id, stream, erases = read["event_id"], read["scope"], read.get("erase") is True
        number = 0 if erases else read["revision"]
        if "\0" in event_id or "\0" in stream or not (erases or 0 < number < 1 << 32):
            raise ValueError(event_id)
        said = digest(self._partition, record.key, value, self._stamp(OUTCOMES, record), record.headers)
        router = partitioner.partition(event_id.encode(), self._plan.partitions)
        name = router_verifier.outcome_name(event_id, stream, number)
        return FoundRecord(OUTCOMES, self._partition, record.offset, said, name).entry(router_verifier.prefix(router))

    def _foreign(self, label: int, record: KafkaRecord) -> None:
        what = f"a record that {'the router' if label == OUTCOMES else 'intake'} did not write: it names no source"
        difference = OutputDifference(self._partition, WRITTEN[label], record.offset, None, what)
        self.found.differ(self.found.sources, difference)


def _is_offset(offset: object) -> bool:
    return type(offset) is int and 0 <= offset < 1 << 63
