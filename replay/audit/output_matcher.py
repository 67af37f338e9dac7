"""Compares the records of an output topic with those derived from the inputs.

Outputs are in the order of the journal. A crash may repeat some of them later, byte for byte. So a record is either the
next derived one, a copy of an earlier one, or a difference.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from streams.kafka.topics import TopicsError
from streams.records.merge import KafkaRecord
from streams.records.output_values import OutputValues, compared

#: Number of records of a topic that may be repeated. A crash repeats the batches in flight, at most 12,000 records. The
#: rest is room for several crashes, and for batches of a fenced worker.
WINDOW: Final = 64_000


class Unauditable(TopicsError):  # noqa: N818 - names what it found
    """The topics lack what an audit needs; the message says what is missing."""


class OutputDifference(NamedTuple):
    """The first record of a partition that differs from the derived one."""

    #: Its place, with ``topic`` as its label. The offset is None for a missing record.
    partition: int
    topic: str
    offset: int | None
    #: Its event; None if unknown.
    event_id: str | None
    #: What is wrong, in words.
    what: str
    #: For each field that differs, the served and the derived value; None for a missing field.
    fields: dict[str, tuple[Any, Any]] = {}  # noqa: RUF012 - a NamedTuple's default is never written to


class Differs(Exception):  # noqa: N818 - names what it found
    """Served and derived records differ. The argument is the `OutputDifference`."""


#: Headers of a record.
RecordHeaders = tuple[tuple[str, bytes | None], ...]


class Derived(NamedTuple):
    """A derived output: its identity, and its record with the value as JSON."""

    identity: Any
    key: bytes | None
    value: bytes
    headers: RecordHeaders = ()


class Settled(NamedTuple):
    """Progress in a topic."""

    #: Next offset to read.
    next: int
    #: Records that equal the derived ones, and copies of these.
    matched: int = 0
    copies: int = 0
    #: The last derived records, the oldest first.
    recent: tuple[Derived, ...] = ()


def unlike(
    served: KafkaRecord,
    key: bytes | None,
    value: bytes,
    stamp: int | None,
    compare: Callable[[bytes | None, bytes], dict[str, tuple[Any, Any]]] = compared,
) -> dict[str, tuple[Any, Any]]:
    """Return how a record differs from the derived one. ``stamp`` is None if Kafka timestamps are not compared."""
    fields = {} if served.value == value else compare(served.value, value)
    if served.key != key:
        fields["key"] = (repr(served.key), repr(key))
    if stamp is not None and served.timestamp != stamp:
        fields["Kafka timestamp"] = (served.timestamp, stamp)
    return fields


class Matcher:
    """Compares the records of one output topic with the derived ones, in order.

    ``identify``: returns a record's identity from its fields; KeyError or TypeError if it does not belong in the topic.
    ``elsewhere``: returns whether intake or router made a record, not the worker, given its identity.
    ``since``: progress of an earlier audit.
    """

    def __init__(
        self,
        partition: int,
        label: str,
        records: Iterator[KafkaRecord],
        identify: Callable[[dict[str, Any]], Any],
        values: OutputValues,
        elsewhere: Callable[[Any], bool],
        since: Settled,
    ) -> None:
        self._partition, self._label, self._records = partition, label, records
        self._identify, self._values, self._elsewhere = identify, values, elsewhere
        self.next, self.matched, self.copies, _ = since
        #: The last derived records, by identity, in order.
        self._recent: dict[Any, list[Derived]] = {}
        self._order: deque[Derived] = deque()
        for each in since.recent:
            self._remember(each)

    def settled(self) -> Settled:
        """Return the progress from which the next audit can go on."""
        return Settled(self.next, self.matched, self.copies, tuple(self._order))

    def meet(self, derived: Iterable[Derived]) -> None:
        """Find the record of each derived output, one after another; raises `Differs` if one is missing or differs."""
        for each in derived:
            for record in self._records:
                self.next = record.offset + 1
                if self._is(record, each):
                    break
                identity = self._identity(record)
                if not self._passed(record, identity):
                    raise Differs(self._instead(each, record, identity))
            else:
                raise Differs(self._missing(each))
            self.matched += 1
            self._remember(each)

    def rest(self, *, whole: bool, due: Callable[[Any], bool]) -> int:
        """Read to the end, and return the number of records that are neither derived nor copies.

        Raises Differs if there is a record that must not exist, or a copy that differs from its original.

        ``whole``: whether all inputs were folded, so that only copies may follow. Otherwise other records may follow,
          and only copies of a record whose identity is its place must be equal.
        ``due``: returns whether the clock may have caused a record, given its identity.
        """
        found = 0
        for record in self._records:
            identity = self._identity(record)
            if self._passed(record, identity):
                continue
            # An event that comes again after its row was deleted may get a different answer, after the last entry.
            again = self._recent.get(identity)
            if (whole or (again and type(identity) is tuple)) and not due(identity):
                if again:
                    raise Differs(self._unlike(record, again[-1], "a copy that is not the same"))
                raise Differs(self._unasked(record, identity))
            found += 1
        return found

    def _identity(self, record: KafkaRecord) -> Any:  # noqa: ANN401 - of the topic's kind
        try:
            return self._identify(self._values.fields(record.value or b""))
        except (ValueError, KeyError, TypeError, AttributeError):
            what = "a record no worker writes"
            raise Differs(OutputDifference(self._partition, self._label, record.offset, None, what)) from None

    def _passed(self, record: KafkaRecord, identity: object) -> bool:
        """Whether a record comes from another stage or is a copy. Counts copies."""
        if self._elsewhere(identity):
            return True
        copy = any(self._is(record, each) for each in self._recent.get(identity, ()))
        self.copies += copy
        return copy

    def _is(self, record: KafkaRecord, derived: Derived) -> bool:
        return (
            (record.value == derived.value or self._values.same(record.value, derived.value))
            and record.key == derived.key
            and tuple(record.headers) == derived.headers
        )

    def _remember(self, derived: Derived) -> None:
        self._recent.setdefault(derived.identity, []).append(derived)
        self._order.append(derived)
        if len(self._order) > WINDOW:
            oldest = self._order.popleft().identity
            del self._recent[oldest][0]
            if not self._recent[oldest]:
                del self._recent[oldest]

    def _instead(self, derived: Derived, record: KafkaRecord, identity: object) -> OutputDifference:
        """Describe a record that is in the place of a derived one."""
        if identity == derived.identity:
            return self._unlike(record, derived, "served and derived differ")
        if identity in self._recent:
            return self._unlike(record, self._recent[identity][-1], "a copy that is not the same")
        for later in islice(self._records, WINDOW):
            if self._identity(later) == derived.identity:
                if self._is(later, derived):
                    return self._unasked(record, identity, f", or it stands before that of {derived.identity}")
                return self._unlike(later, derived, "served and derived differ")
        return self._missing(derived)

    def _unlike(self, record: KafkaRecord, derived: Derived, what: str) -> OutputDifference:
        fields = {}
        if not self._values.same(record.value, derived.value):
            fields = self._values.compared(record.value, derived.value)
        if record.key != derived.key:
            fields["key"] = (repr(record.key), repr(derived.key))
        if tuple(record.headers) != derived.headers:
            fields["headers"] = (repr(record.headers), repr(derived.headers))
        return OutputDifference(self._partition, self._label, record.offset, str(derived.identity), what, fields)

    def _unasked(self, record: KafkaRecord, identity: object, more: str = "") -> OutputDifference:
        what = f"nothing in the inputs leads to this record{more}"
        return OutputDifference(self._partition, self._label, record.offset, str(identity), what)

    def _missing(self, derived: Derived) -> OutputDifference:
        what = "the inputs lead to a record that is missing"
        return OutputDifference(self._partition, self._label, None, str(derived.identity), what)
