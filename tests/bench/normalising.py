"""Ways to make a distribution of what `multiclass` serves, and which classes are wrong when the sum is not 1.

``python -m tests.bench.normalising [made] [judged]`` prints the tables of docs/calibrators.md; a minute or two. The
streams are those of `tests.bench.classes`. In each cell: mean log loss less that of the way that is built in, ± two
standard errors from `BLOCKS` blocks; then the top label's ECE less that of what is served, with its 95 % interval from
blocks drawn again.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from state.arrays import Floats, Integers
from tests.bench.classes import ratio, serve, shift, streams
from tests.bench.rare_and_late import show

EACH: Final = ("auto+regret_matching", "prudent")
BLOCKS: Final = 20
DRAWN: Final = 300
LEAST: Final = 1e-9


def _solved(move: Callable[[Floats], Floats], most: float, n: int) -> Floats:
    """Return what ``move`` makes with the constant of each event at which the sum is 1; it must not fall with it."""
    low, high = np.full((n, 1), -most), np.full((n, 1), most)
    for _ in range(70):
        middle = 0.5 * (low + high)
        above = move(middle).sum(axis=1, keepdims=True) > 1.0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return ratio(move(low))


def added(p: Floats) -> Floats:
    """Add one constant to all probabilities; none falls below 1e-4."""
    return _solved(lambda c: np.maximum(p + c, 1e-4), 1.0, len(p))


def arcsine(p: Floats) -> Floats:
    """Move all on the scale on which their standard deviation is the same, the arcsine of the root."""
    angles = np.arcsin(np.sqrt(p))
    return _solved(lambda c: np.maximum(np.sin(np.clip(angles + c, 0.0, np.pi / 2)) ** 2, 1e-4), 1.6, len(p))


def power(p: Floats) -> Floats:
    """Raise all to one power."""
    logs = np.log(np.clip(p, LEAST, 1.0 - LEAST))
    return _solved(lambda c: np.exp(logs * np.exp(-c)), 6.0, len(p))


def likelihood(p: Floats) -> Floats:
    """Return the distribution of least log loss under what is served: (q - p) / (q (1 - q)) is equal for all classes.

    The shift of log-odds is the projection with both sides of the divergence exchanged.
    """
    p = np.clip(p, 1e-6, 1.0 - 1e-6)

    def move(c: Floats) -> Floats:
        quantiles: Floats = np.clip(2.0 * p / (1.0 - c + np.sqrt((1.0 - c) ** 2 + 4.0 * c * p)), 1e-6, 1.0)
        return quantiles

    return _solved(move, 200.0, len(p))


def kept(p: Floats) -> Floats:
    """Shift, then take the temperature at which the highest probability is as it was served."""
    logs, top = np.log(shift(p)), np.clip(p.max(axis=1, keepdims=True), 1.0 / p.shape[1] + 1e-6, 1.0 - 1e-6)
    low, high = np.full((len(p), 1), -3.0), np.full((len(p), 1), 3.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = ratio(np.exp(np.exp(middle) * logs)).max(axis=1, keepdims=True) > top
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return ratio(np.exp(np.exp(low) * logs))


def halfway(p: Floats) -> Floats:
    """Return the mean of `kept` and of the shift."""
    return 0.5 * (kept(p) + shift(p))


WAYS: Final = (ratio, added, arcsine, power, likelihood, kept, halfway)


def tempered(p: Floats, y: Integers) -> Floats:
    """Return what is shifted at a temperature learnt online by log loss, mixed with none by the second order."""
    logs = np.log(np.maximum(shift(p), LEAST))
    made = np.empty_like(logs)
    slope, curvature, gain, square = 1.0, 100.0, 0.0, 0.0
    for t, (z, label) in enumerate(zip(logs, y, strict=True)):
        one, other = np.exp(z), np.exp(slope * z - np.max(slope * z))
        other /= other.sum()
        weight = 0.9 / (0.9 + 0.1 * np.exp(min(1.0, 2.0 / np.sqrt(square) if square else 1.0) * gain))
        made[t] = weight * one + (1.0 - weight) * other
        off = np.log(other[label] / one[label])
        gain, square = gain + off, square + off * off
        mean = float(other @ z)
        curvature += float(other @ z**2) - mean**2
        slope = float(np.clip(slope + (z[label] - mean) / curvature, 0.3, 3.0))
    return made


def _ece(top: Floats, hit: Floats) -> float:
    bins = np.minimum((top * 10).astype(int), 9)
    return float(np.abs(np.bincount(bins, weights=top - hit, minlength=10)).sum() / len(top))


def _compared(made: Floats, built: Floats, served: Floats, y: Integers) -> str:
    """Return the cell of a way."""
    n = len(y) // BLOCKS * BLOCKS
    own = [-np.log(np.maximum(each[np.arange(len(y)), y], 1e-15)) for each in (made, built)]
    off = (own[0] - own[1])[:n].reshape(BLOCKS, -1).mean(axis=1)
    both = [(each.max(axis=1), (each.argmax(axis=1) == y).astype(float)) for each in (made, served)]
    blocks, rng = np.arange(n).reshape(BLOCKS, -1), np.random.default_rng(1)
    drawn = []
    for _ in range(DRAWN):
        at = blocks[rng.integers(0, BLOCKS, BLOCKS)].ravel()
        one, other = (_ece(top[at], hit[at]) for top, hit in both)
        drawn.append(one - other)
    low, high = np.percentile(drawn, [2.5, 97.5])
    error = _ece(*both[0]) - _ece(*both[1])
    error_of_mean = 2.0 * off.std(ddof=1) / np.sqrt(BLOCKS)
    return f"{off.mean():+.4f} ± {error_of_mean:.4f}; {error:+.3f} [{low:+.3f}, {high:+.3f}]"


def shares(served: Floats, made: Floats, y: Integers) -> str:
    """Return which part of what the sum lacks was missing from the three highest classes, and which the shift gives."""
    order = np.argsort(-served, axis=1)[:, :3]
    lacking = 1.0 - served.sum(axis=1)
    happened = (np.arange(served.shape[1]) == y[:, None]) - served
    parts = []
    for moved in (happened, made - served):
        own = np.take_along_axis(moved, order, axis=1)
        parts.append(", ".join(f"{one:.2f}" for one in (own * lacking[:, None]).mean(axis=0) / (lacking**2).mean()))
    return "; ".join(parts)


def rows(role: str) -> Iterator[tuple[str, ...]]:
    """Yield a row a stream and calibrator."""
    for name, raw, y in streams(role):
        for each in EACH:
            served, _ = serve(raw, y, each)
            built = shift(served)
            ways = (built, *(way(served) for way in WAYS), tempered(served, y))
            yield f"{name}, {each}", shares(served, built, y), *(_compared(made, built, served, y) for made in ways)


def main() -> None:
    """Print the tables that are named, or both."""
    head = ("stream, each", "missing; given", "shift of log-odds", *(way.__name__ for way in WAYS), "tempered")
    for role in sys.argv[1:] or ("made", "judged"):
        print(f"\n{role}\n")
        show(head, rows(role))


if __name__ == "__main__":
    main()
