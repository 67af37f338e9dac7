"""Challengers beside the champions they challenged: for gauges, ``streams show`` and ``streams promote``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson
from rich.table import Column, Table

from state.scoring.comparison import LOSSES, SIDES, Comparison
from state.scoring.pair_scores import AnyComparison, PairScores
from state.scoring.scores import Scores
from state.scoring.windows import KINDS, Alarmed
from state.served import Served
from streams.metrics.figures import by_name, or_none
from streams.metrics.sample import Sample

#: Configurations of champion and challenger.
Pair = tuple[str, str]


def added(found: Iterable[tuple[Pair, AnyComparison]]) -> dict[Pair, AnyComparison]:
    """Return the comparison of each pair over several partitions or streams."""
    totals: dict[Pair, Any] = {}
    for pair, comparison in found:
        totals[pair] = totals[pair] + comparison if pair in totals else comparison
    return totals


def names(served: Iterable[tuple[str, Served]]) -> dict[str, str]:
    """Return the calibrator's name of each configuration, from the recipes in the rows."""
    return {config: orjson.loads(each.recipe)["calibrator"] for config, each in served}


def describe(pair: Pair, comparison: AnyComparison, named: Mapping[str, str]) -> dict[str, Any]:
    """Return both sides of a comparison and their difference, as JSON would have it.

    Of classes ``ece`` is that of the likeliest one, of numbers the error of coverage; then there is no ``auc``.
    """
    scores = comparison.scores if isinstance(comparison, Comparison) else comparison
    described: dict[str, Any] = {"events": comparison.n}
    for config, (side, _), kind in zip(pair, SIDES, KINDS, strict=True):
        described[side] = {
            "calibrator": named.get(config),
            "config": config,
            "ece": or_none(scores.error(kind)),
            "ece_noise": or_none(scores.noise(kind)),
            **_figures(scores, kind),
        }
    compared: Any = comparison
    losses = LOSSES if isinstance(comparison, Comparison) else comparison.losses
    described["difference"] = {loss: by_name(compared.difference(loss)) for loss in losses}
    return described


def _figures(scores: Scores | PairScores, kind: Alarmed) -> dict[str, Any]:
    """Return the figures that only probabilities have, or only classes and numbers."""
    if isinstance(scores, Scores):
        auc = scores.ranking(kind).auc().value
        found = {"brier": scores.brier(kind), "log_loss": scores.log_loss(kind), "auc": auc}
        return {name: or_none(value) for name, value in found.items()}
    return {
        "accuracy": or_none(scores.accuracy(kind)),
        "loss": {name: or_none(scores.loss(name, kind)) for name in scores.losses},
    }


def samples(stream: str, described: Mapping[str, Any]) -> Iterator[Sample]:
    """Yield the samples of a comparison that `describe` described."""
    challenger = described["challenger"]
    place = stream, str(challenger["calibrator"]), challenger["config"]
    yield "shadow_events", place, described["events"]
    for loss, difference in described["difference"].items():
        for name, value in (
            ("shadow_difference", difference["mean"]),
            ("shadow_difference_error", difference["error"]),
        ):
            if value is not None:
                yield name, (*place, loss), value


def table(described: Sequence[Mapping[str, Any]]) -> Table:
    """Return what `describe` made of several pairs as a table: champion, challenger and difference of each."""
    if any("loss" in each["champion"] for each in described):
        return _pair_table(described)
    columns = ("", Column("calibrator", overflow="fold"), "events", "ECE", "by chance", "AUC", "Brier", "log loss")
    made = Table(
        *columns,
        title="challengers: what was served, and what they made of the same events",
        caption="Difference: challenger minus champion, ± its standard error. Below 0 the challenger is better; within "
        "two errors of 0 it is chance. An ECE near the one by chance is as good as it gets.",
    )
    for each in described:
        for side, _ in SIDES:
            one = each[side]
            figures = (_figure(one[name]) for name in ("ece", "ece_noise", "auc", "brier", "log_loss"))
            made.add_row(side, f"{one['calibrator'] or '–'} {one['config']}", f"{each['events']:,}", *figures)
        differences = (_difference(each["difference"][loss]) for loss in LOSSES)
        made.add_row("difference", "", "", "", "", "", *differences, end_section=True)
    return made


def _pair_table(described: Iterable[Mapping[str, Any]]) -> Table:
    """Return the table of classes or numbers."""
    paired = [each for each in described if "loss" in each["champion"]]
    losses = list(dict.fromkeys(loss for each in paired for loss in each["champion"]["loss"]))
    named = [f"{loss.replace('brier', 'Brier')} loss" for loss in losses]
    made = Table(
        "",
        Column("calibrator", overflow="fold"),
        *("events", "error", "by chance", "right", *named),
        title="challengers: what was served, and what they made of the same events",
        caption="Error: of classes the ECE of the likeliest one, of numbers that of the coverage of the level most "
        "off. Right: how often the likeliest class occurred. Difference: challenger minus champion, ± its standard "
        "error. Below 0 the challenger is better; within two errors of 0 it is chance.",
    )
    for each in paired:
        for side, _ in SIDES:
            one = each[side]
            figures = [_figure(one[name]) for name in ("ece", "ece_noise", "accuracy")]
            figures += [_figure(one["loss"].get(loss)) for loss in losses]
            made.add_row(side, f"{one['calibrator'] or '–'} {one['config']}", f"{each['events']:,}", *figures)
        differences = (_difference(each["difference"].get(loss)) for loss in losses)
        made.add_row("difference", "", "", "", "", "", *differences, end_section=True)
    return made


def _difference(of: Mapping[str, float | None] | None) -> str:
    mean, error = (of["mean"], of["error"]) if of else (None, None)
    return "–" if mean is None else f"{mean:+.5f}" if error is None else f"{mean:+.5f}\n±{error:.5f}"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
