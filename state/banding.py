"""Which band and how many points each forecast gets, and the thresholds that keep a volume; runs once an event."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, Self

from state.bands import FARTHEST, Bands, log_odds

#: Step of a threshold that keeps a volume, in log-odds. Each step up is a forecast in its band or above. So a change of
#: calibration that raises all scores by one unit of log-odds brings twenty of them more, however many forecasts come.
RATE: Final = 0.05
#: The largest step, while too few forecasts have come to know where a threshold belongs.
FIRST: Final = 1.0

_COUNT: Final = Struct("<QB")
_MARKS: Final = Struct("<4sBBBBiB")
_ENDS: Final = Struct("<2d")
#: Parts of marks that are there.
_POINTS: Final = 1
_INTERVAL: Final = 2


class Thresholds:
    """Thresholds that move so that each band keeps its volume.

    Attributes
    ----------
    n
        Forecasts that were placed.
    at
        The threshold of each band but the lowest, in log-odds.

    Notes
    -----
    A forecast p is in the highest band b with log-odds(p) >= t_b. Then each threshold takes a step,
    t_b += η (1[p in band b or above] - w_b). Where shares are set, w_b is the share of b. Where a volume is held, w_b
    is 1 if the raw forecast is in b or above by the configured thresholds, else 0.

    **What is promised.** Of any forecasts in a row, while the step is η: the number of those in band b or above, less
    Σ w_b, is (t_b after - t_b before) / η. This is an identity, on any sequence. Thresholds never leave the scores by
    more than a step or two. So with η = `RATE` the number is 20 off for each unit of log-odds by which the threshold
    moved, and never more than 1,000 off. For shares the step is larger at first: 1 / (s n) after n forecasts, s the
    smallest share, at most `FIRST`; from n = 20 / s on it is `RATE`. The bound of 1,000 holds from the first forecast
    on, as steps never rise.

    **What is not.** A threshold moves also when nothing has changed, by about .1 in log-odds. So one score may be in
    two bands at two times, and of many equal scores near a threshold only some are in the upper one. Forecasts that are
    placed by the same thresholds are in order.

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
        self.at = list(at)
        self.n = n

    @classmethod
    def of(cls, bands: Bands) -> Self:
        """Return where thresholds begin: at the shares themselves, which fit calibrated scores, or as configured."""
        return cls([log_odds(each) for each in (bands.shares or bands.lows[1:])])

    def place(self, bands: Bands, raw: float, p: float) -> tuple[int, int]:
        """Return the bands of a raw forecast and of what is served, and let the thresholds follow."""
        at, shares = self.at, bands.shares
        now = self._band(log_odds(p))
        before = self._band(log_odds(raw)) if shares else bands.place(raw)
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
        """Return the thresholds between those of both, weighed by their forecasts."""
        n = self.n + other.n
        share = other.n / n if n else 0.0
        return type(self)([a + share * (b - a) for a, b in zip(self.at, other.at, strict=True)], n)

    def encode(self) -> bytes:
        """Return the thresholds; layout in the class's notes."""
        return _COUNT.pack(self.n, len(self.at)) + Struct(f"<{len(self.at)}d").pack(*self.at)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote.

        Raises
        ------
        ValueError, struct.error
            If it is cut or too long, or a threshold lies where none can be.
        """
        n, size = _COUNT.unpack_from(payload)
        at = Struct(f"<{size}d").unpack(payload[_COUNT.size :])
        if any(abs(each) > 2.0 * FARTHEST for each in at):
            raise ValueError(f"thresholds {at!r} are beyond all log-odds")
        return cls(at, n)


class Marks(NamedTuple):
    """What was said of a forecast beside its probability; a ledger row keeps it.

    Attributes
    ----------
    layout, width
        `Bands.layout`, and how many there are; zeros where there are none.
    before, now
        Numbers of the bands of the raw and of the served forecast.
    band
        Name of the latter; empty where it has none.
    points
        None where a stream has none.
    low, high, why
        What outcomes leave open, and the reason (`state.evidence`); None and empty where a stream has no intervals.
    """

    layout: bytes
    width: int
    before: int
    now: int
    band: str
    points: int | None
    low: float | None = None
    high: float | None = None
    why: str = ""

    def encode(self) -> bytes:
        """Return it as bytes.

        These are layout, width, both bands, what is there (u8 each; 1: points, 2: an interval), points (i32), bytes of
        the name (u8), the ends of the interval (f64 each) if it is there, the name, the reason.
        """
        layout, width, before, now, band, points, low, high, why = self
        name = band.encode()
        ends = b"" if low is None or high is None else _ENDS.pack(low, high)
        flags = (_POINTS if points is not None else 0) | (_INTERVAL if ends else 0)
        return _MARKS.pack(layout, width, before, now, flags, points or 0, len(name)) + ends + name + why.encode()


def marks(payload: bytes) -> Marks:
    """Read what `Marks.encode` wrote."""
    layout, width, before, now, flags, points, size = _MARKS.unpack_from(payload)
    low = high = None
    at = _MARKS.size
    if flags & _INTERVAL:
        low, high = _ENDS.unpack_from(payload, at)
        at += _ENDS.size
    band, why = payload[at : at + size].decode(), payload[at + size :].decode()
    return Marks(layout, width, before, now, band, points if flags & _POINTS else None, low, high, why)


#: What is said of forecasts of streams that say nothing of them.
UNMARKED: Final = Marks(bytes(4), 0, 0, 0, "", None)


def place(bands: Bands, thresholds: Thresholds | None, raw: float, p: float) -> tuple[int, int]:
    """Return the bands of a raw forecast and of what is served; thresholds that move take their step."""
    return (bands.place(raw), bands.place(p)) if thresholds is None else thresholds.place(bands, raw, p)
