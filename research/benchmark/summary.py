"""One row a stream: the default beside raw scores and the rival that was best there; with segments, beside MCGrad."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from research.benchmark.contenders import RAW, SEGMENTED
from research.benchmark.judge import Judged, Relative, judge
from research.benchmark.streams import Dated
from research.experiments import picture
from research.experiments.base import TextTable
from state.arrays import Floats

OURS: Final = "trueup"
#: How far behind the best rival nobody may be in log loss, and the errors beyond which a difference counts.
BEHIND, ERRORS = 0.005, 2.0


class Row(NamedTuple):
    """A stream, its contenders beside raw, and the default beside the best of the rivals in log loss.

    ``segmented``: the default with segments beside MCGrad, where the stream has segments and both were played.
    """

    stream: Dated
    judged: Mapping[str, Judged]
    best: str
    beside_best: Judged
    segmented: Judged | None

    @property
    def ours(self) -> Judged:
        """The default beside raw."""
        return self.judged[OURS]

    @property
    def harmed(self) -> bool:
        """Whether the default is worse than raw beyond `ERRORS`, in log loss or Brier score."""
        return any(each.value > ERRORS * each.error for each in (self.ours.log_loss, self.ours.brier))

    @property
    def behind(self) -> bool:
        """Whether the default is more than `BEHIND` behind the best rival in log loss."""
        return self.beside_best.log_loss.value > BEHIND


def row(stream: Dated, served: Mapping[str, Floats], judged: Mapping[str, Judged]) -> Row:
    """Return a stream's row; what was served, [n] by name, has raw, the default and at least one rival."""
    rivals = [name for name in judged if name not in (RAW, OURS, *SEGMENTED)]
    best = min(rivals, key=lambda name: judged[name].log_loss.value)

    def beside(name: str, rival: str) -> Judged:
        return judge(stream, {rival: served[rival], name: served[name]}, beside=rival)[name]

    segmented = beside(*SEGMENTED) if all(name in served for name in SEGMENTED) else None
    return Row(stream, judged, best, beside(OURS, best), segmented)


def table(rows: Sequence[Row]) -> TextTable:
    """Return the table of all streams, and below it what is counted."""
    cells = []
    for stream, judged, best, beside, segmented in rows:
        known = stream.y[~np.isnan(stream.y)]
        ours = judged[OURS]
        rivals = f"{best} {100 * judged[best].log_loss.value:+.2f}"
        cells.append((
            stream.name, stream.origin, f"{len(known):,}", f"{100 * known.mean():.1f} %", _error(ours.log_loss),
            _error(ours.brier), rivals, _error(beside.log_loss),
            _error(segmented.log_loss) if segmented else "",
        ))  # fmt: skip
    head = (
        "stream",
        "who scores; labels",
        "labels",
        "ones",
        "log loss",
        "Brier score",
        "best rival",
        "less the best",
        "segments less MCGrad",
    )
    note = (
        "Log loss and Brier score less raw's, in % of raw's, ± a standard error, clustered by entity and week; the "
        "last columns are log loss less the best rival's, in % of it, without segments, and with them less MCGrad's. "
        f"{counted(rows)}"
    )
    return TextTable("The default over all streams", head, cells, note)


def counted(rows: Sequence[Row]) -> str:
    """Return in words where the default is worse than raw, and where it is behind."""
    harmed = [each.stream.name for each in rows if each.harmed]
    behind = [each.stream.name for each in rows if each.behind]
    ahead = {
        rival: sum(each.ours.log_loss.value <= each.judged[rival].log_loss.value for each in rows)
        for rival in (rows[0].judged if rows else ())
        if rival not in (RAW, OURS, *SEGMENTED)
    }
    beaten = "; ".join(f"{rival} {n}" for rival, n in ahead.items())
    best = sum(each.beside_best.log_loss.value <= 0 for each in rows)
    segmented = [each.segmented.log_loss.value for each in rows if each.segmented]
    return (
        f"Worse than raw beyond {ERRORS:.0f} errors: {', '.join(harmed) or 'nowhere'}. More than {BEHIND:.1%} behind "
        f"the best rival: {', '.join(behind) or 'nowhere'}. Not behind, of {len(rows)}: all rivals {best}; {beaten}. "
        f"With segments not behind MCGrad: {sum(value <= 0 for value in segmented)} of {len(segmented)}."
    )


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw both differences in log loss with two errors, a line for each stream."""

    def paint(axes: Any) -> None:  # noqa: ANN401 - an array of axes
        beside_raw = [each.ours.log_loss for each in rows]
        beside_best = [each.beside_best.log_loss for each in rows]
        for column, (found, of) in enumerate(((beside_raw, "raw's"), (beside_best, "the best rival's"))):
            axis = axes[0, column]
            for k, each in enumerate(found):
                axis.errorbar(
                    100 * each.value, k, xerr=100 * ERRORS * each.error, fmt="o", color=picture.COLOURS[0], capsize=2
                )
            axis.axvline(0, color=picture.INK, linewidth=0.8)
            axis.set(yticks=range(len(rows)), yticklabels=[each.stream.name for each in rows] if not column else [])
            axis.set_xlabel(f"log loss less {of}, %; left is better")
            axis.set_ylim(len(rows) - 0.5, -0.5)
        axes[0, 1].axvline(100 * BEHIND, color=picture.FAINT, linewidth=0.8)

    size = (11.0, 1.5 + 0.25 * len(rows))
    picture.draw(path, paint, title="The default over all streams", rows=1, columns=2, size=size)


def _error(each: Relative) -> str:
    return f"{100 * each.value:+.2f} ± {100 * each.error:.2f}"
