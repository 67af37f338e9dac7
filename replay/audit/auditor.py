"""``trueup audit``: derives every served prediction again from the topics, and compares them bit for bit."""

import sys
from collections.abc import Iterable
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

import orjson
from aiokafka.errors import KafkaError

from replay import snapshot as snapshots
from replay.audit import checkpoint as checkpoints
from replay.audit import follower, verdict
from replay.audit.account import Account
from replay.audit.output_matcher import Differs, Settled, Unauditable
from replay.audit.partition_verifier import LABELS, Checked, Derivation, Rederivation
from replay.audit.reader import PartitionReader, Span, identities, named, require_kept, spans, width
from replay.audit.rows import RowStore, row_store
from replay.audit.terms import Configurations
from replay.audit.verdict import Verdict
from replay.console import Bar, Console
from replay.first_rows import Loaded
from replay.moves import is_derived
from replay.processes import Processes, enough, report
from state.kind import shown
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError
from streams.sources.registry import RegistryError

#: Exit statuses: all records agree, some differ, or they could not be checked.
AGREE, DIFFER, UNCHECKED = 0, 1, 65

#: Errors that end an audit: the topics or the brokers do not allow it to go on.
_UNREADABLE = KafkaError, TopicsError, RegistryError, BrokenProcessPool, OSError
#: The most differing rows that a message names.
_NAMED: Final = 3

#: Offset, key and row of each record.
Changelog = Iterable[tuple[int, bytes, bytes | None]]


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
    ``checkpoint``: directory with the progress of the last audit. This audit goes on from there, and writes the
      progress of each partition that agrees. None: begin with the first record, and write no progress.
    ``sources``: first follow every record from its source through intake and router.
    ``snapshot, signers``: a snapshot to begin with (`replay.snapshot`), and who may have signed it. None: begin with
    the first record; anybody may have signed.
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
            verdicts = _audit(settings, console, disk=disk, checkpoint=checkpoint)
    except _UNREADABLE as exc:
        unable = f"{exc}" or repr(exc)
    account = verdict.account(verdicts, unable, monotonic() - began, followed)
    status = DIFFER if account["differences"] else UNCHECKED if account["unable"] else AGREE
    verdict.tell(console, account)
    if status == AGREE:
        console.print("[green]all agree[/]", highlight=False)
    if json_output:
        sys.stdout.write(orjson.dumps({"status": status, **account}).decode() + "\n")
    return status


def _unpack(settings: Settings, snapshot: Path, signers: Path | None, directory: Path) -> None:
    """Unpack the files of a snapshot where there is no checkpoint yet."""
    manifest = snapshots.read(snapshot, signers)
    snapshots.require_same(snapshot, manifest, settings)
    directory.mkdir(parents=True, exist_ok=True)
    snapshots.unpack(snapshot, manifest, directory)


def _followed(settings: Settings, console: Console, *, disk: bool, checkpoint: Path | None) -> tuple[Account, float]:
    began = monotonic()
    try:
        found = follower.follow(settings, console, disk=disk, checkpoint=checkpoint)
    except (*_UNREADABLE, SettingsError) as exc:
        found = Account(unable=[f"the sources: {str(exc) or repr(exc)}"])
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
    #: File of the partition's checkpoint, or None; and the identity that the file must have.
    checkpoint: Path | None
    of: dict[str, Any]


def _audit(settings: Settings, console: Console, *, disk: bool, checkpoint: Path | None) -> list[Verdict]:
    """Audit every partition.

    Raises Unauditable if topics are missing or differ in their number of partitions. Raises TopicsError if the brokers
    cannot be reached, or if a topic was deleted and recreated meanwhile.
    """
    count = width(settings, [*named(settings, LABELS), settings.configurations])
    of = identities(settings)
    there = spans(settings, count)
    at = None if checkpoint is None else checkpoint / settings.app_id
    if at is not None:
        at.mkdir(parents=True, exist_ok=True)
    inputs = sum(span["forecasts"].end + span["outcomes"].end for span in there.values())
    tasks = []
    for n, span in there.items():
        what = {"application": settings.app_id, "partition": n, **of}
        tasks.append(_Task(settings, n, span, disk, at and at / f"partition-{n}", what))
    with (
        Bar(console) as bar,
        Processes(enough(inputs), partial(bar.show, "deriving", size=inputs)) as processes,
    ):
        found = processes.all([partial(_partition, task) for task in tasks])
    now = identities(settings)
    if anew := [name for label, (name, *_) in of.items() if now[label] != of[label]]:
        raise TopicsError(f"{' and '.join(anew)}: deleted and recreated during the audit, so audit once more")
    return found


def _partition(task: _Task) -> Verdict:
    found = Verdict(task.partition, Checked())
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
    """Derive a partition's answers, from a checkpoint if there is one. Write a new checkpoint."""
    partition, span = task.partition, task.span
    recorded = reader.in_force(partition)
    path = task.checkpoint
    since = checkpoints.read(path, task.of, recorded, rows) if path and path.exists() else None
    loaded = reader.loaded(partition)
    if loaded is not None:
        found.loaded = str(loaded)
        if since is None:
            until = min((each.claim for each in recorded), default=None)
            rows.write(reader.first(partition, loaded))
            since = begun(task.settings, partition, loaded, rows, reader.changelog(partition, until))
    if since is None:
        since = Derivation(rows)
    found.resumed = since.checked.forecasts + since.checked.outcomes
    report(found.resumed)
    begins = since.begins
    require_kept(task.settings, partition, span, begins)
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


def begun(settings: Settings, partition: int, loaded: Loaded, rows: RowStore, changelog: Changelog) -> Derivation:
    """Return the progress of a partition that began with given rows.

    Raises Unauditable if the changelog has a different row.

    ``changelog``: offset, key and row of those changelog records from before the first worker that brokers still have.
    """
    wrong = list(_wrong(changelog, rows))
    if wrong:
        more = f"; and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
        raise Unauditable(
            f"partition {partition} of {settings.app_id} began with other rows than the {loaded}: "
            f"{'; '.join(wrong[:_NAMED])}{more}"
        )
    return Derivation(rows, tuple(Settled(each) for each in loaded.begins(settings.outputs)))


def _wrong(changelog: Changelog, rows: RowStore) -> Iterable[str]:
    """Yield differences between a changelog and the rows. Rows that were compacted away cannot be compared."""
    for key, (offset, row) in {key: (offset, row) for offset, key, row in changelog}.items():
        given = rows.get(key)
        if is_derived(key) and row != given:
            what = "is another one" if given is not None else "is of nothing that was written down"
            yield f"{shown(key)} {what} (offset {offset})"
