"""What goes into the engine and what comes out of it."""

from typing import NamedTuple


class Forecast(NamedTuple):
    """A model's forecast. ``p`` in [0, 1], ``x`` in [-1, 1] each, ``ts`` in ms since the epoch."""

    offset: int
    key: bytes | None
    event_id: str
    stream: str
    p: float
    x: tuple[float, ...]
    ts: int


class Outcome(NamedTuple):
    """What happened. ``y`` is 0.0 or 1.0, ``ts`` in ms since the epoch."""

    offset: int
    key: bytes | None
    event_id: str
    y: float
    ts: int


class Rejected(NamedTuple):
    """A record that cannot be used. ``topic`` is `state.fence.FORECASTS` or `state.fence.OUTCOMES`."""

    offset: int
    key: bytes | None
    value: bytes | None
    topic: int
    reason: str


class Calibrated(NamedTuple):
    """The answer to a forecast; one event's answers are all the same."""

    key: bytes | None
    event_id: str
    stream: str
    raw: float
    p: float
    expected: float
    calibrator: str
    config: str
    version: int
    ts: int


class Resolved(NamedTuple):
    """A forecast joined with its outcome."""

    key: bytes | None
    event_id: str
    stream: str
    raw: float
    p: float
    y: float
    calibrator: str
    version: int
    issued_ts: int
    resolved_ts: int


Event = Forecast | Outcome | Rejected
Output = Calibrated | Resolved | Rejected
