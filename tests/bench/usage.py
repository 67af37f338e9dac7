"""What a process uses, as Linux tells it."""

import os
from pathlib import Path

from tests.bench.watch import Use

MIB = 1 << 20


def resident(pid: int) -> float:
    """Return the memory a process holds now, MiB."""
    return _status(pid, "VmRSS")


def peak(pid: int) -> float:
    """Return the most memory it has held, MiB."""
    return _status(pid, "VmHWM")


def cpu_seconds(pid: int) -> float:
    """Return the processor time it has taken, user and system, its ended children's included."""
    return Use.of(pid).cpu


def disk_bytes(directory: Path) -> int:
    """Return the bytes of the files below a directory; those that go meanwhile do not count."""
    total = 0
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                total += (Path(root) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def _status(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"process {pid} has no {field}")
