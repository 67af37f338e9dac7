"""Two logistic maps and a bend of their scores: as much as the outcomes support, and raw forecasts until then."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import ClassVar, Final

from state.calibrators.answer import Answer, Prediction, new
from state.calibrators.base import Calibrator, require_length, require_probability
from state.calibrators.bend import Bend
from state.calibrators.guard import SIZE as GUARD_SIZE
from state.calibrators.guard import Guard
from state.calibrators.logistic import P_CLIP, Z_CLIP, lacking, newton, share_step, sigmoid
from state.calibrators.options import Number, Option

#: Information, Σ q(1 - q), after which an outcome counts half: in the slow map, the fast map, and the blend.
#: Chosen with what the identity counts for, on bank-full, Elec2 and flights with outcomes 0 to 5,000 forecasts late: of
#: 162 settings the one that is nowhere worse than the best front by more than .002 Brier. With 3 instead of 6 Elec2
#: gains .011 Brier and loses .0005 where outcomes are 500 late; with 500 or 2,000 instead of 1,000 flights 2,000
#: late, or bank 2,000 late, are .0005 worse.
SLOW: Final = 1000.0
FAST: Final = 6.0
BLEND: Final = 2000.0
#: Most by which the fast map moves the slow one, in log-odds. Without it the top of flights is .15 too high at .75
#: and ECE .010 instead of .006: a bad night moves the log-odds, but not without end.
REACH: Final = 2.0
#: Memory of the slow map in lags, where that is more than `SLOW`, the lag of an outcome being the information learnt
#: since its forecast was issued; of the blend twice as much. What comes and goes faster than outcomes come is noise.
#: Without it flights 2,000 late are .1772 (Brier; raw .1775), with 5, 7, 10 .1758, .1756, .1756; bank 2,000 late .1031,
#: .1031, .1032, .1035.
LAGS: Final = 7.0
#: Information that the identity counts for: in slope and offset of both maps, in offset and share of the blend.
IN_SLOPE: Final = 1.0
IN_OFFSET: Final = 0.05
IN_BLEND: Final = 200.0
IN_SHARE: Final = 50.0
#: Zeros that have to be seen before anything is learnt, and ones that raw forecasts must have expected where none came.
ZEROS: Final = 20
EXPECTED: Final = 4.0
#: Information learnt from which the slow map is settled: what it answers is evidence about the blend. With 20, payments
#: of .4 % fraud, learnt after 45 days, were served 1.3 % less on average (six seeds): that is debt.
SETTLED: Final = 60.0
#: Forecasts are a crowd if they were issued within a `CROWD`-th of the information that was learnt before, once that is
#: `CROWDED`. What a crowd teaches is bounded: its error, Σ (q - y), counts up to `ROOM` of that information and `LEAST`
#: more. With .2 and 12 an hour of fraud does twice to thirty times the harm; with .05 and 6 a rate that becomes ten
#: times as high for good is learnt later (docs/explanation/calibrators.md, *What was tried for bursts*).
CROWD: Final = 40.0
CROWDED: Final = 20.0
ROOM: Final = 0.1
LEAST: Final = 6.0
#: Crowds that are remembered: those of a fifth to all of the information.
CROWDS: Final = 64
#: Slopes stay here, offsets within `FAR`.
FLAT: Final = 0.05
STEEP: Final = 5.0
FAR: Final = 20.0

#: Log-odds beyond the lowest and the highest other score at which scores of 0 and 1 are read once one was wrong.
BEYOND: Final = 1.0
#: Log-odds of a score of 0, and a little more: those of 1 are not exactly as far.
CERTAIN: Final = Z_CLIP + 1e-6

#: Of the state. Version 1 had no bend, version 2 no share of it, version 3 read wrong certainties as they were, version
#: 4 knew no crowds, version 5 no batches; their states are refused.
VERSION: Final = 6
#: First word of the state. Version 1 began with a count, which never has the highest bit.
_FORMAT: Final = 1 << 63 | VERSION
#: Knots of the bend: the lowest one and how many there are, a step of .5 apart in log-odds, from .12 to 96 %.
#: With 20 units of information for the identity; 5, 50 and 100, or steps of .25 and 1, on the streams and delays of
#: `SLOW` are within .0006 Brier, but for steps of 1 and bank 2,000 late (-.0024), and shifts of the knots move that as
#: far.
KNOTS: Final = (-6.75, 0.5, 21)
IN_BEND: Final = 20.0
#: Information after which an outcome counts half in the bend.
BENT: Final = 10_000.0
#: Information that a share of 0 of the bend counts for. With a share of 1 throughout, flights with outcomes 2,000 late
#: were .0011 Brier worse than without a bend, and AUC .011; with this .0002 and .002. 3 and 10 are within .0003.
IN_BENT_SHARE: Final = 5.0

_RAW: Final = Struct("<dd")
_ISSUED: Final = Struct("<ddffff")
_STATE: Final = Struct("<QQQQQ23d")
_CROWDS: Final = Struct(f"<{CROWDS}H{CROWDS}d")
#: Bytes of a ticket before the slow map is settled.
UNSETTLED: Final = _RAW.size
#: Bytes of a state.
SIZE: Final = _STATE.size + GUARD_SIZE + _CROWDS.size + 16 * KNOTS[2]
_LN2: Final = math.log(2.0)


class TwoSpeed(Calibrator):
    """Serve a strictly increasing map of the raw forecast, which departs from it as far as the outcomes support.

    Parameters
    ----------
    slope, offset
        A map from replay, ``sigmoid(slope z + offset)`` of the raw log-odds z, that is served and believed at first.
    prior_rate, model_rate
        Share of ones to expect, and in what the model learnt: their log-odds' difference is added to the offset. 0: not
        known.
    name, seed
        Unused: nothing is drawn.

    Notes
    -----
    With z the log-odds of the raw forecast (after ``slope`` and ``offset``), and s(v) = 1 / (1 + exp(-v)),

        slow u = a z + b,  fast f = a' z + b',  v = u + c + e clip(f - u, ±`REACH`),

        p = w s(z) + (1 - w) s(v + k r(v)).

    *Order.* a and a' are at least `FLAT`, e and k in [0, 1], v + r(v) has a slope of at least .05 and w > 0: p
    increases strictly with the raw forecast.

    *The maps* take Newton steps at arrival: with q the answer of today's map to the ticket's z, x = (z, 1) and
    curvature A, ``A <- λ A + (1 - λ) P + q(1-q) x x'``, ``θ <- θ - A^-1 ((q - y) x + (1 - λ) P (θ - θ_0))``. A starts
    as the prior P at the identity θ_0. λ = 1 - ln(2) q(1-q) / halflife, so memory counts information: at .4 % the slow
    map remembers 1,000 frauds, not 1,000 outcomes, and `LAGS` times as much as is learnt while an outcome is awaited.
    Without forgetting this is, but for the linearisation, the posterior mode. Until it is settled the slow map takes
    |q - y| / 2 for q(1-q) where that is more: both have the same mean if q is right. Where a batch of outcomes comes
    sorted by label, zeros first, q is nearly 0 when the ones come, and its curvature says nothing about where they
    lead: without this they made everybody a fraudster, log loss 7 to 16 times raw's until the next batch.

    *The blend* (c, e) takes the same step on what both maps had answered **when the forecast was issued**: where
    outcomes come late the fast map was stale, and e falls to 0; where late outcomes are of another kind than early
    ones, c corrects it. Only tickets issued when the slow map had `SETTLED` are counted, so that nothing that was
    served before, while little was known, is paid back, and only after `ZEROS` of them have come to a zero.

    *The bend* r (`Bend`) makes every band of scores right: it is piecewise linear on `KNOTS` and learns by what v was
    when the forecast was issued, from the same tickets as the blend. Its share k begins at 0 and takes the same steps
    on what v and r had been when the forecast was issued: a bend that comes too late to be right keeps no share.

    *Certainties.* Scores of 0 and 1 (beyond 1e-6) have log-odds of ∓13.8. Where scores are rounded, a 0 is little less
    than the lowest other score, and a line through both is too flat everywhere else. So from the first 0 that happened
    on, the maps read log-odds below a floor as floor + `FLAT` (z - floor): it lies `BEYOND` the lowest other score that
    was learnt. The same is done with ones that did not happen. Raw forecasts are weighed as they were sent.

    *Crowds.* Forecasts of one hour share what happened in it. Where half of them are frauds that nobody scored, they
    are not so many facts about all others, and before they were bounded they made the scores of the next weeks several
    times too high. So of each crowd, the forecasts of the same floor(`CROWD` ln i) with i the information learnt when
    they were issued, the error R = Σ (q - y) of the slow map is kept, and an outcome counts for the share of its own
    error by which R moves within its bounds: in the slow map, in the blend, in L and in V, and in what lasts of
    `BySegment`. So the order of a crowd's labels does not matter, and where q is right on average all count in full. So
    do prompt outcomes, i = information. A crowd's bounds never change: when a wrong batch is corrected, as much is
    taken back as had counted; where all its outcomes were prompt, all of it. Information counts in full, whatever
    counted of its outcome: were it bounded, too, a crowd that has reached its bounds would never end.

    *Raw.* Its weight w is that of `Guard`, by the log loss of raw forecasts and that of the map, which of settled
    tickets is today's blend and bend of what both maps had answered. If outcomes are prompt, then on any sequence, from
    the first evidence on,

        Σ log loss(p) <= Σ log loss(raw) + .105 max(1, sqrt(V) / 2)  nats,

    and 2.3 in the place of .105 for the map: sqrt(V) is the standard error of their difference, so p cannot be worse
    than raw by more than .06 of it, or by .11 nats in all. After a broken model or wrong labels raw forecasts return
    within 24 / η nats. Late outcomes: measured there, no theorem.

    *Evidence.* p is the raw forecast, and nothing is learnt, until `ZEROS` zeros have been seen: where frauds are
    reported first and zeros on day 45, the first outcomes are all ones. Then p is raw until also a one was seen, or
    `EXPECTED` ones had been expected by raw forecasts. Zeros alone then move it no further than to a few ones, up to
    ten, in the outcomes seen. Ones alone never move it: a stream of nothing but ones is served raw.

    *Revisions.* Ones are counted exactly, and a one that is taken back is not counted as a zero. Where good payments
    are never reported, the ones that are taken back would else be evidence that one in twenty is good: .68 nats worse
    than raw. Slow map, blend and bend take the step by which the gradients differ, at today's curvature and as much
    more as the new label asks for (`lacking`); the fast map has forgotten. In L the difference of losses at the label
    before gives way to that at the new one, both of today's map. Without these two, 3,000 zeros by silence of which the
    ones were corrected made everybody a fraudster. An outcome that was not learnt is not told from one that was.

    Ticket: z, information learnt (f64 each); once the slow map is settled also u, f, v, r (f32 each). Bytes: the
    version with the highest bit, outcomes, zeros, ones, zeros of settled tickets up to `ZEROS` (u64), raw ones
    expected, information learnt, a, b, A_zz, A_z1, A_11, the same of the fast map, c, e, H_cc, H_ce, H_ee, k, H_k
    (f64), lowest and highest score, floor and ceiling in log-odds (f64), those of `Guard`, the numbers of `CROWDS`
    crowds (u16), each at its number modulo `CROWDS`, their errors (f64), those of `Bend`. Little-endian.

    References
    ----------
    King & Zeng 2001, *Logistic regression in rare events data* (prior rates); Cesa-Bianchi & Lugosi 2006, section 3.3
    (mixtures of exp-concave losses); Gupta & Ramdas 2023, *Online Platt Scaling with Calibeating*.

    Examples
    --------
    >>> calibrator = TwoSpeed()
    >>> for t in range(1000):
    ...     calibrator.update(calibrator.predict(0.9).ticket, t % 5 < 3)
    >>> round(calibrator.predict(0.9).p, 1)
    0.6
    """

    name: ClassVar[str] = "twospeed"
    options: ClassVar[dict[str, Option]] = {
        "slope": Number(1.0, 0.05, 20.0, "slope in log-odds of the map that is served at first"),
        "offset": Number(0.0, -20.0, 20.0, "its offset in log-odds"),
        "prior_rate": Number(0.0, 0.0, 0.999999, "share of ones to expect at first; 0: not known"),
        "model_rate": Number(0.0, 0.0, 0.999999, "share of ones among what the model learnt from; 0: not known"),
    }

    def __init__(
        self,
        *,
        slope: float = 1.0,
        offset: float = 0.0,
        prior_rate: float = 0.0,
        model_rate: float = 0.0,
        name: str = "",
        seed: int = 0,
    ) -> None:
        if (prior_rate > 0.0) != (model_rate > 0.0):
            raise ValueError("prior_rate and model_rate must be given together")
        self._slope, self._offset = float(slope), float(offset)
        if prior_rate > 0.0:
            self._offset += math.log(prior_rate / (1.0 - prior_rate)) - math.log(model_rate / (1.0 - model_rate))
        self._plain = self._slope == 1.0 and self._offset == 0.0
        self.learnt, self._zeros, self._ones, self._settled = 0, 0, 0, 0
        self._expected, self._information = 0.0, 0.0
        self._a, self._b, self._zz, self._z1, self._11 = 1.0, 0.0, IN_SLOPE, 0.0, IN_OFFSET
        self._fa, self._fb, self._fzz, self._fz1, self._f11 = 1.0, 0.0, IN_SLOPE, 0.0, IN_OFFSET
        self._c, self._e, self._cc, self._ce, self._ee = 0.0, 0.0, IN_BLEND, 0.0, IN_SHARE
        self._bend = Bend(*KNOTS, IN_BEND)
        self._bent, self._bent_held = 0.0, IN_BENT_SHARE
        self._guard = Guard()
        #: Record time of the label that is learnt next, ms; 0 if it is of no batch.
        self.at = 0
        self._crowds, self._errors = [0] * CROWDS, [0.0] * CROWDS
        #: What share of the last outcome or correction counted, see *Crowds*.
        self.part = 1.0
        self._lowest, self._highest, self._floor, self._ceiling = 0.0, 0.0, Z_CLIP, -Z_CLIP

    def evident(self) -> bool:
        """Return whether the outcomes so far allow to serve anything but the raw forecast."""
        return self._zeros >= ZEROS and (self._ones > 0 or self._expected >= EXPECTED)

    def _read(self, z: float) -> float:
        """Return log-odds as the maps read them."""
        if z < self._floor:
            return self._floor + FLAT * (z - self._floor)
        if z > self._ceiling:
            return self._ceiling + FLAT * (z - self._ceiling)
        return z

    def _note(self, z: float, y: float) -> None:
        """Learn between which log-odds scores lie, and whether one of 0 or 1 was wrong."""
        if z <= CERTAIN:
            if y > 0.5:
                self._floor = max(self._lowest - BEYOND, Z_CLIP)
        elif z >= -CERTAIN:
            if y < 0.5:
                self._ceiling = min(self._highest + BEYOND, -Z_CLIP)
        elif z < self._lowest:
            self._lowest = z
            if self._floor > Z_CLIP:
                self._floor = max(z - BEYOND, Z_CLIP)
        elif z > self._highest:
            self._highest = z
            if self._ceiling < -Z_CLIP:
                self._ceiling = min(z + BEYOND, -Z_CLIP)

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        """Serve the map's value at ``p``; see `Calibrator.predict`."""
        require_probability(p)
        clipped = min(max(p, P_CLIP), 1.0 - P_CLIP)
        z = math.log(clipped) - math.log1p(-clipped)
        if not self._plain:
            z = min(max(self._slope * z + self._offset, Z_CLIP), -Z_CLIP)
            p = 1.0 / (1.0 + math.exp(-z))
        if self._zeros < ZEROS or (self._ones == 0 and self._expected < EXPECTED):
            return new(Answer, (p, p, _RAW.pack(z, self._information)))
        read = z if self._floor <= z <= self._ceiling else self._read(z)
        u = self._a * read + self._b
        f = self._fa * read + self._fb
        v = u + self._c + self._e * min(max(f - u, -REACH), REACH)
        w = self._guard.weight
        r = self._bend.at(v)
        bent = v + self._bent * r
        p = w * p + (1.0 - w) / (1.0 + math.exp(-min(max(bent, Z_CLIP), -Z_CLIP)))
        if self._information < SETTLED:
            return new(Answer, (p, p, _RAW.pack(z, self._information)))
        return new(Answer, (p, p, _ISSUED.pack(z, self._information, u, f, v, r)))

    def now(self, ticket: bytes) -> tuple[float, float]:
        """Return today's log-odds at a ticket's forecast, and the information learnt since it was issued."""
        z, since = _RAW.unpack_from(ticket)
        read = z if self._floor <= z <= self._ceiling else self._read(z)
        w = self._guard.weight
        return w * z + (1.0 - w) * self._mapped(read), self._information - since

    def _mapped(self, z: float) -> float:
        """Return today's log-odds without the raw forecast, at log-odds as `_read` gives them."""
        u = self._a * z + self._b
        v = u + self._c + self._e * min(max(self._fa * z + self._fb - u, -REACH), REACH)
        return v + self._bent * self._bend.at(v)

    def moment(self, at: int) -> None:
        """Say when the label that is learnt next was recorded; see `Calibrator.moment`."""
        self.at = at

    def update(self, ticket: bytes, y: float) -> None:
        """Learn from an outcome, 0 or 1, if there is evidence of both."""
        self._require_label(y)
        evident = self._zeros >= ZEROS and (self._ones > 0 or self._expected >= EXPECTED)
        self.part = 1.0
        self.learnt += 1
        if y > 0.5:
            self._ones += 1
        else:
            self._zeros += 1
        if self._zeros < ZEROS:
            return
        settled = len(ticket) > _RAW.size
        if settled:
            z, since, u, f, v, r = _ISSUED.unpack(ticket)
            if self._settled < ZEROS:
                self._settled += 1 - int(y)
                settled = False
        else:
            z, since = _RAW.unpack(ticket)
            u = f = v = r = 0.0
        raw = 1.0 / (1.0 + math.exp(-z))
        self._expected += raw
        if not self._lowest <= z <= self._highest:
            self._note(z, y)
            z = self._read(z)
        slow = self._a * z + self._b
        fast = self._fa * z + self._fb
        if not settled:
            u, f = slow, fast
        d = min(max(f - u, -REACH), REACH)
        today = u + self._c + self._e * d
        slow = sigmoid(slow)
        part = self.part = self._part(since, slow - y) if CROWDED <= since < self._information else 1.0
        if evident:  # else the raw forecast was served
            q = sigmoid(today + self._bent * self._bend.at(today))
            delta = math.log(q / raw) if y > 0.5 else math.log((1.0 - q) / (1.0 - raw))
            self._guard.weigh(part * delta, part * delta * delta, self.at)
        memory = LAGS * (self._information - since)
        if settled:
            q = sigmoid(today)
            late = max(BLEND, 2.0 * memory)
            self._blend(part * (q - y), part * q * (1.0 - q), d, late)
            self._bent, self._bent_held = share_step(self._bent, self._bent_held, IN_BENT_SHARE, v, r, y, late)
            self._bend.learn(v, y, max(BENT, 2.0 * memory))
        self._learn_slow(z, slow, y, max(SLOW, memory), part)
        self._learn_fast(z, sigmoid(fast), y)

    def _part(self, since: float, g: float, *, revised: bool = False) -> float:
        """Return what share of an outcome counts, 0 to 1: that by which its crowd's error moves within its bounds.

        A revision counts in full where no outcome of its crowd was late: all of them had counted in full.
        """
        crowd = int(math.log(since) * CROWD) & 0xFFFF
        place = crowd % CROWDS
        if revised and self._crowds[place] < crowd:
            return 1.0
        before = self._errors[place] if self._crowds[place] == crowd else 0.0
        self._crowds[place] = crowd
        after = self._errors[place] = before + g
        most = ROOM * math.exp(crowd / CROWD) + LEAST
        if -most <= before <= most and -most <= after <= most:
            return 1.0
        return (min(max(after, -most), most) - min(max(before, -most), most)) / g

    def _blend(self, g: float, information: float, d: float, halflife: float) -> None:
        """Take a step of offset and share of the blend, of which the share stays in [0, 1]."""
        fade = information * _LN2 / halflife
        keep = 1.0 - fade
        cc = self._cc = keep * self._cc + fade * IN_BLEND + information
        ce = self._ce = keep * self._ce + information * d
        ee = self._ee = keep * self._ee + fade * IN_SHARE + information * d * d
        gc = g + fade * IN_BLEND * self._c
        ge = g * d + fade * IN_SHARE * self._e
        dc, de = newton(cc, ce, ee, gc, ge)
        c, e = self._c - dc, self._e - de
        inside = min(max(e, 0.0), 1.0)
        # The nearest point in the norm of the curvature: the offset moves along.
        self._c, self._e = c - ce / cc * (inside - e), inside

    def _learn_slow(self, z: float, q: float, y: float, halflife: float, part: float) -> None:
        information = q * (1.0 - q)
        self._information += information
        information *= part
        fade = information * _LN2 / halflife
        keep = 1.0 - fade
        g = part * (q - y)
        half = 0.5 * (g if g > 0.0 else -g)
        curved = half if self._information < SETTLED and half > information else information
        zz = self._zz = keep * self._zz + fade * IN_SLOPE + curved * z * z
        z1 = self._z1 = keep * self._z1 + curved * z
        oo = self._11 = keep * self._11 + fade * IN_OFFSET + curved
        ga = g * z + fade * IN_SLOPE * (self._a - 1.0)
        gb = g + fade * IN_OFFSET * self._b
        da, db = newton(zz, z1, oo, ga, gb)
        a, b = self._a - da, self._b - db
        inside = min(max(a, FLAT), STEEP)
        self._a, self._b = inside, min(max(b - z1 / oo * (inside - a), -FAR), FAR)

    def _learn_fast(self, z: float, q: float, y: float) -> None:
        information = q * (1.0 - q)
        fade = information * (_LN2 / FAST)
        keep = 1.0 - fade
        zz = self._fzz = keep * self._fzz + fade * IN_SLOPE + information * z * z
        z1 = self._fz1 = keep * self._fz1 + information * z
        oo = self._f11 = keep * self._f11 + fade * IN_OFFSET + information
        g = q - y
        ga = g * z + fade * IN_SLOPE * (self._fa - 1.0)
        gb = g + fade * IN_OFFSET * self._fb
        da, db = newton(zz, z1, oo, ga, gb)
        a, b = self._fa - da, self._fb - db
        inside = min(max(a, FLAT), STEEP)
        self._fa, self._fb = inside, min(max(b - z1 / oo * (inside - a), -FAR), FAR)

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Correct the counts, and step by what the gradients of the labels differ; y is 0 or 1.

        A one that is taken back is no evidence of zeros: where good payments are never reported, it is all that says 0.
        """
        self._require_label(y)
        g = was - y
        self.part = 1.0
        if g == 0.0:
            return
        change = 1 if g < 0.0 else -1
        self._ones += change
        if change > 0:
            self._zeros = max(self._zeros - 1, 0)
        if self._zeros < ZEROS:
            return
        z, since = _RAW.unpack_from(ticket)
        late = CROWDED <= since < self._information
        part = self.part = self._part(since, g, revised=True) if late else 1.0
        if part == 0.0:
            return
        g *= part
        raw = 1.0 / (1.0 + math.exp(-z))
        z = self._read(z)
        if self.evident():
            q = sigmoid(self._mapped(z))
            self._guard.correct(-g * (math.log(q / raw) - math.log((1.0 - q) / (1.0 - raw))), 0.0)
        more = part * lacking(sigmoid(self._a * z + self._b), y)
        gz = g * z
        zz = self._zz = self._zz + more * z * z
        z1 = self._z1 = self._z1 + more * z
        oo = self._11 = self._11 + more
        da, db = newton(zz, z1, oo, gz, g)
        a, b = self._a - da, self._b - db
        inside = min(max(a, FLAT), STEEP)
        self._a, self._b = inside, min(max(b - z1 / oo * (inside - a), -FAR), FAR)
        if len(ticket) > _RAW.size:
            _, _, u, f, v, _ = _ISSUED.unpack(ticket)
            self._bend.step(v, g)
            d = min(max(f - u, -REACH), REACH)
            more = part * lacking(sigmoid(u + self._c + self._e * d), y)
            cc = self._cc = self._cc + more
            ce = self._ce = self._ce + more * d
            ee = self._ee = self._ee + more * d * d
            scale = g / (cc * ee - ce * ce)
            c = self._c - (ee - ce * d) * scale
            e = self._e - (cc * d - ce) * scale
            inside = min(max(e, 0.0), 1.0)
            self._c, self._e = c - ce / cc * (inside - e), inside

    def encode(self) -> bytes:
        """Return the state; layout in the class's notes."""
        slow = (self._a, self._b, self._zz, self._z1, self._11)
        fast = (self._fa, self._fb, self._fzz, self._fz1, self._f11)
        blend = (self._c, self._e, self._cc, self._ce, self._ee)
        bent = (self._bent, self._bent_held)
        ends = (self._lowest, self._highest, self._floor, self._ceiling)
        others = self._guard.encode() + _CROWDS.pack(*self._crowds, *self._errors) + self._bend.encode()
        counts = (self.learnt, self._zeros, self._ones, self._settled, self._expected, self._information)
        return _STATE.pack(_FORMAT, *counts, *slow, *fast, *blend, *bent, *ends) + others

    def decode(self, payload: bytes) -> None:
        """Take over a state written by `encode`; ValueError if it is cut or of another version."""
        begins = int.from_bytes(payload[:8], "little") if len(payload) >= 8 else _FORMAT
        if begins != _FORMAT:
            found = f"format version {begins ^ 1 << 63}" if begins >> 63 else "an earlier format version"
            raise ValueError(f"state of {self.name} has {found}, this build reads version {VERSION}")
        require_length(payload, SIZE)
        _, self.learnt, self._zeros, self._ones, self._settled, *maps = _STATE.unpack(payload[: _STATE.size])
        self._guard.decode(payload, _STATE.size)
        at = _STATE.size + GUARD_SIZE
        crowds = _CROWDS.unpack_from(payload, at)
        self._crowds, self._errors = list(crowds[:CROWDS]), list(crowds[CROWDS:])
        self._bend.decode(payload[at + _CROWDS.size :])
        self._expected, self._information, *maps = maps
        self._a, self._b, self._zz, self._z1, self._11 = maps[:5]
        self._fa, self._fb, self._fzz, self._fz1, self._f11 = maps[5:10]
        self._c, self._e, self._cc, self._ce, self._ee = maps[10:15]
        self._bent, self._bent_held = maps[15:17]
        self._lowest, self._highest, self._floor, self._ceiling = maps[17:]
