"""One run: a contender drains a backlog as a process of its own, and what it wrote is checked before it counts."""

import argparse
import asyncio
import logging
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from lab.broker import Broker
from tests.bench import backlog
from tests.bench.backlog import Job, Record
from tests.bench.contenders import LABELS, ROOT, Contender
from tests.bench.figures import medians
from tests.bench.watch import Watch

#: Time between two looks at the broker, s, and looks in a row without progress after which a run is given up: a minute
#: of an idle machine. They are counted, as a busy machine takes longer for each.
LOOK, LOOKS = 0.05, 1200
#: The share of answers that must be out before the clock starts: imports, assignment and JIT are behind, for everyone.
WARM_UP = 0.1


Figures = dict[str, float]
#: Measures who has a name once, on a broker.
Measure = Callable[[str, Broker], Coroutine[Any, Any, Figures]]


class WrongError(Exception):
    """A contender did not do the job; its figures mean nothing."""


def compared(wanted: Mapping[str, Contender], repetitions: int, measure: Measure) -> tuple[dict[str, Figures], bool]:
    """Measure contenders in turn, forwards and backwards, by a name for each.

    Returns the medians of those that did the job, and whether any did not.
    """
    logging.getLogger("aiokafka").setLevel(logging.ERROR)  # retries on topics made a moment ago are no news
    runs: dict[str, list[Figures]] = {}
    failed = False
    for name, contender in wanted.items():
        if contender.missing:
            print(f"skipped {name}: {contender.missing}")
        else:
            runs[name] = []
    with Broker() as broker:
        for i in range(repetitions):
            for name in list(runs)[:: -1 if i % 2 else 1]:
                try:
                    found = asyncio.run(measure(name, broker))
                except WrongError as exc:
                    failed = True
                    print(f"no figure: {exc}", flush=True)
                    continue
                runs[name].append(found)
                print(f"run {i + 1}: {name}: {found['events_per_s']:,.0f} events/s", flush=True)
    return {name: medians(several) for name, several in runs.items() if several}, failed


def options_of(doc: str | None) -> argparse.ArgumentParser:
    """Return the parser of what a comparison may be asked."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forecasts", type=int, default=100_000, help="each has an outcome, so events are twice that")
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each contender")
    parser.add_argument("--only", action="append", metavar="NAME", help="a part of a contender's name; may be repeated")
    return parser


class Process(Protocol):
    """What does the job."""

    def poll(self) -> int | None:
        """Return its exit status once it has ended."""


class Processes:
    """Several processes as one: ended when any has."""

    def __init__(self, each: Mapping[str, "subprocess.Popen[bytes]"], logs: Sequence[Path]) -> None:
        self.each, self._logs = each, logs

    def poll(self) -> int | None:
        """Return the exit status of one that has ended."""
        return next((status for process in self.each.values() if (status := process.poll()) is not None), None)

    def tail(self) -> str:
        """Return the ends of what they have printed."""
        return "\n".join(log.read_text(errors="replace")[-1500:] for log in self._logs if log.exists())


class Together(Watch):
    """Watches the broker, and several processes as one contender."""

    def __init__(self, processes: Processes, broker: int) -> None:
        super().__init__({**{name: process.pid for name, process in processes.each.items()}, "broker": broker})
        self.names = list(processes.each)

    def cpu(self, name: str, start: float, end: float) -> float:
        """Return the CPU seconds; of the contender those of all its processes."""
        return sum(super(Together, self).cpu(each, start, end) for each in self._of(name))

    def rss(self, name: str) -> int:
        """Return the most resident memory; of the contender the sum of what each had."""
        return sum(super(Together, self).rss(each) for each in self._of(name))

    def _of(self, name: str) -> list[str]:
        return self.names if name == "contender" else [name]


class Looks:
    """Looks at a run until it is done, as long as it goes on.

    ``who``: in messages.
    ``process``: what does the job.
    """

    def __init__(self, who: str, process: Process) -> None:
        self._who, self._process = who, process
        self._seen, self._left = "", LOOKS

    async def look(self, state: str) -> None:
        """Wait until the next look; raises WrongError if the process has ended, or the state is what it long was."""
        if (status := self._process.poll()) is not None:
            raise WrongError(f"{self._who} ended with {status}: {state}")
        self._seen, self._left = state, self._left - 1 if state == self._seen else LOOKS
        if not self._left:
            raise WrongError(f"{self._who} cannot go on: {LOOKS} looks in a row saw {state}")
        await asyncio.sleep(LOOK)


@dataclass
class Answers:
    """What stands in the topic of answers."""

    #: When the broker appended each answer to a backlog's forecast, s since 1970, unordered; copies included.
    appended: list[float] = field(default_factory=list)
    #: The events answered.
    ids: set[str] = field(default_factory=set)
    #: By calibrator, the most outcomes an answer to a probe said it had learnt, and when the first one did. A probe's
    #: id says which partition it was written to: rivals choose by key where its answer goes.
    learnt: dict[tuple[int, str], tuple[int, float]] = field(default_factory=dict)

    def add(self, value: bytes, timestamp_ms: int, *, per_partition: bool) -> None:
        """Take up a record of a contender whose calibrators are one a partition and stream, or one a stream."""
        answer = orjson.loads(value)
        at = timestamp_ms / 1000
        event_id = answer["event_id"]
        if not event_id.startswith("probe"):
            self.appended.append(at)
            self.ids.add(event_id)
            return
        calibrator = int(event_id.split("-")[2]) if per_partition else 0, answer["stream"]
        learnt = answer["learnt"]
        best = self.learnt.get(calibrator)
        if best is None or learnt > best[0] or (learnt == best[0] and at < best[1]):
            self.learnt[calibrator] = learnt, at

    @property
    def total(self) -> int:
        """Outcomes learnt, all calibrators together."""
        return sum(learnt for learnt, _ in self.learnt.values())


def figures(job: Job, appended: list[float], end: float, started: float, watch: Watch) -> dict[str, float]:
    """Return a run's figures; ``end`` and ``started`` in s since 1970."""
    ordered = sorted(appended)
    start = ordered[int(WARM_UP * len(ordered))]
    # Answers of one batch carry one time: those of the batch at the start count as done before it.
    done = sum(at <= start for at in ordered) / len(ordered)
    events = job.events * (1 - done)
    return {
        "events_per_s": events / max(end - start, 1e-3),
        "whole_per_s": job.events / (end - started),
        "cpu_us_per_event": watch.cpu("contender", start, end) / events * 1e6,
        "broker_us_per_event": watch.cpu("broker", start, end) / events * 1e6,
        "rss_mb": watch.rss("contender") / 1e6,
        "first_answer_s": ordered[0] - started,
        "elsewhere": watch.elsewhere(start, end),
    }


async def run(
    contender: Contender,
    broker: Broker,
    job: Job,
    made: dict[str, list[Record]],
    environment: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Measure a contender once, on topics of its own.

    Raises WrongError if it ended, stalled, left a forecast unanswered, or lost an outcome.
    """
    prefix = f"b{uuid.uuid4().hex[:8]}"
    changelog = f"{prefix}-state-changelog" if contender.calibrator else f"{prefix}-changelog"
    names = [f"{prefix}-{label}" for label in LABELS] + [changelog]
    await backlog.create(broker.bootstrap, names, job.partitions, [changelog])
    await backlog.produce(broker.bootstrap, prefix, made)
    with tempfile.TemporaryDirectory(prefix="trueup-bench-") as directory:
        stages = {"worker": contender}
        async with started_all(stages, broker.bootstrap, prefix, directory, environment) as processes:
            begun = time.time()
            with Together(processes, broker.pid) as watch:
                follower = Follower(contender, broker.bootstrap, prefix, job)
                await follower.follow(processes)
        answers, end = await follower.verified()
        return figures(job, answers.appended, end, begun, watch)


@asynccontextmanager
async def started(
    contender: Contender, brokers: str, prefix: str, directory: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a contender's process, with the file of what it prints; it is killed on leaving."""
    log = Path(directory) / "log"
    state = Path(directory) / "state"
    state.mkdir(exist_ok=True)
    with log.open("ab") as printed:
        process = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs on this loop yet
            contender.started_by(brokers, prefix, str(state)),
            env={**os.environ, **contender.environment(brokers, prefix, str(state)), **(environment or {})},
            cwd=ROOT,
            stdout=printed,
            stderr=printed,
        )
    try:
        yield process, log
    finally:
        # What it would do at its end is not measured, and a run leaves nothing that is used again.
        process.kill()
        process.wait()


@asynccontextmanager
async def started_all(
    stages: Mapping[str, Contender],
    brokers: str,
    prefix: str,
    directory: str,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Processes]:
    """Run the processes of a contender, by their names, as `started`; what they printed is added to a `WrongError`."""
    async with AsyncExitStack() as stack:
        each, logs = {}, []
        for name, one in stages.items():
            place = Path(directory) / name
            place.mkdir()
            each[name], log = await stack.enter_async_context(started(one, brokers, prefix, str(place), environment))
            logs.append(log)
        processes = Processes(each, logs)
        try:
            yield processes
        except WrongError as exc:
            raise WrongError(f"{exc}; {processes.tail()}") from None


class Follower:
    """Watches the topics of one run from outside, and says when the job is done.

    A trueup worker writes a record for every outcome that met its forecast. The others say in each answer how many
    outcomes its calibrator has learnt, so once the backlog is answered they are asked a few more forecasts, again and
    again, until the answers say that all outcomes have been learnt.
    """

    def __init__(self, contender: Contender, brokers: str, prefix: str, job: Job) -> None:
        self._contender = contender
        self._brokers = brokers
        self._prefix = prefix
        self._job = job
        self._answers = self._partitions("calibrated")
        self._resolved = self._partitions("resolved")

    def _partitions(self, label: str) -> list[TopicPartition]:
        return [TopicPartition(f"{self._prefix}-{label}", n) for n in range(self._job.partitions)]

    async def follow(self, process: Process) -> None:
        """Return when the job is done; raises WrongError as `Looks`."""
        looks = Looks(self._contender.name, process)
        async with AIOKafkaConsumer(bootstrap_servers=self._brokers, enable_auto_commit=False) as consumer:
            async for state in self._states(consumer):
                await looks.look(state)

    async def answered(self, process: Process, answers: int) -> None:
        """Return when there are as many answers; raises WrongError as `Looks`."""
        looks = Looks(self._contender.name, process)
        async with AIOKafkaConsumer(bootstrap_servers=self._brokers, enable_auto_commit=False) as consumer:
            while (out := sum((await consumer.end_offsets(self._answers)).values())) < answers:
                await looks.look(f"{out:,} of {answers:,} answers")

    async def _states(self, consumer: AIOKafkaConsumer) -> AsyncIterator[str]:
        while (out := sum((await consumer.end_offsets(self._answers)).values())) < self._job.forecasts:
            yield f"{out:,} answers"
        if self._contender.calibrator is not None:
            while (met := sum((await consumer.end_offsets(self._resolved)).values())) < self._job.forecasts:
                yield f"{met:,} outcomes met"
            return
        consumer.assign(self._answers)
        await consumer.seek_to_end(*self._answers)
        async with AIOKafkaProducer(bootstrap_servers=self._brokers) as producer:
            seen, asked = Answers(), time.monotonic()
            for turn in count():
                await self._ask(producer, turn)
                for records in (await consumer.getmany(timeout_ms=20)).values():
                    for record in records:
                        seen.add(record.value, record.timestamp, per_partition=self._contender.per_partition)
                if seen.total >= self._job.forecasts:
                    return
                yield f"{seen.total:,} outcomes learnt, {len(seen.learnt)} calibrators heard"
                # The slower it is, the less often it is asked: probes stay below a percent or so of its work.
                await asyncio.sleep(min((time.monotonic() - asked) / 20, 0.3))

    async def _ask(self, producer: AIOKafkaProducer, turn: int) -> None:
        ts = backlog.START_MS + self._job.forecasts * backlog.STEP_MS + 100 * backlog.DELAY_MS
        for n in range(self._job.partitions):
            for stream in range(self._job.streams):
                key = f"probe-{turn}-{n}-{stream}"
                value = {"event_id": key, "stream": f"s{stream}", "p": 0.5, "ts": ts}
                await producer.send(
                    f"{self._prefix}-forecasts", orjson.dumps(value), key.encode(), partition=n, timestamp_ms=ts
                )

    async def verified(self) -> tuple[Answers, float]:
        """Read everything that was written; return it, and when the last effect was appended, s since 1970.

        Raises WrongError if a forecast has no answer or an outcome was not learnt.
        """
        found = Answers()
        async for value, timestamp in read(self._brokers, self._answers):
            found.add(value, timestamp, per_partition=self._contender.per_partition)
        if len(found.ids) != self._job.forecasts:
            raise WrongError(f"{self._contender.name} answered {len(found.ids):,} of {self._job.forecasts:,} forecasts")
        if self._contender.calibrator is None:
            learnt, ends = found.total, [at for _, at in found.learnt.values()]
        else:
            met: set[str] = set()
            ends = []
            async for value, timestamp in read(self._brokers, self._resolved):
                met.add(orjson.loads(value)["event_id"])
                ends.append(timestamp / 1000)
            learnt = len(met)
        if learnt != self._job.forecasts:
            raise WrongError(f"{self._contender.name} learnt {learnt:,} of {self._job.forecasts:,} outcomes")
        return found, max(*ends, *found.appended)


async def read(brokers: str, partitions: Iterable[TopicPartition]) -> AsyncIterator[tuple[bytes, int]]:
    """Yield value and timestamp (ms) of everything in some partitions."""
    async with AIOKafkaConsumer(bootstrap_servers=brokers, enable_auto_commit=False) as consumer:
        consumer.assign(list(partitions))
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(list(partitions))
        left = {tp for tp, end in ends.items() if end}
        while left:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    yield record.value, record.timestamp
            # The last offset may be the mark of a transaction, which is no record.
            left = {tp for tp in left if await consumer.position(tp) < ends[tp]}
