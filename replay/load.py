"""Loads the past, from a table or files, as the first state of a new group.

The workers' engine folds the past and its rows go to the changelog, as in `replay.export_state`. The fence comes last;
without it no worker accepts the rows. Offsets of the past do not belong to the inputs. So the fence holds the offsets
that the group has answered, none for a new group: workers answer every record that producers sent before or meanwhile.

Labels that pass intake and router know only their event. So each event that may still get a label gets a route, as
intake writes it (`state.routes.Route`).

An audit cannot derive these rows from topics. So the topic of configurations keeps a copy of them, with a record of
what they were made of, and audits begin with them.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import uuid4

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from replay import process_pool
from replay.configuration import Configuration
from replay.engine_output import EngineOutput
from replay.export_state import append, begun, give, has_state, open_group
from replay.loaded import Loaded
from replay.partition_task import Done, parts
from replay.run import Show
from replay.score import dead
from replay.sources.files import FileSource
from replay.sources.record import TableError
from state import kinds, ledger
from state.fence import FATES, FORECAST_FATES, INPUT_FATES, Fence
from streams.config.settings import Settings
from streams.kafka import groups, partitioner, topics
from streams.kafka.topics import TopicsError
from streams.kafka.writer import writer
from streams.records.decoding import SCOPED
from streams.records.routing import LOADED, encode_route, place, target_of

#: Least time for the router to read the routes before brokers delete them, ms.
_ROUTED_MS: Final = 86_400_000


@dataclass(frozen=True)
class Group:
    """A group that a past may be loaded into."""

    #: By partition, the next offsets of forecasts and of outcomes that it has not answered; 0 where it is new.
    next: Sequence[tuple[int, int]]
    #: By partition, `Loaded.since`.
    since: Sequence[tuple[int, int, int]]

    @property
    def partitions(self) -> int:
        """How many there are."""
        return len(self.next)


def opened(settings: Settings) -> Group:
    """Check a group before anything is read.

    Raises TopicsError if its topics are missing, workers run, or it has a state.
    """
    try:
        return asyncio.run(_opened(settings))
    except KafkaError as exc:
        raise TopicsError(f"cannot look at {settings.changelog}: {exc!r}") from exc


async def _opened(settings: Settings) -> Group:
    own = settings.changelog, settings.journal, settings.configurations
    names = [settings.forecasts, settings.outcomes, *settings.outputs, *own]
    if settings.has_intake:
        names.append(settings.routes)
    counts = {name: await topics.partitions(settings, name) for name in names}
    if lacking := [name for name, found in counts.items() if found is None]:
        raise TopicsError(f"there is no topic {lacking[0]}: 'trueup topics create' makes it")
    if len({*counts.values()}) > 1:
        raise TopicsError(f"the topics do not have equally many partitions: {counts}")
    count = counts[settings.forecasts] or 0
    outputs = [[TopicPartition(name, n) for name in settings.outputs] for n in range(count)]
    async with open_group(settings) as consumer:
        ends = await consumer.end_offsets([*chain(*outputs)])
        inputs = [[TopicPartition(name, n) for name in (settings.forecasts, settings.outcomes)] for n in range(count)]
        found = await groups.committed(consumer, settings.app_id, chain(*inputs))
    await require_stopped(settings)  # behind the first question about the group, which makes brokers look it up
    if await has_state(settings):
        raise TopicsError(
            f"group {settings.app_id} has a state already, of a worker or of an earlier load or restore. Nothing was "
            "written, so nothing counts twice. Give another TRUEUP_APP_ID, whose workers answer all that topics keep. "
            f"If it is to write the topics of {settings.app_id}, run 'trueup topics take' with it before its workers. "
            f"Or delete the topics {settings.changelog}, {settings.journal} and {settings.configurations}, make them "
            "by 'trueup topics create', and run the command again: after a load the group then goes on behind its last "
            "answer, and labels of forecasts that it answered before do not find them"
        )
    since = [[ends[place] for place in places] for places in outputs]
    answered = [[found[place].offset if place in found else 0 for place in places] for places in inputs]
    return Group([(one, two) for one, two in answered], [(one, two, three) for one, two, three in since])


async def require_stopped(settings: Settings) -> None:
    """See that no worker runs; raises TopicsError."""
    async with topics.admin_client(settings) as admin:
        there = await groups.members(admin, settings.app_id)
    if there:
        raise TopicsError(
            f"group {settings.app_id} runs ({there} members): stop its workers, and run the command again. Producers "
            "may go on"
        )


def load(
    source: FileSource, configuration: Configuration, settings: Settings, group: Group, processes: int, show: Show
) -> str:
    """Fold the past and write it, and return a message about it.

    Raises TableError if more than half of the records of a topic cannot be used, or the past ends in the future.
    Raises TopicsError if the brokers refuse. Then the changelog holds no state that a worker would accept.

    Parameters
    ----------
    source
        With as many partitions as the group.
    settings, group
        Of the workers, and as `opened` found it.
    processes
        At most so many.
    """
    with TemporaryDirectory(prefix="trueup-load-") as temporary:
        directory = Path(temporary)
        made = parts(source.ready(directory), [[configuration]], settings, directory, rows=True)
        done = process_pool.play(made, processes, lambda read: show("folding", read, source.size))
        lost, last_ms = _require_usable(done)
        show("writing the state", 0, 0)
        folded = [part.folded for part in done]
        try:
            written, routes = asyncio.run(
                _write(settings, configuration, folded, group, source.manifest()["files"], last_ms)
            )
        except (KafkaError, OSError) as exc:
            raise TopicsError(
                f"cannot write {settings.changelog}: {exc!r}; it holds no state that a worker would accept. Delete it "
                f"and {settings.configurations}, make them by 'trueup topics create', and load again"
            ) from exc
    fates = [sum(each.fence.fates[n] for each in folded) for n in range(len(FATES))]
    found = Fence(fates=fates)
    return (
        f"{sum(fates[:FORECAST_FATES]):,} forecasts and {sum(fates[FORECAST_FATES:INPUT_FATES]):,} outcomes are loaded "
        f"into {settings.app_id}: {written:,} rows in {group.partitions} partitions{lost}. {found.pending:,} forecasts "
        f"wait for a label, and {found.waiting:,} labels for their forecast to mature."
        + (f" The router is told of {routes:,} events." if settings.has_intake else "")
        + " Start the workers"
    )


def _require_usable(done: Sequence[Done]) -> tuple[str, int]:
    """Return a message about dead letters, and the last time, ms.

    Raises TableError if there are too many dead letters, or times are in the future.
    """
    lost = dead(part.played[0] for part in done)
    for topic, (label, reasons) in enumerate(lost.items()):
        listed = ", ".join(f"{n:,} {reason}" for reason, n in sorted(reasons.items()))
        read = sum(part.read[topic] for part in done)
        if 2 * sum(reasons.values()) > read:
            raise TableError(
                f"more than half of {read:,} {label} cannot be used: {listed}; nothing was loaded. 'trueup replay' of "
                "the same files shows them, with --dead-letters FILE"
            )
    last = max((part.end_ms for part in done if part.end_ms is not None), default=None)
    if last is None:
        raise TableError("there is no record to load")
    if last > time.time() * 1000:
        at = datetime.fromtimestamp(last / 1000, UTC)
        raise TableError(
            f"the last record is of {at:%Y-%m-%d %H:%M}, which is still to come: live records would stand behind it; "
            "nothing was loaded"
        )
    told = [f"{n:,} {label} ({reason})" for label, reasons in lost.items() for reason, n in sorted(reasons.items())]
    return (f"; {', '.join(told)} could not be used" if told else ""), last


async def _write(
    settings: Settings,
    configuration: Configuration,
    folded: Sequence[EngineOutput],
    group: Group,
    files: Mapping[str, Any],
    last_ms: int,
) -> tuple[int, int]:
    """Return how many rows were written, and how many routes."""
    if settings.has_intake:
        await _require_kept(settings, last_ms)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    written = routes = 0
    async with writer(settings) as producer:
        changelog = await begun(producer, settings, len(folded), "trueup load")
        for n, each in enumerate(folded):
            fence = each.fence
            fence.next[:] = group.next[n]
            told = Loaded(files, at, 0, settings.outputs, group.since[n])
            written += await give(producer, changelog, settings, n, partial(_rows, each), fence, told)
        if settings.has_intake:
            attempt = uuid4().hex
            for n, each in enumerate(folded):
                made = _routes(each, configuration, place(LOADED, attempt, n), group.partitions)
                for to, part in enumerate(made):
                    routes += await append(producer, settings.routes, to, part, last_ms)
        await require_stopped(settings)
        for n, each in enumerate(folded):
            await changelog.append(n, [(kinds.FENCE.key(), each.fence.encode())])
    return written, routes


async def _require_kept(settings: Settings, last_ms: int) -> None:
    kept = await topics.kept_ms(settings, settings.routes)
    if kept >= 0 and last_ms + kept < time.time() * 1000 + _ROUTED_MS:
        raise TopicsError(
            f"topic {settings.routes} keeps records for {kept / 86_400_000:.3g} days, and the past ended on "
            f"{datetime.fromtimestamp(last_ms / 1000, UTC):%Y-%m-%d}: brokers may delete the routes of what is loaded "
            "before the router has read them. Nothing was loaded. Set its retention.ms to -1 with kafka-configs.sh, "
            "and load again"
        )


def _routes(
    folded: EngineOutput, configuration: Configuration, origin: str, partitions: int
) -> list[list[tuple[bytes, bytes]]]:
    """Return keys and values of the routes of a partition's events, by the router's partition."""
    found: list[list[tuple[bytes, bytes]]] = [[] for _ in range(partitions)]
    offset = 0
    for key, row in folded.rows():
        if not key.startswith(kinds.LEDGER.letter) or kinds.LEDGER.decode(row).status == ledger.EARLY:
            continue
        event_id, _, stream = key[len(kinds.LEDGER.letter) :].decode().partition(SCOPED)
        to = target_of(configuration.policies, stream, event_id)
        made = event_id.encode(), encode_route(event_id, stream, to, (origin, offset))
        found[partitioner.partition(made[0], partitions)].append(made)
        offset += 1
    return found


def _rows(folded: EngineOutput) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows, without quotas, which begin full."""
    return ((key, row) for key, row in folded.rows() if not key.startswith(kinds.QUOTA.letter))
