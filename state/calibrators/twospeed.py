"""Two logistic maps, a bend and an isotonic regression, which depart from raw forecasts as far as outcomes support."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import ClassVar, Final

from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import Calibrator, require_length, require_probability
from state.calibrators.bend import Bend
from state.calibrators.certainties import Certainties
from state.calibrators.crowds import SIZE as CROWDS_SIZE
from state.calibrators.crowds import Crowds
from state.calibrators.guard import SIZE as GUARD_SIZE
from state.calibrators.guard import Guard, corrected
from state.calibrators.isotonic import SIZE as STEPS_SIZE
from state.calibrators.isotonic import Isotonic
from state.calibrators.line import Line
from state.calibrators.logistic import P_CLIP, Z_CLIP, lacking, share_step, sigmoid
from state.calibrators.options import Option, number
from state.calibrators.runs import SIZE as RUNS_SIZE
from state.calibrators.runs import SPAN, Runs
from state.calibrators.two_scales import TwoScales, itself
from state.quick import log1p, new

#: Information, Σ q(1 - q), after which an outcome counts half: in the slow map, the fast map, and the blend. Of 162
#: settings of these and of the prior information, only this one is nowhere worse than the best front by more than .002
#: Brier, on bank-full, Elec2 and flights with outcomes 0 to 5,000 late. With 3 instead of 6 Elec2 gains .011 Brier and
#: loses .0005 with outcomes 500 late. With 500 or 2,000 instead of 1,000, flights or bank 2,000 late are .0005 worse.
SLOW: Final = 1000.0
FAST: Final = 6.0
BLEND: Final = 2000.0
#: The most that the fast map may move the slow one, in log-odds: one bad night cannot move it without end. Without it
#: the highest flights are .15 too high at .75, and ECE is .010 instead of .006.
REACH: Final = 2.0
#: Memory of the slow map in lags, where that is more than `SLOW`; the blend remembers twice as much. The lag of an
#: outcome is the information learnt since its forecast was issued. Changes faster than outcomes arrive are noise. Brier
#: of flights 2,000 late is .1772 without it (raw .1775), and .1758, .1756, .1756 with 5, 7, 10; of bank 2,000 late
#: .1031, and .1031, .1032, .1035.
LAGS: Final = 7.0
#: Information that the identity counts for: in the slope of both maps, in the offsets of the slow and of the fast one,
#: in offset and share of the blend. All except `IN_BLEND`, and also `IN_BEND`, were chosen on 21 streams that nothing
#: had been tuned on (docs/explanation/calibrators.md). With .2 in the offset of the fast map, too, the log loss of
#: Elec2 is .5 % worse.
IN_SLOPE: Final = 2.0
IN_OFFSET: Final = 0.2
IN_FAST_OFFSET: Final = 0.05
IN_BLEND: Final = 200.0
IN_SHARE: Final = 20.0
#: Zeros that are needed before anything is learnt; and ones that raw forecasts must have expected if none came.
ZEROS: Final = 20
EXPECTED: Final = 4.0
#: Information after which the slow map is settled, so that its answers are evidence about the blend. With 20, payments
#: of .4 % fraud learnt after 45 days were served 1.3 % less on average (six seeds), to compensate for early answers.
SETTLED: Final = 60.0
#: Least and largest slope of the maps, and largest offset.
FLAT: Final = 0.05
STEEP: Final = 5.0
FAR: Final = 20.0

#: First word of the state.
_FORMAT: Final = 1 << 63 | 9
#: Knots of the bend: the lowest, their distance of .5 in log-odds, and their number; from .12 to 96 %. The identity
#: counts as 5 units of information. With 20, ones among the lowest scores moved their knot far too late.
KNOTS: Final = (-6.75, 0.5, 21)
IN_BEND: Final = 5.0
#: Information after which an outcome counts half in the bend.
BENT: Final = 10_000.0
#: Information that a share of 0 of the bend counts as. With a fixed share of 1, flights are .3 % worse in log loss, and
#: .0011 in Brier score if their outcomes come 2,000 late.
IN_BENT_SHARE: Final = 2.0

_RAW: Final = Struct("<ddf")
_ISSUED: Final = Struct("<ddfffff")
_STATE: Final = Struct("<QQQQQ31d")
#: Bytes of a ticket before the slow map is settled.
UNSETTLED: Final = _RAW.size
#: Bytes of a state.
SIZE: Final = _STATE.size + GUARD_SIZE + CROWDS_SIZE + 16 * KNOTS[2] + STEPS_SIZE + RUNS_SIZE
_LN2: Final = math.log(2.0)


class TwoSpeed(Calibrator):
    """Serve a strictly increasing map of the raw forecast, which departs from it only as far as outcomes support.

    ``slope, offset``: the map to start with, ``sigmoid(slope z + offset)`` of the raw log-odds z, say from a replay.
    ``prior_rate, model_rate``: share of ones in the stream, and in the model's training data; the difference of their
      log-odds is added to the offset. 0: not known.

    Notes
    -----
    With z the log-odds of the raw forecast (after ``slope`` and ``offset``), s(v) = 1 / (1 + exp(-v)), t = 4 s(z) - 2,

        slow u = a z + d t + b,  fast f = a' z + b',  v = u + c + e clip(f - u, ±`REACH`),

        p = w' (w s(z) + (1 - w) s(v + k r(v))) + (1 - w') i(z).

    *Order.* a and a' are at least `FLAT`, d at least 0, e and k in [0, 1], v + r(v) has a slope of at least .05, i
    never falls, w > 0: p increases strictly with the raw forecast.

    *The maps* take the steps of `Line` when outcomes arrive, with q the present map's answer to the ticket's z, g = q -
    y and h = q (1 - q). λ = ln(2) h / halflife, so memory counts information: at .4 % the slow map remembers 1,000
    frauds, not 1,000 outcomes. It also remembers `LAGS` times what is learnt while an outcome is awaited. Without
    forgetting this is the posterior mode, up to linearisation. The slow map (`TwoScales`) has the score itself as a
    second scale, because shares of votes are no log-odds, and takes proximal steps, which do not overshoot where scores
    are far too sure. A batch may be sorted by label, zeros first. q is then nearly 0 when the ones come, and so is h.
    So h is the mean of its values at the step's end and before the batch. A batch is all labels whose record times lie
    in one `SPAN`. Labels implied by silence have no record time; those in a row are one batch. Without the value before
    the batch, log loss was up to 3 times raw's until the next batch.

    *The blend* (c, e) takes the same step on both maps' answers **as issued**. Where outcomes come late the fast map
    was stale, and e falls to 0. Where late outcomes are of another kind than early ones, c corrects that. Only tickets
    issued after the slow map had `SETTLED` count, and only once `ZEROS` of them have resolved to zero. So early
    answers, given with little evidence, are not compensated for later.

    *The bend* r (`Bend`) corrects each band of scores. It is piecewise linear on `KNOTS` and learns at v as issued,
    from the same tickets as the blend. Its share k starts at 0 and takes the same steps on v and r as issued, so a bend
    that comes too late to be right keeps no share.

    *Steps.* i (`Isotonic`) can follow risks that jump. Its weight against all the rest begins at .01, and moves by what
    i answered at issue.

    *Certainties.* Once a forecast of 0 has come true, or one of 1 has not, the maps read such forecasts as log-odds
    that their own outcomes teach (`Certainties`). The weight w compares raw forecasts as they were sent.

    *Crowds.* Forecasts of one hour share what happened in it. So an outcome counts only for the share that `Crowds`
    derives from the errors of the slow map: in that map, in the blend, in L and V, and in the lasting corrections of
    `BySegment`. Information always counts in full: otherwise a crowd that has reached its bounds would never end.

    *Raw.* Its weight w is that of `Guard`, from the log losses of raw forecasts and of the map; for settled tickets the
    map is today's blend and bend of both maps' answers as issued. For other late tickets, in a run of equal labels that
    had a chance below exp(-32) by the maps before it (`Runs`), those maps are judged: a map that follows a run seems to
    foresee it, as in a file sorted by label, or where many forecasts share an outcome. With prompt outcomes, on any
    sequence, from the first evidence on,

        Σ log loss(p) <= Σ log loss(raw) + .105 max(1, sqrt(V) / 2) + .01 max(1, sqrt(V') / 2)  nats,

    and against the map the same with 2.3 in place of the first .105. sqrt(V) is the standard error of the difference of
    raw and map, sqrt(V') that of both and i, so p is worse than raw by at most .06 standard errors, or by .12 nats in
    all. After a broken model or wrong labels raw forecasts return within 24 / η nats. For late outcomes there are
    measurements, but no theorem.

    *Evidence.* Until `ZEROS` zeros have come, p is the raw forecast and nothing is learnt: where frauds are reported
    first and zeros on day 45, the first outcomes are all ones. After that p stays raw until a one has come, or until
    raw forecasts have expected `EXPECTED` ones. Zeros alone move p at most to a rate of a few ones, up to ten, in the
    outcomes seen. Ones alone never move it.

    *Revisions.* Ones are counted exactly. A one that is taken back does not count as a zero: where good payments are
    never reported, such zeros would be the only ones and misleading, .68 nats worse than raw. Slow map, blend and bend
    take a step by the difference of the gradients, at today's curvature plus `lacking` of the new label. The fast map
    does nothing; it has forgotten the outcome. L replaces the old label's difference of losses by the new one's, both
    of today's map. Without these two corrections, 3,000 zeros by silence, some of them revised to ones, drove all
    scores to 1. A revision does not know whether its outcome was learnt.

    Ticket: z, information learnt (f64 each), i (f32); once the slow map is settled also u, f, v, r (f32 each). Bytes:
    `_FORMAT`, outcomes, zeros, ones, zeros of settled tickets up to `ZEROS` (u64), raw ones expected, information
    learnt, a, d, b, A_zz, A_zt, A_tt, A_z1, A_t1, A_11, of the fast map a', b', A_zz, A_z1, A_11, then c, e, H_cc,
    H_ce, H_ee, k, H_k (f64), lowest and highest score, floor and ceiling in log-odds, the number of the last span, a, d
    and b before it (f64), those of `Guard`, `Crowds`, `Bend`, `Isotonic` and `Runs`. Little-endian.

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
        "slope": number(1.0, 0.05, 20.0, "slope in log-odds of the map that is served at first"),
        "offset": number(0.0, -20.0, 20.0, "its offset in log-odds"),
        "prior_rate": number(0.0, 0.0, 0.999999, "share of ones to expect at first; 0: not known"),
        "model_rate": number(0.0, 0.0, 0.999999, "share of ones among what the model learnt from; 0: not known"),
    }

    def __init__(
        self,
        *,
        slope: float = 1.0,
        offset: float = 0.0,
        prior_rate: float = 0.0,
        model_rate: float = 0.0,
    ) -> None:
        if (prior_rate > 0.0) != (model_rate > 0.0):
            raise ValueError("prior_rate and model_rate must be given together")
        self._slope, self._offset = float(slope), float(offset)
        if prior_rate > 0.0:
            self._offset += math.log(prior_rate / (1.0 - prior_rate)) - math.log(model_rate / (1.0 - model_rate))
        self._plain = self._slope == 1.0 and self._offset == 0.0
        self.learnt, self._zeros, self._ones, self._settled = 0, 0, 0, 0
        self._expected, self._information = 0.0, 0.0
        self._slow = TwoScales(FLAT, STEEP, IN_SLOPE, IN_OFFSET, FAR)
        self._fast = Line(1.0, FLAT, STEEP, IN_SLOPE, IN_FAST_OFFSET, FAR)
        #: Offset c and share e of the blend: a line in the distance from the slow to the fast map.
        self._blend = Line(0.0, 0.0, 1.0, IN_SHARE, IN_BLEND)
        self._bend = Bend(*KNOTS, IN_BEND)
        self._bent, self._bent_held = 0.0, IN_BENT_SHARE
        self._guard = Guard()
        self._steps = Isotonic()
        self._crowds = Crowds()
        #: The share with which the last outcome or revision counted, see *Crowds*.
        self.part = 1.0
        self._ends = Certainties()
        #: The span of the last label; and a, d and b of the slow map before that span.
        self._span, self._from = 0, (1.0, 0.0, 0.0)
        self._runs = Runs()

    def evident(self) -> bool:
        """Return whether the outcomes so far support serving anything but the raw forecast."""
        return self._zeros >= ZEROS and (self._ones > 0 or self._expected >= EXPECTED)

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        require_probability(p)
        clipped = min(max(p, P_CLIP), 1.0 - P_CLIP)
        z = math.log(clipped) - log1p(-clipped)
        if not self._plain:
            z = min(max(self._slope * z + self._offset, Z_CLIP), -Z_CLIP)
            p = 1.0 / (1.0 + math.exp(-z))
        if self._zeros < ZEROS or (self._ones == 0 and self._expected < EXPECTED):
            return new(Answer, (p, p, _RAW.pack(z, self._information, 0.0)))
        ends = self._ends
        read = z if ends.floor <= z <= ends.ceiling else ends.read(z)
        slow, fast, blend = self._slow, self._fast, self._blend
        u = slow.at(read)
        f = fast.a * read + fast.b
        v = u + blend.b + blend.a * min(max(f - u, -REACH), REACH)
        w = self._guard.weight
        r = self._bend.at(v)
        bent = v + self._bent * r
        p = w * p + (1.0 - w) / (1.0 + math.exp(-min(max(bent, Z_CLIP), -Z_CLIP)))
        pooled = self._steps.at(read)
        p = self._steps.mixed(p, pooled)
        if self._information < SETTLED:
            return new(Answer, (p, p, _RAW.pack(z, self._information, pooled)))
        return new(Answer, (p, p, _ISSUED.pack(z, self._information, pooled, u, f, v, r)))

    def breaks(self) -> list[float]:
        """Return the raw forecasts at which the isotonic regression bends."""
        found = [(z - self._offset) / self._slope for z in self._steps.bends()]
        return [1.0 / (1.0 + math.exp(-z)) for z in found if Z_CLIP < z < -Z_CLIP]

    def now(self, ticket: bytes) -> tuple[float, float]:
        """Return today's log-odds for a ticket's forecast, and the information learnt since its issue."""
        z, since, _ = _RAW.unpack_from(ticket)
        ends = self._ends
        read = z if ends.floor <= z <= ends.ceiling else ends.read(z)
        w = self._guard.weight
        p = self._steps.mixed(sigmoid(w * z + (1.0 - w) * self._mapped(read)), self._steps.at(read))
        return math.log(p) - math.log1p(-p), self._information - since

    def _mapped(self, z: float) -> float:
        """Return the map's log-odds today, from log-odds as `Certainties` reads them."""
        v = self._blended(self._slow.at(z), self._fast.a * z + self._fast.b)
        return v + self._bent * self._bend.at(v)

    def _blended(self, u: float, f: float) -> float:
        """Return today's blend of what both maps answer."""
        return u + self._blend.b + self._blend.a * min(max(f - u, -REACH), REACH)

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """Learn from an outcome, 0 or 1, once there is evidence of both."""
        self._require_label(y)
        evident = self._zeros >= ZEROS and (self._ones > 0 or self._expected >= EXPECTED)
        self.part = 1.0
        self.learnt += 1
        self._ones += int(y)
        self._zeros += 1 - int(y)
        if self._zeros < ZEROS:
            return
        settled = len(ticket) > _RAW.size
        if settled:
            issued: tuple[float, float, float, float, float, float, float] = _ISSUED.unpack(ticket)
            z, since, pooled, u, f, v, r = issued
            if self._settled < ZEROS:
                self._settled += 1 - int(y)
                settled = False
        else:
            z, since, pooled = _RAW.unpack(ticket)
            u = f = v = r = 0.0
        raw = 1.0 / (1.0 + math.exp(-z))
        self._expected += raw
        ends, said = self._ends, z
        if not ends.lowest <= z <= ends.highest:
            z = ends.noted(z, y)
        slow = self._slow.at(z)
        fast = self._fast.a * z + self._fast.b
        if not settled:
            u, f = slow, fast
        d = min(max(f - u, -REACH), REACH)
        today = u + self._blend.b + self._blend.a * d
        slow, fast = sigmoid(slow), sigmoid(fast)
        part = self.part = self._crowds.part(since, self._information, slow - y)
        self._runs.note(y, at // SPAN, self._slow, self._fast)
        if evident:  # otherwise the raw forecast was served
            q = sigmoid(today + self._bent * self._bend.at(today))
            smooth = self._guard.weight * (raw - q) + q
            self._judge(z, y, raw, q, at, late=not settled and since < self._information)
            self._steps.learn(z, y, q, smooth, pooled, part, self._information - since, at)
        memory = LAGS * (self._information - since)
        if settled:
            q = sigmoid(today)
            late, counted = max(BLEND, 2.0 * memory), part * q * (1.0 - q)
            self._blend.learn(d, part * (q - y), counted, counted * _LN2 / late)
            self._bent, self._bent_held = share_step(self._bent, self._bent_held, IN_BENT_SHARE, v, r, y, late)
            self._bend.learn(v, y, max(BENT, 2.0 * memory))
        self._learn_slow(z, slow, y, max(SLOW, memory), part, at // SPAN)
        if z != said:
            ends.learn(said, part * self._slow.slope(z) * (sigmoid(self._mapped(z)) - y))
        information = fast * (1.0 - fast)
        self._fast.learn(z, fast - y, information, information * (_LN2 / FAST))

    def _judge(self, z: float, y: float, raw: float, q: float, at: int, *, late: bool) -> None:
        """Weigh raw forecasts against the map's answer q, for ``late`` outcomes against that before their run."""
        if late:
            was_slow, was_fast = self._runs.before(z)
            v = self._blended(was_slow, was_fast)
            q = self._runs.judged(y, q, sigmoid(v + self._bent * self._bend.at(v)), self.part, self._guard)
        delta = math.log(q / raw) if y > 0.5 else math.log((1.0 - q) / (1.0 - raw))
        self._guard.weigh(self.part * delta, self.part * delta * delta, at)

    def _learn_slow(self, z: float, q: float, y: float, halflife: float, part: float, span: int) -> None:
        if span != self._span:
            self._span, self._from = span, (self._slow.a, self._slow.d, self._slow.b)
        information = q * (1.0 - q)
        self._information += information
        before = sigmoid(self._from[0] * z + self._from[1] * itself(z) + self._from[2])
        self._slow.approach(z, y, part, before * (1.0 - before), part * information * _LN2 / halflife)

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Correct the counts, and step by the difference of the gradients; y is 0 or 1.

        A one that is taken back is not counted as a zero, see *Revisions*.
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
        z, since, pooled = _RAW.unpack_from(ticket)
        part = self.part = self._crowds.part(since, self._information, g, revised=True)
        if part == 0.0:
            return
        g *= part
        raw = 1.0 / (1.0 + math.exp(-z))
        z = self._ends.read(z)
        if self.evident():
            q = sigmoid(self._mapped(z))
            self._steps.revise(z, self._guard.weight * (raw - q) + q, pooled, g)
            self._guard.correct(corrected(g, q, raw), 0.0)
        slow = self._slow
        slow.step(z, g, part * lacking(sigmoid(slow.at(z)), y))
        if len(ticket) > _RAW.size:
            _, _, _, u, f, v, _ = _ISSUED.unpack(ticket)
            self._bend.step(v, g)
            blend, d = self._blend, min(max(f - u, -REACH), REACH)
            blend.curve(d, part * lacking(sigmoid(u + blend.b + blend.a * d), y))
            scale = g / (blend.bb * blend.aa - blend.ab * blend.ab)
            blend.move((blend.bb * d - blend.ab) * scale, (blend.aa - blend.ab * d) * scale)

    def encode(self) -> bytes:
        map_, line = self._slow, self._fast
        slow = (map_.a, map_.d, map_.b, map_.zz, map_.zt, map_.tt, map_.z1, map_.t1, map_.oo)
        fast = (line.a, line.b, line.aa, line.ab, line.bb)
        blend = (self._blend.b, self._blend.a, self._blend.bb, self._blend.ab, self._blend.aa)
        bent = (self._bent, self._bent_held)
        others = b"".join([each.encode() for each in (self._guard, self._crowds, self._bend, self._steps, self._runs)])
        counts = (self.learnt, self._zeros, self._ones, self._settled, self._expected, self._information)
        ends = (self._ends.lowest, self._ends.highest, self._ends.floor, self._ends.ceiling)
        return _STATE.pack(_FORMAT, *counts, *slow, *fast, *blend, *bent, *ends, self._span, *self._from) + others

    def decode(self, payload: bytes) -> None:
        require_length(payload, SIZE)
        _, self.learnt, self._zeros, self._ones, self._settled, *maps = _STATE.unpack(payload[: _STATE.size])
        self._guard.decode(payload, _STATE.size)
        at = _STATE.size + GUARD_SIZE
        self._crowds.decode(payload, at)
        at += CROWDS_SIZE
        end = at + 16 * KNOTS[2]
        self._bend.decode(payload[at:end])
        self._steps.decode(payload[end : end + STEPS_SIZE])
        self._runs.decode(payload, end + STEPS_SIZE)
        self._expected, self._information, *maps = maps
        slow, line, blend, ends = self._slow, self._fast, self._blend, self._ends
        slow.a, slow.d, slow.b, slow.zz, slow.zt, slow.tt, slow.z1, slow.t1, slow.oo = maps[:9]
        line.a, line.b, line.aa, line.ab, line.bb = maps[9:14]
        blend.b, blend.a, blend.bb, blend.ab, blend.aa = maps[14:19]
        self._bent, self._bent_held, ends.lowest, ends.highest, ends.floor, ends.ceiling = maps[19:25]
        self._span, self._from = int(maps[25]), (maps[26], maps[27], maps[28])
