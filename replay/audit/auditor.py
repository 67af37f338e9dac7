"""``trueup audit``: every served prediction derived again from the topics, and compared bit for bit."""

import asyncio
import base64
import os
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields, replace
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final, TypeVar

import orjson
import rocksdict
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agents import compiled
from replay.audit.output_matcher import Differs, OutputDifference, Unauditable
from replay.audit.partition_verifier import LABELS, Checked, Memory, Rederivation, RowStore
from streams.config.settings import Settings
from streams.faust import unpacking
from streams.kafka.topics import TopicsError, partitions
from streams.records import skips
from streams.records.merge import KafkaRecord
from streams.records.refused import SKIPPED

T = TypeVar("T")

#: Exit statuses: all agree, something differs, it could not be checked.
AGREE, DIFFER, UNCHECKED = 0, 1, 2
#: Most bytes a partition may give at once; whole record batches keep the reader at 6 us a record.
FETCH_BYTES: Final = 4 << 20
#: The brokers must give the next records of a topic that has some within this time, s.
STALL_SECONDS: Final = 60.0


class Disk:
    """Rows in a RocksDB database of its own."""

    def __init__(self, directory: Path) -> None:
        self._db = rocksdict.Rdict(str(directory), rocksdict.Options(raw_mode=True))

    def get(self, key: bytes, /) -> bytes | None:
        """Return a row."""
        row: bytes | None = self._db.get(key)
        return row

    def write(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Write rows; None deletes."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in rows.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        self._db.write(batch)


@dataclass(frozen=True)
class Span:
    """What the topics of one partition held when the audit began.

    Attributes
    ----------
    first, end
        Offset of the first record kept and the next offset, by label.
    committed
        What the workers had committed of forecasts and of outcomes before that.
    """

    first: Mapping[str, int]
    end: Mapping[str, int]
    committed: tuple[int, int]

    @property
    def inputs(self) -> int:
        """Input records to fold, at most."""
        return self.end["forecasts"] + self.end["outcomes"]


@dataclass
class Verdict:
    """What an audit found of one partition: `difference` or ``unable`` where it ended early, and what was left out."""

    partition: int
    checked: Checked
    difference: OutputDifference | None = None
    unable: str | None = None
    skipped: list[str] = field(default_factory=list)


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

    async def start(self) -> None:
        """Connect."""
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=",".join(self._settings.brokers),
            enable_auto_commit=False,
            max_partition_fetch_bytes=FETCH_BYTES,
            isolation_level="read_committed",  # as a worker reads its inputs
            **self._settings.security.client_options(),
        )
        await self._consumer.start()
        unpacking.bound(
            self._consumer, self._settings.unpacks, lambda place: self.skipped.get((place.topic, place.partition), {})
        )

    async def stop(self) -> None:
        """Disconnect."""
        if self._consumer is not None:
            await self._consumer.stop()

    def place(self, label: str, partition: int) -> TopicPartition:
        """Return a partition of a topic by its label."""
        return TopicPartition(getattr(self._settings, label.replace("-", "_")), partition)

    async def spans(self, count: int) -> dict[int, Span]:
        """Return what there is to read of each partition.

        What was committed is asked for first, and the ends of the inputs last: every output that is read then has its
        inputs, and every committed input its outputs.
        """
        committed = await self._committed(count)
        ends: dict[TopicPartition, int] = {}
        for label in reversed(LABELS):
            ends |= await self._consumer.end_offsets([self.place(label, n) for n in range(count)])
        first = await self._consumer.beginning_offsets(list(ends))
        return {
            n: Span(
                {label: first[self.place(label, n)] for label in LABELS},
                {label: ends[self.place(label, n)] for label in LABELS},
                committed[n],
            )
            for n in range(count)
        }

    async def _committed(self, count: int) -> list[tuple[int, int]]:
        group = AIOKafkaConsumer(
            bootstrap_servers=",".join(self._settings.brokers),
            group_id=self._settings.app_id,
            enable_auto_commit=False,
            **self._settings.security.client_options(),
        )
        try:
            await group.start()  # nothing is subscribed, so it does not join the group
            offsets = [[await group.committed(self.place(label, n)) or 0 for label in LABELS[:2]] for n in range(count)]
        finally:
            await group.stop()
        return [(forecasts, outcomes) for forecasts, outcomes in offsets]

    def open(self, partition: int, span: Span) -> list[Iterator[KafkaRecord]]:
        """Return the records of each of `LABELS`."""
        places = [self.place(label, partition) for label in LABELS]

        async def begin(*places: TopicPartition) -> None:
            self._consumer.assign(places)
            await self._consumer.seek_to_beginning(*places)

        # What was left out has to be known before the inputs are read: its dead letters say so.
        letters = self.place("dead-letters", partition)
        self._run(begin(letters))
        for record in self._records(letters, span.end["dead-letters"]):
            self._skip(record.value or b"")
        self._run(begin(*places))
        return [self._records(place, span.end[label]) for label, place in zip(LABELS, places, strict=True)]

    def _skip(self, value: bytes) -> None:
        """Note what a dead letter says was left out."""
        if b'"reason":"skipped"' not in value:
            return
        try:
            letter = orjson.loads(value)
            found = skips.of_letter(orjson.loads(base64.b64decode(letter["value"])))
            if letter["reason"] == SKIPPED and found is not None:
                self.skipped.setdefault((letter["topic"], letter["partition"]), {})[found[0]] = found[1]
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # it is none of ours, which the comparison will say

    def _records(self, place: TopicPartition, end: int) -> Iterator[KafkaRecord]:
        position, since = 0, monotonic()
        while position < end:
            batches, position = self._run(self._next(place))
            for record in batches:
                if record.offset >= end:
                    return
                yield record
            if batches:
                since = monotonic()
            elif monotonic() - since > STALL_SECONDS:
                raise Unauditable(f"{place.topic}/{place.partition} gave nothing for {STALL_SECONDS:g} s at {position}")

    def _run(self, done: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            raise RuntimeError("records are read by a runner")
        return self._runner.run(done)

    async def _next(self, place: TopicPartition) -> tuple[list[KafkaRecord], int]:
        batches = await self._consumer.getmany(place, timeout_ms=500)
        return batches.get(place, []), await self._consumer.position(place)


def run(settings: Settings, *, json_output: bool, disk: bool = False) -> int:
    """Audit every partition and return the exit status: 0 all agree, 1 something differs, 2 it could not be checked.

    Parameters
    ----------
    settings
        Of the workers that served.
    json_output
        Print one JSON object as the last line of the output, and everything else to standard error.
    disk
        Keep the derived state in a temporary RocksDB instead of memory.
    """
    console = Console(stderr=json_output)
    began = monotonic()
    try:
        verdicts = _audit(settings, console, disk=disk)
        unable = None
    except (KafkaError, TopicsError, Unauditable, BrokenProcessPool) as exc:
        verdicts, unable = [], f"{exc}" or repr(exc)
    account = _account(verdicts, unable, monotonic() - began)
    _print(console, account)
    if json_output:
        sys.stdout.write(orjson.dumps(account).decode() + "\n")
    return int(account["status"])


def _audit(settings: Settings, console: Console, *, disk: bool) -> list[Verdict]:
    """Audit every partition in as many processes as there are processors: partitions have nothing in common."""
    with asyncio.Runner() as runner:
        spans = runner.run(_spans(settings))
    _require_whole(spans)
    # A copy without the TLS context, which no other process can be given.
    settings = replace(settings, security=replace(settings.security))
    context = get_context("spawn")
    folded = context.SimpleQueue()
    jobs = min(len(spans), os.cpu_count() or 1)
    with (
        compiled.handed_on(),
        ProcessPoolExecutor(jobs, context, initializer=_report_to, initargs=(folded,)) as pool,
        _progress(console) as progress,
    ):
        task = progress.add_task("deriving", total=sum(span.inputs for span in spans.values()))
        running = {pool.submit(_partition, settings, n, span, disk) for n, span in spans.items()}
        left = set(running)
        while left:
            _, left = wait(left, timeout=0.2)
            while not folded.empty():
                progress.advance(task, folded.get())
        return sorted((each.result() for each in running), key=lambda verdict: verdict.partition)


#: Where a process reports how many records it has folded.
_folded: list["SimpleQueue[int]"] = []


def _report_to(folded: "SimpleQueue[int]") -> None:
    _folded[:] = [folded]


def _partition(settings: Settings, partition: int, span: Span, disk: bool) -> Verdict:  # noqa: FBT001 - by position to a process
    """Audit one partition."""
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        source = PartitionReader(settings, runner)
        stack.callback(lambda: runner.run(source.stop()))
        rows: RowStore = (
            Disk(Path(stack.enter_context(TemporaryDirectory(prefix="trueup-audit-")))) if disk else Memory()
        )
        verdict = Verdict(partition, Checked())
        try:
            runner.run(source.start())
            topics = source.open(partition, span)
            verdict.skipped = [
                f"{topic}/{number}@{why.removeprefix('skipped at ')}"
                for (topic, number), found in sorted(source.skipped.items())
                for _, why in sorted(found.items())
            ]
            audited = Rederivation(partition, settings, topics, span.committed, rows)
            verdict.checked = audited.checked
            for folded in audited.run():
                for queue in _folded:
                    queue.put(folded)
        except Differs as exc:
            verdict.difference = exc.args[0]
        except (Unauditable, KafkaError) as exc:
            verdict.unable = f"{exc}" or repr(exc)
        return verdict


async def _spans(settings: Settings) -> dict[int, Span]:
    """Return what there is to read; raises `Unauditable` or `TopicsError` if it cannot be."""
    count = await _count(settings)
    source = PartitionReader(settings)
    try:
        await source.start()
        return await source.spans(count)
    finally:
        await source.stop()


async def _count(settings: Settings) -> int:
    """Return how many partitions there are; raises `Unauditable` unless all topics have as many."""
    counts = {}
    for label in LABELS:
        name = getattr(settings, label.replace("-", "_"))
        count = await partitions(settings, name)
        if count is None:
            raise Unauditable(f"there is no topic {name}")
        counts[name] = count
    if len(set(counts.values())) > 1:
        raise Unauditable(f"the topics do not have equally many partitions: {counts}")
    return count or 0


def _require_whole(spans: Mapping[int, Span]) -> None:
    cut = [
        f"{label}/{n} begins at offset {span.first[label]}"
        for n, span in spans.items()
        for label in LABELS
        if span.first[label]
    ]
    if cut:
        raise Unauditable(
            f"records were deleted by retention ({', '.join(cut[:3])}): answers depend on every record before them, "
            "so an audit needs all topics from their first record: give them retention.ms=-1, or audit a whole copy"
        )


def _progress(console: Console) -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _account(verdicts: Sequence[Verdict], unable: str | None, seconds: float) -> dict[str, Any]:
    """Return what was found, as JSON would have it."""
    totals = {each.name: sum(getattr(verdict.checked, each.name) for verdict in verdicts) for each in fields(Checked)}
    differences = [verdict.difference._asdict() for verdict in verdicts if verdict.difference]
    reasons = ([unable] if unable else []) + [verdict.unable for verdict in verdicts if verdict.unable]
    events = totals["forecasts"] + totals["outcomes"]
    return {
        "status": DIFFER if differences else UNCHECKED if reasons else AGREE,
        "checked": totals,
        "partitions": {str(verdict.partition): asdict(verdict.checked) for verdict in verdicts},
        "differences": differences,
        "unable": reasons,
        "skipped": [place for verdict in verdicts for place in verdict.skipped],
        "seconds": round(seconds, 3),
        "events_per_second": round(events / seconds) if seconds else 0,
    }


def _print(console: Console, account: Mapping[str, Any]) -> None:
    def line(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    checked = account["checked"]
    for found in account["differences"]:
        at = "" if found["offset"] is None else f" offset {found['offset']}"
        event = "" if found["event_id"] is None else f" event {found['event_id']}"
        line(f"[red]differs[/]  {found['topic']}/{found['partition']}{at}{escape(event)}: {escape(found['what'])}")
        for name, (served, derived) in found["fields"].items():
            line(f"  {escape(name)}: served {escape(str(served))}, derived {escape(str(derived))}")
    for place in account["skipped"]:
        line(f"[yellow]left out[/]  {escape(place)}")
    for reason in account["unable"]:
        line(f"[yellow]not checked[/]  {escape(reason)}")
    line(
        f"{checked['forecasts']:,} forecasts and {checked['outcomes']:,} outcomes folded in {account['seconds']:.1f} s"
    )
    line(
        f"bit for bit as derived: {checked['calibrated']:,} calibrated, {checked['resolved']:,} resolved, "
        f"{checked['dead_letters']:,} dead letters, {checked['copies']:,} copies"
    )
    if checked["waiting"] or checked["unsettled"]:
        line(
            f"not committed yet, and not judged: {checked['waiting']:,} forecasts without an answer, "
            f"{checked['unsettled']:,} other outputs"
        )
    if checked["by_time"] and account["differences"]:
        line(
            f"of the records folded, {checked['by_time']:,} stand between two answers in an order only their times "
            "tell; it matters where a row falls due between them: see Audit in docs/operations.md"
        )
    if account["status"] == AGREE:
        line("[green]all agree[/]")
