"""``trueup streams show``: what the state says of a stream, read from the changelog."""

import asyncio
import gc
import sys
from collections import defaultdict
from heapq import nlargest
from typing import Final

import orjson
from aiokafka.errors import KafkaError

from cli import show_tables
from cli.running import running
from state import kinds
from state.fence import FATES, Fence
from state.frames import REMEDY, CorruptFrame, OtherFormat
from state.kind import KINDS
from streams.config.settings import Settings
from streams.kafka.topics import TopicsError, partitions
from streams.kafka.whole_topics import batches
from streams.metrics.description import brief, describe
from streams.metrics.rows import StateRows
from streams.metrics.snapshot import by_stream
from streams.records.skips import PoisonError

#: Most lines of the table of all streams.
LINES: Final = 200


def run(settings: Settings, stream: str | None, *, json_output: bool) -> int:
    """Show one stream, or a few figures of all; return 0, or 1 when the stream has no state.

    Raises TopicsError if the changelog cannot be read, or another build wrote it.
    """
    gc.disable()  # all is kept to the end: the collector walks it again and again, for half of the time
    try:
        return _run(settings, stream, json_output=json_output)
    finally:
        gc.enable()


def _run(settings: Settings, stream: str | None, *, json_output: bool) -> int:
    try:
        found = asyncio.run(read(settings))
        names = sorted(stream for stream in found.streams if found.knows(stream))
        if stream is not None and stream not in names:
            show_tables.console(stderr=True).print(
                f"no state of stream {stream!r}; there are: {', '.join(names[:20]) or 'none'}"
            )
            return 1
        of = (running(settings) if stream is not None or not json_output else settings).policies.of
        if stream is not None:
            report = {stream: describe(found, stream, of(stream))}
        elif json_output:  # a stream at a time: what thousands hold together is large
            report = {name: brief(found.alone(name), name) for name in names}
        else:
            most = nlargest(LINES, names, lambda name: int(brief(found.alone(name), name)["resolved"]))
            report = {name: describe(found, name, of(name)) for name in sorted(most)}
    except (KafkaError, PoisonError) as exc:
        raise TopicsError(f"cannot read {settings.changelog} from {', '.join(settings.brokers)}: {exc}") from exc
    except CorruptFrame as exc:
        remedy = f"; {REMEDY}" if isinstance(exc, OtherFormat) else ""
        raise TopicsError(f"the state of {settings.app_id} cannot be read: {exc}{remedy}") from exc
    fences = found.fences.values()
    fates = {fate: sum(fence.fates[i] for fence in fences) for i, fate in enumerate(FATES)}
    waits = {name: sum(getattr(fence, name) for fence in fences) for name in ("pending", "waiting", "early")}
    if json_output:
        sys.stdout.write(orjson.dumps({"streams": report, "fates": fates, "waits": waits}).decode() + "\n")
    else:
        show_tables.show(report, fates | waits, whole=stream is not None)
        if left := len(names) - len(report):
            said = f"Streams with fewer outcomes that are left out: {left:,}. Name one, or use --json."
            show_tables.console().print(said)
    return 0


async def read(settings: Settings) -> StateRows:
    """Read the changelog to its present end, however long that takes, while it goes on.

    Raises TopicsError if there is no changelog.
    Raises KafkaError if the brokers refuse, or nothing of it comes.
    Raises PoisonError if a record cannot be read.
    """
    if await partitions(settings, settings.changelog) is None:
        raise TopicsError(f"there is no topic {settings.changelog}: is TRUEUP_APP_ID that of the workers?")
    held: dict[int, dict[bytes, bytes]] = defaultdict(dict)
    async for _, records in batches(settings, [settings.changelog]):
        for record in records:
            key, value, rows = record.key or b"", record.value, held[record.partition]
            if (kind := KINDS.get(key[:1])) and (kind.shown or kind is kinds.FENCE):
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value
    fences = {n: Fence.decode(rows.pop(kinds.FENCE.key())) for n, rows in held.items() if kinds.FENCE.key() in rows}
    return StateRows({n: by_stream(rows) for n, rows in held.items()}, fences)
