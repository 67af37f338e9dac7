"""Histogram binning: the mean outcome of the forecasts near this one."""

import math
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, ClassVar, Final

from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import MOST_SLOTS, Calibrator, require_length, require_probability
from state.calibrators.logistic import kept
from state.calibrators.options import Option, choice, integer
from state.quick import new, search

_TICKET: Final = Struct("<H")
_HEAD: Final = Struct("<QI")
_COUNTED: Final = Struct("<HQQ")
_WEIGHED: Final = Struct("<Hdd")

#: Bins of logit spacing reach from here to 1 minus this. Forecasts below it share the first bin.
EDGE: Final = 1e-4
BINS: Final = 30


class Histogram(Calibrator):
    """Serve the mean outcome of the forecast's bin, shrunk to the forecast. It can learn any map, and has no theorem.

    ``bins``: M, the number of bins.
    ``spacing``: ``logit``: equal widths in log-odds in `EDGE` .. 1 - `EDGE`, which tells rare events apart;
      ``uniform``: in p.
    ``halflife``: outcomes *of the same bin* after which one counts half; 0: none is forgotten.

    Notes
    -----
    For bin j the state holds n outcomes, s of them 1. A forecast p in it is served

        (s + κ p) / (n + κ),   κ = `SHRINK`,

    so a new bin serves the forecast, and a bin of n outcomes keeps a share κ / (n + κ) of it. An outcome adds to the
    bin of its ticket: n <- λ n + 1, s <- λ s + y, λ = 2^(-1 / halflife). Without a halflife these are integers and
    updates commute exactly, and y is 0 or 1.

    Ticket: j (u16). Bytes, little-endian: outcomes learnt (u64), M (u32), then for each touched bin in ascending order
    j (u16) and n, s (u64 each; f64 each with a halflife). At most 12 + 18 M bytes.

    References
    ----------
    Zadrozny & Elkan 2001, *Obtaining calibrated probability estimates from decision trees and naive Bayesian
    classifiers*, section 4.1.

    Examples
    --------
    >>> calibrator = Histogram()
    >>> for t in range(1000):
    ...     calibrator.update(calibrator.predict(0.9).ticket, t % 5 < 3)
    >>> round(calibrator.predict(0.9).p, 2), calibrator.predict(0.2).p
    (0.6, 0.2)
    """

    name: ClassVar[str] = "histogram"
    #: κ, the number of outcomes that the forecast counts as. Brier score of 20,000 events with 1, 3, 10, 30: .1750,
    #: .1748, .1747, .1748 where a straight map is right (logit spacing); .1770, .1772, .1785, .1826 where the map goes
    #: up and down (uniform).
    SHRINK: ClassVar[float] = 3.0
    options: ClassVar[dict[str, Option]] = {
        "bins": integer(BINS, 1, 1000, "bins of the forecast, each with its mean outcome"),
        "spacing": choice("logit", ("logit", "uniform"), "scale on which the bins have equal width"),
        "halflife": integer(0, 0, 10**9, "outcomes after which one counts half; 0: none is ever forgotten"),
    }

    def __init__(
        self,
        *,
        bins: int = BINS,
        spacing: str = "logit",
        halflife: int = 0,
    ) -> None:
        self.learnt = 0
        self.order_free = halflife == 0
        self._kept = kept(halflife)
        self._cell = _WEIGHED if halflife else _COUNTED
        self._bins = bins
        self._edges = edges(bins, spacing)
        self._cells: dict[
            int, tuple[Any, Any]
        ] = {}  # n and s of each touched bin: whole numbers, or floats with a halflife

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        require_probability(p)
        j = search(self._edges, p)
        n, s = self._cells.get(j, (0, 0))
        served = (s + self.SHRINK * p) / (n + self.SHRINK) if n else p
        return new(Answer, (served, served, _TICKET.pack(j)))

    def breaks(self) -> list[float]:
        return list(self._edges)

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        self._require_label(y)
        (j,) = _TICKET.unpack(ticket)
        n, s = self._cells.get(j, (0, 0))
        if self.order_free:
            self._cells[j] = (n + 1, s + int(y))
        else:
            self._cells[j] = (self._kept * n + 1.0, self._kept * s + y)
        self.learnt += 1

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Move an outcome in its bin from 0 to 1 or back; with a halflife at full weight, cut to what the bin holds."""
        self._require_label(y)
        (j,) = _TICKET.unpack(ticket)
        n, s = self._cells[j]
        if self.order_free:
            self._cells[j] = (n, s + int(y) - int(was))
        else:
            self._cells[j] = (n, min(max(s + y - was, 0.0), n))

    def encode(self) -> bytes:
        cells = (self._cell.pack(j, *counts) for j, counts in sorted(self._cells.items()))
        return _HEAD.pack(self.learnt, self._bins) + b"".join(cells)

    def largest(self, slots: int = MOST_SLOTS) -> int:
        return _HEAD.size + self._bins * self._cell.size

    def decode(self, payload: bytes) -> None:
        count = max(len(payload) - _HEAD.size, 0) // self._cell.size
        require_length(payload, _HEAD.size + count * self._cell.size)
        learnt, bins = _HEAD.unpack_from(payload)
        if bins != self._bins:
            raise ValueError(f"state of bins={bins} does not fit {self._bins}")
        self.learnt = learnt
        self._cells = {j: (n, s) for j, n, s in self._cell.iter_unpack(payload[_HEAD.size :])}


@lru_cache(maxsize=64)
def edges(bins: int, spacing: str) -> tuple[float, ...]:
    """Return the inner edges of the bins, shape (bins - 1,), increasing within (0, 1).

    Examples
    --------
    >>> edges(4, "uniform")
    (0.25, 0.5, 0.75)
    >>> [round(edge, 4) for edge in edges(4, "logit")]
    [0.0099, 0.5, 0.9901]
    """
    if spacing == "uniform":
        return tuple(j / bins for j in range(1, bins))
    most = math.log1p(-EDGE) - math.log(EDGE)
    return tuple(1.0 / (1.0 + math.exp(most * (1.0 - 2.0 * j / bins))) for j in range(1, bins))
