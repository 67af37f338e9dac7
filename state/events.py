"""What goes into the engine and what comes out of it."""

from typing import Final, NamedTuple

from state import forecasts

#: Stands for the label where a record erases its event. It is NaN, so it equals nothing, not even itself.
ERASE: Final = float("nan")


class Carried(NamedTuple):
    """What goes on from the record of a forecast to its answer, as it came: headers, and fields as a JSON object.

    ``fields`` is empty where there are none.
    """

    headers: tuple[tuple[str, bytes | None], ...]
    fields: bytes


class Forecast(NamedTuple):
    """A model's forecast, of the kind its stream takes. ``x`` in [-1, 1] each, ``ts`` in ms since the epoch.

    ``value`` is the record as it came, for the dead letter. ``segments`` are the values of the stream's segments,
    in the order of its configuration; empty text where the record has none that can be used. ``entity`` is the number
    of what the forecast is about (`state.entities.number`); 0 where the record names none. ``weight`` is what it weighs
    (`state.scoring.weighted`), and ``chance`` the chance that it has of a label (`state.chances`), in (0, 1]; each is 1
    where the stream has none. ``version`` is that of the model, of a stream whose versions have calibrators of their
    own; else empty.
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
    """What happened. ``y`` is finite, ``ts`` in ms since the epoch; ``value`` as it came, for the dead letter.

    One whose ``y`` is `ERASE` says that its event is to be erased.

    ``revision`` is the record's own revision number, at least 1; 0 if it has none.
    """

    offset: int
    key: bytes | None
    event_id: str
    y: float
    ts: int
    value: bytes | None = None
    revision: int = 0


class Rejected(NamedTuple):
    """A record that cannot be used. ``topic`` is `state.fence.FORECASTS` or `state.fence.OUTCOMES`.

    Of a record that decoding rejects, ``stream`` is the one it names, if that could be read, and ``ts`` its Kafka
    timestamp, ms. A letter that is ``withheld`` says where the record stands, and not what it holds. ``forecast`` is
    what could be read of a forecast that may be answered with its raw score.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    topic: int
    reason: str
    stream: str = ""
    ts: int = 0
    withheld: bool = False
    forecast: Forecast | None = None


class Passed(NamedTuple):
    """A record that its source says to pass over: the next offset moves on, no more. ``topic`` as in `Rejected`."""

    offset: int
    topic: int


class Calibrated(NamedTuple):
    """The answer to a forecast; one event's answers are all the same, but for what is ``carried`` from each record.

    ``applied`` is the partition's applied count at the answer: it says how many outcomes were applied before it.
    ``band`` is empty and ``points`` None where the stream has none, or no band is so low. ``low`` and ``high`` are what
    outcomes leave open of ``p``, and ``why`` the reason, where the stream has intervals.
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

    ``revision`` counts how often the label has changed: 0, then 1, 2, ... for each change, a record each. ``implied``
    says that no outcome came, and the label is the one that silence stands for.
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


Event = Forecast | Outcome | Rejected | Passed
Output = Calibrated | Resolved | Rejected
