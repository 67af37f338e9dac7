"""``trueup inspect``: what the state says of a stream, read from the changelog."""

import asyncio
import math
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from agents import inspected, shadows
from state import history, keys, rows
from state.ages import Ages, findings, late
from state.alarm import ALPHA
from state.calibrators import internal_regret, played
from state.calibrators.points import debiased_l2, noise
from state.class_scores import ClassScores
from state.comparison import Comparison
from state.fence import FATES, Fence
from state.history import KINDS, Alarmed, History
from state.losses import NAMES
from state.order import Within
from state.policy import Policy
from state.ranking import VOLUMES, Ranking
from state.rows import Served, VectorScores
from state.scores import Bin, Kind, Scores, total
from streams.settings import Settings
from streams.topics import TopicsError, partitions

#: Rows that say something of streams.
KEPT = (keys.FENCE, keys.SCORES, keys.WINDOWS, keys.VECTORS, keys.CALIBRATOR, keys.COMPARISON, keys.AGES)


@dataclass
class Found:
    """The newest rows of every partition that say something of streams."""

    fences: dict[int, Fence] = field(default_factory=dict)
    histories: dict[str, dict[int, History]] = field(default_factory=lambda: defaultdict(dict))
    vectors: dict[str, dict[tuple[int, str], VectorScores]] = field(default_factory=lambda: defaultdict(dict))
    served: dict[str, dict[tuple[int, str], Served]] = field(default_factory=lambda: defaultdict(dict))
    comparisons: dict[str, dict[tuple[int, str, str], Comparison]] = field(default_factory=lambda: defaultdict(dict))
    ages: dict[str, dict[int, Ages]] = field(default_factory=lambda: defaultdict(dict))


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
        inspected.console(stderr=True).print(
            f"no state of stream {stream!r}; there are: {', '.join(names[:20]) or 'none'}"
        )
        return 1
    of = settings.policies.of
    report = {name: describe(found, name, of(name)) for name in (names if stream is None else [stream])}
    fences = found.fences.values()
    fates = {fate: sum(fence.fates[i] for fence in fences) for i, fate in enumerate(FATES)}
    waits = {name: sum(getattr(fence, name) for fence in fences) for name in ("pending", "waiting", "early")}
    if json_output:
        sys.stdout.write(orjson.dumps({"streams": report, "fates": fates, "waits": waits}).decode() + "\n")
    else:
        inspected.show(report, fates | waits, whole=stream is not None)
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
    return _found(newest)


def _found(newest: dict[tuple[int, bytes], bytes]) -> Found:
    """Return what rows say, by partition and key."""
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
        elif kind == keys.AGES:
            found.ages[key[1:].decode()][partition] = rows.decode_ages(value)
        elif kind == keys.COMPARISON:
            stream, champion, challenger = keys.of_comparison(key)
            found.comparisons[stream][partition, champion, challenger] = rows.decode_comparison(value)
        elif kind == keys.CALIBRATOR:
            config, stream = keys.of_vectors(key)
            found.served[stream][partition, config] = rows.decode_calibrator(value, stream)
    return found


def describe(found: Found, stream: str, policy: Policy | None = None) -> dict[str, Any]:
    """Return what the state says of a stream, as JSON would have it; ``policy`` is how it is configured now."""
    histories = found.histories.get(stream, {})
    scores = total(each.total for each in histories.values())
    described: dict[str, Any] = {"resolved": scores.n}
    if scores.n:
        last = total(window.scores for each in histories.values() if (window := each.last))
        order = history.ranked(histories.values())
        for kind in scores.kinds:
            ranks = order.ranking(kind)
            described[kind] = _scored(scores, kind) | _ranked(ranks) | _window(histories, last, kind)
        for alarmed in KINDS:
            described[alarmed] |= _watched(histories, alarmed)
        described["regret"] = {loss: scores.regret(loss) for loss in NAMES}
    if stream in found.ages:
        described["ages"] = _aged(sum(found.ages[stream].values(), Ages()), policy)
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
        "relative_error": _or_none(scores.relative_error(kind)),
        "relative_error_noise": _or_none(scores.relative_noise(kind)),
        "relative_bias": _or_none(scores.relative_bias(kind)),
        "relative_bias_noise": _or_none(scores.relative_bias_noise(kind)),
        **{loss if loss != "log" else "log_loss": scores.loss(loss, kind) for loss in NAMES},
        "brier_parts": scores.murphy(kind)._asdict(),
        "reliability": _curve(scores.bins(kind)),
        "low_reliability": _curve(scores.bands(kind)),
    }


def _ranked(ranking: Ranking | Within) -> dict[str, Any]:
    """Return how forecasts tell events apart."""
    area = ranking.auc()
    top = []
    for volume in VOLUMES:
        recall, precision = ranking.at(volume)
        top.append(
            {
                "volume": volume,
                "recall": _or_none(recall.value),
                "recall_error": _or_none(recall.error),
                "precision": _or_none(precision.value),
                "precision_error": _or_none(precision.error),
            }
        )
    return {
        "auc": _or_none(area.value),
        "auc_error": _or_none(area.error),
        "gini": _or_none(ranking.gini().value),
        "ks": _or_none(ranking.ks()),
        "top": top,
    }


def _aged(ages: Ages, policy: Policy | None) -> dict[str, Any]:
    """Return how old outcomes are when they come, and in words what to set where that does not fit."""
    silence = policy is not None and policy.silence is not None
    told = [] if policy is None else findings(ages, policy.ttl_ms, policy.matures_ms, silence=silence)
    return {
        "outcomes": {
            str(label): {
                "n": ages.n(label),
                "median_s": ages.quantile(label, 0.5) / 1000,
                "most_s": ages.quantile(label, 0.99) / 1000,
            }
            for label in ages.labels
        },
        "expired": ages.expired,
        "late": None if policy is None else _or_none(late(ages, policy.ttl_ms)),
        "apart": _or_none(ages.apart()),
        "findings": [finding._asdict() for finding in told],
    }


def _window(histories: dict[int, History], last: Scores, kind: Kind) -> dict[str, Any]:
    """Return the last window of all partitions and the worst of any; ``partition`` and ``window`` find it again."""
    described: dict[str, Any] = {}
    if last.n:
        described["last_window"] = {
            "n": last.n,
            "ece": last.ece(kind),
            "ece_noise": last.noise(kind),
            "relative_bias": _or_none(last.relative_bias(kind)),
            "relative_bias_noise": _or_none(last.relative_bias_noise(kind)),
            **_ranked(last.ranking(kind)),
        }
    worst = history.worst(histories.values(), kind)
    if worst is not None:
        described["worst_window"] = {
            "partition": next(n for n, each in histories.items() if each.worst(kind) is worst),
            "window": worst.number,
            "ece": worst.scores.ece(kind),
            "ece_noise": worst.scores.noise(kind),
            "reliability": _curve(worst.scores.bins(kind)),
        }
    return described


def _watched(histories: dict[int, History], kind: Alarmed) -> dict[str, Any]:
    """Return what alarms and features say."""
    found, level = list(histories.values()), -math.log10(ALPHA)
    log10 = history.log_alarm(found, kind) / math.log(10.0)
    recent = history.log_recent(found, kind) / math.log(10.0)
    described: dict[str, Any] = {
        "alarm": {
            "log10": log10,
            "sounds": log10 >= level,
            "recent_log10": recent,
            "recent_sounds": recent >= level,
        }
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
