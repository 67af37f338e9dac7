"""The page: one HTML file that contains its style and pictures. It loads nothing and runs no scripts."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from math import isfinite, sqrt
from pathlib import Path
from typing import Any, Final

from agents.status import page as pages
from agents.status import pictures
from agents.status.markup import Markup, join, prose, tag
from agents.status.number_format import (
    NONE,
    cell,
    count,
    day,
    minute,
    percent,
    period,
    score,
    share,
    signed,
    valued,
)
from replay.report import figure, message, recommendation, rows, stream_tables
from replay.report.figure import BEFORE, Diagram, SvgFigure, series_of
from replay.report.rule import RULE, judged, overall
from replay.report.warnings import cautions, limits
from replay.result import COMPARED, RAW, Result
from replay.sources.scores import scale

TEMPLATES: Final = Path(__file__).parent / "templates"
_STYLE: Final = pages.style(TEMPLATES / "report.css")
#: Definitions of figures, in the order of the page: a name on one line, its definition below.
DEFINITIONS: Final = [
    (name, " ".join(said))
    for name, *said in map(str.splitlines, (TEMPLATES / "definitions.txt").read_text("utf-8").split("\n\n"))
]
#: Headings of metrics.
CALLED: Final = {
    "ece": "ECE",
    "ece_smooth": "Smooth ECE",
    "brier": "Brier score",
    "log_loss": "Log loss",
    "auc": "AUC",
    "recall": "Recall",
}


def _relative(value: float) -> str:
    return f"{signed(100 * value, 1)}%"


def _broken(name: str) -> Markup:
    return join(*(part for piece in re.findall(r"[^+_]*[+_]?", name) if piece for part in (piece, tag("wbr"))))


_PAGES: Final = pages.environment(TEMPLATES)
_PAGES.filters.update(
    {name: valued(said) for name, said in (("count", count), ("percent", percent), ("score", score), ("share", share))}
)
_PAGES.filters.update({"signed": valued(signed), "relative": valued(_relative)})
_PAGES.filters.update({"root": lambda value: cell(value, score(sqrt(value)) if isfinite(value) else NONE)})
_PAGES.filters.update({"day": day, "minute": minute, "prose": prose, "broken": _broken})
_PAGES.filters["commas"] = lambda text: Markup(",<wbr>").join(text.split(","))
_PAGES.globals.update(period=period, score=valued(score), share=valued(share))


def page(result: Result, command: str = "", model: str = "") -> bytes:
    """Return the report of a replay. The same result gives the same bytes.

    ``command``: the command line that made the replay; if empty, it is not mentioned.
    ``model``: name and version of the model, for the title.
    """
    options = result.manifest.get("options", {})
    unit = options.get("unit", "probability") if isinstance(options, dict) else "probability"
    zero, one = scale(unit) or (0.0, 1.0)
    made = _PAGES.overlay()
    made.filters = _PAGES.filters | {
        "difference": partial(stream_tables.difference, verdicts=judged(result)),
        "unit": valued(
            percent if (zero, one) in ((0.0, 1.0), (0.0, 100.0)) else lambda raw: f"{zero + (one - zero) * raw:g}"
        ),
    }
    rendered = made.get_template("report.html").render(
        style=Markup(_STYLE), hash=Markup(pages.named(_STYLE)), command=command, model=model, **_values(result)
    )
    return rendered.encode()


def subject(result: Result) -> str:
    """Return the subject of the replay: its stream, or the number of streams."""
    names = sorted({name for each in result.contenders for name in each.configs})
    return names[0] if len(names) == 1 else f"{count(len(names))} streams"


def _values(result: Result) -> dict[str, Any]:
    choice, contenders = recommendation.choose(result), recommendation.base(result)
    drawn = series_of(contenders, choice.name)
    verdicts = recommendation.verdicts(result)
    values: dict[str, Any] = {
        "result": result,
        "subject": subject(result),
        "verdicts": verdicts,
        "keep": all(each.name in {None, RAW} for each in verdicts),
        "message": message.of(result, choice.name),
        "cautions": cautions(result),
        "limits": limits(result),
        "rule": RULE,
        "definitions": DEFINITIONS,
        "of": None,
        "vectors": [table for each in result.contenders for table in stream_tables.of_vectors(each, result)],
        **rows.origin(result),
    }
    if not contenders:
        return values
    chosen = message.chosen(contenders, choice.name)
    (scored,) = overall([chosen])
    every = [(rows.series(each, drawn), each) for each in result.contenders if each.overall]
    how = result.bootstrap
    return values | {
        "of": chosen,
        "chosen": choice.name,
        "volume": f"{100 * result.volume:g}%",
        "called": [CALLED[metric] for metric in COMPARED],
        "resampled": f" Made by {count(how.resamples)} resamples of blocks of {count(how.block)} forecasts in a row, "
        f"seed {how.seed}."
        if how
        else "",
        "apart": [table for _, each in drawn for table in stream_tables.of_probabilities(each)],
        "reliability": _reliability(drawn),
        "fits": [(BEFORE, scored.review.fits["raw"])]
        + [(series, each.overall.review.fits["calibrated"]) for series, each in drawn if each.overall],
        "courses": list(figure.over_time(drawn)),
        "labels": list(figure.of_labels(scored)),
        **rows.tables(result, every, drawn),
    }


def _reliability(drawn: Sequence[tuple[Any, Any]]) -> SvgFigure:
    """Draw the model beside each contender, after the warm-up."""
    return SvgFigure(
        "reliability",
        "Reliability",
        "How many of the forecasts of each height came true, after the warm-up, with 95% intervals. On the dashed line "
        "all is right; points below it are forecasts that are too high. Bins hold equal shares of the events, half by "
        "those that came true; where these are rare the axes are in log-odds.",
        list(_panels(drawn)),
    )


def _panels(drawn: Sequence[tuple[Any, Any]]) -> Iterator[Diagram]:
    for series, each in drawn:
        bins = each.overall.review.quantiles
        curves = {"raw": bins["raw"], series.style: bins["calibrated"]}
        label, words = f"Reliability of {series.name}", {"raw": "model", series.style: "served"}
        yield Diagram(series.name, pictures.reliability(curves, label, words))
