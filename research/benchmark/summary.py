"""One row a stream: the default beside raw scores and the rival that was best there; with segments, beside MCGrad."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from research.benchmark.contenders import RAW, SEGMENTED
from research.benchmark.judge import DAY, WEEK, Judged, Relative, judge
from research.benchmark.streams import Dated
from research.experiments import picture
from research.experiments.base import TextTable
from state.arrays import Floats

OURS: Final = "trueup"
#: How far behind the best rival nobody may be in log loss, and the errors beyond which a difference counts.
BEHIND, ERRORS = 0.005, 2.0


class Row(NamedTuple):
    """A stream, its contenders beside raw, and the default beside each rival.

    Attributes
    ----------
    by_day
        The default beside raw, with errors by day in place of week.
    best, beside_best
        The rival that was best in log loss, and the default beside it.
    segmented
        The default with segments beside MCGrad, where the stream has segments and both were played.
    """

    stream: Dated
    judged: Mapping[str, Judged]
    by_day: Judged
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
        return _harmed(self.ours)

    @property
    def behind(self) -> bool:
        """Whether the default is more than `BEHIND` behind the best rival in log loss."""
        return self.beside_best.log_loss.value > BEHIND


def row(stream: Dated, served: Mapping[str, Floats], judged: Mapping[str, Judged]) -> Row:
    """Return a stream's row; what was served, [n] by name, has raw, the default and at least one rival."""
    rivals = [name for name in judged if name not in (RAW, OURS, *SEGMENTED)]
    best = min(rivals, key=lambda name: judged[name].log_loss.value)

    def beside(name: str, rival: str, days: int = WEEK) -> Judged:
        return judge(stream, {rival: served[rival], name: served[name]}, beside=rival, days=days)[name]

    segmented = beside(*SEGMENTED) if all(name in served for name in SEGMENTED) else None
    return Row(stream, judged, beside(OURS, RAW, DAY), best, beside(OURS, best), segmented)


def table(rows: Sequence[Row]) -> TextTable:
    """Return the table of all streams, and below it what is counted."""
    cells = []
    for each in rows:
        stream, ours, day, best, segmented = each.stream, each.ours, each.by_day, each.best, each.segmented
        known = stream.y[~np.isnan(stream.y)]
        cells.append((
            stream.name, stream.origin, f"{len(known):,}", f"{100 * known.mean():.1f} %",
            f"{_error(ours.log_loss)} ({100 * day.log_loss.error:.2f})",
            f"{_error(ours.brier)} ({100 * day.brier.error:.2f})",
            f"{best} {100 * each.judged[best].log_loss.value:+.2f}", _error(each.beside_best.log_loss),
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
        "Log loss and Brier score less raw's, in % of raw's, ± a standard error, clustered by entity and week (by "
        "entity and day); the last columns are log loss less the best rival's, in % of it, without segments, and with "
        "them less MCGrad's. "
        f"{counted(rows)}"
    )
    return TextTable("The default over all streams", head, cells, note)


def counted(rows: Sequence[Row]) -> str:
    """Return in words where the default is worse than raw, and where it is behind."""
    harmed = [each.stream.name for each in rows if each.harmed]
    by_day = [each.stream.name for each in rows if _harmed(each.by_day)]
    behind = [each.stream.name for each in rows if each.behind]
    beyond = [
        each.stream.name for each in rows if each.beside_best.log_loss.value > ERRORS * each.beside_best.log_loss.error
    ]
    segmented = [each.segmented.log_loss.value for each in rows if each.segmented]
    return (
        f"Worse than raw beyond {ERRORS:.0f} errors: {', '.join(harmed) or 'nowhere'}; by day: "
        f"{', '.join(by_day) or 'nowhere'}. More than {BEHIND:.1%} behind the best rival: "
        f"{', '.join(behind) or 'nowhere'}; beyond {ERRORS:.0f} errors: {', '.join(beyond) or 'nowhere'}. "
        f"With segments not behind MCGrad: {sum(value <= 0 for value in segmented)} of {len(segmented)}."
    )


def standings(rows: Sequence[Row]) -> TextTable:
    """Return how each contender without segments stands beside the best of all others, stream by stream."""
    names = [name for name in rows[0].judged if name not in (RAW, *SEGMENTED)]
    cells = []
    for name in names:
        behind = []
        for each in rows:
            best = min(1.0 + each.judged[other].log_loss.value for other in names if other != name)
            behind.append((1.0 + each.judged[name].log_loss.value) / best - 1.0)
        counts = (
            sum(each <= 0 for each in behind),
            sum(each > BEHIND for each in behind),
            sum(_harmed(each.judged[name]) for each in rows),
        )
        cells.append((name, *map(str, counts), f"{100 * np.median(behind):+.2f}", f"{100 * max(behind):+.1f}"))
    head = (
        "contender", "behind nobody", f"more than {BEHIND:.1%} behind", "worse than raw", "median behind, %", "most, %"
    )  # fmt: skip
    note = (
        f"Of {len(rows)} streams: log loss beside the contender that was the best of all others there. Worse than raw: "
        f"in log loss or Brier score, beyond {ERRORS:.0f} errors."
    )
    return TextTable("Contenders beside each other", head, cells, note)


def _harmed(ours: Judged) -> bool:
    return any(each.value > ERRORS * each.error for each in (ours.log_loss, ours.brier))


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
