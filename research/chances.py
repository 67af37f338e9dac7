"""Labels of known chance: outcomes that count once, or as often as their chance says, beside full labels.

``python -m research.chances [--seeds 10,11,12]``: made payments, learnt after 45 days by the default calibrator, judged
from day 90 on. The 5 % with the highest raw score are labelled, or those of an investigator's hunch (the true risk with
an error of .7 in log-odds); of all others 2 % are. docs/explanation/calibrators.md, *Labels that the score
chooses*, has the result.
"""

import argparse
from typing import Final

import numpy as np

from lab import fraud
from lab.fraud import Fraud, Shape
from replay.measure import log_losses
from state.calibrators.registry import make
from state.scoring.ages import DAY_MS

TOP: Final = 0.95
EXPLORED: Final = 0.02
SHAPES: Final = {"2 % of fraud": Shape(rows=40_000, rate=0.02, inflation=15.0), "0.4 %": Shape(rows=60_000)}
#: How often an outcome counts at most; 0: all forecasts have a label.
CLIPS: Final = (0, 1, 10, 25, 50)


def played(stream: Fraud, clip: int, *, hunch: bool) -> tuple[float, float]:
    """Return the log loss, and the mean score through the mean risk of those that were not chosen."""
    n, rng = len(stream), np.random.default_rng(5)
    by = np.log(stream.truth) + 0.7 * rng.standard_normal(n) if hunch else stream.raw
    chosen = by >= np.quantile(by, TOP)
    chance = np.where(chosen, 1.0, EXPLORED) if clip else np.ones(n)
    labelled, rounding = rng.random(n) < chance, rng.random(n)
    calibrator = make("prudent+certified", name="research", seed=0)
    p, tickets = np.zeros(n), [b""] * n
    order = np.argsort(np.concatenate([stream.forecast_ms, stream.forecast_ms + 45 * DAY_MS]), kind="stable")
    for k in order.tolist():
        i = k % n
        if k < n:
            p[i], _, tickets[i] = calibrator.predict(float(stream.raw[i]), (), b"%d" % i)
        elif labelled[i]:
            for _ in range(int(min(1.0 / chance[i], max(clip, 1)) + rounding[i])):
                calibrator.update(tickets[i], float(stream.y[i]))
    judged = stream.days >= 90.0
    others = judged & ~chosen
    loss = float(log_losses(p[judged], stream.y[judged]).mean())
    return loss, float(p[others].mean() / stream.truth[others].mean())


def main() -> None:
    """Print a row a stream and way of choosing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="10,11,12")
    seeds = [int(each) for each in parser.parse_args().seeds.split(",")]
    for name, shape in SHAPES.items():
        for hunch in (False, True):
            streams = [fraud.make(Shape(**{**vars(shape), "seed": seed})) for seed in seeds]
            found = [np.mean([played(each, clip, hunch=hunch) for each in streams], axis=0) for clip in CLIPS]
            cells = " | ".join(f"{loss:.5f}, {ratio:.2f}" for loss, ratio in found)
            print(f"| {name}, {'a hunch' if hunch else 'the score'} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
