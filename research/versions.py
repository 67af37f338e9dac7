"""A model is replaced in the middle of a stream: what each way to go on costs in the half that follows.

``python -m research.versions [STREAM ...] [--rows N]``, after `make data`: two models score the same table, one before
the middle and the other after it. docs/explanation/calibrators.md, *A new version of the model*, has the table.

- *knew*: a calibrator that had seen the new model's scores from the beginning, with all labels.
- *empty*: a calibrator that begins with raw scores.
- *keep*: the calibrator of the old model goes on.
- *ranks*: what a worker does, `state.versions`: a line carried over by ranks, in front of a calibrator that is empty.
- *pairs*: what it does while the old model goes on scoring: the same line, by its scores of the same events.
- *whole*: the old calibrator with all that it has learnt, behind the ranks as they are, knot by knot.

Population: ``rarer``: after the middle 6 in 10 ones are left out, ``oftener``: 6 in 10 zeros.
"""

import argparse
import csv
import io
import math
import zipfile
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.parquet
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lab import flights, fraud
from research import datasets
from research.benchmark import streams
from research.nightly_refit import log_odds
from state.arrays import Floats, Integers
from state.calibrators.base import Calibrator
from state.calibrators.carried import FEW, OWN, CarriedOver
from state.calibrators.prudent import Prudent
from state.scoring.ages import DAY_MS
from state.versions import Version, line

WAYS: Final = ("empty", "keep", "ranks", "pairs", "whole")
#: Shares of the scores at which *whole* compares.
SHARES: Final = (0.01, 0.02, 0.05, *(k / 10 for k in range(1, 10)), 0.95, 0.98, 0.99)


class Table(NamedTuple):
    """Scores of two models, labels, and when scores were made and labels known, ms; [n] each, in order of time."""

    one: Floats
    other: Floats
    y: Floats
    at: Integers
    known: Integers

    def swapped(self) -> "Table":
        """Return the same with the models in the other order."""
        return self._replace(one=self.other, other=self.one)

    def late(self, days: int) -> "Table":
        """Return the same with labels known so many days later than the scores."""
        return self._replace(known=np.maximum(self.known, self.at + days * DAY_MS))

    def of(self, chosen: npt.NDArray[Any]) -> "Table":
        """Return some of its rows."""
        return Table(*(each[chosen] for each in self))


class Way:
    """A way to go on with a new model; it begins with raw scores."""

    def __init__(self, calibrator: Calibrator) -> None:
        self.calibrator = calibrator

    def answer(self, p: float, _: float) -> tuple[float, bytes]:
        """Return what is served for a score, given what the old model says of the event; and the ticket."""
        served, _, ticket = self.calibrator.predict(p)
        return served, ticket


class Lines(Way):
    """A line carried over by the ranks of the old model's scores, those of before or those of the same events."""

    def __init__(self, old: Calibrator, before: Version, *, pairs: bool = False) -> None:
        self.carried = CarriedOver(Prudent(name="new"))
        super().__init__(self.carried)
        self._old, self._before, self._pairs = old, before, pairs
        self._new, self._same = Version("new", ""), Version("old", "")

    def answer(self, p: float, other: float) -> tuple[float, bytes]:
        """Count the score, find the line when it is due, and answer."""
        self._new.observe(p, 0)
        self._same.observe(other, 0)
        if self.carried.due(self._new.forecasts):
            found = line(self._new, self._same if self._pairs else self._before, lambda q: self._old.predict(q).p)
            self.carried.carry(*found, self._new.forecasts)
        return super().answer(p, other)


class Whole(Way):
    """A copy of the old calibrator behind the ranks, knot by knot."""

    def __init__(self, old: Prudent, before: Sequence[float]) -> None:
        super().__init__(Prudent(name="new"))
        self._old, self._before = old, np.sort(log_odds(np.array(before[-8192:])))
        self._seen: list[float] = []
        self._knots: tuple[Floats, Floats] | None = None

    def answer(self, p: float, other: float) -> tuple[float, bytes]:
        """As `Lines.answer`."""
        z = float(log_odds(np.array([p]))[0])
        self._seen.append(z)
        n = len(self._seen)
        if n % FEW == 0 and not (n // FEW) & (n // FEW - 1) and (self._knots is None or self.calibrator.learnt < OWN):
            shares = [each for each in SHARES if min(each, 1 - each) * n >= 5]
            new, old = np.quantile(self._seen, shares), np.quantile(self._before, shares)
            self._knots = new + 1e-6 * np.arange(len(new)), old
            if n == FEW:
                self.calibrator = Prudent(name="new")
                self.calibrator.decode(self._old.encode())
        if self._knots is not None:
            new, old = self._knots
            v = z + old[0] - new[0] if z < new[0] else z + old[-1] - new[-1] if z > new[-1] else np.interp(z, new, old)
            p = 1.0 / (1.0 + math.exp(-v))
        return super().answer(p, other)


def play(table: Table, middle: int) -> dict[str, Floats]:
    """Return what each way serves of the rows from the middle on, and *knew* and *raw*, [n - middle] each."""
    n = len(table.y)
    order = np.argsort(np.concatenate([table.at, table.known]), kind="stable")
    one, other, y, known = (each.tolist() for each in (table.one, table.other, table.y, table.known))
    old, knew, before = Prudent(name="old"), Prudent(name="knew"), Version("old", "")
    ways: dict[str, Way] = {}
    served = {name: np.zeros(n - middle) for name in ("knew", "raw", *WAYS)}
    tickets: list[dict[str, bytes]] = [{} for _ in range(n)]
    for k in order.tolist():
        i = k % n
        if k >= n:
            for name, ticket in tickets[i].items():
                taught = {"old": old, "knew": knew}.get(name) or ways[name].calibrator
                taught.update(ticket, y[i], known[i])
            if i < middle and ways:
                ways["keep"].calibrator.update(tickets[i]["old"], y[i], known[i])
            tickets[i] = {}
            continue
        if i == middle:
            kept = Prudent(name="old")
            kept.decode(old.encode())
            ways = dict(
                zip(
                    WAYS,
                    (
                        Way(Prudent(name="new")),
                        Way(kept),
                        Lines(old, before),
                        Lines(old, before, pairs=True),
                        Whole(old, one[:middle]),
                    ),
                    strict=True,
                )
            )
        said, _, tickets[i]["knew"] = knew.predict(other[i])
        if i < middle:
            before.observe(one[i], 0)
            tickets[i]["old"] = old.predict(one[i]).ticket
            continue
        served["knew"][i - middle], served["raw"][i - middle] = said, other[i]
        for name, way in ways.items():
            served[name][i - middle], tickets[i][name] = way.answer(other[i], one[i])
    return served


def compared(table: Table, middle: int) -> str:
    """Return the log loss of each way, in % above *knew*'s; in parentheses standard errors from *empty*."""
    served, y = play(table, middle), table.y[middle:]
    day = np.unique(table.at[middle:] // DAY_MS, return_inverse=True)[1]
    loss = {name: -np.log(np.where(y > 0.5, p, 1.0 - p).clip(1e-9)) for name, p in served.items()}
    knew = loss["knew"].mean()
    cells = [f"{knew:.4f}", f"{100 * (loss['raw'].mean() / knew - 1):+.1f}"]
    for name in WAYS:
        off = loss[name] - loss["empty"]
        error = math.sqrt(float(np.square(np.bincount(day, off - off.mean())).sum())) / len(off)
        more = "" if name == "empty" else f" ({off.mean() / max(error, 1e-12):+.1f})"
        cells.append(f"{100 * (loss[name].mean() / knew - 1):+.1f}{more}")
    return " | ".join(cells)


def altered(table: Table, middle: int, kept: float) -> Table:
    """Return the rows that are left where the population changes in the middle: of ones, or of zeros if above 1."""
    left_out = np.random.default_rng(3).random(len(table.y)) > min(kept, 1.0 / kept)
    late = np.arange(len(table.y)) >= middle
    return table.of(~(late & left_out & (table.y == (1.0 if kept < 1.0 else 0.0))))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("streams", nargs="*", default=list(TABLES))
    parser.add_argument("--rows", type=int, default=15_000, help="every so manieth row is played that so many are left")
    options = parser.parse_args()
    print("| stream, labels, population | knew | raw | " + " | ".join(WAYS) + " |\n|" + " --- |" * (3 + len(WAYS)))
    for name in options.streams:
        whole = TABLES[name]()
        table = whole.of(np.arange(0, len(whole.y), max(1, len(whole.y) // options.rows)))
        prompt = bool(np.median(table.known - table.at) < DAY_MS)
        for order, both in (("", table), (", the other way", table.swapped())):
            for days in (0, 30) if prompt else (0,):
                for population, kept in (("", 1.0), (", rarer", 0.4), (", oftener", 2.5)):
                    middle = len(both.y) // 2
                    played = altered(both.late(days), middle, kept)
                    when = f", {days} days late" if days else ""
                    print(f"| {name}{order}{when}{population} | {compared(played, middle)} |", flush=True)


# Two models on each table.


def _fitted(x: Floats, y: Floats, learnt: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return the scores of boosted trees, and of a logistic regression that takes both classes for equally likely."""
    trees = HistGradientBoostingClassifier(random_state=0).fit(x[learnt], y[learnt])
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500, class_weight="balanced"))
    return trees.predict_proba(x)[:, 1], linear.fit(x[learnt], y[learnt]).predict_proba(x)[:, 1]


def _spread(x: Floats, y: Floats, days: int) -> Table:
    """Return a table whose models learn the first fifth, its other rows evenly spread over so many days."""
    learnt = np.arange(len(y)) < len(y) // 5
    one, other = _fitted(x, y, learnt)
    at = np.arange(int((~learnt).sum())) * days * DAY_MS // int((~learnt).sum())
    return Table(one[~learnt], other[~learnt], y[~learnt], at, at)


def _flights() -> Table:
    """Flights: January's trees, and a model that is ten times more certain and knows the time of day alone."""
    flown = flights.load()
    known = np.flatnonzero(flown.known)
    hour = flown.forecast_ms[known] % DAY_MS / DAY_MS
    other = 1.0 / (1.0 + np.exp(-(6.0 * hour - 4.5 + 0.5 * log_odds(flown.p[known]))))
    return Table(flown.p[known], other, flown.y[known], flown.forecast_ms[known], flown.outcome_ms[known])


def _payments(seed: int) -> Table:
    """Made payments of 1 % fraud, told after 45 days: scores ten times too high, and others that are far too low."""
    made = fraud.make(fraud.Shape(rows=15_000, seed=seed, rate=0.01, inflation=10.0))
    seen = log_odds(made.truth) + 0.7 * np.random.default_rng([seed, 7]).standard_normal(len(made))
    other = 1.0 / (1.0 + np.exp(2.5 - 0.6 * seen))
    return Table(made.raw, other, made.y, made.forecast_ms, made.forecast_ms + 45 * DAY_MS)


def _compas() -> Table:
    """COMPAS: deciles, and a score of age and earlier offences that is too high."""
    dated = streams.compas()
    with zipfile.ZipFile(streams.kept("fairness-0.1.8")) as archive:
        text = archive.read("fairness/data/raw/propublica-recidivism.csv").decode()
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["screening_date"] <= streams.LAST]
    rows.sort(key=lambda row: row["screening_date"])
    z = np.array([0.15 * float(row["priors_count"]) - 0.05 * (float(row["age"]) - 30.0) + 0.5 for row in rows])
    return Table(dated.p, 1.0 / (1.0 + np.exp(-z)), dated.y, dated.forecast_ms, dated.known_ms)


def _employment() -> Table:
    """Employment: a vendor's scores, and naive Bayes, which is far too certain."""
    dated, columns = streams.employment(), []
    with zipfile.ZipFile(streams.kept("nannyml-0.13.1")) as archive:
        paths = [f"nannyml/datasets/data/employment_MA_{part}.pq" for part in ("reference", "analysis")]
        tables = [pyarrow.parquet.read_table(io.BytesIO(archive.read(path))) for path in paths]
    for name in ("AGEP", "SCHL", "MAR", "SEX", "DIS", "ESP", "CIT", "MIG", "RAC1P", "RELP"):
        values = [value for each in tables for value in each[name].to_pylist()]
        columns.append([-1.0 if value is None else float(value) for value in values])
    x, learnt = np.array(columns).T, np.arange(len(dated.y)) < len(dated.y) // 5
    other = GaussianNB().fit(x[learnt], dated.y[learnt]).predict_proba(x)[:, 1].clip(1e-4, 1.0 - 1e-4)
    return Table(dated.p, other, dated.y, dated.forecast_ms, dated.report_ms).of(~learnt)


TABLES: Final[dict[str, Callable[[], Table]]] = {
    "payments 1": lambda: _payments(1),
    "COMPAS": _compas,
    "Elec2": lambda: _spread(*datasets.elec2(), 755),
    "flights": _flights,
    "bank": lambda: _spread(*datasets.bank(), 700),
    "employment": _employment,
    "payments 10": lambda: _payments(10),
    "payments 11": lambda: _payments(11),
}


if __name__ == "__main__":
    main()
