"""Play a stream through a calibrator, with every outcome after its delay, or never."""

from typing import NamedTuple

import numpy as np

from state.arrays import Floats, Integers
from state.calibrators import Calibrator


class Stream(NamedTuple):
    """Forecasts in the order in which they were made, n rows."""

    name: str
    #: Raw forecasts in [0, 1], [n].
    p: Floats
    #: Outcomes, 0 or 1; NaN if none comes, [n].
    y: Floats
    #: Position of the outcome among all outcomes in the order in which they come, [n].
    rank: Integers
    #: Number of forecasts that are made before the outcome is known, [n]; ``t + 1`` if it comes at once.
    due: Integers
    #: Rows of a window, for the score of the worst window.
    window: int


def prompt(name: str, p: Floats, y: Floats, window: int) -> Stream:
    """Return a stream whose outcomes come before the next forecast."""
    rows = np.arange(len(p))
    return Stream(name, p, y, rows, rows + 1, window)


def outcomes(stream: Stream, delay: int) -> tuple[list[int], list[int]]:
    """Return the rows with outcomes, in the order in which these come, and when each is due, ``delay`` rows later."""
    known = np.flatnonzero(~np.isnan(stream.y))
    known = known[np.lexsort((stream.rank[known], stream.due[known]))]
    return known.tolist(), (stream.due[known] + delay).tolist()


def play(calibrator: Calibrator, stream: Stream, delay: int = 0) -> Floats:
    """Return the served forecast of each row, [n]; the key of event t is its number."""
    rows, due = outcomes(stream, delay)
    raw, y = stream.p.tolist(), stream.y.tolist()
    served = [0.0] * len(raw)
    tickets = [b""] * len(raw)
    k, last = 0, len(rows)
    predict, update = calibrator.predict, calibrator.update
    for t, p in enumerate(raw):
        while k < last and due[k] <= t:
            update(tickets[rows[k]], y[rows[k]])
            tickets[rows[k]] = b""
            k += 1
        _, served[t], tickets[t] = predict(p, (), b"%d" % t)
    return np.array(served)


def oppose(calibrator: Calibrator, raw: Floats) -> tuple[Floats, Floats]:
    """Play against an opponent who picks the outcome opposite to the *expected* forecast; return served and y.

    An opponent who saw the draw itself would make any forecaster wrong by .5.
    """
    served, y = [], []
    for t, q in enumerate(raw.tolist()):
        expected, p, ticket = calibrator.predict(q, (), b"%d" % t)
        outcome = float(expected <= 0.5)
        calibrator.update(ticket, outcome)
        served.append(p)
        y.append(outcome)
    return np.array(served), np.array(y)
