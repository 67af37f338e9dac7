"""Inputs and outputs of the engine."""

from math import isnan
from typing import Final, NamedTuple

from state import forecasts

#: Stands for the label where a record erases its event. It is NaN, so it equals nothing, not even itself.
ERASE: Final = float("nan")


def erases(y: float) -> bool:
    """Return whether a label is `ERASE`."""
    return isnan(y)


class Carried(NamedTuple):
    """Headers and fields that are copied from a record to its outputs; ``fields``: a JSON object or empty."""

    headers: tuple[tuple[str, bytes | None], ...]
    fields: bytes


class Forecast(NamedTuple):
    """A model's forecast, of the kind that its stream takes.

    ``x`` are features in [-1, 1], ``ts`` is in ms since the epoch. ``value`` is the record as it came, for the dead
    letter. ``segments`` are the values of the stream's segments in configured order, empty text where the record has no
    usable one. ``entity`` is a number (`state.entities.number`), 0 without an entity. ``weight``
    (`state.scoring.weighted`) and ``chance`` of a label (`state.chances`), in (0, 1], are 1 where the stream has none.
    ``version`` is that of the model; empty where all versions share a calibrator.
    """

    offset: int
    key: bytes | None
    event_id: str
    stream: str
    raw: forecasts.ForecastValue
    x: tuple[float, ...]
    ts: int
    value: bytes | None = None
    segments: tuple[str, ...] = ()
    carried: Carried | None = None
    entity: int = 0
    weight: float = 1.0
    chance: float = 1.0
    version: str = ""


class Outcome(NamedTuple):
    """What happened: ``y`` is finite, ``ts`` in ms since the epoch.

    If ``y`` is `ERASE`, the record erases its event.

    ``value`` is the record as it came, for the dead letter. ``revision`` is the record's own number, at least 1; 0 if
    it has none. ``carried`` has headers only.
    """

    offset: int
    key: bytes | None
    event_id: str
    y: float
    ts: int
    value: bytes | None = None
    revision: int = 0
    carried: Carried | None = None


class Rejected(NamedTuple):
    """A record that cannot be used. ``topic`` is `state.fence.FORECASTS` or `state.fence.OUTCOMES`.

    A ``withheld`` letter gives the record's place without its contents. ``forecast`` is the readable part of a forecast
    that may be answered with its raw score.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    topic: int
    reason: str
    withheld: bool = False
    forecast: Forecast | None = None


class Passed(NamedTuple):
    """A record that its source skips: only the next offset moves. ``topic`` is as in `Rejected`."""

    offset: int
    topic: int


class Calibrated(NamedTuple):
    """The answer to a forecast. All answers to one event are equal, except ``carried``, which each record brings.

    ``applied`` is the partition's count of applied records at the answer. ``band`` is empty and ``points`` None where
    the stream has none, or the score lies below all bands. ``low``, ``high`` and ``why`` are the interval and its
    reason, where the stream has intervals.
    """

    key: bytes | None
    event_id: str
    stream: str
    raw: forecasts.ForecastValue
    p: forecasts.ForecastValue
    draw: forecasts.ForecastValue
    calibrator: str
    config: str
    version: int
    ts: int
    applied: int
    carried: Carried | None = None
    band: str = ""
    points: int | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""


class Resolved(NamedTuple):
    """A forecast joined with its label.

    ``revision`` is 0 at first. Each change of the label makes another record, with 1, 2, and so on. ``implied``: no
    outcome came, and silence implied the label. ``carried`` comes from the outcome or forecast that caused this; None
    where stream time did.
    """

    key: bytes | None
    event_id: str
    stream: str
    raw: forecasts.ForecastValue
    p: forecasts.ForecastValue
    draw: forecasts.ForecastValue
    y: float
    calibrator: str
    version: int
    issued_ts: int
    resolved_ts: int
    revision: int
    implied: bool
    carried: Carried | None = None


Event = Forecast | Outcome | Rejected | Passed
Output = Calibrated | Resolved | Rejected
