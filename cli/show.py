"""``trueup streams show``: what the state says of a stream, read from the changelog."""

import asyncio
import gc
import logging
import sys
from collections import defaultdict
from collections.abc import Mapping
from heapq import nlargest
from typing import Final

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from cli import show_tables
from state import kinds
from state.fence import FATES, Fence
from state.frames import REMEDY, CorruptFrame, OtherFormat
from state.kind import KINDS
from streams.config.settings import Settings
from streams.faust.client import stop
from streams.kafka.topics import TopicsError, partitions
from streams.metrics.description import brief, describe
from streams.metrics.rows import StateRows
from streams.metrics.snapshot import by_stream

log = logging.getLogger("trueup")

#: Longest wait for anything of the changelog, s: longer than a cluster takes to replace a broker.
STILL_SECONDS: Final = 60.0
#: How often the log says how far the reading is, s.
TELL_SECONDS: Final = 5.0
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
        of = settings.policies.of
        if stream is not None:
            report = {stream: describe(found, stream, of(stream))}
        elif json_output:  # a stream at a time: what thousands hold together is large
            report = {name: brief(found.alone(name), name) for name in names}
        else:
            most = nlargest(LINES, names, lambda name: int(brief(found.alone(name), name)["resolved"]))
            report = {name: describe(found, name, of(name)) for name in sorted(most)}
    except KafkaError as exc:
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

    Raises TopicsError if there is no changelog, or nothing of it has come for `STILL_SECONDS`.
    Raises KafkaError if the brokers refuse.
    """
    count = await partitions(settings, settings.changelog)
    if count is None:
        raise TopicsError(f"there is no topic {settings.changelog}: is TRUEUP_APP_ID that of the workers?")
    consumer = AIOKafkaConsumer(
        bootstrap_servers=",".join(settings.brokers),
        auto_offset_reset="earliest",
        request_timeout_ms=int(settings.request_seconds * 1000),
        **settings.security.client_options(),
    )
    try:
        await consumer.start()
        tps = [TopicPartition(settings.changelog, n) for n in range(count)]
        consumer.assign(tps)
        return _found(await _newest(consumer, await consumer.end_offsets(tps)))
    finally:
        await stop(consumer)


async def _newest(consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]) -> dict[tuple[int, bytes], bytes]:
    """Return the newest value of each key of each partition before its end."""
    newest: dict[tuple[int, bytes], bytes] = {}
    now = asyncio.get_running_loop().time
    total = left = sum(ends.values())
    tell = now() + TELL_SECONDS
    try:
        async with asyncio.timeout(STILL_SECONDS) as limit:
            while found := sum([max(end - await consumer.position(tp), 0) for tp, end in ends.items()]):
                if found < left:
                    left = found
                    limit.reschedule(now() + STILL_SECONDS)
                if now() >= tell:
                    log.info("reading the changelog: %d of %d offsets", total - left, total)
                    tell = now() + TELL_SECONDS
                for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                    for record in records:
                        if (kind := KINDS.get(record.key[:1])) and (kind.shown or kind is kinds.FENCE):
                            if record.value is None:
                                newest.pop((tp.partition, record.key), None)
                            else:
                                newest[tp.partition, record.key] = record.value
    except TimeoutError:
        raise TopicsError(
            f"the changelog cannot be read to its end: nothing of it came for {STILL_SECONDS:g} s, and {left} of "
            f"{total} offsets are left. Do the brokers that lead it answer?",
            lasting=False,
        ) from None
    return newest


def _found(newest: dict[tuple[int, bytes], bytes]) -> StateRows:
    held: dict[int, dict[bytes, bytes]] = defaultdict(dict)
    for (partition, key), value in newest.items():
        held[partition][key] = value
    fences = {n: Fence.decode(rows.pop(kinds.FENCE.key())) for n, rows in held.items() if kinds.FENCE.key() in rows}
    return StateRows({n: by_stream(rows) for n, rows in held.items()}, fences)
