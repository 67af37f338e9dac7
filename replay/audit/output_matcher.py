"""Outputs as evidence: records read from a topic against records derived from the inputs.

A partition's outputs stand in the order of its fold, except for what a crash repeats: a redelivered batch is answered
from the ledger, so its copies come in another order, and may come before the record of a neighbour. So records are
matched by what they speak of, within a window that no redelivery exceeds, and memory stays bounded.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from state.engine import HELD
from streams.records.merge import KafkaRecord
from streams.records.output_values import OutputValues, compared

#: Records of one topic that may stand before one that was derived earlier. A redelivery repeats what was on its way, so
#: twice as many are never exceeded; the rest is room for what several crashes in a row repeat.
WINDOW: Final = 8 * HELD


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
    """An output the engine derived: key, value and headers, and the input (topic, offset) it comes from."""

    key: bytes | None
    value: bytes
    cause: tuple[int, int]
    headers: RecordHeaders = ()


class Read(NamedTuple):
    """A record of an output topic; ``timestamp`` in ms since the epoch."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: RecordHeaders = ()


class Unsettled(NamedTuple):
    """What of a topic has no counterpart yet, and what may come again.

    Attributes
    ----------
    next
        Next offset to read.
    matched, copies
        Records that are what was derived, and copies of them.
    pending
        Derived, and not read yet.
    ahead
        Read, and not derived yet.
    recent
        Values matched lately, the oldest first.
    """

    next: int
    matched: int
    copies: int
    pending: list[Derived]
    ahead: list[Read]
    recent: list[bytes]


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


@dataclass
class Matcher:
    """Matches the records of one output topic with what was derived, each once; copies must be the same.

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
    kept
        Returns the value that the ledger would say again for an identity, or None.
    elsewhere
        Whether a record speaks of one that another stage read, intake or the router: nothing here leads to it.
    """

    partition: int
    label: str
    records: Iterator[KafkaRecord]
    identify: Callable[[dict[str, Any]], Any]
    values: OutputValues
    kept: Callable[[Any], bytes | None] = lambda _: None
    elsewhere: Callable[[Any], bool] = lambda _: False
    matched: int = 0
    copies: int = 0
    #: Derived, and not read yet; read, and not derived yet; matched lately.
    pending: dict[Any, Derived] = field(default_factory=dict)
    ahead: dict[Any, list[Any]] = field(default_factory=dict)
    recent: OrderedDict[Any, bytes] = field(default_factory=OrderedDict)
    #: Whether the topic has been read to its end.
    ended: bool = False
    #: Next offset to read.
    next: int = 0
    _ahead: int = 0

    def identity(self, value: bytes) -> Any:  # noqa: ANN401 - of the topic's kind
        """Return what a value speaks of; raises ValueError, KeyError or TypeError if it is none of the topic's."""
        return self.identify(self.values.fields(value))

    def derive(self, identity: object, derived: Derived) -> None:
        """Expect an output that the engine derived; raises `Differs` if its record was read already and differs."""
        waiting = self.ahead.pop(identity, None)
        if waiting is None:
            if identity in self.pending:
                self._missing(identity)
            self.pending[identity] = derived
            return
        self._ahead -= len(waiting)
        self._match(identity, derived, waiting[0])
        for record in waiting[1:]:
            if not self.values.same(record.value, derived.value):
                self._differs(record, derived.value, "a copy that is not the same")
            self.copies += 1

    def read(self) -> None:
        """Read until every derived output is found; raises `Differs` if one differs or is missing."""
        pending = self.pending
        while pending:
            if self._ahead > WINDOW:
                self._missing(next(iter(pending)))
            record = next(self.records, None)
            if record is None:
                self.ended = True
                return
            self.next = record.offset + 1
            self.take(record)

    def take(self, record: KafkaRecord) -> None:
        """Match a record that was read; raises `Differs` if it differs, or is none of the topic's."""
        try:
            named = self.identity(record.value or b"")
        except (ValueError, KeyError, TypeError):
            raise Differs(
                OutputDifference(self.partition, self.label, record.offset, None, "a record no worker writes")
            ) from None
        if self.elsewhere(named):
            return
        derived = self.pending.pop(named, None)
        if derived is not None:
            self._match(named, derived, record)
        elif self._known(named, record):
            self.copies += 1
        else:
            self.ahead.setdefault(named, []).append(record)
            self._ahead += 1

    def unsettled(self) -> Unsettled:
        """Return what another audit needs to go on from here."""
        ahead = [record for waiting in self.ahead.values() for record in waiting]
        return Unsettled(
            self.next,
            self.matched,
            self.copies,
            list(self.pending.values()),
            [Read(each.offset, each.key, each.value, each.timestamp, tuple(each.headers)) for each in ahead],
            list(self.recent.values()),
        )

    def resume(self, earlier: Unsettled) -> None:
        """Go on from where an earlier audit stopped."""
        self.next, self.matched, self.copies = earlier.next, earlier.matched, earlier.copies
        self.pending = {self.identity(each.value): each for each in earlier.pending}
        self.recent = OrderedDict((self.identity(value), value) for value in earlier.recent)
        for record in earlier.ahead:
            self.ahead.setdefault(self.identity(record.value or b""), []).append(record)
        self._ahead = len(earlier.ahead)

    def rest(self) -> Iterator[KafkaRecord]:
        """Read to the end, and yield each record that was never derived and is no copy."""
        for waiting in list(self.ahead.values()):
            yield from waiting
        for record in self.records:
            try:
                identity = self.identity(record.value or b"")
                elsewhere, known = self.elsewhere(identity), self._known(identity, record)
            except (ValueError, KeyError, TypeError):
                elsewhere = known = False
            self.copies += known
            if not known and not elsewhere:
                yield record

    def undone(self, record: KafkaRecord) -> OutputDifference:
        """Describe a record that was never derived."""
        try:
            identity = self.identity(record.value or b"")
        except (ValueError, KeyError, TypeError):
            return OutputDifference(self.partition, self.label, record.offset, None, "a record no worker writes")
        said = self.recent.get(identity) or self.kept(identity)
        if said is None:
            return OutputDifference(
                self.partition, self.label, record.offset, str(identity), "nothing in the inputs leads to this record"
            )
        return OutputDifference(
            self.partition,
            self.label,
            record.offset,
            str(identity),
            "a copy that is not the same",
            self.values.compared(record.value, said),
        )

    def _known(self, identity: object, record: KafkaRecord) -> bool:
        value = record.value
        if value is None:
            return False
        for said in (self.recent.get(identity), self.kept(identity)):
            if said is not None and self.values.same(value, said):
                return True
        return False

    def _match(self, identity: object, derived: Derived, record: KafkaRecord) -> None:
        if not self.values.same(record.value, derived.value):
            self._differs(record, derived.value, "served and derived differ")
        if record.key != derived.key:
            raise Differs(
                OutputDifference(
                    self.partition,
                    self.label,
                    record.offset,
                    str(identity),
                    "served under another key",
                    {"key": (repr(record.key), repr(derived.key))},
                )
            )
        if tuple(record.headers) != derived.headers:
            fields = {"headers": (repr(record.headers), repr(derived.headers))}
            what = "served with other headers"
            raise Differs(OutputDifference(self.partition, self.label, record.offset, str(identity), what, fields))
        self.matched += 1
        self.recent[identity] = derived.value
        if len(self.recent) > WINDOW:
            self.recent.popitem(last=False)

    def _differs(self, record: KafkaRecord, derived: bytes, what: str) -> None:
        identity = str(self.identity(derived))
        fields = self.values.compared(record.value, derived)
        raise Differs(OutputDifference(self.partition, self.label, record.offset, identity, what, fields))

    def _missing(self, identity: object) -> None:
        raise Differs(self.missing(identity))

    def missing(self, identity: object) -> OutputDifference:
        """Describe a derived output that has no record."""
        topic, offset = self.pending[identity].cause
        cause = f"the record that offset {offset} of {('forecasts', 'outcomes')[topic]} leads to is missing"
        return OutputDifference(self.partition, self.label, None, str(identity), cause)
