"""Ways to make a distribution of what `multiclass` serves, and which classes are wrong when the sum is not 1.

``python -m tests.bench.normalising [made] [judged] [learnt]`` prints the tables of docs/calibrators.md; some minutes.
The streams are those of `tests.bench.classes`. In each cell: mean log loss less that of the way that is built in, ± two
standard errors from `BLOCKS` blocks; then the top label's ECE less that of what is served, with its 95 % interval from
blocks drawn again.

*Learnt* ways learn from outcomes, which come late, on the judged streams and two made ones. In each cell: log loss less
that of the way that is built in; the top label's ECE, the mean of the classes' and the top label's in the worst window
of `WINDOW` events.
"""

import math
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from state.arrays import Floats, Integers
from state.calibrators import make
from tests.bench.classes import LEAST as LEAST_RAW
from tests.bench.classes import ROWS, ratio, serve, shift, streams
from tests.bench.rare_and_late import show

EACH: Final = ("auto+regret_matching", "prudent")
BLOCKS: Final = 20
DRAWN: Final = 300
LEAST: Final = 1e-9
LATE: Final = (0, 500, 2000)
WINDOW: Final = 1000


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
    return at_top(shift(p), p.max(axis=1))


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


def at_top(p: Floats, top: Floats) -> Floats:
    """Return distributions at the temperature at which the highest probability is as given; their order stays."""
    logs = np.log(np.maximum(p, 1e-15))
    logs -= logs.max(axis=1, keepdims=True)
    wanted = np.clip(top, 1.0 / p.shape[1] + 1e-6, 1.0 - 1e-6)[:, None]
    low, high = np.full((len(p), 1), -3.0), np.full((len(p), 1), 3.0)
    for _ in range(40):
        middle = 0.5 * (low + high)
        above = ratio(np.exp(np.exp(middle) * logs)).max(axis=1, keepdims=True) > wanted
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return ratio(np.exp(np.exp(low) * logs))


def confident(p: Floats, y: Integers, late: int, by: str) -> Floats:
    """Let a calibrator learn whether the likeliest class came, and take the temperature of what it serves."""
    calibrator, waiting = make(by, seed=3), deque[tuple[bytes, float]]()
    top, hit = p.max(axis=1), p.argmax(axis=1) == y
    served = np.empty(len(p))
    for t, (one, came) in enumerate(zip(top.tolist(), hit.tolist(), strict=True)):
        answer = calibrator.predict(one, (), b"%d" % t)
        served[t] = answer.p
        waiting.append((answer.ticket, float(came)))
        if len(waiting) > late:
            calibrator.update(*waiting.popleft())
    return at_top(p, served)


def share(served: Floats, y: Integers, late: int) -> Floats:
    """Give the likeliest class a learnt multiple of what the shift gives it, by least squares from 1."""
    p = shift(served)
    rows, top = np.arange(len(p)), p.argmax(axis=1)
    was = served[rows, top]
    given, missing = p[rows, top] - was, (top == y) - was
    products, squares = (np.concatenate([np.zeros(late + 1), each.cumsum()]) for each in (given * missing, given**2))
    learnt = np.clip((products[: len(p)] + 5.0) / (squares[: len(p)] + 5.0), -1.0, 2.0)
    return at_top(p, was + learnt * given)


def mixed(ways: Sequence[Floats], prior: Sequence[float], y: Integers, late: int) -> Floats:
    """Mix ways by their log losses as issued, by the second order."""
    each = np.stack(ways, axis=1)
    losses = -np.log(np.maximum(each[np.arange(len(y)), :, y], 1e-15))
    made, rho = np.empty_like(ways[0]), np.array(prior)
    weights, variance, summed, waiting = rho, 0.0, np.zeros(len(prior)), deque[tuple[int, Floats]]()
    for t in range(len(y)):
        made[t] = weights @ each[t]
        waiting.append((t, weights))
        if len(waiting) > late:
            then, issued = waiting.popleft()
            variance += float(issued @ (losses[then] - issued @ losses[then]) ** 2)
            summed += losses[then]
            eta = min(1.0, 2.0 / math.sqrt(variance) if variance else 1.0) / math.sqrt(1.0 + late / 10.0)
            weights = rho * np.exp(-eta * (summed - summed.min()))
            weights /= weights.sum()
    return made


def changing(kind: str) -> tuple[Floats, Integers]:
    """Return forecasts whose truth drifts, or of classes that are mixed up and each too flat or too sharp."""
    rng, k = np.random.default_rng(1 if kind == "drifting" else 2), 4 if kind == "drifting" else 6
    z = rng.normal(0.0, 1.2 if kind == "drifting" else 1.5, (ROWS, k))
    if kind == "drifting":
        at = np.linspace(0.0, 1.0, ROWS)[:, None]
        true, told = (1.0 + 0.6 * np.sin(6.0 * at)) * z + np.cumsum(rng.normal(0.0, 0.02, (ROWS, k)), axis=0), 1.3 * z
    else:
        z[:, 1] = z[:, 0] + 0.3 * rng.normal(size=ROWS)
        true, told = z, z * np.linspace(0.5, 2.5, k) + np.linspace(-1.0, 1.0, k)
    y = (ratio(np.exp(true)).cumsum(axis=1) < rng.random((ROWS, 1))).sum(axis=1).clip(0, k - 1)
    return ratio(np.maximum(ratio(np.exp(told)), LEAST_RAW)), y


def _scored(p: Floats, y: Integers, base: Floats) -> str:
    rows = np.arange(len(y))
    off = float(np.log(np.maximum(base[rows, y], 1e-15) / np.maximum(p[rows, y], 1e-15)).mean())
    top, hit = p.max(axis=1), (p.argmax(axis=1) == y).astype(float)
    classes = np.mean([_ece(p[:, k], (y == k).astype(float)) for k in range(p.shape[1])])
    windows = [slice(start, start + WINDOW) for start in range(0, len(y) - WINDOW + 1, WINDOW)]
    worst = max(_ece(top[window], hit[window]) for window in windows)
    return f"{off:+.4f}; {_ece(top, hit):.4f}, {classes:.4f}, {worst:.3f}"


def learnt_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row a stream and delay."""
    for name, raw, y in (*((kind, *changing(kind)) for kind in ("drifting", "mixed up")), *streams("judged")):
        for late in LATE:
            served, _ = serve(raw, y, EACH[0], late)
            base = shift(served)
            by = [confident(base, y, late, each) for each in ("prudent", "platt")]
            ways = (base, kept(served), share(served, y, late), *by)
            both = mixed((base, by[0]), (0.9, 0.1), y, late), mixed((base, ways[1], by[0]), (0.8, 0.1, 0.1), y, late)
            yield f"{name}, {late}", *(_scored(each, y, base) for each in (served, *ways, *both))


def main() -> None:
    """Print the tables that are named, or all."""
    head = ("stream, each", "missing; given", "shift of log-odds", *(way.__name__ for way in WAYS), "tempered")
    learnt = ("as served", "shift", "kept", "share", "top by prudent", "top by platt", "shift, top", "shift, kept, top")
    for role in sys.argv[1:] or ("made", "judged", "learnt"):
        print(f"\n{role}\n")
        if role == "learnt":
            show(("stream, outstanding", *learnt), learnt_rows())
        else:
            show(head, rows(role))


if __name__ == "__main__":
    main()
