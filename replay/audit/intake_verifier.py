"""Maps the records of one source partition again, and compares the result with what intake has written.

Every record that intake writes names its source record. So source records and found records are read side by side, by
the offsets of the source. Memory holds one source record at a time.

Intake may send a record twice, byte for byte. If it comes again with different bytes, that is a difference.
"""

from collections.abc import Callable, Iterable
from itertools import groupby
from struct import Struct
from typing import Final

import orjson

from replay.audit.account import Account
from replay.audit.checkpoint import AuditProgress
from replay.audit.mapper import Made, Mapper
from replay.audit.output_matcher import OutputDifference, unlike
from replay.audit.plan import ANSWERS, LETTERS, MADE, NAMED, SourceSpan
from replay.audit.rows import FoundRecord, read_entry
from streams.records.merge import NEVER, KafkaRecord
from streams.records.output_values import OutputValues
from streams.records.refused import Skipped

_SOURCE: Final = Struct(">cHI")
_RECORD: Final = Struct(">cHIQ")


def prefix(topic: int, partition: int) -> bytes:
    """Return the key prefix of the entries of a source partition; ``topic`` is the topic's number."""
    return _SOURCE.pack(b"S", topic, partition)


def prefix_of(topic: int, partition: int, offset: int) -> bytes:
    """Return the key prefix of the entries whose records were made from one source record."""
    return _RECORD.pack(b"S", topic, partition, offset)


_COUNTED: Final = ("forecasts", "routes", "labels", "dead_letters", "raw_answers")


class IntakeVerifier:
    """Compares the records found for one source partition with what its records become.

    ``mapper``: maps source records as intake does.
    ``served``: reads a record by the number of its label, its partition and its offset, to show what differs.
    ``earlier``: reads, by its offset, a source record that is judged elsewhere; None if it is gone.
    ``values``: compares found values with derived ones.
    """

    def __init__(
        self,
        span: SourceSpan,
        mapper: Mapper,
        served: Callable[[int, int, int], KafkaRecord | None],
        earlier: Callable[[int], KafkaRecord | None],
        values: OutputValues,
    ) -> None:
        #: The findings, with the entries of source records that are not judged yet.
        self.found = Account(left=AuditProgress(sources={str(span): max(span.begin, span.committed)}))

        self._checked = self.found.sources
        self._span, self._mapper = span, mapper
        self._served, self._earlier, self._values = served, earlier, values

    def run(self, records: Iterable[KafkaRecord], entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Read records and entries side by side, by the offsets of the source."""
        span, checked = self._span, self._checked
        checked.gone += max(min(span.first, span.committed) - span.begin, 0)
        read = groupby(entries, lambda each: int(_RECORD.unpack_from(each[0])[-1]))
        groups = ((offset, [*map(read_entry, group)]) for offset, group in read)
        offset, found = next(groups, _NONE)
        while offset < span.begin:
            self._again(offset, found)
            offset, found = next(groups, _NONE)
        for record in records:
            while offset < record.offset:
                self._nothing_there(offset, found)
                offset, found = next(groups, _NONE)
            if offset == record.offset:
                self._compare(record, found)
                offset, found = next(groups, _NONE)
            else:
                self._compare(record, [])
        while offset < NEVER:
            self._nothing_there(offset, found)
            offset, found = next(groups, _NONE)
        self.found.by_source[str(span)] = checked

    def _compare(self, record: KafkaRecord, found: list[FoundRecord]) -> None:
        """Compare the records found for a source record with those that it becomes."""
        if record.offset >= self._span.committed:
            self._wait(record, found)
            return
        made = self._becomes(record, found)
        wanted = {each.digest: each for each in made}
        others: dict[bytes, bytes] = {}
        if any(each.digest not in wanted for each in found):
            others = {each.packed: each.digest for each in made if each.label == ANSWERS}
        seen: set[bytes] = set()
        wrong: list[FoundRecord] = []
        for each in found:
            said = others.get(each.digest, each.digest)
            if said not in wanted:
                wrong.append(each)
            elif said in seen:
                self._checked.copies += 1
            else:
                seen.add(said)
        for key, one in wanted.items():
            if key in seen:
                name = _COUNTED[one.label]
                setattr(self._checked, name, getattr(self._checked, name) + 1)
        lacking = [one for key, one in wanted.items() if key not in seen]
        unaware = self._unaware(record) if wrong else set()
        for each in wrong:
            if each.digest in unaware:
                self._checked.unaware += 1
            else:
                self._wrong(record, each, made, lacking)
        self._miss(record, lacking)
        self._count(made)

    def _unaware(self, record: KafkaRecord) -> set[bytes]:
        """Return what intake may have made from a record before it knew that the record is skipped."""
        plain = self._earlier(record.offset) if isinstance(record.value, Skipped) else None
        made = [] if plain is None else self._mapper.make(plain, NEVER)
        return {each.digest for each in made} | {each.packed for each in made if each.label == ANSWERS}

    def _wait(self, record: KafkaRecord, found: list[FoundRecord]) -> None:
        """Keep, for the next audit, the entries of a source record that intake has not committed yet."""
        self._checked.waiting += 1
        span = self._span
        of = prefix_of(span.number, span.partition, record.offset)
        self.found.left.left += [each.entry(of) for each in found]

    def _count(self, made: list[Made]) -> None:
        checked = self._checked
        checked.records += 1
        if not made:
            checked.passed += 1
        elif any(each.label == LETTERS for each in made):
            checked.dead += 1
        else:
            checked.sent += 1

    def _miss(self, record: KafkaRecord, lacking: list[Made]) -> None:
        for one in lacking:
            what = f"lost: intake has committed it, and {MADE[one.label]}/{one.partition} has no record of it"
            at, event = self._span, _event(one.value)
            self.found.differ(self._checked, OutputDifference(at.partition, at.topic, record.offset, event, what))

    def _wrong(self, record: KafkaRecord, found: FoundRecord, made: list[Made], lacking: list[Made]) -> None:
        """Name a record that is not what the mapping makes from its source record."""
        source = f"{self._span}@{record.offset}"
        near = next((one for one in lacking if one.label == found.label), None)
        if near is not None:
            lacking.remove(near)
            what = f"not what the mapping in force makes of {source}: altered"
        else:
            near = next((one for one in made if one.label == found.label), None)
            what = f"doubled with other content: {source} has become another record"
            if any(each.digest == found.digest for each in self._mapper.before(record)):
                what = (
                    f"doubled with other content: {source} was mapped by the sources file before, too: intake had not "
                    "committed it when the file was changed"
                )
            if near is None:
                becomes = " and ".join(sorted({MADE[one.label] for one in made})) or "nothing"
                what = f"the sources file makes no such record of {source}, which becomes {becomes}"
        self._show(found, near, what)

    def _show(self, found: FoundRecord, near: Made | None, what: str) -> None:
        served = (
            self._served(found.label, found.partition, found.offset) if len(self.found.differences) < NAMED else None
        )
        fields = {}
        if served is not None and near is not None:
            fields = unlike(served, near.key, near.value, near.stamp, self._values.compared)
            if near.partition != found.partition:
                fields["partition"] = (found.partition, near.partition)
            if list(served.headers) != near.headers:
                fields["headers"] = (repr(list(served.headers)), repr(near.headers))
        event = None if served is None else _event(served.value)
        self.found.differ(
            self._checked, OutputDifference(found.partition, MADE[found.label], found.offset, event, what, fields)
        )

    def _nothing_there(self, offset: int, found: list[FoundRecord]) -> None:
        """Judge records whose source record is gone."""
        span = self._span
        if offset < span.first:
            self._checked.gone += offset >= span.committed
            return
        if span.sparse:
            self._checked.gone += 1
            return
        for each in found:
            self._show(each, None, f"made of {span}@{offset}, which is not there: the source has no such record")

    def _again(self, offset: int, found: list[FoundRecord]) -> None:
        """Compare copies whose source record an earlier audit or the next group judges."""
        record = self._earlier(offset)
        if record is None:
            self._checked.gone += 1
            return
        made = self._becomes(record, found)
        for each in found:
            if any(each.digest == one.digest for one in made):
                self._checked.copies += 1
            else:
                self._wrong(record, each, made, [])

    def _becomes(self, record: KafkaRecord, found: list[FoundRecord]) -> list[Made]:
        """Return what a record becomes. If the result depends only on when it was read, the found record is right."""
        made = self._mapper.make(record, NEVER)
        letters = {each.digest for each in found if each.label == LETTERS}
        if not letters or any(one.digest in letters for one in made):
            return made
        for other in (self._mapper.make(record, -NEVER), self._mapper.unknown_schema(record)):
            if any(one.digest in letters for one in other):
                self._checked.of_the_moment += 1
                return other
        return made


#: Marks the end, after the last group.
_NONE: Final[tuple[int, list[FoundRecord]]] = (NEVER, [])


def _event(value: bytes | None) -> str | None:
    try:
        event_id = orjson.loads(value or b"")["event_id"]
    except (ValueError, KeyError, TypeError):
        return None
    return event_id if isinstance(event_id, str) else None
