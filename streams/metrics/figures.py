"""Figures as JSON has them, null where there is no number, and tables of them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table


def or_none(value: float) -> float | None:
    """Return a number, or None for NaN."""
    return None if math.isnan(value) else value


def by_name(of: NamedTuple) -> dict[str, float | None]:
    """Return figures by their names."""
    return {name: or_none(value) for name, value in of._asdict().items()}


def table(names: Sequence[str], title: str, caption: str = "") -> Table:
    """Return a table without rows that fits 80 columns: a column that folds, and one of figures for each name."""
    made = Table(
        Column("", overflow="fold"),
        box=SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
        collapse_padding=True,
        title=title,
        caption=caption or None,
    )
    for name in names:
        made.add_column(name, justify="right", no_wrap=True)
    return made
