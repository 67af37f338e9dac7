"""Streams for ``--unseen``: nobody tuned on them. The list and its halves were written down before any was played.

A model learns the first fifth of a table, and is left alone. The rest is played, at most `ROWS` rows. Where a table has
no times, they are made: its rows are spread evenly over some days. Names count as their ranks, what is missing as the
column's median.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from research.benchmark import regimes
from research.benchmark.streams import Dated
from research.benchmark.tables import CHOSE, JUDGES, Table, dated
from research.benchmark.unseen_tables import READERS, matches

#: Rows that are played, at most.
ROWS: Final = 20_000

#: Models by name. An overfitted one is far too sure of itself; a forest and a tree say exactly 0 and 1.
MODELS: Final[dict[str, Callable[[], Any]]] = {
    "a line": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
    "a balanced line": lambda: make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=500, class_weight="balanced")
    ),
    "trees": lambda: HistGradientBoostingClassifier(random_state=0),
    "overfitted trees": lambda: HistGradientBoostingClassifier(
        random_state=0, max_iter=400, learning_rate=0.3, early_stopping=False
    ),
    "a forest": lambda: RandomForestClassifier(100, random_state=0, n_jobs=1),
    "one tree": lambda: DecisionTreeClassifier(min_samples_leaf=20, random_state=0),
    "naive Bayes": lambda: make_pipeline(StandardScaler(), GaussianNB(var_smoothing=1e-3)),
    "a net": lambda: make_pipeline(StandardScaler(), MLPClassifier((16,), max_iter=100, random_state=0)),
}


def scored(name: str, asked: str, role: str, read: Callable[[], Table], model: str, form: str = "") -> Dated:
    """Return what a model says of a table's later rows.

    ``form``: scores are sent as probabilities, as ``"percentiles"`` among what the model learnt, or in ``"fifths"`` of
    these.
    """
    table = read()
    order = np.argsort(table.ms, kind="stable")[: ROWS * 5 // 4]
    order = order[: min(len(order), ROWS * 5 // 4)]
    x, y, *_ = table.of(order)
    x = np.where(np.isfinite(x), x, np.nanmedian(np.where(np.isfinite(x), x, np.nan), axis=0))
    first = len(y) // 5
    fitted = MODELS[model]().fit(x[:first], y[:first])
    learnt, p = (fitted.predict_proba(each)[:, 1] for each in (x[:first], x[first:]))
    if form:
        p = np.searchsorted(np.sort(learnt), p, side="right") / (first + 1)
    if form == "fifths":
        p = (np.floor(p * 5).clip(max=4) + 0.5) / 5
    played = table.of(order[first:])
    said = f"{model}{form and ', as ' + form}; {asked}"
    return dated(name, said, role, p, played.y, played.ms, played.known_ms, played.entity, played.segments)


def rated(name: str, role: str) -> Dated:
    """Return what Elo ratings say of matches."""
    table = matches()
    said = "Elo ratings; the hosts win, 3 hours later"
    return dated(name, said, role, table.x[:, 0], table.y, table.ms, table.known_ms, table.entity, table.segments)


#: Who scores each table, and in which form; all others are scored by a line.
_SCORED: Final = {
    "pets": ("trees",),
    "rodents": ("naive Bayes",),
    "births": ("trees",),
    "careers": ("a forest",),
    "cancelled": ("trees",),
    "hotels": ("overfitted trees",),
    "rain, Britain": ("a net",),
    "warmer": ("a forest",),
    "calls": ("overfitted trees",),
    "fumes": ("a line", "percentiles"),
    "wages": ("naive Bayes",),
    "lectures": ("overfitted trees",),
    "murders": ("trees",),
    "hospital, Germany": ("overfitted trees",),
    "loans": ("a balanced line",),
    "credit": ("naive Bayes",),
    "deliveries": ("a forest",),
    "churn": ("a forest",),
    "caravans": ("overfitted trees",),
    "kitchens": ("one tree",),
    "movies": ("trees",),
    "words": ("a line", "fifths"),
    "taxis": ("a net",),
    "at home": ("a balanced line",),
}

#: The half that chooses, drawn with seed 20,261,127 among the tables and among the regimes; the others judge.
CHOOSE: Final = frozenset((
    "calls", "cancelled", "caravans", "churn", "deliveries", "families", "fumes", "hotels", "loans", "losses",
    "matches", "movies", "murders", "pets", "rodents", "made, abrupt", "made, bursts", "made, gradual",
    "made, label shift", "made, rare", "made, steps",
))  # fmt: skip


def _role(name: str) -> str:
    return CHOSE if name in CHOOSE else JUDGES


UNSEEN: Final[dict[str, Callable[[], Dated]]] = {
    **{
        name: partial(scored, name, asked, _role(name), read, *_SCORED.get(name, ("a line",)))
        for name, (asked, read) in READERS.items()
    },
    "matches": partial(rated, "matches", _role("matches")),
    **{name: partial(regimes.make, name, _role(name)) for name in regimes.REGIMES},
}
