"""Quantile forecasts, recalibrated level by level, that never cross."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from struct import Struct
from typing import ClassVar, NamedTuple

from state import forecasts
from state.calibrators.answer import Answer
from state.calibrators.base import MOST_SLOTS, Recalibrator, require_head
from state.calibrators.levels import FIRST, TAIL, chain, sigmoid
from state.calibrators.location_scale import LocationScale, Place, Units, offset, units
from state.calibrators.options import Option, choice, increasing, number
from state.calibrators.outstanding import BLOCKS, Outstanding
from state.calibrators.place_by_segment import PlaceBySegment, regrouped, served_at
from state.draw import BITS, Draw
from state.forecasts import LARGEST, MAX_LEVELS, Law, Quantiles
from state.odds import log_odds
from state.quick import new

#: Default levels: the median, and the central intervals of 50, 80 and 90 %.
LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
#: η. It costs .74 % more pinball loss than forecasts that are right. With .02 the cost is .58 %, and windows of 500 are
#: a tenth worse; with .04 it is 1.1 %. On real series the loss is the same or less
#: (`docs/explanation/classes-and-numbers.md`).
RATE = 0.025
#: A step is at most this divided by 1 + D, the largest number of outstanding outcomes. With .5
#: it learns a little sooner, and costs twice as much where forecasts drift about as fast as
#: outcomes come (`docs/explanation/classes-and-numbers.md`).
STEADY = 0.25
#: This many outstanding forecasts add as much noise to the evidence about places as one outcome.
OVERLAP = 10.0
#: Outcomes, independent of their neighbours, that are assumed before the first.
APART = 20
#: First two bytes of the state.
_FORMAT = 5

_HEAD = Struct("<HH")
_LENGTH = Struct("<I")
_PLACE = LocationScale.ticket
#: Length of the segments' part of a ticket, as a byte.
_HEADS = [bytes((length,)) for length in range(256)]


class Quantile(Recalibrator):
    """Serve the quantile of another level: of the one that has covered outcomes as often as the wanted level promises.

    Before that, the law is moved by a shift and a scale learnt from the last outcomes, once there is evidence for them.

    ``levels``: p_1 < ... < p_m, at least two. They are served whatever levels the raw forecast has. None: `LEVELS`.
    ``rate``: η, the largest step. Where outcomes come late, the step taken is smaller, see the notes.
    ``link``: ``identity`` (as in the paper) steps in the level itself; ``logit`` steps in its log-odds, so that a level
    of .005 takes small steps and does not fall below 0.
    ``low, high``: the range of the quantity; served quantiles are clamped to it. The defaults declare no range.
    ``name, seed``: key the draws.

    Notes
    -----
    With u = F(y), F the distribution function of the law as moved (`LocationScale`), n outcomes and k_j of them
    covered, ``s_j = p_j + e (p_j n - k_j)``: online gradient descent on the quantile pinball loss, as a function of
    integers. The step is ``e = min(η / C, STEADY / (1 + D))``, D the number of outstanding forecasts. An outcome that
    comes D forecasts late moves the levels when D others are already issued, so larger steps make the levels swing. D
    is measured: see `Outstanding`. A ticket holds r, the outcomes learnt when it was issued.

    *Overlap.* Forecasts of the next hour, one every five minutes, share most of what happens, so D + 1 successive
    outcomes carry nearly the same evidence. Let ρ be the correlation of successive outcomes in whether the anchor
    covers them, with `APART` independent ones added. Normal variables with correlation r = sin(π ρ / 2) have this ρ. If
    each depends only on the one before it, the variance of their sum is ``C = (1 + r) / (1 - r)`` times that of
    independent ones. C is cut to [1, 1 + 2 D]; the upper limit is C of sums of D + 1 steps. So C is 1 where outcomes
    are prompt, and nearly 1 where they are late and independent. The noise N of `LocationScale` is
    ``max(1 + D / OVERLAP, C)``.

    What is *played* is a chain from the anchor a, the level nearest the median:

        v_a = s_a;   upward v_j = max(v_{j-1}, s_j);   downward v_j = min(v_{j+1}, s_j)

    Level j covers an outcome if u <= v_j, the level *played*, not s_j and not a clamped level. So levels never cross.
    Lemma 4 of the paper says that the s_j alone never cross, which is false. Served: Q(v_j), Q the quantile function of
    the law as moved; for v_j <= 0 and v_j >= 1 the end of the declared range.

    With the logit link, ``s_j = logit(p_j) + 4 e (p_j n - k_j)``, steps of η at the median, and v_j is the sigmoid of
    the chain: -infinity below the log-odds of `TAIL`, where nothing is covered, and infinity above those of 1 - TAIL.
    It loses less where the law is too narrow or biased: pinball loss .2274 against .2414 at half the true deviation.
    Its bound is five times as wide: 1 / e becomes (21 + |logit p_j|) / (4 e).

    At an atom of F, u is uniform between P(Y < y) and P(Y <= y), drawn by the event id. What is served has
    P(y < q_j) <= k_j / n <= P(y <= q_j) while outcomes lie in the declared range or, if none is, between the raw
    quantiles of `TAIL` and 1 - TAIL.

    A revised label is counted exactly; shift, scale and C keep what they learnt.

    Ticket: the draw and the outcomes learnt (u64 each), the levels played (f64 each), that of the `LocationScale`, the
    raw forecast (`state.forecasts.encode`). Bytes, little-endian: `_FORMAT`, m (u16 each), outcomes whose answer was
    saturated, pairs of successive outcomes that the anchor both covered, whether it covered the last (u64 each), the
    largest C so far, the levels (f64 each), then for j = 0..m the outcomes
    with v_j < u <= v_{j+1} (u64 each): k_j is the sum of those before j. Then the blocks of `Outstanding` (u64 each).
    Then the `LocationScale`. ``300 + 16 m`` bytes before it.

    References
    ----------
    Deshpande, Marx & Kuleshov 2024, *Online Calibrated and Conformal Prediction Improves Bayesian Optimization*,
    section 4, equations 9 to 11, with the sign of the update put right; Gibbs & Candès 2021.

    Examples
    --------
    A model that knows only half the spread, of outcomes between -2 and 2:

    >>> from state.forecasts import Normal
    >>> calibrator = Quantile(levels=(0.1, 0.5, 0.9))
    >>> for t in range(5000):
    ...     ticket = calibrator.predict(Normal(0.0, 0.6), key=str(t).encode()).ticket
    ...     calibrator.update(ticket, t * 0.618034 % 1.0 * 4.0 - 2.0)
    >>> all(abs(q - true) < 0.2 for q, true in zip(calibrator.predict(Normal(0.0, 0.6)).p.values, (-1.6, 0.0, 1.6)))
    True
    >>> calibrator.error() <= calibrator.bound() < 0.1
    True
    """

    name: ClassVar[str] = "quantile"
    kind: ClassVar[str] = "quantiles"
    keyed: ClassVar[bool] = True
    grouped: bool = True
    options: ClassVar[dict[str, Option]] = {
        "levels": increasing(MAX_LEVELS, "levels to serve; none: " + ", ".join(f"{p:g}" for p in LEVELS), least=2),
        "link": choice("logit", ("identity", "logit"), "scale of the steps"),
        "rate": number(RATE, 1e-6, 1.0, "η, the largest step; smaller steps are taken where outcomes come late"),
        "low": number(-LARGEST, -LARGEST, LARGEST, "least value that can occur; the default declares none"),
        "high": number(LARGEST, -LARGEST, LARGEST, "greatest value that can occur; the default declares none"),
    }

    def __init__(
        self,
        *,
        levels: Sequence[float] = (),
        rate: float = RATE,
        link: str = "logit",
        low: float = -LARGEST,
        high: float = LARGEST,
        name: str = "",
        seed: int = 0,
    ) -> None:
        if not low < high:
            raise ValueError(f"low must be below high, got {low!r} and {high!r}")
        self.levels = tuple(levels) or LEVELS
        self._anchor = min(range(len(self.levels)), key=lambda j: abs(self.levels[j] - 0.5))
        # Scale on which steps are counted: start, ends beyond which a level covers nothing or everything, and step
        # size.
        self._logit = link == "logit"
        self._start = tuple(map(log_odds, self.levels)) if self._logit else self.levels
        self._ends = (FIRST, -FIRST) if self._logit else (0.0, 1.0)
        self._rate, self._scale = rate, 4.0 if self._logit else 1.0
        self._low, self._high = low, high
        self._draw = Draw(name, seed)
        m = len(self.levels)
        self._ticket = Struct(f"<QQ{m}d")
        self._state = Struct(f"<HHQQQd{m}d{m + 1 + BLOCKS}Q")
        self._place, self._segments = LocationScale(), PlaceBySegment()
        #: Learnt outcomes whose answer had a level played at or below 0, or at or above 1.
        self._saturated = 0
        #: For the anchor: how often it covered two outcomes in a row, whether it covered the last, and the largest C.
        self._pairs, self._last, self._most_alike = 0, 0, 1.0
        self._take([0] * (m + 1), [0] * BLOCKS)

    def _take(self, counts: list[int], blocks: list[int]) -> None:
        self._counts, self._awaited = counts, Outstanding(blocks)
        self.learnt = sum(counts)
        self._replay()

    def _replay(self) -> None:
        """Compute v from the counts."""
        outstanding = self.outstanding()
        self._play = self._played(outstanding, self._alike(outstanding))

    def outstanding(self) -> int:
        """Return D."""
        return self._awaited.most()

    def _alike(self, outstanding: int) -> float:
        """Return C at this D."""
        n, covered = self.learnt, sum(self._counts[: self._anchor + 1])
        if not 0 < covered < n:
            return 1.0
        rho = (n * self._pairs - covered * covered) / (covered * (n - covered)) * n / (n + APART)
        r = math.sin(math.pi / 2.0 * rho)
        return max((1.0 + r) / (1.0 - r), 1.0) if r * (outstanding + 1) < outstanding else 1.0 + 2.0 * outstanding

    def _step(self, outstanding: int, alike: float) -> float:
        """Return the step for D = ``outstanding`` and C = ``alike``, on the scale of the link."""
        return self._scale * min(self._rate / alike, STEADY / (1 + outstanding))

    def _played(self, outstanding: int, alike: float) -> tuple[float, ...]:
        n, step = self.learnt, self._step(outstanding, alike)
        covered = accumulate(self._counts[:-1])
        s = [z + step * (p * n - k) for z, p, k in zip(self._start, self.levels, covered, strict=True)]
        v = chain(s, self._anchor)
        return tuple(map(sigmoid, v)) if self._logit else v

    def predict(
        self,
        p: Law,
        x: Sequence[float] = (),
        key: bytes = b"",
        groups: tuple[int, ...] = (),
    ) -> Answer[Quantiles]:
        """Serve the quantiles of the levels played. Nothing is random, so ``draw`` is the same.

        ``groups``: the event's slots, see `PlaceBySegment`; empty without segments.
        """
        low, high = self._low, self._high
        ppf, play = p.ppf, self._play
        of = units(p)
        place, segments = self._place.mixed, b""
        if groups and of.spread:
            place, segments = self._segments.place(place, groups)
        c, d = offset(place, of)
        values = []
        for v in play:
            if v <= 0.0:
                value = c + d * ppf(TAIL) if low == -LARGEST else low
            elif v >= 1.0:
                value = c + d * ppf(1.0 - TAIL) if high == LARGEST else high
            else:
                value = c + d * ppf(min(max(v, TAIL), 1.0 - TAIL))
            values.append(low if value < low else high if value > high else value)  # noqa: FURB136 - twice the price
        served = Quantiles(self.levels, tuple(values))
        ticket = self._ticket.pack(self._draw(key), self.learnt, *play) + self._place.issue()
        return new(Answer, (served, served, ticket + _HEADS[len(segments)] + segments + forecasts.encode(p)))

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """Count which of the played levels cover an outcome, which may be any finite number."""
        if not math.isfinite(y):
            raise ValueError(f"an outcome must be a finite number, got {y!r}")
        issued = self._issued_by(ticket)
        first = _covering(issued, y)
        self._counts[first] += 1
        covered = int(first <= self._anchor)
        self._pairs += covered & self._last
        self._last = covered
        self._awaited.count(issued.version)
        self.learnt += 1
        self._saturated += issued.play[0] <= 0.0 or issued.play[-1] >= 1.0
        outstanding = self.outstanding()
        alike = self._alike(outstanding)
        self._most_alike = max(self._most_alike, alike)
        noise = max(1.0 + outstanding / OVERLAP, alike)
        self._place.update(issued.places, issued.law, issued.units, y, noise)
        if issued.segments:
            mixed = Place(*issued.places[:2])
            self._segments.update(issued.segments, mixed, issued.law, issued.units, y, noise)
        self._play = self._played(outstanding, alike)

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Move the outcome in the counts to the place of the new number."""
        if not math.isfinite(y):
            raise ValueError(f"an outcome must be a finite number, got {y!r}")
        issued = self._issued_by(ticket)
        self._counts[_covering(issued, was)] -= 1
        self._counts[_covering(issued, y)] += 1
        self._replay()

    def _issued_by(self, ticket: bytes) -> "_Issued":
        draw, version, *play = self._ticket.unpack_from(ticket)
        at = self._ticket.size
        start = at + _PLACE.size + 1
        end = start + ticket[start - 1]
        law = forecasts.decode_law(ticket[end:])
        return _Issued(draw, version, play, _PLACE.unpack_from(ticket, at), ticket[start:end], law, units(law))

    def regrouped(self, ticket: bytes, slots: Mapping[int, int]) -> bytes:
        start = self._ticket.size + _PLACE.size + 1
        end = start + ticket[start - 1]
        return ticket[:start] + regrouped(ticket[start:end], slots) + ticket[end:] if end > start else ticket

    def encode(self) -> bytes:
        head = self._state.pack(
            _FORMAT,
            len(self.levels),
            self._saturated,
            self._pairs,
            self._last,
            self._most_alike,
            *self.levels,
            *self._counts,
            *self._awaited.blocks,
        )
        segments = self._segments.encode()
        return head + _LENGTH.pack(len(segments)) + segments + self._place.encode()

    def largest(self, slots: int = MOST_SLOTS) -> int:
        return self._state.size + _LENGTH.size + self._segments.largest(slots) + LocationScale.largest()

    def decode(self, payload: bytes) -> None:
        require_head(payload, _HEAD.size)
        _, m = _HEAD.unpack_from(payload)
        start = self._state.size + _LENGTH.size
        if m != len(self.levels) or len(payload) < start:
            raise ValueError(f"state of {m} levels and {len(payload)} bytes does not fit {self.levels}")
        saturated, pairs, last, most_alike, *rest = self._state.unpack_from(payload)[2:]
        if tuple(rest[:m]) != self.levels:
            raise ValueError(f"state of levels {rest[:m]} does not fit {self.levels}")
        counts, blocks = rest[m:-BLOCKS], rest[-BLOCKS:]
        if sum(counts) != sum(blocks):
            raise ValueError(f"state of {sum(counts)} outcomes, issued in blocks that hold {sum(blocks)}")
        end = start + _LENGTH.unpack_from(payload, start - _LENGTH.size)[0]
        self._segments.decode(payload[start:end])
        self._place.decode(payload[end:])
        self._saturated, self._pairs, self._last, self._most_alike = saturated, pairs, last, most_alike
        self._take(counts, blocks)

    def saturated(self) -> int:
        """Return how many learnt answers had a level played at or below 0, or at or above 1."""
        return self._saturated

    def coverage(self) -> list[float]:
        """Return k_j / n, the coverage of each level as played; NaN before the first outcome."""
        n = self.learnt
        return [k / n if n else math.nan for k in accumulate(self._counts[:-1])]

    def error(self) -> float | None:
        """Return max_j |k_j / n - p_j|; None before the first outcome."""
        if not self.learnt:
            return None
        return max(abs(covered - p) for covered, p in zip(self.coverage(), self.levels, strict=True))

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the bound on `error`. It holds for any outcomes, even those of an adversary.

        ``outstanding``: the most forecasts that were outstanding at once while another was issued. The measured D is
        used instead if it is larger.

        Notes
        -----
        With D outstanding at most, T learnt, h levels between j and the anchor, G_j = p_j n - k_j after n outcomes,
        z_j where s_j starts, a and b the ends of its scale (0 and 1; the log-odds of `TAIL` and 1 - TAIL), and e the
        least step, that with D outstanding and the largest C so far, above the anchor (below it mirrored):

            |k_j / T - p_j| <= max(b - z_j + e (1 + D) p_j, z_j - a + e (1 + D) (1 - p_j + h)) / (e T)

        No step is below e, because D never counts too many: A(w) - w counts tickets issued before w outcomes were
        learnt and resolved after. While G_j > (b - z_j) / e, s_j = z_j + (step) G_j is above b, and level j covers. So
        G_j rises further only by outcomes of forecasts issued before, at most 1 + D of them, each by p_j. For the same
        reason the anchor has G >= -(z - a) / e - (1 + D) (1 - p). And G_j - G_{j+1} grows, by 1 + p_j - p_{j+1} at
        most, only where v_j < u <= v_{j+1}. That needs v_{j+1} = s_{j+1} > s_j, hence (step) (G_j - G_{j+1}) < z_{j+1}
        - z_j. So the difference is at most (z_{j+1} - z_j) / e + (1 + D) (1 + p_j - p_{j+1}). The sum over h levels
          bounds how far a level's G lies below the anchor's.
        """
        if not self.learnt:
            return None
        outstanding = max(outstanding, self.outstanding())
        step = self._step(outstanding, self._most_alike)
        late = step * (1 + outstanding)
        first, last = self._ends
        most = 0.0
        for j, (level, z) in enumerate(zip(self.levels, self._start, strict=True)):
            h = abs(j - self._anchor)
            p, up, down = (level, last - z, z - first) if j >= self._anchor else (1.0 - level, z - first, last - z)
            most = max(most, up + late * p, down + late * (1.0 - p + h))
        return min(1.0, most / (step * self.learnt))


class _Issued(NamedTuple):
    """An unpacked ticket: draw, outcomes learnt, levels played, places, segments' part, the raw law and its units."""

    draw: int
    version: int
    play: list[float]
    places: Sequence[float]
    segments: bytes
    law: Law
    units: Units


def _covering(issued: _Issued, y: float) -> int:
    """Return the index of the first played level that covers an outcome; the number of levels if none does."""
    c, d = offset(served_at(issued.segments) if issued.segments else issued.places, issued.units)
    below, at = issued.law.cdf((y - c) / d)
    u = below + (at - below) * ((issued.draw + 0.5) / (1 << BITS))
    return bisect_left(issued.play, u)
