"""The configuration of bands of calibrated probabilities, and of points."""

import json
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Final

from state.odds import cut_log_odds

#: Most bands of a stream, and the longest name of one.
MOST: Final = 6
LONGEST: Final = 32
#: Largest `Points.base`, `Points.double` and `Points.odds`. Within these, points fit 32 bits.
BASE: Final = 1_000_000
DOUBLE: Final = 10_000
ODDS: Final = 1e9


@dataclass(frozen=True)
class Bands:
    """Bands of a calibrated probability, from the lowest to the highest.

    Raises ValueError if any of this does not hold.
    """

    #: Names of the bands, at least two. The lowest name is empty if no band begins at 0.
    names: tuple[str, ...]
    #: The lowest probability of each band, in [0, 1], increasing from 0; empty if ``shares`` give the sizes of bands.
    lows: tuple[float, ...] = ()
    #: For each band except the lowest: the share of forecasts that should fall in it or above, in (0, 1), falling.
    shares: tuple[float, ...] = ()
    #: Whether each band keeps the number of forecasts that raw scores would put there, see `state.banding`.
    hold: bool = False

    def __post_init__(self) -> None:
        if not 2 <= len(self.names) <= MOST:
            raise ValueError(f"bands: {len(self.names)} of them; 2 to {MOST} are allowed, all below the first included")
        folded = [name.strip().casefold() for name in self.names]
        for name, same in zip(self.names, folded, strict=True):
            if folded.count(same) > 1:
                raise ValueError(f"bands: {name!r} is used twice: give each band its own name")
            if len(name) > LONGEST or not name.isprintable():
                raise ValueError(f"bands: {name!r} must be printable text of at most {LONGEST} characters")
        if "" in self.names[1:]:
            raise ValueError("bands: a band has no name")
        if self.shares:
            _check_order(self.names[1:], [-share for share in self.shares], self.shares)
        else:
            _check_order(self.names, self.lows, self.lows)
        if self.hold and self.shares:
            raise ValueError(
                'hold = "volume" is for bands that begin at probabilities: shares keep their volume anyway'
            )

    @property
    def moving(self) -> bool:
        """Whether thresholds follow a volume."""
        return bool(self.shares) or self.hold

    @property
    def layout(self) -> bytes:
        """Hash of the whole configuration, 4 bytes. Counts of different bands cannot be added."""
        said = json.dumps([self.names, self.lows, self.shares, self.hold])
        return blake2b(said.encode(), digest_size=4).digest()

    def place(self, p: float) -> int:
        """Return the number of the band of a probability, from 0, by ``lows``."""
        return bisect_right(self.lows, p) - 1


def _check_order(names: Sequence[str], rising: Sequence[float], said: Sequence[float]) -> None:
    """Raise ValueError unless the limits lie in [0, 1], one for each band, in order."""
    shares = rising is not said
    for name, value in zip(names, said, strict=True):
        if not (0.0 < value < 1.0 if shares else 0.0 <= value <= 1.0):
            what = "a share must be above 0% and below 100%" if shares else "it must begin between 0 and 1"
            raise ValueError(f"bands: {name} = {_said(value, shares)}: {what}")
    if not shares and said[0] != 0.0:
        raise ValueError("bands: the lowest must begin at 0")
    limits = [_said(value, shares) for value in said]
    for (one, before), (other, after) in pairwise(zip(names, zip(rising, limits, strict=True), strict=True)):
        if before[0] >= after[0]:
            why = "it counts all above, so shares must fall" if shares else "order them from the lowest to the highest"
            raise ValueError(f"bands: {other} ({after[1]}) stands behind {one} ({before[1]}): {why}")


def _said(value: float, share: bool) -> str:  # noqa: FBT001 - of a message
    return f"{100.0 * value:.12g}%" if share else f"{value:g}"


@dataclass(frozen=True)
class Points:
    """Points of a scorecard: a whole number beside a probability.

    Raises ValueError if any is out of its range.

    Notes
    -----
    points = base + double / ln 2 · ln(((1 - p) / p) / odds), rounded to the nearest whole number, halves up. This is
    offset + factor · ln(odds) with factor = pdo / ln 2 and offset = base - factor · ln(odds at base), where pdo, points
    to double the odds, is ``double``. Log-odds are cut at those of 1e-9 and 1 - 1e-9. Points never rise with p where
    ``double`` is above 0; forecasts near each other have the same.

    References
    ----------
    Siddiqi 2006, *Credit Risk Scorecards*, chapter 6, "Scaling"; Thomas, Edelman & Crook 2002, *Credit Scoring and Its
    Applications*.
    """

    #: The points of a forecast whose odds are ``odds``.
    base: float
    #: Odds against the event, (1 - p) / p, above 0: 50 is 50 good ones for one bad.
    odds: float
    #: Points added when the odds double, not 0. Below 0, points rise with p.
    double: float

    def __post_init__(self) -> None:
        if not abs(self.base) <= BASE:
            raise ValueError(f"points: base must be within {BASE:,} of 0, got {self.base:g}")
        if not 1.0 / ODDS <= self.odds <= ODDS:
            raise ValueError(f"points: odds must be above 0 and at most {ODDS:g}, such as 50, got {self.odds:g}")
        if not 0.0 < abs(self.double) <= DOUBLE:
            raise ValueError(f"points: double must be within {DOUBLE:,} of 0 and not 0, got {self.double:g}")

    def of(self, p: float) -> int:
        """Return the points of a probability in [0, 1]."""
        good = -cut_log_odds(p) - math.log(self.odds)
        return math.floor(self.base + self.double / math.log(2.0) * good + 0.5)
