"""What a crash leaves: whoever takes the partition up next ends where a run without the crash ended."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from faust.types import TP

from agents.processor import BatchProcessor
from state import journal, kinds
from state.events import Output
from state.fence import FORECASTS, OUTCOMES, Fence
from state.journal import Entry
from streams.config.settings import Settings
from streams.faust.changelog import FencedError, MovedError
from streams.faust.outputs import Heard, Outputs
from streams.records.merge import Batch, Merged, PartitionBuffer
from tests.events import Sent, mixed
from tests.streams.fakes import Batch as RowBatch
from tests.streams.fakes import Producer, record, wire

CHANGELOG = "trueup-state-changelog"
SOURCES = TP("forecasts", 0), TP("outcomes", 0)
#: Records of a batch.
LIMIT = 20


class KilledError(Exception):
    """The process was killed."""


class Machine:
    """Brokers that outlive a worker, which is killed before or after one of its requests."""

    def __init__(self) -> None:
        self.producer = Producer()
        #: Of the worker that runs, and of all.
        self.answers: list[list[Output]] = []
        self.answered: list[list[Output]] = []
        self.noted: list[Entry] = []
        #: After how many half requests the worker is killed; each counts before it is sent and when it is answered.
        self.left = -1
        append = self.producer.append

        async def appended(batches: Sequence[tuple[RowBatch, str, int]]) -> list[int]:
            return cast("list[int]", await self.sent(lambda: append(batches)))

        self.producer.append = appended  # type: ignore[method-assign]

    async def sent(self, request: Callable[[], Awaitable[Any]]) -> Any:
        self.step()
        answer = await request()
        self.step()
        return answer

    def step(self) -> None:
        if self.left == 0:
            raise KilledError
        self.left -= 1


class Told:
    """Stands for `Outputs`, on a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def batch(self, _: int, __: Settings, heard: Heard | None = None) -> "Told.Batch":
        return Told.Batch(heard)

    async def heard(self, starts: Mapping[int, Sequence[int]]) -> dict[int, Heard]:
        async def read() -> dict[int, Heard]:
            await asyncio.sleep(0)
            said = [(None, repr(each).encode()) for each in flat(self.machine.answered)]
            ((partition, (start, *_)),) = starts.items()
            found = Heard()
            found.said["calibrated"].extend(said[start:])
            found.ends["calibrated"] = len(said)
            return {partition: found}

        return cast("dict[int, Heard]", await self.machine.sent(read))

    async def note(self, _: int, entry: bytes) -> None:
        async def noted() -> None:
            await asyncio.sleep(0)
            self.machine.noted.append(Entry.decode(entry))

        await self.machine.sent(noted)

    async def send(self, batches: Sequence["Told.Batch"]) -> dict[int, dict[str, int]]:
        async def answered() -> dict[int, dict[str, int]]:
            await asyncio.sleep(0)
            answers = [batch.outputs for batch in batches]
            self.machine.answers += answers
            self.machine.answered += answers
            return {0: {"calibrated": len(flat(self.machine.answered))}}

        return cast("dict[int, dict[str, int]]", await self.machine.sent(answered))

    class Batch:
        """Outputs of a batch."""

        def __init__(self, heard: Heard | None) -> None:
            self.outputs, self.partition, self._heard = list[Output](), 0, heard

        def add(self, outputs: Sequence[Output]) -> None:
            made: list[Any] = [(None, repr(each).encode(), None, []) for each in outputs]
            unsaid = len(made) if self._heard is None else len(self._heard.unsaid("calibrated", made))
            self.outputs += outputs[len(made) - unsaid :]


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


class Worker:
    """A worker on an empty disk: all it knows is what the brokers have."""

    def __init__(self, machine: Machine, directory: Path, settings: Settings | None = None) -> None:
        self.machine = machine
        self.topology = wire(directory, memory=True, producer=machine.producer, settings=settings)
        self.processor = BatchProcessor(
            self.topology.settings, self.topology.table, cast("Outputs", Told(machine)), self.topology.gauges
        )

    async def run(
        self,
        records: Sequence[Merged],
        recall: Callable[[str], Awaitable[Settings]] | None = None,
        limit: int = LIMIT,
    ) -> None:
        """Restore, take up the partition, fold what there is and answer it, a batch while the next is folded; stop."""
        self.machine.producer.newest.clear()  # each worker has a producer id of its own
        rows = self.machine.producer.rows(CHANGELOG)
        changelog = [record(CHANGELOG, 0, offset, 0, row.key, row.value) for offset, row in enumerate(rows)]
        if changelog:
            self.topology.restore(TP(CHANGELOG, 0), changelog)
        said = len(flat(self.machine.answered)), 0, 0
        fence, found = await self.processor.reopen(0, recall, said)
        buffer = PartitionBuffer(0, SOURCES)
        buffer.begin(fence.next, found)
        for topic in (FORECASTS, OUTCOMES):
            buffer.add(topic, [each for of, each in records if of == topic and each.offset >= fence.next[topic]])
        pending = deque[tuple[Batch, asyncio.Task[None]]]()
        try:
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
        except MovedError:
            assert not self.machine.left, "it was killed while it answered"
            raise KilledError from None
        finally:
            for _, answering in pending:
                answering.cancel()
            await asyncio.gather(*[answering for _, answering in pending], return_exceptions=True)

    def state(self) -> dict[bytes, bytes]:
        """Return the rows, but for the ring of the journal: how often it was written is no part of the state."""
        table = self.topology.table
        rows = {key: row for n in range(256) for key, row in table.range(0, bytes([n]))}
        return {key: row for key, row in rows.items() if not key.startswith((kinds.JOURNAL.letter, kinds.CLAIM.key()))}


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.processor.CHECKPOINT_BATCHES", 3)
    monkeypatch.setattr("agents.processor.CHECKPOINT_RECORDS", 50)  # amid a batch that is folded again in parts


RECORDS = merged(mixed(65).sent)


def flat(answers: Iterable[list[Output]]) -> list[Output]:
    return [output for batch in answers for output in batch]


def run(machine: Machine, directory: Path, **options: Any) -> Worker:
    worker = Worker(machine, directory, options.pop("settings", None))
    asyncio.run(worker.run(options.pop("records", RECORDS), **options))
    return worker


def test_a_crash_at_any_request_changes_neither_state_nor_answers(tmp_path: Path) -> None:
    whole = Machine()
    state, answers = run(whole, tmp_path / "whole").state(), flat(whole.answers)
    assert [len(entry.topics) for entry in whole.noted][:2] == [3 * LIMIT, 3 * LIMIT]
    for crash in count():
        machine, runs = Machine(), list[list[Output]]()
        for left in (crash, crash % 17 + 1, -1):  # and once more while it folds again
            machine.left, machine.answers = left, []
            with suppress(KilledError):
                worker = run(machine, tmp_path / str(crash), limit=7 if runs else LIMIT)
            runs.append(flat(machine.answers))
        assert worker.state() == state, crash
        assert flat(machine.answered) == answers, crash
        if runs[0] == answers and not any(runs[1:]):
            break
    assert crash > 30


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
        assert kinds.FENCE.key() not in worker.state()
        await worker.processor.answer(frozen)
        assert Fence.decode(worker.state()[kinds.FENCE.key()]).applied == 3 * LIMIT
        await worker.processor.answer(behind)
        await worker.processor.checkpoint(due=False)

    asyncio.run(scene())
    other = run(Machine(), tmp_path / "other", records=RECORDS[: 4 * LIMIT])
    assert worker.state() == other.state()
    assert [(len(entry.topics), entry.applied) for entry in machine.noted] == [(60, 60), (20, 80)]


def test_another_worker_claims_and_neither_entries_nor_checkpoints_of_the_old_one_are_appended(tmp_path: Path) -> None:
    machine = Machine()
    old, new = Worker(machine, tmp_path / "old"), Worker(machine, tmp_path / "new")

    async def scene() -> None:
        await old.topology.claim(0)
        await old.processor.reopen(0)
        await old.processor.answer(await old.processor.fold([Batch(0, RECORDS[:LIMIT], {}, 0)]))
        await new.topology.claim(0)
        appended = list(machine.producer.sent)
        with pytest.raises(FencedError):
            await old.processor.checkpoint(due=False)
        await old.processor.reopen(0)  # under its old claim
        with pytest.raises(FencedError):
            await old.processor.answer(await old.processor.fold([Batch(0, RECORDS[LIMIT : 2 * LIMIT], {}, 0)]))
        assert machine.producer.sent == appended

    asyncio.run(scene())


def test_after_a_crash_the_journal_is_folded_under_the_configuration_of_then(tmp_path: Path) -> None:
    before, after = (Settings.from_env({"TRUEUP_DEFAULT_CALIBRATOR": name}) for name in ("histogram", "platt"))
    machine, asked = Machine(), list[str]()

    async def recall(config: str) -> Settings:
        asked.append(config)
        return before

    machine.left = 17
    with pytest.raises(KilledError):
        run(machine, tmp_path / "first", settings=before)
    rows = {row.key or b"": row.value for row in machine.producer.rows(CHANGELOG)}
    entries = journal.read(rows.get).entries
    machine.left = -1
    state = run(machine, tmp_path / "second", settings=after, recall=recall).state()
    assert asked == [entries[0].config.hex()]

    plain = Machine()
    n = sum(entries[-1].ends)
    run(plain, tmp_path / "third", settings=before, records=RECORDS[:n])
    assert run(plain, tmp_path / "fourth", settings=after).state() == state
    configs = {entry.config for entry in machine.noted}
    assert len(configs) == 2


def test_a_batch_that_changes_more_than_a_checkpoint_may_have_is_cut_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Machine()
    state = run(whole, tmp_path / "whole").state()
    monkeypatch.setattr(Settings, "checkpoint_bytes", 60_000)
    machine = Machine()
    assert run(machine, tmp_path / "cut", limit=200).state() == state
    assert flat(machine.answers) == flat(whole.answers)
    assert len(machine.noted) > 3
