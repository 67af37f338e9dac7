"""Scores of a stream's segments, for every kind of forecast."""

from collections.abc import Sequence
from functools import cache
from operator import sub
from struct import Struct
from typing import Any, Final, Self, cast

from state.forecasts import PROBABILITY, Classwise, Quantiles
from state.scoring import segment_scores
from state.scoring.cells import GRAIN
from state.scoring.history import WINDOW
from state.scoring.pair_scores import KIND_OF, PairScores, observe
from state.scoring.recent import Recent, RecentLevels
from state.scoring.segment_scores import SegmentScores
from state.scoring.tallies import LevelTally
from state.scoring.vector_history import WINDOW as VECTOR_WINDOW
from state.scoring.warm_up import SegmentWarmUp

#: The most levels in recent windows, and the most classes that they keep one by one.
MOST: Final = 8
#: How many windows of a stream of classes or numbers make one recent window of 5,000 events.
TOGETHER: Final = WINDOW // VECTOR_WINDOW

_ISSUED: Final = Struct("<4Q")


class SegmentPairScores(PairScores):
    """Scores of one segment of a stream of classes or numbers, raw and served.

    Notes
    -----
    **Recent windows** are those of `state.scoring.recent`. For numbers they have the levels, at most `MOST`, spread
    evenly from the first to the last. For classes they have binary events: that the likeliest class occurs, and, of at
    most `MOST` classes, that each occurs. These depend on one another; the alarm allows for it.

    Bytes, little-endian: ``issued``, ``known``, ``expired``, ``age_ms`` (u64 each), the warm-up, then those of
    `PairScores`. If there are recent windows, then how many binary events or levels these have (u8), and the windows.
    At most 2,435 bytes for classes, 1,535 for three of them; 974 for numbers with seven levels, and 11 kB with 256.
    """

    __slots__ = ("age_ms", "expired", "issued", "known", "recent", "warm_up")

    def __init__(self) -> None:
        super().__init__()
        #: These counts and ``warm_up`` are as in `state.scoring.segment_scores.SegmentScores`.
        self.issued = 0
        self.known = 0
        self.age_ms = 0
        self.expired = 0
        #: The last windows of served forecasts; None before the first event.
        self.recent: Recent | None = None
        self.warm_up = SegmentWarmUp()

    def _joined(self, other: Self, sign: int) -> Self:
        total = super()._joined(other, sign)
        total.issued = self.issued + sign * other.issued
        total.known = self.known + sign * other.known
        total.age_ms = self.age_ms + sign * other.age_ms
        total.expired = self.expired + sign * other.expired
        total.warm_up = self.warm_up.joined(other.warm_up) if sign > 0 else self.warm_up
        one, two = self.recent, other.recent if sign > 0 else None
        total.recent = one + two if one is not None and two is not None else two if one is None else one
        return total

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        head = _ISSUED.pack(self.issued, self.known, self.expired, self.age_ms) + self.warm_up.encode()
        sums = head + super().encode()
        recent = self.recent
        return sums if recent is None or self.tally is None else sums + KIND_OF.pack(recent.marks) + recent.encode()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote; raises as `PairScores.decode` does."""
        head = _ISSUED.unpack_from(payload)
        warm_up = SegmentWarmUp.decode(payload, _ISSUED.size)
        payload = payload[_ISSUED.size + SegmentWarmUp.SIZE :]
        scores, at = cls.read(payload)
        scores.warm_up = warm_up
        scores.issued, scores.known, scores.expired, scores.age_ms = head
        tally = scores.tally
        if tally is not None and at < len(payload):
            (marks,) = KIND_OF.unpack_from(payload, at)
            recent = RecentLevels(kept(tally.levels)) if isinstance(tally, LevelTally) else Recent(marks)
            if recent.marks != marks or not marks:
                raise ValueError(f"recent windows have {marks} binary events or levels")
            at = recent.decode(payload, at + KIND_OF.size)
            scores.recent = recent
        if at != len(payload):
            raise ValueError(f"scores of a segment of {len(payload)} bytes end after {at}")
        return scores


#: Scores of a segment, of every kind of forecast.
AnySegmentScores = SegmentScores | SegmentPairScores


def of_segment(kind: int) -> AnySegmentScores:
    """Return empty scores of a segment, for a kind of forecast."""
    return SegmentScores() if kind == PROBABILITY else SegmentPairScores()


def observe_segments(
    found: Sequence[AnySegmentScores],
    raw: Any,  # noqa: ANN401 - of the segments' kind
    served: Any,  # noqa: ANN401 - as above
    y: float,
    window: int = 0,
    sign: int = 1,
) -> None:
    """Add an event to each of its segments, and to their recent windows.

    Raises ValueError as `observe` does.

    ``raw, served, y``: what was forecast and served, and the outcome.
    ``window``: the window of the stream, see `state.scoring.windows.Windows.windows`. It never falls.
    ``sign``: 1, or -1 to take an event out of the sums of all events; recent windows keep it.
    """
    if not found:
        return
    if isinstance(found[0], SegmentScores):
        segment_scores.observe(cast("Sequence[SegmentScores]", found), raw, served, y, window, sign)
        return
    segments = cast("Sequence[SegmentPairScores]", found)
    observe(segments, raw, served, y, sign)
    if sign < 0:
        return
    sums = _marks(served, y)
    for each in segments:
        recent = each.recent
        if recent is None:
            recent = each.recent = _of_marks(served)
        recent.add(sums, window // TOGETHER)


def revise_segments(
    found: Sequence[AnySegmentScores],
    raw: Any,  # noqa: ANN401 - of the segments' kind
    served: Any,  # noqa: ANN401 - as above
    was: float,
    y: float,
    window: int,
) -> None:
    """Change the label of an event that was observed in a window of the stream."""
    if not found:
        return
    if isinstance(found[0], SegmentScores):
        segment_scores.revise(cast("Sequence[SegmentScores]", found), raw, served, was, y, window)
        return
    segments = cast("Sequence[SegmentPairScores]", found)
    observe(segments, raw, served, was, -1)
    observe(segments, raw, served, y)
    change = list(map(sub, _marks(served, y), _marks(served, was)))
    for each in segments:
        if each.recent is not None:
            each.recent.change(change, window // TOGETHER)


def kept(levels: Sequence[float]) -> tuple[float, ...]:
    """Return the levels in recent windows: all, or `MOST` of them, the first and the last included."""
    return tuple([levels[i] for i in _places(len(levels))])


@cache
def _places(m: int) -> tuple[int, ...]:
    return tuple(range(m)) if m <= MOST else tuple([round(i * (m - 1) / (MOST - 1)) for i in range(MOST)])


def _of_marks(served: Classwise | Quantiles) -> Recent:
    """Return empty recent windows, for forecasts of the same shape as this one."""
    if isinstance(served, Classwise):
        return Recent(1 + len(served) if len(served) <= MOST else 1)
    return RecentLevels(kept(served.levels))


def _marks(served: Classwise | Quantiles, y: float) -> list[float]:
    """Return the sums of an event as recent windows have them, see `SegmentPairScores`."""
    if isinstance(served, Classwise):
        top, k = max(served), int(y)
        happened = [float(served.index(top) == k)]
        near = [top + GRAIN - GRAIN]  # `grain` is written out: calls would double the time
        if len(served) <= MOST:
            happened += [float(i == k) for i in range(len(served))]
            near += [p + GRAIN - GRAIN for p in served]
        return [1.0, *happened, *near, *[p * p + GRAIN - GRAIN for p in near]]
    values = [served.values[i] for i in _places(len(served.values))]
    return [1.0, *[float(y < q) for q in values], *[float(y <= q) for q in values]]
