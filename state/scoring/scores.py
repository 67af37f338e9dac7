"""Scores of one stream, as sums over resolved events: of the model's forecasts and of the served ones."""

import math
from collections.abc import Iterable
from functools import partial, reduce
from operator import add, sub
from typing import Final, Literal, Self

from state.counts import raised
from state.quick import floats, search
from state.scoring import ranking
from state.scoring.alarm import log_wealth
from state.scoring.cells import BANDS, BINS, COARSE, EDGES, FINE, GRAIN, ROOT, WITHIN, Bin, off_by_chance, total_off
from state.scoring.equal import Encoded
from state.scoring.losses import Name, log
from state.scoring.ranking import Maybe, Ranking

#: The kinds of forecast that are scored: the model's; those served as ``p``; those served as ``draw``.
Kind = Literal["raw", "calibrated", "draw"]
SCORED: Final[tuple[Kind, ...]] = ("raw", "calibrated", "draw")

_CELLS: Final = len(COARSE) + 1
_LOW: Final = len(BANDS)  # last band of the first bin
_SUMS: Final = 5  # sums of a cell
#: The books: raw; ``p`` of events without a draw; ``p`` of others; the draw. Each has the sums of all cells.
_BOOKS: Final = 4
_RAW: Final = 0
_SAME: Final = 1
_P: Final = 2
_DRAW: Final = 3
#: The books that make up a kind.
_OF: Final[dict[str, tuple[int, ...]]] = {"raw": (_RAW,), "calibrated": (_SAME, _P), "draw": (_SAME, _DRAW)}
_MOST: Final = 2.0**53  # events that a sum tells apart
_MASK: Final = 10  # bytes of a bit for each cell of each book


class _Cell:
    """The sums of a cell that has events, see `Bin`. They are next to each other in memory."""

    __slots__ = ("n", "p", "pp", "py", "y")

    def __init__(self, n: float = 0.0, p: float = 0.0, y: float = 0.0, pp: float = 0.0, py: float = 0.0) -> None:
        self.n, self.p, self.y, self.pp, self.py = n, p, y, pp, py


_Cells = list[_Cell | None]
#: The cells of every book without events, so that these take no memory. They never change.
_UNUSED: Final[_Cells] = [None] * _CELLS
#: The sums of a cell without events.
_NONE: Final = _Cell()


class Scores(Encoded):
    """Additive scores over resolved events.

    Notes
    -----
    A forecast falls into one of 19 cells: one of the ten low bands that divide [0, .1), see `BANDS`, or one of the nine
    bins of width .1 above. Calibration errors are computed from the sums of cells. So an event changes one cell of each
    kind, and ``a + b`` is the score of both. AUC and recall come from counts by fine cell, which divide the 19 cells
    (`cells`). Without a draw, ``draw`` equals ``p`` and both share a cell, so the kind "draw" takes bytes only if there
    are draws.

    **Exact.** Numbers are rounded to multiples of 2**-30 before they are summed (`grain`), so sums below 2**23 are
    exact, and a mean changes by less than 1e-9. The same events in any order give the same bytes. Taking out an event
    (``sign = -1``) or revising a label leaves no trace. Larger sums are rounded. A window is ``later - earlier``.

    Bytes, little-endian: a mask (10 bytes) with a bit for each cell that has events, bit 19 b + c for cell c of book b.
    The books: raw; ``p`` of events without a draw; ``p`` of events with a draw; the draw. Then for each set bit, in
    ascending order, its sums (n, Σp, Σy, Σp², Σpy), then Σy², then the log loss of each book with a set bit (f64), then
    the counts by fine cell of each such book (`ranking.encode`). At most 10.9 kB, and 5.4 kB without draws; for a
    window 7 and 3.5 kB, usually 2 and 1.5. Views are NaN while nothing was observed.
    """

    __slots__ = ("_books", "_logs", "_ranks", "_y2")

    def __init__(self) -> None:
        #: For each book: its cells, and counts by fine cell; `_UNUSED` and None without events.
        self._books: list[_Cells] = [_UNUSED] * _BOOKS
        self._ranks: list[Maybe] = [None] * _BOOKS
        self._logs = [0.0] * _BOOKS
        self._y2 = 0.0

    @classmethod
    def zero(cls) -> Self:
        """Return the scores of no events."""
        return cls()

    def observe(self, raw: float, p: float, y: float, draw: float | None = None, sign: int = 1) -> None:
        """Add one event, or take it out again.

        ``raw, p``: the model's forecast and the served one, in [0, 1].
        ``y``: the outcome, in [0, 1].
        ``draw``: the draw, in [0, 1]; None or ``p`` if nothing was drawn.
        ``sign``: 1 adds the event, -1 takes out one that was added.
        """
        self._y2 += sign * (y * y + GRAIN - GRAIN)
        self._add(_RAW, raw, y, sign)
        if draw is None or draw == p:
            self._add(_SAME, p, y, sign)
        else:
            self._add(_P, p, y, sign)
            self._add(_DRAW, draw, y, sign)
        if sign < 0:
            self._tidy()

    def _add(self, book: int, p: float, y: float, sign: int) -> None:
        """Add an event to a book. `grain` is written out, because a call would double the time."""
        fine = search(EDGES, p)
        ranks = self._ranks[book]
        if ranks is None:
            ranks = ranking.nothing()
            self._books[book] = _UNUSED.copy()
        self._ranks[book] = raised(ranks, fine if y < 0.5 else FINE + fine, sign)
        cells, at = self._books[book], WITHIN[fine]
        cell = cells[at]
        if cell is None:
            cell = cells[at] = _Cell()
        near = p + GRAIN - GRAIN
        cell.n += sign
        cell.p += sign * near
        cell.pp += sign * (near * near + GRAIN - GRAIN)
        if y == 1.0:
            cell.y += sign
            cell.py += sign * near
        elif y:
            cell.y += sign * (y + GRAIN - GRAIN)
            cell.py += sign * (near * y + GRAIN - GRAIN)
        # Not `+=`: compiled, that adds objects, not numbers.
        self._logs[book] = self._logs[book] + sign * (log(p, y) + GRAIN - GRAIN)

    def _tidy(self) -> None:
        """Drop empty cells, because sums above 2**23 leave rounding errors."""
        for book, cells in enumerate(self._books):
            if cells is _UNUSED:
                continue
            cells[:] = [each if each is not None and each.n else None for each in cells]
            if cells == _UNUSED:
                self._books[book], self._logs[book], self._ranks[book] = _UNUSED, 0.0, None
                if book == _RAW:
                    self._y2 = 0.0

    def __add__(self, other: Self) -> Self:
        total = type(self)()
        total._books = [_together(one, two, 1) for one, two in zip(self._books, other._books, strict=True)]
        total._logs = list(map(add, self._logs, other._logs))
        total._ranks = list(map(ranking.together, self._ranks, other._ranks))
        total._y2 = self._y2 + other._y2
        return total

    def __sub__(self, other: Self) -> Self:
        """Return the scores of the events of ``self`` without those of ``other``, which must be a subset."""
        window = type(self)()
        window._books = [_together(one, two, -1) for one, two in zip(self._books, other._books, strict=True)]
        window._logs = list(map(sub, self._logs, other._logs))
        window._ranks = list(map(ranking.without, self._ranks, other._ranks))
        window._y2 = self._y2 - other._y2
        window._tidy()
        return window

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        mask = 0
        values: list[float] = []
        logs: list[float] = []
        counts: list[bytes] = []
        for book in range(_BOOKS):
            ranks = self._ranks[book]
            if ranks is None:
                continue
            bits = 0
            for at, cell in enumerate(self._books[book]):
                if cell is not None:
                    bits |= 1 << at
                    values += (cell.n, cell.p, cell.y, cell.pp, cell.py)
            mask |= bits << book * _CELLS
            logs.append(self._logs[book])
            counts.append(ranking.encode(ranks))
        values.append(self._y2)
        values += logs
        return mask.to_bytes(_MASK, "little") + floats(len(values)).pack(*values) + b"".join(counts)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read sums written by `encode`.

        Raises ValueError if the payload has another length than its mask says, or names cells that do not exist or have
        no events.
        """
        if len(payload) < _MASK:
            raise ValueError(f"scores of {len(payload)} bytes are shorter than their own header")
        mask = int.from_bytes(payload[:_MASK], "little")
        books = _kept(mask)
        n = _SUMS * mask.bit_count() + 1 + len(books)
        end = _MASK + 8 * n
        if mask >> _BOOKS * _CELLS or len(payload) < end:
            raise ValueError(f"scores of mask {mask:#x} have {end} bytes and more, got {len(payload)}")
        values = floats(n).unpack_from(payload, _MASK)
        scores = cls()
        at = 0
        for book in books:
            bits = mask >> book * _CELLS
            cells = scores._books[book] = _UNUSED.copy()
            for cell in range(_CELLS):
                if bits >> cell & 1:
                    if not 1.0 <= values[at] <= _MOST:
                        raise ValueError(f"scores of mask {mask:#x} have a cell of {values[at]} events")
                    cells[cell] = _Cell(*values[at : at + _SUMS])
                    at += _SUMS
        scores._y2 = values[at]
        for book, total in zip(books, values[at + 1 :], strict=True):
            scores._logs[book] = total
            scores._ranks[book], end = ranking.decode(payload, end)
        if end != len(payload):
            raise ValueError(f"scores of mask {mask:#x} end after {end} bytes, got {len(payload)}")
        return scores

    @property
    def n(self) -> int:
        """Events observed."""
        return _events(self._books[_RAW])

    @property
    def drawn(self) -> int:
        """Events whose draw is not ``p``."""
        return _events(self._books[_DRAW])

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds with figures of their own: "draw" only if something was drawn."""
        return SCORED if self.drawn else SCORED[:2]

    def cells(self, kind: Kind) -> list[Bin]:
        """Return all 19 cells: the ten low bands, then the bins from [.1, .2) to [.9, 1]."""
        used = [book for book in _OF[kind] if self._ranks[book] is not None] or [_RAW]
        found = reduce(partial(_together, sign=1), [self._books[book] for book in used])
        return [Bin(each.n, each.p, each.y, each.pp, each.py) for each in [cell or _NONE for cell in found]]

    def ranking(self, kind: Kind) -> Ranking:
        """Return how the forecasts rank the events."""
        return ranking.ranking([self._ranks[book] for book in _OF[kind]])

    def bins(self, kind: Kind) -> list[Bin]:
        """Return the ten bins, from [0, .1) to [.9, 1]."""
        cells = self.cells(kind)
        return [Bin(*map(sum, zip(*cells[: _LOW + 1], strict=True))), *cells[_LOW + 1 :]]

    def bands(self, kind: Kind) -> list[Bin]:
        """Return the ten low bands of [0, .1), from [0, 1e-4) upwards, with the edges `BANDS`."""
        return self.cells(kind)[: _LOW + 1]

    def error(self, kind: Kind) -> float:
        """Return the expected calibration error, Σ |Σp - Σy| / n over the bins, in [0, 1]."""
        return self._mean(total_off(self.bins(kind)))

    def noise(self, kind: Kind) -> float:
        """Return the `error` to expect by chance if every forecast were the probability of its outcome."""
        return self._mean(off_by_chance(self.bins(kind)))

    def smooth_ece(self, kind: Kind) -> float:
        """Return the calibration error under hat weights, Σ_k |Σ w_k(p)(p - y)| / n, in [0, 1].

        The hat w_k is 1 at k/10 and falls to 0 at the neighbours. If one forecast moves by 1, this error changes by at
        most 21/n, while `error` can jump. So deterministic calibrators can guarantee it. On a bin a hat is a line, so Σ
        w_k(p)(p - y) follows from the bin's Σp, Σy, Σp² and Σpy.

        References
        ----------
        Foster & Kakade, *Calibration via Regression*, section II; Foster & Hart 2018, *Smooth Calibration*.
        """
        knots = [0.0] * (BINS + 1)
        for k, each in enumerate(self.bins(kind)):
            off = each.p - each.y
            right = BINS * (each.pp - each.py) - k * off
            knots[k] += off - right
            knots[k + 1] += right
        return self._mean(sum(map(abs, knots)))

    def log_wealth(self, kind: Kind) -> float:
        """Return the log of the wealth of bets that forecasts are not calibrated, see `state.scoring.alarm`."""
        return log_wealth(self.cells(kind))

    def relative_error(self, kind: Kind) -> float:
        """Return Σ |Σp - Σy| / ΣΣy over the 19 cells: how many events too many or too few, per event that happened.

        Use it for rare events, where even an `error` of .002 may be large. NaN before the first outcome above 0.
        """
        return self._share(total_off(self.cells(kind)))

    def relative_noise(self, kind: Kind) -> float:
        """Return the `relative_error` to expect by chance if every forecast were the probability of its outcome."""
        return self._share(off_by_chance(self.cells(kind)))

    def relative_bias(self, kind: Kind) -> float:
        """Return (Σp - Σy) / Σy: 1 if the mean is twice the true rate, -1 if it is 0. NaN if all outcomes are 0."""
        return self._share(sum(each.p - each.y for each in self.cells(kind)))

    def relative_bias_noise(self, kind: Kind) -> float:
        """Return the |`relative_bias`| to expect by chance, sqrt(2 V / π) / Σy.

        V is the larger of two variances: the one that the forecasts imply, Σp(1 - p), and the one of a stream with the
        observed rate, n ȳ(1 - ȳ). Forecasts of 0 imply no variance, and a few outcomes must not prove them wrong.
        """
        cells = self.cells(kind)
        y, n = sum(each.y for each in cells), self.n
        stated = sum(max(each.p - each.pp, 0.0) for each in cells)
        seen = max(y - y * y / n, 0.0) if n else 0.0
        return self._share(ROOT * math.sqrt(max(stated, seen)))

    def brier(self, kind: Kind) -> float:
        """Return the mean Brier score, in [0, 1]."""
        return self.loss("brier", kind)

    def log_loss(self, kind: Kind) -> float:
        """Return the mean log loss in nats, forecasts clipped by `LOG_CLIP`."""
        return self.loss("log", kind)

    def loss(self, name: Name, kind: Kind) -> float:
        """Return the mean of a loss."""
        return self._mean(self._total(name, kind))

    def regret(self, name: Name = "brier", kind: Kind = "calibrated") -> float:
        """Return a cumulative loss, served minus raw; negative is better than raw."""
        return self._total(name, kind) - self._total(name, "raw")

    def _total(self, name: Name, kind: Kind) -> float:
        if name == "log":
            return sum(self._logs[book] for book in _OF[kind])
        bins = self.bins(kind)
        if name == "brier":
            return sum(each.pp - 2.0 * each.py for each in bins) + self._y2
        # One half is an edge of the bins. Forecasts below it predict 0, the others 1.
        return sum((each.y for each in bins[: BINS // 2]), 0.0) + sum(
            (each.n - each.y for each in bins[BINS // 2 :]), 0.0
        )

    def _mean(self, total: float) -> float:
        n = self.n
        return total / n if n else math.nan

    def _share(self, total: float) -> float:
        happened = sum([each.y for each in self._books[_RAW] if each is not None])
        return total / happened if happened else math.nan


def total(parts: Iterable[Scores]) -> Scores:
    """Return the scores of all the events."""
    return reduce(Scores.__add__, parts, Scores())


def _together(one: _Cells, two: _Cells, sign: int) -> _Cells:
    """Return the cells of both books (``sign`` 1), or of the first without the second (-1), as new cells."""
    if one is two is _UNUSED:
        return _UNUSED
    return [None if a is b is None else _joined(a or _NONE, b or _NONE, sign) for a, b in zip(one, two, strict=True)]


def _joined(one: _Cell, two: _Cell, sign: int) -> _Cell:
    return _Cell(
        one.n + sign * two.n,
        one.p + sign * two.p,
        one.y + sign * two.y,
        one.pp + sign * two.pp,
        one.py + sign * two.py,
    )


def _events(cells: _Cells) -> int:
    return int(sum([each.n for each in cells if each is not None]))


def _kept(mask: int) -> list[int]:
    cells = (1 << _CELLS) - 1
    return [book for book in range(_BOOKS) if mask >> book * _CELLS & cells]
