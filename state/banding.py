"""Bands and points of each forecast, and thresholds that move to keep a volume. Runs once for each event."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, Self

from state.bands import Bands
from state.odds import FARTHEST, cut_log_odds
from state.quick import floats

#: Step of a threshold that keeps a volume, in log-odds, for each forecast in its band or above. If a new calibration
#: raises all scores by one unit of log-odds, twenty more forecasts pass, however many come.
RATE: Final = 0.05
#: The first and largest step, while too few forecasts have come to place a threshold.
FIRST: Final = 1.0

_COUNT: Final = Struct("<QB")
_MARKS: Final = Struct("<H4sBBBBiB")
#: Length in bytes of marks before the interval and the name; and the layout of an interval.
HEAD: Final = _MARKS.size
ENDS: Final = Struct("<2d")
#: Offsets in marks: of the hash of the bands, of the number of bands, and of the bands of the raw and the served score.
LAYOUT: Final = 2
WIDTH: Final = 6
BEFORE: Final = 7
NOW: Final = 8
#: Flags for the optional parts of marks.
_POINTS: Final = 1
_INTERVAL: Final = 2


class Thresholds:
    """Thresholds that move so that each band keeps its volume.

    Notes
    -----
    A forecast p is in the highest band b with log-odds(p) >= t_b. Then each threshold takes a step,
    t_b += η (1[p in band b or above] - w_b). Where shares are set, w_b is the share of b. Where a volume is held, w_b
    is 1 if the raw forecast is in b or above by the configured thresholds, else 0.

    **Promise.** Take any run of consecutive forecasts with step η. The number in band b or above, minus Σ w_b, is (t_b
    after - t_b before) / η. This is an identity, on any sequence. Thresholds never lie more than a step or two beyond
    the scores. So with η = `RATE` the number is off by 20 for each unit of log-odds that the threshold moved, and by
    1,000 at most. For shares the step is larger at first: 1 / (s n) after n forecasts, s the smallest share, at most
    `FIRST`; from n = 20 / s on it is `RATE`. The bound of 1,000 holds from the first forecast on, as steps never rise.

    **Not promised.** A threshold also moves when nothing has changed, by about .1 in log-odds. So one score may be in
    different bands at different times, and many equal scores near a threshold may be split. Forecasts placed by the
    same thresholds are in order.

    Bytes, little-endian: n (u64), how many thresholds follow (u8), and these (f64 each).

    References
    ----------
    Gibbs & Candès 2021, *Adaptive conformal inference under distribution shift*, proposition 4.1; Angelopoulos,
    Barber & Bates 2024, *Online conformal prediction with decaying step sizes*, theorem 1.

    Examples
    --------
    >>> bands = Bands(("", "review"), shares=(0.1,))
    >>> thresholds = Thresholds.of(bands)
    >>> sum(thresholds.place(bands, 0.0, (t * 7919 % 1000 + 0.5) / 1000)[1] for t in range(10_000))
    1010
    """

    __slots__ = ("at", "n")

    def __init__(self, at: Sequence[float], n: int = 0) -> None:
        #: The threshold of each band except the lowest, in log-odds.
        self.at = list(at)
        #: Forecasts placed so far.
        self.n = n

    @classmethod
    def of(cls, bands: Bands) -> Self:
        """Return the first thresholds: the shares themselves, which fit calibrated scores, or the configured ones."""
        return cls([cut_log_odds(each) for each in (bands.shares or bands.lows[1:])])

    def place(self, bands: Bands, raw: float, p: float) -> tuple[int, int]:
        """Return the bands of the raw and of the served score, then move the thresholds."""
        at, shares = self.at, bands.shares
        now = self._band(cut_log_odds(p))
        before = self._band(cut_log_odds(raw)) if shares else bands.place(raw)
        self.n += 1
        step = max(RATE, min(FIRST, 1.0 / (shares[-1] * self.n))) if shares else RATE
        for k in range(len(at)):
            wanted = shares[k] if shares else float(before > k)
            at[k] += step * ((1.0 if now > k else 0.0) - wanted)
        return before, now

    def _band(self, z: float) -> int:
        band = 0
        for k, threshold in enumerate(self.at):
            if z >= threshold:
                band = k + 1
        return band

    def __add__(self, other: Self) -> Self:
        """Return the mean of both thresholds, weighted by their forecasts."""
        n = self.n + other.n
        share = other.n / n if n else 0.0
        return type(self)([a + share * (b - a) for a, b in zip(self.at, other.at, strict=True)], n)

    def encode(self) -> bytes:
        """Return the thresholds; layout in the class's notes."""
        return _COUNT.pack(self.n, len(self.at)) + floats(len(self.at)).pack(*self.at)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote.

        Raises ValueError or struct.error if the bytes are too few or too many, or a threshold is impossible.
        """
        n, size = _COUNT.unpack_from(payload)
        at = floats(size).unpack(payload[_COUNT.size :])
        if any(abs(each) > 2.0 * FARTHEST for each in at):
            raise ValueError(f"thresholds {at!r} are beyond all log-odds")
        return cls(at, n)


class Marks(NamedTuple):
    """The band, points and interval of an answer; a ledger row keeps them."""

    #: `Bands.layout` and the number of bands; zeros without bands.
    layout: bytes
    width: int
    #: Numbers of the bands of the raw and the served score.
    before: int
    now: int
    #: Name of the served score's band; empty if it has none.
    band: str
    #: Points; None if the stream has none.
    points: int | None
    #: The interval and its reason (`state.evidence`); None and empty without intervals.
    low: float | None = None
    high: float | None = None
    why: str = ""

    def encode(self) -> bytes:
        """Return the marks as bytes.

        These are the number of bytes that follow (u16), layout, width, both bands, flags (u8 each; 1: points, 2: an
        interval), points (i32), bytes of the name (u8), the ends of the interval (f64 each) if there is one, the name,
        the reason.
        """
        layout, width, before, now, band, points, low, high, why = self
        name = band.encode()
        ends = b"" if low is None or high is None else ENDS.pack(low, high)
        flags = (_POINTS if points is not None else 0) | (_INTERVAL if ends else 0)
        rest = ends + name + why.encode()
        size = HEAD - LAYOUT + len(rest)
        return _MARKS.pack(size, layout, width, before, now, flags, points or 0, len(name)) + rest


#: Marks of a stream without bands, points and intervals.
_UNMARKED: Final = Marks(bytes(4), 0, 0, 0, "", None)


def marks(payload: bytes) -> Marks:
    """Read what `Marks.encode` wrote; no bytes mean no marks."""
    if not payload:
        return _UNMARKED
    _, layout, width, before, now, flags, points, size = _MARKS.unpack_from(payload)
    low = high = None
    at = HEAD
    if flags & _INTERVAL:
        low, high = ENDS.unpack_from(payload, at)
        at += ENDS.size
    band, why = payload[at : at + size].decode(), payload[at + size :].decode()
    return Marks(layout, width, before, now, band, points if flags & _POINTS else None, low, high, why)


def place(bands: Bands, thresholds: Thresholds | None, raw: float, p: float) -> tuple[int, int]:
    """Return the bands of the raw and of the served score. Moving thresholds take their step."""
    if thresholds is not None:
        return thresholds.place(bands, raw, p)
    before = now = -1
    for low in bands.lows:  # at most six; `bisect` takes six times as long
        before += raw >= low
        now += p >= low
    return before, now
