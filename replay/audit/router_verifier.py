"""What a router has sent of one partition's labels, derived again from its routes and labels, and compared.

The router's own engine folds both topics by record time, as the router does. What it sends is compared as a set: the
partitions of `outcomes` hold what all partitions of the router have sent.

Nothing tells the order in which the router had folded the two topics, and it matters to few events: to those whose
label came before their route, or when the event was about to leave. So where an event's outcomes are not those of the
derived order, they are compared with those of every other order of this event's own records. Outcomes that no order
explains are a difference. Where the event may have left the router before its label came, nobody can tell: such an
event is counted and not judged.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from struct import Struct
from typing import Any, Final, NamedTuple

from replay.audit.entries import digest
from replay.audit.intake_verifier import NAMED
from replay.audit.output_matcher import OutputDifference, unlike
from replay.audit.partition_verifier import Memory, RowStore
from state.events import Rejected
from state.policy import DEFAULT_TTL_MS, Policies
from state.routes import EVENT, FATES, LABELS, MOST_LABELS, ROUTES, Known, Label, Route, Routed, Router, Row, Said
from state.witnesses import SLACK
from streams.kafka import partitioner
from streams.records.merge import BEHIND, NEVER, KafkaRecord, believed_head
from streams.records.refused import named
from streams.records.routing import RouteDecoder, encode_outcome

#: Records that are folded before rows are written.
FOLDED: Final = 5000
#: Most events of one partition whose order is looked into.
MOST_EVENTS: Final = 50_000
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
    """Return how the keys of entries begin: ``kind`` is O of outcomes and L of letters."""
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
    first, committed, end
        Of routes and of labels: the first record kept, the next that the router has to commit, and the end.
    outcomes_cut
        Whether the first records of any partition of the outcomes were deleted, that no earlier audit has read.
    begin
        The first routes and labels that earlier audits have not judged.
    letters_cut
        As ``outcomes_cut``, of this partition's dead letters.
    resumed
        Whether it begins with derived rows: of an earlier audit, or of the group before a move.
    """

    partition: int
    first: tuple[int, int]
    committed: tuple[int, int]
    end: tuple[int, int]
    outcomes_cut: bool = False
    begin: tuple[int, int] = (0, 0)
    letters_cut: bool = False
    resumed: bool = False

    @property
    def cut(self) -> bool:
        """Whether any of its inputs was deleted that is to be judged."""
        return any(first > begin for first, begin in zip(self.first, self.begin, strict=True))


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
    by_order
        Events whose outcomes are those of another order than that of record time.
    unjudged
        Events that may have left the router before their label came.
    waiting
        Labels that wait for a forecast, and records that are not committed yet.
    gone
        Records and outcomes whose counterpart is not there any more: not judged.
    """

    routes: int = 0
    labels: int = 0
    outcomes: int = 0
    dead_letters: int = 0
    copies: int = 0
    by_order: int = 0
    unjudged: int = 0
    waiting: int = 0
    gone: int = 0
    differences: int = 0


class RouterTerms(NamedTuple):
    """What a router ran from some records on: the next offsets of routes and of labels then, and its policies."""

    next: tuple[int, int]
    policies: Policies


class _Event(NamedTuple):
    """An event's outcomes in one stream: as derived by digest, needed or not, with their causes; and as found."""

    derived: dict[bytes, tuple[bool, int, int]]
    found: list[Found]


class RouterVerifier:
    """Derives what a partition of the router has sent.

    Parameters
    ----------
    span
        The partition.
    policies
        Of the router, before ``terms`` say otherwise.
    partitions
        How many the outcomes have.
    letter
        Returns the digest of the dead letter of a record of routes or labels.
    read
        Returns the records of routes and of labels, from the first that is to be judged to their end.
    served
        Reads an outcome by partition and offset, to show what differs.
    rows
        Where the derived state is kept: empty, or what earlier audits have derived.
    stamped
        Whether outcomes keep the Kafka timestamps of their labels.
    terms
        What was in force, in order, as routers wrote it down.
    """

    def __init__(
        self,
        span: RouterSpan,
        policies: Policies,
        partitions: int,
        letter: Callable[[Rejected], bytes],
        read: Callable[[], Sequence[Iterator[KafkaRecord]]],
        served: Callable[[int, int], KafkaRecord | None] = lambda *_: None,
        rows: RowStore | None = None,
        *,
        stamped: bool = True,
        terms: Sequence[RouterTerms] = (),
    ) -> None:
        self.checked = Sent()
        self.differences: list[OutputDifference] = []
        #: Entries whose route or label the router has not committed, for the next audit.
        self.left: list[tuple[bytes, bytes]] = []
        #: What became of the records, by `state.routes.FATES`.
        self.fates = dict.fromkeys(FATES, 0)
        self._span = span
        self._policies = [policies, *(each.policies for each in terms)]
        self._later = deque(terms)
        self._partitions = partitions
        self._letter = letter
        self._read = read
        self._served = served
        self._rows = Memory() if rows is None else rows
        self._stamped = stamped
        self._decoder = RouteDecoder()
        #: Stream time at the end, ms.
        self._latest = 0

    # -- what the router makes ---------------------------------------------------------------------------------------

    def derive(
        self, put: Callable[[bytes, bytes], None], settled: Callable[[RowStore], None] = lambda _: None
    ) -> Iterator[int]:
        """Fold routes and labels, and hand over what the router sends, as entries; yields how many were folded.

        The entries are those of `outcome_entry` and `letter_entry`, but for what follows the digest: whether it must be
        there, and the record that led to it.

        Parameters
        ----------
        put
            Takes an entry.
        settled
            Takes the rows when all is folded that the router has committed: from there another audit goes on.
        """
        engine = Router(self._policies[0], self._rows.get)
        heads = [_Head(records, limit) for records, limit in zip(self._read(), self._span.committed, strict=True)]
        for committed in (True, False):
            order = self._ordered(heads, committed=committed)
            while records := list(islice(order, FOLDED)):
                engine.begin()
                for topic, record in records:
                    engine = self._in_force(engine, topic, record.offset)
                    self._fold(engine, topic, record, put)
                self._rows.write(engine.checkpoint().rows)
                yield len(records)
            if committed:
                settled(self._rows)
        self._latest = max(self._latest, engine.fence.stream_time)
        self.fates = dict(zip(FATES, engine.fence.fates, strict=False))
        early = self.fates["early_opened"] - self.fates["early_joined"] - self.fates["expired_labels"]
        self.checked.waiting += max(early, 0)

    def _in_force(self, engine: Router, topic: int, offset: int) -> Router:
        """Return an engine under what was in force when a record was folded."""
        found = None
        while self._later and offset >= self._later[0].next[topic]:
            found = self._later.popleft().policies
        if found is None:
            return engine
        self._rows.write(engine.checkpoint().rows)
        return Router(found, self._rows.get)

    def _fold(self, engine: Router, topic: int, record: KafkaRecord, put: Callable[[bytes, bytes], None]) -> None:
        (event,) = named(self._decoder.events([(topic, record)]))  # type: ignore[arg-type]  # routes are no events
        needed = record.offset < self._span.committed[topic]
        cause = bytes((needed, topic)) + record.offset.to_bytes(8, "big")
        for output in engine.apply([event]):  # type: ignore[list-item]
            self._hand_over(output, cause, put)
        if not needed:
            self.checked.waiting += 1
        elif topic == ROUTES:
            self.checked.routes += 1
        else:
            self.checked.labels += 1

    def _sent(self, routed: Routed) -> tuple[int, bytes]:
        return sent(routed, self._partitions, stamped=self._stamped)

    def _hand_over(self, output: Routed | Rejected, cause: bytes, put: Callable[[bytes, bytes], None]) -> None:
        number = self._span.partition
        if isinstance(output, Routed):
            _, said = self._sent(output)
            put(_outcome_key(number, output.event_id, output.stream, output.number) + said, said + cause)
        else:
            said = self._letter(output)
            put(prefix(b"L", number) + _LETTER.pack(output.topic, output.offset) + said, said + cause)

    def _ordered(self, heads: Sequence["_Head"], *, committed: bool) -> Iterator[tuple[int, KafkaRecord]]:
        """Yield both inputs as a router merges them, a route first: what is committed, or what is not."""
        for head in heads:
            head.bounded = committed
        while True:
            times = [head.time for head in heads]
            if min(times) == NEVER:
                return
            topic = LABELS if times[LABELS] < times[ROUTES] else ROUTES
            later = 1 - topic
            if times[later] != NEVER and times[later] - times[topic] > SLACK:
                time = heads[later].believed
                if time < times[topic] or (time == times[topic] and later == ROUTES):
                    topic = later
            yield topic, heads[topic].take()

    # -- against what it sent ----------------------------------------------------------------------------------------

    def compare(
        self, derived: Iterable[tuple[bytes, bytes]], found: Iterable[tuple[bytes, bytes]], kind: bytes = b"O"
    ) -> None:
        """Compare entries of one kind, both in order: what `derive` has handed over, and what was found."""
        start = _PREFIX.size
        width = _LETTER.size if kind == b"L" else 0
        ours = groupby(derived, lambda entry: _name(entry[0], start, width))
        theirs = groupby(found, lambda entry: _name(entry[0], start, width))
        strange: dict[str, dict[str, _Event]] = defaultdict(dict)
        for name, mine, others in _joined(ours, theirs):
            if kind == b"L":
                self._compare_letters(name, mine, others)
                continue
            event_id, stream = name[:-1].decode().split("\0")
            event = _Event(
                dict(_derived(value) for _, value in mine),
                [_found(event_id, stream, key, value) for key, value in others],
            )
            if not self._agrees(event):
                if len(strange) >= MOST_EVENTS and event_id not in strange:
                    self.checked.unjudged += 1
                else:
                    strange[event_id][stream] = event
        if strange:
            self._explain(strange)

    def _compare_letters(self, name: bytes, mine: list[tuple[bytes, bytes]], others: list[tuple[bytes, bytes]]) -> None:
        topic, offset = _LETTER.unpack(name)
        wanted = {value[:_DIGEST]: bool(value[_DIGEST]) for _, value in mine}
        seen = [value for _, value in others]
        about = f"{TOPICS[topic]}/{self._span.partition}@{offset}"
        for said, needed in wanted.items():
            if said in seen:
                self.checked.dead_letters += needed
            elif needed and (self._span.cut or self._span.letters_cut):
                self.checked.gone += 1
            elif needed:
                what = f"the dead letter of {about} is missing"
                self._add(OutputDifference(self._span.partition, "dead-letters", None, None, what))
        copied: set[bytes] = set()
        for key, value in others:
            _, place = _PLACE.unpack_from(key, len(key) - _PLACE.size)
            if value not in wanted and self._span.cut:
                self.checked.gone += 1
            elif value not in wanted:
                what = f"not the dead letter that the router makes of {about}"
                self._add(OutputDifference(self._span.partition, "dead-letters", place, None, what))
            elif not wanted[value]:
                self.left.append((key, value))
            else:
                self.checked.copies += value in copied
                copied.add(value)

    def _agrees(self, event: _Event) -> bool:
        """Whether an event's outcomes are those that were derived; counts them if so."""
        seen = {each.digest for each in event.found}
        if not seen <= event.derived.keys():
            return False
        if any(needed and said not in seen for said, (needed, _, _) in event.derived.items()):
            return False
        self._agreed(event.found, lambda each: event.derived[each.digest][0])
        return True

    def _agreed(self, found: list[Found], settled: Callable[[Found], bool]) -> None:
        """Count outcomes that are right, and keep those whose label is not committed yet."""
        mine = [each for each in found if settled(each)]
        self.left += [outcome_entry(self._span.partition, each) for each in found if not settled(each)]
        once = len({each.digest for each in mine})
        self.checked.outcomes += once
        self.checked.copies += len(mine) - once

    # -- another order -----------------------------------------------------------------------------------------------

    def _explain(self, strange: dict[str, dict[str, _Event]]) -> None:
        """Judge the events whose outcomes are not those of the derived order."""
        histories = {name: self._before(name) for name in strange}
        names = {name.encode() for name in strange}
        for topic, records in enumerate(self._read()):
            for record in records:
                if record.key not in names:
                    continue
                (read,) = self._decoder.events([(topic, record)])
                if isinstance(read, Route) and read.event_id in histories:
                    histories[read.event_id][0].append(read)
                elif isinstance(read, Label) and read.event_id in histories:
                    histories[read.event_id][1].append(read)
        for event_id, streams in strange.items():
            routes, labels = (_once(each) for each in histories[event_id])
            for stream, event in streams.items():
                self._judge(event_id, stream, event, routes, labels)

    def _before(self, event_id: str) -> tuple[list[Route], list[Label]]:
        """Return an event's routes and labels from before those that are judged, as far as its row has them.

        Those of a group before a move have no offset any more, -1.
        """
        begin, found = self._span.begin, self._rows.get(EVENT + event_id.encode()) if self._span.resumed else None
        if found is None:
            return [], []
        row = Row.decode(found)
        stamp = min((each.stamp for each in row.labels), default=0)
        routes = [
            Route(each.offset, None, None, event_id, each.stream, each.target, stamp, None)
            for each in row.routes
            if each.offset < begin[ROUTES]
        ]
        labels = [
            Label(
                said.offset,
                None,
                None,
                event_id,
                said.stream,
                said.target,
                said.y,
                said.ts,
                said.number,
                said.stamp,
                None,
            )
            for said in row.labels
            if said.offset < begin[LABELS]
        ]
        return routes, labels

    def _judge(self, event_id: str, stream: str, event: _Event, routes: list[Any], labels: list[Any]) -> None:
        seen = {each.digest for each in event.found}
        orders = self._orders(event_id, stream, routes, labels)
        last = sum(each.offset < self._span.committed[LABELS] for each in _said(labels))
        routed = not any(each.stream == stream and each.offset >= self._span.committed[ROUTES] for each in routes)
        lacking = [said for said, (needed, _, _) in event.derived.items() if needed and said not in seen]
        earlier = any(each.offset < self._span.begin[LABELS] for each in labels)  # and so may be some of its outcomes
        if any(seen == made.keys() or (earlier and not lacking and seen <= made.keys()) for made in orders):
            self.checked.by_order += 1
            self._agreed(event.found, lambda each: routed and each.number <= last)
            return
        span, made = self._span, {said: routed for each in orders for said, routed in each.items()}
        if span.cut or (span.outcomes_cut and seen <= made.keys()):
            self.checked.gone += 1
            return
        expired = span.resumed and self._rows.get(EVENT + event_id.encode()) is None
        if expired or (seen <= made.keys() and self._may_have_left(stream, routes, labels)):
            self.checked.unjudged += 1
            return
        forged = [each for each in event.found if each.digest not in made]
        for each in forged[:NAMED]:
            self._show(each, {routed.number: routed for routed in made.values()})
        replaced = {each.number for each in forged}
        for said in lacking:
            _, topic, offset = event.derived[said]
            missed = made.get(said)
            if missed is None or missed.number not in replaced:
                what = f"lost: the outcome that {TOPICS[topic]}/{span.partition}@{offset} leads to is missing"
                to = self._sent(missed)[0] if missed else span.partition
                self._add(OutputDifference(to, "outcomes", None, f"{event_id} ({stream})", what))
        if not forged and not lacking:
            each = event.found[-1]
            what = "no order of the event's routes and labels leads to these outcomes"
            self._add(OutputDifference(each.partition, "outcomes", each.offset, f"{event_id} ({stream})", what))

    def _orders(
        self, event_id: str, stream: str, routes: list[Route], labels: list[Label]
    ) -> list[dict[bytes, Routed]]:
        """Return the outcomes of one stream for every order of an event's routes and labels, by their digests."""
        row = Row(0, 0, 0, [], _said(labels))
        last = sum(each.offset < self._span.committed[LABELS] for each in row.labels)
        there = [each for each in routes if each.stream == stream][:1]
        found = []
        for count in range(last, len(row.labels) + 1):
            known = Row(0, 0, 0, [], row.labels[:count])
            if not there or there[0].offset >= self._span.committed[ROUTES]:
                found.append(self._outcomes(event_id, stream, known))
            for before in range(count + 1):
                if there:
                    known.routes = [Known(there[0].offset, before, stream, there[0].target)]
                    found.append(self._outcomes(event_id, stream, known))
        return found

    def _outcomes(self, event_id: str, stream: str, row: Row) -> dict[bytes, Routed]:
        made = [routed for j in range(len(row.labels)) for routed in row.sent(event_id, j) if routed.stream == stream]
        for known in row.routes:
            made += row.joined(event_id, known)
        return {self._sent(routed)[1]: routed for routed in made}

    def _may_have_left(self, stream: str, routes: list[Route], labels: list[Label]) -> bool:
        """Whether stream time came far enough for the event to leave before its last label."""
        kept = [each.early_ttl_ms for each in self._policies]
        for policies in self._policies:
            policy = policies.of(stream)
            kept.append(DEFAULT_TTL_MS if policy is None else policy.kept_ms)
        stamps = [each.stamp for each in routes] + [each.stamp for each in labels]
        return bool(stamps) and min(stamps) + min(kept) <= self._latest

    def _show(self, found: Found, made: dict[int, Routed]) -> None:
        served = self._served(found.partition, found.offset) if len(self.differences) < NAMED else None
        routed = made.get(found.number)
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


class _Head:
    """The next record of an input, up to what is committed while it is bounded, and those behind it."""

    def __init__(self, records: Iterator[KafkaRecord], limit: int) -> None:
        self._records, self._limit = records, limit
        self._next: deque[KafkaRecord] = deque(islice(records, BEHIND + 1))
        self._believed: int | None = None
        self.bounded = True

    @property
    def time(self) -> int:
        """When the next record was written, ms; `NEVER` where there is none."""
        if not self._next or (self.bounded and self._next[0].offset >= self._limit):
            return NEVER
        return self._next[0].timestamp

    @property
    def believed(self) -> int:
        """The time by which the next record is merged if it is far ahead of the other input, ms."""
        if self._believed is None:
            self._believed = believed_head(self._next)
        return self._believed

    def take(self) -> KafkaRecord:
        """Take the next record."""
        self._next.extend(islice(self._records, 1))
        self._believed = None
        return self._next.popleft()


def _said(labels: Sequence[Label]) -> list[Said]:
    """Return labels as they stand in an event's row: none twice."""
    found: list[Said] = []
    for each in labels:
        said = Said(each.offset, each.stamp, each.ts, each.y, each.number, each.stream, each.target)
        if not any(one[2:] == said[2:] for one in found) and len(found) < MOST_LABELS:
            found.append(said)
    return found


def _once(events: Sequence[Any]) -> list[Any]:
    """Return routes or labels without those that came again, by their origins."""
    seen: set[tuple[str, int]] = set()
    found = []
    for event in events:
        if event.origin is None or event.origin not in seen:
            found.append(event)
        if event.origin is not None:
            seen.add(event.origin)
    return found


def _name(key: bytes, start: int, width: int) -> bytes:
    """Return what of a key names the event and its stream, or the record that a dead letter is of."""
    if width:
        return key[start : start + width]
    return key[start : key.index(b"\0", key.index(b"\0", start) + 1) + 1]


def _derived(value: bytes) -> tuple[bytes, tuple[bool, int, int]]:
    """Return the digest of what was derived, whether it must be there, and the record that led to it."""
    needed, topic = value[_DIGEST : _DIGEST + 2]
    return value[:_DIGEST], (bool(needed), topic, int.from_bytes(value[_DIGEST + 2 :], "big"))


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
