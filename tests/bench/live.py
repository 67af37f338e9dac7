"""Workers that stay up while one backlog after another is put before them."""

import signal
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError, NotCoordinatorForGroupError

from lab.broker import Broker
from tests.bench import backlog
from tests.bench.backlog import Job, Record
from tests.bench.contenders import LABELS, Contender
from tests.bench.drain import WARM_UP, Looks, Processes, Together, started_all


class Workers:
    """Running trueup workers of one group.

    They are stopped (SIGSTOP) while a backlog is produced, so that the producer's work is not in their figures.
    """

    def __init__(self, broker: Broker, prefix: str, partitions: int, processes: Processes) -> None:
        self._broker = broker
        #: What the names of its topics begin with.
        self.prefix = prefix
        self._partitions = partitions
        self._processes = processes

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [process.pid for process in self._processes.each.values()]

    async def drained(self, made: dict[str, list[Record]]) -> dict[str, float]:
        """Put a backlog before the workers, wait until all of it has its effects, and return the figures.

        Raises WrongError as `tests.bench.drain.Looks`.
        """
        outputs = {"calibrated": len(made["forecasts"]), "resolved": len(made["outcomes"])}
        before = {label: await self._ends(label) for label in outputs}
        with self._stopped():
            await backlog.produce(self._broker.bootstrap, self.prefix, {k: v for k, v in made.items() if v})
        with Together(self._processes, self._broker.pid) as watch:
            await self._wait({label: sum(before[label].values()) + count for label, count in outputs.items()})
        appended = {label: await self._appended(before[label]) for label in outputs}
        answers = appended["calibrated"]
        start, end = answers[int(WARM_UP * len(answers))], max([answers[-1], *appended["resolved"][-1:]])
        share = sum(at > start for at in answers) / len(answers)
        # None at all if one turn has answered them.
        events = max((len(made["forecasts"]) + len(made["outcomes"])) * share, 1.0)
        return {
            "events_per_s": events / max(end - start, 1e-3),
            "cpu_us_per_event": watch.cpu("contender", start, end) / events * 1e6,
            "broker_us_per_event": watch.cpu("broker", start, end) / events * 1e6,
            "rss_mb": watch.rss("contender") / 1e6,
            "elsewhere": watch.elsewhere(start, end),
        }

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        for process in self._processes.each.values():
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in self._processes.each.values():
                process.send_signal(signal.SIGCONT)

    def _tps(self, label: str) -> list[TopicPartition]:
        return [TopicPartition(f"{self.prefix}-{label}", n) for n in range(self._partitions)]

    async def _ends(self, label: str) -> dict[TopicPartition, int]:
        async with AIOKafkaConsumer(bootstrap_servers=self._broker.bootstrap) as consumer:
            return dict(await consumer.end_offsets(self._tps(label)))

    async def _wait(self, wanted: dict[str, int]) -> None:
        async with AIOKafkaConsumer(bootstrap_servers=self._broker.bootstrap) as consumer:
            looks = Looks("trueup", self._processes)
            while True:
                ends = {label: sum((await consumer.end_offsets(self._tps(label))).values()) for label in wanted}
                if all(ends[label] >= wanted[label] for label in wanted):
                    return
                await looks.look(f"{ends} of {wanted}")

    async def _appended(self, before: dict[TopicPartition, int]) -> list[float]:
        """Return when the records behind some offsets were appended, s since 1970, ascending."""
        found = []
        async with AIOKafkaConsumer(bootstrap_servers=self._broker.bootstrap) as consumer:
            consumer.assign(list(before))
            ends = await consumer.end_offsets(list(before))
            for tp, offset in before.items():
                consumer.seek(tp, offset)
            left = {tp for tp, end in ends.items() if end > before[tp]}
            while left:
                for tp, records in (await consumer.getmany(timeout_ms=1000)).items():
                    found += [record.timestamp / 1000 for record in records]
                    if records[-1].offset + 1 >= ends[tp]:
                        left.discard(tp)
        return sorted(found)


@asynccontextmanager
async def workers(
    contender: Contender,
    broker: Broker,
    job: Job,
    count: int = 1,
    environment: Mapping[str, str] | None = None,
    inside: Sequence[tuple[str, ...]] = (),
) -> AsyncIterator[Workers]:
    """Start trueup workers on topics of their own, share out the partitions, and let them do a little work.

    ``inside``: what the command of each begins with.
    """
    prefix = f"g{uuid.uuid4().hex[:8]}"
    changelog = f"{prefix}-state-changelog"
    names = [f"{prefix}-{label}" for label in LABELS]
    await backlog.create(broker.bootstrap, [*names, changelog], job.partitions, [changelog])
    before = inside or [()] * count
    each = {f"worker {n}": replace(contender, command=(*before[n], *contender.command)) for n in range(count)}
    with tempfile.TemporaryDirectory(prefix="trueup-bench-") as directory:
        async with started_all(each, broker.bootstrap, prefix, directory, environment) as processes:
            await shared_out(broker.bootstrap, prefix, processes)
            up = Workers(broker, prefix, job.partitions, processes)
            # What is first seen now, streams and code alike, is not first seen while the clock runs.
            await up.drained(backlog.backlog(Job(4000, job.partitions, job.streams, job.features)))
            yield up


async def shared_out(brokers: str, group: str, processes: Processes) -> None:
    """Return when all processes are members of a group that is stable; raises WrongError as `Looks`."""
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await admin.start()
    looks = Looks("trueup", processes)
    try:
        while True:
            said = "no coordinator"
            with suppress(GroupCoordinatorNotAvailableError, NotCoordinatorForGroupError):  # the first group's
                (response,) = await admin.describe_consumer_groups([group])
                _error, _group, said, _type, _protocol, found, *_ = response.groups[0]
                if said == "Stable" and len(found) == len(processes.each):
                    return
            await looks.look(f"its group {said}")
    finally:
        await admin.close()
