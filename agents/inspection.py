"""``trueup inspect``: what the state says of a stream, read from the changelog."""

import asyncio
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from rich.console import Console
from rich.table import Table

from state import keys, rows
from state.fence import FATES, Fence
from state.rows import Served
from state.scores import Kind, Scores
from streams.settings import Settings
from streams.topics import TopicsError, partitions

KINDS: tuple[Kind, ...] = ("raw", "calibrated")


@dataclass
class Found:
    """The newest rows of every partition that say something of streams."""

    fences: dict[int, Fence] = field(default_factory=dict)
    scores: dict[str, dict[int, Scores]] = field(default_factory=lambda: defaultdict(dict))
    served: dict[str, dict[tuple[int, str], Served]] = field(default_factory=lambda: defaultdict(dict))


def run(settings: Settings, stream: str | None, *, json_output: bool) -> int:
    """Show one stream, or all; return 0, or 1 when the stream has no state.

    Raises
    ------
    TopicsError
        If the changelog cannot be read.
    """
    try:
        found = asyncio.run(read(settings))
    except KafkaError as exc:
        raise TopicsError(f"cannot read {settings.changelog} from {', '.join(settings.brokers)}: {exc}") from exc
    names = sorted(found.scores.keys() | found.served.keys())
    if stream is not None and stream not in names:
        _console(stderr=True).print(f"no state of stream {stream!r}; there are: {', '.join(names[:20]) or 'none'}")
        return 1
    report = {name: describe(found, name) for name in (names if stream is None else [stream])}
    fates = {fate: sum(fence.fates[i] for fence in found.fences.values()) for i, fate in enumerate(FATES)}
    if json_output:
        sys.stdout.write(orjson.dumps({"streams": report, "fates": fates}).decode() + "\n")
    else:
        _print(report, fates, whole=stream is not None)
    return 0


async def read(settings: Settings) -> Found:
    """Read the changelog to its present end."""
    count = await partitions(settings, settings.changelog)
    if count is None:
        raise TopicsError(f"there is no topic {settings.changelog}: is TRUEUP_APP_ID that of the workers?")
    consumer = AIOKafkaConsumer(
        bootstrap_servers=",".join(settings.brokers),
        auto_offset_reset="earliest",
        **settings.security.client_options(),
    )
    newest: dict[tuple[int, bytes], bytes] = {}
    try:
        await consumer.start()
        tps = [TopicPartition(settings.changelog, n) for n in range(count)]
        consumer.assign(tps)
        ends = await consumer.end_offsets(tps)
        while any([await consumer.position(tp) < ends[tp] for tp in tps]):
            for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                for record in records:
                    if record.key[:1] in (keys.FENCE, keys.SCORES, keys.CALIBRATOR) and record.value is not None:
                        newest[tp.partition, record.key] = record.value
    finally:
        await consumer.stop()
    found = Found()
    for (partition, key), value in newest.items():
        kind = key[:1]
        if kind == keys.FENCE:
            found.fences[partition] = Fence.decode(value)
        elif kind == keys.SCORES:
            found.scores[key[1:].decode()][partition] = rows.decode_scores(value)
        else:
            config, stream = key[1:5].hex(), key[5:].decode()
            found.served[stream][partition, config] = rows.decode_calibrator(value, stream)
    return found


def describe(found: Found, stream: str) -> dict[str, Any]:
    """Return what the state says of a stream, as JSON would have it."""
    total: Scores = reduce(add, found.scores.get(stream, {}).values(), Scores())
    described: dict[str, Any] = {"resolved": int(total.n)}
    if total.n:
        for kind in KINDS:
            described[kind] = {
                "ece": total.ece(kind),
                "brier": total.brier(kind),
                "log_loss": total.log_loss(kind),
                "reliability": [
                    {"n": int(each.n), "forecast": each.p / each.n, "outcome": each.y / each.n}
                    for each in total.bins(kind)
                    if each.n
                ],
            }
        described["regret"] = {"brier": total.regret_brier(), "log": total.regret_log()}
    described["calibrators"] = [
        {
            "partition": partition,
            "config": config,
            **orjson.loads(served.recipe),
            "version": served.calibrator.learnt,
            "outstanding": served.outstanding,
            "error": served.calibrator.error(),
            "bound": served.calibrator.bound(served.outstanding),
        }
        for (partition, config), served in sorted(found.served.get(stream, {}).items())
    ]
    return described


def _console(*, stderr: bool = False) -> Console:
    """Return a console that shows the names of streams as they are: they come from records."""
    return Console(stderr=stderr, markup=False, emoji=False)


def _print(report: dict[str, dict[str, Any]], fates: dict[str, int], *, whole: bool) -> None:
    console = _console()
    table = Table("stream", "resolved", "ECE raw", "ECE", "Brier raw", "Brier", "regret", "calibrator")
    for name, each in report.items():
        scores = [f"{each[kind][score]:.4f}" if kind in each else "–" for score in ("ece", "brier") for kind in KINDS]
        regret = f"{each['regret']['brier']:+.1f}" if "regret" in each else "–"
        made = ", ".join(sorted({one["calibrator"] for one in each["calibrators"]}))
        table.add_row(name, f"{each['resolved']:,}", *scores, regret, made)
    console.print(table)
    if not whole:
        console.print("  ".join(f"{fate} {n:,}" for fate, n in fates.items() if n))
        return
    for each in report.values():
        curve = Table("kind", "events", "mean forecast", "share of events", title="reliability")
        for kind in KINDS:
            for one in each.get(kind, {}).get("reliability", ()):
                curve.add_row(kind, f"{one['n']:,}", f"{one['forecast']:.4f}", f"{one['outcome']:.4f}")
        console.print(curve)
        held = Table("partition", "calibrator", "config", "version", "outstanding", "error", "bound")
        for one in each["calibrators"]:
            figures = ("–" if one[name] is None else f"{one[name]:.4f}" for name in ("error", "bound"))
            held.add_row(
                str(one["partition"]),
                one["calibrator"],
                one["config"],
                f"{one['version']:,}",
                str(one["outstanding"]),
                *figures,
            )
        console.print(held)
