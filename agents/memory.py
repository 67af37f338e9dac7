"""How much memory is left in this process's control group, or on the machine."""

from contextlib import suppress
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")


def free_ratio(root: Path = _ROOT) -> float | None:
    """Return the share of the memory limit that is free, in [0, 1]; None if the system does not say.

    The limit is that of the control group (version 2), where inactive file pages count as free. Otherwise it is the
    machine's memory. ``root`` holds ``proc`` and ``sys``.
    """
    with suppress(OSError, ValueError, KeyError, StopIteration):
        groups = (root / "proc/self/cgroup").read_text().splitlines()
        group = root / "sys/fs/cgroup" / next(each[3:] for each in groups if each.startswith("0::")).lstrip("/")
        limit = int((group / "memory.max").read_text())  # "max" means no limit
        used = int((group / "memory.current").read_text()) - _sizes(group / "memory.stat")["inactive_file"]
        return min(max(1.0 - used / limit, 0.0), 1.0)
    with suppress(OSError, ValueError, KeyError):
        held = _sizes(root / "proc/meminfo")
        return held["MemAvailable:"] / held["MemTotal:"]
    return None


def _sizes(path: Path) -> dict[str, int]:
    """Return the numbers in a file of names and numbers, by name."""
    return {name: int(size) for name, size, *_ in map(str.split, path.read_text().splitlines())}
