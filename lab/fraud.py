"""Simulated card payments with a known true risk: rare fraud, scores that are far too high, and typical labels.

The true log-odds of fraud of a payment are a sum: what the model sees, an offset for its country and its channel, and a
slow drift. The model was trained on balanced classes, so its scores are `Shape.inflation` times too high on average. It
is overconfident by `SLOPE`, and does not know the segments' offsets. The label is drawn from the true risk. Frauds are
reported late. A good payment is not reported: it gets an explicit zero at the end, or no label. Some first labels are
wrong and are corrected.

The same shape gives the same stream, byte for byte. The demo and the benchmark play it. `research.fraud_bank` has real
scores in the same form.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from lab.player import TimedRecord, in_order
from state.arrays import Floats, Integers
from state.scoring.ages import DAY_MS

#: The stream of all payments.
STREAM: Final = "cards"
#: Earliest time of the first payment: 1 January 2026, ms.
START_MS: Final = 1_767_225_600_000


class FraudSegment(NamedTuple):
    """A segment: its share of all payments, in any unit, and its offset in log-odds of fraud."""

    share: float
    offset: float


#: Standard deviation of the log-odds that the model sees: an AUC of .83 at a rate of .4 %. The model
#: multiplies these log-odds.
SPREAD: Final = 1.35
SLOPE: Final = 1.2
_COUNTRIES: Final = {
    "NL": FraudSegment(9, 0.0),
    "DE": FraudSegment(5, -0.4),
    "BR": FraudSegment(4, 0.7),
    "ZA": FraudSegment(2, 1.1),
}
_CHANNELS: Final = {"web": FraudSegment(10, 0.0), "app": FraudSegment(7, -0.5), "phone": FraudSegment(3, 0.8)}


@dataclass(frozen=True)
class Shape:
    """The parameters of a stream."""

    #: Number of payments; 2,000 to 500,000 are usual.
    rows: int = 120_000

    seed: int = 0
    #: Days from the first payment to the last. Payments come at a steady rate.
    days: float = 180.0
    #: Mean true risk of all payments, in (0, 1). It is exact for all other parameters.
    rate: float = 0.004
    #: Mean raw score divided by ``rate``. It is exact. The product of both must be below 1.
    inflation: float = 40.0
    #: Linear change of the true log-odds from the first day to the last.
    drift: float = 0.1
    #: Frauds are reported between these ages, uniformly. On the latest day all other payments are known to be good.
    soonest_days: float = 1.0
    latest_days: float = 45.0
    #: ``explicit``: a good payment gets an outcome of 0 on the latest day. ``silence``: it gets no outcome.
    zeros: Literal["explicit", "silence"] = "silence"
    #: Share of frauds that are reported late, up to ``review_days`` after the latest day.
    missed: float = 0.01
    #: Mean share of reports of fraud that are wrong; a 0 corrects them up to ``review_days`` later.
    alarms: float = 0.01
    #: Longest time until a correction; the shortest is an hour.
    review_days: float = 30.0


class Reports(NamedTuple):
    """Outcomes in the order of time, [m] each."""

    #: Payment.
    row: Integers
    #: The reported label, 0 or 1.
    y: Integers
    #: Time of the report, ms since the epoch.
    ms: Integers
    #: 0 if the report is the payment's first label; 1 if it is a correction (perhaps of a label from silence).
    revision: Integers


@dataclass(frozen=True)
class Fraud:
    """Payments in the order of time, n rows, and the reports about them."""

    #: Unique.
    event_id: list[str]
    #: The model's score, in (0, 1), [n].
    raw: Floats
    #: True probability of fraud, [n]; NaN if unknown (`research.fraud_bank`).
    truth: Floats
    #: The final label, 1.0 for fraud or 0.0, [n]: the label of the last report, or of silence.
    y: Floats
    #: Times, ms since the epoch, [n].
    forecast_ms: Integers
    #: Names, [n]; empty if there are none.
    country: npt.NDArray[np.str_]
    channel: npt.NDArray[np.str_]
    #: Outcomes. Of two for the same payment, the later one counts.
    reports: Reports

    def __len__(self) -> int:
        return len(self.event_id)

    @property
    def records(self) -> int:
        """Forecasts and outcomes together."""
        return len(self) + len(self.reports.row)

    @property
    def days(self) -> Floats:
        """Days from `START_MS` to each payment, [n]."""
        return (self.forecast_ms - START_MS) / DAY_MS

    def messages(self, *, forecasts: str = "forecasts", outcomes: str = "outcomes") -> Iterator[TimedRecord]:
        """Yield every forecast and outcome in time order, for two topics; at equal times, forecasts first."""
        (row, y, ms, _), raw = self.reports, self.raw.tolist()
        for time, k, is_outcome in in_order(self.forecast_ms, ms):
            event_id = self.event_id[int(row[k]) if is_outcome else k]
            value: dict[str, object] = {"event_id": event_id}
            value |= {"y": int(y[k])} if is_outcome else {"stream": STREAM, "p": raw[k]}
            topic = outcomes if is_outcome else forecasts
            yield TimedRecord(time, topic, event_id.encode(), json.dumps(value).encode())


def make(shape: Shape | None = None) -> Fraud:
    """Make a stream.

    ``shape``: its parameters; None for the defaults of `Shape`.
    """
    shape = shape or Shape()
    rng = np.random.default_rng([shape.seed, 0xF4A0D])
    n = shape.rows
    seen = SPREAD * rng.standard_normal(n)
    forecast_ms = times(shape, rng)
    country, by_country = _segment(_COUNTRIES, n, rng)
    channel, by_channel = _segment(_CHANNELS, n, rng)
    offset = by_country + by_channel
    drift = shape.drift * ((forecast_ms - START_MS) / (shape.days * DAY_MS) - 0.5)
    truth = levelled(seen + offset + drift, shape.rate)
    rng.standard_normal(n)  # an error of the model's that it does not make: the streams stay those that were judged
    raw = levelled(SLOPE * seen, shape.rate * shape.inflation)
    y = (rng.random(n) < truth).astype(np.float64)
    return Fraud(
        event_id=[f"{STREAM}-{i:06d}" for i in range(n)],
        raw=raw,
        truth=truth,
        y=y,
        forecast_ms=forecast_ms,
        country=country,
        channel=channel,
        reports=reports(shape, y, truth, forecast_ms, rng),
    )


def times(shape: Shape, rng: np.random.Generator) -> Integers:
    """Return the payments' times in order, [rows], ms since the epoch."""
    found: Integers = np.sort(START_MS + (rng.random(shape.rows) * shape.days * DAY_MS).astype(np.int64))
    return found


def reports(shape: Shape, y: Floats, risk: Floats, forecast_ms: Integers, rng: np.random.Generator) -> Reports:
    """Return the reports about payments, in the order of time.

    ``shape``: says when reports come, and how often they are wrong at first.
    ``y``: the final labels, 0 or 1, [n].
    ``risk``: probability of fraud, in (0, 1), [n]. Good payments are wrongly reported in proportion to its odds.
    ``forecast_ms``: the payments' times, ms, [n].
    """
    n = len(y)
    fraud = y == 1
    missed = fraud & (rng.random(n) < shape.missed)
    # On average, the odds of good payments add up to the number of frauds. So this factor gives the share of wrong
    # reports.
    wrong = shape.alarms / (1 - shape.alarms)
    alarm = ~fraud & (rng.random(n) < wrong * risk / (1 - risk))
    day = shape.soonest_days + (shape.latest_days - shape.soonest_days) * rng.random(n)
    review = np.maximum(shape.review_days * rng.random(n), 1 / 24)
    early = (fraud & ~missed) | alarm
    zero = ~early if shape.zeros == "explicit" else np.zeros(n, dtype=np.bool_)

    def at(who: npt.NDArray[np.bool_], days: Floats | float, y: int, revision: int) -> list[Integers]:
        row = np.flatnonzero(who)
        ms = forecast_ms[row] + (np.broadcast_to(days, n)[row] * DAY_MS).astype(np.int64)
        return [row, np.full(len(row), y), ms, np.full(len(row), revision)]

    columns = [
        at(early, day, 1, 0),
        at(zero, shape.latest_days, 0, 0),
        at(missed, shape.latest_days + review, 1, 1),
        at(alarm, day + review, 0, 1),
    ]
    row, label, ms, revision = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.lexsort((row, ms))
    return Reports(row[order], label[order], ms[order], revision[order])


def _segment(
    segments: Mapping[str, FraudSegment], n: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.str_], Floats]:
    """Draw a segment for each payment; return the names and the offsets, [n] each."""
    share = np.array([each.share for each in segments.values()], dtype=np.float64)
    index = rng.choice(len(share), n, p=share / share.sum())
    return np.array(list(segments))[index], np.array([each.offset for each in segments.values()])[index]


def levelled(log_odds: Floats, mean: float) -> Floats:
    """Return probabilities, [n], of log-odds that are all shifted by one number so that the mean is ``mean``."""
    low, high = -40.0 - float(log_odds.max()), 40.0 - float(log_odds.min())
    probability: Callable[[float], Floats] = lambda by: 1 / (1 + np.exp(-(log_odds + by)))  # noqa: E731 - used here
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if probability(middle).mean() < mean else (low, middle)
    return probability((low + high) / 2)
