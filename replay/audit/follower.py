"""Follows every record from its source through intake and router, up to where the worker's audit begins.

Two passes run, each in as many processes as there are processors. The first reads the records that intake and router
have written. It keeps the place, the origin and a hash of each, sorted on disk. The second maps the sources and folds
the router's inputs again, and compares the result with those entries in order. So memory does not grow with the topics,
only with the router's state.

If a group was moved, only records since the move are followed, see `replay.first_rows.Upstream`.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from replay.audit import checkpoint as checkpoints
from replay.audit import intake_verifier, router_verifier
from replay.audit.account import Account
from replay.audit.along import NOTHING, Along
from replay.audit.checkpoint import BEGAN, ROUTER, AuditProgress, RowsFile
from replay.audit.gatherer import Gatherer
from replay.audit.intake_verifier import IntakeVerifier
from replay.audit.mapper import Mapper
from replay.audit.plan import ANSWERS, LETTERS, OUTCOMES, WRITTEN, AuditPlan, RouterSpan, SourceSpan, planned
from replay.audit.reader import PartitionReader
from replay.audit.router_verifier import RouterVerifier
from replay.audit.rows import FoundRecord, Memory, digest, read_entries, read_entry, row_store, write_entries
from replay.audit.terms import Configurations
from replay.console import Bar, Console
from replay.processes import Processes, enough, report
from state.events import Rejected
from streams.config import in_force
from streams.config.settings import Settings
from streams.kafka.topics import TopicsError
from streams.records.encoding import letter
from streams.records.merge import KafkaRecord
from streams.records.output_values import OutputValues

_Skipped = list[tuple[str, int, int, str]]


def follow(settings: Settings, console: Console, *, disk: bool = False, checkpoint: Path | None = None) -> Account:
    """Follow every record from its source to the worker's inputs; return the findings.

    Raises Unauditable if no source is for intake, or the topics do not fit together.
    Raises KafkaError, TopicsError or OSError if they cannot be read.

    ``disk``: keep the router's derived state in a temporary RocksDB instead of memory.
    ``checkpoint``: directory with the progress of earlier audits, by group. This audit goes on from there, and writes
      its own progress if nothing differs.
    """
    plan = planned(settings, None if checkpoint is None else checkpoint / settings.app_id)
    plan.require_kept()
    jobs = plan.partitions + len(plan.sources) + len(plan.routers)
    records = sum(end for _, end in plan.written.values())
    with (
        TemporaryDirectory(prefix="trueup-audit-") as directory,
        Bar(console) as bar,
        Processes(enough(records), partial(bar.show, "following the sources", size=jobs)) as processes,
    ):
        at = Path(directory)
        if plan.given:
            plan = replace(plan, begun=replace(plan.begun, routers=_given(plan, at)))
        if plan.leaves is not None:
            plan.leaves.mkdir(parents=True, exist_ok=True)
        found = _followed(plan, at, processes, disk=disk)
    if plan.leaves is not None:
        agrees = not found.sources.differences and not found.router.differences
        if agrees:
            checkpoints.write_begun(plan.leaves, plan.of, found.left)
        checkpoints.tidy(plan.leaves, found.left if agrees else plan.begun)
    return found


def _given(plan: AuditPlan, at: Path) -> dict[int, RowsFile]:
    """Return the rows with which the partitions of the router began."""
    with PartitionReader(plan.settings) as reader:
        rows = {n: Memory(reader.first(n, loaded, routes=True)) for n, loaded in plan.given.items()}
    return {n: checkpoints.write_rows(at, BEGAN, n, each) for n, each in rows.items()}


def _followed(plan: AuditPlan, at: Path, processes: Processes, *, disk: bool) -> Account:
    written = {f"{WRITTEN[label]}/{n}": end for (label, n), (_, end) in plan.written.items()}
    account = Account(left=AuditProgress(plan.begun.ids | plan.ids, written=written))
    for gathered in processes.all([partial(_gather, plan, n, at) for n in range(plan.partitions)]):
        account.add(gathered)
    skipped = list(dict.fromkeys(plan.begun.skipped + account.left.skipped))
    jobs = [partial(_follow, plan, span, at, skipped) for span in plan.sources]
    jobs += [partial(_route, plan, span, at, skipped, disk) for span in plan.routers]
    for each in processes.all(jobs):
        account.add(each)
    account.left.skipped = [each for each in skipped if not is_judged(plan.settings, account.left, *each[:3])]
    account.unable += _unjudged(plan, account)
    return account


def is_judged(settings: Settings, left: AuditProgress, topic: str, number: int, offset: int) -> bool:
    """Whether this audit has judged a record: the next audit begins after it."""
    if topic in (settings.routes, settings.labels):
        rows = left.routers.get(number)
        return rows is not None and offset < rows.next[topic == settings.labels]
    return offset < left.sources.get(f"{topic}/{number}", 0)


def _unjudged(plan: AuditPlan, account: Account) -> list[str]:
    """Return sentences about records that could not be judged."""
    found = []
    for span in plan.sources:
        gone = account.by_source[str(span)].gone
        if gone:
            said = f", which begins at offset {span.first}" if span.first else ""
            found.append(
                f"{gone:,} records of {span}{said}: not there any more; see 'Retention has taken records' in "
                "docs/how-to/runbook.md"
            )
    if account.sources.unread:
        found.append(
            f"{account.sources.unread:,} records were made of source topics that are not there any more, or that the "
            "streams file does not name: audit with the file that did"
        )
    return found


# -- what a process does ---------------------------------------------------------------------------------------------


def _gather(plan: AuditPlan, partition: int, at: Path) -> Account:
    """Read one partition of the topics that intake and router have written, and keep its entries."""
    gatherer = Gatherer(plan, partition)
    with PartitionReader(plan.settings) as reader:

        def entries() -> Iterator[tuple[bytes, bytes]]:
            for label in range(len(WRITTEN)):
                if label != ANSWERS or plan.answering:
                    first, end = plan.written[label, partition]
                    stretch = max(first, plan.since(label, partition)), end
                    (records,) = reader.stretches({plan.place(label, partition): stretch})
                    yield from gatherer.of(label, records)

        write_entries(_written(at, partition), entries())
    report(1)
    return gatherer.found


def _follow(plan: AuditPlan, span: SourceSpan, at: Path, skipped: _Skipped) -> Account:
    """Map one source partition again, and compare the result."""
    place = TopicPartition(span.topic, span.partition)
    first = max(span.first, span.begin)
    end = max(span.end, first)
    with PartitionReader(plan.settings) as reader, ExitStack() as stack:
        reader.leave_out(skipped)
        single = _Single(plan, stack)

        def earlier(offset: int) -> KafkaRecord | None:
            return None if offset < span.first else single.read(place, offset)

        verifier = IntakeVerifier(
            span,
            Mapper(plan, span),
            single.served,
            earlier,
            OutputValues(plan.settings.registry),
        )
        (records,) = reader.stretches({place: (first, end)}, plan.settings.unpacked_bytes)
        written = [_written(at, n) for n in range(plan.partitions)]
        entries = _entries(plan, written, intake_verifier.prefix(span.number, span.partition))
        verifier.run(records, entries)
    report(1)
    return verifier.found


def _route(plan: AuditPlan, span: RouterSpan, at: Path, skipped: _Skipped, disk: bool) -> Account:  # noqa: FBT001 - of a job
    """Derive what one partition of the router sent, and compare it."""
    router, number = plan.settings.router, span.partition
    earlier = plan.begun.routers.get(number)
    begin, reached = ((0, 0), NOTHING) if earlier is None else (earlier.next, earlier.reached)
    inputs = span.routes, span.labels
    cut = any(each.first > since for each, since in zip(inputs, begin, strict=True))
    if cut or span.journal.first == span.journal.end > reached.journal:
        report(1)
        gone = f"partition {number} of {router.app_id}: routes, labels or the journal were deleted before the audit"
        return Account(unable=[gone])
    with PartitionReader(plan.settings) as reader, ExitStack() as stack:
        reader.leave_out(skipped)
        rows = row_store(stack, disk=disk)
        if earlier is not None:
            checkpoints.read_rows(earlier.file, rows)
        configurations = Configurations(plan.settings, number, reader.in_force(number, in_force.ROUTER))
        topics = plan.settings.routes, plan.settings.labels
        stretch = {
            TopicPartition(topic, number): (since, max(since, each.end))
            for topic, since, each in zip(topics, begin, inputs, strict=True)
        }
        journal = TopicPartition(router.journal, number)
        stretch[journal] = max(span.journal.first, reached.journal), span.journal.end
        *records, noted = reader.stretches(stretch, plan.settings.unpacked_bytes)
        place = f"{router.journal}/{number}"
        labels, ends = router_verifier.TOPICS, configurations.ends
        along = Along(place, number, labels, noted, records, begin, reached.order, ends=ends)

        def dead(rejected: Rejected) -> bytes:
            key, value, *_ = letter(rejected, topics[rejected.topic], number, router.limits)
            return digest(number, key, value, None, ())

        def found(label: int, partition: int) -> Iterator[FoundRecord]:
            prefix = router_verifier.prefix_of(number, label, partition)
            return map(read_entry, _entries(plan, [_written(at, partition)], prefix))

        verifier = RouterVerifier(
            span,
            lambda config: configurations.under(config).policies,
            plan.partitions,
            dead,
            along,
            rows,
            {(LETTERS, number): found(LETTERS, number)}
            | {(OUTCOMES, n): found(OUTCOMES, n) for n in range(plan.partitions)},
            _Single(plan, stack).served,
            stamped=OUTCOMES in plan.stamped,
            again=[key for key, _ in _entries(plan, [], router_verifier.copies(number))],
        )
        verifier.run()
        if configurations.unable:
            verifier.found.unable.append(configurations.unable)
        if plan.leaves is not None:
            reached = along.reached(reached.journal)
            rows_left = checkpoints.write_rows(plan.leaves, ROUTER, number, rows, reached)
            verifier.found.left.routers[number] = rows_left
    report(1)
    return verifier.found


class _Single:
    """Reads single records with its own client, which connects at the first read."""

    def __init__(self, plan: AuditPlan, stack: ExitStack) -> None:
        self._plan, self._stack = plan, stack
        self._reader: PartitionReader | None = None

    def served(self, label: int, partition: int, offset: int) -> KafkaRecord | None:
        """Return a record, given its label in `WRITTEN`, its partition and its offset; None if it cannot be read."""
        try:
            return self.read(self._plan.place(label, partition), offset)
        except (KafkaError, TopicsError):
            return None

    def read(self, place: TopicPartition, offset: int) -> KafkaRecord | None:
        """Return a record; None if there is none."""
        if self._reader is None:
            self._reader = self._stack.enter_context(PartitionReader(self._plan.settings))
        (records,) = self._reader.stretches({place: (offset, offset + 1)}, self._plan.settings.unpacked_bytes)
        return next(records, None)


def _written(at: Path, partition: int) -> Path:
    """Return the directory in which the first pass stores the entries of a partition."""
    return at / f"written-{partition}"


def _entries(plan: AuditPlan, written: list[Path], prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield entries with a key prefix, in order: those of the first pass, and those of earlier audits."""
    return read_entries(written, prefix, plan.begun.left)
