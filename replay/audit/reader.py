"""The topics of an audit, read from offset to offset, one partition of each at a time."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import AIOKafkaClient

from replay.audit.checkpoint import Skips
from replay.audit.output_matcher import Unauditable
from replay.audit.partition_verifier import INPUTS, LABELS, OUTPUTS
from replay.audit.terms import Configurations
from replay.loaded import Loaded
from replay.moves import Move, MoveError
from streams.config import in_force
from streams.config.in_force import InForce, InForceError
from streams.config.settings import Settings
from streams.faust import unpacking
from streams.kafka import provenance
from streams.kafka.topics import partitions
from streams.kafka.whole_topics import FETCH_BYTES
from streams.records import skips
from streams.records.merge import KafkaRecord

T = TypeVar("T")

#: The brokers must give the next records of a topic that has some within this time, s.
STALL_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Span:
    """What the topics of one partition held when the audit began.

    Attributes
    ----------
    first, end
        Offset of the first record kept and the next offset, by label.
    told
        The same as ``first`` and ``end``, of what is in force; (0, 0) where there is no such topic.
    """

    first: Mapping[str, int]
    end: Mapping[str, int]
    told: tuple[int, int] = (0, 0)

    @property
    def inputs(self) -> int:
        """Input records to fold, at most."""
        return self.end["forecasts"] + self.end["outcomes"]


class PartitionReader:
    """Reads one partition of every topic to the end it had.

    Parameters
    ----------
    settings
        Name the topics and the brokers.
    runner
        Runs the client while records are asked for; not needed for `spans`.
    """

    def __init__(self, settings: Settings, runner: asyncio.Runner | None = None) -> None:
        self._settings = settings
        self._runner = runner
        self._consumer: Any = None
        #: What workers left out, and why, by topic and partition, then offset; known once a partition is open.
        self.skipped: dict[tuple[str, int], dict[int, str]] = {}
        #: Most bytes that a batch of a topic may unpack to; None for no bound.
        self._unpacks: dict[str, int | None] = {}

    async def start(self) -> None:
        """Connect."""
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=",".join(self._settings.brokers),
            enable_auto_commit=False,
            auto_offset_reset="none",  # what is deleted while it is read must not look as if it had never been
            max_partition_fetch_bytes=FETCH_BYTES,
            isolation_level="read_committed",  # as a worker reads its inputs
            **self._settings.security.client_options(),
        )
        await self._consumer.start()
        unpacking.bound(self._consumer, self._unpacks.get, lambda place: self.skipped.get(place, {}))

    async def stop(self) -> None:
        """Disconnect."""
        if self._consumer is not None:
            await self._consumer.stop()

    def place(self, label: str, partition: int) -> TopicPartition:
        """Return a partition of a topic by its label."""
        return TopicPartition(getattr(self._settings, label.replace("-", "_")), partition)

    async def spans(self, count: int, *, told: bool) -> dict[int, Span]:
        """Return what there is to read of each partition.

        The end of the journal is asked for first, and the ends of the inputs last. So the outputs of every entry are
        there, and the inputs of every output. What is in force is written before the first entry under it.

        Parameters
        ----------
        told
            Whether there is a topic of what is in force.
        """
        ends: dict[TopicPartition, int] = {}
        for label in ("journal", *OUTPUTS[::-1], *INPUTS[::-1]):
            ends |= await self._consumer.end_offsets([self.place(label, n) for n in range(count)])
        if told:
            ends |= await self._consumer.end_offsets([self.place("configurations", n) for n in range(count)])
        first = await self._consumer.beginning_offsets(list(ends))
        return {
            n: Span(
                {label: first[self.place(label, n)] for label in LABELS},
                {label: ends[self.place(label, n)] for label in LABELS},
                (first.get(self.place("configurations", n), 0), ends.get(self.place("configurations", n), 0)),
            )
            for n in range(count)
        }

    def in_force(self, partition: int, span: Span, kind: bytes = in_force.WORKER) -> list[InForce]:
        """Return what workers, or routers, wrote of what is in force in a partition.

        Raises
        ------
        Unauditable
            If it cannot be read.
        """
        try:
            return in_force.read(self._told(partition, span.told), kind)
        except InForceError as exc:
            raise Unauditable(f"{self._settings.configurations}/{partition}: {exc}") from exc

    def move(self, partition: int, told: tuple[int, int]) -> Move | None:
        """Return how the rows came about that a partition began with; None if it began with none; raises likewise.

        ``told`` is the first offset and the end of what is in force, as in `Span`.
        """
        said = dict(self._told(partition, told)).get(in_force.MOVED)
        try:
            return None if said is None else Move.decode(said)
        except MoveError as exc:
            raise Unauditable(f"{self._settings.configurations}/{partition}: {exc}") from exc

    def loaded(self, partition: int, told: tuple[int, int]) -> tuple[Loaded, dict[bytes, bytes]] | None:
        """Return what `replay.load` wrote down of a partition, and its rows; None if it did not; raises likewise."""
        found = {key: value for key, value in self._told(partition, told) if key is not None and value is not None}
        if in_force.LOADED not in found:
            return None
        begin = len(in_force.LOADED_ROW)
        rows = {key[begin:]: row for key, row in found.items() if key.startswith(in_force.LOADED_ROW)}
        try:
            said = Loaded.decode(found[in_force.LOADED])
        except (ValueError, KeyError, TypeError) as exc:
            raise Unauditable(
                f"{self._settings.configurations}/{partition}: what 'trueup load' wrote down cannot be read: {exc!r}"
            ) from exc
        if len(rows) != said.rows:
            raise Unauditable(
                f"{self._settings.configurations}/{partition} has {len(rows):,} of the {said}: some were deleted"
            )
        return said, rows

    def _told(self, partition: int, told: tuple[int, int]) -> list[tuple[bytes | None, bytes | None]]:
        """Return the records of the topic of what is in force."""
        place = self.place("configurations", partition)
        first, end = told
        if first == end:
            return []
        self._run(self._begin({place: first}))
        return [(record.key, record.value) for record in self._records(place, [(end, None)])]

    def changelog(self, partition: int, until: int | None) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Yield offset, key and row of what a partition's changelog has; ``until`` an offset, to its end if None."""
        place = self.place("changelog", partition)
        end = self._run(self.ends([place]))[place]
        self._run(self._begin({place: self._run(self.beginnings([place]))[place]}))
        for record in self._records(place, [(end if until is None else min(until, end), None)]):
            yield record.offset, record.key or b"", record.value

    def leave_out(self, skipped: Iterable[tuple[str, int, int, str]]) -> None:
        """Leave out records from now on: topic, partition, offset and why of each."""
        for topic, number, offset, why in skipped:
            self.skipped.setdefault((topic, number), {})[offset] = why

    def note_skips(self, partition: int, span: Span, since: Skips | None) -> Skips:
        """Read from the dead letters what was left out: inputs are read by it."""
        letters, end = self.place("dead-letters", partition), span.end["dead-letters"]
        if since is not None:
            self.skipped.update(since.found)
        self._run(self._begin({letters: since.next if since else span.first["dead-letters"]}))
        for record in self._records(letters, [(end, None)]):
            found = skips.of_dead_letter(record.value or b"")
            if found is not None:
                self.leave_out([found])
        return Skips(end, self.skipped)

    def open(
        self, partition: int, span: Span, since: Mapping[str, int], configurations: Configurations
    ) -> list[Iterator[KafkaRecord]]:
        """Return the records of each of `LABELS`, from the offsets of ``since`` on, unpacked as workers did then."""
        places = {self.place(label, partition): since[label] for label in LABELS}
        stretches: list[list[tuple[int, int | None]]] = [[(span.end[label], None)] for label in LABELS]
        for topic, label in enumerate(INPUTS):
            stretches[topic] = configurations.unpacked_bytes(topic, since[label], span.end[label])
        for place, ((_, limit), *_) in zip(places, stretches, strict=True):
            self._unpacks[place.topic] = limit
        self._run(self._begin(places))
        return [self._records(place, each) for place, each in zip(places, stretches, strict=True)]

    async def beginnings(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of the first record that each partition keeps."""
        return dict(await self._consumer.beginning_offsets(places))

    async def ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the next offset of each partition."""
        return dict(await self._consumer.end_offsets(places))

    def stretches(
        self, places: Mapping[TopicPartition, tuple[int, int]], unpacked_bytes: int | None = None
    ) -> list[Iterator[KafkaRecord]]:
        """Return the records of each of several partitions, from an offset to another; nothing else is read meanwhile.

        Parameters
        ----------
        unpacked_bytes
            Most bytes that a batch may unpack to; None for no bound.
        """
        self._unpacks.update((place.topic, unpacked_bytes) for place in places)
        self._run(self._begin({place: first for place, (first, _) in places.items()}))
        return [self._records(place, [(end, None)]) for place, (_, end) in places.items()]

    async def _begin(self, places: Mapping[TopicPartition, int]) -> None:
        self._consumer.assign(list(places))
        for place, offset in places.items():
            self._consumer.seek(place, offset)

    def _records(self, place: TopicPartition, stretches: Sequence[tuple[int, int | None]]) -> Iterator[KafkaRecord]:
        """Yield records up to the last of some ends; with each, how many bytes a batch before it may unpack to."""
        position, since = self._run(self._position(place)), monotonic()
        for n, (end, limit) in enumerate(stretches):
            if n and position < end:
                self._unpacks[place.topic] = limit
                self._consumer.seek(place, position)  # what was fetched was unpacked by the limit before
            while position < end:
                batches, position = self._run(self._next(place))
                for record in batches:
                    if record.offset >= end:
                        position = end
                        break
                    yield record
                if batches:
                    since = monotonic()
                elif monotonic() - since > STALL_SECONDS:
                    raise Unauditable(
                        f"{place.topic}/{place.partition} gave nothing for {STALL_SECONDS:g} s at {position}"
                    )

    def _run(self, done: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            raise RuntimeError("records are read by a runner")
        return self._runner.run(done)

    async def _next(self, place: TopicPartition) -> tuple[list[KafkaRecord], int]:
        try:
            batches = await self._consumer.getmany(place, timeout_ms=500)
        except skips.PoisonError as exc:
            raise Unauditable(str(exc)) from exc
        return batches.get(place, []), await self._consumer.position(place)

    async def _position(self, place: TopicPartition) -> int:
        return int(await self._consumer.position(place))


async def spans(settings: Settings) -> dict[int, Span]:
    """Return what there is to read; raises `Unauditable` or `TopicsError` if it cannot be."""
    count, told = await _count(settings)
    source = PartitionReader(settings)
    try:
        await source.start()
        return await source.spans(count, told=told)
    finally:
        await source.stop()


async def _count(settings: Settings) -> tuple[int, bool]:
    """Return how many partitions there are, and whether there is a topic of what is in force.

    Raises
    ------
    Unauditable
        Unless all topics have as many.
    """
    counts = {}
    for label in (*LABELS, "configurations"):
        name = getattr(settings, label.replace("-", "_"))
        count = await partitions(settings, name)
        if count is None and label in LABELS:
            raise Unauditable(f"there is no topic {name}")
        if count is not None:
            counts[name] = count
    if len(set(counts.values())) > 1:
        raise Unauditable(f"the topics do not have equally many partitions: {counts}")
    return next(iter(counts.values())), settings.configurations in counts


async def origins(settings: Settings) -> dict[str, list[Any]]:
    """Return what the brokers call each topic: a topic that was made anew has the same name and other records."""
    client = AIOKafkaClient(bootstrap_servers=",".join(settings.brokers), **settings.security.client_options())
    try:
        await client.bootstrap()
        names = {label: getattr(settings, label.replace("-", "_")) for label in LABELS}
        found = {label: await provenance.describe(client, settings.app_id, name) for label, name in names.items()}
    finally:
        await client.close()
    return {label: [names[label], *each.origin[1:]] for label, each in found.items()}


def require_kept(partition: int, span: Span, since: Mapping[str, int]) -> None:
    """See that no record that is to be read was deleted; what the journal lacks is seen where it goes on."""
    cut = [
        f"{label}/{partition} begins at offset {span.first[label]}"
        for label in LABELS
        if span.first[label] > since[label] and (label != "journal" or span.first[label] == span.end[label])
    ]
    if cut:
        raise Unauditable(
            f"records were deleted by retention ({', '.join(cut)}): answers depend on every record before them, so an "
            "audit needs all topics from their first record, or from where the last one stopped: give them "
            "retention.ms=-1, audit with --checkpoint before they are deleted, or audit a whole copy"
        )
