"""95 % intervals. For a share it is Wilson's."""

import math
from typing import Final, NamedTuple

#: The .975 quantile of the normal distribution, for intervals of 95 %.
_Z: Final = 1.959963984540054


class Interval(NamedTuple):
    """A mean and its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(share: float, n: float) -> tuple[float, float]:
    """Return the 95 % interval of a share in [0, 1] of ``n`` events, n > 0; NaN if the share is NaN.

    Rounding may put an end outside [0, 1] by one ulp.

    References
    ----------
    Wilson 1927, *Probable inference, the law of succession, and statistical inference*, JASA 22, 209-212.
    """
    scale = 1.0 + _Z**2 / n
    centre = (share + _Z**2 / (2.0 * n)) / scale
    half = _Z / scale * math.sqrt(share * (1.0 - share) / n + _Z**2 / (4.0 * n**2))
    return centre - half, centre + half
