"""What parts of the map bring: log loss with some constants otherwise, so that a part has nothing to say.

``TRUEUP_COMPILED=no python -m research.parts shares`` (after ``make data``): rounded scores and shares of votes, with
neither the moving place of 0 and 1 nor the score itself as a scale, with the place, and with both. ``… steps``: without
the isotonic regression, with it at three first weights, and without the rule on runs of equal labels, in two minutes.
Log loss is less raw's; the last column is a difference, ± a standard error clustered by week.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Final, NamedTuple

import numpy as np

from replay.measure import log_losses
from research.benchmark.__main__ import ALL
from research.benchmark.contenders import told
from research.benchmark.streams import DAY_MS, Dated
from research.benchmark.unseen import UNSEEN
from research.entities import accounts, season
from state.arrays import Floats
from state.calibrators import certainties, isotonic, make, runs, two_scales

#: Constants by module and name.
Constants = Mapping[tuple[ModuleType, str], float]

#: Streams that judge shares, to how many parts of 1 their scores are rounded (0: not at all), and how many are played.
ROUNDED: Final = (
    ("car loans", 0, 12_000), ("rain, New York", 100, 6000), ("storms", 100, 6000), ("bird strikes", 100, 6000),
    ("unions", 20, 5000), ("tests", 20, 5000),
)  # fmt: skip
#: Further streams that judge; *churn* chose.
VOTES: Final = (("churn", 4000), ("wages", 20_000), ("careers", 20_000), ("made, wrong labels", 20_000))
ROWS, DAYS, SEED = 5000, 180, 5
#: Streams with a risk in steps, and how many scores are played: all of them judge, but the made one.
STEPPED: Final = (("made, steps", 12_000), ("kitchens", 12_000), ("mails", 4000), ("tests", 12_000))
#: Information with which the score itself never gets a share, and labels that never come.
NEVER: Final = 1e12


class Question(NamedTuple):
    """A table: its streams, the variants, and the two whose difference has an error."""

    streams: Callable[[], Iterator[Dated]]
    variants: Mapping[str, Constants]
    less: tuple[str, str]


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


def shares() -> Iterator[Dated]:
    """Yield rounded scores and shares of votes: made ones, then those that judge."""
    yield from made()
    for name, parts, rows in ROUNDED:
        stream = ALL[name]().first(rows)
        yield stream._replace(p=np.round(stream.p * parts) / parts) if parts else stream
    for name, rows in VOTES:
        yield UNSEEN[name]().first(rows)


def sorted_files() -> Dated:
    """Make honest scores, whose labels are told in files of `ROWS`, ones first, one a millisecond after the other."""
    rng = np.random.default_rng(SEED)
    n = 2 * ROWS
    p = 1 / (1 + np.exp(-rng.normal(-1, 1.2, n)))
    y = (rng.random(n) < p).astype(np.float64)
    file, at = np.arange(n) // ROWS, np.arange(n) * DAY_MS // 200
    told_ms = np.empty(n, dtype=np.int64)
    told_ms[np.lexsort((1 - y, file))] = (np.arange(n) // ROWS + 1) * (ROWS * DAY_MS // 200) + np.arange(n) % ROWS
    return Dated(f"{ROWS} labels a file, ones first", "made", p, y, at, told_ms, 0, np.arange(n), {})


def steps() -> Iterator[Dated]:
    """Yield risks in steps, honest scores of which many share an outcome, and sorted files."""
    for name, rows in STEPPED:
        yield {**ALL, **UNSEEN}[name]().first(rows)
    yield accounts(1, 0.0, monthly=True)
    yield season(1, 4)
    yield sorted_files()


_NO_SHARE: Final[Constants] = {(two_scales, "IN_SHARE"): NEVER}
QUESTIONS: Final = {
    "shares": Question(
        shares,
        {"neither": {**_NO_SHARE, (certainties, "HELD"): math.inf}, "the place": _NO_SHARE, "both": {}},
        ("both", "the place"),
    ),
    "steps": Question(
        steps,
        {
            "no isotonic regression": {(isotonic, "FIRST"): NEVER},
            "first weight .5": {(isotonic, "WEIGHT"): 0.5},
            ".9": {(isotonic, "WEIGHT"): 0.9},
            "no runs": {(runs, "RUN"): math.inf},
            "as it is": {},
        },
        ("as it is", "no isotonic regression"),
    ),
}


def play(stream: Dated, constants: Constants) -> Floats:
    """Return the log loss of each score with a label, [n], with constants otherwise than they are."""
    kept = {(module, name): vars(module)[name] for module, name in constants}
    for (module, name), value in constants.items():
        vars(module)[name] = value
    calibrator = make("twospeed+certified")
    p, y, served = stream.p.tolist(), stream.y.tolist(), np.empty(len(stream.p))
    tickets = [b""] * len(p)
    for i, ms, label in told(stream, stream.known_ms):
        if label:
            calibrator.update(tickets[i], y[i], ms)
        else:
            served[i], _, tickets[i] = calibrator.predict(p[i])
    for (module, name), value in kept.items():
        vars(module)[name] = value
    return log_losses(served, stream.y)


def main() -> None:
    """Print a row for each stream."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question", choices=QUESTIONS)
    question = QUESTIONS[parser.parse_args().question]
    one, other = question.less
    print("|", " | ".join(("stream", "0 or 1", *question.variants, f"{one} less {other}")), "|", flush=True)
    for stream in question.streams():
        raw = log_losses(stream.p, stream.y)
        found = {name: play(stream, constants) for name, constants in question.variants.items()}
        week = (stream.forecast_ms - stream.forecast_ms[0]) // (7 * DAY_MS)
        error = math.sqrt(np.square(np.bincount(week, found[one] - found[other])).sum()) / found[other].sum()
        certain = np.mean((stream.p <= 1e-6) | (stream.p >= 1 - 1e-6))
        beside_raw = [f"{each.sum() / raw.sum() - 1:+.2%}" for each in found.values()]
        beside = f"{found[one].sum() / found[other].sum() - 1:+.2%} ± {error:.2%}"
        print("|", " | ".join((stream.name, f"{certain:.1%}", *beside_raw, beside)), "|", flush=True)


if __name__ == "__main__":
    main()
