"""Calibeating: the running mean of the outcomes of each bin of another calibrator's answers."""

import math
from typing import ClassVar

from state.calibrators.histogram import Histogram


class Calibeating(Histogram):
    """Serve the mean outcome of the bin so far; behind another calibrator it removes the calibration error of that one.

    Meant for a place behind another calibrator, ``platt+calibeating``, and before a guaranteed one,
    ``platt+calibeating+minimax``. Options, state and ticket: `Histogram`, with κ = 0.

    Notes
    -----
    A fresh bin serves the forecast, then s / n. In a bin of n outcomes with mean ȳ, without a halflife,

        Σ (c - y)² - Σ (ȳ - y)² = Σ_t (c_t - y_t)² / t <= 1 + ln n,   t = 1..n,

    on every sequence, for answers c issued after the outcomes before them. Σ (ȳ - y)² over all bins is the refinement
    of the binned forecasts, what remains of their Brier score once their calibration error is taken off; it is beaten
    up to `regret_bound`. With late outcomes no theorem is claimed.

    References
    ----------
    Foster & Hart 2023, *"Calibeating": beating forecasters at their own game*, Theorem 3.

    Examples
    --------
    >>> calibrator = Calibeating()
    >>> for y in (1, 0, 0, 1, 1):
    ...     calibrator.update(calibrator.predict(0.9).ticket, y)
    >>> calibrator.predict(0.9).p
    0.6
    """

    name: ClassVar[str] = "calibeating"
    SHRINK: ClassVar[float] = 0.0

    def regret_bound(self) -> float | None:
        """Return Σ (1 + ln n) over the touched bins; None with a halflife, which has no theorem."""
        return sum(1.0 + math.log(n) for n, _ in self._cells.values()) if self.order_free else None
