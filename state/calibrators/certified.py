"""A deterministic answer with a guarantee: it stays close to a perfectly calibrated one, whoever sees it."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import ClassVar, Final

from state.calibrators.base import Prediction, new, require_probability
from state.calibrators.options import Number, Option

#: Intervals that [0, 1] is cut into, evenly in arcsin(sqrt(p)): where risks are rare they are narrow, .0006 and .0018
#: the first two, and .0245 at one half. With 64 a served score lies on average within .006 of its cell's mean.
CELLS: Final = 64
#: Standard deviations of chance by which a cell may be off before an interval is left.
PATIENCE: Final = 1.0
#: What any cell may be off, in events.
ONE: Final = 1.0
#: Share of its margin up to which a cell takes whatever is nearest to it.
NEAR: Final = 0.5
#: Share of an interval at an end to which the scores of intervals that may not be served are moved.
SHARE: Final = 1.0 / 32.0

_ENDS: Final = (0.0, *(math.sin(math.pi * k / (2 * CELLS)) ** 2 for k in range(1, CELLS)), 1.0)
_TICKET: Final = Struct("<BBdII")
_HEAD: Final = Struct("<BQQH")
_ROW: Final = Struct("<BIIIIIdddd")
VERSION: Final = 1


class Certified:
    """Leave the forecast as it is while its surroundings have been right, else move it to where they have.

    It is meant to stand behind another calibrator: ``prudent+certified``.

    Parameters
    ----------
    patience
        Standard deviations of chance by which a cell may be off before an interval is left.
    name, seed
        Unused: nothing is drawn.

    Notes
    -----
    Ends 0 = e_0 < ... < e_m = 1 cut [0, 1] into intervals. Every end is a *cell*. An outcome counts in the cell of one
    of the two ends of the interval that was served: a zero in z, a one in o, both named when the forecast is issued.
    With W_c = Σ (p - y) over the events of cell c and a margin M_c that never falls, an end may take a zero if W_c <=
    M_c, and a one if W_c >= -M_c. *An interval may be served if one of its ends may take a zero and one a one.* So an
    interval may not be served only if both ends are too high, or both too low.

    *There is always one.* M_0 and M_m are so large that cell 0 is never too high and cell m never too low. Left of an
    interval with two high ends is one whose right end is high: it may be served, or has two high ends. So going left
    ends, at interval 0 at the latest; going right from two low ends likewise.

    *Order.* What may be served is left alone. Everything else is moved to the near end of the first interval that may
    be served, left if its ends are too high, right if too low. Between a high run and a low one lies an interval that
    may be served, so no two forecasts change their order. Into the `SHARE` at that end forecasts are squeezed, none
    onto another: at one moment the answer increases strictly with the forecast.

    *Theorem.* For every sequence of forecasts and outcomes, also of an opponent who sees the answers, with n_c outcomes
    in cell c, s_c the standard deviation of their scores, and R revisions of labels, the distance to calibration is at
    most

        G = (Σ n_c s_c + Σ M_c + Σ L_c + R) / T,  L_c = max(e_{c+1} (1 + D_c), (1 - e_{c-1}) (1 + D'_c)).

    D_c is the largest number of other zeros of cell c that came while one of its zeros was awaited, D'_c of ones.
    *Proof.* Give every event the share of ones of its cell. That is perfectly calibrated, and costs at most Σ |p -
    mean| + |W_c| in each cell, of which the first is at most n_c s_c. Let W_c be above M_c, and s the last time it was
    not. All zeros that were counted in c since then had been issued by s, as W_c has been above M_c ever since. The
    last of them to come had waited while the others came, so there are at most 1 + D_c of them, each adds at most
    e_{c+1}, and M_c has not fallen. The same from below. A revision moves Σ |W_c| by at most 1. ∎

    Scores of a cell lie within two intervals, so s_c is at most half of that: before the fact, prompt, G is at most
    .0251 + patience sqrt((m + 1) / 4 T) + (m + 1) (2 + `ONE`) / T, and usually far less: risks are rarely one half.
    Delays enter through the outcomes of *one cell* that were awaited at once, added over cells, not as a factor. No
    deterministic answer has a guarantee below D / 2T with D outcomes outstanding: to the first D it must answer
    without knowing any; served at most one half on average and followed by ones alone, or above by zeros alone, it is D
    / 2 off from the only calibrated scores there are.

        M_c = `ONE` + patience sqrt(Σ p (1 - p)) + L_c,  and at the ends n_0 e_1 and n_m (1 - e_{m-1}) more.

    L_c is in the margin so that the answer does not pay back what was only late.

    A cell takes what is nearest to it while |W_c| is within `NEAR` of its margin. Beyond, the end with the lower W / M
    takes zeros and the other ones: chance in one cell then pays for chance in the next.

    Ticket: z, o (u8 each), the score (f64), zeros of z, ones of o that were counted (u32 each). Bytes: the version
    (u8), outcomes, revisions (u64 each), the number of cells that were touched (u16), of each its number (u8), events,
    zeros, ones, D, D' (u32 each), W, Σp, Σp², Σp(1 - p) (f64 each). Little-endian; at most 3.5 kB.

    References
    ----------
    Arunachaleswaran, Collina, Roth & Shi 2024, *An elementary predictor obtaining 2 sqrt(T) + 1 distance to
    calibration*, arXiv 2402.11410: cells credited by the outcome; there without margins, delays or order.

    Examples
    --------
    An opponent who answers the other side of what is served makes ten bins wrong by one half, and not the distance:

    >>> calibrator = Certified()
    >>> for t in range(4000):
    ...     p, _, ticket = calibrator.predict(0.3)
    ...     calibrator.update(ticket, p <= 0.5)
    >>> calibrator.error() <= calibrator.bound() < 0.06
    True
    """

    name: ClassVar[str] = "certified"
    order_free: ClassVar[bool] = False
    options: ClassVar[dict[str, Option]] = {
        "patience": Number(PATIENCE, 0.0, 4.0, "standard deviations of chance by which a cell may be off"),
    }

    def __init__(self, *, patience: float = PATIENCE, name: str = "", seed: int = 0) -> None:  # noqa: ARG002 - no draws
        self._patience = float(patience)
        self._begin()

    def _begin(self) -> None:
        self.learnt, self._revised = 0, 0
        self._off = [0.0] * (CELLS + 1)
        self._margin = [ONE] * (CELLS + 1)
        self._events = [0] * (CELLS + 1)
        self._zeros = [0] * (CELLS + 1)
        self._ones = [0] * (CELLS + 1)
        self._behind = [0] * (CELLS + 1)
        self._ahead = [0] * (CELLS + 1)
        self._sum = [0.0] * (CELLS + 1)
        self._square = [0.0] * (CELLS + 1)
        self._variance = [0.0] * (CELLS + 1)

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"") -> Prediction:  # noqa: ARG002 - draws nothing
        """Serve the forecast, or what is nearest to it among what may be served; see `Calibrator.predict`."""
        require_probability(p)
        i = min(bisect_right(_ENDS, p) - 1, CELLS - 1)
        way = self._way(i)
        if way:
            i += way
            while self._way(i):
                i += way
            low, high = _ENDS[i], _ENDS[i + 1]
            part = SHARE * (high - low)
            p = low + part * (p / low) if way > 0 else high - part * ((1.0 - p) / (1.0 - high))
        else:
            low, high = _ENDS[i], _ENDS[i + 1]
            # Room for what is moved here from either side.
            left = SHARE if i > 0 and self._way(i - 1) > 0 else 0.0
            right = SHARE if i < CELLS - 1 and self._way(i + 1) < 0 else 0.0
            if left or right:
                p = low + left * (high - low) + (1.0 - left - right) * (p - low)
        off, margin = self._off, self._margin
        z = o = near = i if p - low < high - p else i + 1
        one, other = off[i] / margin[i], off[i + 1] / margin[i + 1]
        if off[near] > NEAR * margin[near]:
            z = i if one <= other else i + 1
        if off[near] < -NEAR * margin[near]:
            o = i if one >= other else i + 1
        return new(Prediction, (p, p, _TICKET.pack(z, o, p, self._zeros[z], self._ones[o])))

    def breaks(self) -> list[float]:
        """Return the forecasts at which ``p`` may jump: where intervals end."""
        return list(_ENDS[1:-1])

    def _way(self, i: int) -> int:
        """Return 0 if interval i may be served, else the direction of one that may: -1 or 1."""
        off, margin = self._off, self._margin
        if off[i] > margin[i] and off[i + 1] > margin[i + 1]:
            return -1
        if off[i] < -margin[i] and off[i + 1] < -margin[i + 1]:
            return 1
        return 0

    def update(self, ticket: bytes, y: float) -> None:
        """Count an outcome, 0 or 1, in the cell that the ticket names for it."""
        self._require(y)
        z, o, p, zeros, ones = _TICKET.unpack(ticket)
        self.learnt += 1
        if y > 0.5:
            c: int = o
            self._ahead[c] = max(self._ahead[c], self._ones[c] - ones)
            self._ones[c] += 1
        else:
            c = z
            self._behind[c] = max(self._behind[c], self._zeros[c] - zeros)
            self._zeros[c] += 1
        self._count(c, p, y, 1)

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Count the outcome as the other, in its cell; y is 0 or 1. The guarantee grows by 1 / T."""
        self._require(y)
        if y == was:
            return
        z, o, p, _, _ = _TICKET.unpack(ticket)
        self._revised += 1
        before, now = (o, z) if was > 0.5 else (z, o)
        self._count(before, p, was, -1)
        if y > 0.5:
            self._ones[now] += 1
        else:
            self._zeros[now] += 1
        self._count(now, p, y, 1)

    def _require(self, y: float) -> None:
        if y not in (0.0, 1.0):
            raise ValueError(f"{self.name} counts outcomes: y must be 0 or 1, got {y!r}")

    def _count(self, c: int, p: float, y: float, sign: int) -> None:
        """Add an event to a cell, or take it out; margins never fall."""
        self._events[c] += sign
        self._off[c] += sign * (p - y)
        self._sum[c] += sign * p
        self._square[c] += sign * p * p
        self._variance[c] += max(sign, 0) * p * (1.0 - p)
        self._margin[c] = self._margin_of(c)

    def _margin_of(self, c: int) -> float:
        margin = ONE + self._patience * math.sqrt(self._variance[c]) + self._late(c)
        if c == 0:
            margin += (self._zeros[c] + self._ones[c]) * _ENDS[1]
        if c == CELLS:
            margin += (self._zeros[c] + self._ones[c]) * (1.0 - _ENDS[CELLS - 1])
        return margin

    def _late(self, c: int) -> float:
        """Return what is in the theorem for outcomes that were awaited at once."""
        above = _ENDS[min(c + 1, CELLS)] * (1 + self._behind[c]) if self._zeros[c] else 0.0
        below = (1.0 - _ENDS[max(c - 1, 0)]) * (1 + self._ahead[c]) if self._ones[c] else 0.0
        return max(above, below)

    def _spread(self) -> float:
        """Return Σ n_c s_c."""
        total = 0.0
        for c, n in enumerate(self._events):
            total += math.sqrt(max(n * self._square[c] - self._sum[c] * self._sum[c], 0.0))
        return total

    def encode(self) -> bytes:
        """Return the state; layout in the class's notes."""
        rows = [
            _ROW.pack(
                c, self._events[c], self._zeros[c], self._ones[c], self._behind[c], self._ahead[c], self._off[c],
                self._sum[c], self._square[c], self._variance[c],
            )
            for c in range(CELLS + 1)
            if self._zeros[c] or self._ones[c]
        ]  # fmt: skip
        return _HEAD.pack(VERSION, self.learnt, self._revised, len(rows)) + b"".join(rows)

    def largest(self) -> int:
        """Return the most bytes that `encode` ever returns."""
        return _HEAD.size + (CELLS + 1) * _ROW.size

    def decode(self, payload: bytes) -> None:
        """Take over a state written by `encode`; ValueError if it is cut or of another version."""
        if len(payload) < _HEAD.size:
            raise ValueError(f"a state of {len(payload)} bytes is shorter than its own header")
        version, learnt, revised, rows = _HEAD.unpack_from(payload)
        if version != VERSION or len(payload) != _HEAD.size + rows * _ROW.size:
            raise ValueError(f"a state of {len(payload)} bytes and version {version} does not hold {rows} cells")
        self._begin()
        self.learnt, self._revised = learnt, revised
        for row in _ROW.iter_unpack(payload[_HEAD.size :]):
            c: int = row[0]
            self._events[c], self._zeros[c], self._ones[c], self._behind[c], self._ahead[c] = row[1:6]
            self._off[c], self._sum[c], self._square[c], self._variance[c] = row[6:]
            self._margin[c] = self._margin_of(c)

    def error(self) -> float | None:
        """Return how far the scores are, at most, from calibrated ones, by the cells; None before the first outcome."""
        if not self.learnt:
            return None
        return min(1.0, (self._spread() + sum(map(abs, self._off))) / self.learnt)

    def bound(self, outstanding: int = 0) -> float | None:  # noqa: ARG002 - delays are counted as they were
        """Return the guarantee G of the theorem, at most 1; None before the first outcome."""
        if not self.learnt:
            return None
        used = [c for c in range(CELLS + 1) if self._zeros[c] or self._ones[c]]
        allowed = sum(self._margin[c] + self._late(c) for c in used)
        return min(1.0, (self._spread() + allowed + self._revised) / self.learnt)
