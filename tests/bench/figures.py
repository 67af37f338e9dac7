"""Numbers of a benchmark: quantiles, medians, tables."""

import math
from collections.abc import Mapping, Sequence
from statistics import median


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return the smallest value that a share of at least q of all does not exceed.

    Raises ValueError if there are no values, or q is not in (0, 1].
    """
    if not ordered or not 0 < q <= 1:
        raise ValueError(f"no quantile {q} of {len(ordered)} values")
    # Products such as .999 * 1000 come out a rounding error above the whole number.
    return ordered[max(math.ceil(q * len(ordered) - 1e-9), 1) - 1]


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure over the runs, which have the same figures."""
    return {name: median(run[name] for run in runs) for name in runs[0]}


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows below their columns, the first column to the left, all others to the right."""
    lines = [columns, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
