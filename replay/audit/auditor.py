"""``trueup audit``: every served prediction derived again from the topics, and compared bit for bit."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Self, TypeVar

import orjson
from aiokafka.errors import KafkaError
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from agents import compiled
from replay.audit import begun, follower, groups
from replay.audit import checkpoint as checkpoints
from replay.audit.begun import Rows
from replay.audit.disk_rows import Disk
from replay.audit.groups import Begun, Group
from replay.audit.output_matcher import Differs, OutputDifference, Unauditable
from replay.audit.partition_verifier import Checked, Derivation, Memory, Rederivation, RowStore
from replay.audit.reader import PartitionReader, Span, require_kept
from replay.audit.terms import Configurations
from replay.console import Console
from replay.moves import Move
from streams import atomic_file
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError
from streams.sources.registry import RegistryError

#: Exit statuses: all agree, something differs, it could not be checked.
AGREE, DIFFER, UNCHECKED = 0, 1, 65
_Given = TypeVar("_Given")
_Made = TypeVar("_Made")

#: What ends an audit, as the topics or the brokers do not allow it.
_UNREADABLE = KafkaError, TopicsError, Unauditable, RegistryError, BrokenProcessPool, OSError


@dataclass
class Verdict:
    """What an audit found of one partition.

    Attributes
    ----------
    partition, checked
        Which, and what was compared.
    application
        Of which group.
    difference, unable
        The first difference, or why it could not be checked on; None where it was checked to the end.
    skipped
        What operators had left out.
    resumed
        Input records that an earlier audit had checked.
    in_force
        What was in force, in order.
    rows
        The rows that it ended with, where another group began with them.
    loaded
        What was loaded, with which it began; empty where nothing was.
    """

    partition: int
    checked: Checked
    application: str
    difference: OutputDifference | None = None
    unable: str | None = None
    skipped: list[str] = field(default_factory=list)
    resumed: int = 0
    in_force: list[dict[str, Any]] = field(default_factory=list)
    rows: Rows | None = None
    loaded: str = ""


def run(
    settings: Settings,
    *,
    json_output: bool,
    disk: bool = False,
    checkpoint: Path | None = None,
    sources: bool = False,
) -> int:
    """Audit every partition and return the exit status: 0 all agree, 1 something differs, 2 it could not be checked.

    Parameters
    ----------
    settings
        Of the workers that served.
    json_output
        Print one JSON object as the last line of the output, and everything else to standard error.
    disk
        Keep the derived state in a temporary RocksDB instead of memory.
    checkpoint
        Directory of what the last audit derived: this one goes on from there, and leaves what it has derived itself
        of every partition that agrees. None: from the first record, and nothing is left.
    sources
        Follow every record from its source first, through intake and router.
    """
    console = Console(stderr=json_output)
    verdicts: list[Verdict] = []
    unable: str | None = None
    followed = _followed(settings, console, disk=disk, checkpoint=checkpoint) if sources else None
    try:
        began = monotonic()
        verdicts, unable = _audit(settings, console, disk=disk, checkpoint=checkpoint)
    except _UNREADABLE as exc:
        unable = f"{exc}" or repr(exc)
    account = _account(settings.app_id, verdicts, unable, monotonic() - began, followed)
    _print(console, account)
    if json_output:
        sys.stdout.write(orjson.dumps(account).decode() + "\n")
    return int(account["status"])


def _followed(settings: Settings, console: Console, *, disk: bool, checkpoint: Path | None) -> follower.Account:
    try:
        with _progress(console) as progress:
            task = progress.add_task("following the sources", total=None)
            told = partial(_followed_partitions, progress, task)
            return follower.follow(settings, disk=disk, checkpoint=checkpoint, told=told)
    except (*_UNREADABLE, SettingsError) as exc:
        return follower.Account(unable=[f"the sources: {str(exc) or repr(exc)}"])


def _followed_partitions(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


@dataclass(frozen=True)
class _Task:
    """What a process is to audit.

    Attributes
    ----------
    settings
        Of the workers.
    partition, span
        Which, and what there is of it.
    disk
        As `run` takes it.
    checkpoint
        File of its checkpoint; None without any.
    topics
        Of each label what the brokers call it: cluster, id and number of partitions.
    begun
        What it begins with; None: nothing.
    move
        How the rows are divided with which it ends; None: they are not.
    directory
        Where such rows are to be.
    """

    settings: Settings
    partition: int
    span: Span
    disk: bool
    checkpoint: Path | None
    topics: dict[str, list[Any]]
    begun: Begun | None
    move: Move | None
    directory: Path

    def of(self) -> dict[str, Any]:
        """Return what a checkpoint of it is of."""
        return {"application": self.settings.app_id, "partition": self.partition, **self.topics}


def _audit(
    settings: Settings, console: Console, *, disk: bool, checkpoint: Path | None
) -> tuple[list[Verdict], str | None]:
    """Audit every group in turn; return what was found of its partitions, and why later groups were not audited."""
    with asyncio.Runner() as runner:
        found = groups.chain(settings, runner, checkpoint)
    verdicts: list[Verdict] = []
    given: dict[int, Begun] = {}
    with (
        TemporaryDirectory(prefix="trueup-audit-") as directory,
        _Pool(max(len(group.spans) for group in found), sum(_inputs(group) for group in found), console) as pool,
    ):
        for n, group in enumerate(found):
            following = found[n + 1] if n + 1 < len(found) else None
            tasks = _tasks(group, given, following, disk=disk, directory=Path(directory))
            ended = pool.all(_partition, tasks)
            verdicts += ended
            if following is None:
                break
            rows = [verdict.rows for verdict in ended if verdict.rows is not None]
            if len(rows) < len(ended):
                return verdicts, (
                    f"{following.settings.app_id} began with rows of {group.settings.app_id}, which could not be "
                    "derived to its end"
                )
            (given,) = pool.all(_divided, [(following.moves, rows, Path(directory))])
    return verdicts, None


def _inputs(group: Group) -> int:
    """Return how many input records there are, at most."""
    begins = sum(sum(each) for each in group.moves[0].next) if group.moves else 0
    return sum(span.inputs for span in group.spans.values()) - begins


def _tasks(
    group: Group,
    given: Mapping[int, Begun],
    following: Group | None,
    *,
    disk: bool,
    directory: Path,
) -> list[_Task]:
    if group.checkpoint is not None:
        group.checkpoint.mkdir(parents=True, exist_ok=True)
    # A copy without the TLS context, which no other process can be given.
    settings = replace(group.settings, security=replace(group.settings.security))
    move = following.moves[0] if following is not None else None
    topics = {**group.topics}
    if group.moves and group.checkpoint is not None:
        first = group.moves[0]
        topics["origin"] = [first.app, first.changelog, list(first.ends)]
    return [
        _Task(settings, n, span, disk, group.path(n), topics, given.get(n), move, directory)
        for n, span in group.spans.items()
    ]


def _divided(given: tuple[list[Move], list[Rows], Path]) -> dict[int, Begun]:
    return groups.divided(*given)


class _Pool:
    """As many processes as there are processors: partitions have nothing in common."""

    def __init__(self, partitions: int, inputs: int, console: Console) -> None:
        self._jobs, self._inputs, self._console = min(partitions, os.cpu_count() or 1), inputs, console
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        context = get_context("spawn")
        self._folded = context.SimpleQueue()
        self._stack.enter_context(compiled.handed_on())
        self._pool = self._stack.enter_context(
            ProcessPoolExecutor(self._jobs, context, initializer=_report_to, initargs=(self._folded,))
        )
        self._progress = self._stack.enter_context(_progress(self._console))
        self._task = self._progress.add_task("deriving", total=self._inputs)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def all(self, run: Callable[[_Given], _Made], given: Sequence[_Given]) -> list[_Made]:
        """Return what becomes of each, in order."""
        running = [self._pool.submit(run, each) for each in given]
        left: set[Any] = set(running)
        while left:
            _, left = wait(left, timeout=0.2)
            while not self._folded.empty():
                self._progress.advance(self._task, self._folded.get())
        return [each.result() for each in running]


#: Where a process reports how many records it has folded.
_folded: list["SimpleQueue[int]"] = []


def _report_to(folded: "SimpleQueue[int]") -> None:
    _folded[:] = [folded]


def _report(folded: int) -> None:
    for queue in _folded:
        queue.put(folded)


def _partition(task: _Task) -> Verdict:
    """Audit one partition."""
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        source = PartitionReader(task.settings, runner)
        stack.callback(lambda: runner.run(source.stop()))
        rows: RowStore = Memory()
        if task.disk:
            rows = Disk(Path(stack.enter_context(TemporaryDirectory(prefix="trueup-audit-"))))
        verdict = Verdict(task.partition, Checked(), task.settings.app_id)
        try:
            runner.run(source.start())
            _derive(task, source, rows, verdict)
        except Differs as exc:
            verdict.difference = exc.args[0]
        except (Unauditable, RegistryError, KafkaError, OSError) as exc:
            verdict.unable = f"{exc}" or repr(exc)
        return verdict


def _derive(task: _Task, source: PartitionReader, rows: RowStore, verdict: Verdict) -> None:
    """Derive a partition's answers, from a checkpoint if there is one, and leave another."""
    partition, span = task.partition, task.span
    recorded = source.in_force(partition, span)
    path = task.checkpoint
    known = checkpoints.read(path, task.of(), recorded, rows) if path and path.exists() else None
    since = known.derivation if known else None
    if since is None and task.begun is not None:
        until = min((each.claim for each in recorded), default=None)
        since = groups.begin(task.settings, partition, task.begun, rows, source.changelog(partition, until))
    given = source.loaded(partition, span.told)
    if given is not None:
        verdict.loaded = str(given[0])
        if since is None:
            until = min((each.claim for each in recorded), default=None)
            since = groups.loaded(task.settings, partition, given, rows, source.changelog(partition, until))
    if since is None:
        since = Derivation(rows)
    verdict.resumed = since.checked.forecasts + since.checked.outcomes
    _report(verdict.resumed)
    begins = since.begins
    require_kept(partition, span, begins)
    skipped = source.note_skips(partition, span, known.skips if known else None)
    verdict.skipped = [
        f"{topic}/{number}@{why.removeprefix('skipped at ')}"
        for (topic, number), found in sorted(skipped.found.items())
        for _, why in sorted(found.items())
    ]
    configurations = Configurations(task.settings, partition, recorded)
    topics = source.open(partition, span, begins, configurations)
    audited = Rederivation(partition, configurations, task.settings, topics, since)
    verdict.checked = audited.checked
    try:
        for folded in audited.run():
            _report(folded)
    finally:
        verdict.in_force = [each.shown() for each in audited.terms]
    if path:
        with atomic_file.written(path) as file:
            checkpoints.write(file, task.of(), recorded, skipped, audited.derivation)
    if task.move is not None:
        groups.require_end(task.settings, partition, task.move, rows)
        verdict.rows = begun.write_rows(task.directory, partition, rows, groups.ENDED)


def _progress(console: Console) -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _account(
    application: str,
    verdicts: Sequence[Verdict],
    unable: str | None,
    seconds: float,
    followed: follower.Account | None = None,
) -> dict[str, Any]:
    """Return what was found, as JSON would have it; ``application`` is the group that was asked for."""
    own = [verdict for verdict in verdicts if verdict.application == application]
    earlier: dict[str, dict[str, Any]] = {}
    for verdict in verdicts:
        if verdict.application != application:
            of = earlier.setdefault(verdict.application, {"partitions": {}, "in_force": {}})
            of["partitions"][str(verdict.partition)] = asdict(verdict.checked)
            of["in_force"][str(verdict.partition)] = verdict.in_force
    totals = {each.name: sum(getattr(verdict.checked, each.name) for verdict in verdicts) for each in fields(Checked)}
    differences = [
        verdict.difference._asdict() | ({"application": verdict.application} if verdict not in own else {})
        for verdict in verdicts
        if verdict.difference
    ]
    reasons = ([unable] if unable else []) + [verdict.unable for verdict in verdicts if verdict.unable]
    if followed is not None:
        differences = followed.all_differences() + differences
        reasons = followed.unable + reasons
    events = totals["forecasts"] + totals["outcomes"] - sum(verdict.resumed for verdict in verdicts)
    return {
        "status": DIFFER if differences else UNCHECKED if reasons else AGREE,
        "checked": totals,
        "partitions": {str(verdict.partition): asdict(verdict.checked) for verdict in own},
        "differences": differences,
        "unable": reasons,
        "skipped": [place for verdict in verdicts for place in verdict.skipped],
        "loaded": {str(verdict.partition): verdict.loaded for verdict in own if verdict.loaded},
        "resumed": sum(verdict.resumed for verdict in verdicts),
        "in_force": {str(verdict.partition): verdict.in_force for verdict in own},
        "earlier_groups": earlier,
        "seconds": round(seconds, 3),
        "events_per_second": round(events / seconds) if seconds else 0,
    } | ({} if followed is None else {"followed": followed.shown()})


def _print(console: Console, account: Mapping[str, Any]) -> None:
    def line(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    checked = account["checked"]
    for found in account["differences"]:
        at = "" if found["offset"] is None else f" offset {found['offset']}"
        event = "" if found["event_id"] is None else f" event {found['event_id']}"
        of = f" of {found['application']}" if "application" in found else ""
        line(f"[red]differs[/]  {found['topic']}/{found['partition']}{of}{at}{escape(event)}: {escape(found['what'])}")
        for name, (served, derived) in found["fields"].items():
            line(f"  {escape(name)}: served {escape(str(served))}, derived {escape(str(derived))}")
    for place in account["skipped"]:
        line(f"[yellow]left out[/]  {escape(place)}")
    for reason in account["unable"]:
        line(f"[yellow]not checked[/]  {escape(reason)}")
    _print_groups(line, account)
    earlier = f", {account['resumed']:,} of them by earlier audits" if account["resumed"] else ""
    line(
        f"{checked['forecasts']:,} forecasts and {checked['outcomes']:,} outcomes folded in "
        f"{account['seconds']:.1f} s{earlier}"
    )
    line(
        f"bit for bit as derived: {checked['calibrated']:,} calibrated, {checked['resolved']:,} resolved, "
        f"{checked['dead_letters']:,} dead letters, {checked['copies']:,} copies"
        + (f", {checked['raw_answers']:,} raw answers" if checked["raw_answers"] else "")
    )
    if "followed" in account:
        _print_followed(line, account["followed"])
    if checked["waiting"] or checked["unsettled"]:
        line(
            f"behind the last entries of the journal, and not judged yet: {checked['waiting']:,} inputs, "
            f"{checked['unsettled']:,} outputs"
        )
    if account["status"] == AGREE:
        line("[green]all agree[/]")


def _print_groups(line: Callable[[str], None], account: Mapping[str, Any]) -> None:
    for partition, what in account["loaded"].items():
        line(f"partition {partition} began with {escape(what)}: all that came behind is judged, these rows are not")
    for group, found in account["earlier_groups"].items():
        line(f"its rows began with those of {escape(group)}, derived in {len(found['partitions'])} partitions")
    for partition, found in account["in_force"].items():
        for each in found[1:]:
            since = f"from record {each['applied']:,} on, by {escape(str(each['owner']))}"
            line(f"partition {partition}: configuration {each['configuration'][:8]} {since}")


def _print_followed(line: Callable[[str], None], followed: Mapping[str, Any]) -> None:
    source, router = followed["sources"], followed["router"]
    line(
        f"followed in {followed['seconds']:.1f} s from the sources: {source['records']:,} records, "
        f"{source['sent']:,} sent on, {source['dead']:,} dead, {source['passed']:,} passed over; "
        f"{source['waiting']:,} not committed yet, {source['gone']:,} not there any more; "
        f"{source['copies']:,} sent again"
    )
    line(
        f"through the router: {router['routes']:,} routes and {router['labels']:,} labels became "
        f"{router['outcomes']:,} outcomes and {router['dead_letters']:,} dead letters; {router['waiting']:,} wait, "
        f"{router['copies']:,} sent again"
    )
    for group, each in followed["earlier_groups"].items():
        line(
            f"of these, {each['sources']['records']:,} records and {each['router']['outcomes']:,} outcomes before "
            f"{escape(group)} was moved"
        )
    if source["unrecorded"]:
        line(
            f"{source['unrecorded']:,} source records came before intake wrote down its mapping: they are mapped by "
            "the streams file that is given, as nothing says by which they were"
        )
    if source["loaded"]:
        line(
            f"{source['loaded']:,} events were loaded from a table, and are not judged from the sources: what became "
            "of their later labels is"
        )
    if source["of_the_moment"]:
        line(
            f"{source['of_the_moment']:,} dead letters are for what intake's clock or the registry said then, which "
            "nobody can ask any more"
        )
    more = source["differences"] + router["differences"]
    if more:
        line(f"[red]{more:,} differences between the sources and the inputs of the workers[/]")
