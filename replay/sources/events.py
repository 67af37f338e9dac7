"""Which rows are of one event: a score and a label may stand in rows of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from replay.sources import names
from replay.sources.column import Column, shown
from replay.sources.record import TableError
from state.arrays import Floats


def joined(
    found: Mapping[str, Column], values: Floats, labels: Floats
) -> tuple[list[str], NDArray[np.intp], list[str]]:
    """Return by row the id of its event and the row that has its score; and a sentence on ids that repeat."""
    if "--id" not in found:
        _require_pairs(values, labels, found["--label"].name)
        return [str(n) for n in range(len(values))], np.arange(len(values)), []
    ids = names.ids(found["--id"])
    scored = _scored(ids, values, labels)
    forecast = scored == np.arange(len(ids))
    numbered = replace(found["--id"], rows=list(compress(found["--id"].rows, forecast)))
    return ids, scored, names.repeated(numbered, list(compress(ids, forecast)))


def _scored(ids: Sequence[str], values: Floats, labels: Floats) -> NDArray[np.intp]:
    """Return by row which row has the score of its event.

    It is another one if a label stands in a row of its own. A row whose event has no score anywhere is its own.
    """
    rows = np.arange(len(ids))
    alone = np.flatnonzero(np.isnan(values) & ~np.isnan(labels))
    if len(alone):
        first = {ids[row]: row for row in np.flatnonzero(~np.isnan(values))[::-1].tolist()}
        rows[alone] = [first.get(ids[row], row) for row in alone.tolist()]
    return rows


def _require_pairs(values: Floats, labels: Floats, label: str) -> None:
    """Raise TableError if scores and labels stand in rows of their own, and nothing says which belong together."""
    scored, labelled = ~np.isnan(values), ~np.isnan(labels)
    if labelled.any() and not (scored & labelled).any():
        raise TableError(
            f"--label {shown(label)}: no row with a label has a score. If scores and labels of an event have "
            "rows of their own, name its id by --id, and when a label was known by --label-time"
        )
