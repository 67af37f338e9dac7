"""Time until a worker is ready, by the size of its state: from an empty disk, and from its own.

``python -m tests.bench.recovery [--rows 1e6 1e7]``: for each size, `tests.bench.rows` appends such a state to the
changelog of a real broker. A worker with an empty disk restores it; it is stopped, and started again on the disk it
left; it is killed, and started once more. Then it answers 20,000 events that no checkpoint holds, is killed, and folds
them again. A row's size, resident memory a million rows, and what RocksDB keeps come along. The table is followed by
one line of JSON. Without ``--rows`` it measures an empty state and 1e6 rows.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from lab.broker import Broker
from lab.scrape import ScrapedSamples, get
from streams.config.settings import Settings
from streams.kafka import topics
from tests.bench import backlog, rows
from tests.bench.backlog import Job
from tests.bench.watch import Use

PARTITIONS: Final = 4
ROOT: Final = Path(__file__).resolve().parents[2]
LABELS: Final = ("forecasts", "outcomes", "calibrated", "resolved", "dead-letters")
#: Forecasts, and as many outcomes, that are folded again at the last start.
FOLDED: Final = 10_000
#: A bound against hanging, s.
PATIENCE: Final = 600.0


class Start(NamedTuple):
    """One start of a worker: seconds to ready, processor seconds till then, memory then and at most, MiB."""

    seconds: float
    cpu_seconds: float
    rss_mib: float
    peak_mib: float


class Worker:
    """A worker process that is watched from its first moment."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._log = log
        self._started = time.perf_counter()
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cli.main", "run", "worker"],
                env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )
        self.port = int(environment["TRUEUP_METRICS_PORT"])

    def get(self, path: str) -> int:
        """Return the status of a page, 0 while nothing listens."""
        try:
            return get("127.0.0.1", self.port, path)[0]
        except OSError:
            return 0

    def reading(self) -> ScrapedSamples:
        """Return what its metrics say."""
        return ScrapedSamples.of("127.0.0.1", self.port)

    def ready(self) -> Start:
        """Wait until it serves; it must answer as alive and as not ready until then."""
        listening = False
        while (status := self.get("/readyz")) != 200:
            if self.process.poll() is not None:
                raise SystemExit(f"the worker ended with {self.process.returncode}:\n{self._log.read_text()[-3000:]}")
            if time.perf_counter() - self._started > PATIENCE:
                raise SystemExit(f"not ready in {PATIENCE:.0f} s:\n{self._log.read_text()[-3000:]}")
            listening = listening or status == 503
            if listening and self.get("/healthz") == 503:
                raise SystemExit("the worker said it was dead while it restored")
            time.sleep(0.05)
        seconds, pid = time.perf_counter() - self._started, self.process.pid
        return Start(seconds, Use.of(pid).cpu, _mib(pid, "VmRSS"), _mib(pid, "VmHWM"))

    def end(self, signum: signal.Signals) -> None:
        """End it, and wait."""
        self.process.send_signal(signum)
        self.process.wait(60)


@contextmanager
def world(
    broker: Broker, partitions: int = PARTITIONS, **settings: str
) -> Iterator[tuple[dict[str, str], Settings, Path]]:
    """Make topics of their own, and yield a worker's environment, its settings and its directory."""
    name = f"r{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="trueup-bench-") as directory:
        environment = {
            "TRUEUP_BROKERS": broker.bootstrap,
            "TRUEUP_APP_ID": name,
            "TRUEUP_DATA_DIR": f"{directory}/data",
            "TRUEUP_METRICS_PORT": "29464",
            "TRUEUP_COMMIT_SECONDS": "0.5",
            # Only records make a checkpoint due: what is fed before the last start stays in the journal.
            "TRUEUP_CHECKPOINT_SECONDS": "60",
            # A worker that was killed is missed only after its session; a short one keeps the last start short.
            "TRUEUP_SESSION_SECONDS": "6",
            "TRUEUP_REQUEST_SECONDS": "6",
            **{f"TRUEUP_{label.upper().replace('-', '_')}": f"{name}-{label}" for label in LABELS},
            **settings,
        }
        made = Settings.from_env(environment)
        asyncio.run(topics.create(made, partitions=partitions))
        yield environment, made, Path(directory)


def measure(broker: Broker, pending: int) -> dict[str, float]:
    """Measure the three starts of one size of state."""
    with world(broker) as (environment, settings, directory):
        written = asyncio.run(rows.write(settings, PARTITIONS, pending)) if pending else rows.Written(0, 0, 0)
        log = directory / "worker.log"
        starts: list[Start] = []
        for ends in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
            worker = Worker(environment, log)
            try:
                starts.append(worker.ready())
                reading = worker.reading()
                held = reading.value("pending_events")
                if pending and held != max(pending // PARTITIONS, rows.REAL) * PARTITIONS:
                    raise SystemExit(f"{held:.0f} events are pending after a start, {pending} were written")
                if len(starts) == 3:
                    asyncio.run(
                        backlog.produce(broker.bootstrap, environment["TRUEUP_APP_ID"], backlog.backlog(Job(FOLDED)))
                    )
                    _counted(worker, "records_total")
                if len(starts) == 4:
                    _counted(worker, "redelivered_records_total")
            finally:
                worker.end(ends)
            if ends == signal.SIGKILL:
                time.sleep(float(environment["TRUEUP_SESSION_SECONDS"]) + 1)  # until the group has missed it
        disk = disk_bytes(directory / "data")
        progress = [line for line in log.read_text().splitlines() if "restor" in line]
    changelog, stopped, killed, folded = starts
    return {
        "rows": written.rows,
        "changelog_s": round(changelog.seconds, 2),
        "changelog_rows_per_s": round(written.records / changelog.seconds),
        "changelog_cpu_s": round(changelog.cpu_seconds, 2),
        "disk_s": round(stopped.seconds, 2),
        "disk_after_kill_s": round(killed.seconds, 2),
        "disk_and_fold_s": round(folded.seconds, 2),
        "changelog_peak_mib": round(changelog.peak_mib),
        "disk_rss_mib": round(stopped.rss_mib),
        "changelog_bytes_per_event": round(written.bytes / pending, 1) if pending else 0.0,
        "disk_bytes_per_event": round(disk / pending, 1) if pending else 0.0,
        "progress_lines": len(progress),
    }


def disk_bytes(directory: Path) -> int:
    """Return the bytes of the files below a directory, whose worker has ended."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _mib(pid: int, field: str) -> float:
    """Return what Linux says of a process's memory: `VmRSS`, what it holds now, or `VmHWM`, the most that it held."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status[field].split()[0]) / 1024


def _counted(worker: Worker, counter: str) -> None:
    """Wait until a counter has all records that were fed."""
    given_up = time.perf_counter() + PATIENCE
    while (done := worker.reading().total(counter)) < 2 * FOLDED:
        if time.perf_counter() > given_up:
            raise SystemExit(f"{counter} is {done:.0f} of {2 * FOLDED} after {PATIENCE:.0f} s")
        time.sleep(0.05)


def main() -> None:
    """Measure, print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[0, 1e6], help="pending events, all partitions")
    sizes = [int(size) for size in parser.parse_args().rows]
    found: list[dict[str, float]] = []
    for size in sizes:
        with Broker() as broker:
            found.append(measure(broker, size))
    for name in found[0]:
        print(f"{name:28}" + "".join(f"{figures[name]:>14,}" for figures in found))
    print(
        orjson.dumps({f"{size:.0e}" if size else "0": each for size, each in zip(sizes, found, strict=True)}).decode()
    )


if __name__ == "__main__":
    main()
