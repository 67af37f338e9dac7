"""What a step of the rate costs where labels are late, and four ways to owe less: log loss of the map beside them.

``TRUEUP_COMPILED=no python -m research.debt [--seeds N] [chose] [judged]``: after a step the slow map, the blend's
offset and the bend all learn the same error, from tickets as they were issued. Each way moves a ticket before it is
learnt. With s what the slow map answers now less what it answered when the ticket was issued:

- *all of it*: by s.
- *less its mean*: by s less its mean so far, forgotten as the blend forgets.
- *beyond a quarter*: by what s exceeds `OWED` by. The bend learns at most so far from what the blend answers now.
- *the bend alone*: it learns at most `NEAR` from what the blend answers now; blend and slow map are as they were.

Printed are log loss less raw's of `TwoSpeed`, in %, and of each way that less `TwoSpeed`'s, with a standard error
clustered by day. Streams that need ``make data`` are left out without it.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from replay.measure import log_losses
from research.experiments.streams import stream
from state.arrays import Floats, Integers
from state.calibrators.twospeed import BLEND, LAGS, REACH, TwoSpeed

OWED: Final = 0.25
NEAR: Final = 0.15
_ISSUED: Final = Struct("<ddffff")
_LN2: Final = math.log(2.0)


class Shifted(TwoSpeed):
    """`TwoSpeed` that moves a ticket by what `moved` says of s."""

    near = math.inf

    def moved(self, s: float, lag: float, information: float) -> float:
        """Return by how much a ticket is moved; ``lag`` and what its outcome says, in units of information."""
        del lag, information
        return s

    def update(self, ticket: bytes, y: float) -> None:
        """Move the ticket, and learn from it."""
        if len(ticket) == _ISSUED.size:
            z, since, u, f, v, r = _ISSUED.unpack(ticket)
            now = self._a * self._read(z) + self._b
            d = min(max(f - u, -REACH), REACH)
            q = 1.0 / (1.0 + math.exp(-min(max(u, -30.0), 30.0)))
            shift = self.moved(now - u, self._information - since, q * (1.0 - q))
            u, f = u + shift, f + shift
            today = u + self._c + self._e * d
            v = v + shift if self.near == math.inf else min(max(v, today - self.near), today + self.near)
            ticket = _ISSUED.pack(z, since, u, f, v, r)
        super().update(ticket, y)


class LessItsMean(Shifted):
    """Shift by s less its mean."""

    _mean = _weight = 0.0

    def moved(self, s: float, lag: float, information: float) -> float:
        """Learn the mean, too."""
        fade = information * _LN2 / max(BLEND, 2.0 * LAGS * lag)
        self._weight = (1.0 - fade) * self._weight + information
        self._mean += information * (s - self._mean) / max(self._weight, 1e-9)
        return s - self._mean


class Beyond(Shifted):
    """Shift by what s exceeds `OWED` by."""

    near = OWED

    def moved(self, s: float, lag: float, information: float) -> float:
        """Leave what is owed."""
        del lag, information
        return s - min(max(s, -OWED), OWED)


class BendAlone(Shifted):
    """Let only the bend owe less."""

    near = NEAR

    def moved(self, s: float, lag: float, information: float) -> float:
        """Leave all."""
        del s, lag, information
        return 0.0


WAYS: Final[dict[str, type[TwoSpeed]]] = {
    "all of it": Shifted,
    "less its mean": LessItsMean,
    "beyond a quarter": Beyond,
    "the bend alone": BendAlone,
}


class Played(NamedTuple):
    """Raw scores, outcomes, how many forecasts come before each is known, and the day of each; [n]."""

    raw: Floats
    y: Floats
    due: Integers
    day: Floats


def made(
    rate: float, late: float, shift: Callable[[Floats], Floats], days: float = 240.0, n: int = 24_000
) -> Callable[[int], Played]:
    """Make right scores, whose odds then change by a shift of the day that no score sees."""

    def make(seed: int) -> Played:
        rng = np.random.default_rng(seed)
        day = np.sort(rng.random(n) * days)
        z = 1.35 * rng.standard_normal(n) + math.log(rate / (1.0 - rate)) - 0.91 * (1.0 - rate)
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-z - shift(day)))).astype(np.float64)
        due = np.searchsorted(day, day + late, side="right")
        return Played(1.0 / (1.0 + np.exp(-z)), y, np.maximum(due, np.arange(n) + 1), day)

    return make


def real(name: str, late: int, rows: int = 100_000) -> Callable[[int], Played]:
    """Return a real stream whose outcomes come so many forecasts later."""

    def once(_: int) -> Played:
        whole = stream(name)
        known = np.flatnonzero(~np.isnan(whole.y))
        due = np.searchsorted(known, whole.due[known]) + late
        place = np.arange(len(known))
        day = place / {"bank": 60, "elec2": 48, "flights": 850}[name]
        return Played(whole.p[known][:rows], whole.y[known][:rows], np.maximum(due, place + 1)[:rows], day[:rows])

    return once


def step(times: float) -> Callable[[Floats], Floats]:
    """Return odds that are so many times as high from day 100 on."""
    return lambda day: np.where(day < 100.0, 0.0, math.log(times))


def wave(height: float, days: float) -> Callable[[Floats], Floats]:
    """Return a wave of log-odds."""
    return lambda day: height * np.sin(2.0 * math.pi * day / days)


STREAMS: Final[dict[str, dict[str, Callable[[int], Played]]]] = {
    "chose": {
        "odds x 3, 2 %, 30 days late": made(0.02, 30.0, step(3.0)),
        "odds x 3, 10 %, 30 days late": made(0.1, 30.0, step(3.0)),
        "odds x 3, 10 %, 60 days late": made(0.1, 60.0, step(3.0), 360.0, 36_000),
        "odds x 1/3, 10 %, 30 days late": made(0.1, 30.0, step(1.0 / 3.0)),
        "up and down every 40 days, 20 late": made(0.1, 20.0, lambda day: math.log(3.0) * ((day // 40.0) % 2.0)),
        "a year's wave, 60 days late": made(0.1, 60.0, wave(0.7, 360.0), 720.0, 48_000),
        "drift by 2 a year, 60 days late": made(0.05, 60.0, lambda day: day / 180.0, 360.0, 36_000),
        "odds x 10 for 15 days, 1 %, 30 late": made(
            0.01, 30.0, lambda day: np.where((day >= 100.0) & (day < 115.0), 2.3, 0.0)
        ),
        "bank, 500 late": real("bank", 500),
        "bank, 2,000 late": real("bank", 2000),
        "Elec2, 500 late": real("elec2", 500),
        "Elec2, 2,000 late": real("elec2", 2000),
    },
    "judged": {
        "odds x 2, 10 %, 30 days late": made(0.1, 30.0, step(2.0)),
        "odds x 5, 5 %, 45 days late": made(0.05, 45.0, step(5.0)),
        "odds x 1/5, 20 %, 20 days late": made(0.2, 20.0, step(0.2)),
        "drift by 1 in 240 days, 45 late": made(0.1, 45.0, lambda day: day / 240.0),
        "a wave of 60 days, 20 late": made(0.1, 20.0, wave(0.6, 60.0)),
        "a wave of 180 days, 45 late": made(0.1, 45.0, wave(0.6, 180.0), 540.0, 40_000),
        "odds x 5 for 20 days, 5 %, 30 late": made(
            0.05, 30.0, lambda day: np.where((day >= 100.0) & (day < 120.0), 1.6, 0.0)
        ),
        "right, 5 %, 45 days late": made(0.05, 45.0, np.zeros_like),
        "flights, a third": real("flights", 0),
        "flights, a third, 2,000 later": real("flights", 2000),
    },
}


def served(calibrator: TwoSpeed, played: Played) -> Floats:
    """Return what a calibrator serves, [n]."""
    due, y = played.due.tolist(), played.y.tolist()
    order: list[int] = np.argsort(played.due, kind="stable").tolist()
    p, tickets, k = np.empty(len(y)), [b""] * len(y), 0
    for t, raw in enumerate(played.raw.tolist()):
        while k < len(order) and due[order[k]] <= t:
            calibrator.update(tickets[order[k]], y[order[k]])
            k += 1
        p[t], _, tickets[t] = calibrator.predict(raw)
    return p


def less(p: Floats, q: Floats, played: Played) -> Floats:
    """Return the log loss of p less that of q, in % of q's, and the square of its standard error."""
    one, other = log_losses(p, played.y), log_losses(q, played.y)
    moved = np.bincount(np.unique(played.day.astype(np.int64), return_inverse=True)[1], one - other)
    scale = 100.0 / other.sum()
    return np.array([moved.sum() * scale, ((moved - moved.mean()) ** 2).sum() * scale**2])


def rows(streams: dict[str, Callable[[int], Played]], seeds: range) -> Iterator[str]:
    """Yield a line a stream."""
    for name, make in streams.items():
        found: list[list[Floats]] = []
        for seed in seeds[:1] if make.__name__ == "once" else seeds:
            try:
                played = make(seed)
            except FileNotFoundError:
                break
            base = served(TwoSpeed(), played)
            ways = [less(served(way(), played), base, played) for way in WAYS.values()]
            found.append([less(base, played.raw, played), *ways])
        cells = [f"{mean:+.2f} ± {math.sqrt(error / len(found)):.2f}" for mean, error in np.mean(found, axis=0)]
        yield f"{name:36} | " + " | ".join(cells)


def main() -> None:
    """Play the streams and print a line of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("roles", nargs="*", metavar="ROLE", help="chose, judged")
    options = parser.parse_args()
    print("stream | TwoSpeed less raw | " + " | ".join(WAYS))
    for role in options.roles or STREAMS:
        first = 1 if role == "chose" else 101
        for line in rows(STREAMS[role], range(first, first + options.seeds)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
