"""Deterministic answers with a guarantee: a bound on their distance to calibrated scores, even against an adversary."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import ClassVar, Final

from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import MOST_SLOTS, Calibrator, require_head, require_probability
from state.calibrators.certified_cell import NONE, ONE, ROW, Cell
from state.calibrators.options import Option, integer, number
from state.calibrators.runs import RUN, SPAN
from state.quick import new, search

#: The intervals cut [0, 1] evenly in arcsin(sqrt(p)), so they are narrow where risks are rare: the first two are .0006
#: and .0018 wide, those at one half .0245. With 64, a served score lies on average within .006 of its cell's mean.
CELLS: Final = 64
#: How far a cell may be off before its interval is no longer served, in standard deviations of chance.
PATIENCE: Final = 1.0
#: While a cell is within this share of its margin, it takes the outcomes nearest to it.
NEAR: Final = 0.5
#: Outcomes of each kind needed before any score is moved. If frauds are reported first, the first outcomes are all 1.
EVIDENCE: Final = 20
#: One kind of outcome counts as late if it waits this many times as long as the other, and this many outcomes longer.
LATER: Final = 1.5
LONGER: Final = 10.0
#: Share of an interval, at one end, that receives the scores moved out of other intervals.
SHARE: Final = 1.0 / 32.0

_ENDS: Final = (0.0, *(math.sin(math.pi * k / (2 * CELLS)) ** 2 for k in range(1, CELLS)), 1.0)
#: For each cell: the largest score that may count in it, and the largest distance from 1 of a score that may.
_ABOVE: Final = (*_ENDS[1:], 1.0)
_BELOW: Final = (1.0, *(1.0 - end for end in _ENDS[:-1]))
_TICKET: Final = Struct("<BBdQQQ")
_HEAD: Final = Struct("<BQQQQQH")
_RUN: Final = Struct("<dqId")
_BROUGHT: Final = Struct("<Bd")
#: Version of the layout, the first byte of the state.
_FORMAT: Final = 4
#: Least chance of a label when the surprise of a run is computed.
_LEAST: Final = 1e-12


class Certified(Calibrator):
    """Serve the forecast while scores near it have been right, otherwise the nearest score that has been.

    Use it as a back: ``prudent+certified``.

    ``patience``: how far a cell may be off before its interval is no longer served, in standard deviations of chance.
    ``evidence``: outcomes of each kind needed before any score is moved.

    Notes
    -----
    Ends 0 = e_0 < ... < e_m = 1 cut [0, 1] into intervals. Every end is a *cell*. An outcome counts in one of the two
    cells of the interval that was served: a zero in cell z, a one in cell o. Both are fixed when the forecast is
    issued. With W_c = Σ (p - y) over the events of cell c and a margin M_c that never falls, an end may take a zero if
    W_c <= M_c, and a one if W_c >= -M_c. *An interval may be served if one of its ends may take a zero and one a one.*
    So an interval may not be served only if both ends are too high, or both too low.

    *There is always one.* M_0 and M_m are so large that cell 0 is never too high and cell m never too low. From an
    interval with two high ends, go left. The next interval has a high right end: it may be served, or both its ends are
    high. This stops at interval 0 at the latest. From two low ends, go right.

    *Order.* A forecast in an interval that may be served is not moved. Any other goes to the near end of the first
    interval that may be served: to the left if its ends are too high, to the right if too low. Between a high run and a
    low run lies an interval that may be served, so no two forecasts change their order. Moved forecasts are squeezed
    into the `SHARE` at that end and stay distinct: at one moment the answer increases strictly with the forecast.

    *Theorem.* For every sequence of forecasts and outcomes, even if an adversary sees the answers, with n_c outcomes in
    cell c, s_c the standard deviation of their scores, and R revisions of labels, the distance to calibration is at
    most

        G = (Σ n_c s_c + Σ M_c + Σ L_c + R) / T,  L_c = max(e_{c+1} (1 + D_c), (1 - e_{c-1}) (1 + D'_c)).

    with M_c as below. D_c is the largest number of other zeros of cell c that came while one of its zeros was awaited;
    D'_c is the same for ones. *Proof.* Give every event the share of ones of its cell. That is perfectly calibrated,
    and its distance in each cell is at most Σ |p - mean| + |W_c|, the first term at most n_c s_c. Let W_c be above M_c,
    and s the last time it was not; s exists, because M_c begins no lower than |W_c|. All zeros that were counted in c
    since then had been issued by s, as W_c has been above M_c ever since. The last of them to come had waited while the
    others came, so there are at most 1 + D_c of them, each adds at most e_{c+1}, and M_c has not fallen. The same from
    below. A revision moves Σ |W_c| by at most 1. ∎

    Scores of a cell lie within two intervals, so s_c is at most half of that: for prompt outcomes, known before any of
    them, G is at most .0251 + patience sqrt((m + 1) / 4 T) + (m + 1) (2 + `ONE`) / T + B / T, B the outcomes that come
    before there is evidence (below). It is usually far less: risks are rarely one half. Delays enter through the
    outcomes of *one cell* that were awaited at once, added over cells, not as a factor. No deterministic answer has a
    guarantee below D / 2T with D outcomes outstanding. It must give the first D answers without any outcome. If these
    average at most one half and only ones follow, or above one half and only zeros follow, they are at least D / 2 off
    from the only calibrated scores.

        M_c = `ONE` + patience sqrt(V_c) + L_c + B_c,  and at the ends n_0 e_1 and n_m (1 - e_{m-1}) more.

    L_c is in the margin so that outcomes that are only late do not move the answer.

    *Evidence.* Nothing is moved until there have been ``evidence`` outcomes of each kind. Until then B_c is the excess
    of |W_c| over the rest of its margin, so later answers do not compensate for it. Where frauds are reported at once
    and good payments after weeks, the first outcomes are all ones, and a calibrator that counted them would take
    everybody for a fraudster. So an opponent whose outcomes are all of one kind is served the forecast, and G says how
    far that is off. Not so with ``evidence`` 0.

    *Runs.* V_c is Σ p (1 - p), but the labels that an unlikely run (`Runs`) brings to a cell are one fact, and together
    add (Σ (p - y))²: all forecasts of a game share its outcome. This covers only labels that were awaited when their
    run began. So an adversary whose labels come at once cannot widen a margin.

    *Unequal delays.* Let a zero wait for w more outcomes on average than a one, and `LATER` times as long. In a cell
    that is used more and more, that many ones have come without the zeros that were issued with them: B_c is at least
    min(w, n) (1 - e_{c-1}), n the cell's ones. Likewise where ones are late. B_c never falls once there is evidence.

    While |W_c| is within `NEAR` of its margin, a cell takes the outcomes nearest to it. Beyond that, the end with the
    lower W / M takes zeros and the other end ones, so that chance errors of neighbouring cells cancel.

    *Not served.* The theorem covers served answers only: T counts their outcomes. The outcome of an answer that was not
    served (`unserved`) is counted as learnt, and nowhere else.

    Ticket: z, o (u8 each), the score (f64), zeros of z, ones of o that were counted, outcomes (u64 each); empty if the
    answer was not served. Bytes: `_FORMAT` (u8), outcomes, revisions, outcomes that were ones at first, Σ of the
    outcomes that came while one was awaited, of zeros and of ones (u64 each), the number of cells that were touched
    (u16), of each its number (u8), events, zeros, ones, D, D' (u64 each), W, Σp, Σp², V, B (f64 each); the label of the
    last run (f64; -1: none), its span (i64), labels (u32) and surprise (f64); of each cell to which it brought what
    counts as one fact, its number (u8) and |Σ (p - y)| (f64). Little-endian; at most 6 kB.

    References
    ----------
    Arunachaleswaran, Collina, Roth & Shi 2024, *An elementary predictor obtaining 2 sqrt(T) + 1 distance to
    calibration*, arXiv 2402.11410: cells credited by the outcome; there without margins, delays or order.

    Examples
    --------
    An opponent who answers the other side of what is served makes ten bins wrong by one half, and not the distance:

    >>> calibrator = Certified(evidence=0)
    >>> for t in range(4000):
    ...     p, _, ticket = calibrator.predict(0.3)
    ...     calibrator.update(ticket, p <= 0.5)
    >>> calibrator.error() <= calibrator.bound() < 0.06
    True
    """

    name: ClassVar[str] = "certified"
    passes: bool = True
    options: ClassVar[dict[str, Option]] = {
        "patience": number(PATIENCE, 0.0, 4.0, "standard deviations of chance by which a cell may be off"),
        "evidence": integer(EVIDENCE, 0, 1_000_000, "outcomes of each kind that have to come before a score is moved"),
    }

    def __init__(self, *, patience: float = PATIENCE, evidence: int = EVIDENCE) -> None:
        self._patience = float(patience)
        self._asked = int(evidence)
        self._begin()

    def _begin(self) -> None:
        self.learnt, self._revised = 0, 0
        #: Outcomes of answers that were served.
        self._counted = 0
        self._first_ones, self._zeros_waited, self._ones_waited = 0, 0, 0
        self._evident = self._asked == 0
        self._ways = [0] * CELLS
        self._cells = [NONE] * (CELLS + 1)
        #: Rows of cells as they are stored; empty if the cell has changed since, or has no outcome.
        self._packed = [b""] * (CELLS + 1)
        #: The last run: its label, its span, its labels, the surprise of those after the first; and |Σ (p - y)| that
        #: the run, as one fact, gave to each cell.
        self._last, self._span, self._run, self._surprise = -1.0, 0, 0, 0.0
        self._brought: dict[int, float] = {}

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        require_probability(p)
        ways = self._ways
        i = min(search(_ENDS, p) - 1, CELLS - 1)
        way = ways[i]
        if way:
            i += way
            while ways[i]:
                i += way
            low, high = _ENDS[i], _ENDS[i + 1]
            part = SHARE * (high - low)
            p = low + part * (p / low) if way > 0 else high - part * ((1.0 - p) / (1.0 - high))
        else:
            low, high = _ENDS[i], _ENDS[i + 1]
            # Leave room for the scores that are moved here from each side.
            left = SHARE if i > 0 and ways[i - 1] > 0 else 0.0
            right = SHARE if i < CELLS - 1 and ways[i + 1] < 0 else 0.0
            if left or right:
                p = low + left * (high - low) + (1.0 - left - right) * (p - low)
        cells = self._cells
        left_cell, right_cell = cells[i], cells[i + 1]
        z = o = i if p - low < high - p else i + 1
        near = cells[z]
        one, other = left_cell.off / left_cell.margin, right_cell.off / right_cell.margin
        if near.off > NEAR * near.margin:
            z = i if one <= other else i + 1
        if near.off < -NEAR * near.margin:
            o = i if one >= other else i + 1
        return new(Answer, (p, p, _TICKET.pack(z, o, p, cells[z].zeros, cells[o].ones, self.learnt)))

    def unserved(self, ticket: bytes) -> bytes:
        """Return the ticket of an answer that was not served: no cell counts its outcome."""
        return b""

    def breaks(self) -> list[float]:
        return list(_ENDS[1:-1])

    def _find_way(self, i: int) -> None:
        """Set the way of an interval: 0 if it may be served, else the direction (-1 or 1) of the next one that may."""
        one, other = self._cells[i], self._cells[i + 1]
        if one.off > one.margin and other.off > other.margin:
            self._ways[i] = -1
        elif one.off < -one.margin and other.off < -other.margin:
            self._ways[i] = 1
        else:
            self._ways[i] = 0

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """Count an outcome, 0 or 1, in the cell that the ticket names for it."""
        self._require_label(y)
        if not ticket:
            self.learnt += 1
            return
        z, o, p, zeros, ones, learnt = _TICKET.unpack(ticket)
        waited: int = self.learnt - learnt
        self.learnt += 1
        self._counted += 1
        c: int = o if y > 0.5 else z
        cell = self._cells[c]
        if cell is NONE:
            cell = self._cells[c] = Cell()
        if y > 0.5:
            cell.ahead = max(cell.ahead, cell.ones - ones)
            cell.ones += 1
            self._first_ones += 1
            self._ones_waited += waited
        else:
            cell.behind = max(cell.behind, cell.zeros - zeros)
            cell.zeros += 1
            self._zeros_waited += waited
        variance = p * (1.0 - p)
        span = at // SPAN
        if y != self._last or span != self._span or span == 0:
            self._last, self._span, self._run, self._surprise = y, span, 1, 0.0
            if self._brought:
                self._brought = {}
        else:
            if waited >= self._run:
                chance = p if y > 0.5 else 1.0 - p
                self._surprise -= math.log(chance if chance > _LEAST else _LEAST)  # noqa: FURB136 - calls are dear
                if self._surprise > RUN:
                    before = self._brought.get(c, 0.0)
                    after = self._brought[c] = before + abs(p - y)
                    variance = after * after - before * before
            self._run += 1
        self._count(c, p, y, 1, variance)
        if not self._evident and self._has_evidence():
            self._evident = True
            for i in range(CELLS):
                self._find_way(i)

    def _begun(self, c: int) -> Cell:
        """Return a cell that may be changed. `update` does the same inline."""
        if self._cells[c] is NONE:
            self._cells[c] = Cell()
        return self._cells[c]

    def _has_evidence(self) -> bool:
        return min(self._first_ones, self._counted - self._first_ones) >= self._asked

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Move an outcome, 0 or 1, to the other cell of its ticket. The guarantee grows by 1 / T."""
        self._require_label(y)
        if y == was or not ticket:
            return
        z, o, p, _, _, _ = _TICKET.unpack(ticket)
        self._revised += 1
        before, now = (o, z) if was > 0.5 else (z, o)
        self._begun(before)
        self._count(before, p, was, -1, 0.0)
        cell = self._begun(now)
        if y > 0.5:
            cell.ones += 1
        else:
            cell.zeros += 1
        self._count(now, p, y, 1, p * (1.0 - p))

    def _count(self, c: int, p: float, y: float, sign: int, variance: float) -> None:
        """Add an event (sign 1) to a cell that is begun, see `_begun`, or remove it (-1). Margins never fall."""
        cell = self._cells[c]
        self._packed[c] = b""
        cell.events += sign
        cell.off += sign * (p - y)
        cell.sum += sign * p
        cell.square += sign * p * p
        cell.variance += variance
        margin = self._margin_of(c)
        cell.extra = max(cell.extra, self._unequal(c)) if self._evident else max(abs(cell.off) - margin, 0.0)
        cell.margin = margin + cell.extra
        if self._evident:
            if c > 0:
                self._find_way(c - 1)
            if c < CELLS:
                self._find_way(c)

    def _unequal(self, c: int) -> float:
        """Return how far off a cell may seem because one kind of outcome comes later than the other."""
        ones = self._first_ones
        zeros = self._counted - ones
        if ones == 0 or zeros == 0:
            return 0.0
        zero, one = self._zeros_waited / zeros, self._ones_waited / ones
        if zero > LATER * one and zero > one + LONGER:
            return min(zero - one, float(self._cells[c].ones)) * _BELOW[c]
        if one > LATER * zero and one > zero + LONGER:
            return min(one - zero, float(self._cells[c].zeros)) * _ABOVE[c]
        return 0.0

    def _margin_of(self, c: int) -> float:
        """Return the margin of a cell without B."""
        cell = self._cells[c]
        margin = ONE + self._patience * math.sqrt(cell.variance) + self._late(c)
        if c == 0:
            margin += (cell.zeros + cell.ones) * _ENDS[1]
        if c == CELLS:
            margin += (cell.zeros + cell.ones) * (1.0 - _ENDS[CELLS - 1])
        return margin

    def _late(self, c: int) -> float:
        """Return L_c."""
        cell = self._cells[c]
        above = _ABOVE[c] * (1 + cell.behind) if cell.zeros else 0.0
        below = _BELOW[c] * (1 + cell.ahead) if cell.ones else 0.0
        return max(below, above)

    def _spread(self) -> float:
        """Return Σ n_c s_c."""
        total = 0.0
        for cell in self._cells:
            total += math.sqrt(max(cell.events * cell.square - cell.sum * cell.sum, 0.0))
        return total

    def encode(self) -> bytes:
        packed = self._packed
        for c, cell in enumerate(self._cells):
            if not packed[c] and (cell.zeros or cell.ones):
                packed[c] = ROW.pack(c, *cell.numbers())
        rows = [row for row in packed if row]
        waited = (self._first_ones, self._zeros_waited, self._ones_waited)
        head = _HEAD.pack(_FORMAT, self.learnt, self._revised, *waited, len(rows))
        run = _RUN.pack(self._last, self._span, self._run, self._surprise)
        brought = [_BROUGHT.pack(c, total) for c, total in sorted(self._brought.items())]
        return b"".join([head, *rows, run, *brought])

    def largest(self, slots: int = MOST_SLOTS) -> int:
        return _HEAD.size + (CELLS + 1) * (ROW.size + _BROUGHT.size) + _RUN.size

    def decode(self, payload: bytes) -> None:
        require_head(payload, _HEAD.size)
        _, learnt, revised, first_ones, zeros_waited, ones_waited, rows = _HEAD.unpack_from(payload)
        at = _HEAD.size + rows * ROW.size
        if len(payload) < at + _RUN.size or (len(payload) - at - _RUN.size) % _BROUGHT.size:
            raise ValueError(f"a state of {len(payload)} bytes does not hold {rows} cells")
        self._begin()
        self._last, self._span, self._run, self._surprise = _RUN.unpack_from(payload, at)
        self._brought = dict(_BROUGHT.iter_unpack(payload[at + _RUN.size :]))
        self.learnt, self._revised = learnt, revised
        self._first_ones, self._zeros_waited, self._ones_waited = first_ones, zeros_waited, ones_waited
        for c, *numbers in ROW.iter_unpack(payload[_HEAD.size : at]):
            cell = self._begun(c)
            cell.take(numbers)
            cell.margin = self._margin_of(c) + cell.extra
        self._counted = sum([cell.events for cell in self._cells])
        self._evident = self._has_evidence()
        if self._evident:
            for i in range(CELLS):
                self._find_way(i)

    def error(self) -> float | None:
        """Return a measured bound on the scores' distance to calibrated ones; None before the first outcome."""
        if not self._counted:
            return None
        return min(1.0, (self._spread() + sum([abs(cell.off) for cell in self._cells])) / self._counted)

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the guarantee G of the theorem, at most 1; None before the first outcome."""
        if not self._counted:
            return None
        used = [(c, cell) for c, cell in enumerate(self._cells) if cell.zeros or cell.ones]
        allowed = sum([cell.margin + self._late(c) for c, cell in used])
        return min(1.0, (self._spread() + allowed + self._revised) / self._counted)
