"""``trueup audit``: derives every served prediction again from the topics, and compares them bit for bit."""

import sys
from collections.abc import Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import orjson
from aiokafka.errors import KafkaError

from replay import snapshot as snapshots
from replay.audit import checkpoint as checkpoints
from replay.audit import follower, groups, verdict
from replay.audit.account import Account
from replay.audit.checkpoint import ENDED
from replay.audit.groups import Given, Group
from replay.audit.output_matcher import Differs, Unauditable
from replay.audit.partition_verifier import Checked, Derivation, Rederivation
from replay.audit.reader import PartitionReader, Span, require_kept
from replay.audit.rows import RowStore, row_store
from replay.audit.terms import Configurations
from replay.audit.verdict import Verdict
from replay.console import Bar, Console
from replay.moves import LABELS, Move
from replay.processes import Processes, enough, report
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError
from streams.sources.registry import RegistryError

#: Exit statuses: all agree, something differs, it could not be checked.
AGREE, DIFFER, UNCHECKED = 0, 1, 65

#: Errors that end an audit: the topics or the brokers do not allow it.
_UNREADABLE = KafkaError, TopicsError, RegistryError, BrokenProcessPool, OSError


def run(
    settings: Settings,
    *,
    json_output: bool,
    disk: bool = False,
    checkpoint: Path | None = None,
    sources: bool = False,
    snapshot: Path | None = None,
    signers: Path | None = None,
) -> int:
    """Audit every partition and return the exit status: `AGREE`, `DIFFER` or `UNCHECKED`.

    ``json_output``: print one JSON object as the last line of the output, and everything else to standard error.
    ``disk``: keep the derived state in a temporary RocksDB instead of memory.
    ``checkpoint``: directory of the last audit's progress, where this one goes on; each partition that agrees leaves
      its own progress there. None: begin with the first record, and leave nothing.
    ``sources``: follow every record from its source first, through intake and router.
    ``snapshot, signers``: where to begin (`replay.snapshot`), and who may have signed it; None: first record, whoever.
    """
    console = Console(stderr=json_output)
    verdicts: list[Verdict] = []
    unable: str | None = None
    followed = _followed(settings, console, disk=disk, checkpoint=checkpoint) if sources else None
    began = monotonic()
    try:
        with TemporaryDirectory(prefix="trueup-audit-") as temporary:
            if snapshot is not None:
                checkpoint = checkpoint or Path(temporary)
                _unpack(settings, snapshot, signers, checkpoint / settings.app_id)
            unable = _audit(settings, console, verdicts, disk=disk, checkpoint=checkpoint)
    except _UNREADABLE as exc:
        unable = f"{exc}" or repr(exc)
    account = verdict.account(settings.app_id, verdicts, unable, monotonic() - began, followed)
    status = DIFFER if account["differences"] else UNCHECKED if account["unable"] else AGREE
    verdict.tell(console, account)
    if status == AGREE:
        console.print("[green]all agree[/]", highlight=False)
    if json_output:
        sys.stdout.write(orjson.dumps({"status": status, **account}).decode() + "\n")
    return status


def _unpack(settings: Settings, snapshot: Path, signers: Path | None, directory: Path) -> None:
    """Put the files of a snapshot where there is no checkpoint yet."""
    manifest = snapshots.read(snapshot, signers)
    snapshots.require_same(snapshot, manifest, settings)
    directory.mkdir(parents=True, exist_ok=True)
    snapshots.unpack(snapshot, manifest, directory)


def _followed(
    settings: Settings, console: Console, *, disk: bool, checkpoint: Path | None
) -> tuple[dict[str, Account], float]:
    began = monotonic()
    try:
        found = follower.follow(settings, console, disk=disk, checkpoint=checkpoint)
    except (*_UNREADABLE, SettingsError) as exc:
        found = {settings.app_id: Account(unable=[f"the sources: {str(exc) or repr(exc)}"])}
    return found, monotonic() - began


@dataclass(frozen=True)
class _Task:
    """The audit of one partition, for a process."""

    settings: Settings
    #: The partition and its records.
    partition: int
    span: Span
    #: As in `run`.
    disk: bool
    #: File of its checkpoint, and the identity of that; None without checkpoints.
    checkpoint: Path | None
    of: dict[str, Any]
    #: Rows that it begins with; None: none.
    given: Given | None
    #: Whether a move divides its last rows, and the directory for them.
    divided: bool
    directory: Path


def _audit(
    settings: Settings, console: Console, verdicts: list[Verdict], *, disk: bool, checkpoint: Path | None
) -> str | None:
    """Audit every group in turn, and note its partitions' verdicts; return why later groups were not audited."""

    def file(here: Settings, partition: int) -> Path | None:
        return None if checkpoint is None else checkpoint / here.app_id / f"partition-{partition}"

    def has_begun(here: Settings, count: int) -> bool:
        return all((path := file(here, n)) is not None and path.exists() for n in range(count))

    def topics(_: Settings, move: Move) -> Mapping[str, tuple[str, str]]:
        return {label: move.topics[label] for label in LABELS}

    chain = groups.chain(settings, has_begun, topics)
    spans = [groups.spans(group) for group in chain]
    of = [{} if checkpoint is None else groups.of_checkpoint(group) for group in chain]
    inputs = sum(map(_inputs, chain, spans))
    given: dict[int, Given] = {}
    with (
        TemporaryDirectory(prefix="trueup-audit-") as directory,
        Bar(console) as bar,
        Processes(enough(inputs), partial(bar.show, "deriving", size=inputs)) as processes,
    ):
        for group, there, named in zip(chain, spans, of, strict=True):
            here = group.settings
            if checkpoint is not None:
                (checkpoint / here.app_id).mkdir(parents=True, exist_ok=True)
            tasks = []
            for n, span in there.items():
                what = {"application": here.app_id, "partition": n, **named}
                until, at = group.until is not None, Path(directory)
                tasks.append(_Task(here, n, span, disk, file(here, n), what, given.get(n), until, at))
            ended = processes.all([partial(_partition, task) for task in tasks])
            verdicts += ended
            if group.until is None:
                break
            rows = [each.rows for each in ended if each.rows is not None]
            following = chain[chain.index(group) + 1]
            if len(rows) < len(ended):
                return (
                    f"{following.settings.app_id} began with rows of {here.app_id}, which could not be derived to its "
                    "end"
                )
            (given,) = processes.all([partial(groups.divided, following.moves, rows, Path(directory))])
    return None


def _inputs(group: Group, spans: Mapping[int, Span]) -> int:
    """Return an upper bound of the number of input records."""
    begins = sum(sum(each) for each in group.moves[0].next) if group.moves else 0
    return sum(span["forecasts"].end + span["outcomes"].end for span in spans.values()) - begins


def _partition(task: _Task) -> Verdict:
    found = Verdict(task.partition, Checked(), task.settings.app_id)
    with ExitStack() as stack:
        try:
            reader = stack.enter_context(PartitionReader(task.settings))
            _derive(task, reader, row_store(stack, disk=task.disk), found)
        except Differs as exc:
            found.difference = exc.args[0]
        except (TopicsError, RegistryError, KafkaError, OSError) as exc:
            found.unable = f"{exc}" or repr(exc)
    return found


def _derive(task: _Task, reader: PartitionReader, rows: RowStore, found: Verdict) -> None:
    """Derive a partition's answers, from a checkpoint if there is one, and leave another."""
    partition, span = task.partition, task.span
    recorded = reader.in_force(partition)
    path = task.checkpoint
    since = checkpoints.read(path, task.of, recorded, rows) if path and path.exists() else None
    until = min((each.claim for each in recorded), default=None)
    if since is None and task.given is not None:
        since = groups.begin(task.settings, partition, task.given, rows, reader.changelog(partition, until))
    loaded = reader.loaded(partition)
    if loaded is not None:
        found.loaded = str(loaded[0])
        if since is None:
            since = groups.loaded(task.settings, partition, loaded, rows, reader.changelog(partition, until))
    if since is None:
        since = Derivation(rows)
    found.resumed = since.checked.forecasts + since.checked.outcomes
    report(found.resumed)
    begins = since.begins
    require_kept(partition, span, begins)
    since = replace(since, skips=reader.note_skips(partition, span, since.skips))
    found.skipped = [
        f"{topic}/{number}@{why.removeprefix('skipped at ')}" for topic, number, _, why in sorted(since.skips.found)
    ]
    configurations = Configurations(task.settings, partition, recorded)
    topics = reader.open(partition, span, begins, configurations)
    audited = Rederivation(partition, configurations, task.settings, topics, since)
    found.checked = audited.checked
    try:
        for folded in audited.run():
            report(folded)
    finally:
        found.in_force = [
            {"applied": each.applied, "configuration": each.digest, "owner": each.owner or None, "at": each.at or None}
            for each in audited.terms
        ]
    if path:
        checkpoints.write(path, task.of, recorded, audited.derivation)
    if audited.unable:
        raise Unauditable(audited.unable)
    if task.divided:
        found.rows = checkpoints.write_rows(task.directory, ENDED, partition, rows)
