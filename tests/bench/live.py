"""Workers that stay up while one backlog after another is put before them."""

import asyncio
import os
import signal
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError, NotCoordinatorForGroupError

from lab.broker import Broker
from tests.bench import backlog
from tests.bench.backlog import Job, Record
from tests.bench.contenders import LABELS, Contender
from tests.bench.drain import WARM_UP, WrongError, started
from tests.bench.watch import Watch

#: Longest wait for anything to move, s.
STALLED = 60.0


class Workers:
    """Running trueup workers of one group.

    They are stopped (SIGSTOP) while a backlog is produced, so that the producer's work is not in their figures.
    """

    def __init__(self, broker: Broker, prefix: str, partitions: int, pids: Mapping[str, int]) -> None:
        self._broker = broker
        self._prefix = prefix
        self._partitions = partitions
        self._pids = pids

    async def drained(self, made: dict[str, list[Record]]) -> dict[str, float]:
        """Put a backlog before the workers, wait until all of it has its effects, and return the figures.

        Raises WrongError if a worker ended or nothing moved for `STALLED` seconds.
        """
        outputs = {"calibrated": len(made["forecasts"]), "resolved": len(made["outcomes"])}
        before = {label: await self._ends(label) for label in outputs}
        with self._stopped():
            await backlog.produce(self._broker.bootstrap, self._prefix, {k: v for k, v in made.items() if v})
        with Watch({**self._pids, "broker": self._broker.pid}) as watch:
            await self._wait({label: sum(before[label].values()) + count for label, count in outputs.items()})
        appended = {label: await self._appended(before[label]) for label in outputs}
        answers = appended["calibrated"]
        start, end = answers[int(WARM_UP * len(answers))], max([answers[-1], *appended["resolved"][-1:]])
        share = sum(at > start for at in answers) / len(answers)
        events = (len(made["forecasts"]) + len(made["outcomes"])) * share
        return {
            "events_per_s": events / max(end - start, 1e-3),
            "cpu_us_per_event": sum(watch.cpu(name, start, end) for name in self._pids) / events * 1e6,
            "broker_us_per_event": watch.cpu("broker", start, end) / events * 1e6,
            "rss_mb": sum(watch.rss(name) for name in self._pids) / 1e6,
            "elsewhere": watch.elsewhere(start, end),
        }

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        for pid in self._pids.values():
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in self._pids.values():
                os.kill(pid, signal.SIGCONT)

    def _tps(self, label: str) -> list[TopicPartition]:
        return [TopicPartition(f"{self._prefix}-{label}", n) for n in range(self._partitions)]

    async def _ends(self, label: str) -> dict[TopicPartition, int]:
        async with AIOKafkaConsumer(bootstrap_servers=self._broker.bootstrap) as consumer:
            return dict(await consumer.end_offsets(self._tps(label)))

    async def _wait(self, wanted: dict[str, int]) -> None:
        async with AIOKafkaConsumer(bootstrap_servers=self._broker.bootstrap) as consumer:
            moved, seen = time.monotonic(), -1
            while True:
                ends = {label: sum((await consumer.end_offsets(self._tps(label))).values()) for label in wanted}
                if all(ends[label] >= wanted[label] for label in wanted):
                    return
                if sum(ends.values()) != seen:
                    moved, seen = time.monotonic(), sum(ends.values())
                if time.monotonic() - moved > STALLED:
                    raise WrongError(f"nothing moves: {ends} of {wanted}")
                await asyncio.sleep(0.05)

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
    contender: Contender, broker: Broker, job: Job, count: int = 1, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Workers]:
    """Start trueup workers on topics of their own, share out the partitions, and let them do a little work."""
    prefix = f"g{uuid.uuid4().hex[:8]}"
    changelog = f"{prefix}-state-changelog"
    names = [f"{prefix}-{label}" for label in LABELS]
    await backlog.create(broker.bootstrap, [*names, changelog], job.partitions, [changelog])
    async with AsyncExitStack() as stack:
        pids = {}
        for n in range(count):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trueup-bench-")))
            process, _ = await stack.enter_async_context(
                started(contender, broker.bootstrap, prefix, str(directory), environment)
            )
            pids[f"worker {n}"] = process.pid
        await _shared_out(broker.bootstrap, prefix, count)
        up = Workers(broker, prefix, job.partitions, pids)
        # What is first seen now, streams and code alike, is not first seen while the clock runs.
        await up.drained(
            backlog.backlog(
                Job(
                    4000,
                    job.partitions,
                    job.streams,
                    job.features,
                )
            )
        )
        yield up


async def _shared_out(brokers: str, group: str, members: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await admin.start()
    try:
        async with asyncio.timeout(STALLED):
            while True:
                with suppress(GroupCoordinatorNotAvailableError, NotCoordinatorForGroupError):  # the first group's
                    (response,) = await admin.describe_consumer_groups([group])
                    _error, _group, state, _type, _protocol, found, *_ = response.groups[0]
                    if state == "Stable" and len(found) == members:
                        return
                await asyncio.sleep(0.1)
    finally:
        await admin.close()
