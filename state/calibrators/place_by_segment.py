"""Shift and scale of a law by the event's segments, as far as the evidence supports them."""

import math
from collections.abc import Mapping, Sequence
from itertools import chain, starmap
from struct import Struct
from typing import Final

from state.calibrators.base import require_head
from state.calibrators.by_segment import MOST, touched
from state.calibrators.location_scale import (
    EVIDENCE,
    FAR,
    FEWEST,
    STEEP,
    WINDOW,
    LastNumbers,
    Mixture,
    Place,
    Units,
)
from state.forecasts import Law
from state.quick import floats

#: Weights before there is evidence, of the place without segments, with shifts, with scales, with both.
PRIOR = (0.9, 0.04, 0.02, 0.04)  # not Final: mypyc finds such a tuple unset when it is passed on
#: Outcomes that the first value, 0, counts as: in a shift, and in the logarithm of a scale.
IN_SHIFT: Final = 10.0
IN_SCALE: Final = 20.0
#: Outcomes of a slot after which one counts half.
LASTING: Final = 1000.0
#: Information on the logarithm of a scale in one outcome of a normal law: 1 / var(|X| / E|X|) = 1 / (π / 2 - 1).
INFORMS: Final = 1.0 / (0.5 * math.pi - 1.0)
#: Outcomes are cut to so many mean distances: in a shift, and in a scale.
CUT: Final = 4.0
CUT_SCALE: Final = 3.0
#: Shifts and logarithms of scales are cut to these.
FARTHEST: Final = 1e3
WIDE: Final = 2.0
#: Mean distance from the median of a normal law whose spread is 1; a stream starts with it.
USUAL: Final = 0.2
#: Least mean distance that may be divided by.
NEAREST: Final = 1e-6
#: The row of a new slot.
_FRESH = (0.0, IN_SHIFT, 0.0, IN_SCALE)

_ISSUED: Final = Struct("<8d")
_SLOT: Final = Struct("<H")
_HEAD: Final = Struct("<Q11dI")
_ROW: Final = Struct("<H4d")


class PlaceBySegment:
    """Four places of a law and their mixture: without segments, with their shifts, with their scales, with both.

    Notes
    -----
    An event has one slot for each name and pair; sums are over these. An outcome's score is its distance to the median
    of the law at the place without segments *as it was when the forecast was issued*, in units of the raw law. Scores
    do not depend on what the segments were served. So late outcomes make the corrections older, but never make them
    swing.

    Each slot has a shift θ and the logarithm κ of a scale. i and d are the running means of scores and of distances;
    they hold what all events share. With e = score - i - Σ θ and a = |e| / (d exp(Σ κ)),

        θ_g <- θ_g + h e / (H_g (1 + h Σ 1 / H)) - λ h P θ_g / H_g,       H_g <- H_g + h + λ h (P - H_g),
        κ_g <- κ_g + c (a - 1) / (K_g (1 + c Σ 1 / K)) - λ c R κ_g / K_g, K_g <- K_g + c + λ c (R - K_g).

    These are Kalman filters with a diagonal covariance. h = exp(-2 Σ κ) is the weight of an outcome, P and R
    (`IN_SHIFT`, `IN_SCALE`) are the outcomes that 0 counts for, and λ halves memory in `LASTING` outcomes of the slot.
    e is cut to `CUT` usual distances and a to `CUT_SCALE`, so one outcome of a heavy tail moves little. The sum over
    the event's slots lets overlapping segments share the evidence of one outcome. A slot with little evidence stays at
    the place of the whole stream.

    Four places compete: without segments, with shifts, with scales, with both. For the last three, take the residuals
    of the last `WINDOW` scores after shift and scale. Their median and spread, compared with those of the scores
    themselves, correct the place. So segments without effect change nothing, a skewed law is not taken for a shift, and
    where segments explain a part of the spread, the law is narrower. But the median of residuals is that of an average
    *value* of a segment, and the whole stream lies where most *events* do. So the correction shrinks for an event whose
    slots have little evidence: with u_g = P / H_g, by 1 - mean u_g² for medians and by 1 - mean u_g for squared
    spreads. Without evidence nothing is moved. (With 1 - mean u_g for both, segments without effect cost more.)

    The quantile functions are mixed by the rule of `LocationScale`, weights proportional to ρ_k exp(-η L_k), L_k the
    pinball loss of place k as issued, and η is divided by sqrt(N), N the noise, see `Quantile`. So with prompt
    outcomes, cuts aside, segments cost at most about half a standard error of the sum of the differences.

    Ticket: the place served, those with shifts, with scales and with both (two f64 each), slots (u16 each). Bytes:
    outcomes (u64), V, L (4), weights (4), i, d (f64 each), slots that were touched (u32), then for each in ascending
    order its number (u16), θ, H, κ, K (f64 each), then the last scores and their residuals by shifts, by scales and by
    both, oldest first (f64 each). Little-endian. Only the first `MOST` slots that have an outcome get a row. 17 kB at
    most.

    References
    ----------
    Exponential weights: Cesa-Bianchi & Lugosi 2006, section 2.3. Shares of what is known: the Kalman filter of
    `BySegment`; Huber 1964, *Robust Estimation of a Location Parameter*, for the cuts.

    Examples
    --------
    >>> from state.forecasts import Normal
    >>> part, raw, law = PlaceBySegment(), Place(0.0, 1.0), Normal(0.0, 1.0)
    >>> for t in range(2000):
    ...     for slot, y in ((2, 1.0), (3, -1.0)):
    ...         _, ticket = part.place(raw, (slot,))
    ...         part.update(ticket, raw, law, Units(0.0, 4.0), y + 0.1 * (t % 5 - 2), 1.0)
    >>> round(part.place(raw, (2,))[0].shift, 2), round(part.place(raw, (3,))[0].shift, 2)
    (0.25, -0.25)
    """

    def __init__(self) -> None:
        self._rows: dict[int, list[float]] = {}
        self._learnt = 0
        self._mixture = Mixture(PRIOR)
        # Running mean of the scores minus shifts, and of their distances minus scales.
        self._mean, self._away = 0.0, USUAL
        # The last scores, and their residuals after shifts, after scales, after both.
        self._left = LastNumbers(), LastNumbers(), LastNumbers(), LastNumbers()

    def place(self, mixed: Place, groups: tuple[int, ...]) -> tuple[Place, bytes]:
        """Return the place to serve, and the ticket.

        ``mixed``: the place without segments.
        ``groups``: the event's slots, at least one, all different.
        """
        rows = [self._rows[slot] for slot in groups if slot in self._rows]
        shift, log_scale = _sums(rows)
        own = [IN_SHIFT / row[1] for row in rows]
        new = len(groups) - len(rows)
        unknown = (sum(own) + new) / len(groups)
        unmoved = (sum([each * each for each in own]) + new) / len(groups)
        scale = math.exp(log_scale)
        within = [
            self._within(mixed, by, times, left, unknown, unmoved)
            for by, times, left in zip((shift, 0.0, shift), (1.0, scale, scale), self._left[1:], strict=True)
        ]
        weighed = list(zip(self._mixture.weights, (mixed, *within), strict=True))
        served = Place(
            sum([weight * place.shift for weight, place in weighed]),
            sum([weight * place.scale for weight, place in weighed]),
        )
        slots = b"".join([_SLOT.pack(slot) for slot in groups])
        return served, _ISSUED.pack(*served, *chain.from_iterable(within)) + slots

    def _within(
        self, mixed: Place, shift: float, scale: float, left: LastNumbers, unknown: float, unmoved: float
    ) -> Place:
        """Return the corrected place. With little evidence it is near ``mixed``, the place without segments."""
        if self._learnt < FEWEST:
            return mixed
        share = self._learnt / (self._learnt + FEWEST)
        whole = self._left[0]
        narrower = scale * left.spread() / whole.spread()
        narrower = math.sqrt(narrower * narrower + (1.0 - narrower * narrower) * unknown)
        return Place(
            mixed.shift + shift + share * (1.0 - unmoved) * (scale * left.quantile(0.5) - whole.quantile(0.5)),
            mixed.scale * math.pow(narrower, share),
        )

    def update(self, ticket: bytes, mixed: Place, law: Law, of: Units, y: float, noise: float) -> None:
        """Learn from an outcome whose law was moved.

        ``ticket``: from `place`.
        ``mixed``: the place without segments, as issued.
        ``law, of``: the raw law and its units.
        ``y``: the outcome, any finite number.
        ``noise``: N of `Quantile`, 1 or more.
        """
        issued = _ISSUED.unpack_from(ticket)
        median, spread = of
        score = min(max((y - median) / spread, -FAR), FAR)
        if self._learnt >= FEWEST:
            quantiles = [(law.ppf(p) - median) / spread for p in EVIDENCE]
            self._mixture.weigh(
                (mixed, *starmap(Place, zip(issued[2::2], issued[3::2], strict=True))), quantiles, score
            )
        self._learnt += 1
        self._learn(touched(self._rows, ticket, _ISSUED.size, _FRESH), score - mixed.shift)
        if self._learnt >= FEWEST:
            variance = self._mixture.variance
            self._mixture.mix(min(STEEP, 2.0 / math.sqrt(variance) if variance else STEEP) / math.sqrt(noise))

    def _learn(self, rows: Sequence[list[float]], score: float) -> None:
        """Learn from a score: the distance to the median without segments."""
        newest = max(1.0 / self._learnt, 1.0 / WINDOW)
        shift, log_scale = _sums(rows)
        scale = math.exp(log_scale)
        for left, one in zip(self._left, (score, score - shift, score / scale, (score - shift) / scale), strict=True):
            left.add(one)
        usual = self._away * scale
        away = _cut(score - self._mean - shift, CUT * usual)
        self._mean += newest * away
        wide = min(abs(away) / usual, CUT_SCALE) - 1.0
        self._away = min(max(self._away * math.exp(newest * wide), NEAREST), 1.0 / NEAREST)
        information = min(max(scale**-2, 1.0 / 16.0), 16.0)
        fade = math.log(2.0) / LASTING
        step = information * away / (1.0 + information * sum([1.0 / row[1] for row in rows]))
        turn = INFORMS * wide / (1.0 + INFORMS * sum([1.0 / row[3] for row in rows]))
        for row in rows:
            at, known, log, sure = row
            row[0] = _cut(at + (step - fade * information * IN_SHIFT * at) / known, FARTHEST)
            row[1] = known + information * (1.0 + fade * (IN_SHIFT - known))
            row[2] = _cut(log + (turn - fade * INFORMS * IN_SCALE * log) / sure, WIDE)
            row[3] = sure + INFORMS * (1.0 + fade * (IN_SCALE - sure))

    def encode(self) -> bytes:
        head = _HEAD.pack(
            self._learnt,
            *self._mixture.numbers(),
            self._mean,
            self._away,
            len(self._rows),
        )
        rows = b"".join([_ROW.pack(slot, *self._rows[slot]) for slot in sorted(self._rows)])
        return head + rows + b"".join([left.encode() for left in self._left])

    def largest(self, slots: int = MOST) -> int:
        return _HEAD.size + min(slots, MOST) * _ROW.size + 32 * WINDOW

    def decode(self, payload: bytes) -> None:
        require_head(payload, _HEAD.size)
        learnt, *numbers, many = _HEAD.unpack_from(payload)
        held, end = min(learnt, WINDOW), _HEAD.size + many * _ROW.size
        if len(payload) != end + 32 * held:
            raise ValueError(f"a state of {len(payload)} bytes does not hold {many} segments and {held} scores")
        self._learnt = learnt
        self._mean, self._away = self._mixture.take(numbers)
        self._rows = {slot: row for slot, *row in _ROW.iter_unpack(payload[_HEAD.size : end])}
        scores = floats(4 * held).unpack_from(payload, end)
        one, other, third, last = [LastNumbers(scores[k * held : (k + 1) * held]) for k in range(4)]
        self._left = one, other, third, last


def _sums(rows: Sequence[list[float]]) -> tuple[float, float]:
    """Return the sum of the shifts, and of the logarithms of the scales."""
    return sum([row[0] for row in rows]), _cut(sum([row[2] for row in rows]), WIDE)


def served_at(ticket: bytes) -> tuple[float, float]:
    """Return shift and scale of the place at which a ticket's law was served."""
    shift, scale, *_ = _ISSUED.unpack_from(ticket)
    return shift, scale


def regrouped(ticket: bytes, slots: Mapping[int, int]) -> bytes:
    """Return the ticket with its slots renumbered by ``slots`` (old to new)."""
    own = _SLOT.iter_unpack(ticket[_ISSUED.size :])
    return ticket[: _ISSUED.size] + b"".join([_SLOT.pack(slots[slot]) for (slot,) in own])


def _cut(value: float, most: float) -> float:
    return min(max(value, -most), most)
