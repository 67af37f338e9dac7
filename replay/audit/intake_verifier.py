"""What intake has made of one source partition, made again of its records and compared.

Every record that intake writes names the source record it was made of. So the records of a source partition and what
was found of them are walked together, by the offsets of the source. Memory holds one source record at a time.

Intake may send a record twice, byte for byte. What comes again with other bytes is a difference.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from struct import Struct
from typing import Any, Final, NamedTuple

import orjson

from replay.audit.entries import digest
from replay.audit.output_matcher import OutputDifference, unlike
from streams.records.making import Making, Record
from streams.records.merge import NEVER, KafkaRecord
from streams.records.output_values import compared, packed

#: What intake writes, by the labels of the topics.
FORECASTS, ROUTES, LABELS, LETTERS, ANSWERS = range(5)
MADE: Final = ("forecasts", "routes", "labels", "dead-letters", "calibrated")
#: Differences that are named of one partition; further ones are counted.
NAMED: Final = 20

_SOURCE: Final = Struct(">cHI")
_KEY: Final = Struct(">cHIQBIQ")


class Found(NamedTuple):
    """A record that names a source record: its topic by `MADE`, its place there, and its `digest`."""

    label: int
    partition: int
    offset: int
    digest: bytes

    def __str__(self) -> str:
        return f"{MADE[self.label]}/{self.partition}@{self.offset}"


class Made(NamedTuple):
    """A record that a source record becomes."""

    label: int
    partition: int
    record: Record

    @property
    def digest(self) -> bytes:
        """What `Found` has of it."""
        key, value, stamp, headers = self.record
        return digest(self.partition, key, value, stamp, headers)

    @property
    def packed(self) -> bytes:
        """What `Found` has of an answer that was written in Avro."""
        key, value, stamp, headers = self.record
        return digest(self.partition, key, packed(orjson.loads(value)), stamp, headers)

    def unstamped(self) -> "Made":
        """Return it without its Kafka timestamp, for a topic to which the brokers give their own."""
        return self._replace(record=self.record._replace(stamp=None))


def prefix(topic: int, partition: int) -> bytes:
    """Return how the keys of the entries of a source partition begin; ``topic`` is its number."""
    return _SOURCE.pack(b"S", topic, partition)


def entry(topic: int, partition: int, offset: int, found: Found) -> tuple[bytes, bytes]:
    """Return the entry of a record that was made of a source record."""
    return _KEY.pack(b"S", topic, partition, offset, found.label, found.partition, found.offset), found.digest


def read_entry(entry: tuple[bytes, bytes]) -> tuple[int, Found]:
    """Return the offset of the source record, and what was found."""
    _, _, _, offset, label, partition, place = _KEY.unpack(entry[0])
    return offset, Found(label, partition, place, entry[1])


def made(making: Making) -> list[Made]:
    """Return what a batch of source records becomes, one after another."""
    return [
        Made(MADE.index(label), partition, record)
        for part in (making.first, making.then)
        for (label, partition), records in part.items()
        for record in records
    ]


@dataclass(frozen=True)
class SourceSpan:
    """What there is of one source partition.

    Attributes
    ----------
    topic, number, partition
        Its topic, that topic's number among the sources, and which partition.
    first, committed, end
        Offset of the first record kept, the next that intake has to commit, and the end.
    sparse
        Whether the topic is compacted: records may then have left from between others.
    begin
        The first that earlier audits have not judged.
    last
        Whether the group was moved: what is not committed is for intake of the next one.
    """

    topic: str
    number: int
    partition: int
    first: int
    committed: int
    end: int
    sparse: bool = False
    begin: int = 0
    last: bool = False

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass
class Followed:
    """What was compared of sources.

    Attributes
    ----------
    records
        Source records that intake has committed.
    sent, dead, passed
        Those that became a forecast or a label, those that became a dead letter, and those that became nothing.
    forecasts, routes, labels, dead_letters, raw_answers
        Records that are what the mapping makes, in their place.
    copies
        The same records once more: they change nothing behind intake.
    of_the_moment
        Dead letters for a reason that only the moment could tell; the rest of the letter is as it must be.
    waiting
        Source records that are not committed yet.
    gone
        Source records that are not there any more, and those of which what was made is not: not judged.
    unread
        Records made of source topics that are not there any more, and dead letters of other readers: not judged.
    unrecorded
        Source records from before intake wrote down its mapping: they are mapped by the streams file that is given.
    loaded
        Routes that `replay.load` wrote: they come from no source, and what was loaded is not judged.
    """

    records: int = 0
    sent: int = 0
    dead: int = 0
    passed: int = 0
    forecasts: int = 0
    routes: int = 0
    labels: int = 0
    dead_letters: int = 0
    raw_answers: int = 0
    copies: int = 0
    of_the_moment: int = 0
    waiting: int = 0
    gone: int = 0
    unread: int = 0
    unrecorded: int = 0
    loaded: int = 0
    differences: int = 0


_COUNTED: Final = ("forecasts", "routes", "labels", "dead_letters", "raw_answers")


class IntakeVerifier:
    """Compares what was found of one source partition with what its records become.

    Parameters
    ----------
    span
        The partition.
    make
        Returns what a record becomes; given the time in ms, see `Maker.make`.
    cuts
        By label and partition, of a topic whose first records were deleted: the first offset of this source partition
        that a record there names, None if none does. What was made of earlier ones may have been deleted.
    unknown_schema
        Returns the dead letter of a record whose schema the registry did not have.
    served
        Reads a record by the number of its label, its partition and its offset, to show what differs.
    compare
        Returns the fields in which a value that was served and one that was made differ.
    earlier
        Reads a source record that is not judged by its offset; None if it is not there any more.
    recorded
        Whether intake has written down by what it mapped the record at an offset.
    before
        Returns what a record becomes by the mapping before the one that was in force.
    """

    def __init__(
        self,
        span: SourceSpan,
        make: Callable[[KafkaRecord, int], list[Made]],
        cuts: Mapping[tuple[int, int], int | None],
        unknown_schema: Callable[[KafkaRecord], list[Made]] = lambda _: [],
        served: Callable[[int, int, int], KafkaRecord | None] = lambda *_: None,
        compare: Callable[[bytes | None, bytes], dict[str, tuple[Any, Any]]] = compared,
        earlier: Callable[[int], KafkaRecord | None] = lambda _: None,
        recorded: Callable[[int], bool] = lambda _: False,
        before: Callable[[KafkaRecord], list[Made]] = lambda _: [],
    ) -> None:
        self.checked = Followed()
        #: Entries of source records that are not judged yet, for the next audit.
        self.left: list[tuple[bytes, bytes]] = []
        #: The first differences; `checked` counts all.
        self.differences: list[OutputDifference] = []
        self._span = span
        self._make = make
        self._cuts = cuts
        self._unknown_schema = unknown_schema
        self._served = served
        self._compared = compare
        self._earlier = earlier
        self._recorded = recorded
        self._before = before

    def run(self, records: Iterable[KafkaRecord], entries: Iterable[tuple[bytes, bytes]]) -> Iterator[int]:
        """Walk records and entries, both by the offsets of the source; yields 1 for each record."""
        span, checked = self._span, self.checked
        checked.gone += max(min(span.first, span.committed) - span.begin, 0)
        groups = ((offset, [each for _, each in group]) for offset, group in groupby(map(read_entry, entries), _first))
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
            yield 1
        while offset < NEVER:
            # A killed intake may have sent what the next group's intake sends again.
            again = span.last and span.committed <= offset < span.end
            (self._again if again else self._nothing_there)(offset, found)
            offset, found = next(groups, _NONE)

    def _compare(self, record: KafkaRecord, found: list[Found]) -> None:
        """Compare what was found of a source record with what it becomes."""
        if record.offset >= self._span.committed:
            self._wait(record, found)
            return
        made = self._becomes(record, found)
        wanted = {each.digest: each for each in made}
        others: dict[bytes, bytes] = {}
        if any(each.digest not in wanted for each in found):
            others = {each.packed: each.digest for each in made if each.label == ANSWERS}
        seen: set[bytes] = set()
        wrong: list[Found] = []
        for each in found:
            said = others.get(each.digest, each.digest)
            if said not in wanted:
                wrong.append(each)
            elif said in seen:
                self.checked.copies += 1
            else:
                seen.add(said)
        for key, one in wanted.items():
            if key in seen:
                name = _COUNTED[one.label]
                setattr(self.checked, name, getattr(self.checked, name) + 1)
        lacking = [one for key, one in wanted.items() if key not in seen]
        for each in wrong:
            self._wrong(record, each, made, lacking)
        recorded = self._recorded(record.offset)
        self._count(made, gone=bool(self._missing(record, lacking)), recorded=recorded)

    def _wait(self, record: KafkaRecord, found: list[Found]) -> None:
        """Keep what was found of a record that intake has not committed for when it has."""
        self.checked.waiting += 1
        span = self._span
        self.left += [entry(span.number, span.partition, record.offset, each) for each in found]

    def _count(self, made: list[Made], *, gone: bool, recorded: bool) -> None:
        checked = self.checked
        checked.records += 1
        checked.unrecorded += not recorded
        if gone:
            checked.gone += 1
        elif not made:
            checked.passed += 1
        elif any(each.label == LETTERS for each in made):
            checked.dead += 1
        else:
            checked.sent += 1

    def _missing(self, record: KafkaRecord, lacking: list[Made]) -> int:
        """Name what is missing, and return of how many records that cannot be told from what was deleted."""
        gone = 0
        for one in lacking:
            place = one.label, one.partition
            if place in self._cuts:
                first = self._cuts[place]
                if first is None or record.offset < first:
                    gone += 1
                    continue
            what = f"lost: intake has committed it, and {MADE[one.label]}/{one.partition} has no record of it"
            self._differs(record.offset, _event(one.record.value), what, {})
        return gone

    def _wrong(self, record: KafkaRecord, found: Found, made: list[Made], lacking: list[Made]) -> None:
        """Name a record that is not what the mapping makes of its source record."""
        source = f"{self._span}@{record.offset}"
        near = next((one for one in lacking if one.label == found.label), None)
        if near is not None:
            lacking.remove(near)
            what = f"not what the mapping in force makes of {source}: altered"
            if not self._recorded(record.offset):
                what = (
                    f"not what the sources file makes of {source}: altered, or mapped under another file; intake has "
                    "not written down by which"
                )
        else:
            near = next((one for one in made if one.label == found.label), None)
            what = f"doubled with other content: {source} has become another record"
            if any(each.digest == found.digest for each in self._before(record)):
                what = (
                    f"doubled with other content: {source} was mapped by the sources file before, too: intake had not "
                    "committed it when the file was changed"
                )
            if near is None:
                becomes = " and ".join(sorted({MADE[one.label] for one in made})) or "nothing"
                what = f"the sources file makes no such record of {source}, which becomes {becomes}"
        self._show(found, near, what)

    def _show(self, found: Found, near: Made | None, what: str) -> None:
        served = self._served(found.label, found.partition, found.offset) if len(self.differences) < NAMED else None
        fields = {}
        if served is not None and near is not None:
            key, value, stamp, headers = near.record
            fields = unlike(served, key, value, stamp, self._compared)
            if near.partition != found.partition:
                fields["partition"] = (found.partition, near.partition)
            if list(served.headers) != headers:
                fields["headers"] = (repr(list(served.headers)), repr(headers))
        event = None if served is None else _event(served.value)
        self._add(OutputDifference(found.partition, MADE[found.label], found.offset, event, what, fields))

    def _nothing_there(self, offset: int, found: list[Found]) -> None:
        """Judge what was made of a source record that is not there."""
        span = self._span
        if offset < span.first:
            self.checked.gone += offset >= span.committed
            return
        if span.sparse:
            self.checked.gone += 1
            return
        for each in found:
            self._show(each, None, f"made of {span}@{offset}, which is not there: the source has no such record")

    def _differs(self, offset: int, event: str | None, what: str, fields: dict[str, tuple[Any, Any]]) -> None:
        self._add(OutputDifference(self._span.partition, self._span.topic, offset, event, what, fields))

    def _add(self, difference: OutputDifference) -> None:
        self.checked.differences += 1
        if len(self.differences) < NAMED:
            self.differences.append(difference)

    def _again(self, offset: int, found: list[Found]) -> None:
        """Compare what came of a record that is judged elsewhere, by an earlier audit or in the next group: copies."""
        record = self._earlier(offset)
        if record is None:
            self.checked.gone += 1
            return
        made = self._becomes(record, found)
        for each in found:
            if any(each.digest == one.digest for one in made):
                self.checked.copies += 1
            else:
                self._wrong(record, each, made, [])

    def _becomes(self, record: KafkaRecord, found: list[Found]) -> list[Made]:
        """Return what a record becomes; of what only the moment could tell, what it is found to have become."""
        made = self._make(record, NEVER)
        letters = {each.digest for each in found if each.label == LETTERS}
        if not letters or any(one.digest in letters for one in made):
            return made
        for other in (self._make(record, -NEVER), self._unknown_schema(record)):
            if any(one.digest in letters for one in other):
                self.checked.of_the_moment += 1
                return other
        return made


def _first(read: tuple[int, Found]) -> int:
    return read[0]


#: Stands behind the last group.
_NONE: Final[tuple[int, list[Found]]] = (NEVER, [])


def _event(value: bytes | None) -> str | None:
    try:
        event_id = orjson.loads(value or b"")["event_id"]
    except (ValueError, KeyError, TypeError):
        return None
    return event_id if isinstance(event_id, str) else None
