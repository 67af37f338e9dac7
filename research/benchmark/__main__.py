"""Play every contender over every stream, judge, and write one table and one picture."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

import numpy as np

from lab.picture import bins
from research.benchmark import summary
from research.benchmark.contenders import CONTENDERS, RAW, SEGMENTED
from research.benchmark.judge import Judged, judge
from research.benchmark.streams import STREAMS, Dated
from research.benchmark.tables import TABLES
from research.benchmark.unseen import UNSEEN
from research.experiments import picture
from research.experiments.base import TextTable
from research.experiments.report import markdown
from state.arrays import Floats
from streams.atomic_file import written

#: Rows of each stream that are played where time is short, and who is left out then.
QUICK, SLOW = 50_000, ("MCGrad, segments",)
ALL: Final = {**STREAMS, **TABLES}
#: Whose reliability is drawn.
DRAWN: Final = (RAW, "trueup", "isotonic, every night")


class Played(NamedTuple):
    """A stream, what each contender served, [n] by name, and how good it was."""

    stream: Dated
    served: Mapping[str, Floats]
    judged: Mapping[str, Judged]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if there was nothing to play."""
    parser = argparse.ArgumentParser(
        prog="python -m research.benchmark",
        description="Risk calibration under natural labels: trueup's default beside its rivals on real scores. Prints "
        "a table and writes it with a picture. What 'make data' has not fetched is skipped and named.",
    )
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK:,} scores of each, without MCGrad")
    parser.add_argument(
        "--all", action="store_true", help=f"the first {QUICK:,} scores of {len(ALL)} streams, a row each"
    )
    parser.add_argument("--unseen", action="store_true", help=f"{len(UNSEEN)} others that nobody tuned on, a row each")
    parser.add_argument("--only", action="append", choices=(*ALL, *UNSEEN), help="may be repeated")
    parser.add_argument("--out", type=Path, default=Path("trueup-benchmark"), help="directory (default: %(default)s)")
    given = parser.parse_args(arguments)
    began, played, skipped = monotonic(), list[Played](), dict[str, None]()
    many = given.all or given.unseen
    for name in given.only or (UNSEEN if given.unseen else ALL if given.all else STREAMS):
        served: dict[str, Floats] = {}
        try:
            stream = {**ALL, **UNSEEN}[name]()
            stream = stream.first(QUICK) if given.quick or given.all else stream
            left_out = () if stream.segments else SEGMENTED
            for each, contender in CONTENDERS.items():
                if each in left_out or (given.quick and each in SLOW):
                    continue
                try:
                    served[each] = contender(stream)
                except FileNotFoundError as exc:
                    skipped[str(exc)] = None
                print(f"{name}, {each}  (after {monotonic() - began:.0f} s)", flush=True)
            played.append(Played(stream, served, judge(stream, served)))
        except FileNotFoundError as exc:
            skipped[str(exc)] = None
    rows = [summary.row(*each) for each in played] if many else []
    tables = [summary.table(rows), summary.standings(rows)] if rows else [table(played)]
    lines = [line for each in tables for line in markdown(each)] + [f"\nSkipped: {note}" for note in skipped]
    print("\n".join(lines))
    if not played:
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    with written(given.out / "benchmark.md") as file:
        file.write(("\n".join(lines) + "\n").encode())
    if rows:
        summary.draw(given.out / "benchmark.png", rows)
    else:
        draw(given.out / "benchmark.png", played)
    print(f"{given.out / 'benchmark.png'}  ({monotonic() - began:.0f} s in all)")
    return 0


def table(played: Sequence[Played]) -> TextTable:
    """Return what was found, a row for each stream and contender."""
    rows = []
    for stream, _, found in played:
        known = stream.y[~np.isnan(stream.y)]
        title = f"{stream.name}: {len(known):,} labels, {known.mean():.1%} ones; {stream.origin}"
        for name, each in found.items():
            rows.append((title, name, str(each.log_loss), str(each.brier), f"{each.ece:.4f}"))
            title = ""
    head = ("stream", "served by", "log loss, % of raw's", "Brier score, % of raw's", "calibration error")
    note = (
        "Differences to raw with 95 % intervals, resampled by weeks and entities. Calibration error: ECE in ten bins."
    )
    return TextTable("Risk calibration under natural labels", head, rows, note)


def draw(path: Path, played: Sequence[Played]) -> None:
    """Draw log loss with its interval, and reliability, a column for each stream."""

    def paint(axes: Any) -> None:  # noqa: ANN401 - an array of axes
        # One row for each, also where one is missing.
        names = [name for name in CONTENDERS if name != RAW and any(name in found for _, _, found in played)]
        for column, (stream, scores, found) in enumerate(played):
            axis = axes[0, column]
            for k, name in enumerate(names):
                if name not in found:
                    continue
                value, low, high = (100 * each for each in found[name].log_loss)
                colour = picture.COLOURS[0] if name.startswith("trueup") else picture.GREY
                axis.errorbar(value, k, xerr=[[value - low], [high - value]], fmt="o", color=colour, capsize=2)
            axis.axvline(0, color=picture.INK, linewidth=0.8)
            axis.set(title=stream.name, yticks=range(len(names)), yticklabels=names if not column else [])
            axis.set_xlabel("log loss, % of raw's; left is better")
            axis.set_ylim(len(names) - 0.5, -0.5)
            known = ~np.isnan(stream.y)
            axis = axes[1, column]
            for name, colour in zip(DRAWN, (picture.COLOURS[1], picture.COLOURS[0], picture.GREY), strict=True):
                curve = bins(scores[name][known], stream.y[known])
                line = [[each[field] for each in curve] for field in ("forecast", "outcome")]
                axis.plot(*line, marker="o", markersize=4, label=name, color=colour)
            axis.plot([0, 1], [0, 1], color=picture.FAINT, zorder=0)
            axis.set_xlabel("served")
        axes[1, 0].set_ylabel("share of ones")
        axes[1, 0].legend()

    title, size = "Risk calibration under natural labels", (2.5 + 3.7 * len(played), 7.5)
    picture.draw(path, paint, title=title, rows=2, columns=len(played), size=size)


if __name__ == "__main__":
    raise SystemExit(main())
