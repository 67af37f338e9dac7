"""Planted bugs of workers; see `tests.simulation.planting`."""

import asyncio
from typing import Any, Final

from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from agents import intake, topology
from agents.processor import BatchProcessor
from agents.served import ServedPartition
from state import kinds
from state.journal import NONE, Journal
from streams.faust import fetching, state_table, stores, write_ring
from streams.faust.changelog import Changelog, Writer
from streams.faust.inputs import DataLossError
from streams.faust.outputs import Heard, Outputs
from streams.faust.producing import BatchProducer
from streams.faust.state_table import StateTable
from streams.faust.stores import RocksStore
from streams.faust.transport import BatchConsumer
from streams.records.merge import PartitionBuffer
from tests.simulation.bugs import MOVING, QUIET_AND_KILLED, Bug, not_awaited, returning, struck, unstamped
from tests.simulation.plan import LOST_TAIL


def _never(_: Any) -> Any:
    async def nothing(*_: Any, **__: Any) -> None:
        await asyncio.sleep(0)

    return nothing


def _answers_first(_: Any) -> Any:
    async def answer(self: BatchProcessor, turn: Any) -> None:
        async with self._wholly({part.batch.partition: part.served for part in turn.parts}):
            async with self._answering:
                await self._send(turn.parts)
            async with self._noting:
                await self._note(turn.parts)

    return answer


def _written_early(note: Any) -> Any:
    async def noted(self: BatchProcessor, parts: Any) -> None:
        await note(self, parts)
        for part in self._here(parts):
            if part.served.waiting is not None:
                await self._write(part.batch.partition, part.served, part.served.waiting)

    return noted


def _rows_dropped(commit: Any) -> Any:
    async def committed(self: StateTable, partition: int, rows: Any, *rest: Any) -> None:
        ledger = [key for key in rows if key.startswith(kinds.LEDGER.letter)]
        await commit(self, partition, {key: rows[key] for key in rows if key not in ledger[-1:]}, *rest)

    return committed


def _disk_first(_: Any) -> Any:
    async def committed(self: StateTable, partition: int, rows: Any, *_: Any) -> None:
        async with self._locked([partition]):
            self.store.write(partition, rows.items(), self._expected(partition) or 0)
            await self._append({partition: rows})
            self._unwritten.pop(partition)

    return committed


def _no_head(_: Any) -> Any:
    async def write(self: BatchProcessor, number: int, served: ServedPartition, waiting: Any) -> None:
        changes, entry, *_ = waiting
        async for _ in self.pace.slices(changes.slices()):
            pass
        await self._outputs.note(number, entry.encode())
        await self._table.commit(number, changes.rows)
        served.waiting, served.written = None, entry.number
        changes.rows, changes.of_streams = {}, {}

    return write


def _heard_late(heard: Any) -> Any:
    return lambda self, starts: heard(self, {n: [each + 1 for each in offsets] for n, offsets in starts.items()})


async def _deaf(_: Outputs, starts: Any) -> dict[int, Heard]:
    await asyncio.sleep(0)
    return {n: Heard() for n in starts}


def _answered_early(entry: Any) -> Any:
    return lambda self, *rest: entry(self, *rest)._replace(answered=self.number + 1)


def _sorted(took: Any) -> Any:
    return lambda self, records: bytes(sorted(took(self, records)))


def _by_arrival(_: Any) -> Any:
    def new(self: PartitionBuffer, limit: int, *_: Any) -> Any:
        records: list[Any] = []
        for topic, buffer in enumerate(self.buffers):
            while buffer and len(records) < limit:
                records.append((topic, buffer.popleft()))
                self.sizes[topic] -= len(records[-1][1].value or b"") + len(records[-1][1].key or b"")
        return records

    return new


def _not_again(applied: Any) -> Any:
    async def mutant(self: topology.Topology, partition: int, said: Any = ()) -> Any:
        fence, found = await applied(self, partition, said)
        return found.ends(fence), Journal(found.number, (NONE, NONE), [])

    return mutant


def _as_now(reopen: Any) -> Any:
    return lambda self, partition, recall=None, said=(0, 0, 0): reopen(self, partition, None, said)  # noqa: ARG005 - left out


def _tick_of_now(again: Any) -> Any:
    def made(self: PartitionBuffer, records: Any, entry: Any, tick: int) -> Any:
        return again(self, records, entry, tick and int(clock() * 1000))

    from tests.simulation.loop import wall as clock  # noqa: PLC0415 - the clock of the simulation

    return made


def _tick_twice(tick: Any) -> Any:
    async def mutant(self: BatchProcessor, batch: Any, served: Any) -> Any:
        if batch.again is not None:
            served.engine.tick(batch.tick + 1500)
        return await tick(self, batch, served)

    return mutant


def _skips_one(seek: Any) -> Any:
    return lambda self, positions: seek(
        self, {tp: n + 2 * (tp.topic == "outcomes" and n > 0) for tp, n in positions.items()}
    )


def _short(restore: Any) -> Any:
    def mutant(store: Any, partition: int, records: Any, now: int) -> None:
        restore(store, partition, [*records[: max(1, len(records) - 2)], records[-1]], now)

    return mutant


def _one_on(persisted: Any) -> Any:
    def mutant(self: RocksStore, tp: Any) -> int | None:
        offset = persisted(self, tp)
        return None if offset is None else offset + 1

    return mutant


def _not_idempotent(send: Any) -> Any:
    async def append(self: BatchProducer, batches: Any) -> Any:
        for batch, *_ in batches:
            batch.stamp = batch.stamp or (-1, -1, -1)
        return await send(self, batches)

    return append


def _active_at_once(claim: Any) -> Any:
    async def claimed(self: Changelog, partition: int) -> int:
        offset: int = await claim(self, partition)
        self._writers[partition] = self._claimed[partition]
        return offset

    return claimed


def _claims_late(_: Any) -> Any:
    async def highwaters(self: BatchConsumer, *partitions: Any) -> Any:
        found = await self._thread.highwaters(*partitions)
        changelogs = sorted(tp.partition for tp in partitions if self._is_changelog_tp(tp))
        if changelogs:
            await self._while_ours(self._claim(changelogs))
        return found

    return highwaters


def _same_epoch(identify: Any) -> Any:
    given: dict[Any, Any] = {}

    async def identified(self: BatchProducer, name: str, held: Any) -> Any:
        loop = asyncio.get_running_loop()
        if (loop, name) not in given:
            given[loop, name] = await identify(self, name, held)
        return given[loop, name]

    return identified


def _no_rest(take: Any) -> Any:
    def mutant(self: PartitionBuffer, *rest: Any, **options: Any) -> Any:
        for batch in self.out:
            batch.again = None
        return take(self, *rest, **options)

    return mutant


def _of_zero(reader: Any) -> Any:
    return lambda self, _: reader(self, 0)


def _taken_unread(_: Any) -> Any:
    async def take_next(self: BatchConsumer) -> None:
        for tp, fetched in (await self._fetched()).items():
            if self._is_changelog_tp(tp):
                await self._restore(tp, fetched)
            else:
                self._buffer(tp, fetched)
        self._note_positions()
        self._throttle()
        self.hand_out()

    return take_next


def _acknowledged_early(_: Any) -> Any:
    async def process(self: topology.Topology, turn: Any, folded: Any) -> bool:
        applied = await self.processor.fold(turn)
        folded()
        asyncio.get_running_loop().create_task(self.processor.answer(applied))
        return True

    return process


async def _vetted_alone(self: BatchConsumer, partitions: list[int]) -> None:
    await asyncio.gather(*map(self.table.claim, partitions))
    offsets = self.app.tables.recovery.active_offsets  # type: ignore[attr-defined]
    for partition in await self.table.vet(partitions):
        offsets[TP(self.inputs.settings.changelog, partition)] = None


def _never_there(out_of_range: Any) -> Any:
    async def mutant(self: BatchConsumer, positions: dict[TP, int]) -> None:
        for tp, position in positions.items():
            if position >= (await self.earliest_offsets(tp))[tp]:
                raise DataLossError(f"{tp} has no offset {position}")
        await out_of_range(self, positions)

    return mutant


async def _never_cut(*_: object) -> int:
    await asyncio.sleep(0)
    return 1 << 62


def _unknown(begin: Any) -> Any:
    def mutant(self: PartitionBuffer, *rest: Any) -> None:
        begin(self, *rest)
        self.known = [(offset, NONE) for offset, _ in self.known]

    return mutant


#: By what is wrong, in words. The last ones were bugs, and a seed found them.
MUTANTS: Final = {
    "answers go out before the journal has their entry": Bug([(BatchProcessor, "answer", _answers_first)]),
    "answers are not waited for": Bug([(Outputs, "send", not_awaited)]),
    "a checkpoint is written before the answers of its batches are out": Bug(
        [(BatchProcessor, "_note", _written_early)]
    ),
    "an entry says that its own answers are out": Bug([(ServedPartition, "entry", _answered_early)]),
    "a row is left out of a checkpoint": Bug([(StateTable, "commit", _rows_dropped)]),
    "rows go to the disk before the changelog": Bug([(StateTable, "commit", _disk_first)]),
    "a checkpoint does not say where the journal goes on": Bug([(BatchProcessor, "_write", _no_head)]),
    "the tail of the outputs is read from one record too late on": Bug([(Outputs, "heard", _heard_late)]),
    "the tail of the outputs is not read": Bug([(Outputs, "heard", lambda _: _deaf)]),
    "an entry has the order of topics, not that of its records": Bug([(ServedPartition, "took", _sorted)]),
    "records are merged by arrival": Bug([(PartitionBuffer, "_new", _by_arrival)]),
    "what is in the journal is not folded again": Bug([(topology.Topology, "applied", _not_again)]),
    "the journal is folded again under the settings of now": Bug([(BatchProcessor, "reopen", _as_now)]),
    "a tick that comes again has the time of now": Bug([(PartitionBuffer, "_made", _tick_of_now)], QUIET_AND_KILLED),
    "a tick that comes again goes further": Bug([(BatchProcessor, "_tick", _tick_twice)], QUIET_AND_KILLED),
    "the clock does not tick": Bug(
        [(BatchProcessor, "tick", returning(0))], lambda plan: plan.settings["quiet_seconds"] > 0
    ),
    "inputs are sought too far": Bug([(BatchConsumer, "seek_wait", _skips_one)]),
    "a row is lost while others are restored": Bug([(state_table, "restore", _short)]),
    "the disk says that it has one row more": Bug([(RocksStore, "persisted_offset", _one_on)]),
    "a hole among the writes of a disk goes unnoticed": Bug(
        [(write_ring, "gap", returning(None))], struck("torn disk")
    ),
    "a disk of another changelog is taken": Bug([(RocksStore, "_unfit", returning(None))], struck("foreign disk")),
    "damage on the disk is an error like others": Bug([(stores, "_is_damage", returning(0))], struck("damaged disk")),
    "the changelog is written without the claim's epoch": Bug([(BatchProducer, "append", unstamped)]),
    "a claim raises no epoch": Bug([(BatchProducer, "identify", _same_epoch)]),
    "what is sent again is another batch": Bug([(BatchProducer, "append", _not_idempotent)]),
    "a new claim is written under before the state is restored": Bug([(Changelog, "claim", _active_at_once)], MOVING),
    "the end of the changelog is read before it is claimed": Bug([(BatchConsumer, "highwaters", _claims_late)]),
    "the numbers of a producer begin anew": Bug([(Writer, "stamp", lambda _: lambda self, _: (*self.identity, 0))]),
    "new records are merged while others are folded again": Bug([(PartitionBuffer, "take", _no_rest)]),
    "rows are read of another partition": Bug([(RocksStore, "reader", _of_zero)]),
    "what is fetched while somebody seeks is taken": Bug([(BatchConsumer, "_take_next", _taken_unread)]),
    "what was dropped is not sought again": Bug([(BatchConsumer, "_seek_back", _never)]),
    "a turn is acknowledged before it is answered": Bug([(topology.Topology, "process", _acknowledged_early)]),
    "no checkpoint is ever due": Bug([(ServedPartition, "due", returning(0))]),
    "what moved is answered": Bug([(BatchProcessor, "_here", lambda _: lambda _, parts: list(parts))], MOVING),
    "rows that were found damaged are restored from where the recovery before ended": Bug(
        [(BatchConsumer, "_claim", lambda _: _vetted_alone)], struck("damaged disk")
    ),
    "what a new leader lacks for a moment is lost": Bug(
        [(BatchConsumer, "_out_of_range", _never_there)], struck("leaders")
    ),
    "a reader does not ask whether the log was cut behind it": Bug(
        [(fetching, "end_of_epoch", lambda _: _never_cut)], struck(LOST_TAIL)
    ),
    "nobody looks whether the last record that was applied is still there": Bug(
        [(PartitionBuffer, "begin", _unknown)], struck(LOST_TAIL)
    ),
    "a leader of the group that no broker answers shares out nothing for minutes": Bug(
        [(module, "ask_for_topics", returning(None)) for module in (fetching, intake)], struck("cut")
    ),
    "a rebalance amid a stop closes the connections under a commit": Bug(
        [(fetching.LoopConsumer, "close", lambda _: driver.AIOKafkaConsumerThread.close)], struck("cut")
    ),
}
