"""Small diagrams that stand in the cells of tables: an interval, two dots on a line."""

from collections.abc import Sequence
from math import isfinite
from typing import Final

from agents.status.axes import Linear
from agents.status.markup import Markup, join, tag
from replay.result import Difference, FeatureBias

_WIDTH, _HEIGHT = 104.0, 16.0
#: Of a strip with several dots.
_WIDE: Final = 260.0
_MIDDLE: Final = _HEIGHT / 2


def reach(differences: Sequence[Difference]) -> float:
    """Return how far an axis around 0 must go to hold all intervals."""
    ends = (abs(end) for each in differences for end in (each.low, each.high) if isfinite(end))
    return max(ends, default=0.0) or 1.0


def interval(each: Difference, far: float) -> Markup:
    """Draw a difference and its interval beside 0, on an axis from -far to far."""
    x = Linear(-far, far, 3.0, _WIDTH - 3.0)
    style = ("better", "same", "worse")[each.sign + 1]
    zero = x.at(0.0)
    if not (isfinite(each.low) and isfinite(each.high)):
        return _picture(tag("line", x1=zero, y1=0, x2=zero, y2=_HEIGHT, class_="zero"))
    return _picture(
        tag("line", x1=zero, y1=0, x2=zero, y2=_HEIGHT, class_="zero"),
        tag("line", x1=x.at(each.low), y1=_MIDDLE, x2=x.at(each.high), y2=_MIDDLE, class_=f"reach {style}"),
        tag("circle", cx=x.at(each.value), cy=_MIDDLE, r=3.2, class_=f"dot {style}"),
    )


def biases(before: FeatureBias, after: Sequence[tuple[str, FeatureBias]], far: float) -> Markup:
    """Draw the bias along a feature, raw and of each contender by its style, on an axis from -far to far."""
    x = Linear(-far, far, 5.0, _WIDE - 5.0)
    zero = x.at(0.0)
    return _picture(
        tag("line", x1=x.at(-far), y1=_MIDDLE, x2=x.at(far), y2=_MIDDLE, class_="grid"),
        tag("line", x1=zero, y1=0, x2=zero, y2=_HEIGHT, class_="zero"),
        tag("circle", cx=x.at(before.raw), cy=_MIDDLE, r=3.6, class_="dot raw"),
        *(tag("circle", cx=x.at(each.calibrated), cy=_MIDDLE, r=3.6, class_=f"dot {style}") for style, each in after),
        width=_WIDE,
    )


def _picture(*parts: Markup, width: float = _WIDTH) -> Markup:
    return tag(
        "svg", join(*parts), viewBox=f"0 0 {width:g} {_HEIGHT:g}", width=width, height=_HEIGHT, class_="strip",
        aria_hidden="true",
    )  # fmt: skip
