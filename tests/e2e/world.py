"""A small world for end-to-end tests: topics of their own on the real broker, workers as processes, an oracle."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.error import HTTPError
from urllib.request import urlopen

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.protocol.group import LeaveGroupRequest

import cli.main
from replay.audit import auditor
from state import journal, kinds, rescale
from state.engine import Partition
from state.fence import FATES, Fence
from state.fold import Fold
from state.journal import Entry
from state.kind import Get
from streams.config import in_force
from streams.config.settings import Settings
from streams.faust import offsets, unpacking
from streams.kafka import topics
from streams.records import skips
from streams.records.decoding import Decoder
from streams.records.encoding import encoded
from streams.records.output_json import event_name
from streams.records.refused import named
from tests.events import Sent
from tests.forks import Forked, ended

ROOT = Path(__file__).resolve().parents[2]
DOOMED = ROOT / "tests/e2e/doomed.py"
#: Longest wait for anything, s: a bound against hanging, never a measure.
PATIENCE = 180.0

T = TypeVar("T")
State = dict[int, dict[bytes, bytes]]
INPUTS: Final = ("forecasts", "outcomes")
#: How the keys of rows begin that are no state of the engine's: people and workers write them.
BESIDE = (
    kinds.CLAIM.key(),
    kinds.INPUTS.key(),
    kinds.WIDTHS.key(),
    rescale.MOVED.letter,
    kinds.JOURNAL.letter,
    skips.SKIP.letter,
)


class Read(NamedTuple):
    """A record as it stands in a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[Any, ...] = ()


def wait_for(what: str, condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Return when the condition holds; fail, saying what was waited for, when it does not in time."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {patience:g} s for {what}")
        time.sleep(0.05)


class Worker:
    """A worker process.

    ``environment``: its settings.
    ``log``: file for what it prints.
    ``accident``: arguments of the program: what happens to it.
    ``program``: what runs it.
    """

    def __init__(
        self, environment: dict[str, str], log: Path, accident: Sequence[str] = (), program: Path = DOOMED
    ) -> None:
        self._log = log
        log.touch()
        whole = {**os.environ, **environment, "PYTHONPATH": str(ROOT)}
        self.process = Forked(program, accident, whole, log)

    @property
    def printed(self) -> str:
        """What it has printed."""
        return self._log.read_text(errors="replace")

    def port(self) -> int | None:
        """Return the port of its metrics, once it has said so."""
        for line in reversed(self.printed.splitlines()):
            if "metrics on http" in line:
                return int(orjson.loads(line)["message"].split(":")[-1].removesuffix("/metrics"))
        return None

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of a page, whatever the status; status 0 while nothing listens."""
        port = self.port()
        if port is None:
            return 0, ""
        try:
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
                return response.status, response.read().decode()
        except HTTPError as exc:
            return exc.code, exc.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples with these labels."""
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith((f"trueup_{name} ", f"trueup_{name}{{")) and all(
                f'{label}="{value}"' in line for label, value in labels.items()
            ):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def ready(self) -> bool:
        """Whether it serves; fails at once if the process has ended."""
        assert self.process.poll() is None, f"the worker ended with {self.process.returncode}:\n{self.printed[-4000:]}"
        return self.get("/readyz")[0] == 200

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to stop and return its exit status. What it printed is shown where it fails, and so does the test."""
        self.process.send_signal(signal.SIGTERM)
        if status := self.process.wait(PATIENCE):
            sys.stderr.write(self.printed[-4000:])
        return status


class World:
    """Topics, workers and what they left."""

    def __init__(
        self, bootstrap: str, directory: Path, partitions: int = 2, *, replication: int = 1, **settings: str
    ) -> None:
        self.bootstrap = bootstrap
        self.name = f"w{uuid.uuid4().hex[:8]}"
        self.directory = directory
        self.partitions = partitions
        self.environment = {
            "TRUEUP_BROKERS": bootstrap,
            "TRUEUP_APP_ID": self.name,
            "TRUEUP_METRICS_PORT": "0",
            "TRUEUP_SESSION_SECONDS": "6",
            "TRUEUP_REQUEST_SECONDS": "6",
            "TRUEUP_COMMIT_SECONDS": "0.2",
            "TRUEUP_CHECKPOINT_SECONDS": "0.2",
            "TRUEUP_DATA_DIR": str(directory / "data"),
            **{
                f"TRUEUP_{topic.upper().replace('-', '_')}": f"{self.name}-{topic}"
                for topic in ("forecasts", "outcomes", "calibrated", "resolved", "dead-letters")
            },
            **settings,
        }
        self.settings = Settings.from_env(self.environment)
        self._past = {self._config: self.settings}
        for stage in self.settings.stages:
            asyncio.run(topics.create(stage, partitions=partitions, replication=replication))
        self._workers: list[Worker] = []
        self._stages: dict[str, list[Worker]] = defaultdict(list)
        #: What an operator left out, by topic and offset.
        self.skips: dict[str, dict[int, str]] = {}
        #: The rows that it began with.
        self.begun: State = {}
        #: Input records that were sent by `send`.
        self.sent = 0

    def topic(self, label: str) -> str:
        """Return a topic's name by its label."""
        name: str = getattr(self.settings, label.replace("-", "_"))
        return name

    def topics(self) -> list[str]:
        """Return the names of all topics, the changelog's too."""
        return [topic.name for topic in topics.wanted(self.settings)]

    def administer(self, ask: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
        """Ask the brokers for something."""

        async def run() -> T:
            async with topics.admin_client(self.settings) as admin:
                return await ask(admin)

        return asyncio.run(run())

    def make(self, widths: Mapping[str, int]) -> None:
        """Make topics that are nobody's, of so many partitions."""
        asyncio.run(new_topics(self.bootstrap, widths))

    def configure(self, label: str, **configs: str) -> None:
        """Give a topic a configuration of its own, dots written as underscores; what it had before is taken back."""
        own = {name.replace("_", "."): value for name, value in configs.items()}
        resource = ConfigResource(ConfigResourceType.TOPIC, self.topic(label), own)
        self.administer(lambda admin: admin.alter_configs([resource]))

    def delete_records(self, label: str, *until: int) -> None:
        """Delete the first records of a topic, as retention does: of each partition those before an offset."""
        places = {TopicPartition(self.topic(label), n): RecordsToDelete(offset) for n, offset in enumerate(until)}
        self.administer(lambda admin: admin.delete_records(places))

    def command(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the command line as a user does, with the settings of this world."""
        return ended(cli.main.main, arguments, {**os.environ, **self.environment, **settings}, PATIENCE)

    def done(self, *arguments: str, **settings: str) -> str:
        """Run a command that must succeed, and return what it says."""
        said = self.command(*arguments, **settings)
        assert said.returncode == 0, said.stdout + said.stderr
        return said.stdout

    def audit(self, *options: str, **settings: str) -> tuple[int, dict[str, Any]]:
        """Audit, and return the exit status and the account."""
        said = self.command("audit", "--json", *options, **settings)
        assert said.stdout, said.stderr
        return said.returncode, orjson.loads(said.stdout.splitlines()[-1])

    def agree(self, *options: str, **settings: str) -> dict[str, Any]:
        """Assert that an audit derives all again, and return its account."""
        status, account = self.audit(*options, **settings)
        assert (status, account["differences"], account["unable"]) == (auditor.AGREE, [], [])
        return account

    @contextmanager
    def worker(self, *accident: str, **settings: str) -> Iterator[Worker]:
        """Run a worker, or another stage; it is killed on leaving if it still runs.

        It need not wait for the sessions of those before it, if all of them have ended.
        """
        stage = accident[1] if accident[:1] == ("--stage",) else "worker"
        environment = {**self.environment, **settings}
        earlier = self._stages[stage]
        ended = all(each.process.poll() is not None for each in earlier)
        if earlier and ended and "TRUEUP_INSTANCE_ID" not in environment:  # a named one takes its own place at once
            asyncio.run(buried(self.bootstrap, self.name if stage == "worker" else f"{self.name}-{stage}"))
        worker = Worker(environment, self.directory / f"{self.name}-{len(self._workers)}.log", accident)
        self._workers.append(worker)
        earlier.append(worker)
        try:
            yield worker
        finally:
            worker.kill()

    def send(self, records: Iterable[Sent], **options: Any) -> None:
        """Produce records in order, keyed to their partitions, and wait until all are acknowledged.

        ``options`` are those of aiokafka's producer.
        """
        records = list(records)
        named = [each._replace(topic=self.topic(each.topic)) for each in records]
        asyncio.run(produced(self.bootstrap, named, **options))
        self.sent += sum(each.topic in INPUTS for each in records)

    def serve(self, records: Iterable[Sent] = (), *accident: str, **settings: str) -> None:
        """Send records, and let a worker apply all that was sent, and stop."""
        self.send(records)
        with self.worker(*accident, **settings) as worker:
            self.wait_until_applied()
            assert worker.stop() == 0

    def killed(self, *accident: str, **settings: str) -> None:
        """Run a worker, or another stage, until its accident kills it."""
        with self.worker(*accident, **settings) as doomed:
            assert doomed.process.wait(PATIENCE) == -signal.SIGKILL, doomed.printed[-4000:]

    def refused(self, status: int, *said: str, **settings: str) -> None:
        """Run a worker that must end by itself, with a status, and say something."""
        with self.worker(**settings) as worker:
            assert worker.process.wait(PATIENCE) == status, worker.printed[-4000:]
            assert [each for each in said if each not in worker.printed] == []

    def read(self, label: str, partition: int | None = None) -> list[Read]:
        """Return everything a topic or one of its partitions holds, partition by partition."""
        found: list[Read] = []
        self.visit(label, found.append, partition)
        return sorted(found)

    def said(self, label: str, partition: int | None = None) -> list[dict[str, Any]]:
        """Return what the records of a topic say, partition by partition."""
        return [orjson.loads(record.value or b"") for record in self.read(label, partition)]

    def visit(self, label: str, visit: Callable[[Read], None], partition: int | None = None) -> None:
        """Show every record of a topic or of one of its partitions, each partition in order."""

        async def run() -> None:
            numbers = range(self.partitions) if partition is None else [partition]
            async for r in held(self.bootstrap, self.topic(label), numbers, self._bounded):
                visit(Read(r.partition, r.offset, r.key, r.value, r.timestamp, tuple(r.headers)))

        asyncio.run(run())

    def _bounded(self, consumer: AIOKafkaConsumer) -> None:
        unpacking.bound(consumer, self.settings.unpacks, lambda tp: self.skips.get(tp.topic, {}))

    def applied(self) -> dict[str, int]:
        """Return the fates in the newest fences of all partitions, added up."""
        newest = {
            record.partition: record.value for record in self.read("changelog") if record.key == kinds.FENCE.key()
        }
        fences = [Fence.decode(value) for value in newest.values() if value]
        return {fate: sum(fence.fates[i] for fence in fences) for i, fate in enumerate(FATES)}

    def wait_until_applied(self, records: int | None = None) -> None:
        """Return when as many input records have been applied, all offsets are committed, and all rows are written.

        None: all that were sent.
        """
        self.wait_until_committed(records)
        self._until_written()

    def wait_until_committed(self, records: int | None = None) -> None:
        """Return when offsets behind so many input records are committed; None: behind all that were sent."""
        topics = {self.topic(label): self.partitions for label in INPUTS}
        wanted = self.sent if records is None else records
        asyncio.run(until_committed(self.bootstrap, self.name, topics, wanted, self.require_running))

    def _written(self) -> bool:
        """Whether the rows are those after the last entries of the journal."""
        return is_written(self.read("changelog"))

    def _until_written(self) -> None:
        """Return when the rows of all that is in the journal are written, if any worker is there to write them."""

        def written() -> bool:
            self.require_running()
            return self._written()

        if any(worker.process.poll() is None for worker in self._workers):
            wait_for("a checkpoint", written)

    def require_running(self) -> None:
        """Fail, and say what the last worker printed, if all have ended: nothing comes of waiting then."""
        running = [worker.process.poll() is None for worker in self._workers]
        assert any(running) or not running, f"the workers have ended:\n{self._workers[-1].printed[-4000:]}"

    def state(self, partition: int | None = None) -> State:
        """Return the state as the changelog holds it, without claims and skips, which people and workers write."""
        state: State = defaultdict(dict)
        for record in self.read("changelog", partition):
            assert record.key is not None
            if record.key[:1] in BESIDE:
                continue
            if record.value is None:
                state[record.partition].pop(record.key, None)
            else:
                state[record.partition][record.key] = record.value
        return dict(state)

    def reconfigure(self) -> None:
        """Take up the settings anew, while no worker runs; what was applied so far is judged under those of before."""
        self.settings = Settings.from_env(self.environment)
        self._past[self._config] = self.settings

    @property
    def _config(self) -> bytes:
        """The hash by which the journal names the settings of now."""
        return bytes.fromhex(in_force.digest(in_force.described(self.settings)))

    def oracle(self, partition: int | None = None) -> tuple[State, dict[str, dict[str, bytes]]]:
        """Fold the inputs of all partitions, or of one, with the pure engine, in the order of the journal.

        Returns rows by partition, and outputs by topic label and event id; dead letters by topic and offset.
        """
        inputs = [defaultdict(list), defaultdict(list)]  # type: ignore[var-annotated]
        for topic, label in enumerate(INPUTS):
            for record in self.read(label, partition):
                inputs[topic][record.partition].append(record)
        state: State = {n: dict(rows) for n, rows in self.begun.items() if partition in (None, n)}
        outputs: dict[str, dict[str, bytes]] = defaultdict(dict)
        for n, entries in journaled(self.read("changelog", partition)).items():
            rows = state[n] = dict(self.begun.get(n, {}))
            opened = worker_of((inputs[0][n], inputs[1][n]))
            for settings, made in along_the_journal(self._past.__getitem__, entries, opened, rows):
                for label, records in encoded(made, settings, n).items():
                    outputs[label] |= {identity(label, value): value for _, value, *_ in records}
        return state, dict(outputs)

    def judge(self, partition: int | None = None) -> None:
        """Assert that state and outputs are the oracle's: nothing lost, nothing doubled, every answer the same.

        ``partition`` is the one to judge; None: all of them.
        """
        self._until_written()
        state, outputs = self.oracle(partition)
        found_state = self.state(partition)
        rows = {
            (n, key): (wanted.get(key), found.get(key))
            for n in state.keys() | found_state.keys()
            for wanted, found in [(state.get(n, {}), found_state.get(n, {}))]
            for key in wanted.keys() | found.keys()
        }
        differ = {where: each for where, each in rows.items() if each[0] != each[1]}
        assert not differ, f"{len(differ)} rows differ: {sorted(differ.items())[:5]}"
        inputs = self.settings.forecasts, self.settings.outcomes
        for label in ("calibrated", "resolved", "dead-letters"):
            found: dict[str, set[bytes]] = defaultdict(set)
            for record in self.read(label, partition):
                assert record.value is not None
                if label != "dead-letters" or orjson.loads(record.value)["topic"] in inputs:
                    found[identity(label, record.value)].add(record.value)
            wanted = {name: {value} for name, value in outputs.get(label, {}).items()}
            wrong = {name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)}
            assert not wrong, [(label, name, wanted.get(name), found.get(name)) for name in sorted(wrong)[:3]]


def journaled(changelog: Iterable[Read]) -> dict[int, list[Entry]]:
    """Return the journal entries that a changelog holds, in order, by partition."""
    found: dict[int, list[Entry]] = defaultdict(list)
    for record in changelog:
        if (
            record.value
            and record.key
            and record.key[:1] == kinds.JOURNAL.letter
            and record.key != kinds.JOURNAL.letter
        ):
            found[record.partition].append(Entry.decode(record.value))
    return found


def is_written(changelog: Iterable[Read]) -> bool:
    """Return whether a changelog's rows are those after the last entries of its journal."""
    rows: dict[int, dict[bytes | None, bytes | None]] = defaultdict(dict)
    for record in changelog:
        rows[record.partition][record.key] = record.value
    return not any(journal.read(of.get).entries for of in rows.values())


#: An engine, and what decodes the records of an entry for it.
Opened = tuple[Fold, Callable[[Entry], list[Any]]]


def along(entry: Entry, inputs: Sequence[Sequence[Any]]) -> Iterator[tuple[int, Any]]:
    """Yield the records of a journal entry in its order, from the partitions of both topics."""
    at = [bisect_left(each, begin, key=lambda r: r.offset) for each, begin in zip(inputs, entry.begins, strict=True)]
    for topic in entry.topics:
        yield topic, inputs[topic][at[topic]]
        at[topic] += 1


def worker_of(inputs: Sequence[Sequence[Any]]) -> Callable[[Settings, Get], Opened]:
    """Return what opens the engine of a worker, to fold records of a partition of both topics."""

    def opened(settings: Settings, get: Get) -> Opened:
        decoder = Decoder(settings.policies, settings.limits, settings.direct, settings.carry_headers)
        return Partition(settings.policies, get), lambda entry: list(named(decoder.events(along(entry, inputs))))

    return opened


async def held(
    bootstrap: str,
    topic: str,
    partitions: Iterable[int],
    prepared: Callable[[AIOKafkaConsumer], None] = lambda _: None,
) -> AsyncIterator[Any]:
    """Yield every record that some partitions of a topic hold, each partition in order, as aiokafka reads them."""
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        prepared(consumer)
        places = [TopicPartition(topic, n) for n in partitions]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(place) < ends[place] for place in places]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    yield record


async def new_topics(bootstrap: str, widths: Mapping[str, int]) -> None:
    """Make topics of so many partitions, and return when each partition has a leader."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, width, 1) for name, width in widths.items()])
        async with asyncio.timeout(PATIENCE):
            leaders = list[int]()
            while len(leaders) < sum(widths.values()) or min(leaders) < 0:
                found = await admin.describe_topics(list(widths))
                leaders = [each["leader"] for topic in found for each in topic["partitions"]]
    finally:
        await admin.close()


async def until_committed(
    bootstrap: str, group: str, widths: Mapping[str, int], records: int | None, require: Callable[[], None]
) -> None:
    """Return when a group has committed so many records of some topics, by their partitions; None: all they hold.

    ``require`` fails where nothing comes of waiting.
    """
    places = [TopicPartition(name, n) for name, width in widths.items() for n in range(width)]
    end = time.monotonic() + PATIENCE
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False) as consumer:
        while True:
            found = (await offsets.reached(consumer, group, places)).values()
            there = sum((await consumer.end_offsets(places)).values()) if records is None else records
            if sum(found) >= there:
                return
            require()
            assert time.monotonic() < end, f"waited {PATIENCE:g} s: {group} has done {sum(found)} of {there} records"
            await asyncio.sleep(0.05)


async def produced(bootstrap: str, records: Iterable[Sent], **options: Any) -> None:
    """Produce records in order, once each, and wait until all are acknowledged."""
    options = {"linger_ms": 5, "enable_idempotence": True, **options}
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **options) as producer:
        sent = [
            await producer.send(each.topic, each.value, key=each.key, timestamp_ms=each.ts, headers=list(each.headers))
            for each in records
        ]
        await asyncio.gather(*sent)


async def buried(bootstrap: str, group: str) -> None:
    """Take all members out of a group: those that were killed, as the end of their sessions would."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        (found,) = await admin.describe_consumer_groups([group])
        coordinator = await admin.find_coordinator(group)
        for member, *_ in found.groups[0][5]:
            await admin._send_request(LeaveGroupRequest(group, member), coordinator)
    finally:
        await admin.close()


def along_the_journal(
    in_force: Callable[[bytes], Settings],
    entries: Sequence[Entry],
    opened: Callable[[Settings, Get], Opened],
    rows: dict[bytes, bytes],
) -> Iterator[tuple[Settings, list[Any]]]:
    """Fold entry after entry with the pure engine into ``rows``; yield the settings and the outputs of each."""
    engine: Fold | None = None
    settings: Settings | None = None
    for entry in entries:
        now = in_force(entry.config)
        if engine is None or now is not settings:
            engine, events = opened(now, rows.get)
        settings = now
        assert list(entry.begins) == engine.fence.next, f"entry {entry.number} goes on elsewhere: a second writer"
        found = events(entry)
        engine.begin()
        made = engine.tick(entry.tick) if entry.tick else engine.apply(found)
        engine.end()
        for key, value in engine.checkpoint().rows.items():
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        yield now, made


def identity(label: str, value: bytes) -> str:
    """Return what names a record's event, with the revision of a resolved one, or a dead letter's place."""
    record: dict[str, Any] = orjson.loads(value)
    if label == "dead-letters":
        return f"{record['topic']}/{record['partition']}/{record['offset']}"
    return f"{event_name(record)} {record['revision']}" if label == "resolved" else str(event_name(record))


#: What the fixture `world` is: takes what `World` takes behind the directory.
MakeWorld = Callable[..., World]
