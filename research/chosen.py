"""Labels that the score chooses: what the map then serves beside raw scores, with silence as a label and without.

``python -m research.chosen [--seeds N]``: of 20,000 made forecasts those above the 95th percentile of the last 500
scores get a label, 500 forecasts later; by raw scores, or by those that are served. Printed is, of the last three
quarters, log loss less raw's in % with a standard error of blocks of 100, and the mean score through the mean risk.
"""

import argparse
import math
from collections import deque
from typing import Final, NamedTuple

import numpy as np

from replay.measure import log_losses
from state.arrays import Floats
from state.calibrators import make

ROWS, LATE, LAST, BLOCK = 20_000, 500, 500, 100
TOP: Final = 0.05


class Labels(NamedTuple):
    """Whose labels come: of the highest raw or served scores, and a share of the others; what silence means."""

    served: bool = False
    others: float = 0.0
    silence: float | None = None


LABELS: Final = {
    "all": Labels(others=1.0),
    "raw": Labels(),
    "raw, 2 % of the others": Labels(others=0.02),
    "served": Labels(served=True),
    "raw, silence 0": Labels(silence=0.0),
    "served, silence 0": Labels(served=True, silence=0.0),
}
#: Log-odds of the mean, slope and offset of the raw score, and what is done to the risk.
STREAMS: Final = {
    "right, 2 %": (-4.6, 1.0, 0.0, ""),
    "2 log-odds too high, 2 %": (-4.6, 1.0, 2.0, ""),
    "40 times too high, .4 %": (-6.2, 1.2, 5.24, ""),
    "1.6 times too far out": (-3.2, 1.6, 1.92, ""),
    "no risk above .1": (-3.6, 1.0, 0.0, "ceiling"),
    "odds x 3 from the middle on": (-4.6, 1.0, 0.0, "up"),
    "odds x 1/3 from the middle on": (-3.6, 1.0, 0.0, "down"),
}


def served(raw: Floats, y: Floats, labels: Labels, rng: np.random.Generator) -> Floats:
    """Return what is served, [n]."""
    calibrator = make("prudent", name="chosen")
    waiting, last, p, least = deque[tuple[bytes, float]](), deque[float](maxlen=LAST), np.empty(len(raw)), 2.0
    drawn = rng.random(len(raw))
    for t, q in enumerate(raw.tolist()):
        p[t], _, ticket = calibrator.predict(q, (), b"%d" % t)
        score = p[t] if labels.served else q
        if t >= BLOCK and t % 20 == 0:
            least = float(np.quantile(last, 1.0 - TOP))
        last.append(score)
        told = score >= least or drawn[t] < labels.others
        waiting.append((ticket, y[t] if told else math.nan if labels.silence is None else labels.silence))
        if len(waiting) > LATE:
            ticket, label = waiting.popleft()
            if not math.isnan(label):
                calibrator.update(ticket, label)
    return p


def cell(stream: tuple[float, float, float, str], labels: Labels, seeds: int) -> str:
    """Return the figures of a stream and its labels."""
    mean, slope, offset, how = stream
    found = []
    for seed in range(1, seeds + 1):
        rng = np.random.default_rng(seed)
        z = mean + 1.35 * rng.standard_normal(ROWS)
        late = np.arange(ROWS) > ROWS // 2
        risk = {"": z, "ceiling": np.minimum(z, -2.2), "up": z + 1.1 * late, "down": z - 1.1 * late}[how]
        y = (rng.random(ROWS) < 1.0 / (1.0 + np.exp(-risk))).astype(np.float64)
        raw = np.asarray(1.0 / (1.0 + np.exp(-slope * z - offset)))
        p, rest = served(raw, y, labels, rng), slice(ROWS // 4, ROWS)
        base = log_losses(raw[rest], y[rest])
        blocks = np.add.reduceat(log_losses(p[rest], y[rest]) - base, np.arange(0, len(base), BLOCK))
        scale = 100.0 / base.sum()
        ratio = p[rest].mean() / (1.0 / (1.0 + np.exp(-risk[rest]))).mean()
        found.append((blocks.sum() * scale, ((blocks - blocks.mean()) ** 2).sum() * scale**2, ratio))
    less, error, ratio = np.mean(found, axis=0)
    return f"{less:+.1f} ± {math.sqrt(error / seeds):.1f}, {ratio:.2f}"


def main() -> None:
    """Play the streams and print a line of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    seeds = parser.parse_args().seeds
    print("| | " + " | ".join(LABELS))
    for name, stream in STREAMS.items():
        print(f"| {name} | " + " | ".join(cell(stream, each, seeds) for each in LABELS.values()), flush=True)


if __name__ == "__main__":
    main()
