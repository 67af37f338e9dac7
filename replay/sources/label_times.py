"""When labels were known: before their score, at an unknown time, or all at once."""

from collections.abc import Mapping
from datetime import UTC, tzinfo
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replay.sources import times
from replay.sources.column import Column, counted, quoted, shown
from replay.sources.record import TableError
from replay.sources.times import NEVER
from state.arrays import Floats, Integers
from state.scoring.ages import words

#: If a larger share of labels is before its score, the zone or column is wrong, not just a few clocks.
_MOST_EARLY: Final = 0.01
#: Labels without a time are taken as known at the age by which this share of the others was known.
_MOST_KNOWN: Final = 0.99


def follow(
    known: Integers,
    made: Integers,
    labels: Floats,
    found: Mapping[str, Column],
    zone: tzinfo | None,
    scored: NDArray[np.intp],
) -> list[str]:
    """Let labels that are before their score come with it, as a worker does; TableError if they are too early or many.

    Many may be early within the day, minute or second to which all label times are rounded.

    ``known, made``: for each row, when the label was known and when its score was made, ms.
    ``scored``: for each row, which row has its score.
    """
    early = (known < made) & (known != NEVER) & ~np.isnan(labels)
    if not early.any():
        return []
    moments, at_moment = np.unique(known[known != NEVER], return_inverse=True)
    ends = times.ends(moments, zone or UTC)
    wrong = early.copy()
    wrong[early] = made[early] >= ends[at_moment[early[known != NEVER]]]
    if wrong.sum() <= _MOST_EARLY * np.sum((known != NEVER) & ~np.isnan(labels)):
        known[early] = made[early]
        many, first = counted(early.sum(), "label"), found["--label-time"].at(int(np.argmax(early)))
        return [f"--label-time: {many} before the score and taken as known with it; the first is {first}."]
    at = int(np.argmax(wrong))
    when = quoted(found["--time"].cells[scored[at]])
    others = int(wrong.sum()) - 1
    more = f", and {counted(others, 'other label')} early, too" if others else ""
    named = "" if zone else ", name the zone of times that have none by --time-zone"
    swapped = " Or are --time and --label-time swapped?" if 2 * others > len(early) else ""
    raise found["--label-time"].wrong(
        at,
        f", before its score's time {when}{more}; correct the times{named}, or leave out --label-time to take labels "
        f"as known with the score.{swapped}",
    )


def completed(labels: Floats, known: Integers, made: Integers, column: Column) -> tuple[NDArray[np.bool_], list[str]]:
    """Return which zeros nobody reported, [n]. Other labels without a time become known when most were; say so.

    Zeros are silence if at least half of them have no time. If the other labels without a time were left out, they
    would become zeros, too. So they are known at the age by which `_MOST_KNOWN` of those with a time were.

    Raises TableError if none of the ones has a time.
    """
    ones, zeros, lacks = labels == 1, labels == 0, known == NEVER
    if ones.any() and lacks[ones].all():
        raise TableError(
            f"{column.option} {shown(column.name)}: no row with label 1 has a time; leave the option out to take "
            "labels as known with the score"
        )
    silent: NDArray[np.bool_] = zeros & lacks & bool(2 * np.sum(zeros & lacks) >= zeros.sum())
    labelled = (ones | zeros) & ~silent & (made != NEVER)
    undated, dated = labelled & lacks, labelled & ~lacks
    if not undated.any() or not dated.any():
        return silent, []
    age = int(np.quantile(np.maximum(known - made, 0)[dated], _MOST_KNOWN))
    known[undated] = np.maximum(np.minimum(made[undated] + age, known[dated].max()), made[undated])
    many, first = counted(int(undated.sum()), "label"), column.rows[int(np.argmax(undated))]
    said = (
        f"--label-time: {many} without a time and taken as known at the age of {words(age)}, by which 99 in 100 others "
        f"were; the first is of row {first}."
    )
    return silent, [said]


def at_once(known: Integers, made: Integers) -> list[str]:
    """Say so if all labels have one time although scores do not: it is the time of an export."""
    known = known[known != NEVER]
    if len(known) < 2 or known.min() < known.max() or made.min() == made.max():
        return []
    said = (
        f"--label-time: all {len(known):,} labels are of one time. If this is when the table was made, nothing is "
        "learnt before: name the column that says when each was known, or leave the option out."
    )
    return [said]
