"""Loads the past, from a table or files, as the first state of a new group.

The workers' engine folds the past, and `replay.first_rows` writes its rows. Offsets of the past are not offsets of the
inputs. So the fence has the offsets up to which the group has answered (none for a new group). Workers then answer
every record that producers sent before or meanwhile.

A label that goes through intake and router names only its event. So each event that may still get a label gets a route,
as intake would write it (`state.routes.Route`).
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import uuid4

from replay import first_rows
from replay.configuration import Configuration
from replay.engine_output import EngineOutput
from replay.first_rows import FreshGroup
from replay.player import Done, parts, play
from replay.run import Show
from replay.score import dead
from replay.sources.files import FileSource
from replay.sources.record import TableError
from state import kinds, ledger
from state.fence import FATES, FORECAST_FATES, INPUT_FATES, Fence
from streams.config.settings import Settings
from streams.kafka import partitioner, topics
from streams.kafka.topics import TopicsError
from streams.kafka.writer import append
from streams.records.limits import SCOPED
from streams.records.routing import LOADED, encode_route, place, target_of

#: Shortest retention of routes, ms, so that the router reads them before they are deleted.
_ROUTED_MS: Final = 86_400_000


def load(
    source: FileSource, configuration: Configuration, settings: Settings, group: FreshGroup, processes: int, show: Show
) -> str:
    """Fold the past and write it, and return a message about it.

    Raises TableError if more than half of the records of a topic cannot be used, or if the past ends in the future.
    Raises TopicsError as `first_rows.beginning`.

    ``source``: the past, with as many partitions as the group.
    ``settings, group``: settings of the workers, and the group from `first_rows.opened`.
    ``processes``: the most processes.
    """
    with TemporaryDirectory(prefix="trueup-load-") as temporary:
        directory = Path(temporary)
        made = parts(source.ready(directory), [[configuration]], settings, directory, rows=True)
        done = play(made, processes, lambda read: show("folding", read, source.size))
        lost, last_ms = _require_usable(done)
        show("writing the state", 0, 0)
        folded = [part.folded for part in done]
        files = source.manifest()["files"]
        written, routes = asyncio.run(_write(settings, configuration, folded, group, files, last_ms))
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
            f"the last record is of {at:%Y-%m-%d %H:%M}, which is in the future: live records would be "
            "older than it; nothing was loaded"
        )
    told = [f"{n:,} {label} ({reason})" for label, reasons in lost.items() for reason, n in sorted(reasons.items())]
    return (f"; {', '.join(told)} could not be used" if told else ""), last


async def _write(
    settings: Settings,
    configuration: Configuration,
    folded: Sequence[EngineOutput],
    group: FreshGroup,
    files: Mapping[str, Any],
    last_ms: int,
) -> tuple[int, int]:
    """Write the state; return how many rows were written, and how many routes."""
    if settings.has_intake:
        await _require_kept(settings, last_ms)
    written = routes = 0
    async with first_rows.beginning(settings, group, files, "trueup load") as begun:
        for n, each in enumerate(folded):
            each.fence.next[:] = group.next[n]
            written += await begun.give(each.rows, each.fence)
        if settings.has_intake:
            attempt = uuid4().hex
            for n, each in enumerate(folded):
                made = _routes(each, configuration, place(LOADED, attempt, n), group.partitions)
                for to, part in enumerate(made):
                    records = ((last_ms, key, value, ()) for key, value in part)
                    routes += await append(begun.producer, settings.routes, to, records)
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
    """Return the keys and values of the routes of a partition's events, by the router's partition."""
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
