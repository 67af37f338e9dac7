"""Figures as JSON has them, null where there is no number, and tables of them."""

import math
from typing import NamedTuple


def or_none(value: float) -> float | None:
    """Return a number, or None for NaN."""
    return None if math.isnan(value) else value


def by_name(of: NamedTuple) -> dict[str, float | None]:
    """Return figures by their names."""
    return {name: or_none(value) for name, value in of._asdict().items()}
