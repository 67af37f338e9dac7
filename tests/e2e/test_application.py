"""The contract of `streams.faust.application`: what whoever serves partitions may rely on, on a real broker.

The partitions are served by a `Server` that counts in one row what it was given, and applies nothing twice.
"""

import asyncio
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
from aiokafka import TopicPartition
from faust.types import TP

from state.engine import BATCH_LIMIT, OUTSTANDING
from state.journal import NONE, Journal
from streams.config.settings import Settings
from streams.faust.application import Application
from streams.faust.changelog import MovedError
from streams.faust.turns import Turn
from streams.records.merge import Batch, KafkaRecord
from tests.e2e.world import World, wait_for
from tests.events import Sent

# aiokafka leaves a connection that it opened while it was stopped to the garbage collector, which comes in any test.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

MakeWorld = Callable[..., World]

ROW = b"applied"
FENCE = struct.Struct("<QQ")


class Server:
    """Serves the partitions of one application, in a thread of its own, and notes what it was asked to do."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sources = settings.forecasts, settings.outcomes
        #: The calls, by name and partition; and every batch with the records that were new.
        self.calls: list[tuple[str, int]] = []
        self.batches: list[tuple[Batch, list[tuple[int, int, int]]]] = []
        self.errors: list[BaseException] = []
        #: While it is not set, batches are not answered.
        self.answers = threading.Event()
        self.answers.set()
        #: Whether batches fail, before or after their commit; and how many have.
        self.fails = ""
        self.failures = 0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._stop = threading.Event()

    async def _run(self) -> None:
        self.app = Application(self.settings)
        self.table = self.app.table
        self.app.serve(self, self.process)
        running = asyncio.create_task(self.app.start())
        running.add_done_callback(lambda done: self.errors.extend(filter(None, [done.exception()])))
        await asyncio.to_thread(self._stop.wait)
        await self.app.stop()

    @contextmanager
    def running(self) -> Iterator["Server"]:
        """Run it; what is in flight on leaving is finished first."""
        self.settings.state_dir.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        try:
            yield self
        finally:
            self.answers.set()
            self._stop.set()
            self._thread.join()

    def serves(self, *partitions: int) -> bool:
        """Whether it has taken up exactly these partitions, and serves them."""
        assert not self.errors, self.errors
        held = {n for call, n in self.calls if call == "applied" and self._last(n) == "applied"}
        return hasattr(self, "app") and self.app.serving and held == set(partitions)

    def _last(self, partition: int) -> str:
        return next(call for call, n in reversed(self.calls) if n == partition and call in ("applied", "revoked"))

    def new(self, partition: int) -> list[tuple[int, int, int]]:
        """Return topic, offset and time of the new records of a partition, in the order of their processing."""
        return [each for batch, new in list(self.batches) if batch.partition == partition for each in new]

    # What the transport asks.

    async def claim(self, partition: int) -> None:
        self.calls.append(("claim", partition))
        await self.table.claim(partition)

    async def vet(self, partitions: Sequence[int]) -> Sequence[int]:
        self.calls += [("vet", n) for n in partitions]
        return await self.table.vet(partitions)

    async def renew(self) -> None:
        await self.table.renew()

    def claimed(self, partition: int) -> bool:
        return self.table.is_claimed(partition)

    async def applied(self, partition: int, _: Sequence[int] = ()) -> tuple[tuple[int, int], Journal]:
        self.table.reopened(partition)
        self.calls.append(("applied", partition))
        return self._fence(partition), Journal(0, (NONE, NONE), [])

    async def forgo(self, partition: int, journal: Journal) -> None:
        raise NotImplementedError

    async def checkpoint(self) -> None:
        """Do nothing: every batch writes its row."""

    def _fence(self, partition: int) -> tuple[int, int]:
        row = self.table.read(partition, ROW)
        return FENCE.unpack(row) if row else (0, 0)

    def skipped(self, tp: TopicPartition) -> Mapping[int, str]:  # noqa: ARG002 - the transport's signature
        return {}

    def revoked(self, partition: int) -> None:
        self.calls.append(("revoked", partition))
        self.table.closed(partition)

    def restore(self, tp: TP, records: Sequence[KafkaRecord]) -> None:
        self.calls.append(("restore", tp.partition))
        self.table.restore(tp, records)

    def restored(self, partition: int) -> int:
        offset = self.table.offset(partition)
        return 0 if offset is None else offset + 1

    def lost(self, tp: TP, records: int) -> None:
        raise AssertionError((tp, records))

    def failed(self, exc: BaseException) -> None:
        self.errors.append(exc)

    @property
    def outputs(self) -> tuple[str, ...]:
        return ()

    def waits_for(self, _: Batch) -> bool:
        return False

    def tick(self, _: int) -> int:
        return 0

    async def process(self, turn: Turn, folded: Callable[[], None]) -> bool:
        """Process the batches of a turn, one after another."""
        for batch in turn:
            if not await self._process(batch):
                return False
        folded()
        await asyncio.to_thread(self.answers.wait)
        return True

    async def _process(self, batch: Batch) -> bool:
        """Commit the fence behind a batch, then answer it."""
        if self.fails == "before":
            self.failures += 1
            return False
        fence = list(self._fence(batch.partition))
        new = []
        for topic, record in batch.records:
            if record.offset >= fence[topic]:
                new.append((topic, record.offset, record.timestamp))
                fence[topic] = record.offset + 1
        try:
            if not self.app.holds(batch):
                raise MovedError
            if new:
                await self.table.commit(batch.partition, {ROW: FENCE.pack(*fence)})
        except MovedError:
            return True
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the test fails of it
            self.failed(exc)
            return False
        # The application empties the list of a batch that is done.
        self.batches.append((replace(batch, records=list(batch.records)), new))
        if self.fails == "after":
            self.failures += 1
            return False
        return True


def sent(n: int, start: int = 0, topics: Sequence[str] = ("forecasts", "outcomes")) -> list[Sent]:
    """Return records by time: forecasts at even ms, outcomes at odd ones."""
    return [
        Sent(topic, b"%d" % i, b"value", 1_000_000 + 2 * i + nth)
        for i in range(start, start + n)
        for nth, topic in enumerate(topics)
    ]


def ends(world: World) -> dict[int, list[int]]:
    """Return how many records each partition of both inputs holds."""
    held = {n: [0, 0] for n in range(world.partitions)}
    for topic, label in enumerate(("forecasts", "outcomes")):
        for record in world.read(label):
            held[record.partition][topic] += 1
    return held


def through(world: World, *servers: Server) -> bool:
    """Whether everything was processed by one server or another."""
    return all(
        len({each[:2] for server in servers for each in server.new(n)}) == sum(counts)
        for n, counts in ends(world).items()
    )


def test_a_partition_is_claimed_vetted_and_taken_up_before_its_first_batch(world: MakeWorld) -> None:
    w = world(partitions=2)
    w.send(sent(200))
    with Server(w.settings).running() as server:
        wait_for("all to be processed", lambda: through(w, server))
        calls = list(server.calls)
    for n in range(2):
        assert [call for call, of in calls if of == n and call != "restore"] == ["claim", "vet", "applied"]


def test_the_next_batch_waits_until_the_last_is_folded_and_two_at_most_are_unanswered(world: MakeWorld) -> None:
    w = world(partitions=1)
    w.send(sent(3 * BATCH_LIMIT, topics=["forecasts"]))
    server = Server(w.settings)
    server.answers.clear()
    with server.running():
        wait_for("as many batches as may be on their way", lambda: len(server.batches) == OUTSTANDING)
        wait_for("the rest to be fetched", lambda: sum(each.records for each in server.app.buffered()) > 0)
        assert len(server.batches) == OUTSTANDING
        server.answers.set()
        wait_for("all to be processed", lambda: through(w, server))


def test_partitions_that_move_lose_and_double_nothing(world: MakeWorld) -> None:
    w = world(partitions=4)
    w.send(sent(2000))
    with ExitStack() as stack:
        first = stack.enter_context(Server(w.settings).running())
        wait_for("the first to serve all", lambda: first.serves(0, 1, 2, 3))
        second = stack.enter_context(Server(replace(w.settings, data_dir=w.directory / "other")).running())
        for start in range(2000, 8000, 500):
            w.send(sent(500, start=start))
        wait_for("both to serve", lambda: _share(first) and _share(second))
        w.send(sent(500, start=8000))
        wait_for("all to be processed", lambda: through(w, first, second))
    for n in range(4):
        new = [*first.new(n), *second.new(n)]
        assert len(new) == len({each[:2] for each in new}) == sum(ends(w)[n])
    assert any(call == "revoked" for call, _ in first.calls)


def _share(server: Server) -> bool:
    return any(server.serves(*held) for held in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)))


def test_offsets_are_committed_behind_what_is_answered(world: MakeWorld) -> None:
    w = world(partitions=1)
    w.send(sent(300))
    with Server(w.settings).running() as server:
        w.wait_until_applied(600)
    assert sum(len(new) for _, new in server.batches) == 600
