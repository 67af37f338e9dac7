"""Every metric trueup exports: its name, what it counts, and what to do about it."""

from typing import Final

from streams.metrics.stream_metrics import STREAMS
from streams.metrics.vectors import OF_VECTORS
from streams.metrics.worker_metrics import RECORDS, WORKER

#: What the name of every metric begins with.
PREFIX: Final = "trueup_"
#: Buckets of the label delay, s: from a minute to two months.
DELAYS: Final = (60, 600, 3600, 6 * 3600, 86_400, 3 * 86_400, 7 * 86_400, 14 * 86_400, 30 * 86_400, 60 * 86_400)
#: Buckets of the time a batch takes from fold to acknowledgement, s.
LATENCIES: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
#: Buckets of the time from a forecast to its answer, s. A batch takes milliseconds, a backlog minutes.
WAITS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
#: Names of a batch's numbered steps, see `docs/explanation/journal.md`.
STAGES: Final = {1: "decode", 2: "fold", 3: "journal", 4: "produce"}
#: Metrics that the client library exports for a process.
_PROCESS: Final = (
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
)
#: Prefix of the same metrics for the process that serves readers.
READERS: Final = f"{PREFIX}readers"
#: Metrics of the process, and of the process that serves its readers.
PROCESS: Final = (*_PROCESS, *(f"{READERS}_{name}" for name in _PROCESS))
#: Buckets of the number of records in a batch.
SIZES: Final = (1, 3, 10, 30, 100, 300, 1000, 2000, 4000)

#: Every metric by its name.
CATALOGUE: Final = {metric.name: metric for metric in (*RECORDS, *STREAMS, *WORKER)}

#: The most series of one stream: a stream of probabilities with the most challengers. Prometheus's ``sample_limit``
#: must allow this for each of ``TRUEUP_METRICS_STREAMS``, plus a worker's own series.
STREAM_SERIES: Final = sum(metric.series for metric in CATALOGUE.values() if metric not in OF_VECTORS)
