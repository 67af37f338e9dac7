"""Real risk scores with dates, and with labels that come when they came: what the benchmark plays."""

import csv
import io
import zipfile
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.parquet

from lab import flights
from research.datasets import KEPT
from state.arrays import Floats, Integers

DAY_MS: Final = 86_400_000
#: Days in which an offence counts, and the last day on which all who were screened are in ProPublica's file.
WITHIN, LAST = 180, "2014-03-31"
#: Stands for no offence.
FAR: Final = "9999-01-01"
#: Days as which a year of the census is played, and after which an answer is known.
QUARTER, MONTH = 91, 30

Names = npt.NDArray[np.str_]


class Dated(NamedTuple):
    """Scores in the order in which they were made, n rows, and when their labels were known."""

    name: str
    #: Whose scores and labels they are, and whether the stream chose the product's defaults or judges them.
    origin: str
    #: Raw scores in [0, 1], and labels, 0 or 1; NaN where none ever comes, [n].
    p: Floats
    y: Floats
    #: When the scores were made, and when somebody tells of the label, ms since the epoch, [n]; -1: nobody does.
    forecast_ms: Integers
    report_ms: Integers
    #: Age at which a score without a report is a 0, ms; 0: every label is reported.
    matures_ms: int
    #: Number of what a score is about, [n].
    entity: Integers
    #: Values by name, [n] each.
    segments: dict[str, Names]

    @property
    def known_ms(self) -> Integers:
        """When a label counts, [n]: with its report, or once all of this age are known; -1: never.

        Early reports are all ones: who learns them when they come learns that every score ends in one.
        """
        return self.forecast_ms + self.matures_ms if self.matures_ms else self.report_ms

    def first(self, rows: int) -> "Dated":
        """Return the stream's first rows."""
        cut: dict[str, Any] = {
            name: each[:rows] for name, each in self._asdict().items() if isinstance(each, np.ndarray)
        }
        return self._replace(segments={name: each[:rows] for name, each in self.segments.items()}, **cut)


def compas(*, violent: bool = False) -> Dated:
    """Read 6,207 people's COMPAS scores from Broward County, and whether they offended again within 180 days.

    ``violent``: of 4,516 people the scores of violence, and whether there was a violent offence. A decile d is taken
    for a probability of (d - .5) / 10. Of those screened from April 2014 on, the file has only who offended again
    (Barenstein 2019, *ProPublica's COMPAS data revisited*), so it is cut there. An offence is told on its day; that
    there was none is known on day 180.
    """
    file, score, date = (
        ("-violent", "v_decile_score", "vr_offense_date") if violent else ("", "decile_score", "r_offense_date")
    )
    with zipfile.ZipFile(kept("fairness-0.1.8")) as archive:
        text = archive.read(f"fairness/data/raw/propublica{file}-recidivism.csv").decode()
    header, *lines = csv.reader(io.StringIO(text))
    rows = [row for row in (dict(zip(header, line, strict=True)) for line in lines) if row["screening_date"] <= LAST]
    rows.sort(key=lambda row: row["screening_date"])
    day, offence = (
        np.array([row[name] or FAR for row in rows], dtype="datetime64[D]").astype(np.int64)
        for name in ("screening_date", date)
    )
    y = offence - day <= WITHIN
    return Dated(
        name="COMPAS, violence" if violent else "COMPAS",
        origin=f"a vendor's deciles, {'violent ' * violent}offences within 180 days; judges"
        + ("" if violent else ", but ways that lose here were not built in"),
        p=(np.array([int(row[score]) for row in rows]) - 0.5) / 10,
        y=y.astype(np.float64),
        forecast_ms=day * DAY_MS,
        report_ms=np.where(y, offence * DAY_MS, -1),
        matures_ms=WITHIN * DAY_MS,
        entity=np.arange(len(rows)),
        segments={name: np.array([row[name] for row in rows]) for name in ("sex", "age_cat", "c_charge_degree")},
    )


def employment() -> Dated:
    """Read a model's probabilities that 277,677 people in Massachusetts have work (NannyML, US census 2015 to 2018).

    The file tells only the year, so time is made: each year is played as a quarter, its rows evenly spread in their
    order, and an answer is known a month later. People of one household stand together, and are one entity.
    """
    tables = []
    with zipfile.ZipFile(kept("nannyml-0.13.1")) as archive:
        for part in ("reference", "analysis", "analysis_target"):
            path = f"nannyml/datasets/data/employment_MA_{part}.pq"
            tables.append(pyarrow.parquet.read_table(io.BytesIO(archive.read(path))))

    def column(name: str, first: int, second: int) -> Any:  # noqa: ANN401 - numbers or text
        return np.concatenate([np.array(tables[place][name].to_pylist()) for place in (first, second)])

    if not np.array_equal(column("id", 0, 1), column("id", 0, 2)):
        raise ValueError("employment: targets and scores have other ids")
    _, quarter, size = np.unique(column("year", 0, 1), return_inverse=True, return_counts=True)
    share = np.concatenate([np.arange(each) / each for each in size])
    begin = np.datetime64("2015-01-01", "ms").astype(np.int64)
    forecast_ms = begin + ((quarter + share) * QUARTER * DAY_MS).astype(np.int64)
    # RELP 0 is whom a household is named after; 16 and 17 live in quarters of a group.
    first = np.isin(column("RELP", 0, 1), ("0", "16", "17"))
    return Dated(
        name="employment",
        origin="a model's own scores, answers a month later (made); judges",
        p=column("predicted_probability", 0, 1),
        y=column("employed", 0, 2).astype(np.float64),
        forecast_ms=forecast_ms,
        report_ms=forecast_ms + MONTH * DAY_MS,
        matures_ms=0,
        entity=np.cumsum(first),
        segments={name: column(name, 0, 1) for name in ("SEX", "SCHL", "MAR")},
    )


def flown() -> Dated:
    """Read 309,772 flights, scored at departure by a model of January, with labels at landing; see `lab.flights`."""
    made = flights.load()
    return Dated(
        name="flights",
        origin="January's model, late by more than 15 minutes, known at landing; chose",
        p=made.p,
        y=made.y,
        forecast_ms=made.forecast_ms,
        report_ms=np.where(made.known, made.outcome_ms, -1),
        matures_ms=0,
        entity=np.unique([each.split("/", 1)[1] for each in made.event_id], return_inverse=True)[1],
        segments={name: np.array([each[name] for each in made.segments]) for name in flights.SEGMENTS},
    )


STREAMS: Final[dict[str, Callable[[], Dated]]] = {"COMPAS": compas, "employment": employment, "flights": flown}


def kept(wheel: str) -> str:
    """Return the path of a wheel that was downloaded and not installed; FileNotFoundError without it."""
    path = KEPT / f"{wheel}-py3-none-any.whl"
    if not path.exists():
        raise FileNotFoundError(f"{wheel} is not downloaded: make data")
    return str(path)
