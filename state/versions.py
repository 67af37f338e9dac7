"""Versions of a stream's model: which are in use, and how a new version begins.

A stream with ``model_version`` has a calibrator for each version (`state.policy.Policy.of_version`). An outcome teaches
the version that made the forecast. A new version has no outcomes, and its labels may come weeks later. So it starts
with the map of the version before, *carried over by ranks*: at equal risk, both have the same share of scores above.

    g(z) = the log-odds that the version before serves where as large a share of its scores lies below as at z here,

The line that fits g best is carried over: by least squares, weighted by the information of the scores. This needs no
outcome. The versions may score side by side or one after the other. If the version before goes on scoring, its scores
since the new one began are compared: they are of the same events, or of the same time. If it stops and the population
changes at that moment, g is off by the change until outcomes come: see docs/explanation/calibrators.md, *A new version
of the model*.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import add
from struct import Struct
from typing import Final, NamedTuple, Self

from state.calibrators.carried import FEW
from state.counts import decode_cells, encode_cells
from state.odds import log_odds, probability
from state.scoring.ages import DAY_MS
from state.scoring.distribution import CELLS, EDGES

#: The most versions of a stream with a calibrator of their own. All others share one of this name.
MOST: Final = 8
OTHER: Final = "(other)"
#: Forecasts after which a version's counts are halved, so that they hold its last 4,096 to 8,192 forecasts.
COUNTED: Final = 8192
#: Least and largest slope of a carried line.
FLAT: Final = 0.05
STEEP: Final = 20.0
#: Versions are compared at ranks that have at least this many forecasts on either side.
BEYOND: Final = 5.0
#: A version scores beside a new one if its forecasts since the new one began are at least this share of the new one's.
BESIDE: Final = 0.5

_COUNT: Final = Struct("<B")
_VERSION: Final = Struct("<4sQqqQQ4d")
_LENGTH: Final = Struct("<B")

#: Log-odds at the ends of each cell. Scores of exactly 0 and 1 are single points beyond all others.
_ENDS: Final[tuple[tuple[float, float], ...]] = (
    (-14.5, -14.5),
    (-14.5, -14.0),
    *((k / 2, (k + 1) / 2) for k in range(-28, 28)),
    (14.0, 14.5),
    (14.5, 14.5),
)

#: Returns the answer to a raw forecast.
Answers = Callable[[float], float]


class CarriedLine(NamedTuple):
    """A line in log-odds."""

    slope: float
    offset: float


@dataclass(slots=True, eq=False)
class Version:
    """Counts of one version. What its calibrator learnt is not here."""

    #: Name of the version in records.
    name: str
    #: Hash of the configuration of its calibrator, 8 hex digits.
    config: str
    #: Number of its forecasts.
    forecasts: int = 0
    #: Stream time of its first and of its last forecast, ms.
    first_ms: int = 0
    last_ms: int = 0
    #: Number of ledger rows that it answered.
    held: int = 0
    #: Name of the version whose map it began with; empty: none.
    after: str = ""
    #: How many of its forecasts have an outcome that counts.
    outcomes: int = 0
    #: Sums over these forecasts: raw and served forecasts, outcomes, and raw minus served log loss in nats.
    raw: float = 0.0
    served: float = 0.0
    ones: float = 0.0
    gain: float = 0.0
    #: Its last raw forecasts, counted by cell of `state.scoring.distribution.EDGES`.
    cells: list[int] = field(default_factory=lambda: [0] * CELLS)
    #: The forecasts of ``cells`` that came since the latest new version began.
    beside: list[int] = field(default_factory=lambda: [0] * CELLS)

    def observe(self, raw: float, now_ms: int) -> None:
        """Count a forecast whose row is in the ledger."""
        self.forecasts += 1
        self.held += 1
        self.first_ms = self.first_ms or now_ms  # stream time lags behind the first record
        self.last_ms = now_ms
        cell = bisect_right(EDGES, raw)
        self.cells[cell] += 1
        self.beside[cell] += 1
        if self.forecasts % COUNTED == 0:
            self.cells, self.beside = ([n - n // 2 for n in each] for each in (self.cells, self.beside))

    def resolve(self, raw: float, p: float, y: float) -> None:
        """Count an outcome."""
        self.outcomes += 1
        self.raw += raw
        self.served += p
        self.ones += y
        self.gain += _loss(raw, y) - _loss(p, y)

    def revise(self, raw: float, p: float, was: float, y: float) -> None:
        """Replace an outcome that was counted."""
        self.ones += y - was
        self.gain += _loss(raw, y) - _loss(p, y) - _loss(raw, was) + _loss(p, was)

    def __add__(self, other: Self) -> Self:
        first, last = sorted((self, other), key=lambda each: each.first_ms)
        return type(self)(
            self.name,
            self.config,
            self.forecasts + other.forecasts,
            first.first_ms,
            max(self.last_ms, other.last_ms),
            self.held + other.held,
            first.after or last.after,
            self.outcomes + other.outcomes,
            self.raw + other.raw,
            self.served + other.served,
            self.ones + other.ones,
            self.gain + other.gain,
            list(map(add, self.cells, other.cells)),
            list(map(add, self.beside, other.beside)),
        )


class Versions:
    """The versions of one stream, in the order in which they came.

    Bytes, little-endian: how many (u8); of each the configuration (4 bytes), forecasts (u64), first and last stream
    time (i64, ms), rows held, outcomes (u64 each), the four sums (f64 each), name and ``after`` (u8 and text each),
    ``cells`` and ``beside`` as `state.counts.encode_cells` has them. At most 8 kB, usually 500 bytes.
    """

    def __init__(self) -> None:
        self.of: dict[str, Version] = {}

    def admit(self, name: str, config: str, now_ms: int) -> Version:
        """Return a version; a new one if it is unknown. ``config`` is that of its calibrator.

        There are `MOST` places. The caller removes `gone` versions, and asks whether places are `full`.
        """
        found = self.of.get(name)
        if found is None:
            for each in self.of.values():
                each.beside = [0] * CELLS
            found = self.of[name] = Version(name, config, first_ms=now_ms, last_ms=now_ms)
        return found

    def gone(self, now_ms: int, kept_ms: int) -> list[Version]:
        """Return the versions without a forecast for longer than ``kept_ms`` and without ledger rows."""
        return [each for each in self.of.values() if not each.held and now_ms - each.last_ms > kept_ms]

    def by(self, config: str) -> Version | None:
        """Return the version of a configuration."""
        return next((each for each in self.of.values() if each.config == config), None)

    def full(self) -> bool:
        """Whether all places are taken."""
        return len(self.of) - (OTHER in self.of) >= MOST

    def before(self, new: Version) -> Version | None:
        """Return the version whose map a new one begins with; None if there is none, or if it cannot be compared.

        It is the one with most forecasts, among the versions that scored on the last day with forecasts.
        """
        own = [each for each in self.of.values() if each is not new and each.name != OTHER and sum(each.cells) >= FEW]
        if new.after:
            own = [each for each in own if each.name == new.after] or own
        return max(own, key=lambda each: (each.last_ms // DAY_MS, each.forecasts), default=None)

    def __add__(self, other: Self) -> Self:
        """Return the versions of both."""
        made = type(self)()
        for each in (*self.of.values(), *other.of.values()):
            made.of[each.name] = made.of[each.name] + each if each.name in made.of else each
        return made

    def encode(self) -> bytes:
        """Return the bytes; layout in the class's notes."""
        parts = [_COUNT.pack(len(self.of))]
        for each in self.of.values():
            sums = each.raw, each.served, each.ones, each.gain
            head = bytes.fromhex(each.config), each.forecasts, each.first_ms, each.last_ms, each.held, each.outcomes
            counts = encode_cells(each.cells), encode_cells(each.beside)
            parts += [_VERSION.pack(*head, *sums), _text(each.name), _text(each.after), *counts]
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote. Raises ValueError, LookupError or struct.error if it is damaged."""
        made, at = cls(), _COUNT.size
        for _ in range(payload[0]):
            head = _VERSION.unpack_from(payload, at)
            config, forecasts, first_ms, last_ms, held, outcomes, raw, served, ones, gain = head
            name, at = _read(payload, at + _VERSION.size)
            after, at = _read(payload, at)
            cells, at = decode_cells(payload, at, CELLS, "a version")
            beside, at = decode_cells(payload, at, CELLS, "a version")
            counts = forecasts, first_ms, last_ms, held, after, outcomes, raw, served, ones, gain
            made.of[name] = Version(name, config.hex(), *counts, list(cells), list(beside))
        if at != len(payload) or len(made.of) != payload[0]:
            raise ValueError(f"versions of {len(payload)} bytes end at {at}, or one is there twice")
        return made


def line(new: Version, old: Version, answer: Answers) -> CarriedLine:
    """Return the line that carries the map of a version over to a new one, see the module.

    ``new, old``: both have forecasts in their cells.
    ``answer``: the old version's present map, from [0, 1] to [0, 1].
    """
    total = sum(new.cells)
    compared = old.beside if sum(old.beside) >= max(FEW, BESIDE * total) else old.cells
    least, below = min(total, sum(compared)), 0
    weight = sum_z = sum_g = sum_zz = sum_zg = 0.0
    for (low, high), n in zip(_ENDS, new.cells, strict=True):
        share = (below + n / 2) / total
        below += n
        if not n or min(share, 1.0 - share) * least < BEYOND:
            continue
        z = (low + high) / 2
        p = min(max(answer(probability(_quantile(compared, share))), 1e-9), 1.0 - 1e-9)
        g, w = log_odds(p), n * p * (1.0 - p)
        weight += w
        sum_z += w * z
        sum_g += w * g
        sum_zz += w * z * z
        sum_zg += w * z * g
    if weight <= 0.0:
        return CarriedLine(1.0, 0.0)
    mean_z, mean_g = sum_z / weight, sum_g / weight
    spread = sum_zz - weight * mean_z * mean_z
    slope = (sum_zg - weight * mean_z * mean_g) / spread if spread > 1e-9 * weight else 1.0
    slope = min(max(slope, FLAT), STEEP)
    return CarriedLine(slope, mean_g - slope * mean_z)


def _quantile(cells: Sequence[int], share: float) -> float:
    """Return the log-odds below which a share of the counts lies. Counts are spread evenly within a cell."""
    wanted = share * sum(cells)
    for (low, high), n in zip(_ENDS, cells, strict=True):
        if n and wanted <= n:
            return low + (high - low) * wanted / n
        wanted -= n
    return _ENDS[-1][1]


def _loss(p: float, y: float) -> float:
    """Return the log loss in nats, p cut to [1e-9, 1 - 1e-9]."""
    return -math.log(max(p if y > 0.5 else 1.0 - p, 1e-9))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _read(payload: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + payload[at]
    if end > len(payload):
        raise ValueError("versions are cut within a name")
    return payload[at + 1 : end].decode(), end
