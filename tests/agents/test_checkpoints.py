"""How checkpoints lie between batches. What crashes leave is simulated: see `tests/simulation`."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, cast

import pytest
from faust.types import TP

from agents.processor import BatchProcessor
from state import kinds
from state.events import Output
from state.fence import FORECASTS, OUTCOMES, Fence
from state.journal import Entry
from streams.config.settings import Settings
from streams.faust.outputs import Outputs
from streams.records.merge import Batch, Merged, PartitionBuffer
from tests.events import Sent, mixed
from tests.streams.fakes import Producer, record, wire

CHANGELOG = "trueup-state-changelog"
SOURCES = TP("forecasts", 0), TP("outcomes", 0)
#: Records of a batch.
LIMIT = 20


class Machine:
    """Brokers that outlive a worker."""

    def __init__(self) -> None:
        self.producer = Producer()
        self.answers: list[list[Output]] = []
        self.noted: list[Entry] = []


class Told:
    """Stands for `Outputs`, on a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def batch(self, *_: object) -> "Told.Batch":
        return Told.Batch()

    async def note(self, _: int, entry: bytes) -> None:
        await asyncio.sleep(0)
        self.machine.noted.append(Entry.decode(entry))

    async def send(self, batches: Sequence["Told.Batch"]) -> dict[int, dict[str, int]]:
        await asyncio.sleep(0)
        self.machine.answers += [batch.outputs for batch in batches]
        return {0: {"calibrated": len(flat(self.machine.answers))}}

    class Batch:
        """Outputs of a batch."""

        def __init__(self) -> None:
            self.outputs, self.partition = list[Output](), 0

        def add(self, outputs: Sequence[Output]) -> None:
            self.outputs += outputs


class Reading:
    def caught_up(self, _: TP) -> bool:
        return True


def merged(sent: Iterable[Sent]) -> list[Merged]:
    offsets, records = [0, 0], list[Merged]()
    for each in sent:
        topic = FORECASTS if each.topic == "forecasts" else OUTCOMES
        records.append((topic, record(each.topic, 0, offsets[topic], each.ts, each.key, each.value)))
        offsets[topic] += 1
    return records


#: How keys begin that are no part of the state.
OWN = kinds.JOURNAL.letter, kinds.CLAIM.key(), b"__trueup", b"__faust"


class Worker:
    """A worker on an empty disk."""

    def __init__(self, machine: Machine, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.topology = wire(Path(mkdtemp(dir=directory)), producer=machine.producer)
        self.processor = BatchProcessor(
            self.topology.settings, self.topology.table, cast("Outputs", Told(machine)), self.topology.gauges
        )

    async def run(self, records: Sequence[Merged], limit: int = LIMIT) -> None:
        """Take up the partition, fold what there is and answer it, a batch while the next is folded; stop."""
        fence, found = await self.processor.reopen(0)
        buffer = PartitionBuffer(0, SOURCES)
        buffer.begin(fence.next, found)
        for topic in (FORECASTS, OUTCOMES):
            buffer.add(topic, [each for of, each in records if of == topic])
        pending = deque[tuple[Batch, asyncio.Task[None]]]()
        while True:
            batch = buffer.take(limit, 1 << 20, Reading(), 0)
            if batch is not None:
                answering = asyncio.create_task(self.processor.answer(await self.processor.fold([batch])))
                buffer.busy = False
                pending.append((batch, answering))
            elif pending:
                batch, answering = pending.popleft()
                await answering
                buffer.acknowledged(batch)
            else:
                break
        await self.processor.checkpoint(due=False)

    def state(self) -> dict[bytes, bytes]:
        """Return the rows, but for the ring of the journal and the store's own: they are no part of the state."""
        table = self.topology.table
        rows = {key: row for n in range(256) for key, row in table.range(0, bytes([n]))}
        return {key: row for key, row in rows.items() if not key.startswith(OWN)}


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.served.CHECKPOINT_BATCHES", 3)
    monkeypatch.setattr("agents.served.CHECKPOINT_RECORDS", 50)  # amid a batch that is folded again in parts


RECORDS = merged(mixed(65).sent)


def flat(answers: Iterable[list[Output]]) -> list[Output]:
    return [output for batch in answers for output in batch]


def run(machine: Machine, directory: Path, **options: Any) -> Worker:
    worker = Worker(machine, directory)
    asyncio.run(worker.run(options.pop("records", RECORDS), **options))
    return worker


def test_a_checkpoint_waits_for_the_answers_of_its_batches_and_its_rows_are_read_meanwhile(tmp_path: Path) -> None:
    machine = Machine()
    worker = Worker(machine, tmp_path)

    async def scene() -> None:
        await worker.processor.reopen(0)
        parts = [RECORDS[at : at + LIMIT] for at in range(0, 5 * LIMIT, LIMIT)]
        for part in parts[:2]:
            await worker.processor.answer(await worker.processor.fold([Batch(0, part, {}, 0)]))
        frozen = await worker.processor.fold([Batch(0, parts[2], {}, 0)])
        behind = await worker.processor.fold([Batch(0, parts[3], {}, 0)])  # its events' rows are in none of the tables
        await worker.processor.checkpoint()
        assert kinds.FENCE.key() not in worker.state()
        await worker.processor.answer(frozen)
        await worker.processor.checkpoint()
        assert Fence.decode(worker.state()[kinds.FENCE.key()]).applied == 3 * LIMIT
        await worker.processor.answer(behind)
        await worker.processor.checkpoint(due=False)

    asyncio.run(scene())
    other = run(Machine(), tmp_path / "other", records=RECORDS[: 4 * LIMIT])
    assert worker.state() == other.state()
    assert [(len(entry.topics), entry.applied) for entry in machine.noted] == [(60, 60), (20, 80)]


def test_a_batch_that_changes_more_than_a_checkpoint_may_have_is_cut_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Machine()
    state = run(whole, tmp_path / "whole").state()
    monkeypatch.setattr(Settings, "enough_bytes", 15_000)
    machine = Machine()
    assert run(machine, tmp_path / "cut", limit=200).state() == state
    assert flat(machine.answers) == flat(whole.answers)
    assert len(machine.noted) > 3
