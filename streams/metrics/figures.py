"""Scores of each kind of forecast that are one number. Each is declared once, for JSON, tables and gauges.

A row here gives the score in a stream's description, on the status page and in ``trueup streams show``. Where it has
``gauges``, the catalogue of metrics says by `of_figure` what they mean.
"""

import math
from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any, Final, NamedTuple

from state.scoring.cells import Bin
from state.scoring.certificate import certificate
from state.scoring.class_scores import ClassScores
from state.scoring.order import Within
from state.scoring.quantile_scores import QuantileScores
from state.scoring.scores import Kind, Scores
from state.scoring.windows import KINDS
from streams.metrics.metric import Metric, shown


class Figure(NamedTuple):
    """A score that is one number."""

    #: Its name in JSON.
    name: str
    #: Heading of its row in tables; empty: no row.
    words: str
    #: Classes of scores that have this figure.
    scores: tuple[type, ...]
    #: Returns the figure; NaN if there is none.
    of: Callable[[Any, Kind], float]
    #: Kinds of forecast, raw or calibrated, for which a gauge shows it; none: it has no gauge.
    gauges: tuple[Kind, ...] = ()


_P, _CLASSES, _NUMBERS, _RANKING = (Scores,), (ClassScores,), (QuantileScores,), (Within,)
#: In the order of tables.
FIGURES: Final = (
    Figure("ece", "calibration error (ECE)", _P, Scores.error),
    Figure("ece_noise", "by chance alone", _P, Scores.noise),
    Figure("smooth_ece", "smooth ECE", _P, Scores.smooth_ece),
    Figure(
        "certificate",
        "distance to calibration, at most",
        _P,
        lambda of, kind: certificate(of.ranking(kind)),
        gauges=("calibrated",),
    ),
    Figure("relative_error", "relative error", _P, Scores.relative_error),
    Figure("relative_error_noise", "by chance alone", _P, Scores.relative_noise),
    Figure("relative_bias", "mean off by", _P, Scores.relative_bias),
    Figure("relative_bias_noise", "by chance alone, ±", _P, Scores.relative_bias_noise),
    Figure("auc", "AUC, lately", _RANKING, lambda of, _: of.auc().value, gauges=KINDS),
    Figure("auc_error", "± its standard error", _RANKING, lambda of, _: of.auc().error, gauges=("raw",)),
    Figure("gini", "Gini", _RANKING, lambda of, _: 2.0 * of.auc().value - 1.0),
    Figure("ks", "KS", _RANKING, lambda of, _: of.ks()),
    Figure("brier", "Brier score", (Scores, ClassScores), lambda of, kind: of.brier(kind), gauges=KINDS),
    Figure("log_loss", "log loss", (Scores, ClassScores), lambda of, kind: of.log_loss(kind), gauges=KINDS),
    Figure("misclassification", "misclassified at .5", _P, lambda of, kind: of.loss("misclassification", kind)),
    Figure("classwise_ece", "classwise ECE", _CLASSES, ClassScores.classwise_ece, gauges=KINDS),
    Figure("top_label_ece", "top-label ECE", _CLASSES, ClassScores.error, gauges=KINDS),
    Figure("accuracy", "accuracy", _CLASSES, ClassScores.accuracy, gauges=KINDS),
    Figure("coverage_error", "coverage error", _NUMBERS, QuantileScores.error, gauges=KINDS),
    Figure("crps", "CRPS", _NUMBERS, QuantileScores.crps, gauges=KINDS),
    Figure("mean_pinball_loss", "", _NUMBERS, lambda of, kind: fmean(of.pinball(kind))),
    Figure("interval_width", "", _NUMBERS, lambda of, kind: of.widths(kind)[0], gauges=KINDS),
)


def of_figure(name: str, says: str, remedy: str = "") -> Metric:
    """Return the gauge of a figure; parameters as `streams.metrics.metric.shown` takes them."""
    (figure,) = (each for each in FIGURES if each.name == name)
    of = "probabilities" if figure.scores in (_P, _RANKING) else "scored"
    return shown(name, f"{of}/{{kind={'|'.join(figure.gauges)}}}/{name}", says, remedy)


def figures(scores: Any, kind: Kind, *, whole: bool = True) -> dict[str, float | None]:  # noqa: ANN401 - one of the classes in `FIGURES`
    """Return the figures of scores or of a ranking, by name. Without ``whole``, return only those with a gauge."""
    return {
        each.name: or_none(each.of(scores, kind))
        for each in FIGURES
        if isinstance(scores, each.scores) and (whole or kind in each.gauges)
    }


def or_none(value: float) -> float | None:
    """Return a number, or None for NaN."""
    return None if math.isnan(value) else value


def by_name(of: NamedTuple) -> dict[str, float | None]:
    """Return figures by their names."""
    return {name: or_none(value) for name, value in of._asdict().items()}


def curve(bins: Iterable[Bin]) -> list[dict[str, float]]:
    """Return the bins that have events: how many, their mean forecast and their mean outcome."""
    return [{"n": int(each.n), "forecast": each.p / each.n, "outcome": each.y / each.n} for each in bins if each.n]
