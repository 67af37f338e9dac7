"""Okoroafor, Kleinberg & Sun: the trade-off of calibration and regret, with exponents fitted to both."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from research.calibrators.approachability_regret import ApproachabilityRegret
from research.experiments import picture
from research.experiments.base import Claim, Experiment, Job, Section, TextTable, judged, verdict
from research.experiments.measure import l1, slope
from research.experiments.play import oppose, play, prompt
from state.arrays import Floats
from state.calibrators import make

TIMES, SEEDS = tuple(1000 * 2**k for k in range(7)), range(6)
#: Specification, preset, and the exponents of T that the theorem gives total calibration error and regret.
POINTS: Final = (
    ("approachability_regret", "joint", "2/3", "1/2"),
    ("approachability_regret", "fine", "2/3", "2/3"),
    ("approachability_regret", "coarse", "4/5", "4/5"),
    ("minimax", "", "–", "–"),
    ("regret_matching", "", "–", "–"),
)
_PAPER: Final = "Okoroafor, Kleinberg & Sun"
#: Three kinds of raw forecast: always .5, with an opponent who reacts to the expected forecast; overconfident by a
#: factor of 2 in log-odds; perfect.
STREAMS: Final = ("adversary", "overconfident", "perfect")


class Totals(NamedTuple):
    """Total ℓ1 calibration error and total Brier regret at each of `TIMES`, and in the end the theorem's C and C / Λ.

    The last two are NaN for calibrators without a regret coordinate.
    """

    error: Floats
    regret: Floats
    most: Floats


def run(spec: str, preset: str, stream: str, seed: int) -> Totals:
    """Play one stream once."""
    calibrator = make(spec, name="trade-off", seed=seed, **({"preset": preset} if preset else {}))
    last = TIMES[-1]
    rng = np.random.default_rng((seed, 3))
    if stream == "adversary":
        q = np.full(last, 0.5)
        p, y = oppose(calibrator, q)
    else:
        odds = rng.normal(0.0, 1.5, last)
        y = (rng.random(last) < 1 / (1 + np.exp(-odds))).astype(np.float64)
        q = 1 / (1 + np.exp(-odds * (2.0 if stream == "overconfident" else 1.0)))
        p = play(calibrator, prompt(stream, q, y, last))
    regret = np.cumsum((p - y) ** 2 - (q - y) ** 2)
    most = np.full(2, np.nan)
    if isinstance(calibrator, ApproachabilityRegret):
        most = np.array([calibrator.learnt * (calibrator.bound() or 1.0), calibrator.regret_bound()])
    return Totals(np.array([t * l1(p[:t], y[:t]) for t in TIMES]), regret[np.array(TIMES) - 1], most)


def _runs() -> list[tuple[str, str, str, int]]:
    return [(spec, preset, stream, seed) for spec, preset, *_ in POINTS for stream in STREAMS for seed in SEEDS]


def jobs() -> Sequence[Job]:
    """Return a job for each preset, stream and seed."""
    return [partial(run, *arguments) for arguments in _runs()]


def tell(results: Sequence[Any], out: Path) -> Section:
    """Fit the exponents and draw both totals."""
    runs = dict(zip(_runs(), results, strict=True))
    mean = {
        (spec, preset, stream): Totals(
            *(
                np.mean([getattr(runs[spec, preset, stream, seed], name) for seed in SEEDS], axis=0)
                for name in Totals._fields
            )
        )
        for spec, preset, *_ in POINTS
        for stream in STREAMS
    }
    times = np.array(TIMES, float)
    rows = []
    for spec, preset, calibration, regret in POINTS:
        for stream in STREAMS:
            error, lost, _ = mean[spec, preset, stream]
            worst = slope(times, lost)
            rows.append(
                (
                    f"`{spec}`{f', {preset}' if preset else ''}",
                    stream,
                    f"{error[-1]:,.0f}",
                    f"{slope(times, error):.2f}",
                    calibration,
                    f"{lost[-1]:+,.0f}",
                    "none: not above 0" if np.isnan(worst) else f"{worst:.2f}",
                    regret,
                )
            )
    checked = {key: each for key, each in mean.items() if key[1]}
    calibrated = sum(bool(each.error[-1] <= each.most[0]) for each in checked.values())
    regretted = sum(bool(each.regret[-1] <= each.most[1]) for each in checked.values())
    return Section(
        text=[
            (
                f"Totals, not means: Σ_v |Σ (y − v)| and Σ (p − y)² − (q − y)² at T = {TIMES[0]:,} to "
                f"{TIMES[-1]:,}, mean of "
                f"seeds {SEEDS[0]} to {SEEDS[-1]}, and the exponent b of a fit T^b. The opponent answers "
                f"y = 1[E p ≤ .5] "
                "while the forecast is .5 throughout, which is the best constant, so every deviation costs regret. "
                "The poster's regret O(T^2x) should read O(T^(1−x))."
            ),
            (
                "`minimax` and `regret_matching`, with their defaults, promise calibration only; they show what "
                "the regret "
                "coordinate is for."
            ),
        ],
        findings=[
            verdict(calibrated, len(checked), f"E ‖V‖₁ ≤ C at T = {TIMES[-1]:,}"),
            verdict(regretted, len(checked), f"E regret ≤ C / Λ at T = {TIMES[-1]:,}"),
            *_findings(mean, times),
        ],
        tables=[
            TextTable(
                f"Totals at T = {TIMES[-1]:,} and fitted exponents",
                ("calibrator", "stream", "calibration", "exponent", "theorem", "regret", "exponent", "theorem"),
                rows,
                "A theorem's exponent is that of C, a ceiling; exponents beside it are fitted to what was measured. An "
                "error far below C may approach it: on the adversary it is a fifteenth of C at the first T and a "
                "twelfth at the last, so its fit is above 2/3 while C's is .66. `coarse` has fewer points, so each is "
                "played more often and errs less: its ceiling is higher for the width of the grid, which this "
                "adversary, who sits at .5, never makes it pay. A total that is not above 0 at some T has no exponent.",
            )
        ],
        pictures=[(_paint(mean, out), "total calibration error and regret against T on logarithmic axes")],
        claims=_claims(mean, times, (calibrated, regretted, len(checked))),
    )


def _claims(mean: dict[tuple[str, str, str], Totals], times: Floats, held: tuple[int, int, int]) -> list[Claim]:
    calibrated, regretted, of = held
    claims = [
        Claim(
            _PAPER,
            "total calibration error and regret of any stream",
            "E ‖V‖₁ ≤ C, E regret ≤ C / Λ",
            f"held in {calibrated} and {regretted} of {of} streams and presets",
            judged(calibrated == regretted == of),
        )
    ]
    joint = mean.get(("approachability_regret", "joint", "adversary"))
    if joint is not None:
        claims.append(
            Claim(
                _PAPER,
                "table: calibration T^2/3 and regret T^1/2 together, as ceilings",
                "2/3, 1/2",
                f"ceilings kept; on the adversary the error is {joint.error[-1] / joint.most[0]:.0%} of its ceiling "
                f"and grows as T^{slope(times, joint.error):.2f}, the regret as T^{slope(times, joint.regret):.2f}",
                judged(calibrated == regretted == of),
            )
        )
    fine, coarse = (mean.get(("approachability_regret", preset, "adversary")) for preset in ("fine", "coarse"))
    if fine is not None and coarse is not None:
        claims.append(
            Claim(
                _PAPER,
                "trade-off along x: a coarser grid errs more",
                "calibration T^2x, regret T^(1−x), x in [1/3, 2/5]",
                f"error {fine.error[-1]:,.0f} and {coarse.error[-1]:,.0f}, regret {fine.regret[-1]:+,.0f} and "
                f"{coarse.regret[-1]:+,.0f} of `fine` and `coarse`: `coarse` errs less, not more",
                judged(bool(fine.error[-1] < coarse.error[-1])),
            )
        )
    return claims


def _findings(mean: dict[tuple[str, str, str], Totals], times: Floats) -> list[str]:
    found = []
    for spec, preset, *_ in POINTS:
        if preset:
            error, lost, _ = mean[spec, preset, "adversary"]
            fitted = slope(times, lost)
            regret = f"T^{fitted:.2f}" if fitted == fitted else f"{lost[-1]:+,.0f} in all"  # noqa: PLR0124 - NaN
            found.append(f"{preset}, adversary: calibration T^{slope(times, error):.2f}, regret {regret}")
    return found or ["the calibrator is not registered; the harness ran with the others"]


def _paint(mean: dict[tuple[str, str, str], Totals], out: Path) -> str:
    def paint(axes: Any) -> None:  # noqa: ANN401 - an array of axes
        for j, stream in enumerate(STREAMS):
            for (spec, preset, name), totals in mean.items():
                if name == stream:
                    axes[0, j].plot(TIMES, totals.error, marker="o", markersize=3.5, label=preset or spec)
                    axes[1, j].plot(TIMES, totals.regret, marker="o", markersize=3.5)
            axes[0, j].set(title=stream, yscale="log")
            axes[1, j].set(xlabel="T", yscale="symlog")
            axes[1, j].axhline(0, color=picture.GREY, linewidth=1)
            for axis in axes[:, j]:
                axis.set(xscale="log", xticks=TIMES[::2], xticklabels=[f"{t // 1000}k" for t in TIMES[::2]])
                axis.minorticks_off()
        axes[0, 0].set_ylabel("total calibration error")
        axes[1, 0].set_ylabel("total Brier regret")
        axes[0, 0].legend(loc="upper left", fontsize=8)

    return picture.draw(
        out / "okoroafor-trade-off.png",
        paint,
        title="Okoroafor, Kleinberg & Sun: calibration and regret",
        rows=2,
        columns=3,
        size=(11, 6.4),
        sharex=True,
    )


EXPERIMENT = Experiment("okoroafor", "Okoroafor, Kleinberg & Sun: calibration traded for regret", jobs, tell)
