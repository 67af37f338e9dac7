"""What a router has sent of one partition's labels, derived again from its routes and labels, and compared.

The router's own engine folds both topics along the router's journal. What it sends is compared as a set: the partitions
of `outcomes` hold what all partitions of the router have sent. An entry is in the journal once all that it led to is
acknowledged. What comes behind the last entry is not judged yet.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from struct import Struct
from typing import Any, Final, NamedTuple

from replay.audit.along import Along, Part
from replay.audit.entries import digest
from replay.audit.intake_verifier import NAMED
from replay.audit.output_matcher import Differs, OutputDifference, Unauditable, unlike
from replay.audit.partition_verifier import FOLDED, RowStore, fence_of
from state.events import Rejected
from state.policy import Policies
from state.router import Router
from state.routes import EVENT, FATES, Label, Route, Routed
from streams.kafka import partitioner
from streams.records.merge import KafkaRecord
from streams.records.refused import named
from streams.records.routing import RouteDecoder, encode_outcome

#: The router's inputs, by their labels.
TOPICS: Final = ("routes", "labels")

_PREFIX: Final = Struct(">cH")
_PLACE: Final = Struct(">IQ")
_NUMBER: Final = Struct(">I")
_LETTER: Final = Struct(">BQ")
#: Length of a digest.
_DIGEST: Final = 16


class Found(NamedTuple):
    """An outcome as it was found: its event and stream, its number, its digest, and where it stands."""

    event_id: str
    stream: str
    number: int
    digest: bytes
    partition: int
    offset: int


def prefix(kind: bytes, partition: int) -> bytes:
    """Return how the keys of entries begin.

    ``kind`` is O of outcomes, L of letters, and C of those of both whose copies may still come.
    """
    return _PREFIX.pack(kind, partition)


def outcome_entry(partition: int, found: Found) -> tuple[bytes, bytes]:
    """Return the entry of an outcome that a partition of the router has sent."""
    place = _PLACE.pack(found.partition, found.offset)
    return _outcome_key(partition, found.event_id, found.stream, found.number) + place, found.digest


def _outcome_key(partition: int, event_id: str, stream: str, number: int) -> bytes:
    return prefix(b"O", partition) + f"{event_id}\0{stream}\0".encode() + _NUMBER.pack(number)


def letter_entry(partition: int, topic: int, offset: int, place: int, said: bytes) -> tuple[bytes, bytes]:
    """Return the entry of a dead letter at ``place`` about a record of routes or labels."""
    return prefix(b"L", partition) + _LETTER.pack(topic, offset) + _PLACE.pack(partition, place), said


def copy_of(key: bytes) -> tuple[int, int, bytes]:
    """Return what the key of an entry of kind C says: topic, offset and digest."""
    return *_LETTER.unpack_from(key, _PREFIX.size), key[-_DIGEST:]


def sent(routed: Routed, partitions: int, *, stamped: bool = True) -> tuple[int, bytes]:
    """Return the partition that an outcome goes to, and its digest, with its Kafka timestamp if that is its label's."""
    key = routed.target.encode()
    to = partitioner.partition(key, partitions)
    return to, digest(to, key, encode_outcome(routed), routed.stamp if stamped else None, ())


@dataclass(frozen=True)
class RouterSpan:
    """What there is of one partition of the router.

    Attributes
    ----------
    partition
        Which.
    first, end
        Of routes and of labels: the first record kept, and the end.
    journal
        The same of the journal.
    outcomes_cut
        Whether the first records of any partition of the outcomes were deleted, that no earlier audit has read.
    begin
        The first routes and labels that earlier audits have not judged.
    letters_cut
        As ``outcomes_cut``, of this partition's dead letters.
    """

    partition: int
    first: tuple[int, int]
    end: tuple[int, int]
    journal: tuple[int, int] = (0, 0)
    outcomes_cut: bool = False
    begin: tuple[int, int] = (0, 0)
    letters_cut: bool = False


@dataclass
class Sent:
    """What was compared of a router.

    Attributes
    ----------
    routes, labels
        Input records folded.
    outcomes, dead_letters
        Records that are what the router makes of them, each once, in its place.
    copies
        The same records once more: the ledger drops them.
    waiting
        Labels that wait for a forecast, and records behind the last entry of the journal.
    gone
        Outcomes and dead letters that are not there any more: not judged.
    """

    routes: int = 0
    labels: int = 0
    outcomes: int = 0
    dead_letters: int = 0
    copies: int = 0
    waiting: int = 0
    gone: int = 0
    differences: int = 0


class RouterVerifier:
    """Derives what a partition of the router has sent.

    Parameters
    ----------
    span
        The partition.
    under
        Returns the policies of a configuration, by its hash.
    partitions
        How many the outcomes have.
    letter
        Returns the digest of the dead letter of a record of routes or labels.
    along
        The records of routes and of labels along the journal.
    rows
        Where the derived state is kept: what ``along`` begins with.
    served
        Reads an outcome by partition and offset, to show what differs.
    stamped
        Whether outcomes keep the Kafka timestamps of their labels.
    again
        What earlier audits have derived last, of which copies may have come since: topic and offset of the record that
        led to it, and its digest.
    """

    def __init__(
        self,
        span: RouterSpan,
        under: Callable[[bytes], Policies],
        partitions: int,
        letter: Callable[[Rejected], bytes],
        along: Along,
        rows: RowStore,
        served: Callable[[int, int], KafkaRecord | None] = lambda *_: None,
        *,
        stamped: bool = True,
        again: Iterable[tuple[int, int, bytes]] = (),
    ) -> None:
        self.checked = Sent()
        self.differences: list[OutputDifference] = []
        #: Entries for the next audit: what is behind the last entry of the journal, and what may come again.
        self.left: list[tuple[bytes, bytes]] = []
        #: What became of the records, by `state.routes.FATES`.
        self.fates = dict.fromkeys(FATES, 0)
        #: Why it could not be followed to its end.
        self.unable: list[str] = []
        self._span, self._under, self._partitions = span, under, partitions
        self._letter, self._along, self._rows, self._served = letter, along, rows, served
        self._stamped = stamped
        self._decoder = RouteDecoder()
        #: Events of the records behind the last entry; None: of all, as it was not followed to its end.
        self._later: set[str] | None = set()
        self._again = list(again)
        self._copied = {said for _, _, said in self._again}

    # -- what the router makes ---------------------------------------------------------------------------------------

    def derive(self, put: Callable[[bytes, bytes], None]) -> Iterator[int]:
        """Fold routes and labels, and hand over what the router sends, as entries; yields how many were folded.

        The entries are those of `outcome_entry` and `letter_entry`, but for what follows: in the key the digest, in the
        value the record that led to it.
        """
        engine: Router | None = None
        config, folded = b"", 0
        try:
            for part in self._along.parts():
                if engine is None or part.entry.config != config:
                    if engine is not None:
                        self._rows.write(engine.checkpoint().rows)
                    config = part.entry.config
                    engine = Router(self._under(config), self._rows.get)
                self._fold(engine, part, put)
                folded += len(part.records)
                if part.ended and folded >= FOLDED:
                    folded = 0
                    self._rows.write(engine.checkpoint().rows)
                yield len(part.records)
        except Unauditable as exc:
            self.unable.append(str(exc))
            self._later = None
        except Differs as exc:
            self._add(exc.args[0])
            self._later = None
        else:
            self._await()
        if engine is not None:
            self._rows.write(engine.checkpoint().rows)
        self.fates = dict(zip(FATES, fence_of(self._rows).fates, strict=False))
        early = self.fates["early_opened"] - self.fates["early_joined"] - self.fates["expired_labels"]
        self.checked.waiting += max(early, 0)
        self.left += [(prefix(b"C", self._span.partition) + _LETTER.pack(*at) + said, b"") for *at, said in self._again]

    def _fold(self, engine: Router, part: Part, put: Callable[[bytes, bytes], None]) -> None:
        engine.begin()
        begins = part.entry.begins
        self._again = [each for each in self._again if each[1] >= begins[each[0]]]
        events = named(self._decoder.events(part.records))  # type: ignore[arg-type]  # routes are no events
        for (topic, record), event in zip(part.records, events, strict=True):
            cause = bytes((topic,)) + record.offset.to_bytes(8, "big")
            for output in engine.apply([event]):  # type: ignore[list-item]
                said = self._hand_over(output, cause, put)
                self._again.append((topic, record.offset, said))
        labels = sum(topic for topic, _ in part.records)
        self.checked.labels += labels
        self.checked.routes += len(part.records) - labels
        if part.ended:
            self._along.require_applied(part.entry, engine.fence.applied)

    def _await(self) -> None:
        """Note the events of what comes behind the last entry."""
        assert self._later is not None  # noqa: S101 - for the type checker
        for event in map(self._decoder.events, ([each] for each in self._along.rest())):
            self.checked.waiting += 1
            self._later |= {each.event_id for each in event if isinstance(each, Route | Label)}

    def _sent(self, routed: Routed) -> tuple[int, bytes]:
        return sent(routed, self._partitions, stamped=self._stamped)

    def _hand_over(self, output: Routed | Rejected, cause: bytes, put: Callable[[bytes, bytes], None]) -> bytes:
        number = self._span.partition
        if isinstance(output, Routed):
            _, said = self._sent(output)
            put(_outcome_key(number, output.event_id, output.stream, output.number) + said, cause)
        else:
            said = self._letter(output)
            put(prefix(b"L", number) + _LETTER.pack(output.topic, output.offset) + said, cause)
        return said

    # -- against what it sent ----------------------------------------------------------------------------------------

    def compare(
        self, derived: Iterable[tuple[bytes, bytes]], found: Iterable[tuple[bytes, bytes]], kind: bytes = b"O"
    ) -> None:
        """Compare entries of one kind, both in order: what `derive` has handed over, and what was found."""
        start = _PREFIX.size
        width = _LETTER.size if kind == b"L" else 0
        ours = groupby(derived, lambda entry: _name(entry[0], start, width))
        theirs = groupby(found, lambda entry: _name(entry[0], start, width))
        for name, mine, others in _joined(ours, theirs):
            wanted = {key[-_DIGEST:]: (key, cause) for key, cause in mine}
            if kind == b"L":
                self._compare_letters(name, wanted, others)
            else:
                event_id, stream = name[:-1].decode().split("\0")
                self._compare_event(event_id, stream, wanted, others)

    def _compare_letters(
        self, name: bytes, wanted: dict[bytes, tuple[bytes, bytes]], others: list[tuple[bytes, bytes]]
    ) -> None:
        topic, offset = _LETTER.unpack(name)
        about = f"{TOPICS[topic]}/{self._span.partition}@{offset}"
        seen: set[bytes] = set()
        for key, said in others:
            _, place = _PLACE.unpack_from(key, len(key) - _PLACE.size)
            if said in wanted or said in self._copied:
                self._agrees(said, seen, "dead_letters")
            elif self._later is None:
                self.checked.gone += 1
            elif offset >= self._along.next[topic]:
                self.left.append((key, said))
            else:
                what = f"not the dead letter that the router makes of {about}"
                self._add(OutputDifference(self._span.partition, "dead-letters", place, None, what))
        lacking = len(wanted.keys() - seen)
        if self._span.letters_cut:
            self.checked.gone += lacking
        elif lacking:
            what = f"the dead letter of {about} is missing"
            self._add(OutputDifference(self._span.partition, "dead-letters", None, None, what))

    def _compare_event(
        self, event_id: str, stream: str, wanted: dict[bytes, tuple[bytes, bytes]], others: list[tuple[bytes, bytes]]
    ) -> None:
        """Compare the outcomes of an event in one stream."""
        seen: set[bytes] = set()
        forged: list[Found] = []
        for key, said in others:
            if said in wanted or said in self._copied:
                self._agrees(said, seen, "outcomes")
            elif self._later is None:
                self.checked.gone += 1
            elif event_id in self._later:
                self.left.append((key, said))
            else:
                forged.append(_found(event_id, stream, key, said))
        for each in forged[:NAMED]:
            self._show(each)
        replaced = {each.number for each in forged}
        for said in wanted.keys() - seen:
            key, cause = wanted[said]
            (number,) = _NUMBER.unpack_from(key, len(key) - _DIGEST - _NUMBER.size)
            if self._span.outcomes_cut:
                self.checked.gone += 1
            elif number not in replaced:
                source = f"{TOPICS[cause[0]]}/{self._span.partition}@{int.from_bytes(cause[1:], 'big')}"
                what = f"lost: the outcome that {source} leads to is missing"
                made = self._made(event_id, stream).get(number)
                to = self._sent(made)[0] if made else self._span.partition
                self._add(OutputDifference(to, "outcomes", None, f"{event_id} ({stream})", what))

    def _agrees(self, said: bytes, seen: set[bytes], kind: str) -> None:
        """Count what is as derived, once, and its copies."""
        once = said not in seen and said not in self._copied
        seen.add(said)
        if once:
            setattr(self.checked, kind, getattr(self.checked, kind) + 1)
        else:
            self.checked.copies += 1

    def _made(self, event_id: str, stream: str) -> dict[int, Routed]:
        """Return what an event was sent in a stream, by its numbers, as far as its row is still there."""
        found = self._rows.get(EVENT.key(event_id))
        if found is None:
            return {}
        row = EVENT.decode(found)
        made = [routed for j in range(len(row.labels)) for routed in row.sent(event_id, j)]
        made += [routed for known in row.routes for routed in row.joined(event_id, known)]
        return {routed.number: routed for routed in made if routed.stream == stream}

    def _show(self, found: Found) -> None:
        served = self._served(found.partition, found.offset) if len(self.differences) < NAMED else None
        routed = self._made(found.event_id, found.stream).get(found.number)
        fields: dict[str, tuple[Any, Any]] = {}
        if routed is None:
            what = "nothing in routes and labels leads to this outcome"
        else:
            what = "not the outcome that the router makes of the event's labels"
            to, _ = self._sent(routed)
            if served is not None:
                stamp = routed.stamp if self._stamped else None
                fields = unlike(served, routed.target.encode(), encode_outcome(routed), stamp)
            if to != found.partition:
                what = "sent to another partition than that of its stream"
                fields["partition"] = (found.partition, to)
        event = f"{found.event_id} ({found.stream})"
        self._add(OutputDifference(found.partition, "outcomes", found.offset, event, what, fields))

    def _add(self, difference: OutputDifference) -> None:
        self.checked.differences += 1
        if len(self.differences) < NAMED:
            self.differences.append(difference)


def _name(key: bytes, start: int, width: int) -> bytes:
    """Return what of a key names the event and its stream, or the record that a dead letter is of."""
    if width:
        return key[start : start + width]
    return key[start : key.index(b"\0", key.index(b"\0", start) + 1) + 1]


def _found(event_id: str, stream: str, key: bytes, value: bytes) -> Found:
    at = len(key) - _PLACE.size
    (number,) = _NUMBER.unpack_from(key, at - _NUMBER.size)
    return Found(event_id, stream, number, value, *_PLACE.unpack_from(key, at))


def _joined(
    ours: Iterator[tuple[bytes, Any]], theirs: Iterator[tuple[bytes, Any]]
) -> Iterator[tuple[bytes, list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]]:
    """Yield the groups of both sides by their names; a side without a group of a name has an empty one."""
    mine, other = _group(ours), _group(theirs)
    while mine is not None or other is not None:
        if other is None or (mine is not None and mine[0] < other[0]):
            assert mine is not None  # noqa: S101 - for the type checker
            yield mine[0], mine[1], []
            mine = _group(ours)
        elif mine is None or other[0] < mine[0]:
            yield other[0], [], other[1]
            other = _group(theirs)
        else:
            yield mine[0], mine[1], other[1]
            mine, other = _group(ours), _group(theirs)


def _group(groups: Iterator[tuple[bytes, Any]]) -> tuple[bytes, list[tuple[bytes, bytes]]] | None:
    found = next(groups, None)
    return None if found is None else (found[0], list(found[1]))
