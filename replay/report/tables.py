"""The tables of the page; every number carries its full value."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite, sqrt
from typing import Any, Final

from agents.status.markup import Child, Markup, join, tag
from agents.status.number_format import NONE, cell, count, difference, minute, period, score, share, signed
from replay.report import sparkline
from replay.report.figure import BEFORE, Series, name
from replay.report.recommendation import learning
from replay.report.table import Table, named
from replay.result import (
    COMPARED,
    RAW,
    Alerts,
    Contender,
    Difference,
    FeatureBias,
    Interval,
    Result,
    Scorecard,
    Scored,
    drawn,
)
from streams.metrics.bands import BELOW, CAPTION
from streams.metrics.segments import ERRORS, LARGE, LATELY, mark
from streams.metrics.vectors import NORMALISED

#: What metrics are called over columns.
CALLED: Final = {
    "ece": "ECE",
    "ece_smooth": "Smooth ECE",
    "brier": "Brier score",
    "log_loss": "Log loss",
    "auc": "AUC",
    "recall": "Recall",
    "pinball": "Pinball loss",
}
#: Streams that are listed, those with most forecasts, and features; the JSON has more.
STREAMS: Final = 30
FEATURES: Final = 60
#: Segments of a stream and configuration that are shown; the JSON has more.
SEGMENTS: Final = 8


def comparison(contenders: Sequence[tuple[Series, Contender]], chosen: str | None) -> Table:
    """Compare all: a row a contender, and raw once for each set of forecasts that was resolved."""
    rows: list[Sequence[Child]] = []
    seen: list[tuple[str, Scorecard]] = []
    several = len({each.delay for _, each in contenders}) > 1
    for series, contender in contenders:
        overall = contender.overall
        if not overall:
            continue
        if (contender.delay, overall.raw) not in seen:
            called = f"{RAW}, delay {contender.delay}" if several else RAW
            if any(contender.delay == delay for delay, _ in seen):
                called = f"{called}, as {contender.name} resolved them"
            seen.append((contender.delay, overall.raw))
            keep = chosen == RAW and len(seen) == 1
            before = named(Series(called, BEFORE.style), called if keep else None)
            rows.append([before, *_card(overall, "raw"), None, None, None])
        rows.append(
            [
                named(series, chosen),
                *_card(overall, "calibrated"),
                cell(overall.regret_brier, signed(overall.regret_brier, 1)),
                cell(overall.l1, score(overall.l1)),
                cell(overall.bound, score(overall.bound)),
            ]
        )
    head = [
        "",
        "Outcomes",
        "ECE",
        "Chance",
        "Smooth ECE",
        "Distance",
        "Two-bin",
        "Worst window",
        "Brier score",
        "Log loss",
        "Regret",
        "Own error",
        "Bound",
    ]
    return Table(
        "comparison",
        "Every configuration",
        (
            "On all forecasts that have an outcome, the warm-up included, but for the worst window. Smaller is better "
            "in all columns but the first. ECE is to be held against chance, and own error against the bound."
        ),
        head,
        rows,
    )


def _card(overall: Scored, kind: str) -> Iterator[Markup]:
    card = overall.raw if kind == "raw" else overall.calibrated
    yield cell(card.n, count(card.n))
    for value, shown in (
        (card.ece, card.ece),
        (card.ece_noise, card.ece_noise),
        (card.ece_smooth, card.ece_smooth),
        (card.certificate, card.certificate),
        (card.two_bin, sqrt(card.two_bin)),
        (card.worst_window_ece, card.worst_window_ece),
        (card.brier, card.brier),
        (card.log_loss, card.log_loss),
    ):
        yield cell(value, score(shown))


def ranks(contenders: Sequence[tuple[Series, Contender]], result: Result) -> Table:
    """Show how raw, served and drawn forecasts rank after the warm-up, and how far their means are off."""
    found = {(each.delay, each.name, each.metric): each for each in result.intervals}
    rows: list[Sequence[Child]] = []
    seen: set[str] = set()
    for series, contender in contenders:
        if not contender.overall:
            continue
        phase = contender.overall.settled
        kinds = [(series, contender.name, phase.calibrated)]
        if contender.delay not in seen:
            seen.add(contender.delay)
            kinds.insert(0, (BEFORE, RAW, phase.raw))
        if phase.draw:
            kinds.append((Series(drawn(contender.name), "none"), drawn(contender.name), phase.draw))
        for who, called, card in kinds:
            spans = [found.get((contender.delay, called, metric)) for metric in ("auc", "recall")]
            rows.append(
                [
                    named(who, None),
                    cell(card.n, count(card.n)),
                    cell(card.mean_forecast, score(card.mean_forecast)),
                    cell(card.relative_error, f"{signed(100 * card.relative_error, 1)}%"),
                    join(cell(card.auc, score(card.auc)), _span(spans[0], score)),
                    cell(card.ks, score(card.ks)),
                    join(cell(card.recall, share(card.recall)), _span(spans[1], share)),
                    cell(card.precision, share(card.precision)),
                    cell(card.distinct, count(card.distinct)),
                ]
            )
    volume = f"{100 * result.volume:g}%"
    return Table(
        "ranks",
        "Order and level, after the warm-up",
        "Off: the mean forecast against the share of yes, relatively. AUC, KS, recall and precision compare forecasts "
        f"with some 200 neighbours in time; recall and precision are of the highest {volume}. In brackets 95% "
        "intervals. A draw is what a calibrator on a grid tosses between two of its points; p is what it serves.",
        ["", "Outcomes", "Mean", "Off", "AUC", "KS", f"Recall {volume}", f"Precision {volume}", "Different"],
        rows,
    )


def _span(found: Interval | None, shown: Callable[[float], str]) -> Child:
    if found is None or not isfinite(found.low):
        return None
    return _range(found.low, found.high, shown)


def _range(low: float, high: float, shown: Callable[[float], str]) -> Markup:
    """Return an interval to stand behind its value, in the same unit."""
    return join(" ", tag("span", "[", cell(low, shown(low)), ", ", cell(high, shown(high)), "]", class_="range"))


def warmup(contenders: Sequence[tuple[Series, Contender]]) -> Table | None:
    """Show what was served in each stream's warm-up; None where nobody had one."""
    rows: list[Sequence[Child]] = []
    found = [
        (series, each)
        for series, contender in contenders
        for each in learning(contender)[:STREAMS]
        if each.warmup.issued
    ]
    for series, scored in found:
        warm = scored.warmup
        until = None if warm.end_ms is None else minute(warm.end_ms)
        rows.append(
            [
                named(series, None),
                name(scored.stream),
                until,
                cell(warm.issued, count(warm.issued)),
                cell(warm.issued / scored.issued, share(warm.issued / scored.issued)),
                cell(warm.resolved, count(warm.resolved)),
                cell(warm.raw.base_rate, score(warm.raw.base_rate)),
                cell(warm.raw.mean_forecast, score(warm.raw.mean_forecast)),
                cell(warm.calibrated.mean_forecast, score(warm.calibrated.mean_forecast)),
                cell(warm.raw.brier, score(warm.raw.brier)),
                cell(warm.calibrated.brier, score(warm.calibrated.brier)),
            ]
        )
    if not rows:
        return None
    return Table(
        "warmup",
        "Warm-up",
        "What was served before a calibrator had learnt anything, or before it served anything but the raw score. "
        "Streams that never get beyond it are left out.",
        [
            "",
            "Stream",
            "Until, UTC",
            "Forecasts",
            "Of all",
            "Outcomes",
            "Share of yes",
            "Mean raw",
            "Mean served",
            "Brier raw",
            "Brier served",
        ],
        rows,
        3,
    )


def differences(result: Result) -> Table:
    """Show every paired difference with its interval, and say what it means."""
    pairs: dict[tuple[str, str], dict[str, Difference]] = {}
    for each in result.differences:
        pairs.setdefault((each.name, each.against), {})[each.metric] = each
    far = {metric: sparkline.reach([found[metric] for found in pairs.values()]) for metric in COMPARED}
    rows = [
        [
            join(name(one), tag("br"), "− ", name(other)),
            *(_difference(found[metric], far[metric]) for metric in COMPARED),
        ]
        for (one, other), found in pairs.items()
    ]
    how = result.bootstrap
    made = (
        f" Made by {count(how.resamples)} resamples of blocks of {count(how.block)} forecasts in a row, seed "
        f"{how.seed}."
        if how
        else ""
    )
    return Table(
        "differences",
        "Paired differences",
        "After the warm-up, with 95% intervals. Below 0, left of the line, the first is better, of AUC and recall "
        "above 0; an interval that holds 0 shows no difference." + made,
        ["", *(CALLED[metric] for metric in COMPARED)],
        rows,
    )


def _difference(each: Difference, far: float) -> Markup:
    verdict = ("better", "no difference", "worse")[each.sign + 1]
    value, low, high = difference(each.value, each.low, each.high)
    return join(
        cell(each.value, value),
        " ",
        tag("span", "[", cell(each.low, low), ", ", cell(each.high, high), "]", class_="range"),
        tag(
            "span",
            tag("span", verdict, class_=f"verdict {verdict.replace(' ', '-')}"),
            sparkline.interval(each, far),
            class_="drawn",
        ),
    )


def worst(contenders: Sequence[tuple[Series, Contender]]) -> Table | None:
    """Show the worst window of raw and of each contender; None where no window was full."""
    rows: list[Sequence[Child]] = []
    for series, contender in contenders:
        overall = contender.overall
        if not overall:
            continue
        kinds = [(overall.worst["calibrated"], series)]
        if not rows:
            kinds.insert(0, (overall.worst["raw"], BEFORE))
        for window, who in kinds:
            if window is None:
                continue
            rows.append(
                [
                    named(who, None),
                    name(window.stream),
                    period(window.start_ms, window.end_ms),
                    cell(window.ece, score(window.ece)),
                    cell(window.ece_noise, score(window.ece_noise)),
                    cell(window.mean_forecast, score(window.mean_forecast)),
                    cell(window.base_rate, score(window.base_rate)),
                ]
            )
    if not rows:
        return None
    return Table(
        "worst",
        "The worst window",
        (
            "Of all full windows of 5,000 outcomes. Where the mean forecast is far from the share of yes, the base "
            "rate had moved and the forecaster had not followed yet. The worst of many windows is far from chance "
            "even where nothing is wrong with a typical one."
        ),
        ["", "Stream", "When, UTC", "ECE", "Chance", "Mean forecast", "Share of yes"],
        rows,
        3,
    )


def alerts(contenders: Sequence[tuple[Series, Contender]]) -> Table | None:
    """Show what the threshold does, before, after, and at equal volume; None without a threshold."""
    rows: list[Sequence[Child]] = []
    for series, contender in contenders:
        found = contender.overall.alerts if contender.overall else None
        if not found:
            continue
        if not rows:
            raw = found.raw_precision, found.raw_recall
            rows.append([named(BEFORE, None), *_alerts(found, found.threshold, found.raw, *raw)])
        served = found.calibrated_precision, found.calibrated_recall
        rows.append([named(series, None), *_alerts(found, found.threshold, found.calibrated, *served)])
        equal = found.equal_precision, found.equal_recall
        rows.append(
            [
                tag("span", "at equal volume", class_="under"),
                *_alerts(found, found.equal_threshold, found.raw, *equal),
            ]
        )
    if not rows:
        return None
    return Table(
        "alerts",
        "Alerts before and after",
        (
            "With the threshold kept, calibration changes how many alerts there are; at equal volume it changes only "
            "which. A calibrator that never changes the order of forecasts has the precision of raw there. Precision "
            "and recall are of the forecasts that have an outcome."
        ),
        ["", "Threshold", "Alerts", "Of forecasts", "Precision", "Recall"],
        rows,
    )


def bands_of(drawn: Sequence[tuple[Series, Contender]]) -> Table | None:
    """Show the bands of each configuration's streams, before and after; None where no stream has any."""
    rows = [
        [
            named(which, None),
            name(stream),
            name(each["band"] or BELOW),
            cell(each["low"], score(each["low"])),
            *_looked(each[kind]),
            cell(each["keeps"], score(each["keeps"])) if which is series else NONE,
        ]
        for series, contender in drawn
        for stream, scored in contender.streams.items()
        for each in (scored.bands["bands"] if scored.bands else ())
        for which, kind in ((BEFORE, "raw"), (series, "calibrated"))
    ]
    if not rows:
        return None
    return Table(
        "bands",
        "What people would have had to look at",
        f"Warm-up included. {CAPTION} Keeps volume: the lowest calibrated probability that would have put as many "
        "forecasts of the last week into the band or above as the raw score did.",
        [
            "",
            "Stream",
            "Band",
            "From",
            "Share",
            "A day",
            "Busiest day",
            "Precision",
            "Recall",
            "False alarms a hit",
            "Cost",
            "Keeps volume",
        ],
        rows,
        3,
    )


def _looked(one: Mapping[str, Any]) -> Iterator[Markup]:
    """Yield what one kind of forecast puts into a band, and what that is worth."""
    yield cell(one["share"], share(one["share"]))
    yield cell(one["day"], count(round(one["day"])))
    yield cell(one["most"], count(one["most"]))
    yield cell(one["precision"], share(one["precision"]))
    yield cell(one["recall"], share(one["recall"]))
    yield cell(one["false_alarms"], signed(one["false_alarms"], 1).removeprefix("+"))
    yield cell(one["cost"], signed(one["cost"], 0).removeprefix("+"))


def _alerts(
    of: Alerts, threshold: float | None, raised: int, precision: float | None, recall: float | None
) -> Iterator[Markup]:
    yield cell(threshold, score(threshold))
    yield cell(raised, count(raised))
    part = raised / of.issued if of.issued else None
    yield cell(part, share(part))
    yield cell(precision, share(precision))
    yield cell(recall, share(recall))


def features(contenders: Sequence[tuple[Series, Contender]]) -> Table | None:
    """Show the bias along each feature of each stream; None where there are no features."""
    found: dict[tuple[str, str], dict[int, FeatureBias]] = {}
    for i, (_, contender) in enumerate(contenders):
        for stream, scored in contender.streams.items():
            for bias in scored.features:
                found.setdefault((stream, bias.feature), {})[i] = bias
    if not found:
        return None
    axis = max(abs(v) for each in found.values() for bias in each.values() for v in (bias.raw, bias.calibrated)) or 1.0
    rows = []
    for (stream, feature), each in list(found.items())[:FEATURES]:
        before = next(iter(each.values()))
        after = [each.get(i) for i in range(len(contenders))]
        drawn = [(contenders[i][0].style, bias) for i, bias in each.items()]
        rows.append(
            [
                name(feature),
                name(stream),
                cell(before.raw, signed(before.raw, 3)),
                *(cell(bias.calibrated, signed(bias.calibrated, 3)) if bias else NONE for bias in after),
                sparkline.biases(before, drawn, axis),
            ]
        )
    more = len(found) - FEATURES
    rest = f" The first {FEATURES}; {count(more)} more are in the JSON." if more > 0 else ""
    return Table(
        "features",
        "Bias along each feature",
        (
            f"The line in the middle is 0, unbiased; the axis reaches from {signed(-axis, 3)} to {signed(axis, 3)}. "
            f"Dots are coloured as in the figures.{rest}"
        ),
        ["Feature", "Stream", RAW, *(name(series.name) for series, _ in contenders), ""],
        rows,
        2,
    )


def functions(contenders: Sequence[tuple[Series, Contender]]) -> Table | None:
    """Show the biases that calibrators bound, beside their bounds; None where none does."""
    rows: list[Sequence[Child]] = []
    for series, contender in contenders:
        for stream, scored in contender.streams.items():
            for each in scored.functions[:FEATURES]:
                over = abs(each.bias) > each.bound
                rows.append(
                    [
                        named(series, None),
                        name(stream),
                        name(each.function),
                        cell(each.bias, signed(each.bias, 5)),
                        cell(each.bound, f"{each.bound:.5f}"),
                        tag("span", "above its bound", class_="verdict worse") if over else None,
                    ]
                )
    if not rows:
        return None
    return Table(
        "functions",
        "Biases that the calibrator bounds",
        f"Mean of f (p − y) over all outcomes, the nearest to its bound first; {FEATURES} of each stream. The bound "
        "holds on any sequence of prompt outcomes.",
        ["Configuration", "Stream", "Along f", "Bias", "Bound, ±", ""],
        rows,
        3,
    )


def segments(contenders: Sequence[tuple[Series, Contender]]) -> Table | None:
    """Show the worst segments of each stream under each configuration; None where there are no segments."""
    rows: list[Sequence[Child]] = []
    large = []
    for series, contender in contenders:
        for stream, scored in contender.streams.items():
            found = scored.segments
            if not found:
                continue
            if found["large"]["segments"]:
                means = " raw, ".join(score(found["large"][kind]["mean_ece"]) for kind in ("raw", "calibrated"))
                large.append(f" {contender.name}, {stream}: {means} served.")
            for each in found["worst"][:SEGMENTS]:
                raw, served, off = each["raw"], each["calibrated"], each["off"]
                rows.append(
                    [
                        named(series, None),
                        name(stream),
                        name(f"{each['segment']} = {each['value']}"),
                        cell(each["events"], count(each["events"])),
                        *(cell(value, score(value)) for value in (each["observed"], raw["mean"], served["mean"])),
                        _off(off),
                        *(cell(value, score(value)) for value in (raw["ece"], served["ece"], served["ece_noise"])),
                        cell(each["coverage"], share(each["coverage"])),
                    ]
                )
    if not rows:
        return None
    means = f" Mean ECE of the segments with {count(LARGE)} outcomes and more:{''.join(large)}" if large else ""
    return Table(
        "segments",
        "The worst segments",
        f"By the ECE of what was served above twice what chance gives; the {SEGMENTS} worst of each configuration. "
        "Off: mean served minus share of yes, with its 95% interval as if outcomes were independent. The ECE is over "
        f"14 bands.{means}",
        [
            "",
            "Stream",
            "Segment",
            "Outcomes",
            "Share of yes",
            "Raw",
            "Served",
            "Off",
            "ECE raw",
            "ECE",
            "Chance",
            "Known",
        ],
        rows,
        3,
    )


def recent_segments(contenders: Sequence[tuple[Series, Contender]]) -> Table | None:
    """Show the segments that are off at the end of the replay; None where none is."""
    rows: list[Sequence[Child]] = []
    for series, contender in contenders:
        for stream, scored in contender.streams.items():
            rows += _lately(named(series, None), stream, scored.segments)
    return _recent("recent-segments", "Segments that are off at the end", "", rows)


def recent_vector_segments(contenders: Sequence[Contender]) -> Table | None:
    """Show the segments of classes and numbers that are off at the end of the replay; None where none is."""
    rows: list[Sequence[Child]] = []
    said = {}
    for contender in contenders:
        for stream in contender.vectors.values():
            found = stream.segments
            rows += _lately(name(contender.name), stream.stream, found)
            if found and found["recent"]:
                said[found["of"]] = LATELY[found["of"]]
    title = "Segments of classes and numbers that are off at the end"
    return _recent("recent-vector-segments", title, "".join(said.values()), rows)


def _lately(of: Child, stream: str, segments: Mapping[str, Any] | None) -> Iterator[Sequence[Child]]:
    """Yield a row for each segment of a stream that is off at the end."""
    for each in segments["recent"][:SEGMENTS] if segments else ():
        alarm, which = each["alarm_log10"], "" if segments is None else mark(each, segments["of"])
        yield [
            of,
            name(stream),
            name(f"{each['segment']} = {each['value']}{which}"),
            cell(each["events"], count(each["events"])),
            *(cell(each[figure], score(each[figure])) for figure in ("observed", "served")),
            _off(each["off"]),
            cell(alarm, f"{alarm:.1f}"),
        ]


def _recent(identity: str, title: str, said: str, rows: list[Sequence[Child]]) -> Table | None:
    if not rows:
        return None
    return Table(
        identity,
        title,
        "Of the last windows of a segment those with the most evidence that what was served is off: log10 of an "
        f"e-value over the number of segments. 3 or more is an alarm.{said} At most {SEGMENTS} of each configuration.",
        ["", "Stream", "Segment", "Outcomes", "Share of yes" if not said else "Share", "Served", "Off", "Evidence"],
        rows,
        3,
    )


def _off(off: Mapping[str, float | None]) -> Child:
    value, low, high = off["mean"], off["low"], off["high"]
    if value is None or low is None or high is None:
        return NONE
    return join(cell(value, signed(value, 3)), _range(low, high, lambda each: signed(each, 3)))


def bands(contenders: Sequence[tuple[Series, Contender]]) -> Table | None:
    """Show served minus observed by segment and band of the served score; None where there are no segments."""
    shown = [
        (series, stream, each)
        for series, contender in contenders
        for stream, scored in contender.streams.items()
        if scored.segments
        for each in scored.segments["worst"][:SEGMENTS]
    ]
    edges = sorted({(band["low"], band["high"]) for *_, each in shown for band in each["calibrated"]["bands"]})
    rows = []
    for series, stream, each in shown:
        by_band = {(band["low"], band["high"]): band for band in each["calibrated"]["bands"]}
        rows.append(
            [
                named(series, None),
                name(stream),
                name(f"{each['segment']} = {each['value']}"),
                *(_band(by_band.get(place)) for place in edges),
            ]
        )
    if not rows:
        return None
    return Table(
        "bands",
        "Segments by band of the score",
        "Mean served minus share of yes, by band of what was served; below, the outcomes.",
        ["", "Stream", "Segment", *(f"{low:g}–{high:g}" for low, high in edges)],
        rows,
        3,
    )


def _band(band: Mapping[str, float] | None) -> Child:
    if band is None:
        return None
    off = band["forecast"] - band["outcome"]
    return join(cell(off, signed(off, 3)), tag("br"), cell(band["n"], count(int(band["n"]))))


def streams(contenders: Sequence[tuple[Series, Contender]]) -> Table | None:
    """Show each stream apart; None where there is only one."""
    first = contenders[0][1]
    if len(first.streams) < 2:
        return None
    largest = sorted(first.streams.values(), key=lambda each: (-each.issued, each.stream))
    rows = []
    for each in largest[:STREAMS]:
        others = [contender.streams.get(each.stream) for _, contender in contenders]
        rows.append(
            [
                name(each.stream),
                cell(each.issued, count(each.issued)),
                cell(each.raw.n, count(each.raw.n)),
                cell(each.raw.base_rate, score(each.raw.base_rate)),
                cell(each.raw.ece_noise, score(each.raw.ece_noise)),
                cell(each.raw.ece, score(each.raw.ece)),
                *(cell(other.calibrated.ece, score(other.calibrated.ece)) if other else NONE for other in others),
                cell(each.raw.brier, score(each.raw.brier)),
                *(cell(other.calibrated.brier, score(other.calibrated.brier)) if other else NONE for other in others),
            ]
        )
    names = [RAW, *(name(series.name) for series, _ in contenders)]
    more = len(largest) - STREAMS
    rest = f" The {STREAMS} with most forecasts; {count(more)} more are in the JSON." if more > 0 else ""
    head = ["Stream", "Forecasts", "Outcomes", "Share of yes", "Chance"]
    return Table(
        "streams",
        "Streams apart",
        f"Where outcomes are few the ECE is large by chance alone: hold it against chance.{rest}",
        [*head, *(join("ECE ", each) for each in names), *(join("Brier ", each) for each in names)],
        rows,
    )


def vectors(contenders: Sequence[Contender]) -> Table | None:
    """Show streams of classes and numbers; None where there are none."""
    rows = []
    for contender in contenders:
        for each in contender.vectors.values():
            for figure, value in each.figures["calibrated"].items():
                before = each.figures["raw"][figure]
                rows.append(
                    [
                        name(each.stream),
                        name(contender.name),
                        figure.replace("_", " "),
                        cell(each.resolved, count(each.resolved)),
                        cell(before, score(before)),
                        cell(value, score(value)),
                    ]
                )
    if not rows:
        return None
    return Table(
        "vectors",
        "Streams of classes and numbers",
        (
            "Smaller is better, except for accuracy and AUC. The worst window is of 500 outcomes. Its noise is what "
            "chance gives one window, of numbers one level; the worst of a hundred has two to four times that. An "
            f"alarm from 3 on says not calibrated. {NORMALISED}"
        ),
        ["Stream", "Configuration", "Figure", "Outcomes", RAW, "calibrated"],
        rows,
        3,
    )


def vector_differences(result: Result) -> Table | None:
    """Show what recalibration did to the losses of classes and numbers; None where there are none."""
    rows: list[Sequence[Child]] = []
    for stream, found in result.vector_differences.items():
        for each in found:
            value, low, high = difference(each.value, each.low, each.high)
            verdict = ("better", "", "worse")[each.sign + 1]
            rows.append(
                [
                    name(stream),
                    name(each.name),
                    name(each.against),
                    CALLED[each.metric],
                    cell(each.value, value),
                    join("[", cell(each.low, low), ", ", cell(each.high, high), "]"),
                    tag("span", verdict, class_=f"verdict {verdict}") if verdict else None,
                ]
            )
    if not rows:
        return None
    return Table(
        "vector-differences",
        "Served minus raw, and one configuration minus another",
        "Mean loss over the same outcomes; below 0 the configuration is better. Intervals are made as those of the "
        "paired differences.",
        ["Stream", "Configuration", "Against", "Loss", "Difference", "95% interval", ""],
        rows,
        4,
    )


def _with_interval(mean: float, error: float) -> tuple[Child, Child]:
    shown = difference(mean, mean - 1.96 * error, mean + 1.96 * error)
    return cell(mean, shown[0]), f"{shown[1]} to {shown[2]}"


def vector_segments(contenders: Sequence[Contender]) -> Table | None:
    """Show the worst segments of streams of classes and numbers; None where there are none."""
    rows: list[Sequence[Child]] = []
    said = {}
    for contender in contenders:
        for stream in contender.vectors.values():
            if not stream.segments or not stream.segments["worst"]:
                continue
            said[stream.segments["of"]] = ERRORS[stream.segments["of"]]
            for each in stream.segments["worst"][:SEGMENTS]:
                raw, served, off = each["raw"], each["calibrated"], each["off"]
                of = next(iter(each["difference"].values()))
                known = of["error"] is not None
                rows.append(
                    [
                        name(stream.stream),
                        name(contender.name),
                        name(f"{each['segment']} = {each['value']}"),
                        cell(each["events"], count(each["events"])),
                        *(cell(value, score(value)) for value in (raw["ece"], served["ece"], served["ece_noise"])),
                        None if off["level"] is None else f"{off['level']:g}",
                        _off(off),
                        *(_with_interval(of["mean"], of["error"]) if known else (NONE, NONE)),
                        cell(each["coverage"], share(each["coverage"])),
                    ]
                )
    if not rows:
        return None
    return Table(
        "vector-segments",
        "The worst segments of classes and numbers",
        f"By the error of what was served above twice what chance gives; the {SEGMENTS} worst of each configuration. "
        f"{' '.join(said.values())} Loss: of classes the Brier score, of numbers the pinball loss, served minus raw. "
        "All intervals are of 95%, as if outcomes were independent.",
        [
            "Stream",
            "Configuration",
            "Segment",
            "Outcomes",
            "Error raw",
            "Error",
            "Chance",
            "Level",
            "Off by",
            "Loss",
            "95% interval",
            "Known",
        ],
        rows,
        3,
    )


def labels(overall: Scored) -> Table:
    """Show label coverage by band, in words where nothing can be said."""
    rows = []
    for each in overall.coverage:
        said = "" if each.identifiable else "not identifiable"
        rows.append(
            [
                f"{each.low:.1f}–{each.high:.1f}",
                cell(each.issued, count(each.issued)),
                cell(each.resolved, count(each.resolved)),
                cell(each.share, share(each.share)),
                tag("span", said, class_="verdict worse") if said else None,
            ]
        )
    return Table(
        "labels",
        "Outcomes by score",
        "Not identifiable: less than half of at least 50 forecasts have an outcome.",
        ["Raw score", "Forecasts", "Outcomes", "Coverage", ""],
        rows,
    )
