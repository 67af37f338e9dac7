"""Derives again what a router sent from one of its partitions, and compares the result with the topics.

The router's engine folds routes and labels in the order of the router's journal. Each partition of `outcomes` holds
records of all partitions of the router. The records of one router partition keep the order in which it applied its
inputs, apart from copies. So they are read during the fold, and only differences take memory. An entry is in the
journal when its outputs are acknowledged. Records after the last entry are not judged yet.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from replay.audit.account import Account
from replay.audit.along import Along, FoldedPart
from replay.audit.output_matcher import WINDOW, Differs, OutputDifference, unlike
from replay.audit.plan import LETTERS, NAMED, OUTCOMES, RouterSpan
from replay.audit.rows import DIGEST, FoundRecord, RowStore, digest, fence_of
from state.events import Rejected
from state.policies import Policies
from state.router import Router
from state.routes import EVENT, FATES, Label, Route, Routed
from streams.kafka import partitioner
from streams.kafka.topics import TopicsError
from streams.records.merge import KafkaRecord
from streams.records.refused import named
from streams.records.routing import RouteDecoder, encode_outcome

#: The router's inputs, by their labels.
TOPICS: Final = ("routes", "labels")

_OF: Final = Struct(">cH")
_TO: Final = Struct(">BI")
_COPY: Final = Struct(">BQ")


class _Made(NamedTuple):
    """A record that the router makes. ``cause``: topic and offset of the record that led to it."""

    label: int
    partition: int
    digest: bytes
    name: str
    cause: tuple[int, int]
    routed: Routed | None


def prefix(router: int) -> bytes:
    """Return the key prefix of the entries for records that a router partition sent."""
    return _OF.pack(b"R", router)


def prefix_of(router: int, label: int, partition: int) -> bytes:
    """Return the key prefix of the entries for records that a router partition sent to a partition of a topic."""
    return prefix(router) + _TO.pack(label, partition)


def copies(router: int) -> bytes:
    """Return the key prefix of the entries for a router partition's last records. Copies of these may follow."""
    return _OF.pack(b"C", router)


def outcome_name(event_id: str, stream: str, number: int) -> str:
    """Return the name by which a sent outcome is compared with a derived one."""
    return f"{event_id}\0{stream}\0{number}"


def letter_name(topic: int, offset: int) -> str:
    """Return the name of a dead letter: it tells the record of routes or labels that the letter is about."""
    return f"{topic}@{offset}"


class RouterVerifier:
    """Derives what a partition of the router sent, and compares it with the found records.

    ``under``: returns the policies of a configuration, given its hash.
    ``partitions``: number of partitions of the outcomes.
    ``letter``: returns the digest of the dead letter about a record of routes or labels.
    ``along``: the records of routes and labels in the order of the journal.
    ``rows``: the derived state where ``along`` begins.
    ``records``: found records of this router partition, in order, by label and partition.
    ``served``: reads a record by its label, partition and offset, to show a difference.
    ``stamped``: whether outcomes keep the Kafka timestamps of their labels.
    ``again``: keys of entries that earlier audits derived last. Copies of these may have come since then.
    """

    def __init__(
        self,
        span: RouterSpan,
        under: Callable[[bytes], Policies],
        partitions: int,
        letter: Callable[[Rejected], bytes],
        along: Along,
        rows: RowStore,
        records: Mapping[tuple[int, int], Iterator[FoundRecord]],
        served: Callable[[int, int, int], KafkaRecord | None],
        *,
        stamped: bool = True,
        again: Iterable[bytes] = (),
    ) -> None:
        #: The findings, with entries of records after the last journal entry, and of records that may be sent again.
        self.found = Account()

        self._checked = self.found.router
        self._span, self._under, self._partitions = span, under, partitions
        self._letter, self._along, self._rows, self._records, self._served = letter, along, rows, records, served
        self._stamped = stamped
        self._decoder = RouteDecoder()
        #: Lately derived records, each with the record that led to it.
        self._recent: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        for key in again:
            topic, offset = _COPY.unpack_from(key, _OF.size)
            self._recent[key[-DIGEST:]] = topic, offset
        #: Where the last entry begins: if the router is killed, it may send that entry's outputs again.
        self._begins = (0, 0)
        #: Records derived but not found yet; and records found but not derived yet.
        self._lacking: dict[bytes, _Made] = {}
        self._strange: dict[bytes, FoundRecord] = {}

    def run(self) -> None:
        """Fold routes and labels, and compare what the router sends."""
        later: set[str] | None = None
        try:
            for part, engine in self._along.folded(self._rows, self._engine):
                self._fold(engine, part)
            later = self._later()
        except TopicsError as exc:
            self.found.unable.append(str(exc))
        except Differs as exc:
            self.found.differ(self._checked, exc.args[0])
        self._judge_rest(later)
        fates = self.found.routed = dict(zip(FATES, fence_of(self._rows).fates, strict=False))
        early = fates["early_opened"] - fates["early_joined"] - fates["expired_labels"]
        self._checked.waiting += max(early, 0)
        self.found.left.left += [
            (copies(self._span.partition) + _COPY.pack(topic, offset) + said, b"")
            for said, (topic, offset) in self._recent.items()
            if offset >= self._begins[topic]
        ]

    # -- what the router makes ---------------------------------------------------------------------------------------

    def _engine(self, config: bytes) -> Router:
        return Router(self._under(config), self._rows.get)

    def _fold(self, engine: Router, part: FoldedPart) -> None:
        self._begins = part.entry.begins
        events = named(self._decoder.events(part.records))  # type: ignore[arg-type]  # routes are no events
        for (topic, record), event in zip(part.records, events, strict=True):
            for output in engine.apply([event]):  # type: ignore[list-item]
                self._meet(self._made(output, (topic, record.offset)))
        labels = sum(topic for topic, _ in part.records)
        self._checked.labels += labels
        self._checked.routes += len(part.records) - labels

    def _made(self, output: Routed | Rejected, cause: tuple[int, int]) -> _Made:
        if isinstance(output, Rejected):
            name = letter_name(output.topic, output.offset)
            return _Made(LETTERS, self._span.partition, self._letter(output), name, cause, None)
        key = output.target.encode()
        to = partitioner.partition(key, self._partitions)
        said = digest(to, key, encode_outcome(output), output.stamp if self._stamped else None, output.headers)
        return _Made(OUTCOMES, to, said, outcome_name(output.event_id, output.stream, output.number), cause, output)

    def _later(self) -> set[str]:
        """Return the events of records after the last entry. A record that crashes every router has become nothing."""
        later: set[str] = set()
        for each in self._along.rest():
            self._checked.waiting += 1
            try:
                events = self._decoder.events([each])
            except Exception:  # noqa: BLE001, S112 - such a record ends every router until an operator leaves it out
                continue
            later |= {each.event_id for each in events if isinstance(each, Route | Label)}
        return later

    # -- against what it sent ----------------------------------------------------------------------------------------

    def _meet(self, made: _Made) -> None:
        """Find a record that the router makes. Skip copies, up to the first other record."""
        if made.digest in self._recent:
            return
        self._recent[made.digest] = made.cause
        if len(self._recent) > WINDOW:
            self._recent.popitem(last=False)  # in a plain dictionary, finding the first one takes 10 us
        self._lacking[made.digest] = made
        if made.digest in self._strange:
            self._is_known(self._strange.pop(made.digest))
            return
        for found in self._records[made.label, made.partition]:
            if not self._is_known(found):
                self._strange[found.digest] = found
                break
            if found.digest == made.digest:
                break
        if len(self._lacking) > WINDOW:
            self._miss(self._lacking.pop(next(iter(self._lacking))))

    def _is_known(self, found: FoundRecord) -> bool:
        """Whether the router makes a record, or it is a copy. Counts it."""
        if self._lacking.pop(found.digest, None) is None:
            known = found.digest in self._recent
            self._checked.copies += known
            return known
        if found.label == OUTCOMES:
            self._checked.outcomes += 1
        else:
            self._checked.dead_letters += 1
        return True

    def _judge_rest(self, later: set[str] | None) -> None:
        """Judge the remaining records. ``later``: events that are not judged yet; None if not all was read."""
        for records in self._records.values():
            for found in records:
                if self._is_known(found) or later is None:
                    continue
                if self._is_later(found, later):
                    self.found.left.left.append(found.entry(prefix(self._span.partition)))
                else:
                    self._strange[found.digest] = found
        by_name = {(made.label, made.name): made for made in self._lacking.values()}
        for found in self._strange.values():
            if later is None:
                break
            if self._is_later(found, later):
                self.found.left.left.append(found.entry(prefix(self._span.partition)))
            else:
                near = by_name.get((found.label, found.name))
                if near is not None:
                    self._lacking.pop(near.digest, None)
                self._blame(found, near)
        for made in self._lacking.values():
            self._miss(made)

    def _is_later(self, found: FoundRecord, later: set[str]) -> bool:
        if found.label == OUTCOMES:
            return found.name.partition("\0")[0] in later
        topic, _, offset = found.name.partition("@")
        return int(offset) >= self._along.next[int(topic)]

    def _miss(self, made: _Made) -> None:
        if made.routed is None:
            what = f"the dead letter of {self._input(made.name)} is missing"
            self.found.differ(self._checked, OutputDifference(made.partition, "dead-letters", None, None, what))
            return
        topic, offset = made.cause
        what = f"lost: the outcome that {self._input(letter_name(topic, offset))} leads to is missing"
        event = f"{made.routed.event_id} ({made.routed.stream})"
        self.found.differ(self._checked, OutputDifference(made.partition, "outcomes", None, event, what))

    def _blame(self, found: FoundRecord, near: _Made | None) -> None:
        """Report a record that the router does not make. ``near``: the missing record that it resembles."""
        if found.label == LETTERS:
            what = f"not the dead letter that the router makes of {self._input(found.name)}"
            self.found.differ(
                self._checked, OutputDifference(found.partition, "dead-letters", found.offset, None, what)
            )
            return
        event_id, stream, number = found.name.split("\0")
        routed = near.routed if near is not None else self._known(event_id, stream, int(number))
        made = None if routed is None else self._made(routed, (0, 0))
        if made is None or routed is None:
            what, fields = "nothing in routes and labels leads to this outcome", {}
        elif made.digest == found.digest:
            self._checked.copies += 1  # a router that was paused for long may send it
            return
        else:
            what, fields = "not the outcome that the router makes of the event's labels", self._unlike(found, routed)
            if made.partition != found.partition:
                what = "sent to another partition than that of its stream"
                fields["partition"] = (found.partition, made.partition)
        event = f"{event_id} ({stream})"
        self.found.differ(
            self._checked, OutputDifference(found.partition, "outcomes", found.offset, event, what, fields)
        )

    def _unlike(self, found: FoundRecord, routed: Routed) -> dict[str, tuple[Any, Any]]:
        if len(self.found.differences) >= NAMED:
            return {}
        served = self._served(OUTCOMES, found.partition, found.offset)
        if served is None:
            return {}
        stamp = routed.stamp if self._stamped else None
        return unlike(served, routed.target.encode(), encode_outcome(routed), stamp)

    def _known(self, event_id: str, stream: str, number: int) -> Routed | None:
        """Return an outcome from its event, if the event still has a row."""
        found = self._rows.get(EVENT.key(event_id))
        if found is None:
            return None
        row = EVENT.decode(found)
        made = [routed for j in range(len(row.labels)) for routed in row.sent(event_id, j)]
        made += [routed for known in row.routes for routed in row.joined(event_id, known)]
        return next((each for each in made if (each.stream, each.number) == (stream, number)), None)

    def _input(self, name: str) -> str:
        topic, _, offset = name.partition("@")
        return f"{TOPICS[int(topic)]}/{self._span.partition}@{offset}"
