"""The tables about a contender's streams, for the report and for a terminal. Most are those of the status page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agents.status import band_tables, number_format, tables
from agents.status.markup import Markup, join, tag
from agents.status.number_format import NONE, cell, count, score, share, signed, valued
from agents.status.score_tables import ScoreTable, bad
from replay.intervals import COLUMNS
from replay.report.rule import Verdicts, judged_alone
from replay.result import RAW, Contender, MetricDifference, Result
from state.scoring.vector_history import WINDOW
from streams.metrics.figures import FIGURES
from streams.metrics.vectors import NORMALISED

#: Headings of the figures of classes and numbers.
_WORDS: Final = {each.name: each.words for each in FIGURES} | {"auc": "AUC", "pinball": "pinball loss"}
#: The most last months that are shown. The JSON has all.
MONTHS: Final = 12
#: The most streams of a contender that are shown: those with most forecasts. The JSON has more.
STREAMS: Final = 30
_NOTE: Final = (
    f"Smaller is better, except for accuracy and AUC. The worst window is of {WINDOW} outcomes. Its noise is what "
    "chance gives one window, of numbers one level; the worst of a hundred has two to four times that. An alarm from 3 "
    "on says not calibrated. Differences are of mean losses over the same outcomes."
)
#: Headings for how far segments are off, by kind.
_OFF: Final = {
    "probs": "The likeliest class: its probability minus how often it came true",
    "quantiles": "Of the level that is most off: the level minus its coverage",
}
_count, _score, _share = map(valued, (count, score, share))


def of_probabilities(contender: Contender) -> Iterator[ScoreTable]:
    """Yield segments, bands, weights, intervals, versions of the model and bounded biases of each stream."""
    largest = sorted(contender.streams.values(), key=lambda each: (-each.issued, each.stream))
    for scored in largest[:STREAMS]:
        title = f"{contender.name}, {scored.stream}: "
        if scored.segments:
            yield from tables.segments(scored.segments, title)
            yield from _by_month(scored.segments["worst"], title)
        if scored.bands:
            yield from band_tables.banded(scored.bands, title)
        if scored.weighted:
            yield from tables.weighted(scored.weighted, title)
        if scored.intervals:
            yield from _intervals(scored.intervals, title)
        if scored.versions:
            yield tables.models(scored.versions, title)
        if scored.functions:
            found = [{"name": each.function, "bias": each.bias, "bound": each.bound} for each in scored.functions]
            yield tables.biases({"biases": found}, title)


def of_vectors(contender: Contender, result: Result) -> Iterator[ScoreTable]:
    """Yield the scores and the segments of each stream of classes or numbers."""
    for each in contender.vectors.values():
        raw, served = each.figures["raw"], each.figures["calibrated"]
        rows = [
            [_WORDS.get(name, name.replace("_", " ")), _score(raw[name]), _score(value)]
            for name, value in served.items()
        ]
        rows += [
            [f"{_WORDS[of.metric]}, this − {of.against}", "", difference(of, judged_alone(result, each.stream))]
            for of in result.vector_differences.get(each.stream, ())
            if of.name == contender.name
        ]
        note = f"{_NOTE} {NORMALISED}" if "classwise_ece" in raw else _NOTE
        title = f"{each.stream}: {each.resolved:,} resolved after the warm-up"
        yield ScoreTable(title, ("", RAW, contender.name), rows, note=note)
        if each.segments:
            title = f"{contender.name}, {each.stream}: "
            yield from tables.segments(each.segments, title)
            yield from _by_month(each.segments["worst"], title, _OFF.get(each.segments["of"], ""))


def _by_month(
    worst: Sequence[Mapping[str, Any]], title: str, off: str = "Served minus came true"
) -> Iterator[ScoreTable]:
    """Yield how far served scores were off in each segment, month by month. Nothing if there is only one month."""
    months = sorted({month["month"] for each in worst for month in each.get("months", ())})[-MONTHS:]
    if len(months) < 2:
        return
    rows = []
    for each in worst:
        found = {month["month"]: month for month in each.get("months", ())}
        cells = [
            bad(signed(of["off"]), abs(of["off"]) > of["chance"]) if (of := found.get(month)) else NONE
            for month in months
        ]
        rows.append([each["segment"], each["value"], *cells])
    note = (
        f"{off}, by the month of the forecast, after the warm-up of the segment. Marked: beyond the 95 % of chance, as "
        "one cell in twenty is where all is right."
    )
    yield ScoreTable(f"{title}Segments by month", ("segment", "value", *months), rows, 2, note, wide=True)


def _intervals(found: Mapping[str, Any], title: str) -> Iterator[ScoreTable]:
    """Yield the result of `replay.intervals.described` as tables."""
    rows = [
        [_count(each["n"]), *(_score(each[name]) for name in COLUMNS), "yes" if each["inside"] else "no"]
        for each in found["groups"]
    ]
    inside = found["inside"]
    note = f"Of the groups by tenths of score and time {100 * inside:.0f}% are inside." if inside is not None else ""
    heading = f"{title}intervals of {100 * found['level']:g}%"
    yield ScoreTable(heading, ("scores", *COLUMNS, "inside"), rows, 0, note)
    rows = [
        [
            f"{each['segment']} = {each['value']}",
            _count(each["n"]),
            *(_score(each[name]) for name in COLUMNS),
            _share(each["inside"]),
        ]
        for each in found["segments"]
    ]
    note = "Inside: share of the groups by tenths of score and time of the segment."
    yield ScoreTable(f"{heading} by segment", ("segment", "scores", *COLUMNS, "inside"), rows, note=note)


def difference(each: MetricDifference, verdicts: Verdicts) -> Markup:
    """Return a difference, its interval, and what it means."""
    none = "alike" if each.clear else "no difference"
    verdict = ("better", none, "worse")[verdicts.sign(each) + 1]
    value, low, high = number_format.difference(each.value, each.low, each.high)
    ends = tag("span", "[", cell(each.low, low), ", ", cell(each.high, high), "]", class_="range")
    said = tag("span", verdict, class_=f"verdict {verdict.replace(' ', '-')}")
    return join(cell(each.value, value), " ", ends, " ", said)
