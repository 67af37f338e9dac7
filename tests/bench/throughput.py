"""The same job for everyone: events a second, CPU and memory of trueup, a plain loop and Kafka Streams.

``python -m tests.bench.throughput [--repetitions R] [--forecasts N] [--only NAME]``

The job: drain a backlog of forecasts and as many outcomes from 4 partitions, join them by event id through durable
state, update a calibrator, and write one JSON record a forecast. Each contender is a process of its own on the same
Apache Kafka; they take turns, forwards and backwards; the table gives medians, the last line is one JSON object.

Events/s count from the moment a tenth of the answers is in the broker's log (by its clock) until all answers are
and all outcomes have been learnt; so no start-up and little of a JVM's warm-up is in them. *Whole* counts from the
start of the process. CPU is of the same span as events/s: user and system, of the contender and of the broker;
*elsewhere* says how many processors were busy with anything else, so that a disturbed run shows.
"""

import sys

import orjson

from tests.bench.backlog import Job, backlog
from tests.bench.contenders import CONTENDERS
from tests.bench.drain import compared, options_of, run
from tests.bench.figures import table

COLUMNS = {
    "events_per_s": "events/s",
    "whole_per_s": "whole/s",
    "cpu_us_per_event": "CPU µs/event",
    "broker_us_per_event": "broker µs/event",
    "rss_mb": "RSS MB",
    "first_answer_s": "first answer s",
    "elsewhere": "CPUs elsewhere",
}


def shown(name: str, value: float) -> str:
    """Return a figure of `COLUMNS` as the table has it."""
    return f"{value:,.0f}" if name.endswith("_per_s") or name == "rss_mb" else f"{value:,.1f}"


def main() -> None:
    """Measure, print the table and the JSON line."""
    options = options_of(__doc__).parse_args()
    wanted = {one.name: one for one in CONTENDERS if any(part in one.name for part in options.only or [""])}
    job = Job(forecasts=options.forecasts)
    made = backlog(job)
    result, failed = compared(wanted, options.repetitions, lambda name, broker: run(wanted[name], broker, job, made))
    print(f"\n{job.events:,} events, {job.partitions} partitions, medians of {options.repetitions} runs")
    rows = [[name, *(shown(key, one[key]) for key in COLUMNS)] for name, one in result.items()]
    print(table(["", *COLUMNS.values()], rows), "\n")
    for name in result:
        print(f"{name}: {wanted[name].guarantees}")
    print()
    for loop in (name for name in result if name.startswith("plain loop")):
        for name in (name for name in result if name.startswith("trueup")):
            ratio = result[name]["events_per_s"] / result[loop]["events_per_s"]
            print(f"{name} reaches {ratio:.2f} of {loop}")
    keys = ("events_per_s", "cpu_us_per_event", "rss_mb")
    print(orjson.dumps({name: {key: round(one[key], 1) for key in keys} for name, one in result.items()}).decode())
    sys.exit(failed)


if __name__ == "__main__":
    main()
