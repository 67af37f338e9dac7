"""Reads the records of two inputs in the order in which they were applied, which the journal says (`state.journal`)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from replay.audit.output_matcher import Differs, OutputDifference, Unauditable
from replay.audit.rows import RowStore
from state.fold import Fold
from state.frames import CorruptFrame
from state.journal import NONE, Entry, last
from streams.records.merge import KafkaRecord, Merged

#: The most records in a part.
PART: Final = 2000
#: Rows are written after at least this many folded records.
FOLDED: Final = 20_000

Engine = TypeVar("Engine", bound=Fold)


class Reached(NamedTuple):
    """How far a journal has been followed."""

    #: Next offset in its topic.
    journal: int = 0
    #: Topic and offset of each record folded since the last entry began, because the next entry may overlap it.
    order: Sequence[tuple[int, int]] = ()

    @classmethod
    def of_json(cls, journal: int, order: Sequence[Sequence[int]]) -> "Reached":
        """Return the progress from its JSON."""
        return cls(journal, [(topic, offset) for topic, offset in order])


#: The progress before anything was followed.
NOTHING: Final = Reached()


class FoldedPart(NamedTuple):
    """Records of one entry that were folded together, and whether they end the entry. A tick has no records."""

    entry: Entry
    records: list[Merged]
    ended: bool


class Along:
    """Yields records in the order of a journal.

    ``place``: the journal's topic and partition, for people.
    ``partition, labels``: the partition, and the labels of the inputs, for messages.
    ``inputs``: the records of both inputs, from ``begins`` on.
    ``begins``: next offset of each input.
    ``order``: see `Reached`.
    ``applied``: number of records that were folded before. Entries before ``order`` are skipped.
    ``ends``: whether to end before an entry with a given configuration.
    """

    def __init__(
        self,
        place: str,
        partition: int,
        labels: Sequence[str],
        journal: Iterator[KafkaRecord],
        inputs: Sequence[Iterator[KafkaRecord]],
        begins: Sequence[int],
        order: Sequence[tuple[int, int]] = (),
        applied: int = 0,
        ends: Callable[[bytes], bool] = lambda _: False,
    ) -> None:
        self._place, self._partition, self._labels = place, partition, labels
        self._journal, self._inputs = journal, inputs
        self.next = list(begins)
        self._order = list(order)
        #: Offsets from which the order of the folded records is known; and the number of the last entry.
        self._since = [min([at for topic, at in order if topic == n], default=begin) for n, begin in enumerate(begins)]
        self._number = 0
        self._known = applied - len(self._order)
        self._ends = ends
        self._read = 0

    def reached(self, journal: int) -> Reached:
        """Return the progress. ``journal`` is the offset at which it began."""
        return Reached(max(self._read, journal), self._order)

    def parts(self) -> Iterator[FoldedPart]:
        """Yield, entry by entry, the records that were not folded before.

        Raises Differs if the inputs lack a folded record, or an entry contradicts earlier ones.
        Raises Unauditable if entries are missing or damaged.
        """
        for record in self._journal:
            try:
                entry = Entry.decode(record.value or b"")
            except CorruptFrame as exc:
                raise Unauditable(f"{self._place} offset {record.offset} is not a journal entry: {exc}") from exc
            if not self._late(entry):  # any build may have written it
                if self._ends(entry.config):
                    return
                yield from self._parts(entry, record.offset)
            self._read = record.offset + 1

    def folded(self, rows: RowStore, under: Callable[[bytes], Engine]) -> Iterator[tuple[FoldedPart, Engine]]:
        """Yield each part with the engine that must fold it. Then check that it did, and write the changed rows.

        Raises Differs or Unauditable as `parts`; the rows of folded records are still written.

        ``under``: returns an engine with the configuration that has a hash.
        """
        engine, config, unwritten = None, b"", 0
        try:
            for part in self.parts():
                entry = part.entry
                if engine is None or entry.config != config:
                    if engine is not None:
                        rows.write(engine.checkpoint().rows)
                    engine, config, unwritten = under(entry.config), entry.config, 0
                engine.begin()
                yield part, engine
                unwritten += len(part.records)
                if part.ended and entry.applied != engine.fence.applied:
                    what = "an entry that counts other records than there are"
                    raise self._contradicts(None, what, {"applied": (entry.applied, engine.fence.applied)})
                if part.ended and unwritten >= FOLDED:
                    rows.write(engine.checkpoint().rows)
                    unwritten = 0
        finally:
            if engine is not None:
                rows.write(engine.checkpoint().rows)

    def rest(self) -> Iterator[tuple[int, KafkaRecord]]:
        """Yield topic and record of everything after the last entry, one topic after the other."""
        for topic, records in enumerate(self._inputs):
            for record in records:
                yield topic, record

    def _late(self, entry: Entry) -> bool:
        """Whether an entry is out of date: a worker that had lost the partition wrote it after newer entries."""
        if any(end > at for end, at in zip(entry.ends, self.next, strict=True)):
            return False
        if entry.tick:
            return entry.number <= self._number
        return any(begin < at for begin, at in zip(entry.begins, self._since, strict=True))

    def _parts(self, entry: Entry, offset: int) -> Iterator[FoldedPart]:
        topics = self._left(entry, offset)
        self._number = max(self._number, entry.number)
        if entry.tick:
            yield FoldedPart(entry, [], ended=True)
        finals = {topics.rfind(topic): topic for topic in (0, 1)}
        for at in range(0, len(topics), PART):
            records = []
            for n, topic in enumerate(topics[at : at + PART], at):
                record = self._next(entry, topic, offset)
                self._check(entry, topic, record, final=n in finals)
                records.append((topic, record))
            self._order += [(topic, record.offset) for topic, record in records]
            ended = at + PART >= len(topics)
            if ended and tuple(self.next) != entry.ends:
                fields = {"ends": (list(entry.ends), list(self.next))}
                raise self._contradicts(offset, "the entry ends elsewhere than its records", fields)
            yield FoldedPart(entry, records, ended)

    def _left(self, entry: Entry, offset: int) -> bytes:
        """Return the topics of the records of an entry that are not folded yet."""
        if any(begin > at for begin, at in zip(entry.begins, self.next, strict=True)):
            raise Unauditable(
                f"{self._place} goes on at offsets {list(entry.begins)} of {' and '.join(self._labels)}, and what is "
                f"before leads to {self.next}: entries were deleted, so nobody can tell from there on in which order "
                "records were folded. Give the topic retention.ms=-1, or audit with --checkpoint before they are. What "
                "comes from now on is judged from a snapshot of now on: 'trueup snapshot FILE', then audit --from FILE"
            )
        topics = entry.topics[max(0, self._known - (entry.applied - len(entry.topics))) :]
        known = [(topic, at) for topic, at in self._order if at >= entry.begins[topic]]
        done = bytes([topic for topic, _ in known])
        agree = topics.startswith(done) or done.startswith(topics)
        if not agree or known != self._order[len(self._order) - len(known) :]:
            raise self._contradicts(offset, "the entry contradicts earlier ones that it overlaps")
        self._order, self._since = known, list(entry.begins)
        return topics[len(done) :]

    def _next(self, entry: Entry, topic: int, offset: int) -> KafkaRecord:
        record = next(self._inputs[topic], None)
        if record is None:
            what = f"the entry has more records than {self._labels[topic]}"
            raise self._contradicts(offset, what, {"ends": (list(entry.ends), list(self.next))})
        self.next[topic] = record.offset + 1
        return record

    def _check(self, entry: Entry, topic: int, record: KafkaRecord, *, final: bool) -> None:
        """Require that this record was folded and, if ``final``, that it is the last of its topic."""
        if final != (record.offset == entry.ends[topic] - 1):
            what = (
                "records were lost, or others added, since they were folded: the journal counts up to offset "
                f"{entry.ends[topic] - 1}"
            )
            raise Differs(OutputDifference(self._partition, self._labels[topic], record.offset, None, what))
        if not final:
            return
        said, found = entry.last[topic], last(record.timestamp, record.value)
        if said not in (NONE, found):
            what = "not the record that was folded: it was rewritten, or the topic was cut or recreated"
            fields = {
                name: (getattr(found, name), getattr(said, name))
                for name in found._fields
                if getattr(found, name) != getattr(said, name)
            }
            raise Differs(OutputDifference(self._partition, self._labels[topic], record.offset, None, what, fields))

    def _contradicts(self, offset: int | None, what: str, fields: dict[str, tuple[Any, Any]] | None = None) -> Differs:
        return Differs(OutputDifference(self._partition, "journal", offset, None, what, fields or {}))
