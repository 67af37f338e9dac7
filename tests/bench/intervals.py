"""How often the replay's 95 % intervals hold the true difference, where outcomes share luck that nobody knew.

``python -m tests.bench.intervals`` takes ten minutes on one processor; ``--runs 30`` takes one.

Raw scores are .4 too high in log-odds, and what is compared with them is nearly right. AUC and recall are those of
noisy scores, which rank worse. The true difference is the mean of other histories, five times as many.
"""

import argparse
from typing import Final, NamedTuple

import numpy as np

from replay import bootstrap
from replay.ranking import WINDOW, Moments, ranks
from replay.result import RAW
from state.arrays import Floats
from tests.bench.figures import table

NAME: Final = "served"
NOISY: Final = "noisy"
DAY_MS: Final = 86_400_000
METRICS: Final = ("brier", "log_loss", "auc", "recall")
VOLUME: Final = 0.02


class History(NamedTuple):
    """How outcomes are made.

    Attributes
    ----------
    days, events
        How long it is, and how many outcomes there are.
    level
        Mean log-odds.
    luck
        Standard deviation of the shift of the log-odds that events share.
    lasts
        How long one shift lasts, days; 0: it fades within a day or two.
    """

    days: int
    events: int
    level: float
    luck: float = 0.0
    lasts: int = 1


#: The first three chose the length of blocks.
HISTORIES: Final = {
    "chance alone, 15 days": History(15, 6_000, -3.0),
    "luck of each of 15 days": History(15, 6_000, -3.0, 0.5),
    "luck of each of 60 days": History(60, 6_000, -3.0, 0.5),
    "luck of each of 45 days, 1 % ones": History(45, 20_000, -4.6, 0.6),
    "luck that fades in a day or two": History(30, 8_000, -3.0, 0.5, 0),
    "luck of each of 17 weeks": History(120, 8_000, -3.0, 0.3, 7),
    "10 ones in all": History(10, 5_000, -7.3),
    "20 ones in all": History(10, 5_000, -6.55),
    "40 ones in all": History(10, 5_000, -5.85),
}


def made(history: History, rng: np.random.Generator) -> tuple[Floats, dict[str, Floats]]:
    """Return outcomes in time order and three forecasts of each, [events]."""
    days = np.sort(rng.random(history.events) * history.days)
    odds = history.level + 1.3 * rng.standard_normal(history.events)
    if history.lasts:
        shifts = rng.standard_normal(history.days // history.lasts + 1)[(days / history.lasts).astype(int)]
    else:
        shifts = _fading(24 * history.days, rng)[(24 * days).astype(int)]
    true = odds + history.luck * shifts - history.luck**2 / 2
    y = (rng.random(history.events) < _chance(true)).astype(np.float64)
    noise = 0.5 * rng.standard_normal(history.events)
    return y, {RAW: _chance(odds + 0.4), NAME: _chance(0.9 * odds - 0.25), NOISY: _chance(odds + noise)}


def _chance(odds: Floats) -> Floats:
    chance: Floats = 1 / (1 + np.exp(-odds))
    return chance


def _fading(hours: int, rng: np.random.Generator) -> Floats:
    """Return a shift an hour, of variance 1; it falls to 1/e within a day."""
    kept = np.exp(-1 / 24)
    shifts = rng.standard_normal(hours)
    for hour in range(1, hours):
        shifts[hour] = kept * shifts[hour - 1] + np.sqrt(1 - kept**2) * shifts[hour]
    return shifts


def truth(history: History, runs: int) -> Floats:
    """Return the mean differences of `METRICS`, of losses by `NAME`, of ranks by `NOISY`."""
    rng = np.random.default_rng(99)
    found = []
    for _ in range(runs):
        y, forecasts = made(history, rng)
        raw, served, noisy = (_scores(forecasts[name], y) for name in (RAW, NAME, NOISY))
        found.append(np.append(served[:2], noisy[2:]) - raw)
    mean: Floats = np.mean(found, axis=0)
    return mean


def _scores(p: Floats, y: Floats) -> Floats:
    order = ranks(p, y, (VOLUME,), np.arange(len(y)) // WINDOW)
    losses = np.square(p - y).mean(), -np.log(np.where(y > 0, p, 1 - p)).mean()
    return np.array([*losses, order.auc, order.recall[VOLUME]])


def held(history: History, true: Floats, runs: int) -> Floats:
    """Return the share of intervals that hold the truth, of `METRICS`."""
    hits = np.zeros(len(METRICS))
    for seed in range(runs):
        y, forecasts = made(history, np.random.default_rng(1000 + seed))
        how = bootstrap.plan(len(y), history.days * DAY_MS, resamples=400)
        assert how is not None
        moments = Moments(np.arange(len(y)) // WINDOW, np.arange(len(y)))
        differences = bootstrap.Resampled(how, y, forecasts, VOLUME, moments).differences([(NAME, RAW), (NOISY, RAW)])
        found = {each.metric: each for each in differences if (each.name == NOISY) == (each.metric in METRICS[2:])}
        hits += [found[name].low <= at <= found[name].high for name, at in zip(METRICS, true, strict=True)]
    return hits / runs


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300, help="histories of each kind")
    runs = parser.parse_args().runs
    rows = []
    for name, history in HISTORIES.items():
        shares = held(history, truth(history, 5 * runs), runs)
        rows.append((name, *(f"{share:.2f}" for share in shares)))
    print(table(("history", *METRICS), rows))


if __name__ == "__main__":
    main()
