"""What processes use while they run: CPU seconds and resident memory, from /proc (Linux)."""

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Use(NamedTuple):
    """Of one process up to now: CPU of user and system, its ended children's included, s; resident memory, bytes."""

    cpu: float
    rss: int

    @classmethod
    def of(cls, pid: int) -> "Use":
        """Read it of a process; `OSError` if it has ended."""
        return parse(Path(f"/proc/{pid}/stat").read_text())


def parse(stat: str) -> Use:
    """Return what a line of /proc/PID/stat says; the name in it may hold blanks and parentheses."""
    fields = stat.rpartition(")")[2].split()
    return Use(sum(map(int, fields[11:15])) / _TICK, int(fields[21]) * _PAGE)


def busy(stat: str) -> float:
    """Return the CPU seconds all processors spent on anything but waiting, from the first line of /proc/stat."""
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, stat.split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / _TICK


def interpolated(times: Sequence[float], values: Sequence[float], at: float) -> float:
    """Return a value between samples, linearly; before the first and after the last, theirs.

    Raises ValueError if there are no samples.
    """
    if not times:
        raise ValueError("nothing was sampled")
    i = bisect_right(times, at)
    if i == 0 or i == len(times):
        return values[min(i, len(times) - 1)]
    share = (at - times[i - 1]) / (times[i] - times[i - 1])
    return values[i - 1] + share * (values[i] - values[i - 1])


class Watch:
    """Samples processes, and the machine, from entering the context until leaving it or until they end.

    ``pids``: of the processes, by a name for each.
    ``interval``: between samples, s.
    """

    def __init__(self, pids: dict[str, int], interval: float = 0.02) -> None:
        self._pids = pids
        self._interval = interval
        self._times: dict[str, list[float]] = {name: [] for name in pids}
        self._uses: dict[str, list[Use]] = {name: [] for name in pids}
        self._machine: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._machine.append((time.time(), busy(Path("/proc/stat").read_text())))
            for name, pid in self._pids.items():
                try:
                    use = Use.of(pid)
                except OSError:
                    continue
                self._times[name].append(time.time())
                self._uses[name].append(use)

    def cpu(self, name: str, start: float, end: float) -> float:
        """Return the CPU seconds of a process between two times of the wall clock, s since 1970."""
        times, cpu = self._times[name], [use.cpu for use in self._uses[name]]
        return interpolated(times, cpu, end) - interpolated(times, cpu, start)

    def elsewhere(self, start: float, end: float) -> float:
        """Return how many processors were busy with what is not watched: near 0, or the figures are disturbed."""
        times, cpu = [at for at, _ in self._machine], [used for _, used in self._machine]
        all_of_it = interpolated(times, cpu, end) - interpolated(times, cpu, start)
        return (all_of_it - sum(self.cpu(name, start, end) for name in self._pids)) / max(end - start, 1e-3)

    def rss(self, name: str) -> int:
        """Return the most resident memory of a process, bytes."""
        return max((use.rss for use in self._uses[name]), default=0)
