"""Intervals of served scores, from how many ones came and how many were expected, by band of scores and by segment.

They do not depend on how a calibrator learns, so they are the same for every calibrator of one probability.
"""

import math
from collections.abc import Sequence
from struct import Struct
from typing import Final, Self

from state.odds import probability
from state.quick import log1p

#: Bands of raw scores are one unit of log-odds wide; so many lie on either side of one half.
SIDE: Final = 14
#: Information, Σ q(1 - q), after which an outcome counts half.
HALF: Final = 60.0
#: Number of forecasts over which the mean of served scores is taken.
NOW: Final = 64.0
#: Information that the prior (a shift of 0) counts as; and information added before the variance of a shift is taken.
PRIOR: Final = 1.0
LEAST: Final = 0.1
#: Least distance of a probability from 0 and 1 when its odds are taken.
LEAST_P: Final = 1e-9

_LN2: Final = math.log(2.0)
_OF_ALL: Final = Struct("<5dQ")
_CELL: Final = Struct("<b3dQQQ")


class Band:
    """Counts of one band of raw scores."""

    __slots__ = ("ever", "issued", "known", "n", "ones", "served")

    def __init__(self) -> None:
        #: Outcomes, outcomes that are 1, and mean of the last served scores. Older ones count less.
        self.n, self.ones, self.served = 0.0, 0.0, 0.0
        #: All forecasts, outcomes, and outcomes that are 1, however old.
        self.issued, self.known, self.ever = 0, 0, 0

    def rate(self) -> float:
        """Return the share of ones. The served mean counts as `PRIOR` of information."""
        q = min(max(self.served, LEAST_P), 1.0 - LEAST_P) if self.issued else 0.5
        k = PRIOR / (q * (1.0 - q))
        return (self.ones + k * q) / (self.n + k)

    def correct(self, change: int) -> None:
        """Revise the number of ones.

        The outcome may have come before intervals were set, and then was never counted.
        """
        self.ever = min(max(self.ever + change, 0), self.known)


class Evidence:
    """Outcomes against served scores: of a stream by `Band`, or of one segment.

    Notes
    -----
    An outcome y of a band with rate r counts half after `HALF` units of r (1 - r). A segment keeps n, A = Σ y and E = Σ
    r of the same outcomes. E is the number of ones to expect if the segment were like the whole stream. P is the mean
    of its last served scores, and Q the mean score that their bands are served. P / Q is the factor that the calibrator
    already gives to the segment.

    Bytes, little-endian: n, A, E, P, Q (f64 each) and forecasts (u64), of a segment; of each band that was seen, in
    ascending order, its number (i8), ``n``, ``ones``, ``served`` (f64 each), ``issued``, ``known``, ``ever`` (u64
    each).

    References
    ----------
    Indirect standardisation, actual against expected: Breslow & Day 1987, *The design and analysis of cohort studies*,
    section 2.3.
    """

    __slots__ = ("bands", "issued", "sums")

    def __init__(self) -> None:
        self.bands: dict[int, Band] = {}
        #: n, A, E, P, Q.
        self.sums = [0.0] * 5
        self.issued = 0

    def band(self, number: int) -> Band:
        """Return a band; a new one if necessary."""
        found = self.bands.get(number)
        if found is None:
            found = self.bands[number] = Band()
        return found

    @property
    def known(self) -> int:
        """Number of all outcomes, however old."""
        return sum(of.known for of in self.bands.values())

    def take_over(self, other: Self) -> None:
        """Go on from the outcomes of another calibrator. All scores that it served together count as one forecast."""
        made = type(self).decode(other.encode())
        self.bands, self.sums, self.issued = made.bands, made.sums, min(made.issued, 1)
        for of in self.bands.values():
            of.issued = min(of.issued, 1)

    def encode(self) -> bytes:
        """Return the evidence as bytes; layout in the class's notes."""
        cells = [
            _CELL.pack(number, of.n, of.ones, of.served, of.issued, of.known, of.ever)
            for number, of in sorted(self.bands.items())
        ]
        return _OF_ALL.pack(*self.sums, self.issued) + b"".join(cells)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote; raises `struct.error` if it is cut."""
        made = cls()
        *sums, made.issued = _OF_ALL.unpack_from(payload)
        made.sums = sums
        for number, *cell in _CELL.iter_unpack(payload[_OF_ALL.size :]):
            of = made.band(number)
            of.n, of.ones, of.served, of.issued, of.known, of.ever = cell
        return made


def band_of(raw: float) -> int:
    """Return the band of a raw score, in [0, 1]."""
    if raw <= 0.0 or raw >= 1.0:
        return -SIDE if raw <= 0.0 else SIDE - 1
    z = math.log(raw) - log1p(-raw) + SIDE
    return -SIDE if z < 0.0 else SIDE - 1 if z >= 2 * SIDE else int(z) - SIDE


def issue(number: int, p: float, whole: Evidence, segments: list[Evidence]) -> None:
    """Count a forecast of a band, served as p."""
    of = whole.band(number)
    of.issued += 1
    of.served += (p - of.served) / min(float(of.issued), NOW)
    for segment in segments:
        segment.issued += 1
        share, sums = 1.0 / min(float(segment.issued), NOW), segment.sums
        sums[3] += share * (p - sums[3])
        sums[4] += share * (of.served - sums[4])


def learn(number: int, y: float, whole: Evidence, segments: list[Evidence]) -> None:
    """Count an outcome, 0 or 1, of a forecast of a band."""
    of = whole.band(number)
    rate = of.rate()
    keep = math.exp(-_LN2 / HALF * rate * (1.0 - rate))
    of.n = keep * of.n + 1.0
    of.ones = keep * of.ones + y
    of.known += 1
    of.ever += int(y)
    for segment in segments:
        sums = segment.sums
        sums[0] = keep * sums[0] + 1.0
        sums[1] = keep * sums[1] + y
        sums[2] = keep * sums[2] + rate
        own = segment.band(number)
        own.known += 1
        own.ever += int(y)


def revise(number: int, change: int, whole: Evidence, segments: list[Evidence]) -> None:
    """Count a revision: 1 or -1. A revised label counts as much as a new one."""
    of = whole.band(number)
    of.ones = min(max(of.ones + change, 0.0), of.n)
    of.correct(change)
    for segment in segments:
        segment.sums[1] = min(max(segment.sums[1] + change, 0.0), segment.sums[0])
        segment.band(number).correct(change)


def interval(number: int, p: float, width: float, whole: Evidence, segments: list[Evidence]) -> tuple[float, float]:
    """Return the interval of a served score, within [0, 1].

    ``number, p``: band of the raw score, and what is served.
    ``width``: half the width in standard deviations.
    ``whole, segments``: evidence of the stream, and of each segment of the forecast.

    Notes
    -----
    Of n outcomes A are 1, where today's served scores would have expected M: n times the band's mean score, or E P / Q
    of a segment. So in log-odds outcomes lie logit(A / n) - logit(M / n) above the served scores, with variance 1 / (n
    q (1 - q)), q = A / n, apart from `PRIOR` and `LEAST`. Shifts of band and segments add up, and so do variances. The
    interval lies around the shifted score, and is extended until it holds p. So it is wide where outcomes contradict
    the served scores. It does not know of drift among forecasts without an outcome.
    """
    of = whole.bands.get(number)
    odds, variance = (1.0, 1.0 / LEAST) if of is None else _above(of.n, of.ones, of.n * of.served)
    for segment in segments:
        n, ones, expected, served, usual = segment.sums
        own, more = _above(n, ones, expected * served / usual if usual else expected)
        odds *= own
        variance += more
    q = min(max(p, LEAST_P), 1.0 - LEAST_P)
    odds *= q / (1.0 - q)
    spread = math.exp(width * math.sqrt(variance))
    return min(odds / (spread + odds), p), max(odds * spread / (1.0 + odds * spread), p)


def _above(n: float, ones: float, expected: float) -> tuple[float, float]:
    """Return the observed odds divided by the expected odds, and the variance of the ratio's logarithm."""
    if not n:
        return 1.0, 1.0 / LEAST
    q = min(max(expected / n, LEAST_P), 1.0 - LEAST_P)
    k = PRIOR / (q * (1.0 - q))
    rate = (ones + k * q) / (n + k)
    return rate * (1.0 - q) / ((1.0 - rate) * q), 1.0 / (n * rate * (1.0 - rate) + LEAST)


def reason(number: int, p: float, raw: float, whole: Evidence, named: Sequence[tuple[str, Evidence]]) -> str:
    """Return a sentence: how many outcomes of scores near ``raw`` were 1, in the stream and in its segments."""
    low = probability(float(number)) if number > -SIDE else 0.0
    high = probability(number + 1.0) if number < SIDE - 1 else 1.0
    n, ones = _counted(whole, number)
    where = f"scores from {low:.2g} to {high:.2g}"
    said = f"{where} were 1 in {_percent(ones, n)} of {n:,}" if n else f"no outcome of {where} is known"
    for name, segment in named:
        n, ones = _counted(segment, number)
        said += f"; {name} in {_percent(ones, n)} of {n:,}" if n else f"; {name}: none known"
    return f"raw {raw:.3g} -> {p:.3g}: {said}"


def _counted(of: Evidence, number: int) -> tuple[int, int]:
    found = of.bands.get(number)
    return (0, 0) if found is None else (found.known, found.ever)


def _percent(ones: int, n: int) -> str:
    return f"{100.0 * ones / n:.2g} %"
