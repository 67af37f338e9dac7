"""``trueup inspect``: what the state says of a stream, read from the changelog."""

import asyncio
import math
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from rich.console import Console
from rich.table import Table

from agents import shadows
from state import history, keys, rows
from state.alarm import ALPHA
from state.calibrators import internal_regret, played
from state.calibrators.points import debiased_l2, noise
from state.class_scores import ClassScores
from state.comparison import Comparison
from state.fence import FATES, Fence
from state.history import KINDS, Alarmed, History
from state.losses import NAMES
from state.rows import Served, VectorScores
from state.scores import Bin, Kind, Murphy, Scores, total
from streams.settings import Settings
from streams.topics import TopicsError, partitions

#: Rows that say something of streams.
KEPT = (keys.FENCE, keys.SCORES, keys.WINDOWS, keys.VECTORS, keys.CALIBRATOR, keys.COMPARISON)


@dataclass
class Found:
    """The newest rows of every partition that say something of streams."""

    fences: dict[int, Fence] = field(default_factory=dict)
    histories: dict[str, dict[int, History]] = field(default_factory=lambda: defaultdict(dict))
    vectors: dict[str, dict[tuple[int, str], VectorScores]] = field(default_factory=lambda: defaultdict(dict))
    served: dict[str, dict[tuple[int, str], Served]] = field(default_factory=lambda: defaultdict(dict))
    comparisons: dict[str, dict[tuple[int, str, str], Comparison]] = field(default_factory=lambda: defaultdict(dict))


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
    names = sorted(found.histories.keys() | found.vectors.keys() | found.served.keys())
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
                    if record.key[:1] in KEPT and record.value is not None:
                        newest[tp.partition, record.key] = record.value
    finally:
        await consumer.stop()
    found = Found()
    for (partition, key), value in newest.items():
        kind = key[:1]
        if kind == keys.FENCE:
            found.fences[partition] = Fence.decode(value)
        elif kind == keys.SCORES:
            windows = newest.get((partition, keys.WINDOWS + key[1:]))
            found.histories[key[1:].decode()][partition] = rows.decode_history(value, windows)
        elif kind == keys.VECTORS:
            config, stream = keys.of_vectors(key)
            found.vectors[stream][partition, config] = rows.decode_vector_scores(value)
        elif kind == keys.COMPARISON:
            stream, champion, challenger = keys.of_comparison(key)
            found.comparisons[stream][partition, champion, challenger] = rows.decode_comparison(value)
        elif kind == keys.CALIBRATOR:
            config, stream = keys.of_vectors(key)
            found.served[stream][partition, config] = rows.decode_calibrator(value, stream)
    return found


def describe(found: Found, stream: str) -> dict[str, Any]:
    """Return what the state says of a stream, as JSON would have it."""
    histories = found.histories.get(stream, {})
    scores = total(each.total for each in histories.values())
    described: dict[str, Any] = {"resolved": scores.n}
    if scores.n:
        for kind in KINDS:
            described[kind] = _scored(scores, kind) | _watched(histories, kind)
        described["regret"] = {loss: scores.regret(loss) for loss in NAMES}
    vectors = found.vectors.get(stream, {})
    if vectors:
        configs = sorted({config for _, config in vectors})
        described["vectors"] = {
            config: _vectors([each for (_, made), each in vectors.items() if made == config]) for config in configs
        }
    comparisons = found.comparisons.get(stream, {})
    if comparisons:
        named = shadows.names((config, each) for (_, config), each in found.served[stream].items())
        pairs = shadows.added(((champion, other), each) for (_, champion, other), each in comparisons.items())
        described["shadows"] = [shadows.describe(pair, each, named) for pair, each in sorted(pairs.items())]
    described["calibrators"] = [
        {
            "partition": partition,
            "config": config,
            **orjson.loads(served.recipe),
            "version": served.calibrator.learnt,
            "outstanding": served.outstanding,
            "error": served.calibrator.error(),
            "bound": served.calibrator.bound(served.outstanding),
            **_counted(served),
        }
        for (partition, config), served in sorted(found.served.get(stream, {}).items())
    ]
    return described


def _console(*, stderr: bool = False) -> Console:
    """Return a console that shows the names of streams as they are: they come from records."""
    return Console(stderr=stderr, markup=False, emoji=False)


def _vectors(found: list[VectorScores]) -> dict[str, Any]:
    """Return the scores of forecasts of classes, or of numbers, under one configuration."""
    scores = rows.total_vectors(found)
    described: dict[str, Any] = {"resolved": scores.n}
    for kind in KINDS:
        if isinstance(scores, ClassScores):
            described[kind] = {
                "classwise_ece": scores.classwise_ece(kind),
                "top_label_ece": scores.top_label_ece(kind),
                "accuracy": scores.accuracy(kind),
                "brier": scores.brier(kind),
                "log_loss": scores.log_loss(kind),
            }
        else:
            described[kind] = {
                "coverage_error": scores.error(kind),
                "coverage": [
                    {"level": level, "below": each.below, "upto": each.upto}
                    for level, each in zip(scores.levels, scores.coverage(kind), strict=True)
                ],
                "pinball_loss": scores.pinball(kind),
                "interval_widths": scores.widths(kind),
                "transform": scores.pit(kind),
            }
    return described


def _scored(scores: Scores, kind: Kind) -> dict[str, Any]:
    """Return the scores of all events."""
    return {
        "ece": scores.ece(kind),
        "ece_noise": scores.noise(kind),
        "smooth_ece": scores.smooth_ece(kind),
        "low_relative_error": _or_none(scores.relative_error(kind)),
        **{loss if loss != "log" else "log_loss": scores.loss(loss, kind) for loss in NAMES},
        "brier_parts": scores.murphy(kind)._asdict(),
        "reliability": _curve(scores.bins(kind)),
        "low_reliability": _curve(scores.bands(kind)),
    }


def _watched(histories: dict[int, History], kind: Alarmed) -> dict[str, Any]:
    """Return what windows and alarms say; ``partition`` and ``window`` find the worst one again."""
    found = list(histories.values())
    log10 = history.log_alarm(found, kind) / math.log(10.0)
    described: dict[str, Any] = {"alarm": {"log10": log10, "sounds": log10 >= -math.log10(ALPHA)}}
    worst = history.worst(found, kind)
    if worst is not None:
        described["worst_window"] = {
            "partition": next(n for n, each in histories.items() if each.worst(kind) is worst),
            "window": worst.number,
            "ece": worst.scores.ece(kind),
            "ece_noise": worst.scores.noise(kind),
            "reliability": _curve(worst.scores.bins(kind)),
        }
    biases = {str(n): each.bias.along(kind) for n, each in histories.items()}
    if any(biases.values()):
        described["feature_bias"] = biases
    return described


def _counted(served: Served) -> dict[str, float | None]:
    """Return what the counts of the points played say, where a calibrator keeps them."""
    points = played(served.calibrator)
    return {
        "noise": _or_none(noise(points)) if points else None,
        "debiased_l2": _or_none(debiased_l2(points)) if points else None,
        "internal_regret": internal_regret(served.calibrator),
    }


def _curve(bins: list[Bin]) -> list[dict[str, float]]:
    return [{"n": int(each.n), "forecast": each.p / each.n, "outcome": each.y / each.n} for each in bins if each.n]


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _print(report: dict[str, dict[str, Any]], fates: dict[str, int], *, whole: bool) -> None:
    console = _console()
    table = Table("stream", "resolved", "ECE raw", "ECE", "Brier raw", "Brier", "regret", "calibrator")
    for name, each in report.items():
        scores = [f"{each[kind][score]:.4f}" if kind in each else "–" for score in ("ece", "brier") for kind in KINDS]
        regret = f"{each['regret']['brier']:+.1f}" if "regret" in each else "–"
        made = ", ".join(sorted({one["calibrator"] for one in each["calibrators"] if one["config"] in _served(each)}))
        resolved = each["resolved"] + sum(scored["resolved"] for scored in each.get("vectors", {}).values())
        table.add_row(name, f"{resolved:,}", *scores, regret, made)
    console.print(table)
    if not whole:
        console.print("  ".join(f"{fate} {n:,}" for fate, n in fates.items() if n))
        return
    for each in report.values():
        for config, scored in each.get("vectors", {}).items():
            console.print(_vector_table(config, scored))
        curve = Table("kind", "events", "mean forecast", "share of events", title="reliability")
        low = Table("kind", "events", "mean forecast", "share of events", title="reliability below .1")
        for kind in KINDS:
            for one in each.get(kind, {}).get("reliability", ()):
                curve.add_row(kind, f"{one['n']:,}", f"{one['forecast']:.4f}", f"{one['outcome']:.4f}")
            for one in each.get(kind, {}).get("low_reliability", ()):
                low.add_row(kind, f"{one['n']:,}", f"{one['forecast']:.5f}", f"{one['outcome']:.5f}")
        if each["resolved"] or "vectors" not in each:
            console.print(curve, low, _health(each))
        if "shadows" in each:
            console.print(shadows.table(each["shadows"]))
        measures = ("error", "bound", "noise", "internal_regret")
        held = Table("partition", "calibrator", "config", "version", "outstanding", *measures)
        for one in each["calibrators"]:
            figures = ("–" if one[name] is None else f"{one[name]:.4f}" for name in measures)
            held.add_row(
                str(one["partition"]),
                one["calibrator"],
                one["config"],
                f"{one['version']:,}",
                str(one["outstanding"]),
                *figures,
            )
        console.print(held)


def _served(each: dict[str, Any]) -> set[str]:
    """Return the configurations that have served, as far as the rows say: not those that only challenged."""
    challengers, champions = (
        {one[side]["config"] for one in each.get("shadows", ())} for side in ("challenger", "champion")
    )
    return {one["config"] for one in each["calibrators"]} - (challengers - champions)


def _vector_table(config: str, scored: dict[str, Any]) -> Table:
    table = Table("", *KINDS, title=f"{scored['resolved']:,} events under {config}")
    for name, value in scored[KINDS[0]].items():
        if isinstance(value, float):
            table.add_row(name.replace("_", " "), *(f"{scored[kind][name]:.4f}" for kind in KINDS))
    for i, one in enumerate(scored[KINDS[0]].get("coverage", ())):
        shares = (scored[kind]["coverage"][i]["upto"] for kind in KINDS)
        table.add_row(f"at or below the quantile of {one['level']:g}", *(f"{share:.4f}" for share in shares))
    return table


def _health(each: dict[str, Any]) -> Table:
    """Return a table of the figures an alarm is followed by, raw beside calibrated."""
    table = Table("", *KINDS, title="scores")

    def row(name: str, figure: Callable[[dict[str, Any]], str]) -> None:
        table.add_row(name, *(figure(each[kind]) if kind in each else "–" for kind in KINDS))

    row("ECE", lambda of: f"{of['ece']:.4f}")
    row("  by chance alone", lambda of: f"{of['ece_noise']:.4f}")
    row("smooth ECE", lambda of: f"{of['smooth_ece']:.4f}")
    row("worst window's ECE", lambda of: _worst(of.get("worst_window")))
    row("relative error below .1", lambda of: _figure(of["low_relative_error"]))
    row("log loss", lambda of: f"{of['log_loss']:.4f}")
    row("wrong labels", lambda of: f"{of['misclassification']:.4f}")
    for part in Murphy._fields:
        row(f"Brier score: {part}", lambda of, part=part: f"{of['brier_parts'][part]:.4f}")  # type: ignore[misc]  # bound now
    row("alarm, log10", lambda of: f"{of['alarm']['log10']:.1f}{' sounds' if of['alarm']['sounds'] else ''}")
    return table


def _worst(window: dict[str, Any] | None) -> str:
    return f"{window['ece']:.4f} (partition {window['partition']}, window {window['window']})" if window else "–"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
