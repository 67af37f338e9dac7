"""Every record followed from its source: through intake and the router, up to where the worker's audit begins.

Two passes, each in as many processes as there are processors. The first reads, partition by partition, what intake and
router have written, and keeps of each record where it stands, what it was made of and a hash, sorted on disk. The
second reads the sources and the router's inputs, makes everything again, and meets the first one's entries in order.
So memory does not grow with the topics, but for the router's state.

A group that was moved is followed behind the one that it was made of. `trueup state rescale` writes down how far intake
and router had come then (`replay.moves.Upstream`): up to there the sources lead to the old group's topics, and from
there on to the new one's. The derived rows of the old router are divided by the same pure function as the router's own.
"""

import asyncio
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, NamedTuple

import orjson
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from agents import compiled
from agents.intake import Intake
from replay import moves
from replay.audit import begun as checkpoints
from replay.audit import entries, groups, intake_verifier, router_verifier
from replay.audit.along import Along, Reached
from replay.audit.begun import Begun, Rows
from replay.audit.disk_rows import Disk
from replay.audit.entries import Entries, digest
from replay.audit.intake_verifier import (
    ANSWERS,
    LETTERS,
    NAMED,
    ROUTES,
    Followed,
    Found,
    IntakeVerifier,
    Made,
    SourceSpan,
)
from replay.audit.output_matcher import OutputDifference, Unauditable
from replay.audit.partition_verifier import Memory, RowStore, fence_of
from replay.audit.plan import OUTCOMES, WRITTEN, Plan, chain
from replay.audit.reader import PartitionReader, Span
from replay.audit.router_verifier import RouterSpan, RouterVerifier, Sent
from replay.audit.terms import Configurations
from state.events import Rejected
from state.fence import FORECASTS
from state.frames import CorruptFrame
from state.rescale import RescaleError, rescaled_routes
from streams.config import in_force
from streams.config.settings import Settings
from streams.kafka import partitioner
from streams.metrics.routing import IntakeGauges
from streams.records import skips
from streams.records.encoding import encode, key_of
from streams.records.making import Making
from streams.records.merge import NEVER, KafkaRecord
from streams.records.output_values import OutputValues
from streams.records.routing import LOADED


class Gathered(NamedTuple):
    """What the first pass found of one partition of every topic.

    Attributes
    ----------
    cuts
        By label and partition, of topics whose first records were deleted: by source partition the first offset named.
    unread
        Records that were made of topics that are not there any more.
    differences, more
        Records that neither intake nor router has written; how many further ones there are.
    skipped
        What an operator left out of sources, routes and labels: topic, partition, offset and why.
    loaded
        Routes that `replay.load` wrote.
    """

    cuts: dict[tuple[int, int], dict[tuple[str, int], int]]
    unread: int
    differences: list[OutputDifference]
    more: int
    skipped: list[tuple[str, int, int, str]]
    loaded: int = 0


@dataclass
class Account:
    """What following the records has found, of one group, or of one and those ``earlier`` ones that it was made of."""

    sources: Followed = field(default_factory=Followed)
    router: Sent = field(default_factory=Sent)
    labels: dict[str, int] = field(default_factory=dict)
    differences: list[OutputDifference] = field(default_factory=list)
    unable: list[str] = field(default_factory=list)
    by_source: dict[str, Followed] = field(default_factory=dict)
    seconds: float = 0.0
    earlier: dict[str, "Account"] = field(default_factory=dict)

    @classmethod
    def of(cls, last: "Account", earlier: "dict[str, Account]", seconds: float) -> "Account":
        """Return what was found of all groups, from that of the last and of the earlier ones."""
        found = cls(labels=last.labels, differences=last.differences, seconds=seconds, earlier=earlier)
        for account in (*earlier.values(), last):
            found.unable += account.unable
            _add(found.sources, account.sources)
            _add(found.router, account.router)
            for name, each in account.by_source.items():
                _add(found.by_source.setdefault(name, Followed()), each)
        return found

    def all_differences(self) -> list[dict[str, Any]]:
        """Return them as JSON has them, those of groups before with their application."""
        found = [
            each._asdict() | {"application": application}
            for application, earlier in self.earlier.items()
            for each in earlier.differences
        ]
        return found + [each._asdict() for each in self.differences]

    def shown(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "sources": asdict(self.sources),
            "router": asdict(self.router),
            "routed": self.labels,
            "source_partitions": {name: asdict(each) for name, each in self.by_source.items()},
            "earlier_groups": {
                name: {"sources": asdict(each.sources), "router": asdict(each.router)}
                for name, each in self.earlier.items()
            },
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.sources.records / self.seconds) if self.seconds else 0,
        }


def follow(
    settings: Settings,
    *,
    disk: bool = False,
    checkpoint: Path | None = None,
    told: Callable[[int, int], None] = lambda *_: None,
) -> Account:
    """Follow every record from its source to the worker's inputs.

    Parameters
    ----------
    settings
        Of the workers, with the sources.
    disk
        Keep the router's derived state in a temporary RocksDB instead of memory.
    checkpoint
        Directory in which earlier audits have left how far they came with the sources, in one for each group: this one
        goes on from there, and leaves the same if nothing differs.
    told
        Called with how many partitions were followed, and how many there are.

    Raises
    ------
    Unauditable
        If no source is for intake, or the topics do not fit together.
    KafkaError, TopicsError, OSError
        If they cannot be read.
    """
    began = monotonic()
    # A copy without the TLS context, which no other process can be given.
    settings = replace(settings, security=replace(settings.security))
    with asyncio.Runner() as runner:
        plans = chain(settings, runner, checkpoint)
    with (
        TemporaryDirectory(prefix="trueup-audit-") as directory,
        compiled.handed_on(),
        ProcessPoolExecutor(os.cpu_count() or 1, get_context("spawn")) as pool,
    ):
        total, done = sum(each.partitions + len(each.sources) + len(each.routers) for each in plans), count(1)

        def finished(_: object) -> None:
            told(next(done), total)

        earlier: dict[str, Account] = {}
        plan, at = plans[0], Path(directory)
        for following in plans[1:]:
            at = at / "next"
            at.mkdir()
            earlier[plan.settings.app_id], ended = _group(replace(plan, leaves=at), at, pool, disk, finished)
            try:
                rows = pool.submit(_divided, plan, ended.routers, at).result()
            except Unauditable as exc:
                return Account.of(Account(unable=[str(exc)]), earlier, monotonic() - began)
            plan = replace(following, begun=replace(following.begun, routers=rows), rows=at)
        at = at / "next"
        at.mkdir()
        account, left = _group(plan, at, pool, disk, finished)
    account = Account.of(account, earlier, monotonic() - began)
    if plan.leaves is not None:
        agrees = not account.sources.differences and not account.router.differences
        if agrees:
            left.written = {f"{WRITTEN[label]}/{n}": end for (label, n), (_, end) in plan.written.items()}
            checkpoints.write(plan.leaves, plan.of, left)
        checkpoints.tidy(plan.leaves, left if agrees else plan.begun)
    return account


def _group(
    plan: Plan,
    at: Path,
    pool: ProcessPoolExecutor,
    disk: bool,  # noqa: FBT001 - as `follow` takes it
    finished: Callable[[object], None],
) -> tuple[Account, Begun]:
    """Follow the records of one group; return what was found, and what another audit goes on from."""
    account, left = Account(), Begun(plan.begun.ids | plan.ids)
    reading = [pool.submit(_gather, plan, n, at) for n in range(plan.partitions)]
    for each in reading:
        each.add_done_callback(finished)
    gathered = [each.result() for each in reading]
    cuts = {place: firsts for found in gathered for place, firsts in found.cuts.items()}
    for found in gathered:
        account.differences += found.differences
        account.sources.differences += len(found.differences) + found.more
        account.sources.unread += found.unread
        account.sources.loaded += found.loaded
    with closing(Entries(at / "left")) as file:
        for key, value in plan.begun.left:
            file.put(key, value)
    skipped = list(dict.fromkeys(plan.begun.skipped + [each for found in gathered for each in found.skipped]))
    followed = [pool.submit(_follow, plan, span, at, cuts, skipped) for span in plan.sources]
    routed = [pool.submit(_route, plan, span, at, skipped, disk) for span in plan.routers]
    for one in followed:
        one.add_done_callback(finished)
    for other in routed:
        other.add_done_callback(finished)
    for span, source in zip(plan.sources, followed, strict=True):
        made, differences, waiting = source.result()
        left.sources[str(span)] = max(span.begin, span.committed)
        left.left += waiting
        account.by_source[str(span)] = made
        _add(account.sources, made)
        account.differences += differences
    for sent_by, router in zip(plan.routers, routed, strict=True):
        sent, differences, fates, waiting, rows, unable = router.result()
        account.unable += unable
        left.left += waiting
        if rows is not None:
            left.routers[str(sent_by.partition)] = rows
        _add(account.router, sent)
        account.labels = {name: account.labels.get(name, 0) + n for name, n in fates.items()}
        account.differences += differences
    left.skipped = [each for each in skipped if not _is_judged(plan.settings, left, *each[:3])]
    if plan.until is not None:
        account.router.waiting = 0  # they wait in the next group
    account.unable += _unjudged(plan, account)
    return account, left


def _is_judged(settings: Settings, left: Begun, topic: str, number: int, offset: int) -> bool:
    """Whether the next audit begins behind a record of a source, of the routes or of the labels."""
    if topic in (settings.routes, settings.labels):
        rows = left.routers.get(str(number))
        return rows is not None and offset < (rows.routes if topic == settings.routes else rows.labels)
    return offset < left.sources.get(f"{topic}/{number}", 0)


def _divided(plan: Plan, ended: Mapping[str, Rows], at: Path) -> dict[str, Rows]:
    """Divide the rows that a router had ended with, and return those that the next group's begins with.

    Raises
    ------
    Unauditable
        If its topics do not lead to where it was when it was moved, or the rows cannot be divided.
    """
    move = plan.until
    assert move is not None and move.upstream is not None  # noqa: S101, PT018 - for the type checker
    name, parts = plan.settings.router.app_id, []
    for n, fence in enumerate(move.upstream.fences):
        rows = Memory()
        if str(n) not in ended:
            raise Unauditable(
                f"partition {n} of {name} could not be derived to its end, and the next group began there"
            )
        checkpoints.read_rows(at, ended[str(n)], rows)
        reached = fence_of(rows)
        if (reached.applied, *reached.next) != fence:
            raise Unauditable(
                f"partition {n} of {name} was moved when {fence[0]} records had been applied, up to offsets "
                f"{list(fence[1:])} of routes and labels; its topics lead to {reached.applied}, up to {reached.next}: "
                "what the next group sends cannot be derived"
            )
        parts.append(rows)
    following = [(0, 0)] * move.partitions
    try:
        made = rescaled_routes(
            parts, moves.plan(moves.EVENT, len(parts), following, lambda _: 1, grown=False, routed=())
        )
    except (RescaleError, CorruptFrame) as exc:
        raise Unauditable(f"the rows of {name} cannot be divided anew: {exc}") from exc
    return {str(n): checkpoints.write_rows(at, n, Memory(part), groups.BEGAN) for n, part in enumerate(made)}


def _unjudged(plan: Plan, account: Account) -> list[str]:
    """Return what could not be judged, one sentence each."""
    found = []
    for span in plan.sources:
        gone = account.by_source[str(span)].gone
        if gone:
            said = f", which begins at offset {span.first}" if span.first else ""
            found.append(
                f"{gone:,} records of {span}{said}: not there any more, or what was made of them is not; see "
                "'Retention has taken records' in docs/how-to/runbook.md"
            )
    if account.sources.unread:
        found.append(
            f"{account.sources.unread:,} records were made of source topics that are not there any more, or that the "
            "streams file does not name: audit with the file that did"
        )
    router = account.router
    if router.gone:
        found.append(f"{router.gone:,} records of the router: those that led to them, or they, are not there any more")
    return found


def _add(total: Any, one: Any) -> None:  # noqa: ANN401 - counts of one kind
    """Add counts to counts."""
    for each in fields(one):
        setattr(total, each.name, getattr(total, each.name) + getattr(one, each.name))


# -- the first pass --------------------------------------------------------------------------------------------------


def _gather(plan: Plan, partition: int, at: Path) -> Gathered:
    """Read one partition of everything that intake and router have written, and leave its entries."""
    with ExitStack() as stack:
        reader = _reader(plan, stack)
        gatherer = Gatherer(plan, partition)
        file = stack.enter_context(closing(Entries(at / f"written-{partition}")))
        for label in range(len(WRITTEN)):
            if label == ANSWERS and not plan.answering:
                continue
            first, end = plan.written[label, partition]
            first = max(first, plan.since(label, partition))
            (records,) = reader.stretches({plan.place(label, partition): (first, end)})
            for key, value in gatherer.of(label, records):
                file.put(key, value)
        return gatherer.found


class Gatherer:
    """Turns what intake and router have written into entries."""

    def __init__(self, plan: Plan, partition: int) -> None:
        self._plan = plan
        self._partition = partition
        self._numbers = {span.topic: span.number for span in plan.sources}
        #: Of each id the topic.
        self._named = {topic_id: topic for topic, topic_id in plan.ids.items()}
        self._places: dict[str, tuple[str, int] | None] = {}
        self._routed = {plan.settings.routes: 0, plan.settings.labels: 1}
        self._own = {plan.settings.forecasts, plan.settings.outcomes}
        self._values = OutputValues(plan.settings.registry)
        self.found = Gathered({}, 0, [], 0, [])

    def of(self, label: int, records: Iterable[KafkaRecord]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of one topic."""
        firsts: dict[tuple[str, int], int] = {}
        for record in records:
            try:
                made = self._outcome(record) if label == OUTCOMES else self._made(label, record, firsts)
            except (ValueError, KeyError, TypeError):
                made = None
                if label in self._plan.strict:
                    self._foreign(label, record)
            if made is not None:
                yield made
        if self._plan.written[label, self._partition][0] > self._plan.since(label, self._partition):
            self.found.cuts[label, self._partition] = firsts

    def _made(self, label: int, record: KafkaRecord, firsts: dict[tuple[str, int], int]) -> tuple[bytes, bytes] | None:
        value = record.value or b""
        if label == ANSWERS:
            found = self._raw_answer(value)
            if found is None:
                return None
            read, value = found
        else:
            read = orjson.loads(value)
        if label in (LETTERS, ANSWERS):
            letter = read if label == LETTERS else read["dead_letter"]
            topic, number, offset = letter["topic"], letter["partition"], letter["offset"]
            left_out = skips.of_dead_letter(value) if label == LETTERS and topic not in self._own else None
            if left_out is not None:
                self.found.skipped.append(left_out)
            if label == LETTERS and topic in self._routed:
                said = digest(self._partition, record.key, value, None, record.headers)
                return router_verifier.letter_entry(self._partition, self._routed[topic], offset, record.offset, said)
            place = (topic, number) if topic in self._numbers else None
            if place is None:
                self.found = self.found._replace(unread=self.found.unread + (topic not in self._own))
            stamp = None
        else:
            name, offset = read["origin"]
            if label == ROUTES and name.startswith(f"{LOADED}@"):
                self.found = self.found._replace(loaded=self.found.loaded + 1)
                return None
            place, stamp = self._source(name), self._stamp(label, record)
            if place is None:
                self.found = self.found._replace(unread=self.found.unread + 1)
        if place is None:
            return None
        if type(offset) is not int or not 0 <= offset < 1 << 63 or type(place[1]) is not int:
            raise ValueError(offset)
        firsts[place] = min(offset, firsts.get(place, offset))
        said = digest(self._partition, record.key, value, stamp, record.headers)
        entry = Found(label, self._partition, record.offset, said)
        return intake_verifier.entry(self._numbers[place[0]], place[1], offset, entry)

    def _raw_answer(self, value: bytes) -> tuple[dict[str, Any], bytes] | None:
        """Return a raw answer, and its value without the id of a schema; None of all other answers."""
        if value[:1] != b"\0":
            return (orjson.loads(value), value) if b'"calibrated":false' in value else None
        read = self._values.fields(value)
        return (read, self._values.bare(value)) if read.get("calibrated") is False else None

    def _stamp(self, label: int, record: KafkaRecord) -> int | None:
        """Return the Kafka timestamp of a record where it is that of what it was made of."""
        return max(0, record.timestamp) if label in self._plan.stamped else None

    def _source(self, name: str) -> tuple[str, int] | None:
        """Return topic and partition that an origin names; None if that topic is not there any more."""
        if name not in self._places:
            _, _, rest = name.rpartition("@")
            topic_id, _, partition = rest.partition("/")
            topic = self._named.get(topic_id)
            self._places[name] = None if topic is None else (topic, int(partition))
        return self._places[name]

    def _outcome(self, record: KafkaRecord) -> tuple[bytes, bytes] | None:
        if OUTCOMES not in self._plan.strict:
            return None
        value = record.value or b""
        read = orjson.loads(value)
        event_id, stream, number = read["event_id"], read["scope"], read["revision"]
        if "\0" in event_id or "\0" in stream or not 0 < number < 1 << 32:
            raise ValueError(event_id)
        said = digest(self._partition, record.key, value, self._stamp(OUTCOMES, record), record.headers)
        router = partitioner.partition(event_id.encode(), self._plan.partitions)
        found = router_verifier.Found(event_id, stream, number, said, self._partition, record.offset)
        return router_verifier.outcome_entry(router, found)

    def _foreign(self, label: int, record: KafkaRecord) -> None:
        who = "the router" if label == OUTCOMES else "intake"
        if len(self.found.differences) >= NAMED:
            self.found = self.found._replace(more=self.found.more + 1)
            return
        what = f"a record that {who} did not write: it names no source"
        self.found.differences.append(OutputDifference(self._partition, WRITTEN[label], record.offset, None, what))


# -- the second pass -------------------------------------------------------------------------------------------------


def _follow(
    plan: Plan,
    span: SourceSpan,
    at: Path,
    cuts: Mapping[tuple[int, int], Mapping[tuple[str, int], int]],
    skipped: list[tuple[str, int, int, str]],
) -> tuple[Followed, list[OutputDifference], list[tuple[bytes, bytes]]]:
    """Map one source partition again, and meet what was made of it; the last are entries of what is not judged yet."""
    place = TopicPartition(span.topic, span.partition)
    with ExitStack() as stack:
        reader = _reader(plan, stack)
        reader.leave_out(skipped)
        mapper = Mapper(plan, span, _runner(stack))
        cut = {where: firsts.get((span.topic, span.partition)) for where, firsts in cuts.items()}
        served = _Served(plan, stack)
        compare = OutputValues(plan.settings.registry).compared
        earlier = partial(served.earlier, span)
        verifier = IntakeVerifier(
            span, mapper.make, cut, mapper.unknown_schema, served, compare, earlier, mapper.recorded, mapper.before
        )
        first = max(span.first, span.begin)
        end = max(span.committed if span.last else span.end, first)
        (records,) = reader.stretches({place: (first, end)}, plan.settings.unpacked_bytes)
        found = entries.read(_written(plan, at), intake_verifier.prefix(span.number, span.partition))
        for _ in verifier.run(records, found):
            pass
        return verifier.checked, verifier.differences, verifier.left


class Mapper:
    """Makes what intake makes of the records of one source partition, by what it ran when it did.

    What intake has not written down is mapped by the streams file that is given.
    """

    def __init__(self, plan: Plan, span: SourceSpan, runner: asyncio.Runner) -> None:
        known = plan.mapped.get((span.topic, span.partition), [])
        self._since = [since for since, _ in known]
        self._names = ["", *(name for _, name in known)]
        self._mappings = [_Mapping(plan, under, span, runner) for under in (None, *(name for _, name in known))]

    def _at(self, offset: int) -> int:
        return bisect_right(self._since, offset)

    def recorded(self, offset: int) -> bool:
        """Whether intake has written down what it ran when it mapped the record at an offset."""
        return self._at(offset) > 0

    def shown(self, offset: int) -> str:
        """Return what people are told of the mapping of the record at an offset."""
        at = self._at(offset)
        if at:
            return f"mapping {self._names[at][:8]}, in force from offset {self._since[at - 1]} on"
        return "the streams file given: intake has not written down what was in force"

    def make(self, record: KafkaRecord, now: int) -> list[Made]:
        """Return what a record becomes at a time, ms."""
        return self._mappings[self._at(record.offset)].make(record, now)

    def before(self, record: KafkaRecord) -> list[Made]:
        """Return what a record becomes by the mapping before; nothing where there is none."""
        at = self._at(record.offset)
        return self._mappings[at - 1].make(record, NEVER) if at > 1 else []

    def unknown_schema(self, record: KafkaRecord) -> list[Made]:
        """Return the dead letter of a record whose schema the registry does not have."""
        return self._mappings[self._at(record.offset)].unknown_schema(record)


class _Mapping:
    """The same by one streams file; ``under`` is its hash, None for the one that is given."""

    def __init__(self, plan: Plan, under: str | None, span: SourceSpan, runner: asyncio.Runner) -> None:
        settings = plan.settings if under is None else plan.files[under]
        names = dict.fromkeys(mode.source.name for mode in settings.modes)
        self._intake = Intake(settings, IntakeGauges("", names, list))
        self._intake.know(plan.widths, plan.ids)
        self._place = TopicPartition(span.topic, span.partition)
        self._runner = runner
        self._readers = self._intake.readers[span.topic]
        self._unstamped = set(range(LETTERS)) - plan.stamped

    def make(self, record: KafkaRecord, now: int) -> list[Made]:
        lacking = {schema for reader in self._readers for schema in reader.lacking(record)}
        if lacking:
            self._runner.run(self._intake.schemas.load(lacking))
        made = intake_verifier.made(self._intake.make([(self._place, record)], now))
        if self._unstamped:
            return [one.unstamped() if one.label in self._unstamped else one for one in made]
        return made

    def unknown_schema(self, record: KafkaRecord) -> list[Made]:
        making = Making()
        rejected = Rejected(record.offset, record.key, record.value, FORECASTS, "schema")
        self._intake.maker.reject(making, self._place, rejected)
        return intake_verifier.made(making)


def _route(
    plan: Plan,
    span: RouterSpan,
    at: Path,
    skipped: list[tuple[str, int, int, str]],
    disk: bool,  # noqa: FBT001 - of a process
) -> tuple[Sent, list[OutputDifference], dict[str, int], list[tuple[bytes, bytes]], Rows | None, list[str]]:
    """Derive what one partition of the router has sent, and meet it; what follows the fates is for the next audit."""
    router, number = plan.settings.router, span.partition
    places = [TopicPartition(name, number) for name in (plan.settings.routes, plan.settings.labels)]
    with ExitStack() as stack:
        reader = _reader(plan, stack)
        reader.leave_out(skipped)
        served = _Served(plan, stack)
        rows: RowStore = Memory()
        if disk:
            rows = Disk(Path(stack.enter_context(TemporaryDirectory(prefix="trueup-audit-"))))
        earlier = plan.begun.routers.get(str(number))
        reached = Reached()
        if plan.rows is not None and earlier is not None:
            checkpoints.read_rows(plan.rows, earlier, rows)
            reached = earlier.reached
        told = Span({}, {}, plan.told.get(number, (0, 0)))
        configurations = Configurations(plan.settings, number, reader.in_force(number, told, in_force.ROUTER))
        journal, (kept, end) = TopicPartition(router.journal, number), span.journal
        cut = any(first > begin for first, begin in zip(span.first, span.begin, strict=True))
        if cut or (kept == end > reached.journal):
            gone = f"partition {number} of {router.app_id}: routes, labels or the journal were deleted before the audit"
            return Sent(), [], {}, [], None, [gone]
        stretch = {
            place: (begin, max(begin, end)) for place, begin, end in zip(places, span.begin, span.end, strict=True)
        }
        stretch[journal] = max(kept, reached.journal), end
        *inputs, noted = reader.stretches(stretch, plan.settings.unpacked_bytes)
        along = Along(
            f"{journal.topic}/{number}", number, router_verifier.TOPICS, noted, inputs, span.begin, reached.order
        )

        def letter(rejected: Rejected) -> bytes:
            value = encode(rejected, router, number)[2]
            return digest(number, key_of(rejected, router), value, None, ())

        copies = router_verifier.prefix(b"C", number)
        verifier = RouterVerifier(
            span,
            lambda config: configurations.under(config).policies,
            plan.partitions,
            letter,
            along,
            rows,
            lambda partition, offset: served(OUTCOMES, partition, offset),
            stamped=OUTCOMES in plan.stamped,
            again=[router_verifier.copy_of(key) for key, _ in entries.read([at / "left"], copies)],
        )
        derived = at / f"derived-{number}"
        with closing(Entries(derived)) as file:
            for _ in verifier.derive(file.put):
                pass
        written = None
        if plan.leaves is not None:
            reached = along.reached(reached.journal)
            written = checkpoints.write_rows(plan.leaves, number, rows, reached=reached)
        for kind in (b"O", b"L"):
            prefix = router_verifier.prefix(kind, number)
            verifier.compare(entries.read([derived], prefix), entries.read(_written(plan, at), prefix), kind)
        return verifier.checked, verifier.differences, verifier.fates, verifier.left, written, verifier.unable


class _Served:
    """Reads single records, by a client of its own."""

    def __init__(self, plan: Plan, stack: ExitStack) -> None:
        self._plan, self._stack = plan, stack
        self._reader: PartitionReader | None = None

    def __call__(self, label: int, partition: int, offset: int) -> KafkaRecord | None:
        """Return a record by its label in `WRITTEN`, its partition and its offset; None if it cannot be read."""
        try:
            return self._one(self._plan.place(label, partition), offset)
        except (KafkaError, Unauditable):
            return None

    def earlier(self, span: SourceSpan, offset: int) -> KafkaRecord | None:
        """Return a record of a source that is judged elsewhere; None if it is not there any more."""
        return None if offset < span.first else self._one(TopicPartition(span.topic, span.partition), offset)

    def _one(self, place: TopicPartition, offset: int) -> KafkaRecord | None:
        if self._reader is None:
            self._reader = _reader(self._plan, self._stack)
        unpacked_bytes = self._plan.settings.unpacked_bytes
        (records,) = self._reader.stretches({place: (offset, offset + 1)}, unpacked_bytes)
        return next(records, None)


def _written(plan: Plan, at: Path) -> list[Path]:
    return [at / "left", *(at / f"written-{n}" for n in range(plan.partitions))]


def _runner(stack: ExitStack) -> asyncio.Runner:
    return stack.enter_context(asyncio.Runner())


def _reader(plan: Plan, stack: ExitStack) -> PartitionReader:
    runner = _runner(stack)
    reader = PartitionReader(plan.settings, runner)
    stack.callback(lambda: runner.run(reader.stop()))
    runner.run(reader.start())
    return reader
