"""Outputs as evidence: the records of a topic against those that are derived from the inputs.

Outputs stand in the order of the fold. A crash repeats some of them, byte for byte: such copies may stand anywhere
behind the first. So a record is the next that was derived, or a copy of one before it, or a difference.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from streams.records.merge import KafkaRecord
from streams.records.output_values import OutputValues, compared

#: Records of one topic of which copies may come. A crash repeats the batches that were on their way, at most 12,000
#: records; the rest is room for several crashes, and for what a worker that was fenced had on its way.
WINDOW: Final = 64_000


class Unauditable(Exception):  # noqa: N818 - names what it found
    """The topics do not hold what an audit needs; the message says what is missing."""


class OutputDifference(NamedTuple):
    """The first record of a partition that is not what the engine derives.

    Attributes
    ----------
    partition, topic, offset
        Where it stands, ``topic`` by its label; the offset is None where a record is missing.
    event_id
        The event it speaks of; None where that is unknown.
    what
        What is wrong, in words.
    fields
        Of each field that differs, what was served and what was derived; None for a field that is not there.
    """

    partition: int
    topic: str
    offset: int | None
    event_id: str | None
    what: str
    fields: dict[str, tuple[Any, Any]] = {}  # noqa: RUF012 - a NamedTuple's default is never written to


class Differs(Exception):  # noqa: N818 - names what it found
    """Served and derived differ; the argument is the `OutputDifference`."""


#: Headers of a record.
RecordHeaders = tuple[tuple[str, bytes | None], ...]


class Derived(NamedTuple):
    """An output the engine derived: what it speaks of, and its record; the value is in JSON."""

    identity: Any
    key: bytes | None
    value: bytes
    headers: RecordHeaders = ()


class Settled(NamedTuple):
    """How far a topic was compared.

    Attributes
    ----------
    next
        Next offset to read.
    matched, copies
        Records that are what was derived, and copies of them.
    recent
        What was derived last, the oldest first.
    """

    next: int
    matched: int = 0
    copies: int = 0
    recent: tuple[Derived, ...] = ()


def unlike(
    served: KafkaRecord,
    key: bytes | None,
    value: bytes,
    stamp: int | None,
    compare: Callable[[bytes | None, bytes], dict[str, tuple[Any, Any]]] = compared,
) -> dict[str, tuple[Any, Any]]:
    """Return in what a record is not what it should be; ``stamp`` is None where any Kafka timestamp will do."""
    fields = {} if served.value == value else compare(served.value, value)
    if served.key != key:
        fields["key"] = (repr(served.key), repr(key))
    if stamp is not None and served.timestamp != stamp:
        fields["Kafka timestamp"] = (served.timestamp, stamp)
    return fields


class Matcher:
    """Compares the records of one output topic with what is derived, in its order.

    Parameters
    ----------
    partition, label
        Of the topic.
    records
        Its records, in order.
    identify
        Returns what a record speaks of by its fields; raises KeyError or TypeError if it is none of the topic's.
    values
        Reads its values.
    elsewhere
        Whether what a record speaks of was read by another stage, intake or the router: nothing here leads to it.
    since
        How far an earlier audit has compared it.
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
        #: What was derived lately, by what it speaks of, and in order.
        self._recent: dict[Any, list[Derived]] = {}
        self._order: deque[Derived] = deque()
        for each in since.recent:
            self._remember(each)

    def settled(self) -> Settled:
        """Return what another audit needs to go on from here."""
        return Settled(self.next, self.matched, self.copies, tuple(self._order))

    def meet(self, derived: Iterable[Derived]) -> None:
        """Find the record of each output in turn; raises `Differs` if one is missing, or something else is there."""
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

    def rest(self, *, whole: bool) -> int:
        """Read to the end, and return how many records nothing has led to.

        Parameters
        ----------
        whole
            Whether everything was folded, so that there must be none.

        Raises
        ------
        Differs
            If there is one, or one is not the copy that it has to be.
        """
        found = 0
        for record in self._records:
            identity = self._identity(record)
            if self._passed(record, identity):
                continue
            if identity in self._recent:
                difference = self._unlike(record, self._recent[identity][-1], "a copy that is not the same")
                # A record of the event that is not judged yet may be answered, and carries what is its own.
                if whole or difference.fields.keys() - {"carried", "headers"}:
                    raise Differs(difference)
            elif whole:
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
        """Whether a record is of another stage, or a copy; copies are counted."""
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
        """Describe a record that stands in the place of another one."""
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
