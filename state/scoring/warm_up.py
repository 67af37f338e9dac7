"""The warm-up of a configuration: which forecasts belong to it; and their outcomes, which no scores count."""

from struct import Struct
from typing import Any, ClassVar, Final, Self, cast

from state.forecasts import Classwise, Law, Quantiles
from state.scoring.alarm import log_wealth
from state.scoring.cells import Bin, grain

#: Distance within which a served score is the raw one: maps that have learnt nothing round differently.
SAME: Final = 1e-9
#: Outcomes after which a warm-up ends although raw scores are served: there was no evidence against them.
LONGEST: Final = 5000
#: Outcomes in a segment's own warm-up, after the stream's.
OF_SEGMENT: Final = 250

_SUMS: Final = Struct("<Q3d")
_SEGMENT: Final = Struct("<IQ")


def differs(raw: Any, p: Any) -> bool:  # noqa: ANN401 - of the stream's kind
    """Whether a served forecast differs from the raw one."""
    if isinstance(raw, float):
        return abs(cast("float", p) - raw) > SAME
    if isinstance(p, Quantiles):
        before = [cast("Law", raw).ppf(level) for level in p.levels]
        return any(abs(one - other) > SAME * max(1.0, abs(one)) for one, other in zip(before, p.values, strict=True))
    return any(abs(one - other) > SAME for one, other in zip(raw, p, strict=True))


class WarmUp:
    """Sums over the resolved forecasts of the warm-up: how far the raw forecasts are off.

    Notes
    -----
    Forecasts belong to the warm-up of a configuration on a partition until the first one that ends it
    (`state.served.Served.warms`). Their ledger rows say so. Their outcomes teach the calibrator as usual, but count
    only here: in no score, window, alarm, segment or comparison.

    Each forecast counts as one binary event with a probability: for a probability the event itself, for classes that
    the likeliest one occurs, for numbers that the outcome lies below the median.

    Bytes, little-endian: n (u64), Σp, Σy, Σp² (f64 each). Sums are rounded as in `state.scoring.scores`, so a revision
    leaves no trace of the old label.

    Examples
    --------
    >>> warm = WarmUp()
    >>> for y in (0.0, 0.0, 0.0, 1.0):
    ...     warm.observe(0.5, y)
    >>> warm.n, warm.mean, warm.observed
    (4, 0.5, 0.25)
    """

    __slots__ = ("n", "p", "pp", "y")

    def __init__(self) -> None:
        #: Events.
        self.n = 0
        #: Σp, Σy, Σp² of raw forecasts p and outcomes y.
        self.p = 0.0
        self.y = 0.0
        self.pp = 0.0

    def observe(self, raw: Any, y: float, sign: int = 1) -> None:  # noqa: ANN401 - of the stream's kind
        """Add a resolved forecast of the warm-up, or take it out."""
        p, happened = _event(raw, y)
        near = grain(p)
        self.n += sign
        self.p += sign * near
        self.y += sign * happened
        self.pp += sign * grain(near * near)

    def __add__(self, other: Self) -> Self:
        return self._joined(other, 1)

    def __sub__(self, other: Self) -> Self:
        """Return the sums of ``self`` without those of ``other``, which must be a subset."""
        return self._joined(other, -1)

    def _joined(self, other: Self, sign: int) -> Self:
        total = type(self)()
        total.n = self.n + sign * other.n
        total.p = self.p + sign * other.p
        total.y = self.y + sign * other.y
        total.pp = self.pp + sign * other.pp
        return total

    @property
    def mean(self) -> float:
        """The mean raw probability; 0 without events."""
        return self.p / self.n if self.n else 0.0

    @property
    def observed(self) -> float:
        """The share that happened; 0 without events."""
        return self.y / self.n if self.n else 0.0

    @property
    def log_alarm(self) -> float:
        """The log of the evidence that the mean of the raw forecasts is wrong, in nats: see `state.scoring.alarm`."""
        return log_wealth([Bin(float(self.n), self.p, self.y, self.pp, 0.0)])

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        return _SUMS.pack(self.n, self.p, self.y, self.pp)

    @classmethod
    def decode(cls, payload: bytes, at: int) -> tuple[Self, int]:
        """Read what `encode` wrote at an offset; return it and the offset after it; ValueError if it is cut."""
        found = cls()
        if len(payload) < at + _SUMS.size:
            raise ValueError(f"sums of a warm-up of {len(payload) - at} bytes are shorter than {_SUMS.size}")
        found.n, found.p, found.y, found.pp = _SUMS.unpack_from(payload, at)
        return found, at + _SUMS.size


class SegmentWarmUp:
    """The warm-up of a segment: `OF_SEGMENT` outcomes after the stream's, and the forecasts answered until then.

    At first a new segment is served what other segments have taught, so its first forecasts may be far off until its
    own outcomes come. These forecasts count in the stream's scores, but not in the segment's.

    Notes
    -----
    Bytes, little-endian: ``outcomes`` (u32), ``since`` (u64).
    """

    __slots__ = ("outcomes", "since")

    SIZE: ClassVar[int] = _SEGMENT.size

    def __init__(self, outcomes: int = 0, since: int = 0) -> None:
        #: Outcomes counted until the warm-up is over.
        self.outcomes = outcomes
        #: Answers count from this count of applied records of the partition on; 0 before the warm-up is over.
        self.since = since

    def admits(self, born: int, applied: int) -> bool:
        """Whether an outcome counts in the segment's scores. If not, it brings the end of the warm-up nearer.

        ``born`` and ``applied``: the partition's count of applied records when its forecast was answered, and now.
        """
        if self.since:
            return born >= self.since
        self.outcomes += 1
        if self.outcomes >= OF_SEGMENT:
            self.since = max(applied, born + 1)
        return False

    def admitted(self, born: int) -> bool:
        """Whether the outcome of a forecast answered at ``born`` has counted."""
        return 0 < self.since <= born

    def joined(self, other: "SegmentWarmUp") -> "SegmentWarmUp":
        """Return the warm-up of a segment over two partitions. It is over if it is over in one of them."""
        return SegmentWarmUp(self.outcomes + other.outcomes, max(self.since, other.since))

    def encode(self) -> bytes:
        """Return both numbers; layout in the class's notes."""
        return _SEGMENT.pack(self.outcomes, self.since)

    @classmethod
    def decode(cls, payload: bytes, at: int = 0) -> "SegmentWarmUp":
        """Read what `encode` wrote at an offset."""
        return cls(*_SEGMENT.unpack_from(payload, at))


def _event(raw: Any, y: float) -> tuple[float, float]:  # noqa: ANN401 - of the stream's kind
    """Return the probability of the binary event of a raw forecast, and whether it happened."""
    if isinstance(raw, float):
        return raw, y
    if isinstance(raw, Classwise):
        return max(raw), float(raw.argmax() == int(y))
    return 0.5, float(y < cast("Law", raw).ppf(0.5))
