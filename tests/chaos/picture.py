"""A soak in one picture: memory and files of the workers, waits, lag, and when which fault struck."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from tests.chaos.samples import Sample

mpl.use("Agg")
from matplotlib import pyplot as plt


def draw(path: Path, samples: Sequence[Sample], faults: Sequence[tuple[float, float, str]], title: str) -> None:
    """Draw it.

    Parameters
    ----------
    faults
        Begin and end of each, s, and its name.
    """
    figure, (memory, files, waits, lag) = plt.subplots(4, sharex=True, figsize=(14, 11), layout="constrained")
    minutes = [sample.at / 60 for sample in samples]
    workers = sorted({number for sample in samples for number in sample.resident})
    for number in workers:
        # A line ends where a worker does: a new process begins a new one.
        values, opened, before = [], [], None
        for sample in samples:
            pid, megabytes = sample.resident.get(number, (None, np.nan))
            fresh = before is not None and pid != before
            values.append(np.nan if fresh else megabytes)
            opened.append(np.nan if fresh else sample.files.get(number, np.nan))
            before = pid
        memory.plot(minutes, values, label=f"worker {number}")
        files.plot(minutes, opened, label=f"worker {number}")
    for percent in (50, 99):
        found = [float(np.percentile(s.waits, percent)) if s.waits else np.nan for s in samples]
        waits.plot(minutes, found, label=f"p{percent}")
    lag.plot(minutes, [np.nan if s.lag is None else s.lag for s in samples], color="black")
    for axes in (memory, files, waits, lag):
        for begin, end, _ in faults:
            axes.axvspan(begin / 60, max(end, begin + 1) / 60, color="tab:red", alpha=0.15)
        axes.grid(alpha=0.3)
    for begin, _, name in faults:
        memory.annotate(name, (begin / 60, 1.01), xycoords=("data", "axes fraction"), rotation=60, fontsize=7)
    memory.set_ylabel("memory, MB")
    memory.set_ylim(bottom=0)
    memory.legend(loc="lower right", ncols=len(workers))
    files.set_ylabel("open files")
    files.set_ylim(bottom=0)
    waits.set_ylabel("forecast → calibrated, ms")
    waits.set_yscale("log")
    waits.legend(loc="upper right")
    lag.set_ylabel("lag, records")
    lag.set_yscale("symlog", linthresh=100)
    lag.set_ylim(bottom=0)
    lag.set_xlabel("minutes")
    figure.suptitle(title, y=1.06)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)
