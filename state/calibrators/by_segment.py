"""Corrections of an answer by the event's segments: a lasting one that depends on the score, and a passing one."""

import math
from struct import Struct
from typing import Final

from state.calibrators.base import require_head
from state.calibrators.guard import SIZE as GUARD_SIZE
from state.calibrators.guard import Guard
from state.calibrators.logistic import P_CLIP, Z_CLIP, lacking, share_step, sigmoid
from state.quick import log1p

#: Knots of a segment's lasting correction, in log-odds: the lowest, their distance, their number. From 1.8 to 97 %.
LOW: Final = -4.0
STEP: Final = 1.5
KNOTS: Final = 6
#: Least slope of the served log-odds against those of the forecast, within the same segments.
FLAT: Final = 0.05
#: Weight of the starting value 0, as information: at a knot, in the passing correction, in its share.
IN_KNOT: Final = 10.0
IN_FAST: Final = 10.0
IN_SHARE: Final = 50.0
#: Information after which an outcome counts half: at a knot, in the passing correction, in its share. Knots and share
#: remember at least `LAGS` times the information that is learnt between a forecast and its outcome.
LASTING: Final = 10_000.0
FAST: Final = 6.0
SHARED: Final = 2000.0
LAGS: Final = 14.0
#: The most that segments may move the log-odds: by the passing correction, and at a knot.
REACH: Final = 2.0
FAR: Final = 5.0

_ISSUED: Final = Struct("<4f")
_SLOT: Final = Struct("<H")
_HEAD: Final = Struct("<2dI")
#: Where the rows begin in the state, in bytes.
_ROWS: Final = _HEAD.size + GUARD_SIZE
_LN2: Final = math.log(2.0)
#: Numbers per slot: the passing correction, its curvature, corrections at the knots, their curvatures.
_WIDTH: Final = 2 + 2 * KNOTS
_ROW: Final = Struct(f"<H{_WIDTH}d")
#: The row of a new slot.
_FRESH = (0.0, IN_FAST, *[0.0] * KNOTS, *[IN_KNOT] * KNOTS)  # not Final, see `place_by_segment.PRIOR`
#: The most slots with a row: four names of 64 values.
MOST: Final = 256


class BySegment:
    """Correct an answer by what its event's segments have taught.

    Notes
    -----
    An event has one slot for each name and pair; sums are over these. With v the log-odds of the answer p without
    segments,

        v2 = v + e clip(Σ f_g, ±`REACH`),  v3 = v2 + l(v2),  answer w p + (1 - w) sigmoid(v3).

    *Passing correction*, f_g: learns from each outcome at its arrival, against the present answer without segments, and
    forgets fast. An example is a storm over one airport. Its share e learns from the answers as they were issued, so it
    falls to 0 where outcomes come too late to help.

    *Lasting correction*, l: piecewise linear in v2, with value Σ θ_gj at knot j. It learns at v2 as it was issued, so
    it also corrects errors that come from late outcomes. An outcome of a crowd counts for its share (see `TwoSpeed`),
    here and in w. Where the sum would fall steeply, the mean of two functions is served: the least increasing one above
    it and the greatest below it. So *at one moment p increases strictly with the raw forecast among events of the same
    segments*.

    Both are Kalman filters with a diagonal covariance. With q the answer, h = q (1 - q), g_i the weight of coordinate i
    (1 for f, the two hats at v2 for θ) and H_i its curvature, which starts at the prior P,

        θ_i <- θ_i + (y - q) g_i / (H_i (1 + h Σ g²/H)) - λ P θ_i / H_i,   H_i <- (1 - λ) H_i + λ P + h g_i²,

    λ = ln(2) h / halflife. The sum in the first denominator is over all slots of the event, so overlapping segments
    share the evidence of one outcome. A segment with little evidence stays near 0. Memory is measured in the segment's
    own information, not in time: a segment that is rare keeps what it learnt.

    *No harm.* w is the weight of a second `Guard`, which compares the answer without segments with the one with them.
    With prompt outcomes, on any sequence, V as defined there,

        Σ log loss(answer) <= Σ log loss(p) + .105 max(1, sqrt(V) / 2)  nats,

    which is .06 standard errors of their difference. δ uses the answers as they were issued. With late outcomes the
    theorem does not cover the answers served in between.

    Ticket: v, Σ f_g after its clip, v2, v3 (f32 each), slots (u16 each). Bytes: e, its curvature (f64 each), number of
    touched slots (u32), those of `Guard`, then for each touched slot in ascending order its number (u16), f, H_f, θ,
    H_θ (f64 each). Little-endian. Only the first `MOST` slots with an outcome get a row (29 kB); the others correct
    nothing. 34 values take 4 kB.

    References
    ----------
    Second-order mixture, and Kalman's filter for logistic maps: see `TwoSpeed`. Gains of groups, and adversaries:
    Gupta, Jung, Noarov, Pai & Roth, *Online multivalid learning*, arXiv 2101.01739.

    Examples
    --------
    >>> part = BySegment()
    >>> for t in range(4000):
    ...     _, ticket = part.answer(0.5, (2, 64))
    ...     part.learn(ticket, t % 4 > 0, 0.0, 0.0)
    ...     _, ticket = part.answer(0.5, (3, 64))
    ...     part.learn(ticket, t % 4 == 0, 0.0, 0.0)
    >>> round(part.answer(0.5, (2, 64))[0], 2), round(part.answer(0.5, (3, 64))[0], 2)
    (0.74, 0.25)
    """

    __slots__ = ("_curvature", "_guard", "_rows", "_share")

    def __init__(self) -> None:
        self._rows: dict[int, list[float]] = {}
        self._share, self._curvature = 0.0, IN_SHARE
        self._guard = Guard()

    def answer(self, p: float, groups: tuple[int, ...]) -> tuple[float, bytes]:
        """Return the corrected answer and its ticket.

        ``p``: the answer without segments, in [0, 1].
        ``groups``: the event's slots, at least one, all different.
        """
        clipped = min(max(p, P_CLIP), 1.0 - P_CLIP)
        v = math.log(clipped) - log1p(-clipped)
        rows: list[list[float]] = []
        passing = 0.0
        for slot in groups:
            row = self._rows.get(slot)
            if row is not None:
                rows.append(row)
                passing += row[0]
        passing = min(max(passing, -REACH), REACH)
        v2 = v + self._share * passing
        v3 = v2 + _lasting(rows, v2)
        w = self._guard.weight
        served = w * p + (1.0 - w) / (1.0 + math.exp(-min(max(v3, Z_CLIP), -Z_CLIP)))
        return served, _ISSUED.pack(v, passing, v2, v3) + b"".join([_SLOT.pack(slot) for slot in groups])

    def learn(self, ticket: bytes, y: float, now: float, lag: float, part: float = 1.0, at: int = 0) -> None:
        """Learn from an outcome, 0 or 1.

        ``ticket``: from `answer`.
        ``now``: log-odds of the present answer to the same forecast, without segments, before the outcome is learnt.
        ``lag``: information learnt since the forecast was issued.
        ``part``: share of the outcome that counts in the lasting correction and in w.
        ``at``: record time of the label, see `Guard.weigh`.
        """
        v, passing, v2, v3 = _ISSUED.unpack_from(ticket)
        rows = touched(self._rows, ticket, _ISSUED.size, _FRESH)
        without, within = sigmoid(v), sigmoid(v3)
        delta = math.log(within / without) if y > 0.5 else math.log((1.0 - within) / (1.0 - without))
        self._guard.weigh(part * delta, part * delta * delta, at)
        halflife = max(SHARED, LAGS * lag)
        self._share, self._curvature = share_step(self._share, self._curvature, IN_SHARE, v, passing, y, halflife)
        q = sigmoid(v2 + _lasting(rows, v2))
        information = part * q * (1.0 - q)
        _step_lasting(rows, v2, part * (y - q), information, information * _LN2 / max(LASTING, LAGS * lag))
        _learn_passing(rows, now, y)

    def revise(self, ticket: bytes, g: float, part: float = 1.0) -> None:
        """Learn a revision in w and in the lasting correction.

        ``g``: the change of the gradient: the old label minus the new one. ``part``: the share that counts.
        """
        v, _, v2, v3 = _ISSUED.unpack_from(ticket)
        without, within = sigmoid(v), sigmoid(v3)
        one, zero = math.log(within / without), math.log((1.0 - within) / (1.0 - without))
        rows = touched(self._rows, ticket, _ISSUED.size, _FRESH)
        curvature = part * lacking(sigmoid(v2 + _lasting(rows, v2)), 1.0 if g < 0.0 else 0.0)
        g *= part
        self._guard.correct(-g * (one - zero), -g * (one * one - zero * zero))
        _step_lasting(rows, v2, -g, curvature, 0.0)

    def corrections(self) -> tuple[float, float, dict[int, list[float]]]:
        """Return all that `answer` depends on: w, e, and for each slot f with the θ of every knot."""
        return (
            self._guard.weight,
            self._share,
            {slot: [row[0], *row[2 : 2 + KNOTS]] for slot, row in self._rows.items()},
        )

    def encode(self) -> bytes:
        head = _HEAD.pack(self._share, self._curvature, len(self._rows)) + self._guard.encode()
        return head + b"".join([_ROW.pack(slot, *self._rows[slot]) for slot in sorted(self._rows)])

    def largest(self, slots: int = MOST) -> int:
        return _ROWS + min(slots, MOST) * _ROW.size

    def decode(self, payload: bytes) -> None:
        require_head(payload, _ROWS)
        self._share, self._curvature, rows = _HEAD.unpack_from(payload)
        if len(payload) != _ROWS + rows * _ROW.size:
            raise ValueError(f"a state of {len(payload)} bytes does not hold {rows} segments")
        self._rows = {}
        for slot, *numbers in _ROW.iter_unpack(payload[_ROWS:]):
            self._rows[slot] = numbers
        self._guard.decode(payload, _HEAD.size)


def touched(rows: dict[int, list[float]], ticket: bytes, start: int, fresh: tuple[float, ...]) -> list[list[float]]:
    """Return the rows of a ticket's slots, u16 each from ``start`` on; a new slot gets a fresh row, if one is left."""
    found: list[list[float]] = []
    for at in range(start, len(ticket), 2):
        slot: int = _SLOT.unpack_from(ticket, at)[0]
        row = rows.get(slot)
        if row is None:
            if len(rows) >= MOST:
                continue
            row = rows[slot] = list(fresh)
        found.append(row)
    return found


def _place(v: float) -> tuple[int, float]:
    """Return the knot left of v, and the weight of the next knot."""
    x = min(max((v - LOW) / STEP, 0.0), KNOTS - 1.0)
    i = min(int(x), KNOTS - 2)
    return i, x - i


def _lasting(rows: list[list[float]], v: float) -> float:
    """Return l(v)."""
    if not rows:
        return 0.0
    x = min(max((v - LOW) / STEP, 0.0), KNOTS - 1.0)
    i = min(int(x), KNOTS - 2)
    right = x - i
    sums = [0.0] * KNOTS
    ordered = True
    before = 0.0
    for j in range(KNOTS):
        total = 0.0
        for row in rows:
            total += row[2 + j]
        sums[j] = total
        if j and total - before < (FLAT - 1.0) * STEP:
            ordered = False
        before = total
    if ordered:
        return (1.0 - right) * sums[i] + right * sums[i + 1]
    # Of v + l(v) minus a line of slope `FLAT`: the least function above that never falls, and the greatest below.
    above = [0.0] * KNOTS
    below = [0.0] * KNOTS
    rise = (1.0 - FLAT) * STEP
    most, least = -math.inf, math.inf
    for j in range(KNOTS):
        most = max(most, sums[j] + j * rise)
        above[j] = most - j * rise
    for j in range(KNOTS - 1, -1, -1):
        least = min(least, sums[j] + j * rise)
        below[j] = least - j * rise
    return 0.5 * ((1.0 - right) * (above[i] + below[i]) + right * (above[i + 1] + below[i + 1]))


def _step_lasting(rows: list[list[float]], v: float, g: float, curvature: float, fade: float) -> None:
    """Step by g, in (-1, 1), at the knots next to v. Their curvature fades to the prior by the share ``fade``."""
    i, right = _place(v)
    left = 1.0 - right
    j, k = 2 + i, 2 + i + KNOTS
    spread = 0.0
    for row in rows:
        spread += left * left / row[k] + right * right / row[k + 1]
    g /= 1.0 + curvature * spread
    pull = fade * IN_KNOT
    for row in rows:
        one, other = row[k], row[k + 1]
        row[j] = min(max(row[j] + (g * left - pull * row[j]) / one, -FAR), FAR)
        row[j + 1] = min(max(row[j + 1] + (g * right - pull * row[j + 1]) / other, -FAR), FAR)
        row[k] = one + fade * (IN_KNOT - one) + curvature * left * left
        row[k + 1] = other + fade * (IN_KNOT - other) + curvature * right * right


def _learn_passing(rows: list[list[float]], now: float, y: float) -> None:
    total, spread = now, 0.0
    for row in rows:
        total += row[0]
        spread += 1.0 / row[1]
    q = sigmoid(total)
    information = q * (1.0 - q)
    g = (y - q) / (1.0 + information * spread)
    fade = information * _LN2 / FAST
    for row in rows:
        held = row[1]
        row[0] += (g - fade * IN_FAST * row[0]) / held
        row[1] = held + fade * (IN_FAST - held) + information
