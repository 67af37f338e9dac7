"""Real streams of numbers: rain from an ensemble, electricity demand from last week's."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

import numpy as np

from research import datasets
from research.experiments.base import Experiment, Job, Section, TextTable
from state.calibrators import make
from state.calibrators.quantile import RATE
from state.forecasts import Quantiles
from state.scoring.quantile_scores import QuantileScores

#: Served levels, the tried steps η, and the seed of the draws at atoms.
LEVELS: Final = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
RATES, SEED = (0.005, RATE, 0.05), 5
LINKS: Final = ("identity", "logit")
STREAMS: Final = ("rain", "demand")
WINDOWS: Final = {"rain": 500, "demand": 2000}
#: Half-hours of a week, and the number of weeks that give the residuals of last week's demand.
WEEK, LEARNT = 336, 4
#: What gradient descent with η = .01 reaches on demand: max |coverage - level| over all rows, and in the worst window.
BAR: Final = "raw .427 / .488, online gradient descent η = .01 .011 / .031"


class SeriesRun(NamedTuple):
    """Largest error of coverage in all and in the worst window, mean pinball loss; of raw and recalibrated each."""

    rows: int
    error: tuple[float, float]
    worst: tuple[float, float]
    pinball: tuple[float, float]


def laws(stream: str) -> tuple[list[Quantiles], list[float]]:
    """Return raw forecasts and outcomes in order; FileNotFoundError without data."""
    if stream == "rain":
        ensemble, y = datasets.rain()
        m = ensemble.shape[1]
        levels = tuple((k + 0.5) / m for k in range(m))
        return [Quantiles(levels, tuple(row)) for row in np.sort(ensemble, axis=1).tolist()], y.tolist()
    demand = datasets.demand()
    residuals = (demand[WEEK:] - demand[:-WEEK])[: (LEARNT - 1) * WEEK]
    levels = tuple(k / 20 for k in range(1, 20))
    steps = np.quantile(residuals, levels)
    start = LEARNT * WEEK
    last_week = demand[start - WEEK : -WEEK]
    return [Quantiles(levels, tuple((each + steps).tolist())) for each in last_week], demand[start:].tolist()


def run(stream: str, link: str, rate: float) -> SeriesRun | str:
    """Play one stream; without the data, return why it was not played."""
    try:
        raw, y = laws(stream)
    except FileNotFoundError as exc:
        return str(exc)
    low = {"low": 0.0} if stream == "rain" else {}
    calibrator = make("quantile", name=stream, seed=SEED, levels=LEVELS, link=link, rate=rate, **low)
    total, worst = QuantileScores(LEVELS), (0.0, 0.0)
    window = QuantileScores(LEVELS)
    for t, (law, outcome) in enumerate(zip(raw, y, strict=True)):
        key = b"%d" % t
        answer = calibrator.predict(law, (), key)
        window.observe(law, answer.p, outcome, key)
        calibrator.update(answer.ticket, outcome)
        if window.n == WINDOWS[stream]:
            worst = max(worst[0], window.error("raw")), max(worst[1], window.error("calibrated"))
            total, window = total + window, QuantileScores(LEVELS)
    total += window
    return SeriesRun(
        total.n,
        (total.error("raw"), total.error("calibrated")),
        worst,
        (fmean(total.pinball("raw")), fmean(total.pinball("calibrated"))),
    )


def _runs() -> list[tuple[str, str, float]]:
    return [(stream, link, rate) for stream in STREAMS for link in LINKS for rate in RATES]


def jobs() -> Sequence[Job]:
    """Return a job for each stream, link and step."""
    return [partial(run, *each) for each in _runs()]


def tell(results: Sequence[Any], out: Path) -> Section:  # noqa: ARG001 - no picture
    """Tabulate coverage and loss."""
    runs = dict(zip(_runs(), results, strict=True))
    found = {key: each for key, each in runs.items() if isinstance(each, SeriesRun)}
    findings = []
    for stream in dict.fromkeys(stream for stream, *_ in found):
        one = found[stream, "logit", RATE]
        findings.append(
            f"{stream}: coverage off by {one.error[0]:.3f} raw, {one.error[1]:.3f} recalibrated; pinball loss "
            f"{one.pinball[0]:.4f}, {one.pinball[1]:.4f} (link logit, η = {RATE:g}, as shipped)"
        )
    rows = [
        (
            stream,
            link,
            f"{rate:g}",
            *(f"{value:.4f}" for pair in (each.error, each.worst, each.pinball) for value in pair),
        )
        for (stream, link, rate), each in found.items()
    ]
    head = ("stream", "link", "η", "error raw", "error", "worst raw", "worst", "pinball raw", "pinball")
    tables = [TextTable("Largest |coverage − level| in all and in the worst window, mean pinball loss", head, rows)]
    return Section(
        text=[
            (
                "RainIbk: eleven members of an ensemble as quantiles, 4,971 days, a quarter of them dry: an atom "
                "at 0, where the "
                f"transform is drawn by seed {SEED}. elecdemand: the demand a week ago and the quantiles of its first "
                f"{LEARNT - 1} weeks' changes, {WEEK * LEARNT:,} half-hours apart from what is scored."
            ),
            f"On demand, with quantiles of the whole series' residuals, others report {BAR}.",
        ],
        findings=findings,
        tables=tables if rows else [],
        skipped=sorted({each for each in runs.values() if isinstance(each, str)}),
    )


EXPERIMENT = Experiment("real-quantiles", "Real streams of numbers: rain and electricity demand", jobs, tell)
