"""When outcomes come, and for which scores: delays, label coverage, and what is known of each band."""

from collections.abc import Iterator

from agents.status.axes import Linear
from agents.status.markup import Markup
from agents.status.number_format import count, duration, share
from agents.status.plot import MARGINS, Plot, padded
from replay.figures import Coverage, Delays
from replay.report.figure import Figure, Panel
from replay.result import Scored

_WIDTH, _HEIGHT = 500.0, 260.0


def figures(overall: Scored) -> Iterator[Figure]:
    """Draw the labels of a contender; they are the same for all that ran under one delay."""
    delays = overall.delays
    said = "No outcome came."
    if delays.median_ms is not None:
        said = (
            f"Half of the outcomes came within {duration(delays.median_ms)}, nine in ten within "
            f"{duration(delays.p90_ms)}, 99 in 100 within {duration(delays.p99_ms)}. Bars are of unequal spans: read "
            "their words. Forecasts that wait still are in none of them."
        )
    yield Figure("delays", "Delay of the outcomes", said, [Panel("From forecast to outcome", _delays(delays))])
    blind = [each for each in overall.coverage if not each.identifiable]
    warned = (
        f" In {len(blind)} band{'s' * (len(blind) > 1)}, marked ?, less than half of the forecasts have an outcome: "
        "nothing can be said of them."
        if blind
        else ""
    )
    yield Figure(
        "coverage",
        "Label coverage by score band",
        "The share of the forecasts of each band of the raw score that got an outcome; and the share of yes among "
        "those (dot), and how far the share among all forecasts of the band may lie from it whatever the missing "
        f"outcomes are (bar). Long bars: calibration there rests on an assumption about missing outcomes.{warned}",
        [
            Panel("Forecasts with an outcome", _coverage(overall)),
            Panel("Share of yes: seen, and possible", _possible(overall)),
        ],
    )


def _delays(delays: Delays) -> Markup:
    left, top, right, bottom = MARGINS
    n = sum(delays.counts)
    x = Linear(0.0, len(delays.counts), left, _WIDTH - right)
    shares = [each / n if n else 0.0 for each in delays.counts]
    _, high = padded(shares)
    plot = Plot(_WIDTH, _HEIGHT, x, Linear(0.0, high, _HEIGHT - bottom, top, _percent), f"Delay of {count(n)} outcomes")
    plot.axes("delay", "outcomes", x_ticks=0)
    edges = list(map(duration, delays.edges_ms))
    for i, each in enumerate(shares):
        said = f"{edges[i]} to {edges[i + 1]}: {count(delays.counts[i])} ({share(each)})"
        plot.bar(i + 0.04, i + 0.96, 0.0, each, "plain", said)
        if len(shares) <= 9 and each:
            plot.note(i + 0.5, each, share(each), "tick above")
    every = max(1, -(-len(edges) // 9))
    for i in range(0, len(edges), every):
        plot.write(x.at(i), _HEIGHT - bottom + 17, edges[i], "tick", plot.side(x.at(i), edges[i]))
    return plot.svg()


def _coverage(overall: Scored) -> Markup:
    left, top, right, bottom = MARGINS
    x = Linear(0.0, 1.0, left, _WIDTH - right)
    y = Linear(0.0, 1.0, _HEIGHT - bottom, top, _percent)
    plot = Plot(_WIDTH, _HEIGHT, x, y, "Label coverage by band of the raw score")
    plot.axes("raw score", "with outcome")
    plot.segment((0.0, 1.0), (1.0, 1.0), "zero")
    for each in overall.coverage:
        middle = (each.low + each.high) / 2
        if not each.issued:
            plot.note(middle, 0.02, "none", "tick")
            continue
        style = "plain" if each.identifiable else "blind"
        said = (
            f"{each.low:.1f} to {each.high:.1f}: {count(each.resolved)} of {count(each.issued)} ({share(each.share)})"
        )
        plot.bar(each.low + 0.006, each.high - 0.006, 0.0, each.share, style, said)
        if not each.identifiable:
            plot.note(middle, each.share + 0.03, "?", "warning")
    return plot.svg()


def possible(band: Coverage, observed: float) -> tuple[float, float]:
    """Return the least and most share of yes among all forecasts of a band, given that among those with an outcome.

    References
    ----------
    Manski 1989, *Anatomy of the selection problem*, Journal of Human Resources 24, 343-360: the bounds without
    assumptions.
    """
    seen = observed * band.share
    return seen, seen + 1.0 - band.share


def _possible(overall: Scored) -> Markup:
    left, top, right, bottom = MARGINS
    x = Linear(0.0, 1.0, left, _WIDTH - right)
    plot = Plot(_WIDTH, _HEIGHT, x, Linear(0.0, 1.0, _HEIGHT - bottom, top), "Share of yes by band, seen and possible")
    plot.axes("raw score", "share of yes")
    plot.segment((0.0, 0.0), (1.0, 1.0), "perfect")
    known = {round(each.low * 10): each for each in overall.reliability["raw"]}
    for band in overall.coverage:
        if not band.issued:
            continue
        seen = known.get(round(band.low * 10))
        low, high = possible(band, seen.observed) if seen else (0.0, 1.0)
        middle = seen.forecast if seen else (band.low + band.high) / 2
        words = f"{band.low:.1f} to {band.high:.1f}: between {low:.3f} and {high:.3f}"
        plot.bar(middle - 0.018, middle + 0.018, low, high, "possible", words)
        if seen:
            plot.dot(
                middle, seen.observed, "raw", f"{band.low:.1f} to {band.high:.1f}: {seen.observed:.3f} of those known"
            )
    return plot.svg()


def _percent(value: float) -> str:
    return f"{100 * value:.4g}%"
