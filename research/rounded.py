"""Rounded scores and shares of votes: what a moving place of 0 and 1 brings, and what the score itself as a scale.

``TRUEUP_COMPILED=no python -m research.rounded`` (after ``make data``) prints log loss less raw's with neither, with
the place, and with both; then both less the place alone, ± a standard error clustered by week.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from replay.measure import log_losses
from research.benchmark.__main__ import ALL
from research.benchmark.contenders import told
from research.benchmark.streams import DAY_MS, Dated
from research.benchmark.unseen import UNSEEN
from state.arrays import Floats
from state.calibrators import certainties, make, two_scales

#: Streams that judge, to how many parts of 1 their scores are rounded (0: not at all), and how many scores are played.
JUDGES: Final = (
    ("car loans", 0, 12_000), ("rain, New York", 100, 6000), ("storms", 100, 6000), ("bird strikes", 100, 6000),
    ("unions", 20, 5000), ("tests", 20, 5000),
)  # fmt: skip
#: Further streams that judge; *churn* chose.
VOTES: Final = (("churn", 4000), ("wages", 20_000), ("careers", 20_000), ("made, wrong labels", 20_000))
ROWS, DAYS, SEED = 5000, 180, 5
#: Information with which the score itself never gets a share.
NEVER: Final = 1e12


def made() -> Iterator[Dated]:
    """Yield made streams, which chose the rule, with labels 5 or 20 days late; and Elec2 in steps of 5 %."""
    elec2 = ALL["Elec2"]().first(6000)
    yield elec2._replace(p=np.round(elec2.p * 20) / 20)
    rng = np.random.default_rng(SEED)
    ms = np.sort(rng.integers(0, DAYS * DAY_MS, ROWS))

    def stream(name: str, p: Floats, risk: Floats, days: int) -> Dated:
        y = (rng.random(ROWS) < risk).astype(np.float64)
        return Dated(name, "made", p, y, ms, ms + days * DAY_MS, 0, np.arange(ROWS), {})

    def risks(mean: float, spread: float) -> Floats:
        return np.asarray(1 / (1 + np.exp(-rng.normal(mean, spread, ROWS))))

    wide = risks(0, 3)
    yield stream("right, two decimals", np.round(wide, 2), wide, 5)
    low = risks(-2, 1.3)
    yield stream("right, one decimal", np.round(low, 1), low, 5)
    yield stream("3 % of labels wrong, two decimals", np.round(wide, 2), 0.03 + 0.94 * wide, 5)
    rare = risks(-4.5, 1.35)
    broken = (ms // DAY_MS >= 60) & (ms // DAY_MS < 70)
    yield stream("ten days of 0", np.where(broken, 0.0, rare), rare, 20)
    yield stream("rare, two decimals", np.round(rare, 2), rare, 20)
    yield stream("votes of 7", rng.binomial(7, wide) / 7, wide, 5)
    yield stream("5 % are missing, sent as 0", np.where(rng.random(ROWS) < 0.05, 0.0, rare), rare, 20)


def judges() -> Iterator[Dated]:
    """Yield the streams that judge."""
    for name, parts, rows in JUDGES:
        stream = ALL[name]().first(rows)
        yield stream._replace(p=np.round(stream.p * parts) / parts) if parts else stream
    for name, rows in VOTES:
        yield UNSEEN[name]().first(rows)


def play(stream: Dated, held: float, share: float) -> Floats:
    """Return the log loss of each score with a label, [n].

    ``held``: information against which outcomes move a place; ``share``: that of a share of 0 of the score itself.
    """
    vars(certainties)["HELD"], vars(two_scales)["IN_SHARE"] = held, share
    calibrator = make("twospeed+certified")
    p, y, served = stream.p.tolist(), stream.y.tolist(), np.empty(len(stream.p))
    tickets = [b""] * len(p)
    for i, ms, label in told(stream, stream.known_ms):
        if label:
            calibrator.update(tickets[i], y[i], ms)
        else:
            served[i], _, tickets[i] = calibrator.predict(p[i])
    return log_losses(served, stream.y)


def main() -> None:
    """Print a row for each stream."""
    held, share = certainties.HELD, two_scales.IN_SHARE
    streams: tuple[Callable[[], Iterator[Dated]], ...] = (made, judges)
    for kind in streams:
        for stream in kind():
            raw = log_losses(stream.p, stream.y)
            neither, place, both = play(stream, math.inf, NEVER), play(stream, held, NEVER), play(stream, held, share)
            week = (stream.forecast_ms - stream.forecast_ms[0]) // (7 * DAY_MS)
            error = math.sqrt(np.square(np.bincount(week, both - place)).sum()) / place.sum()
            certain = np.mean((stream.p <= 1e-6) | (stream.p >= 1 - 1e-6))
            beside_raw = [f"{each.sum() / raw.sum() - 1:+.2%}" for each in (neither, place, both)]
            beside = f"{both.sum() / place.sum() - 1:+.2%} ± {error:.2%}"
            print("|", " | ".join((stream.name, f"{certain:.1%}", *beside_raw, beside)), "|", flush=True)


if __name__ == "__main__":
    main()
