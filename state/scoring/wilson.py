"""Wilson's interval: how far the share of something may lie from what was seen of it."""

import math
from typing import Final

#: Of 95 %: the normal law's .975 quantile.
_Z: Final = 1.959963984540054


def wilson(share: float, n: float) -> tuple[float, float]:
    """Return the 95 % interval of a share, in [0, 1], seen in ``n`` events, n positive; NaN of NaN.

    By rounding an end may miss [0, 1] by an ulp.

    References
    ----------
    Wilson 1927, *Probable inference, the law of succession, and statistical inference*, JASA 22, 209-212.

    Examples
    --------
    >>> [round(end, 3) for end in wilson(0.0, 10)]
    [0.0, 0.278]
    """
    scale = 1.0 + _Z**2 / n
    centre = (share + _Z**2 / (2.0 * n)) / scale
    half = _Z / scale * math.sqrt(share * (1.0 - share) / n + _Z**2 / (4.0 * n**2))
    return centre - half, centre + half
