"""``trueup streams show``: the state of a stream, read from the changelog."""

import argparse
import asyncio
import gc
import sys
from collections import defaultdict
from dataclasses import replace
from heapq import nlargest
from typing import Final

import orjson
from aiokafka.errors import KafkaError

from cli import reading, show_tables
from cli.options import DONE, NO, listed, print_json, settings
from state import kinds
from state.fence import FATES, Fence
from state.kind import KINDS
from state.policies import Policies
from streams.config import in_force
from streams.config.in_force import InForce, InForceError
from streams.config.settings import Settings
from streams.faust.in_force import announced
from streams.kafka import topics
from streams.kafka.topics import TopicsError
from streams.metrics.description import brief, describe
from streams.metrics.rows import StateRows
from streams.metrics.snapshot import by_stream

#: The most lines of the table of all streams.
LINES: Final = 200


def run(options: argparse.Namespace) -> int:
    """Show one stream, or a few figures of all. Return 0, or 1 if the stream has no state.

    Raises TopicsError if the changelog cannot be read. Raises CorruptFrame if a different build wrote its rows.
    """
    gc.disable()  # what was read stays to the end; the collector would walk it again and again, half of the time
    try:
        return _run(settings(), options.stream, json_output=options.json)
    finally:
        gc.enable()


def _run(of: Settings, stream: str | None, *, json_output: bool) -> int:
    found = asyncio.run(read(of))
    names = sorted(stream for stream in found.streams if found.knows(stream))
    if stream is not None and stream not in names:
        sys.stderr.write(f"no state of stream {stream!r}; there are: {listed(names)}\n")
        return NO
    policy_of = (running(of) if stream is not None or not json_output else of).policies.of
    if stream is not None:
        report = {stream: describe(found, stream, policy_of(stream), found.now_ms(stream))}
    elif json_output:  # one stream at a time, because thousands together are large
        report = {name: brief(found.alone(name), name) for name in names}
    else:
        most = nlargest(LINES, names, lambda name: int(brief(found.alone(name), name)["resolved"]))
        report = {name: describe(found, name, policy_of(name), found.now_ms(name)) for name in sorted(most)}
    fences = found.fences.values()
    fates = {fate: sum(fence.fates[i] for fence in fences) for i, fate in enumerate(FATES)}
    waits = {name: sum(getattr(fence, name) for fence in fences) for name in ("pending", "waiting", "early")}
    if json_output:
        print_json({"streams": report, "fates": fates, "waits": waits})
        return DONE
    show_tables.show(report, fates | waits, whole=stream is not None)
    if left := len(names) - len(report):
        print(f"Streams with fewer outcomes that are left out: {left:,}. Name one, or use --json.")
    return DONE


async def read(settings: Settings) -> StateRows:
    """Read the changelog to its present end. There is no time limit while records come.

    Raises TopicsError if there is no changelog, or it cannot be read.
    """
    await reading.width(settings, settings.changelog, ": is TRUEUP_APP_ID that of the workers?")
    held: dict[int, dict[bytes, bytes]] = defaultdict(dict)
    async for record in reading.records(settings, [settings.changelog]):
        key, value, rows = record.key or b"", record.value, held[record.partition]
        if (kind := KINDS.get(key[:1])) and (kind.shown or kind is kinds.FENCE):
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
    fences = {n: Fence.decode(rows.pop(kinds.FENCE.key())) for n, rows in held.items() if kinds.FENCE.key() in rows}
    return StateRows({n: by_stream(rows) for n, rows in held.items()}, fences)


def running(settings: Settings) -> Settings:
    """Return the settings with the policies that workers last announced.

    Print for which streams the file now says something else.

    The settings are returned unchanged if no worker has announced policies, or if these cannot be read; the latter is
    printed.
    """
    try:
        newest = asyncio.run(_newest(settings))
        policies = settings.policies if newest is None else in_force.restored(newest.configuration, settings).policies
    except (InForceError, KafkaError, OSError, TopicsError) as exc:
        sys.stderr.write(f"trueup: what workers run cannot be read, the streams file is taken for it: {exc}\n")
        return settings
    if newest is not None and _plain(policies) != _plain(settings.policies):
        sys.stderr.write(
            f"trueup: workers run other streams than the streams file has, since {newest.at}. This is what they run; "
            "they take the file up when they are restarted\n"
        )
    return replace(settings, policies=policies)


async def _newest(settings: Settings) -> InForce | None:
    """Return the newest announcement of any worker; None if there is none."""
    if await topics.partitions(settings, settings.configurations) is None:
        return None
    told = await announced(settings)
    return max((each[-1] for each in told.values() if each), key=lambda each: each.at, default=None)


def _plain(policies: Policies) -> bytes:
    default = policies.default and in_force.plain(policies.default)
    return orjson.dumps([[[name, in_force.plain(policy)] for name, policy in policies.patterns], default])
